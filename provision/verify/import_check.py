"""`--quick` on the CPU: each framework is imported in a child of its own, and nothing is computed.

On a GPU the layers below the frameworks prove something of the environment in half a second. The CPU has no such
layers, so the import is the least that runs anything of the environment.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from ..model import Event, Finding
from . import frameworks, probe, proved, unloaded
from .judged import Judged
from .state import Run, search, suspects

_REST = ("convolution", "loaded")


def stages(run: Run, names: Sequence[str]) -> None:
    """Add the stage `framework` for each name. The frameworks are imported at the same time."""
    there = {f.name for f in run.found.frameworks}
    present = [n for n in names if n in there]
    if present:
        run.emit(Event(kind="progress", stage="verify", text=f"importing {', '.join(present)}"))
    with ThreadPoolExecutor(max(1, len(present))) as pool:
        asked = {n: pool.submit(_ask, run, n, run.environ) for n in present}
        told = {n: future.result() for n, future in asked.items()}
    for name in names:
        if name in told:
            _add(run, name, told[name])
        else:
            run.add(
                "framework", Judged(status="fail", detail=f"{name} is not in this environment"), None, name
            )
        for stage in _REST:
            run.skip(stage, "not run with --quick", name)
    if not names:
        run.skip("framework", frameworks.none_in(run.env))
        for stage in _REST:
            run.skip(stage, "not run with --quick")


def _ask(run: Run, name: str, environ: Mapping[str, str]) -> probe.Told:
    return frameworks.ask(
        run.env,
        name,
        device=run.device,
        ordinals=(),
        deep=False,
        environ=environ,
        timeout=run.options.timeout,
        import_only=True,
    )


def _judge(run: Run, name: str, told: probe.Told) -> Judged:
    def missing(words: str) -> Finding | None:
        return unloaded.finding(name, words, run.env, run.found, run.packages)

    return frameworks.judge_import(name, told, lock=run.lock, roots=run.found.roots, unopened=missing)


def _add(run: Run, name: str, told: probe.Told) -> None:
    judged = _judge(run, name, told)
    run.add("framework", judged, proved.times(told).get("framework"), name)
    run.verdicts.append(proved.verdict(name, told, run.device, (), ()))
    if judged.status != "fail":
        return

    def cured(environ: Mapping[str, str]) -> bool:
        return _judge(run, name, _ask(run, name, environ)).status != "fail"

    search(run, suspects(run, name), cured, ())
