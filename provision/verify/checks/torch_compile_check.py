"""The built-in check `compile`: torch.compile of a small function.

It also names what torch.compile misses on the system.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...model import Environment, Evidence
from ...system import process, scratch_folders
from .. import run_probe

COMPILER, HEADERS = "c-compiler-missing", "python-headers-missing"
"""Rules of profiles/failures.yaml, which have the fixes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MissingTool:
    """A tool that a compiler needs and the system lacks. `rule` names the rule with the fix, `python` the
    version."""

    rule: str
    what: str
    python: str
    evidence: Evidence


@dataclass(frozen=True, kw_only=True, slots=True)
class CompileOutcome:
    """How the check ended. `problem` is None if it passed."""

    finished: process.Finished
    problem: str | None
    missing: tuple[MissingTool, ...] = ()


def run_compile_check(
    env: Environment, *, device: str, environ: Mapping[str, str], timeout: float
) -> CompileOutcome:
    """Compile a function with the torch of an environment, from empty caches. Raise OSError if Python does not
    start."""
    with scratch_folders.scratch("compile") as folder:
        caches = {
            "TORCHINDUCTOR_CACHE_DIR": str(folder / "torch"),
            "TRITON_CACHE_DIR": str(folder / "triton"),
        }
        report = run_probe.run_probe(env.python, ("report", "torch_compile"), {"device": device}, run_probe.ChildSettings(environ={**environ, **caches}, timeout=timeout))  # fmt: skip
    done, needs = report.last("compiled"), report.last("needs")
    if done and report.finished.ok:
        problem = None if done["ok"] else f"the results are off by {done['max_error']:g}"
        return CompileOutcome(finished=report.finished, problem=problem)
    missing = _list_missing(needs) if needs else ()
    named = " and ".join(m.what for m in missing)
    return CompileOutcome(
        finished=report.finished, problem=f"torch.compile needs {named}" if named else "", missing=missing
    )


def _list_missing(needs: Mapping[str, Any]) -> tuple[MissingTool, ...]:
    rows = []
    if needs["compiler"] is None:
        text = f"not on PATH: {', '.join(needs['compilers'])}"
        rows.append((COMPILER, "a C compiler", Evidence(text=text, source="PATH")))
    if not needs["headers"]:
        text = f"Python.h is not in {needs['include']}"
        rows.append(
            (HEADERS, f"Python.h of Python {needs['python']}", Evidence(text=text, source="sysconfig"))
        )
    return tuple(
        MissingTool(rule=rule, what=what, python=needs["python"], evidence=shows)
        for rule, what, shows in rows
    )
