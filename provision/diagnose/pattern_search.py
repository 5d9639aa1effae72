"""The pattern language for messages, and one search of a log for all of them.

A pattern is the text that a program prints. `...` stands for anything on the same line, `#` for a number, `{v}`
for a version ("12.4"), and `{w}` for a word. Letters match in any case, a space any blanks, a quote any quote.
`^` in front matches the beginning of a line.

The name of a CUDA, cuBLAS or cuDNN status is matched whole, because one is often the beginning of another.
Pieces are searched from left to right with bounded repetition, so each line takes the time of a few searches.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Iterable, Sequence

from ..model import CatalogueMessage, Evidence, FailureMessage, FailureRule
from ..system.redaction import clean
from .lines import Line
from .numbered_errors import find_numbered

_SLOTS = {"#": r"\d{1,12}", "{v}": r"\d{1,5}(?:\.\d{1,6}){0,4}", "{w}": r"[\w.+-]{1,80}"}
_TOKENS = re.compile(r"#|\{v\}|\{w\}|['\"`]|[^#{'\"`]+|\{")
_STATUS = re.compile(r"(?:cudnn_status|cublas_status|cuda_error)_\w*[a-z0-9]|cudaerror[a-z]+")
_QUOTES = "'\"`\u2018\u2019\u201c\u201d\u00b4"
_QUOTE = f"[{_QUOTES}]"
_NO_DIGITS = str.maketrans("", "", "0123456789")
_SHORT = 1200  # lines of a log that is read as a person pasted it: messages may be broken over two lines
_SHOWN = 300  # characters of a line that evidence shows


class Pattern:
    """A compiled pattern. Every matching line contains `literal`, in lower case."""

    def __init__(self, text: str) -> None:
        self.begins = text.startswith("^")
        pieces = [p.strip(" ") for p in text.removeprefix("^").split("...")]
        self.pieces = [_compile(p) for p in pieces if p]
        plain = [run for p in pieces for run in re.split(r"#|\{v\}|\{w\}|['\"`]", p.lower())]
        self.literal = max((run.strip() for run in plain), key=len)
        if len(self.literal) < 3 or len(self.pieces) > 4:
            raise ValueError(
                f"{text!r}: a pattern must contain a word of three or more letters, and '...' at most three times"
            )

    def found(self, line: str) -> bool:
        """Return whether a line (from `plain`) matches."""
        position = 0
        for i, piece in enumerate(self.pieces):
            if isinstance(piece, str):
                start = line.find(piece, position)
                end = start + len(piece)
            else:
                match = piece.search(line, position)
                start, end = match.span() if match else (-1, -1)
            if start < 0 or (i == 0 and self.begins and start > 0):
                return False
            position = end
        return True


def _compile(piece: str) -> str | re.Pattern[str]:
    piece = piece.lower()
    if _STATUS.fullmatch(piece):
        return re.compile(re.escape(piece) + r"(?!\w)")
    if not any(mark in piece for mark in ("#", "{v}", "{w}", "'", '"', "`")):
        return piece
    parts = [
        _SLOTS.get(part) or (_QUOTE if part in "'\"`" else re.escape(part)) for part in _TOKENS.findall(piece)
    ]
    return re.compile("".join(parts))


@functools.lru_cache(maxsize=4096)
def pattern(text: str) -> Pattern:
    """Return the compiled pattern. Raises ValueError for one without a word to search for."""
    return Pattern(text)


def plain(text: str) -> str:
    """Return a line in lower case with single spaces."""
    return " ".join(text.lower().split())


class Said:
    """The patterns that a text contains, with their lines. Groups of patterns have names (`messages`)."""

    def __init__(
        self,
        lines: Sequence[Line],
        messages: Sequence[FailureMessage],
        rules: Sequence[FailureRule],
        catalogue: Sequence[CatalogueMessage] = (),
    ) -> None:
        self.lines = lines
        self._groups = {m.name: m.says for m in messages}
        wanted = {p for m in messages for p in m.says} | {
            p for r in rules for p in r.says if not p.startswith("@")
        }
        wanted |= {p for row in catalogue for p in row.says}
        self._where = _search_lines(lines, sorted(wanted))
        self.numbered = find_numbered(lines, {row.code for row in catalogue if row.code})
        self._add_numbered(catalogue, wanted)

    def __call__(self, says: Iterable[str]) -> tuple[Evidence, ...]:
        """Return the first lines with any of the patterns or groups ("@name"), each once."""
        found: dict[tuple[str, int], Line] = {}
        for text in says:
            for one in self._groups[text[1:]] if text.startswith("@") else (text,):
                for line in self._where.get(one, ()):
                    found.setdefault((line.source, line.number), line)
        return tuple(evidence(line) for line in sorted(found.values(), key=lambda x: x.number)[:3])

    def _add_numbered(self, catalogue: Iterable[CatalogueMessage], wanted: Iterable[str]) -> None:
        """Add the lines with an error's number to the patterns that are its name."""
        names = {row.name.lower(): row.code for row in catalogue if row.code in self.numbered}
        for text in wanted:
            if code := names.get(text.lower()):
                self._where[text] = [*self._where.get(text, ()), *self.numbered[code]]

    def group(self, name: str) -> tuple[Evidence, ...]:
        """Return the first lines with a pattern of a group."""
        return self((f"@{name}",))

    def knows(self, name: str) -> bool:
        return name in self._groups


def without(lines: Sequence[Line], messages: Iterable[FailureMessage], name: str) -> list[Line]:
    """Return the lines without those of the message of that name."""
    dropped = [pattern(p) for m in messages if m.name == name for p in m.says]

    def says(low: str) -> bool:
        return any(one.literal in low and one.found(low) for one in dropped)

    return [line for line in lines if not says(plain(line.text))]


@functools.lru_cache(maxsize=4096)  # many patterns find the same line
def evidence(line: Line) -> Evidence:
    """Return a line as evidence."""
    return Evidence(text=clean(line.text.strip(), _SHOWN), source=line.source, line=line.number)


def _search_lines(lines: Sequence[Line], texts: Sequence[str]) -> dict[str, list[Line]]:
    """Return the first lines of each pattern. Lines that differ in digits only count as one.

    In a short text, a message may continue on the next line.
    """
    where: dict[str, list[Line]] = {}
    shown = [plain(line.text) for line in lines]
    whole = " ".join(shown)
    compiled = [(text, one) for text in texts if (one := pattern(text)).literal in whole]
    pairs = len(lines) <= _SHORT
    shapes: Counter[str] = Counter()
    for i, line in enumerate(lines):
        low = shown[i]
        shapes[shape := low.translate(_NO_DIGITS)] += 1
        if not pairs and shapes[shape] > 2:
            continue
        both = f"{low} {shown[i + 1]}" if pairs and i + 1 < len(lines) else low
        for text, compiled_one in compiled:
            if compiled_one.literal not in both or len(where.get(text, ())) >= 3:
                continue
            if compiled_one.found(low) or (
                both is not low and _matches_only_together(compiled_one, both, shown[i + 1])
            ):
                where.setdefault(text, []).append(line)
    return where


def _matches_only_together(one: Pattern, both: str, following: str) -> bool:
    return one.found(both) and not one.found(following)
