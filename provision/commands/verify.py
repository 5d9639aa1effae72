"""`gpuenv verify`: return the verdict on any environment."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import re
import shlex
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import detect, verify as stage
from ..config import rows
from ..config.env import choose_env_to_read, describe_link_outside
from ..config.options import Choices, get_cache_dir, make_absolute
from ..config.record import OwnProject, read_own_project
from ..detect import machine_for_verdict
from ..environment import place, state
from ..environment.activate import activate_line
from ..environment.place import locate_environment
from ..errors import BuildError, GpuenvError, UsageError
from ..model import (
    FRAMEWORKS,
    TORCH_COMPANIONS,
    Check,
    Emit,
    Environment,
    Event,
    Lock,
    NodeVerdict,
    StageResult,
    Verdict,
    drop_event,
    find_lock_manager,
    is_expected,
    make_lock_name,
)
from ..model.declare import argument, group, option
from ..system import process
from ..system.files import refuse_to_replace
from ..wheels.pylock import read_in
from .causes import explain_failure, find_causes_in_log
from .run import find_programs, prepare_variables

if TYPE_CHECKING:
    from ..environment.loader import Package
    from ..model import Finding, Machine, Profiles
    from ..verify.checks import CheckOutcome, PlacedCheck
    from ..verify.libraries import PythonPaths
    from ..verify.modules import ProjectImport
    from ..verify.packages import Reading

_ABSENT = ("container_without_gpu", "driver_missing", "driver_module_not_loaded", "wsl_driver_missing")
"""What a machine without a GPU shows too."""
_SECONDS = 2.0
"""For a second look at the driver. What starts gpuenv gives it few seconds in all."""
_BARE = re.compile(r"gpuenv create --recreate(?P<named> --framework)?")
_TIMED_OUT = 124
"""The exit code of timeout(1) for a command that it ended."""


@dataclass(frozen=True, kw_only=True)
class VerifyOptions:
    """The options of `verify`."""

    env: Path | None = argument(
        None, help="Path of the environment.  [default: .venv]", complete="environments"
    )
    quick: bool = option(
        False, help="Check driver, CUDA and cuDNN only; on the CPU only import the frameworks."
    )
    deep: bool = option(False, help="Check every data type, further operations and every file hash.")
    strict: bool = option(False, help="Fail on warnings.")
    locked: bool = option(
        False, help="Fail if the environment differs from the project's lock, or else its own."
    )
    node: bool = option(
        False, help="With --quick: fail only for a fault of this machine, and print one line."
    )
    expect_gpus: int | None = option(
        None, metavar="N", help="With --node: fewer GPUs are a fault.  [default: as many as the lock is for]"
    )
    device: str | None = option(
        None, help="Device to test: cuda, cuda:N, all or cpu.", complete="tested_devices"
    )
    framework: list[str] = option(list, "--framework", "-f", help="Test only this framework. Repeatable.")
    timeout: float = option(300.0, help="Time limit of each test process, in seconds.")
    check: list[str] = option(
        list, help="Also run a check: 'import cv2', 'python train.py --help' or compile. Repeatable."
    )
    checks: bool = option(True, "--checks/--no-checks", help="Run the checks of gpuenv.yaml, or not.")
    report: Path | None = option(None, help="Also write the verdict as an HTML page.")
    force: bool = option(False, help="Replace files that gpuenv did not write or that were edited.")
    choices: Choices = group(Choices, "profiles", "cache_dir", "trust_project")


def verify(options: VerifyOptions, emit: Emit = drop_event) -> Verdict | NodeVerdict:
    """Return the verdict on a venv, a conda prefix or the environment of a python executable.

    An environment that gpuenv made keeps it.
    """
    choices, report = options.choices, options.report
    if options.node:
        return _verify_node(options, emit)
    if options.expect_gpus is not None:
        raise UsageError("--expect-gpus needs --node", hint="gpuenv verify --quick --node ENV")
    typed = read_checks(options.check)
    wanted = make_options(
        choices, quick=options.quick, deep=options.deep, strict=options.strict, locked=options.locked,
        device=options.device, frameworks=tuple(options.framework), timeout=options.timeout,
    )  # fmt: skip
    if report:
        refuse_to_replace(report, force=options.force)
        folder = report.absolute().parent
        if not folder.is_dir():
            raise UsageError(
                f"--report {report}: there is no folder {folder}",
                hint=f"make it: mkdir -p {shlex.quote(str(folder))}",
            )
    named = choose_env_to_read(emit, options.env)
    place.roll_back_interrupted(emit, make_absolute(named))
    env = locate_environment(make_absolute(named))
    path = Path(env.path)
    planned = plan_checks(path, wanted, typed, of_project=options.checks)
    # Lock and profiles are read while the environment's Python and the driver are queried.
    with stage.begin(
        env, wanted, driver=bool(options.device) or not _is_for_cpu(env), machine=make_machine_reader(wanted),
        meanwhile=make_reader(env, choices, process.environ()),
    ) as begun:  # fmt: skip
        lock = _read_lock(env, locked=options.locked, choices=choices)
        unbound = lock is None and options.device is None and not _needs_gpu(begun)
        if unbound and (note := explain_no_gpu("testing on the CPU")):
            wanted = dataclasses.replace(wanted, device="cpu")
            emit(Event(kind="note", stage="verify", text=note))
        examined = Examination(env=env, lock=lock, choices=choices, options=wanted)
        verdict = _add_causes(run_verification(examined, emit, begun), lock)
        verdict = add_later_stages(examined, verdict, emit, begun)
    verdict = run_project_checks(examined, verdict, planned, emit)
    if env.made_by_gpuenv and not options.quick and not typed:
        if options.env is None and (link := describe_link_outside(named)):
            emit(Event(kind="note", stage="verify", text=f"the verdict is not recorded: {link}"))
        else:
            _keep(path, lock, verdict, emit, planned.digest)
    if report:
        from ..export.pages import verdict_page, write_html_page

        write_html_page(report, "--report", lambda footer: verdict_page(verdict, footer))
        emit(Event(kind="note", stage="verify", text=f"report written to {report}"))
    expected = is_expected(verdict, verdict.made_for, asked_cpu=options.device == "cpu")
    if expected and ((path / "bin" / "activate").exists() or (path / "conda-meta").is_dir()):
        emit(Event(kind="next", stage="verify", text=activate_line(path, process.environ())))
    return verdict


def _is_for_cpu(env: Environment) -> bool:
    """Return whether an environment is for the CPU, as far as known before its lock is read."""
    with contextlib.suppress(BuildError):
        return env.made_by_gpuenv and (state.read(Path(env.path), "plan.json") or {}).get("device") == "cpu"
    return False


def _needs_gpu(begun: stage.EarlyProbes) -> bool:
    """Return whether an installed framework is a build for a GPU."""
    from ..verify.libraries import read_installed

    return any(read_installed(begun.python_paths.result()).builds.values())


def _read_lock(env: Environment, *, locked: bool, choices: Choices) -> Lock | None:
    """Return the lock to compare with: the one inside, or with `locked` the project's if there is one."""
    if env.made_by_gpuenv:
        from ..wheels import pylock

        if locked and (file := _find_project_lock(Path(env.path))):
            from ..lock.accept import read_lock

            return read_lock(file, dataclasses.replace(choices, manager=find_lock_manager(file, "venv")))
        return pylock.read_in(Path(env.path) / place.MARK)
    if locked:
        raise UsageError(
            f"{env.path} was not created by gpuenv and has no lock to compare with",
            hint="leave --locked out, or build an environment with a lock: gpuenv create",
        )
    return None


