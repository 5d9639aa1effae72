"""`gpuenv diagnose`: the cause of a failure and its fix."""

from __future__ import annotations

import shlex
import sys
from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from .. import detect
from ..config import rows
from ..config.env import find_active_env, find_project_env, is_present
from ..config.options import Choices, make_absolute
from ..config.target import read_json
from ..environment import distributions, record
from ..environment.place import locate_environment, made_by_gpuenv
from ..errors import DataError, LockError, UsageError
from ..model import (
    Emit,
    Event,
    Finding,
    Findings,
    Machine,
    Verdict,
    drop_event,
    from_plain,
)
from ..model.declare import argument, group, option
from ..model.values import Value
from ..resolve import resolve
from ..system import untrusted
from .explain import detect_machine

if TYPE_CHECKING:
    from ..diagnose import Installed


_PIECE = 1 << 20
_RUN_IT = "gpuenv run python PROGRAM  # also sees signals, limits and the environment"
_READ_A_LOG = "gpuenv diagnose LOG  # reads the output of a program that failed"


class DiagnoseOptions(Value):
    """The options of `diagnose`."""

    logs: list[Path] = argument(list, metavar="[LOG...|-]", help="Log files; - reads standard input.")
    env: Path | None = option(None, help="Verify this environment too.")
    no_machine: bool = option(False, help="Read only the logs, not this machine.")
    machine: Path | None = option(None, help="Read the logs' machine from a file of `gpuenv detect --json`.")
    choices: Choices = group(Choices, "profiles", "cache_dir", "trust_project")


def diagnose(options: DiagnoseOptions, emit: Emit = drop_event) -> Findings:
    """Return the causes of a failure and their fixes, from logs, a machine and an environment."""
    from ..diagnose import Circumstances, find_causes

    logs, env = options.logs, options.env
    if options.no_machine and options.machine:
        raise UsageError("--no-machine and --machine cannot be used together", hint="leave one of them out")
    if options.no_machine and not logs and not env:
        raise UsageError("--no-machine needs a log or --env", hint="gpuenv diagnose LOG --no-machine")
    reads_machine = not (options.machine or options.no_machine)
    likely = find_likely_env() if reads_machine and not env else None
    if likely and not logs:
        # Without --env no code of an environment runs.
        text = f"to verify {likely[0]} as well: gpuenv diagnose --env {shlex.quote(str(likely[0]))}"
        emit(Event("note", "diagnose", text))
    # What is wrong with the input is said before the machine is read and the environment verified.
    machine: Machine | None = read_machine(options.machine) if options.machine else None
    with ExitStack() as opened:
        texts = [
            (str(path), iter(partial(opened.enter_context(open_log(path)).read, _PIECE), b""))
            for path in logs
        ]
        known = rows.load(options.choices)
        if reads_machine:
            machine = detect_machine(cuda=True)
        verdict = verify_environment(emit, env, options.choices) if env else None
        circumstances = Circumstances(
            resolve=resolve, machine=machine, verdict=verdict, is_named=options.machine is not None,
            device=record.read_device(make_absolute(env)) if env else None,
            holders=detect.read_holders if reads_machine else None,
            installed=read_installed(*likely) if likely else None,
        )  # fmt: skip
        diagnosis = find_causes(texts, known, circumstances)
    findings = diagnosis.findings
    if reads_machine and machine and machine.context.colab:
        findings = add_later_installs(emit, findings)
    if not findings:
        text = f"no known GPU failure {_name_inputs(options)}"
        if machine and not (machine.gpus or env or logs):
            text += ", which has no NVIDIA GPU that can be used (gpuenv detect says why)"
        emit(Event("summary", "diagnose", text))
    for note in diagnosis.notes:
        emit(Event("note", "diagnose", note))
    if not findings and not diagnosis.notes:
        emit(Event("next", "diagnose", _RUN_IT if logs else _READ_A_LOG))
    return Findings(findings=findings, context=diagnosis.context)


def read_machine(path: Path) -> Machine:
    """Return the machine that a file describes. Raises UsageError."""
    return read_json("machine", path, lambda data: from_plain(Machine, data))


def find_likely_env() -> tuple[Path, str] | None:
    """Return the path of the project's or the active environment, and why it was chosen.

    Return None if there is none. The environment that gpuenv runs in does not count.
    """
    try:
        project_env = find_project_env()
    except DataError:  # several files describe the project; `diagnose` needs none
        return None
    if is_present(project_env):
        return project_env, "the project's environment"
    active = find_active_env()
    if active is None or active[1].resolve() == Path(sys.prefix).resolve():
        return None
    return active[1], f"from {active[0]}"


def verify_environment(emit: Emit, env: Path, choices: Choices) -> Verdict:
    """Return the verdict on an environment. One that gpuenv made is compared with its lock."""
    from .prove import Proof

    located = locate_environment(make_absolute(env))
    lock = None
    try:
        lock = record.read_lock(Path(located.path)) if located.made_by_gpuenv else None
    except LockError as error:
        emit(Event("warning", "verify", error.message))
    proof = Proof(located, choices, emit, lock=lock)
    with proof.start(packages=True):
        return proof.add_packages(proof.run(), always=True)


def read_installed(env: Path, why: str) -> Installed:
    """Return what the files of an environment say about its packages."""
    from ..diagnose import Installed

    env = make_absolute(env)
    return Installed(
        path=str(env),
        why=why,
        versions=distributions.read_versions(env),
        python=distributions.read_python(env),
        device=record.read_device(env),
        made_by_gpuenv=made_by_gpuenv(env),
    )


def open_log(path: Path) -> AbstractContextManager[BinaryIO]:
    """Return the open log. Raises UsageError if it cannot be read."""
    if str(path) == "-":
        return nullcontext(sys.stdin.buffer)
    try:
        untrusted.refuse_endless(path)
        return path.open("rb")
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}", hint="name a log, or - for standard input") from error


def add_later_installs(emit: Emit, findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """Note what the user installed into a Colab runtime, and add it to the findings that it may explain."""
    from ..verify import changes

    sites = [str(p) for p in sorted(Path("/usr/local/lib").glob("python3*/dist-packages"))]
    user_site = next((str(p) for p in sorted(Path.home().glob(".local/lib/python3*/site-packages"))), None)
    later = changes.find_later_installs(sites, user_site)
    installs = "; ".join(e.text for e in later) or "no framework and no framework libraries"
    emit(Event("note", "diagnose", f"installed after this runtime was created: {installs}"))
    return tuple(changes.add_later_installs(findings, later))


def _name_inputs(options: DiagnoseOptions) -> str:
    """Return what was read without a finding."""
    inputs = ["in this log" if len(options.logs) == 1 else "in these logs"] if options.logs else []
    inputs += [f"in {options.env}"] if options.env else []
    return " and ".join(inputs) or ("on the machine of the file" if options.machine else "on this machine")
