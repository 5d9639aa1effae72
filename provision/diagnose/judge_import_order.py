"""Find imports that crash in one order and work in the other, or one that fails only after another."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence

from ..model import Evidence
from .candidates import Case, CauseCandidate
from .lines import Line
from .pattern_search import evidence
from .shell_commands import shell_commands

_CAUSE = "conflicting_frameworks_in_one_env"
_FAILURE = re.compile(
    r"\b(?:OS|Import|Runtime|ModuleNotFound|Attribute)Error\b|Segmentation fault|core dumped|WinError|Access violation",
    re.IGNORECASE,
)
_ON_ONE_LINE = re.compile(r"python\S{0,6} (?:-\S{1,20} (?:[a-z]\w{1,20} )?){0,3}-c ['\"]([^'\"]{1,400})")
_STATEMENT = re.compile(
    r"^\s{0,12}(?:>>> |In \[\d{1,5}\]: |\d{1,3}\. )?(?:import|from) ([A-Za-z_][\w., ]{0,200})"
)
_MODULES = re.compile(r"(?:^|;)\s*(?:import|from) ([A-Za-z_][\w., ]{0,200})")
_NAME = re.compile(r"[A-Za-z_]\w{0,60}")
_MOST = 20  # modules of one run of imports that are looked at


def import_order(case: Case) -> list[CauseCandidate]:
    """Find two modules that the text imports in both orders, and a crash."""
    crashed = (
        case.said.group("crash") or case.said.group("procedure_missing") or case.said.group("dll_refused")
    )
    if not crashed:
        return []
    orders: dict[tuple[str, str], Evidence] = {}
    for modules, line in _list_runs(case.said.lines):
        for i, first in enumerate(modules):
            for second in modules[i + 1 :]:
                if (second, first) in orders:
                    shows = (*crashed[:1], orders[second, first], evidence(line))
                    title = f"The program crashes in one import order of {first} and {second}, but not in the other"
                    return [
                        CauseCandidate(cause=_CAUSE, weight=86, confidence="likely",
                                  evidence=shows, title=title)
                    ]  # fmt: skip
                orders.setdefault((first, second), evidence(line))
    return []


def works_alone(case: Case) -> list[CauseCandidate]:
    """Find a module that fails after another in one command, and works without it in another command."""
    failed: list[tuple[list[str], Line]] = []
    worked: list[tuple[list[str], Line]] = []
    for command in shell_commands(case.said.lines):
        match = _ON_ONE_LINE.search(command.typed)
        if match is None:
            continue
        modules = _list_modules(match.group(1))
        if any(_FAILURE.search(line.text) for line in command.output):
            failed.append((modules, command.line))
        elif command.ended or command.output:
            worked.append((modules, command.line))
    for modules, line in failed:
        for first, second in itertools.pairwise(modules):
            alone = next((at for names, at in worked if second in names and first not in names), None)
            if alone and not any(names == [second] for names, _ in failed):
                title = f"Importing {second} fails after {first}, and works without it"
                return [
                    CauseCandidate(cause=_CAUSE, weight=72, confidence="likely", title=title,
                              evidence=(evidence(line), evidence(alone)))
                ]  # fmt: skip
    return []


def _list_modules(program: str) -> list[str]:
    """Return the modules that a one-line program imports, in order."""
    return [n for part in _MODULES.findall(program) for n in _list_names(part)][:_MOST]


def _list_runs(lines: Sequence[Line]) -> Iterable[tuple[list[str], Line]]:
    """Yield the modules of each one-line program and of each block of imports, with its first line."""
    run: list[str] = []
    began: Line | None = None
    for line in lines:
        if match := _ON_ONE_LINE.search(line.text):
            yield _list_modules(match.group(1)), line
        elif match := _STATEMENT.match(line.text):
            began = began or line
            run += [n for n in _list_names(match.group(1)) if n not in run][: max(0, _MOST - len(run))]
            continue
        if began:
            yield run, began
        run, began = [], None
    if began:
        yield run, began


def _list_names(part: str) -> list[str]:
    """Return the packages of "a.b as c, d" or of "a.b import c"."""
    first = part.split(" import ", maxsplit=1)[0]
    return [match.group(0) for one in first.split(",") if (match := _NAME.match(one.strip()))]