def _find_project_lock(env: Path) -> Path | None:
    """Return the lock of the project that an environment was made for, beside it or where its record says."""
    record = state.read(env, "request.json") or {}
    made = record.get("choices") or {}
    config = made.get("config")
    if not (config or record.get("lock")):
        return None
    name = make_lock_name(made.get("manager") or "venv", made.get("target_name"))
    folders = [env.parent, *([Path(config).parent] if config else [])]
    return next((file for folder in folders if (file := folder / Path(name).name).is_file()), None)


def _keep(path: Path, lock: Lock | None, verdict: Verdict, emit: Emit, checks: str | None) -> None:
    try:
        under = state.list_circumstances(path, state.lock_digest(lock), machine_for_verdict(), checks)
        state.keep_verdict(path, verdict, under)
    except GpuenvError as error:
        # A read-only environment can be verified, but cannot keep its verdict.
        emit(Event(kind="note", stage="verify", text=error.message))


def _add_causes(verdict: Verdict, lock: Lock | None) -> Verdict:
    """Return the verdict with the causes that diagnose finds in the text of a failed stage."""
    failed = next((s for s in verdict.stages if s.status == "fail"), None)
    if failed is None or verdict.findings:
        return verdict
    log = "\n".join([failed.detail, *(e.text for e in failed.evidence)])
    findings = find_causes_in_log(log, lock.plan.device if lock else None)
    fix = findings[0].fix if findings else None
    return dataclasses.replace(verdict, findings=findings, hint=fix or verdict.hint)


