"""show: values, events and errors to the screen or as JSON. Nothing else in gpuenv prints."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any

from ..errors import DataError, GpuenvError
from ..model import (
    Bundle,
    Created,
    Environment,
    Event,
    Exported,
    Finding,
    Findings,
    Initialised,
    Listing,
    Lock,
    Machine,
    Plan,
    ProfileTables,
    Removal,
    Repaired,
    Report,
    Verdict,
    as_document,
    as_plain,
)
from .bundle import show_bundle
from .export import show_export
from .findings import show_findings
from .initialised import show_initialised
from .listing import amount, show_listing, show_removal
from .machine import show_machine
from .plan import show_plan
from .repaired import show_repaired
from .screen import Screen, clean, hidden
from .verdict import show_finding, show_verdict

__all__ = ["Screen", "bug", "emitter", "error", "event", "findings", "hidden", "result"]


def event(screen: Screen, told: Event) -> None:
    """One event of a stage: what starts and ends stays on the screen, what passes does not."""
    if told.kind == "progress":
        screen.progress(f"  {told.stage}: {told.text}")
    elif told.kind == "warning":
        screen.say(f"{screen.colour('warning', 'yellow', screen.err)}: {told.text}", always=True)
    elif told.kind == "note":
        screen.say(f"note: {told.text}")
    elif told.kind == "start" or screen.verbose:
        screen.say(f"{told.stage}: {told.text}")


def emitter(screen: Screen) -> Callable[[Event], None]:
    """What a stage tells its progress to."""
    return lambda told: event(screen, told)


def result(screen: Screen, value: Any, *, next_step: str | None = None, explain: bool = False) -> None:
    """A command's value: one JSON document, or words and the next step."""
    if screen.json:
        screen.document(as_document(value))
        return
    if isinstance(value, Plan):
        show_plan(screen, value, explain=explain)
    elif isinstance(value, Machine):
        show_machine(screen, value)
    elif isinstance(value, Verdict):
        show_verdict(screen, value)
    elif isinstance(value, Lock):
        _show_lock(screen, value)
    elif isinstance(value, Created):
        _show_created(screen, value)
    elif isinstance(value, Findings):
        show_findings(screen, value)
    elif isinstance(value, Repaired):
        show_repaired(screen, value)
    elif isinstance(value, Initialised):
        show_initialised(screen, value)
    elif isinstance(value, Bundle):
        show_bundle(screen, value)
    elif isinstance(value, Exported):
        show_export(screen, value)
    elif isinstance(value, ProfileTables):
        _show_tables(screen, value)
    elif isinstance(value, Listing):
        show_listing(screen, value)
    elif isinstance(value, Removal):
        show_removal(screen, value)
    elif isinstance(value, Report):
        screen.line(clean(value.text).rstrip("\n"))
    if next_step:
        screen.line(clean(next_step))


def findings(screen: Screen, found: tuple[Finding, ...]) -> None:
    """Findings beside another program's output, on stderr."""
    errors = Screen(environ=screen.environ, out=screen.err, err=screen.err)
    show_findings(errors, Findings(findings=found))


def _show_lock(screen: Screen, lock: Lock) -> None:
    show_plan(screen, lock.plan)
    total = sum(p.size or 0 for p in lock.packages)
    known = f", {amount(total)} to download" if total else ""
    screen.line(f"{len(lock.packages)} packages locked{known}")
    if screen.verbose:
        for package in lock.packages:
            screen.line(f"  {package.name} {package.version}")


def _show_created(screen: Screen, made: Created) -> None:
    if made.plan:
        show_plan(screen, made.plan)
    if made.environment:
        _show_environment(screen, made.environment)
    if made.verdict:
        show_verdict(screen, made.verdict)
    elif made.environment:
        where = " on a machine that has the GPU" if made.plan and made.plan.device == "cuda" else ""
        screen.wrapped(
            f"unproven: `gpuenv verify {made.environment.path}`{where} gives the verdict", first=""
        )


def _show_environment(screen: Screen, made: Environment) -> None:
    words = "built" if made.changed else "already in place, nothing was rebuilt"
    screen.line(f"{made.path}: {words}")


def _show_tables(screen: Screen, known: ProfileTables) -> None:
    if not known.tables:
        screen.line("nothing new: the profiles have all that the index has")
    for table in known.tables:
        name = " ".join(x for x in (table.table, table.framework) if x)
        count = len(table.rows) if table.count is None else table.count
        screen.wrapped(f"{name}: {count} rows, {table.kept or 'kept by hand'}, read {table.read}", first="")
        screen.wrapped(f"{table.source}", indent="    ")
        screen.wrapped(table.file, indent="    ")
        for row in table.rows:
            words = (f"{k} {' '.join(v) if isinstance(v, (list, tuple)) else v}" for k, v in row.items())
            screen.wrapped("; ".join(words), indent="      ", first="  - ")


def error(screen: Screen, failed: GpuenvError) -> None:
    """An error: what happened, the evidence, what to do. One document with --json."""
    message = clean(failed.message)
    if screen.json:
        body = {
            "code": failed.code,
            "message": message,
            "hint": failed.hint,
            "log": failed.log,
            "problems": list(failed.problems) if isinstance(failed, DataError) else [],
            "findings": as_plain(failed.findings),
        }
        screen.document({"schema": "gpuenv.error/1", "error": body})
        return
    screen.say(screen.colour("error", "red", screen.err) + f": {message}", always=True)
    if isinstance(failed, DataError):
        for problem in failed.problems:
            screen.say(f"  {problem}", always=True)
    if failed.log:
        for row in _last_lines(failed.log, 200 if screen.verbose else 12):
            screen.say(f"  | {row}", always=True)
    for finding in failed.findings:
        errors = Screen(environ=screen.environ, out=screen.err, err=screen.err)
        show_finding(errors, finding)
    if failed.hint:
        for row in screen.fold(f"hint: {failed.hint}", indent="  ", first=""):
            screen.say(row, always=True)


def _last_lines(log: str, count: int) -> list[str]:
    rows = [r.rstrip() for r in log.splitlines() if r.strip()]
    left_out = len(rows) - count
    return ([f"({left_out} lines before)"] if left_out > 0 else []) + rows[-count:]


def bug(screen: Screen, version: str) -> None:
    """Our own failure: the traceback and what to report."""
    trace = traceback.format_exc()
    if screen.json:
        body = {"code": 1, "message": "a bug in gpuenv", "hint": _REPORT, "log": trace}
        screen.document({"schema": "gpuenv.error/1", "error": {**body, "problems": [], "findings": []}})
    screen.say(trace.rstrip(), always=True)
    screen.say(f"error: this is a bug in gpuenv {version}, not yours", always=True)
    screen.say(f"hint: {_REPORT}", always=True)


_REPORT = "report the traceback above, the command, and the text of `gpuenv report`"
