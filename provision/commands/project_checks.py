"""Select and run the checks of an environment, and diagnose those that fail."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..config import rows
from ..config.record import OwnProject, read_own_project
from ..errors import UsageError
from ..model import Check, Emit, Event
from ..system import process

if TYPE_CHECKING:
    from ..config.options import Choices
    from ..model import Environment, Finding, Verdict
    from ..verify import Options
    from ..verify.checks import CheckOutcome, MissingTool, PlacedCheck
    from .verify_packages import Examination

_TIMED_OUT = 124
"""The exit code of timeout(1) for a command that it ended."""


@dataclass(frozen=True, kw_only=True)
class CheckOptions:
    """The checks to run: those of the environment's own project, and those of a command line."""

    typed: tuple[Check, ...] = ()
    of_project: bool = True


@dataclass(frozen=True, kw_only=True)
class PlannedChecks:
    """The checks to run. `project` is None if the project's checks are not read."""

    typed: tuple[Check, ...] = ()
    project: OwnProject | None = None

    @property
    def digest(self) -> str | None:
        """The digest of the project's checks, or None if there are none."""
        return self.project.digest if self.project else None

    @property
    def placed(self) -> tuple[PlacedCheck, ...]:
        """The checks with their folders: the project's, or the current one for a command of the command line."""
        from ..verify.checks import PlacedCheck

        project_folder = self.project.file.parent if self.project and not self.project.problem else None
        checks = self.project.checks if self.project else ()
        typed = (
            PlacedCheck(check=c, folder=Path.cwd() if c.kind == "run" else project_folder) for c in self.typed
        )
        return (*(PlacedCheck(check=c, folder=project_folder) for c in checks), *typed)


def read_options(texts: Sequence[str]) -> tuple[Check, ...]:
    """Return the checks that a command line asks for. Raises UsageError."""
    from ..config.file import read_check

    checks: dict[str, Check] = {}
    for text in texts:
        try:
            check = read_check(text)
        except ValueError as error:
            raise UsageError(
                f"--check {text!r}: {error}", hint="--check 'import cv2', or --check 'python train.py --help'"
            ) from error
        checks[check.label] = check
    return tuple(checks.values())


def plan_checks(env: Path, selection: CheckOptions, options: Options) -> PlannedChecks:
    """Return the checks to run in an environment. --quick leaves out those of the project. Raises DataError."""
    wanted = selection.of_project and not options.quick
    return PlannedChecks(
        typed=selection.typed, project=read_own_project(env, options.cache_dir) if wanted else None
    )


def run_project_checks(
    examined: Examination, verdict: Verdict, planned: PlannedChecks, emit: Emit
) -> Verdict:
    """Add the stage `checks` to a verdict if there are any. They run if no earlier stage failed."""
    before = len(verdict.stages)
    verdict = _with_checks(examined, verdict, planned, emit)
    for stage in verdict.stages[before:]:
        emit(Event(kind="done", stage="verify", text=f"{stage.stage}: {stage.status}: {stage.detail}"))
    return verdict


def _with_checks(examined: Examination, verdict: Verdict, planned: PlannedChecks, emit: Emit) -> Verdict:
    from ..verify import checks

    env, choices, options = examined.env, examined.choices, examined.options
    placed, project = planned.placed, planned.project
    if project and project.problem and not (project.missing and placed):
        why = f"the project's checks did not run: {project.problem}"
        verdict = checks.skip_checks(verdict, why, warn=not project.missing, strict=options.strict)
    if not placed:
        return verdict
    if failed := next((s.stage for s in verdict.stages if s.status == "fail"), None):
        return checks.skip_checks(verdict, f"the {failed} stage failed")
    environ, device = _environ(emit, env, choices, options), "cpu" if verdict.verdict == "cpu" else "cuda"
    ended = checks.run_checks(env, placed, environ, emit, timeout=options.timeout, device=device)
    ended = tuple(dataclasses.replace(e, findings=_causes(e, env, choices)) for e in ended)
    return checks.add_checks(verdict, ended, strict=options.strict)


def _environ(emit: Emit, env: Environment, choices: Choices, options: Options) -> dict[str, str]:
    """Return the variables of `gpuenv run`. Bytecode is written outside of the environment, as in all stages
    of verify."""
    from ..system import cache
    from .run import find_programs, prepare_variables

    root, programs = find_programs(Path(env.python))
    environ = prepare_variables(emit, root, programs, process.environ(), choices)
    sites = [str(p) for p in root.glob("lib*/python3*/site-packages/*/__init__.py")]
    return environ | cache.choose_bytecode_folder([str(Path(p).parent) for p in sites], options.cache_dir)


def _causes(ended: CheckOutcome, env: Environment, choices: Choices) -> tuple[Finding, ...]:
    """Diagnose a failed check from what it printed and how it ended."""
    from ..verify.checks import make_command
    from .program_evidence import describe_exit
    from .run import explain_failure

    finished, placed, before = ended.finished, ended.placed, ended.before
    if ended.result.status == "pass" or not (finished and placed and before):
        return ()
    if ended.missing:
        return (_of_missing(ended.missing, choices),)
    late = finished.timed_out  # gpuenv ended it
    attended = process.ForegroundResult(
        returncode=_TIMED_OUT if late else finished.returncode,
        stderr=ended.text.encode("utf-8", "replace"),
        signal=None if late else finished.signal,
    )
    root = Path(env.path)
    how = describe_exit(root, make_command(env, placed.check), attended, before, placed.folder)
    return explain_failure(ended.result.label, attended, choices, root, how)


def _of_missing(missing: Sequence[MissingTool], choices: Choices) -> Finding:
    """Return one finding on all missing parts of a compiler. Installed one by one, each would reveal the
    next."""
    from ..profiles.findings import make_finding

    rules = {rule.name: rule for rule in rows.load_all(choices).failures}
    fixes = [(rules[m.rule].fix or "").replace("3.X", m.python) for m in missing]
    return make_finding(
        "compiler_parts_missing",
        tuple(m.evidence for m in missing),
        confidence="certain",
        cause=rules[missing[0].rule].cause,
        tools=" and ".join(m.what for m in missing),
        steps=" ".join(fixes),
    )
