"""Remove prefixes that containers, schedulers, loggers and web pages add to lines.

A prefix that programs print themselves is removed only if most lines of a log have it. Lines of several processes
are grouped by process, so that a message and its second line stay neighbours.
"""

from __future__ import annotations

import dataclasses
import html
import json
import re
from collections.abc import Sequence

from .lines import Line

_SOME, _MOST = 0.2, 0.7  # of the lines of a log
_FEW = 3  # lines below which nothing is said of most
_DEEP = 3  # wrappers around each other: a rank's line, in a container's log, in a page
_ENTITY = re.compile(r"&(?:lt|gt|amp|quot|apos|nbsp|#\d{1,5}|#x[0-9a-fA-F]{1,4});")
_DAY = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?"
_LEVEL = r"\[?(?:DEBUG|INFO|WARN|WARNING|ERROR|CRITICAL|FATAL)\]?"
_PLAIN = tuple(  # forms that nothing else has: some lines suffice
    re.compile(form)
    for form in (
        rf"{_DAY} std(?:out|err) [FP] ",  # the files of a container runtime
        r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:?\d\d) ",  # docker logs --timestamps
        r"[A-Z][a-z]{2} {1,2}\d{1,2} \d\d:\d\d:\d\d \S{1,60} (?P<of>[\w./@-]{1,60}(?:\[\d{1,8}\])?): ",  # journalctl
        r"(?P<of>\[pod/[\w./-]{1,150}\]) ",  # kubectl logs --prefix
        r"(?P<of>\((?:[\w.]{1,60} )?pid=\d{1,8}(?:, ip=[\d.]{7,15})?\)) ",  # Ray
        r"(?P<of>\[(?:default|rank) ?\d{1,4}\]|rank ?\d{1,4}):? ",  # torchrun
    )
)
_COMMON = tuple(  # forms that a program's own lines can have: most lines must
    re.compile(form)
    for form in (
        rf"{_DAY}[ :-]{{1,3}}{_LEVEL}[ :|-]{{1,10}}(?:\[?[\w.]{{1,60}}\]?: ?)?",  # Python's logging
        r"(?P<of>\[\d{1,4}(?:,\d{1,4})?\](?:<std(?:out|err)>)?):? ?",  # mpirun
        r"(?P<of>\d{1,4}): ",  # srun --label
        r"(?P<of>[A-Za-z][\w.-]{0,60}[-_]\d{1,3}) {1,20}\| ?",  # docker compose logs
        rf"{_LEVEL}[ :|-]{{1,4}}(?=\S)",
    )
)
_TEXTS = ("log", "message", "msg", "text")


def unwrapped(lines: Sequence[Line]) -> list[Line]:
    """Return the lines of one log without their wrappers."""
    unescaped = [_unescape(line) for line in lines]
    for _ in range(_DEEP):
        bare = _drop_prefix(unescaped)
        if bare is None:
            break
        unescaped = bare
    return [line for line in unescaped if line.text.strip()]


def _unescape(line: Line) -> Line:
    """Return a line without HTML escapes and without its JSON object."""
    text = line.text
    if text.startswith("{") and text.rstrip().endswith("}"):
        text = _read_json_text(text) or text
    if _ENTITY.search(text):
        text = html.unescape(text)
    return line if text is line.text else dataclasses.replace(line, text=text.rstrip())


def _read_json_text(text: str) -> str | None:
    """Return the text in a logging driver's JSON object, or None."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return (
        next((document[k] for k in _TEXTS if isinstance(document.get(k), str)), None)
        if isinstance(document, dict)
        else None
    )


def _drop_prefix(lines: Sequence[Line]) -> list[Line] | None:
    """Return the lines without their common prefix, or None if there is none."""
    if len(lines) < _FEW:
        return None
    for form, share in (*((f, _SOME) for f in _PLAIN), *((f, _MOST) for f in _COMMON)):
        matches = [form.match(line.text) for line in lines]
        if sum(m is not None for m in matches) >= max(2, share * len(lines)):
            bare = [_cut_prefix(line, match) for line, match in zip(lines, matches, strict=True)]
            return _by_process(bare, matches) if "of" in form.groupindex else bare
    return None


def _cut_prefix(line: Line, match: re.Match[str] | None) -> Line:
    return dataclasses.replace(line, text=line.text[match.end() :]) if match else line


def _by_process(lines: list[Line], matches: Sequence[re.Match[str] | None]) -> list[Line]:
    """Return the lines grouped by process, in the order of their first lines.

    A line without a prefix stays with the line before it.
    """
    streams: dict[str, list[Line]] = {}
    current = ""
    for line, match in zip(lines, matches, strict=True):
        current = match.group("of") if match else current
        streams.setdefault(current, []).append(line)
    return [line for stream in streams.values() for line in stream]
