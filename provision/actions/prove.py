"""Prove an environment: the stages of the proof, those after it, and the checks of its project."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from .. import detect, verify
from ..config import rows
from ..config.file import read_check
from ..config.options import Choices, get_cache_dir
from ..config.recall import OwnProject, list_named_packages, read_own_project
from ..detect import machine_for_verdict
from ..detect.device import explain_cpu, list_nvidia_traces
from ..environment import record
from ..errors import GpuenvError, UsageError
from ..model import (
    Check,
    Emit,
    Environment,
    Event,
    Lock,
    StageResult,
    Verdict,
)
from ..model.values import Value
from ..system import process
from ..verify.verification import LAYERS
from .explain import explain_log, explain_program
from .run import find_programs, prepare_variables

if TYPE_CHECKING:
    from ..environment.loader import Package
    from ..model import Finding, Machine, Profiles
    from ..verify.checks import CheckOutcome
    from ..verify.modules import ProjectImport

_TIMED_OUT = 124
"""The exit code of timeout(1) for a command that it ended."""


def start_probes(
    examined: Examination,
    *,
    driver: bool = True,
    packages: bool = False,
    machine: Callable[[], Machine] | None = None,
) -> AbstractContextManager[verify.EarlyProbes]:
    """Start the first probes of an environment. Its packages are read while they run, if the stage `packages` follows."""
    return verify.run_early_probes(
        examined.env,
        examined.options,
        driver=driver and not examined.for_cpu,
        machine=machine or make_machine_reader(examined.options),
        profiles=lambda: rows.load(examined.choices),
        packages=packages,
    )


def run_verification(examined: Examination, emit: Emit, early: verify.EarlyProbes) -> Verdict:
    """Return the verdict on an environment, compared with its lock if it has one."""
    releases = rows.load(examined.choices).cudnn
    diagnose = functools.partial(explain_log, choices=examined.choices)
    return verify.verify(early, examined.options, emit, examined.lock, diagnose=diagnose, releases=releases)


def make_machine_reader(options: verify.Options) -> Callable[[], Machine]:
    """Return a function that reads this machine's driver and GPUs within the time limit of a stage."""
    return lambda: machine_for_verdict(seconds=min(options.timeout, 30.0))


class Examination(Value):
    """An environment to verify and its lock. `choices` are options of the command, `options` those of the stage.

    With `always_read` the packages' files are read also if a stage before the frameworks failed.
    """

    env: Environment
    lock: Lock | None
    choices: Choices
    options: verify.Options = verify.Options()
    always_read: bool = False

    @property
    def for_cpu(self) -> bool:
        return verify.device_of(self.options, self.lock)[0] == "cpu"


def add_packages(examined: Examination, verdict: Verdict, emit: Emit, early: verify.EarlyProbes) -> Verdict:
    """Add the stage `packages` to a verdict. After a failed stage it imports nothing, and is skipped if that stage came
    before the frameworks."""
    failed = verdict.failed
    findings: Sequence[Finding] = ()
    if failed and failed.stage in LAYERS and not examined.always_read:
        result = StageResult(stage="packages", status="skip", detail=f"the {failed.stage} stage failed")
    else:
        # After a failed stage nothing is imported: it could fail too. The files may show the reason.
        if failed:
            examined = dataclasses.replace(
                examined, options=dataclasses.replace(examined.options, quick=True)
            )
        result, findings = _judge_packages(examined, emit, early)
        result, findings = _add_project_imports(examined, result, findings, early, emit)
    return verify.add_stage(verdict, result, findings, emit, strict=examined.options.strict)


