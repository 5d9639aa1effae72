"""`gpuenv verify`: return the verdict on any environment."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from ..config import rows
from ..config.env import choose_env_to_read, describe_link_outside
from ..config.options import Choices, make_absolute
from ..environment import place, record
from ..environment.activate import activate_line
from ..environment.place import locate_environment
from ..errors import GpuenvError, UsageError
from ..model import (
    Emit,
    Environment,
    Event,
    Lock,
    NodeVerdict,
    Verdict,
    drop_event,
    is_expected,
    make_lock_name,
)
from ..model.declare import checks_option, env_argument, force_option, group, option
from ..model.values import Value
from ..system import process
from ..system.files import refuse_to_replace, require_folder
from ..verify import Options, check_options
from ..verify.libraries import read_installed
from .explain import explain_log
from .prove import Proof, explain_no_gpu, read_checks

_ABSENT = ("container_without_gpu", "driver_missing", "driver_module_not_loaded", "wsl_driver_missing")
"""Causes that a machine without any GPU also gives."""
_SECONDS = 2.0
"""For a second look at the driver. A scheduler gives the check few seconds in all."""


class VerifyOptions(Value):
    """The options of `verify`."""

    env: Path | None = env_argument()
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
    checks: bool = checks_option()
    report: Path | None = option(None, help="Also write the verdict as an HTML page.")
    force: bool = force_option()
    choices: Choices = group(Choices, "profiles", "cache_dir", "trust_project")


def verify(options: VerifyOptions, emit: Emit = drop_event) -> Verdict | NodeVerdict:
    """Return the verdict on a venv, a conda prefix or the environment of a python executable.

    An environment that gpuenv made keeps it.
    """
    if options.node:
        return _verify_node(options, emit)
    typed, wanted = read_checks(options.check), _make_stage_options(options)
    named = choose_env_to_read(emit, options.env)
    root = make_absolute(named)
    place.roll_back_interrupted(emit, root)
    place.require_python(root)
    env = locate_environment(root)
    proof = Proof(env, options.choices, emit, wanted)
    if options.checks:
        proof.read_project()
    # As far as it is known before the lock is read
    for_cpu = env.made_by_gpuenv and record.read_device(Path(env.path)) == "cpu"
    # Lock and profiles are read while the environment's Python and the driver are queried.
    with proof.start(driver=bool(options.device) or not for_cpu, packages=True):
        proof.lock = _read_lock(env, locked=options.locked, choices=options.choices)
        if proof.lock is None and options.device is None:
            _choose_device(proof)
        verdict = proof.add_packages(_add_causes(proof.run(), proof))
    verdict = proof.run_checks(verdict, typed)
    # A verdict on a part of the environment, or on another device, is none on the environment.
    is_part = options.quick or options.framework or typed or options.device not in (None, verdict.made_for)
    if env.made_by_gpuenv and not is_part:
        if options.env is None and (link := describe_link_outside(named)):
            emit(Event("note", "verify", f"the verdict is not recorded: {link}"))
        else:
            try:
                proof.keep(verdict)
            except GpuenvError as error:  # an environment can be read-only
                emit(Event("note", "verify", error.message))
    if options.report:
        from ..export.pages import verdict_page, write_html_page

        write_html_page(options.report, "--report", lambda footer: verdict_page(verdict, footer))
        emit(Event("note", "verify", f"report written to {options.report}"))
    expected = is_expected(verdict, verdict.made_for, asked_cpu=options.device == "cpu")
    path = Path(env.path)
    if expected and ((path / "bin" / "activate").exists() or (path / "conda-meta").is_dir()):
        emit(Event("next", "verify", activate_line(path, process.environ())))
    return verdict


def _make_stage_options(options: VerifyOptions) -> Options:
    """Return the options of the stage. Raises UsageError for options that exclude each other."""
    if options.expect_gpus is not None:
        raise UsageError("--expect-gpus needs --node", hint="gpuenv verify --quick --node ENV")
    wanted = Options(
        quick=options.quick, deep=options.deep, strict=options.strict, locked=options.locked,
        device=options.device, frameworks=tuple(options.framework), timeout=options.timeout,
    )  # fmt: skip
    check_options(wanted)
    if options.quick and options.deep:
        raise UsageError("--quick and --deep cannot be used together", hint="leave one of them out")
    if options.report:
        refuse_to_replace(options.report, force=options.force)
        require_folder("--report", options.report)
    return wanted


def _choose_device(proof: Proof) -> None:
    """Test on the CPU where nothing is made for a GPU and the machine has none, which is no failure then."""
    builds = read_installed(proof.early.python_paths.result()).builds
    if not any(builds.values()) and (note := explain_no_gpu("testing on the CPU")):
        proof.emit(Event("note", "verify", note))
        proof.options = dataclasses.replace(proof.options, device="cpu")


def _read_lock(env: Environment, *, locked: bool, choices: Choices) -> Lock | None:
    """Return the lock to compare with: the one inside, or with `locked` the project's if there is one."""
    if env.made_by_gpuenv:
        if locked and (file := _find_project_lock(Path(env.path))):
            from ..lock.accept import read_lock
            from ..lock.formats import find_lock_manager

            return read_lock(file, dataclasses.replace(choices, manager=find_lock_manager(file, "venv")))
        return record.read_lock(Path(env.path))
    if locked:
        raise UsageError(
            f"{env.path} was not created by gpuenv and has no lock to compare with",
            hint="leave --locked out, or build an environment with a lock: gpuenv create",
        )
    return None


def _find_project_lock(env: Path) -> Path | None:
    """Return the lock of the project that an environment was made for, beside it or where its record says."""
    request = record.read(env, "request.json")
    made = request.get("choices") or {}
    config = made.get("config")
    if not (config or request.get("lock")):
        return None
    name = make_lock_name(made.get("manager") or "venv", made.get("target_name"))
    folders = [env.parent, *([Path(config).parent] if config else [])]
    return next((file for folder in folders if (file := folder / Path(name).name).is_file()), None)


def _add_causes(verdict: Verdict, proof: Proof) -> Verdict:
    """Return the verdict with the causes that diagnose finds in the text of a failed stage."""
    failed = verdict.failed
    if failed is None or verdict.findings:
        return verdict
    log = "\n".join([failed.detail, *(e.text for e in failed.evidence)])
    findings = explain_log(log, proof.lock.plan.device if proof.lock else None, proof.choices)
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
        lock = _read_lock(env, locked=False, choices=options.choices)
        if lock and lock.plan.device == "cpu":
            text = f"{env.path} is for the CPU: no GPU was examined"
            return NodeVerdict(fault=False, text=node.shorten_line(text))
        wanted = Options(quick=True, timeout=seconds, device="all")
        proof = Proof(env, options.choices, emit, wanted, lock)
        with proof.start(machine=lambda: ask(proof.read_machine)):
            verdict = proof.run()
            machine = proof.early.machine.result()
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
