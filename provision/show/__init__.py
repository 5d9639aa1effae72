"""show: values, events and errors to the screen or as JSON. Nothing else in gpuenv prints."""

from __future__ import annotations

import importlib
import traceback
from collections.abc import Callable
from typing import Any

from ..errors import DataError, GpuenvError
from ..model import Event, as_document, as_plain
from ..system.redaction import clean
from .terminal import Screen

__all__ = ["Screen", "show_bug", "show_error", "show_event", "show_result"]


# The function that shows a value, by the value's name. Only the needed module is loaded.
_SHOWN_BY = {
    "Bundle": ".result:show_bundle",
    "CacheUsage": ".result:show_cache",
    "CreateResult": ".result:show_created",
    "ExportResult": ".result:show_export",
    "Findings": ".verdict:show_findings",
    "Fleet": ".plan:show_fleet",
    "FleetLocks": ".plan:show_fleet_locks",
    "FleetResults": ".result:show_fleet_results",
    "InitResult": ".result:show_initialised",
    "EnvironmentList": ".result:show_listing",
    "Lock": ".plan:show_lock",
    "Machine": ".verdict:show_machine",
    "NodeVerdict": ".verdict:show_node",
    "Plan": ".plan:show_plan",
    "Preview": ".result:show_preview",
    "ProfileTables": ".result:show_tables",
    "RemoveResult": ".result:show_removal",
    "RepairResult": ".result:show_repaired",
    "IssueReport": ".result:show_report",
    "RunResult": ".verdict:show_run",
    "VariantProperties": ".verdict:show_properties",
    "Verdict": ".verdict:show_verdict",
}
_DEEDS = frozenset(
    {"Bundle", "CreateResult", "InitResult", "Lock", "RemoveResult", "RepairResult", "Verdict"}
)
"""Values that say what was done. The other ones are what was asked for, and --quiet leaves them whole."""


def show_event(screen: Screen, event: Event) -> None:
    """Show one event of a stage. Its start and end stay on the screen, its progress does not."""
    if event.kind in ("start", "progress", "done"):
        screen.show_activity(event)
    if event.kind == "progress":
        return
    if event.kind == "next":
        screen.next_step = event.text
    elif event.kind == "summary":
        screen.summary = event.text
    elif event.kind == "log":
        screen.say(event.text, always=True)
    elif event.kind in ("warning", "note"):
        if event.text in screen.shown:
            return
        screen.shown.add(event.text)
        label = "note" if event.kind == "note" else screen.colour("warning", "yellow", screen.err)
        screen.say(f"{label}: {event.text}")
    elif event.kind == "start" or screen.verbose:
        screen.say(f"{event.stage}: {event.text}")


def show_result(screen: Screen, value: Any, *, explain: bool = False, good: bool = True) -> None:
    """Show a command's value: as one JSON document, or as text and the next step, if an event named one. An event with
    a summary replaces the text. With --quiet only the last line before the next step is shown, unless the result is not `good`."""
    screen.stop_activity()
    kind = type(value).__name__
    screen.last_only = screen.quiet and good and not screen.json and kind in _DEEDS
    if screen.json:
        screen.document(as_document(value))
    else:
        if screen.summary:
            screen.wrapped(clean(screen.summary), first="")
        else:
            _load_function(_SHOWN_BY[kind])(screen, value, **({"explain": True} if explain else {}))
        if screen.next_step and not screen.last_only:
            screen.line(clean(screen.next_step))
        screen.show_pending()
    if kind == "IssueReport":  # on standard error, so also after its document
        _load_function(".result:remark_on_report")(screen, value)


def _load_function(name: str) -> Callable[..., None]:
    module, function = name.split(":")
    display: Callable[..., None] = getattr(importlib.import_module(module, __name__), function)
    return display


def show_error(screen: Screen, failed: GpuenvError, code: int) -> None:
    """Show an error: what happened, the evidence, what to do. With --json, show one document with the exit
    code."""
    screen.stop_activity()
    message = clean(failed.message)
    if screen.json:
        body = {
            "code": code,
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
        for row in _list_last_lines(failed.log, 200 if screen.verbose else 12):
            screen.say(f"  | {row}", always=True)
    if failed.findings:
        from .verdict import show_finding

        errors = Screen(environ=screen.environ, out=screen.err, err=screen.err)
        for finding in failed.findings:
            show_finding(errors, finding)
    hint = failed.hint
    for finding in failed.findings:  # their fixes were shown
        hint = hint and hint.removeprefix(finding.fix or "").strip()
    if hint:
        for row in screen.fold(f"hint: {hint}", indent="  ", first="", stream=screen.err):
            screen.say(row, always=True)


def _list_last_lines(log: str, count: int) -> list[str]:
    rows = [r.rstrip() for r in log.splitlines() if r.strip()]
    left_out = len(rows) - count
    return ([f"({left_out} earlier lines omitted)"] if left_out > 0 else []) + rows[-count:]


def show_bug(screen: Screen, version: str) -> None:
    """Show a bug of gpuenv: the traceback, and what to report."""
    screen.stop_activity()
    trace = traceback.format_exc()
    if screen.json:
        body = {"code": 1, "message": "a bug in gpuenv", "hint": _REPORT, "log": trace}
        screen.document({"schema": "gpuenv.error/1", "error": {**body, "problems": [], "findings": []}})
    screen.say(trace.rstrip(), always=True)
    screen.say(f"error: this is a bug in gpuenv {version}", always=True)
    screen.say(f"hint: {_REPORT}", always=True)


_REPORT = "report the traceback above, the command, and the text of `gpuenv report`"
