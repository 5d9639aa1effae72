"""Insert the command that rebuilds an environment into the findings of its verdict."""

from __future__ import annotations

import dataclasses
import re
import shlex
from pathlib import Path

from ..environment import state
from ..errors import BuildError
from ..model import FRAMEWORKS, Environment, Lock, Verdict

_BARE = re.compile(r"gpuenv create --recreate(?P<named> --framework)?")


def add_rebuild_commands(verdict: Verdict, env: Environment, lock: Lock | None) -> Verdict:
    """Return the verdict with fixes that name this environment and its frameworks.

    If gpuenv did not make the environment, the fixes name a new one.
    """
    fixes = " ".join([*(f.fix or "" for f in verdict.findings), verdict.hint or ""])
    if not _BARE.search(fixes):
        return verdict
    whole = _command(verdict, env, lock)
    alone = whole.partition(" --framework")[0]

    def typed(text: str) -> str:
        return _BARE.sub(lambda m: f"{alone} --framework" if m["named"] else whole, text)

    return dataclasses.replace(
        verdict,
        findings=tuple(
            dataclasses.replace(f, fix=typed(f.fix) if f.fix else f.fix) for f in verdict.findings
        ),
        hint=typed(verdict.hint) if verdict.hint else verdict.hint,
    )


def _command(verdict: Verdict, env: Environment, lock: Lock | None) -> str:
    where = f"{shlex.quote(env.path)} --recreate" if env.made_by_gpuenv else "NEW"
    if lock and _of_a_project(Path(env.path)):
        return f"gpuenv create {where}"
    verified = [s.framework for s in verdict.stages if s.framework in FRAMEWORKS]
    names = [b.framework for b in lock.plan.builds] if lock else list(dict.fromkeys(verified))
    return " ".join(
        [f"gpuenv create {where}", *(f"--framework {n}" for n in names or ["|".join(FRAMEWORKS)])]
    )


def _of_a_project(env: Path) -> bool:
    """Return whether the environment was made from a gpuenv.yaml. The options alone would leave its contents
    out."""
    try:
        recorded = (state.read(env, "request.json") or {}).get("choices") or {}
    except BuildError:
        return False
    return bool(recorded.get("config"))
