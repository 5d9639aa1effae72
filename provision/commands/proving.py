"""verify as a command, and the verdict that create ends with."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import __version__, verify
from ..environment import place, state
from ..errors import BuildError, GpuenvError, UsageError
from ..model import Emit, Event
from ..request import paths as where
from ..request.options import Choices
from ..system import process
from ..system.output_file import signed, write_output
from ..system.redaction import redact_text
from ..system.safe_write import hint_of
from . import recovery as settling
from .judging import is_expected, machine_for_verdict
from .shell import activate_line

if TYPE_CHECKING:
    from ..model import Environment, Lock, Machine, Verdict


def prove(
    emit: Emit,
    env: Environment,
    made: Lock | None,
    choices: Choices,
    begun: verify.Begun | None = None,
    **options: Any,
) -> Verdict:
    """The verdict on an environment, held against its lock where it has one."""
    from ..request import facts

    wanted = _options(choices, options)
    read = begun.machine.result if begun and begun.machine else functools.cache(_reader(wanted))
    here = read().target if wanted.locked else None
    known = facts.releases(choices)
    verdict = verify.verify(
        env, wanted, lock=made, releases=known, target=here, machine=read, emit=emit, begun=begun
    )
    loose = tuple(f"{p.name} {p.version} ({p.url})" for p in made.packages if p.unhashed) if made else ()
    if verdict.findings:
        from . import rebuilding

        verdict = rebuilding.addressed(verdict, env, made)
    return dataclasses.replace(verdict, unhashed=loose, made_for=made.plan.device if made else None)


def _reader(options: verify.Options) -> Callable[[], Machine]:
    """What reads this machine's driver and GPUs, for no longer than a stage may take."""
    return lambda: machine_for_verdict(seconds=min(options.timeout, 30.0))


def _options(choices: Choices, given: dict[str, Any]) -> verify.Options:
    return verify.Options(cache_dir=where.cache_dir(choices), **given)


def show_verdict(
    emit: Emit, env: Path, choices: Choices, options: dict[str, Any], report: Path | None = None
) -> Verdict:
    """`gpuenv verify`: the verdict on any environment, whoever made it."""
    if report and not report.absolute().parent.is_dir():
        raise UsageError(f"--report {report}: there is no folder {report.absolute().parent}")
    settling.settle(emit, env)
    found = verify.locate(where.absolute(env), stated=True)
    path = Path(found.path)
    # What needs the lock and the profiles is read while the environment's Python and the driver answer.
    wanted = _options(choices, options)
    with verify.begin(found, wanted, driver=not _for_cpu(found), machine=_reader(wanted)) as begun:
        made = _lock_of(found, locked=options["locked"])
        verdict = prove(emit, found, made, choices, begun, **options)
    if found.made_by_gpuenv and not options["quick"]:
        _keep(path, made, verdict, emit)
    if report:
        _write_report(report, verdict, emit)
    if is_expected(verdict, verdict.made_for, asked_cpu=options["device"] == "cpu") and (step := _next(path)):
        emit(Event(kind="next", stage="verify", text=step))
    return verdict


def _for_cpu(env: Environment) -> bool:
    """Whether an environment was made for the CPU, as far as can be told before its lock is read."""
    with contextlib.suppress(BuildError):
        return env.made_by_gpuenv and (state.read(Path(env.path), "plan.json") or {}).get("device") == "cpu"
    return False


def _lock_of(env: Environment, *, locked: bool) -> Lock | None:
    if env.made_by_gpuenv:
        from ..wheels import locks

        return locks.read_in(Path(env.path) / place.MARK)
    if locked:
        raise UsageError(
            f"{env.path} was not made by gpuenv: it has no lock to be held against",
            hint="`gpuenv create` makes an environment with a lock; verify without --locked proves this one",
        )
    return None


def _next(env: Path) -> str | None:
    """How to enter an environment; None for what has nothing to be entered by, as a system's Python."""
    own = (env / "bin" / "activate").exists() or (env / "conda-meta").is_dir()
    return activate_line(env, process.environ()) if own else None


def _write_report(report: Path, verdict: Verdict, emit: Emit) -> None:
    from datetime import datetime, timezone

    from ..export.report import page

    made = f"gpuenv {__version__}, {datetime.now(timezone.utc):%Y-%m-%d %H:%M} UTC"
    try:
        write_output(report, signed(redact_text(page(verdict, made)), "<!--"))
    except OSError as error:
        raise UsageError(
            f"--report {report}: {error.strerror}", hint=hint_of(error, "name a file that can be written")
        ) from error
    emit(Event(kind="note", stage="verify", text=f"the report is {report}"))


def _keep(path: Path, made: Lock | None, verdict: Verdict, emit: Emit) -> None:
    try:
        under = state.circumstances(path, state.lock_digest(made), machine_for_verdict())
        state.keep_verdict(path, verdict, under)
    except GpuenvError as error:
        # A read-only environment can be verified; its verdict just cannot be kept inside.
        emit(Event(kind="note", stage="verify", text=error.message))
