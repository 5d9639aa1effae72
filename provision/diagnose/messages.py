"""Find the messages of profiles/failures.yaml in a text.

A pattern is the words that a program prints. `...` stands for anything between them, `#` for a number, `{v}`
for a version ("12.4"), and `{w}` for a word. Letters match in any case, a space any blanks, a quote any quote.
`^` in front matches the beginning of a line, a blank in front or at the end that of a word.

The name of a CUDA, cuBLAS or cuDNN status is matched whole, because one is often the beginning of another.
Pieces are searched from left to right with bounded repetition, so each line takes the time of a few searches.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Iterable, Sequence

from ..model import CatalogueMessage, Evidence, FailureMessage, FailureRule, Profiles, Sign
from .lines import Line, read_exceptions

_SLOTS = {"#": r"\d{1,12}", "{v}": r"\d{1,5}(?:\.\d{1,6}){0,4}", "{w}": r"[\w.+-]{1,80}"}
_MARK = re.compile(r"#|\{v\}|\{w\}|['\"`]")
_TOKENS = re.compile(r"#|\{v\}|\{w\}|['\"`]|[^#{'\"`]+|\{")
_STATUS = re.compile(r"(?:cudnn_status|cublas_status|cuda_error)_\w*[a-z0-9]|cudaerror[a-z]+")
_QUOTE = "['\"`\u2018\u2019\u201c\u201d\u00b4]"
_NO_DIGITS = str.maketrans("", "", "0123456789")
_SHORT = 1200  # lines of a log that is read as a person pasted it: messages may be broken over two lines
_SHOWN = 3  # lines of one pattern
_NUMBERED = re.compile(
    r"\b(?:lib)?cu(?:da|Init|dart)\w{0,40}(?:\(\w{0,20}\))?(?:[\w ,:'\"./-]{0,40}?"
    r"(?:error|failure|failed|returned|code|status)\b[ :=#(]{1,4}|(?<=\)) ?(?:=|->|:) ?)"
    r"(\d{1,3})\b(?! ?(?:mi?b|gi?b|%|\.\d))",
    re.IGNORECASE,
)
"""A CUDA error by its number, in the wording of any program: "cudaGetDeviceCount returned 35"."""


# --- patterns --------------------------------------------------------------------------------


class Pattern:
    """A compiled pattern. Every matching line contains `literal`, in lower case."""

    def __init__(self, text: str) -> None:
        self._text = text.lower()
        plain = _MARK.split(self._text.removeprefix("^").replace("...", "#"))
        self.literal = max((run.strip() for run in plain), key=len)
        if len(self.literal) < 3 or text.count("...") > 3:
            raise ValueError(
                f"{text!r}: a pattern must contain a word of three or more letters, and '...' at most three times"
            )

    @functools.cached_property
    def _pieces(self) -> list[re.Pattern[str]]:
        text = self._text
        sources = [_get_source(p) for piece in text.removeprefix("^").split("...") if (p := piece.strip(" "))]
        sources[0] = (r"\A" if text.startswith("^") else r"(?<!\w)" * text.startswith(" ")) + sources[0]
        sources[-1] += r"(?!\w)" * text.endswith(" ")
        return [re.compile(source) for source in sources]

    def found(self, line: str) -> bool:
        """Return whether a line (from `normalize`) matches."""
        position = 0
        for piece in self._pieces:
            match = piece.search(line, position)
            if match is None:
                return False
            position = match.end()
        return True


def _get_source(piece: str) -> str:
    if _STATUS.fullmatch(piece):
        return re.escape(piece) + r"(?!\w)"
    return "".join(
        _SLOTS.get(part) or (_QUOTE if part in "'\"`" else re.escape(part)) for part in _TOKENS.findall(piece)
    )


@functools.lru_cache(maxsize=4096)
def compile_pattern(text: str) -> Pattern:
    """Return the compiled pattern. Raises ValueError for one without a word to search for."""
    return Pattern(text)


def normalize(text: str) -> str:
    """Return a line in lower case with single spaces."""
    return " ".join(text.lower().split())


def drop_messages(lines: Sequence[Line], profiles: Profiles, name: str) -> list[Line]:
    """Return the lines without those of the message of that name."""
    dropped = [compile_pattern(p) for m in profiles.messages if m.name == name for p in m.says]

    def says(low: str) -> bool:
        return any(one.literal in low and one.found(low) for one in dropped)

    return [line for line in lines if not says(normalize(line.text))]


class Messages:
    """The patterns of the tables that a text contains, with their lines."""

    def __init__(self, lines: Sequence[Line], profiles: Profiles) -> None:
        self._groups = {m.name: m.says for m in profiles.messages}
        rows = (*list_rows(profiles), *profiles.programs)
        wanted = sorted({p for row in rows for p in row.says if not p.startswith("@")})
        self._where = _search_lines(lines, wanted)
        codes = {row.code for row in profiles.catalogue if row.code}
        self._numbered: dict[str | None, list[Line]] = {}
        for line in lines:
            for code in codes.intersection(_NUMBERED.findall(line.text)):
                self._numbered.setdefault(code, []).append(line)
        names = {row.name.lower(): row.code for row in profiles.catalogue}
        # a line with an error's number has the patterns that are its name
        for text in wanted if self._numbered else ():
            if numbered := self._numbered.get(names.get(text.lower())):
                self._where[text] = [*self._where.get(text, ()), *numbered[:_SHOWN]]

    def __contains__(self, name: str) -> bool:
        return name in self._groups

    def find(self, says: Iterable[str], code: str | None = None) -> tuple[Evidence, ...]:
        """Return the first lines with any of the patterns or messages ("@name"), otherwise those with the number."""
        found: dict[tuple[str, int], Line] = {}
        for text in says:
            for one in self._groups[text[1:]] if text.startswith("@") else (text,):
                for line in self._where.get(one, ()):
                    found.setdefault((line.source, line.number), line)
        shown = sorted(found.values(), key=lambda line: line.number) or self._numbered.get(code, [])
        return tuple(line.evidence for line in shown[:_SHOWN])


def list_rows(profiles: Profiles) -> list[FailureMessage | FailureRule | CatalogueMessage | Sign]:
    """Return the rows with patterns."""
    return [*profiles.messages, *profiles.failures, *profiles.catalogue, *profiles.signs]


def _search_lines(lines: Sequence[Line], texts: Sequence[str]) -> dict[str, list[Line]]:
    """Return the first lines of each pattern. Lines that differ in digits only count as one.

    In a short text, a message may continue on the next line.
    """
    where: dict[str, list[Line]] = {}
    shown = [normalize(line.text) for line in lines]
    whole = " ".join(shown)
    compiled = [(text, one) for text in texts if (one := compile_pattern(text)).literal in whole]
    pairs = len(lines) <= _SHORT
    shapes: Counter[str] = Counter()
    for i, line in enumerate(lines):
        low = shown[i]
        shapes[shape := low.translate(_NO_DIGITS)] += 1
        if not pairs and shapes[shape] > 2:
            continue
        following = shown[i + 1] if pairs and i + 1 < len(lines) else None
        both = low if following is None else f"{low} {following}"
        for text, one in compiled:
            if one.literal not in both or len(where.get(text, ())) >= _SHOWN:
                continue
            if one.found(low) or (following is not None and one.found(both) and not one.found(following)):
                where.setdefault(text, []).append(line)
    return where


# --- warnings on optional parts ---------------------------------------------------------------

_LINKS = re.compile(
    r"undefined symbol|cannot open shared|torchvision|torchaudio|nms|custom C\+\+ ops|DLL|\.so\b",
    re.IGNORECASE,
)
_PROGRESS = re.compile(r"\b(?:epoch|loss|accuracy|it/s|step)\b", re.IGNORECASE)


def drop_optional_parts(lines: list[Line], profiles: Profiles) -> list[Line]:
    """Drop warnings on optional parts of a package, if the program went on and failed for another reason.

    torchvision warns if it cannot load its image reader, and torchaudio if FFmpeg is absent. Most programs use
    neither. The warning counts only if nothing else ended the program: no unrelated exception, and no progress.
    """
    kept = drop_messages(lines, profiles, "optional_part_failed")
    dropped = set(lines).difference(kept)
    if not dropped:
        return lines
    first = next(line for line in lines if line in dropped)
    later = [line for line in kept if line.source == first.source and line.number > first.number]
    errors = read_exceptions(kept)
    if errors:
        last = errors[-1]
        loading = last.kind in ("ImportError", "ModuleNotFoundError", "OSError")
        went_on = not loading and not _LINKS.search(last.message) and last.line in later
    else:
        went_on = any(_PROGRESS.search(line.text) for line in later)
    return kept if went_on else lines