def _judge_packages(
    examined: Examination, emit: Emit, early: verify.EarlyProbes
) -> tuple[StageResult, Sequence[Finding]]:
    from ..verify import packages

    env, lock, choices, options = examined.env, examined.lock, examined.choices, examined.options
    reading = early.reading.result()
    if reading.doubtful and not options.quick:
        names = ", ".join(n.package.name for n in reading.doubtful)
        emit(Event("progress", "verify", f"importing {names}"))
    return packages.judge(
        reading,
        seconds=None if options.quick else options.timeout,
        load_profiles=lambda: _read_libraries(lock, choices),
        list_wanted=functools.partial(_list_wanted, env, lock, choices, reading.paths.version)
        if lock
        else None,
        machine=early.machine.result() if reading.bad and not examined.for_cpu else None,
    )


_IMPORTS = "imports.json"
"""The file of an environment with the modules that its project imports, for --quick."""


def _add_project_imports(
    examined: Examination,
    result: StageResult,
    findings: Sequence[Finding],
    early: verify.EarlyProbes,
    emit: Emit,
) -> tuple[StageResult, Sequence[Finding]]:
    """Add a warning about modules that the environment's project imports and the environment lacks.

    --quick looks up what the last whole verification read. Nothing of the project runs.
    """
    from ..verify import modules

    path = Path(examined.env.path)
    try:
        kept = record.read(path, _IMPORTS).get("imports")
        if not examined.options.quick:
            found = _read_project_imports(path, examined)
            if found is None:
                return result, findings
            plain = [dataclasses.asdict(one) for one in found]
            if plain != kept:
                record.write(path, _IMPORTS, {"imports": plain})
            kept = plain
        imports = [modules.ProjectImport(**row) for row in kept or ()]
    except (GpuenvError, TypeError) as error:
        emit(Event("note", "verify", f"the project's imports are not known: {error}"))
        return result, findings
    sites = early.python_paths.result().sites
    locked = (
        {p.name for p in examined.lock.packages} if examined.lock else set()
    )  # the stage lock names these
    missing = [one for one in modules.find_missing(imports, sites) if one.package not in locked]
    removed = rows.load(examined.choices).removed_names
    absent = modules.find_absent(imports, sites, removed)
    for finding in (modules.explain_missing(missing), modules.explain_absent(absent)):
        if finding:
            result, findings = modules.add_warning(result, finding), (*findings, finding)
    return result, findings


def _read_project_imports(path: Path, examined: Examination) -> list[ProjectImport] | None:
    """Return the modules that programs of the environment's project cannot run without, or None without a project."""
    from ..requirements.scan import find_package, find_project_imports
    from ..verify.modules import ProjectImport

    project = read_own_project(path, get_cache_dir(examined.choices))
    if project is None or project.problem:
        return None
    known = rows.load(examined.choices)
    seen = find_project_imports(project.file.parent, known, project.requirements)
    packages = {module: find_package(module, known) for module in seen}
    parts = {
        module.partition(".")[0] for module in seen if "." in module
    }  # google is only a part of google.cloud
    found = [
        ProjectImport(module, uses.files[0], packages[module], uses.names)
        for module, uses in seen.items()
        if uses.files and (packages[module] or module not in parts)
    ]
    # those of programs near the top first
    return sorted(found, key=lambda one: (one.package is None, one.file.count("/"), one.module.lower()))


def _read_libraries(lock: Lock | None, choices: Choices) -> Profiles:
    """Return the profile rows on libraries, and the rows measured on this machine."""
    from ..lock.measured import read_rows

    known = rows.load(choices)
    return dataclasses.replace(known, satellites=(*known.satellites, *read_rows(lock, choices)))


def _list_wanted(
    env: Environment, lock: Lock, choices: Choices, python: str, installed: Sequence[Package]
) -> Collection[str]:
    """Return the named packages and those that they always require. Without names, what no other package requires is named."""
    from ..verify.packages import list_required

    names = list_named_packages(Path(env.path), lock, choices)
    if names is None:
        always = {n for p in installed for n in p.requires_always(python)}
        names = frozenset(p.name for p in installed if p.name not in always)
    return list_required(installed, names, python)


