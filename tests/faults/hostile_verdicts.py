"""Environments that lie about the machine, and compiled modules that were written to: what `verify` makes of them."""

from __future__ import annotations

import json
import marshal
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from field import ASK, Field, case
from verify_stub import make_environment, tamper

from driver_stub import H200, H200_MIG, T4, build, scenario, spec

ONE = spec(driver="580.159.04", cuda=13000, gpus=[H200])
TWO = spec(driver="580.159.04", cuda=13000, gpus=[H200, T4])
MIG = spec(driver="580.159.04", cuda=13000, gpus=[H200_MIG])
UUID = "text = bytes(uuid).hex()"
TOLD = 'tell("stage", stage="driver", failed=None, values=values)'


def told(**changes: object) -> str:
    """The report of the driver with some values replaced."""
    return TOLD.replace("values=values", f"values={{**values, **{changes!r}}}")


# What of the probe's code the environment's Python changes, and what it says instead.
LIES = {
    "another GPU": (ONE, UUID, "text = 'f' * 32"),
    "another GPU of two": (TWO, UUID, "text = bytes(uuid).hex() if not bytes(uuid).hex().startswith('2b') else 'f' * 32"),
    "one of its MIG devices is another": (MIG, TOLD, told(mig=["MIG-ffffffff-ffff-4fff-8fff-ffffffffffff"])),
    "another kernel module": (ONE, '"kernel_module": kernel_module()', '"kernel_module": "999.1"'),
    "another libcuda": (ONE, TOLD, told(libcuda="/usr/lib/libcuda.so.999.1")),
}  # fmt: skip


def environment(at: Field) -> Path:
    """A copy of an environment with stubs of NVIDIA's libraries."""
    kept = at.folder / "stubs"
    if not kept.exists():
        make_environment(kept)
    return Path(shutil.copytree(kept, at.work / "env", symlinks=True))


def judged(at: Field, env: Path, machine: str, *more: object) -> tuple[Any, dict[str, Any]]:
    """The run and the document of `verify` under such a driver."""
    at.gpuenv.env |= scenario(build(at.work / "driver"), machine)
    at.gpuenv.env.pop("CUDA_VISIBLE_DEVICES", None)
    ran = at.gpuenv("verify", env, "--json", *more)
    return ran, json.loads(ran.out or "{}")


def lied(at: Field, machine: str, old: str, new: str, *more: object) -> str | None:
    """An environment whose Python changes what it is given to run: a verdict of failure, for that reason."""
    env = environment(at)
    probes = Path(subprocess.run(
        [sys.executable, "-c", "import provision; print(provision.__path__[0])"],
        capture_output=True, text=True, check=True, cwd=at.folder,
    ).stdout.strip(), "probes")  # fmt: skip
    if old not in "".join(p.read_text() for p in probes.glob("*.py")):
        return f"the probe has no {old!r}: this case needs another text"
    tamper(env, old, new)
    ran, verdict = judged(at, env, machine, *more)
    problem = at.harm(ran, right=(8,))
    causes = [f["cause"] for f in verdict.get("findings", ())]
    if problem or verdict.get("verdict") != "fails":
        return problem or f"verdict {verdict.get('verdict')}"
    if causes != ["contradicts_machine"]:
        return f"it fails for {causes}"
    return (
        None if verdict["hint"].startswith("Do not trust this environment") else f"hint {verdict['hint']!r}"
    )


for what, (gpus, old, new) in LIES.items():
    case(f"verdicts: reports {what}")(lambda at, g=gpus, o=old, n=new: lied(at, g, o, n, "--quick"))
case("verdicts: reports another GPU, all stages")(lambda at: lied(at, ONE, UUID, "text = 'f' * 32"))


@case("verdicts: an honest environment does not contradict the machine")
def _(at: Field) -> str | None:
    env = environment(at)
    for machine in (ONE, TWO, MIG):
        ran, verdict = judged(at, env, machine, "--quick")
        (driver,) = (s for s in verdict["stages"] if s["stage"] == "driver")
        causes = [f["cause"] for f in verdict["findings"]]
        problem = at.harm(ran, right=(8,))  # it has no framework
        if problem or driver["status"] != "pass" or "contradicts_machine" in causes:
            return problem or f"{driver} {causes}"
    return None


# --- compiled modules ---------------------------------------------------------------------------------------

CREATE = (*ASK, "--no-verify")
MODULE = "jaxlib"


def compiled(at: Field, env: Path) -> Path:
    return at.site(env) / MODULE / "__pycache__" / f"__init__.{sys.implementation.cache_tag}.pyc"


def create(at: Field, name: str, *more: object) -> Path:
    ran = at.gpuenv("create", name, *CREATE, *more)
    assert ran.code == 0, ran.err
    return at.work / name


def write_over(at: Field, env: Path) -> None:
    """Other code into a compiled module in its place, with the head that fits its source."""
    code = compile(f"open({str(at.marker)!r}, 'a').write('x')\n", "x", "exec")
    with compiled(at, env).open("r+b") as file:
        file.seek(16)
        file.write(marshal.dumps(code))
        file.truncate()


def imported(at: Field, env: Path) -> None:
    argv = [env / "bin" / "python", "-c", f"import {MODULE}"]
    subprocess.run(argv, env=at.gpuenv.env, check=True, capture_output=True, timeout=60)


def changed(at: Field) -> tuple[Path, Path]:
    """Two compiled environments, one of them with a module that was written over."""
    at.gpuenv.env["UV_COMPILE_BYTECODE"] = "1"
    one, two = create(at, "one"), create(at, "two")
    write_over(at, one)
    imported(at, one)
    assert at.marker.exists(), "what was written is not what Python runs"
    at.marker.unlink()
    return one, two


@case("verdicts: a written .pyc is run by no other environment")
def _(at: Field) -> str | None:
    _, two = changed(at)
    for env in (two, create(at, "three"), create(at, "two", "--recreate")):
        imported(at, env)
        if problem := at.harm():
            return f"{env.name}: {problem}"
    return None


@case("verdicts: a written .pyc is not run by the environment made anew")
def _(at: Field) -> str | None:
    changed(at)
    imported(at, create(at, "one", "--recreate"))
    return at.harm()