def _verify_node(options: VerifyOptions, emit: Emit) -> NodeVerdict:
    """Return whether this machine has a fault, tested with an environment. Schedulers run it as root.

    Nothing of the environment runs if another user can change it. Raises UsageError, and MachineError if there is no
    result in time.
    """
    from ..verify import node

    _assert_alone(options)
    path = make_absolute(choose_env_to_read(emit, options.env))

    def examine(seconds: float, ask: node.Ask) -> NodeVerdict:
        node.assert_own(path)
        env = locate_environment(path)
        lock = read_in(Path(env.path) / place.MARK) if env.made_by_gpuenv else None
        if lock and lock.plan.device == "cpu":
            text = f"{env.path} is for the CPU: no GPU was examined"
            return NodeVerdict(fault=False, text=node.shorten_line(text))
        wanted = make_options(options.choices, quick=True, timeout=seconds, device="all")
        examined = Examination(env=env, lock=lock, choices=options.choices, options=wanted)
        read = make_machine_reader(wanted)
        with stage.begin(env, wanted, driver=True, machine=lambda: ask(read)) as begun:
            verdict = run_verification(examined, emit, begun)
            machine = begun.machine.result() if begun.machine else None
        expected = node.count_expected(options.expect_gpus, lock)
        judged = node.judge(verdict, machine, rows.causes_of_jobs(options.choices), expected)
        none_asked = judged.fault and judged.cause in _ABSENT and not options.expect_gpus
        if none_asked and explain_no_gpu(seconds=_SECONDS):
            return dataclasses.replace(judged, fault=False, text="no NVIDIA GPU found on this machine")
        return judged

    return node.check(examine, options.timeout)


def _assert_alone(options: VerifyOptions) -> None:
    """Raise UsageError for options that cannot be used with --node."""
    if not options.quick:
        raise UsageError("--node needs --quick", hint="gpuenv verify --quick --node ENV")
    others = {
        "--deep": options.deep, "--strict": options.strict, "--locked": options.locked,
        "--device": options.device, "--framework": options.framework, "--check": options.check,
        "--report": options.report,
    }  # fmt: skip
    if named := [name for name, value in others.items() if value]:
        raise UsageError(f"{named[0]} cannot be used with --node", hint=f"leave out {named[0]} or --node")


def run_verification(examined: Examination, emit: Emit, begun: stage.EarlyProbes | None = None) -> Verdict:
    """Return the verdict on an environment, compared with its lock if it has one."""
    env, lock, wanted = examined.env, examined.lock, examined.options
    read = begun.machine.result if begun and begun.machine else functools.cache(make_machine_reader(wanted))
    baseline = stage.Baseline(
        lock=lock, releases=rows.load(examined.choices, *rows.FOR_VERDICT).cudnn,
        target=read().target if wanted.locked else None, read_machine=read,
    )  # fmt: skip
    verdict = stage.verify(env, wanted, baseline, emit=emit, early_probes=begun)
    loose = tuple(f"{p.name} {p.version} ({p.url})" for p in lock.packages if p.unhashed) if lock else ()
    if verdict.findings:
        verdict = add_rebuild_commands(verdict, env, lock)
    return dataclasses.replace(verdict, unhashed=loose, made_for=lock.plan.device if lock else None)


def make_machine_reader(options: stage.Options) -> Callable[[], Machine]:
    """Return a function that reads this machine's driver and GPUs within the time limit of a stage."""
    return lambda: machine_for_verdict(seconds=min(options.timeout, 30.0))


