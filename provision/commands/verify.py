"""`gpuenv verify`: return the verdict on any environment."""

from __future__ import annotations

import contextlib
import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..config import options as where
from ..config.env import choose_env_to_read, describe_link_outside
from ..config.options import Choices
from ..environment import interrupted, place, state
from ..environment.place import locate_environment
from ..errors import BuildError, GpuenvError, UsageError
from ..model import (
    FRAMEWORKS,
    Emit,
    Environment,
    Event,
    Lock,
    NodeVerdict,
    Verdict,
    drop_event,
    find_lock_manager,
    make_lock_name,
)
from ..model.declare import argument, group, option
from ..system import process
from ..system.files import refuse_to_replace
from ..verify import EarlyProbes, begin
from . import project_checks
from .activate_command import activate_line
from .run_verification import make_lock_reader, make_options, run_verification
from .verdict_inputs import explain_no_gpu, is_expected, machine_for_verdict
from .verify_packages import Examination, add_later_stages, make_reader


@dataclass(frozen=True, kw_only=True)
class VerifyOptions:
    """The options of `verify`."""

    env: Path | None = argument(
        None, help="Path of the environment.  [default: .venv]", complete="environments"
    )
    quick: bool = option(
        False, help="Check driver, CUDA and cuDNN only; on the CPU only import the frameworks."
    )
    deep: bool = option(False, help="Check every convolution, data type and file hash.")
    strict: bool = option(False, help="Fail on warnings.")
    locked: bool = option(
        False, help="Fail if the environment differs from the project's lock, or else its own."
    )
    node: bool = option(
        False, help="With --quick: fail only for a fault of this machine, and print one line."
    )
    device: str | None = option(None, help="Device to test: cuda:N, all or cpu.", complete="tested_devices")
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
    """Return the verdict on a venv, a conda prefix or the environment of a python executable."""
    if options.node:
        from .check_node_for_fault import verify_node

        _assert_alone(options)
        return verify_node(options.env, options.choices, options.timeout, emit)
    checks = project_checks.CheckOptions(
        typed=project_checks.read_options(options.check), of_project=options.checks
    )
    settings = {
        "quick": options.quick, "deep": options.deep, "strict": options.strict, "locked": options.locked,
        "device": _device(options.device), "frameworks": _frameworks(options.framework),
        "timeout": options.timeout,
    }  # fmt: skip
    if options.report:
        refuse_to_replace(options.report, force=options.force)
    return _judge(emit, options, settings, checks)


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


def _device(device: str | None) -> str | None:
    if device is None or device in ("cpu", "all", "cuda"):
        return None if device == "cuda" else device
    if device.startswith("cuda:") and device[5:].isdigit():
        return device
    raise UsageError(
        f"--device {device}: expected cpu, all or cuda:N",
        hint="Did you mean cuda?" if device.lower() in ("gpu", "nvidia") else None,
    )


def _frameworks(named: list[str]) -> tuple[str, ...]:
    for name in named:
        if name not in FRAMEWORKS:
            raise UsageError(f"unknown framework {name!r}: gpuenv knows {', '.join(FRAMEWORKS)}")
    return tuple(named)


def _judge(
    emit: Emit, options: VerifyOptions, settings: dict[str, Any], checks: project_checks.CheckOptions
) -> Verdict:
    """Return the verdict on an environment of any tool. One that gpuenv made keeps it."""
    report, choices = options.report, options.choices
    if report and not report.absolute().parent.is_dir():
        raise UsageError(f"--report {report}: there is no folder {report.absolute().parent}")
    env = choose_env_to_read(emit, options.env)
    interrupted.roll_back_interrupted(emit, where.make_absolute(env))
    environment = locate_environment(where.make_absolute(env))
    path = Path(environment.path)
    # Lock and profiles are read while the environment's Python and the driver are queried.
    wanted = make_options(choices, settings)
    planned = project_checks.plan_checks(path, checks, wanted)
    reading = make_reader(environment, choices, process.environ())
    driver, machine = not _for_cpu(environment), make_lock_reader(wanted)
    with begin(environment, wanted, driver=driver, machine=machine, meanwhile=reading) as begun:
        lock = _lock_of(environment, locked=options.locked, choices=choices)
        if lock is None and options.device is None and (reason := _explain_cpu(begun)):
            settings["device"], wanted = "cpu", dataclasses.replace(wanted, device="cpu")
            first, stop, rest = reason.partition(". ")
            emit(Event(kind="note", stage="verify", text=f"{first}: testing on the CPU{stop}{rest}"))
        verdict = _diagnosed(run_verification(emit, environment, lock, choices, begun, **settings), lock)
        examined = Examination(env=environment, lock=lock, choices=choices, options=wanted)
        verdict = add_later_stages(examined, verdict, emit, begun)
    verdict = project_checks.run_project_checks(examined, verdict, planned, emit)
    if environment.made_by_gpuenv and not options.quick and not checks.typed:
        if options.env is None and (link := describe_link_outside(env)):
            emit(Event(kind="note", stage="verify", text=f"the verdict is not recorded: {link}"))
        else:
            _keep(path, lock, verdict, emit, planned.digest)
    if report:
        _write_report(report, verdict, emit)
    if is_expected(verdict, verdict.made_for, asked_cpu=options.device == "cpu") and (step := _next(path)):
        emit(Event(kind="next", stage="verify", text=step))
    return verdict


def _for_cpu(env: Environment) -> bool:
    """Return whether an environment is for the CPU, as far as known before its lock is read."""
    with contextlib.suppress(BuildError):
        return env.made_by_gpuenv and (state.read(Path(env.path), "plan.json") or {}).get("device") == "cpu"
    return False


def _explain_cpu(begun: EarlyProbes) -> str | None:
    """Return why this machine has only the CPU, if no framework of an environment without a lock needs a GPU."""
    from ..verify.libraries import read_installed

    return None if any(read_installed(begun.python_paths.result()).builds.values()) else explain_no_gpu()


def _lock_of(env: Environment, *, locked: bool, choices: Choices) -> Lock | None:
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


def _next(env: Path) -> str | None:
    """Return the activate command of an environment, or None if it has none, such as a system's Python."""
    can_activate = (env / "bin" / "activate").exists() or (env / "conda-meta").is_dir()
    return activate_line(env, process.environ()) if can_activate else None


def _write_report(report: Path, verdict: Verdict, emit: Emit) -> None:
    from ..export.pages import verdict_page
    from .write_html_page import write_html_page

    write_html_page(report, "--report", lambda footer: verdict_page(verdict, footer))
    emit(Event(kind="note", stage="verify", text=f"report written to {report}"))


def _keep(path: Path, lock: Lock | None, verdict: Verdict, emit: Emit, checks: str | None) -> None:
    try:
        under = state.list_circumstances(path, state.lock_digest(lock), machine_for_verdict(), checks)
        state.keep_verdict(path, verdict, under)
    except GpuenvError as error:
        # A read-only environment can be verified, but cannot keep its verdict.
        emit(Event(kind="note", stage="verify", text=error.message))


def _diagnosed(verdict: Verdict, lock: Lock | None) -> Verdict:
    """Return the verdict with the causes that diagnose finds in the text of a failed stage."""
    failed = next((s for s in verdict.stages if s.status == "fail"), None)
    if failed is None or verdict.findings:
        return verdict
    from .diagnose import find_causes_in_log

    log = "\n".join([failed.detail, *(e.text for e in failed.evidence)])
    findings = find_causes_in_log(log, lock.plan.device if lock else None)
    fix = findings[0].fix if findings else None
    return dataclasses.replace(verdict, findings=findings, hint=fix or verdict.hint)
