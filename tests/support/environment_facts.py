"""What an environment has installed, and what of its plan may not change."""

import json
import os
import sys
from pathlib import Path
from unittest import mock

from provision.environment import guard, place, record, registry
from provision.wheels import pylock

HERE = f"{sys.version_info[0]}.{sys.version_info[1]}"
GPU = ("--driver", "580.65.06", "--gpu", "H100")


def installed(env: Path) -> dict[str, str]:
    found = env.glob("lib/python3*/site-packages/*.dist-info/METADATA")
    lines = [path.read_text().splitlines() for path in found]
    return {t[1].removeprefix("Name: "): t[2].removeprefix("Version: ") for t in lines}


def stack(env: Path) -> tuple:
    """What may not change: device, CUDA, Python, and the machine that it is for."""
    plan = json.loads((env / ".gpuenv/plan.json").read_text())
    builds = [(b["framework"], b["version"], b["cuda"]) for b in plan["builds"]]
    return (
        plan["device"],
        plan["python"],
        plan["manager"],
        builds,
        plan["target"]["driver"],
        plan["target"]["gpus"],
    )


def own(env: Path, environ: dict[str, str] = os.environ) -> None:
    """Enter an environment that a test wrote or copied in the registry, as a run of `environ` that wrote it does.

    Its guard names its place.
    """
    if guard.read_address(env):
        guard.write(env, pylock.read_env_lock(env / place.MARK), on=True)
    with mock.patch.dict(os.environ, environ, clear=True):
        registry.add(env.resolve(), record=record.digest_record(env))


def ok(ran):
    assert ran.code == 0, ran.out + ran.err
    return ran


def refused(ran, code):
    """A run that has to end with this exit code."""
    assert ran.code == code, ran.out + ran.err
    return ran