def make_options(choices: Choices, **settings: Any) -> stage.Options:
    """Return the options of the verify stage, with the cache folder for files that must stay out of the
    environment."""
    return stage.Options(cache_dir=get_cache_dir(choices), **settings)


def add_rebuild_commands(verdict: Verdict, env: Environment, lock: Lock | None) -> Verdict:
    """Return the verdict with fixes that name this environment and its frameworks.

    If gpuenv did not make the environment, the fixes name a new one.
    """
    fixes = " ".join([*(f.fix or "" for f in verdict.findings), verdict.hint or ""])
    if not _BARE.search(fixes):
        return verdict
    whole = _rebuild_command(verdict, env, lock)
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


def _rebuild_command(verdict: Verdict, env: Environment, lock: Lock | None) -> str:
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


@dataclass(frozen=True, kw_only=True)
class Examination:
    """An environment to verify, its lock, and the options of the command and of the stage.

    With `always_read` the packages' files are read also if a stage before the frameworks failed.
    """

    env: Environment
    lock: Lock | None
    choices: Choices
    options: stage.Options
    always_read: bool = False


def make_reader(
    env: Environment, choices: Choices, environ: dict[str, str]
) -> Callable[[PythonPaths], Reading]:
    """Return a function that reads the installed packages while child processes run."""

    def read(python_paths: PythonPaths) -> Reading:
        from ..verify import packages

        return packages.read_packages(
            env.python, python_paths, environ, rows.load(choices, *rows.FOR_VERDICT)
        )

    return read


def add_later_stages(
    examined: Examination, verdict: Verdict, emit: Emit, early_probes: stage.EarlyProbes | None = None
) -> Verdict:
    """Add the stage `packages` to a verdict. After a failed framework it imports nothing and can only warn."""
    if early_probes is None:
        with stage.begin(examined.env, examined.options, driver=False) as started:
            return add_later_stages(examined, verdict, emit, started)
    failed = next((s for s in verdict.stages if s.status == "fail"), None)
    findings: Sequence[Finding] = ()
    if failed and not failed.framework and not examined.always_read:
        result = StageResult(stage="packages", status="skip", detail=f"the {failed.stage} stage failed")
    else:
        # After a failed stage nothing is imported: it could fail too. The files may show the reason.
        if failed:
            examined = dataclasses.replace(
                examined, options=dataclasses.replace(examined.options, quick=True)
            )
        result, findings = _packages(examined, emit, early_probes)
        result, findings = _add_project_imports(examined, result, findings, early_probes, emit)
    emit(Event(kind="done", stage="verify", text=f"{result.stage}: {result.status}: {result.detail}"))
    return stage.add_stages(verdict, [result], findings, strict=examined.options.strict)


def _packages(
    examined: Examination, emit: Emit, early_probes: stage.EarlyProbes
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
        reading, env=env, paths=surroundings, options=options, environ=stage.child_environ(early_probes, options),
        known=lambda: _known(lock, choices),
        required=_required(env, lock, choices, surroundings.version) if lock else None,
    )  # fmt: skip


_IMPORTS = "imports.json"
"""The file of an environment with the modules that its project imports, for --quick."""


def _add_project_imports(
    examined: Examination,
    result: StageResult,
    findings: Sequence[Finding],
    early_probes: stage.EarlyProbes,
    emit: Emit,
) -> tuple[StageResult, Sequence[Finding]]:
    """Add a warning about modules that the environment's project imports and the environment lacks.

    --quick looks up what the last whole verification read. Nothing of the project runs.
    """
    from ..verify import modules

    path = Path(examined.env.path)
    try:
        kept = (state.read(path, _IMPORTS) or {}).get("imports")
        if not examined.options.quick:
            found = _read_project_imports(path, examined)
            if found is None:
                return result, findings
            plain = [dataclasses.asdict(one) for one in found]
            if plain != kept:
                state.write(path, _IMPORTS, {"imports": plain})
            kept = plain
        imports = [modules.ProjectImport(**row) for row in kept or ()]
    except (GpuenvError, TypeError) as error:
        emit(Event(kind="note", stage="verify", text=f"the project's imports are not known: {error}"))
        return result, findings
    sites = early_probes.python_paths.result().sites
    missing = modules.find_missing(imports, sites)
    result, findings = modules.add_missing(result, findings, missing)
    return modules.add_absent(result, findings, modules.find_absent(imports, sites))


