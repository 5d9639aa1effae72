"""Read the relevant lines of a log of any size, in one bounded pass.

A short log is read completely. Of a long log, the beginning and the end are read completely. Between them, lines
that contain one of a few stems (`STEMS`) are kept, each shape once: lines that differ in digits only have one
shape. Memory and time do not depend on the log's content: every step searches a fixed string, and every list has
a bound.
"""

from __future__ import annotations

import codecs
import itertools
import re
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from ..system.redaction import mask_secrets, remove_controls

BLOCK = 1 << 20
EDGE = 192 << 10
"""Bytes kept whole at the beginning and at the end of a long log."""
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
_IS_TEXT = bytes(b in _TEXT for b in range(256))
_RUN = 16  # bytes of text in a row that junk hardly has by chance
_RUNS = 400  # in one block: with more it is read as text is
_PRINTABLE = re.compile(rb"[\x20-\x7e\t\r\x1b]{6,}")


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a log with its number (from 1), without escapes and control characters."""

    source: str
    number: int
    text: str


@dataclass(slots=True)
class _Kept:
    """The lines kept of one log so far."""

    source: str
    lines: dict[tuple[int, str], Line] = field(default_factory=dict)
    shapes: set[bytes] = field(default_factory=set)
    between: int = 0

    def add(self, number: int, raw: bytes) -> None:
        for text in _split_shown(raw):
            self.lines.setdefault((number, text), Line(self.source, number, text))


def read_log(source: str, chunks: Iterable[bytes]) -> list[Line]:
    """Return the relevant lines of a log, in order. `chunks` are its bytes in pieces of any size."""
    kept = _Kept(source)
    number, tail = 1, deque[tuple[int, bytes]](maxlen=2)
    for i, block in enumerate(_split_blocks(_decode_utf8(chunks))):
        if i == 0:
            _keep_block(kept, number, block[:EDGE])
            edge = block.rfind(b"\n", 0, EDGE) + 1 or min(EDGE, len(block))
            number += block.count(b"\n", 0, edge)
        else:
            edge = 0
        rest = block[edge:] if edge else block
        if rest:
            _keep_stems(kept, number, rest)
            tail.append((number, rest))
        number += rest.count(b"\n")
    _keep_tail(kept, tail)
    return sorted(kept.lines.values(), key=lambda line: line.number)


def _decode_utf8(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the bytes as UTF-8. UTF-16 (PowerShell's `>`) is recognised by its mark or by its zeros."""
    rest = iter(chunks)
    first = b""
    while len(first) < 64 and (chunk := next(rest, b"")):
        first += chunk
    name = _detect_utf16(first)
    if not name:
        yield first
        yield from rest
        return
    decoder = codecs.getincrementaldecoder(name)("replace")
    for chunk in itertools.chain((first,), rest):
        yield decoder.decode(chunk).encode("utf-8", "replace")


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


def _keep_block(kept: _Kept, number: int, block: bytes) -> None:
    """Keep every line of a block, up to LINES."""
    for n, raw in enumerate(block.split(b"\n")):
        if n >= LINES:
            break
        kept.add(number + n, raw)


def _keep_tail(kept: _Kept, tail: Iterable[tuple[int, bytes]]) -> None:
    """Keep all of the last lines, because errors are there."""
    left, wanted = EDGE, LINES
    for number, block in reversed(list(tail)):
        start = max(0, len(block) - left)
        start = block.find(b"\n", start) + 1 if start else 0
        first = number + block.count(b"\n", 0, start)
        rows = block[start:].split(b"\n")
        for n in range(max(0, len(rows) - wanted), len(rows)):
            kept.add(first + n, rows[n])
        left, wanted = left - (len(block) - start), wanted - len(rows)
        if left <= 0 or wanted <= 0:
            return


def _keep_stems(kept: _Kept, number: int, block: bytes) -> None:
    """Keep the lines of a block that contain a stem, each shape once."""
    if kept.between >= BETWEEN:
        return
    if 0.4 < block.count(0, 0, 4096) / len(block[:4096]) < 0.6:
        block = block.translate(None, b"\0")
    if _is_junk(block) and (runs := _find_runs(block)) is not None:
        line, done = number, 0
        for at, run in runs:
            if any(stem in run.lower() for stem in STEMS):
                line, done = line + block.count(b"\n", done, at), at
                _keep_lines(kept, line, run)
        return
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
            _by_shape(kept, number, block)
            return
    line, done = number, 0
    for start in sorted(starts):
        line, done = line + block.count(b"\n", done, start), start
        end = block.find(b"\n", start, start + WIDTH)
        _keep_unseen_shape(kept, line, block[start:end] if end >= 0 else _cut(block, start))


def _cut(block: bytes, start: int) -> bytes:
    """Return the part of a very long line, without parts of secrets that begin before it or end after it."""
    before = min(start, WIDTH)
    return mask_secrets(block[start - before : start + 2 * WIDTH])[before : before + WIDTH]


def _is_junk(block: bytes) -> bool:
    """Return whether most of a block is binary, by a few samples."""
    places = [block[i : i + 256] for i in range(0, len(block), max(1, len(block) // 8))]
    sample = b"".join(places)
    if len(sample.translate(None, _TEXT)) * 2 < len(sample):
        return False
    return sum(map(_is_not_utf8, places)) > len(places) // 2 or sample.count(0) * 2 > len(sample)


def _find_runs(block: bytes) -> list[tuple[int, bytes]] | None:
    """Return the runs of text in binary data with their offsets, or None if there are many.

    One search in the block's byte classes skips binary data faster than seven searches for stems.
    """
    classes = block.translate(_IS_TEXT)
    runs: list[tuple[int, bytes]] = []
    at = classes.find(b"\1" * _RUN)
    while at >= 0:
        end = classes.find(b"\0", at)
        end = len(block) if end < 0 else end
        runs.append((at, block[at:end]))
        if len(runs) > _RUNS or end - at > len(block) // 4:
            return None
        at = classes.find(b"\1" * _RUN, end)
    return runs


def _keep_lines(kept: _Kept, number: int, run: bytes) -> None:
    """Keep the lines of a run of text that contain a stem."""
    for n, raw in enumerate(run.split(b"\n")):
        low = raw[:WIDTH].lower()
        if any(stem in low for stem in STEMS):
            _keep_unseen_shape(kept, number + n, raw)


def _by_shape(kept: _Kept, number: int, block: bytes) -> None:
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
    kept.add(number, raw)


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
