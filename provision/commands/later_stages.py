"""The stages of a verdict after the proof of the frameworks. They report, and never roll an environment back."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from .. import verify
from ..model import Emit, Event, StageResult
from ..request import load_profiles
from ..request.options import Choices

if TYPE_CHECKING:
    from ..model import Environment, Finding, Lock, Profiles, Verdict
    from ..verify.locate import PythonPaths
    from ..verify.packages import Reading
    from ..verify.packages.compiled_files import Package


def make_reader(
    env: Environment, choices: Choices, environ: dict[str, str]
) -> Callable[[PythonPaths], Reading]:
    """What reads the installed packages, for the time in which children are waited for."""

    def read(found: PythonPaths) -> Reading:
        from ..verify import packages

        return packages.read_environment(env, found, environ, load_profiles.load_for_verdict(choices))

    return read


def add_later_stages(
    emit: Emit,
    env: Environment,
    lock: Lock | None,
    choices: Choices,
    verdict: Verdict,
    options: verify.Options,
    begun: verify.Prefetch | None = None,
) -> Verdict:
    """The verdict with the stage `packages`. After a framework that failed it only reads, and can only warn."""
    from ..verify.make_verdict import add_stages

    if begun is None:
        with verify.begin(env, options, driver=False) as started:
            return add_later_stages(emit, env, lock, choices, verdict, options, started)
    failed = next((s for s in verdict.stages if s.status == "fail"), None)
    found: Sequence[Finding] = ()
    if failed and not failed.framework:
        stage = StageResult(stage="packages", status="skip", detail=f"the {failed.stage} stage failed")
    else:
        # After a framework that failed nothing is imported, which can fail alike. Reading may show the reason.
        how = dataclasses.replace(options, quick=True) if failed else options
        stage, found = _packages(emit, env, lock, choices, how, begun)
    emit(Event(kind="done", stage="verify", text=f"{stage.stage}: {stage.status}: {stage.detail}"))
    return add_stages(verdict, [stage], found, strict=options.strict)


def _packages(
    emit: Emit,
    env: Environment,
    lock: Lock | None,
    choices: Choices,
    options: verify.Options,
    begun: verify.Prefetch,
) -> tuple[StageResult, Sequence[Finding]]:
    from ..verify import packages

    surroundings = begun.python_paths.result()
    read = (
        begun.reading.result
        if begun.reading
        else lambda: make_reader(env, choices, begun.environ)(surroundings)
    )
    reading = read()
    if reading.nominated and not options.quick:
        names = ", ".join(n.package.name for n in reading.nominated)
        emit(Event(kind="progress", stage="verify", text=f"importing {names}"))
    asked = packages.Asked(
        env=env, found=surroundings, options=options, environ=verify.child_environ(begun, options),
        known=lambda: _known(lock, choices),
        required=_required(env, lock, choices, surroundings.version) if lock else None,
    )  # fmt: skip
    return packages.judge(reading, asked)


def _known(lock: Lock | None, choices: Choices) -> Profiles:
    """What the profiles say of libraries, and what was measured on this machine."""
    from .measure_unknown_wheels import measured_rows

    known = load_profiles.load_for_fixes(choices)
    return dataclasses.replace(known, satellites=(*known.satellites, *measured_rows(lock, choices)))


def _required(
    env: Environment, lock: Lock, choices: Choices, python: str
) -> Callable[[Sequence[Package]], Collection[str]]:
    """What the environment is for: the packages that were named, and what they always require."""

    def required(installed: Sequence[Package]) -> Collection[str]:
        from ..request.recorded_packages import list_named_packages
        from ..verify.packages import named_and_required

        names = list_named_packages(Path(env.path), lock, choices)
        if names is None:
            always = {n for p in installed for n in p.requires_always(python)}
            names = frozenset(p.name for p in installed if p.name not in always)
        return named_and_required(installed, names, python)

    return required