def _read_project_imports(path: Path, examined: Examination) -> list[ProjectImport] | None:
    """Return the modules that programs of the environment's project cannot run without, or None without a project."""
    from ..requirements.folder import PackageFacts
    from ..requirements.scan import find_package, find_project_imports
    from ..verify.modules import order

    project = read_own_project(path, examined.options.cache_dir)
    if project is None or project.problem:
        return None
    known = PackageFacts(
        companions=dict.fromkeys(TORCH_COMPANIONS, "torch"),
        imports={row.module: row for row in rows.load(examined.choices, "imports").imports},
    )
    seen = find_project_imports(project.file.parent, known)
    packages = {module: find_package(module, known) for module in seen}
    parts = {
        module.partition(".")[0] for module in seen if "." in module
    }  # google is only a part of google.cloud
    always = {m: seen[m].files for m in seen if seen[m].files and (packages[m] or m not in parts)}
    return order(always, packages, {m: seen[m].names for m in always})


def _known(lock: Lock | None, choices: Choices) -> Profiles:
    """Return the profile rows on libraries, and the rows measured on this machine."""
    from ..lock.needs import measured_rows

    known = rows.load(choices, *rows.FOR_FIXES)
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


def read_checks(texts: Sequence[str]) -> tuple[Check, ...]:
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


def plan_checks(
    env: Path, options: stage.Options, typed: tuple[Check, ...] = (), *, of_project: bool
) -> PlannedChecks:
    """Return the checks to run in an environment. --quick leaves out those of the project. Raises DataError."""
    wanted = of_project and not options.quick
    return PlannedChecks(typed=typed, project=read_own_project(env, options.cache_dir) if wanted else None)


def run_project_checks(
    examined: Examination, verdict: Verdict, planned: PlannedChecks, emit: Emit
) -> Verdict:
    """Add the stage `checks` to a verdict if there are any. They run if no earlier stage failed."""
    before = len(verdict.stages)
    verdict = _with_checks(examined, verdict, planned, emit)
    for one in verdict.stages[before:]:
        emit(Event(kind="done", stage="verify", text=f"{one.stage}: {one.status}: {one.detail}"))
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


def _environ(emit: Emit, env: Environment, choices: Choices, options: stage.Options) -> dict[str, str]:
    """Return the variables of `gpuenv run`. Bytecode is written outside of the environment, as in all stages
    of verify."""
    from ..system import cache

    root, programs = find_programs(Path(env.python))
    environ = prepare_variables(emit, root, programs, process.environ(), choices)
    sites = [str(p) for p in root.glob("lib*/python3*/site-packages/*/__init__.py")]
    return environ | cache.choose_bytecode_folder([str(Path(p).parent) for p in sites], options.cache_dir)


def _causes(ended: CheckOutcome, env: Environment, choices: Choices) -> tuple[Finding, ...]:
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
    return explain_failure(
        ended.result.label,
        Path(env.path),
        make_command(env, placed.check),
        attended,
        before,
        choices,
        placed.folder,
    )


def explain_no_gpu(doing: str = "", *, seconds: float = 30.0) -> str | None:
    """Return why the CPU is all that this machine has and what gpuenv is `doing` about it, or None if it has an NVIDIA
    GPU or its driver, working or not."""
    from ..detect.device import explain_cpu, list_nvidia_traces

    machine = detect.detect({"driver", "gpus", "context", "hardware", "environment"}, seconds=seconds)
    return None if machine.gpus or list_nvidia_traces(machine) else explain_cpu(machine, doing)


def can_prove(lock: Lock, machine: Machine | None, emit: Emit) -> bool:
    """Return whether this machine can prove the environment.

    It cannot if the environment is for the GPU of another machine and this machine has none.
    """
    if lock.plan.device == "cpu" or machine is not None:
        return True
    here = machine_for_verdict()
    if here.gpus and not here.driver.problem:
        return True
    warning = "unproven on this machine: the environment is for the GPU of another machine, and this machine has no GPU"
    emit(Event(kind="warning", stage="verify", text=warning))
    return False
