"""Add the stage `packages` to a verdict after the proof of the frameworks.

It reports, and never rolls an environment back.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from .. import verify
from ..config import rows
from ..config.options import Choices
from ..model import Emit, Event, StageResult

if TYPE_CHECKING:
    from ..model import Environment, Finding, Lock, Profiles, Verdict
    from ..verify.libraries import PythonPaths
    from ..verify.loader import Package
    from ..verify.packages import Reading


@dataclass(frozen=True, kw_only=True)
class Examination:
    """An environment to verify, its lock, and the options of the command and of the stage.

    With `always_read` the packages' files are read also if a stage before the frameworks failed.
    """

    env: Environment
    lock: Lock | None
    choices: Choices
    options: verify.Options
    always_read: bool = False


def make_reader(
    env: Environment, choices: Choices, environ: dict[str, str]
) -> Callable[[PythonPaths], Reading]:
    """Return a function that reads the installed packages while child processes run."""

    def read(python_paths: PythonPaths) -> Reading:
        from ..verify import packages

        return packages.read_packages(env.python, python_paths, environ, rows.load_for_verdict(choices))

    return read


def add_later_stages(
    examined: Examination, verdict: Verdict, emit: Emit, early_probes: verify.EarlyProbes | None = None
) -> Verdict:
    """Add the stage `packages` to a verdict. After a failed framework it imports nothing and can only warn."""
    from ..verify import add_stages

    if early_probes is None:
        with verify.begin(examined.env, examined.options, driver=False) as started:
            return add_later_stages(examined, verdict, emit, started)
    failed = next((s for s in verdict.stages if s.status == "fail"), None)
    findings: Sequence[Finding] = ()
    if failed and not failed.framework and not examined.always_read:
        stage = StageResult(stage="packages", status="skip", detail=f"the {failed.stage} stage failed")
    else:
        # After a failed stage nothing is imported: it could fail too. The files may show the reason.
        if failed:
            examined = dataclasses.replace(
                examined, options=dataclasses.replace(examined.options, quick=True)
            )
        stage, findings = _packages(examined, emit, early_probes)
    emit(Event(kind="done", stage="verify", text=f"{stage.stage}: {stage.status}: {stage.detail}"))
    return add_stages(verdict, [stage], findings, strict=examined.options.strict)


def _packages(
    examined: Examination, emit: Emit, early_probes: verify.EarlyProbes
) -> tuple[StageResult, Sequence[Finding]]:
    from ..verify import packages

    env, lock, choices, options = examined.env, examined.lock, examined.choices, examined.options
    surroundings = early_probes.python_paths.result()
    reading = (
        early_probes.reading().result()
        if early_probes.reading
        else make_reader(env, choices, early_probes.environ)(surroundings)
    )
    if reading.nominated and not options.quick:
        names = ", ".join(n.package.name for n in reading.nominated)
        emit(Event(kind="progress", stage="verify", text=f"importing {names}"))
    return packages.judge(
        reading, env=env, paths=surroundings, options=options, environ=verify.child_environ(early_probes, options),
        known=lambda: _known(lock, choices),
        required=_required(env, lock, choices, surroundings.version) if lock else None,
    )  # fmt: skip


def _known(lock: Lock | None, choices: Choices) -> Profiles:
    """Return the profile rows on libraries, and the rows measured on this machine."""
    from ..lock.needs import measured_rows

    known = rows.load_for_fixes(choices)
    return dataclasses.replace(known, satellites=(*known.satellites, *measured_rows(lock, choices)))


def _required(
    env: Environment, lock: Lock, choices: Choices, python: str
) -> Callable[[Sequence[Package]], Collection[str]]:
    """Return a function that selects the named packages and those that they always require."""

    def required(installed: Sequence[Package]) -> Collection[str]:
        from ..config.record import list_named_packages
        from ..verify.packages import list_required

        names = list_named_packages(Path(env.path), lock, choices)
        if names is None:
            always = {n for p in installed for n in p.requires_always(python)}
            names = frozenset(p.name for p in installed if p.name not in always)
        return list_required(installed, names, python)

    return required
