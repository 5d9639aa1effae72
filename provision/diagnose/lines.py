"""Read a log of any size: its relevant lines, the exceptions in them and the commands that a person typed.

A short log is kept completely. Of a longer one, the first and the last lines are (`LINES`, in `EDGE` bytes). Between them,
lines that contain one of a few stems (`STEMS`) are kept, each shape once: lines that differ in digits only have one
shape. Memory and time do not depend on the log's content: every step searches a fixed string, and every list has
a bound.
"""

from __future__ import annotations

import codecs
import dataclasses
import functools
import html
import itertools
import json
import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field

from ..model import Evidence
from ..model.values import Value
from ..system.redaction import clean, mask_secrets, remove_controls

BLOCK = 1 << 20
EDGE = 192 << 10
"""Bytes at the beginning and at the end of a long log of which `LINES` lines are kept."""
WIDTH = 4000
"""Characters of a line that are looked at: no message of a program is longer, and base64 is."""
LINES = 1000
"""Lines kept of a long log's beginning, and of its end."""
BETWEEN = 600
"""Lines kept between them."""
STEMS = (b"cud", b"nvidia", b"gpu", b"error", b"fail", b"cannot", b"memory")
"""Lower case: what the lines that matter between beginning and end hold."""
_LOWER = bytes(range(256)).lower()
_NO_STEM = bytes(b for b in range(256) if _LOWER[b] not in b"".join(STEMS) + b"\n")  # bytes no stem holds
_HITS = 40  # lines with one stem in one block before the block is read by shapes
_TEXT = bytes(range(0x20, 0x7F)) + b"\t\n\r\x1b"
_SHOWN = 300  # characters of a line that evidence shows
_PRINTABLE = re.compile(rb"[\x20-\x7e\t\r\x1b]{6,}")


class Line(Value, kw_only=False):
    """One line of a log with its number (from 1), without escapes and control characters."""

    source: str
    number: int
    text: str

    @functools.cached_property  # many patterns find the same line
    def evidence(self) -> Evidence:
        return Evidence(clean(self.text.strip(), _SHOWN), self.source, self.number)


@dataclasses.dataclass
class _Kept:
    """The lines kept of one log so far."""

    source: str
    lines: dict[tuple[int, str], Line] = field(default_factory=dict)
    shapes: set[bytes] = field(default_factory=set)
    between: int = 0

    def add_all(self, number: int, rows: Iterable[bytes]) -> None:
        """Add lines from this number on."""
        for at, raw in enumerate(rows, number):
            for text in _split_shown(raw):
                self.lines.setdefault((at, text), Line(self.source, at, text))


def read_log(source: str, chunks: Iterable[bytes]) -> list[Line]:
    """Return the relevant lines of a log, in order. `chunks` are its bytes in pieces of any size."""
    kept = _Kept(source)
    number, tail = 1, deque[tuple[int, bytes]](maxlen=2)
    for i, block in enumerate(_split_blocks(_decode_utf8(chunks))):
        edge = 0
        if i == 0:
            edge = block.rfind(b"\n", 0, EDGE) + 1 or min(EDGE, len(block))
            head = block[:edge].split(b"\n", LINES)
            kept.add_all(number, head[:LINES])
            edge -= sum(map(len, head[LINES:]))
            number += block.count(b"\n", 0, edge)
        if rest := block[edge:]:
            _keep_stems(kept, number, rest)
            tail.append((number, rest))
        number += rest.count(b"\n")
    if tail:  # all of the last lines, because errors are there
        number, last = tail[0][0], b"".join(block for _, block in tail)
        start = last.find(b"\n", len(last) - EDGE) + 1 if len(last) > EDGE else 0
        rows = last[start:].split(b"\n")
        skipped = max(0, len(rows) - LINES)
        kept.add_all(number + last.count(b"\n", 0, start) + skipped, rows[skipped:])
    return sorted(kept.lines.values(), key=lambda line: line.number)