def read_checks(texts: Sequence[str]) -> tuple[Check, ...]:
    """Return the checks that a command line asks for. Raises UsageError."""
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


def read_project_checks(examined: Examination, *, allowed: bool) -> OwnProject | None:
    """Return the project of an environment if its checks are to run. --quick leaves them out. Raises DataError."""
    if examined.options.quick or not allowed:
        return None
    return read_own_project(Path(examined.env.path), get_cache_dir(examined.choices))


def run_checks(
    examined: Examination,
    verdict: Verdict,
    project: OwnProject | None,
    emit: Emit,
    typed: Sequence[Check] = (),
) -> Verdict:
    """Add the stage `checks` to a verdict if there are any. They run if no earlier stage failed.

    They run in the project's folder, but a command of the command line runs in the current one.
    """
    from ..verify import checks

    env, choices, options = examined.env, examined.choices, examined.options
    home = project.file.parent if project and not project.problem else None
    placed = [checks.PlacedCheck(check=c, folder=home) for c in (project.checks if project else ())]
    placed += [checks.PlacedCheck(check=c, folder=Path.cwd() if c.kind == "run" else home) for c in typed]
    if project and project.problem and not (project.missing and placed):
        why = f"the project's checks did not run: {project.problem}"
        verdict = checks.skip_checks(verdict, why, emit, warn=not project.missing, strict=options.strict)
    if not placed:
        return verdict
    if verdict.failed:
        return checks.skip_checks(
            verdict, f"the {verdict.failed.stage} stage failed", emit, strict=options.strict
        )
    root, programs = find_programs(Path(env.python))
    environ = prepare_variables(emit, root, programs, process.environ())
    environ["PYTHONDONTWRITEBYTECODE"] = "1"  # the project's folder gets none
    device = "cpu" if verdict.verdict == "cpu" else "cuda"
    ended = checks.run_checks(env, placed, environ, emit, timeout=options.timeout, device=device)
    ended = tuple(dataclasses.replace(e, findings=_diagnose_check(e, env, choices, emit)) for e in ended)
    return checks.add_checks(verdict, ended, emit, strict=options.strict)


def _diagnose_check(
    ended: CheckOutcome, env: Environment, choices: Choices, emit: Emit
) -> tuple[Finding, ...]:
    """Diagnose a failed check from what it printed and how it ended."""
    from ..verify.checks import make_command
    from ..verify.compilers import make_lack_finding

    finished, placed, before = ended.finished, ended.placed, ended.before
    if ended.result.status == "pass" or not (finished and placed and before):
        return ()
    if ended.missing:
        return (make_lack_finding({"torch.compile": ended.missing}, env),)
    late = finished.timed_out  # gpuenv ended it
    attended = process.ForegroundResult(
        returncode=_TIMED_OUT if late else finished.returncode,
        stderr=ended.text.encode("utf-8", "replace"),
        signal=None if late else finished.signal,
    )
    return explain_program(
        ended.result.label,
        Path(env.path),
        make_command(env, placed.check),
        attended,
        before,
        choices,
        placed.folder,
        emit,
    )


def keep_verdict(env: Path, lock: Lock | None, verdict: Verdict, project: OwnProject | None = None) -> None:
    """Store a verdict in an environment, with what it depends on: `project` is that of the checks that ran. Raises BuildError."""
    checks = project.digest if project else None
    under = record.list_circumstances(env, record.lock_digest(lock), machine_for_verdict(), checks)
    record.keep_verdict(env, verdict, under)


def explain_no_gpu(doing: str = "", *, seconds: float = 30.0) -> str | None:
    """Return why the CPU is all that this machine has and what gpuenv is `doing` about it, or None if it has an NVIDIA
    GPU or its driver, working or not."""
    machine = detect.detect({"driver", "context", "hardware", "environment"}, seconds=seconds)
    return None if machine.gpus or list_nvidia_traces(machine) else explain_cpu(machine, doing)