def _decode_utf8(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Return the bytes as UTF-8. UTF-16 (PowerShell's `>`) is recognised by its mark or by its zeros."""
    rest = iter(chunks)
    first = b""
    while len(first) < 64 and (chunk := next(rest, b"")):
        first += chunk
    whole = itertools.chain((first,), rest)
    if name := _detect_utf16(first):
        return (text.encode("utf-8", "replace") for text in codecs.iterdecode(whole, name, "replace"))
    return whole


def _detect_utf16(first: bytes) -> str | None:
    if first.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "utf-16"
    sample = first[:2000]
    if len(sample) < 8:
        return None
    if sample[1::2].count(0) > len(sample) * 0.4:
        return "utf-16-le"
    return "utf-16-be" if sample[::2].count(0) > len(sample) * 0.4 else None


def _split_blocks(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the bytes in blocks that end with a line, or anywhere in a line longer than BLOCK."""
    rest = b""
    for chunk in chunks:
        rest = rest + chunk if rest else chunk
        if len(rest) < BLOCK:
            continue
        end = rest.rfind(b"\n") + 1 or len(rest)
        yield rest[:end]
        rest = rest[end:]
    if rest:
        yield rest


def _keep_stems(kept: _Kept, number: int, block: bytes) -> None:
    """Keep the lines of a block that contain a stem, each shape once."""
    if kept.between >= BETWEEN:
        return
    if 0.4 < block.count(0, 0, 4096) / len(block[:4096]) < 0.6:
        block = block.translate(None, b"\0")
    # Without the bytes that no stem holds a block is a quarter as long, and a stem in it stays whole.
    short = block.translate(_LOWER, _NO_STEM)
    stems = [stem for stem in STEMS if stem in short]
    low = block.translate(_LOWER) if stems else b""
    starts: set[int] = set()
    for stem in stems:
        at = low.find(stem)
        for _ in range(_HITS):
            if at < 0:
                break
            start = low.rfind(b"\n", max(0, at - WIDTH), at) + 1 or max(0, at - WIDTH // 2)
            starts.add(start)
            after = low.find(b"\n", at)
            at = low.find(stem, after) if after >= 0 else -1
        else:
            _keep_new_shapes(kept, number, block)
            return
    line, counted = number, 0
    for start in sorted(starts):
        line, counted = line + block.count(b"\n", counted, start), start
        end = block.find(b"\n", start, start + WIDTH)
        _keep_unseen_shape(kept, line, block[start:end] if end >= 0 else _cut(block, start))


def _cut(block: bytes, start: int) -> bytes:
    """Return the part of a very long line, without parts of secrets that begin before it or end after it."""
    before = min(start, WIDTH)
    return mask_secrets(block[start - before : start + 2 * WIDTH])[before : before + WIDTH]


def _keep_new_shapes(kept: _Kept, number: int, block: bytes) -> None:
    """Keep the new shapes of a block with many stems, such as progress lines with a GPU's name."""
    rows = block.split(b"\n")
    fresh = 0
    for n, shape in enumerate(block.translate(None, b"0123456789").split(b"\n")):
        if shape in kept.shapes:
            continue
        if fresh >= 5 * _HITS:
            return
        low = shape[: WIDTH * 2].lower()
        if any(stem in low for stem in STEMS):
            fresh += 1
            _keep_unseen_shape(kept, number + n, rows[n])


def _keep_unseen_shape(kept: _Kept, number: int, raw: bytes) -> None:
    shape = raw[: WIDTH * 2].translate(None, b"0123456789")
    if shape in kept.shapes or kept.between >= BETWEEN:
        return
    kept.shapes.add(shape)
    kept.between += 1
    kept.add_all(number, [raw])


def _split_shown(raw: bytes) -> Iterator[str]:
    """Yield the texts of one line, which carriage returns separate."""
    raw = raw[: 64 * WIDTH].translate(None, b"\0")  # UTF-16 that was appended to a log of bytes
    if _is_not_utf8(raw[:WIDTH]) and len(raw[:WIDTH].translate(None, _TEXT)) * 3 > len(raw[:WIDTH]):
        raw = b" ".join(_PRINTABLE.findall(raw[:WIDTH]))  # junk: what `strings` would show of it
    parts = raw.split(b"\r")
    if len(parts) > 60:
        parts = [*parts[:20], *(p for p in parts[20:-20] if _has_stem(p)), *parts[-20:]][:200]
    for part in parts:
        text = remove_controls(part[:WIDTH].decode("utf-8", "replace")).rstrip()
        if text:
            yield text


def _is_not_utf8(raw: bytes) -> bool:
    """Return whether more than a few bytes are not UTF-8. A character cut in two is allowed."""
    return len(raw.decode("utf-8", "ignore").encode()) < len(raw) - 16


def _has_stem(part: bytes) -> bool:
    low = part[:WIDTH].lower()
    return any(stem in low for stem in STEMS[3:])


# --- wrappers: prefixes that containers, schedulers, loggers and web pages add to lines --------

_DEEP = 3  # wrappers around each other: a rank's line, in a container's log, in a page
_FEW = 3  # lines below which nothing is said of most
_ENTITY = re.compile(r"&(?:lt|gt|amp|quot|apos|nbsp|#\d{1,5}|#x[0-9a-fA-F]{1,4});")
_DAY = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?"
_LEVEL = r"\[?(?:DEBUG|INFO|WARN|WARNING|ERROR|CRITICAL|FATAL)\]?"
_WRAPPERS = tuple(
    (re.compile(form), share)
    for form, share in (
        # forms that nothing else has: a fifth of the lines suffices
        (rf"{_DAY} std(?:out|err) [FP] ", 0.2),  # the files of a container runtime
        (
            r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:?\d\d) ",
            0.2,
        ),  # docker logs --timestamps
        (
            r"[A-Z][a-z]{2} {1,2}\d{1,2} \d\d:\d\d:\d\d \S{1,60} (?P<of>[\w./@-]{1,60}(?:\[\d{1,8}\])?): ",
            0.2,
        ),  # journalctl
        (r"(?P<of>\[pod/[\w./-]{1,150}\]) ", 0.2),  # kubectl logs --prefix
        (r"(?P<of>\((?:[\w.]{1,60} )?pid=\d{1,8}(?:, ip=[\d.]{7,15})?\)) ", 0.2),  # Ray
        (r"(?P<of>\[(?:default|rank) ?\d{1,4}\]|rank ?\d{1,4}):? ", 0.2),  # torchrun
        # forms that a program's own lines can have: most lines must
        (rf"{_DAY}[ :-]{{1,3}}{_LEVEL}[ :|-]{{1,10}}(?:\[?[\w.]{{1,60}}\]?: ?)?", 0.7),  # Python's logging
        (r"(?P<of>\[\d{1,4}(?:,\d{1,4})?\](?:<std(?:out|err)>)?):? ?", 0.7),  # mpirun
        (r"(?P<of>\d{1,4}): ", 0.7),  # srun --label
        (r"(?P<of>[A-Za-z][\w.-]{0,60}[-_]\d{1,3}) {1,20}\| ?", 0.7),  # docker compose logs
        (rf"{_LEVEL}[ :|-]{{1,4}}(?=\S)", 0.7),
    )
)
_TEXTS = ("log", "message", "msg", "text")


def unwrap(lines: Sequence[Line]) -> list[Line]:
    """Return the lines of one log without their wrappers.

    Lines of several processes are grouped by process, so that a message and its second line stay neighbours.
    """
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
    known = document if isinstance(document, dict) else {}
    return next((known[k] for k in _TEXTS if isinstance(known.get(k), str)), None)


def _drop_prefix(lines: Sequence[Line]) -> list[Line] | None:
    """Return the lines without their common prefix, or None if there is none."""
    if len(lines) < _FEW:
        return None
    for form, share in _WRAPPERS:
        matches = [form.match(line.text) for line in lines]
        if sum(m is not None for m in matches) >= max(2, share * len(lines)):
            bare = [
                dataclasses.replace(line, text=line.text[match.end() :]) if match else line
                for line, match in zip(lines, matches, strict=True)
            ]
            return _group_by_process(bare, matches) if "of" in form.groupindex else bare
    return None


def _group_by_process(lines: list[Line], matches: Sequence[re.Match[str] | None]) -> list[Line]:
    """Return the lines grouped by process, in the order of their first lines.

    A line without a prefix stays with the line before it.
    """
    streams: dict[str, list[Line]] = {}
    current = ""
    for line, match in zip(lines, matches, strict=True):
        current = match["of"] if match else current
        streams.setdefault(current, []).append(line)
    return [line for stream in streams.values() for line in stream]


# --- exceptions --------------------------------------------------------------------------------

# In front of a line: a rank (torchrun), pytest's "E", a container's or a scheduler's name.
_BEFORE = r"^(?:\[?(?:rank|default)?\d{1,4}\]?[:>] ?|E {1,8}|[\w.-]{1,60} {1,4}\| ){0,2}"
_ENDS = ("Error", "Exception", "Interrupt", "Exit", "Found")
_RAISED = re.compile(
    _BEFORE + r"((?:[A-Za-z_]\w{0,60}\.){0,8}[A-Za-z_]\w{0,60}(?:" + "|".join(_ENDS) + r"))(?:: (.*))?$"
)
_FRAME = re.compile(r"^.{0,80}?File [\"']([^\"']{1,400})[\"'], line (\d{1,7})(?:,? in (.{1,200}))?$")
_SITE = re.compile(r"/(?:site|dist)-packages/([^/]{1,120})")


class Raised(Value, kw_only=False):
    """An exception in a text: its type without modules, message, line, and the file of the frame before it."""

    kind: str
    message: str
    line: Line
    file: str | None

    @property
    def package(self) -> str | None:
        """The site-packages folder of the file that raised it."""
        return package_of(self.file or "")


def package_of(path: str) -> str | None:
    """Return the top-level name in site-packages of a file, or None."""
    match = _SITE.search(path.replace("\\", "/"))
    return match[1].removesuffix(".py") if match else None


def read_exceptions(lines: Sequence[Line]) -> list[Raised]:
    """Return the exceptions of a text, in order."""
    errors, file = [], None
    for line in lines:
        if match := read_frame(line.text):
            file = match[0]
        elif any(end in line.text for end in _ENDS) and (match_ := _RAISED.match(line.text.strip())):
            errors.append(Raised(match_[1].rpartition(".")[2], match_[2] or "", line, file))
            file = None
    return errors


def read_frame(text: str) -> tuple[str, int, str] | None:
    """Return the file, line and function of a traceback line, or None."""
    match = _FRAME.match(text)
    return (match[1], int(match[2]), (match[3] or "").strip()) if match else None


# --- typed commands: a report often shows them after the error, with files and packages that exist ---

_ENV = r"(?:\([\w.+/:\\ -]{1,60}\) ?){0,2}"
_PROMPTS = tuple(
    re.compile(form)
    for form in (
        rf"{_ENV}PS [A-Za-z]:\\[^>\n]{{0,150}}> ?(?P<typed>.*)$",
        rf"{_ENV}[A-Za-z]:\\[^>\n]{{0,150}}> ?(?P<typed>.*)$",
        rf"{_ENV}\[?[\w.-]{{1,40}}@[\w.-]{{1,80}}[: ~][^$#%>\n]{{0,120}}[$#%\u276f] ?(?P<typed>.*)$",
        rf"{_ENV}[\w.~/-]{{0,60}}[$\u276f\u279c] ?(?P<typed>.*)$",
        r"(?:In \[\d{1,5}\]: )?!(?P<typed>\S.*)$",
        r"(?:>>>|In \[\d{1,5}\]:) ?(?P<typed>.*)$",
    )
)
_MARK = re.compile("[$#%>!+\u276f\u279c]")
_PROMPT_WIDTH = 320  # characters that a prompt can have
_BARE = re.compile(r"(?:[#%>+] |)(?P<typed>\S.*)$")  # a prompt that output can have too
_PROGRAMS = (
    r"find|ls|ldconfig|locate|where|whereis|dir|dpkg|rpm|apt|pip3?|conda|mamba|micromamba|uv|ldd|"
    r"uname|lsmod|dkms|modinfo|"
    r"python3?(?:\.\d{1,2})? -m pip|Get-ChildItem|gci"
)
_LISTS = re.compile(rf"(?:sudo )?(?:\S{{0,200}}[/\\])?(?:{_PROGRAMS})(?:\.exe)? ", re.IGNORECASE)
_OUTPUT = 400  # lines of one output


@dataclasses.dataclass
class ShellCommand:
    """A typed command, its line and its output. `ended`: a later prompt proves that the output is complete."""

    typed: str
    line: Line
    output: list[Line] = field(default_factory=list)
    ended: bool = False


def read_commands(lines: Sequence[Line]) -> list[ShellCommand]:
    """Return the commands of a text with their outputs, in order."""
    found: list[ShellCommand] = []
    for line in lines:
        typed = _read_typed(line.text.strip())
        if typed is None:
            if found and len(found[-1].output) < _OUTPUT and found[-1].line.source == line.source:
                found[-1].output.append(line)
            continue
        if found:
            found[-1].ended = True
        found.append(ShellCommand(typed, line))
    return found


def _read_typed(text: str) -> str | None:
    """Return the command of a line with a prompt, or None for a line of output."""
    if not _MARK.search(text, 0, _PROMPT_WIDTH):
        return None
    for prompt in _PROMPTS:
        if match := prompt.match(text):
            return match["typed"].strip()
    match = _BARE.match(text)
    listed = match and text[:2] in ("# ", "% ", "> ", "+ ") and _LISTS.match(match["typed"])
    return match["typed"] if match and listed else None
