"""Find the messages of profiles/failures.yaml in a text, and the causes that its rules and its catalogue give them.

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
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import cast

from ..model import (
    CatalogueMessage,
    Confidence,
    Evidence,
    FailureMessage,
    FailureRule,
    Plan,
    Profiles,
    Request,
    Sign,
)
from ..model.values import Value
from ..system.kernels import how_they_run
from .context import Circumstances
from .facts import Facts
from .lines import Line, Raised, ShellCommand, read_commands, read_exceptions

_SLOTS = {"#": r"\d{1,12}", "{v}": r"\d{1,5}(?:\.\d{1,6}){0,4}", "{w}": r"[\w.+-]{1,80}"}
_MARK = re.compile(r"#|\{v\}|\{w\}|['\"`]")
_TOKENS = re.compile(r"#|\{v\}|\{w\}|['\"`]|[^#{'\"`]+|\{")
_STATUS = re.compile(r"(?:cudnn_status|cublas_status|cuda_error)_\w*[a-z0-9]|cudaerror[a-z]+")
_QUOTE = "['\"`\u2018\u2019\u201c\u201d\u00b4]"
_NO_DIGITS = str.maketrans("", "", "0123456789")
_SHORT = 1200  # lines of a log that is read as a person pasted it: messages may be broken over two lines
_WIDTH = 400  # characters of a line that are read as part of the whole text
_SHOWN = 3  # lines of one pattern
_LIKELY = 66  # weight from which a cause is likely if nothing else is said
# Groups of single words in nearly every log: conditions, but no evidence.
_PLAIN = ("any_failure", "sees_no_gpu_or_fails", "torch_words", "stream_executor_words", "xla_words")
_OPERATOR = re.compile(r"[=<>!~]")
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


# --- cases and candidates ----------------------------------------------------------------------


class Candidate(Value, kw_only=False):
    """A cause that a text allows, and its evidence. `weight` (1 to 100) orders candidates of one confidence.

    A weight of 0 rules the cause out: only a certain candidate may name it then.

    `title` replaces that of the cause. `facts` are those that only this candidate has: they fill slots of its title and
    fix, and its fix can require them.
    """

    cause: str
    weight: int
    confidence: Confidence
    evidence: tuple[Evidence, ...]
    title: str | None = None
    facts: Mapping[str, str] = field(default_factory=dict)


def candidate(
    cause: str,
    weight: int,
    evidence: Iterable[Evidence],
    title: str | None = None,
    *,
    confidence: Confidence | None = None,
    **facts: str | None,
) -> Candidate:
    """Return a candidate. Its weight says whether it is likely, unless `confidence` does. A fact of None is unknown."""
    sure = confidence or ("likely" if weight >= _LIKELY else "possible")
    known = {name: value for name, value in facts.items() if value is not None}
    return Candidate(cause, weight, sure, tuple(dict.fromkeys(evidence)), title, known)


def rule_out(*causes: str) -> list[Candidate]:
    """Return candidates that rule causes out, because a fact contradicts them."""
    return [candidate(cause, 0, ()) for cause in causes]


class Case(Value):
    """What the judges compare: the lines, messages and facts of the text, the tables, and the circumstances.

    `plans` are those that resolve made for the target of the text.
    """

    lines: Sequence[Line]
    facts: Facts
    profiles: Profiles
    circumstances: Circumstances
    plans: dict[Request, Plan] = field(default_factory=dict)

    @functools.cached_property
    def messages(self) -> Messages:
        return Messages(self.lines, self.profiles)

    @functools.cached_property
    def text(self) -> str:
        """The beginnings of the first lines, as one line."""
        return " ".join(line.text[:_WIDTH] for line in self.lines[:_SHORT])

    @functools.cached_property
    def exceptions(self) -> list[Raised]:
        return read_exceptions(self.lines)

    @functools.cached_property
    def commands(self) -> list[ShellCommand]:
        return read_commands(self.lines)

    def serves(self, kernels: Sequence[str], capability: str) -> bool:
        """Return whether a GPU runs any of the kernels."""
        return how_they_run(tuple(kernels), capability, self.profiles.tegra) is not None

    def find_driver_floor(self, cuda: str) -> str | None:
        """Return the oldest driver for a CUDA on the text's system."""
        windows = self.facts.holds("os=windows") or self.facts.holds("os=wsl")
        return self.profiles.find_driver_floor(cuda, windows=windows)

    def said(self, *names: str) -> tuple[Evidence, ...]:
        """Return the first lines of the first of these messages that the text has."""
        return next((found for name in names if (found := self.messages.find((f"@{name}",)))), ())

    def shows(self, condition: str) -> tuple[Evidence, ...]:
        """Return the lines of a condition: a message of the text, or a fact that is true."""
        if condition in self.messages:
            return self.said(condition)
        return self.facts.where(_OPERATOR.split(condition, 1)[0]) if self.facts.holds(condition) else ()


Judge = Callable[[Case], "list[Candidate]"]


def apply_rules(case: Case) -> list[Candidate]:
    """Return a candidate for every rule whose messages and conditions match."""
    found = []
    for rule in case.profiles.failures:
        shown = case.messages.find(rule.says)
        if not shown or not all(case.shows(w) for w in rule.wants) or any(case.shows(w) for w in rule.lacks):
            continue
        also = (case.shows(w)[0] for w in rule.wants if w not in _PLAIN)
        confidence = cast("Confidence", rule.confidence)  # one of three words: profiles/files.py
        found.append(
            candidate(
                rule.cause,
                int(rule.weight),
                (*shown, *also),
                rule.title,
                confidence=confidence,
                rule=rule.name,
                decides=rule.decides,
            )
        )
    return found


def apply_catalogue(case: Case, found: Sequence[Candidate]) -> list[Candidate]:
    """Return candidates for messages of the catalogue, if neither a rule nor a judge found one of their causes."""
    causes = {c.cause for c in found}
    return [
        # the first of several causes is the likeliest, an only cause is likely
        candidate(cause, 60 if len(row.causes) == 1 else 34 - 3 * i, shown,
                  confidence="likely" if len(row.causes) == 1 else "possible")
        for row in case.profiles.catalogue
        if not causes.intersection(row.causes) and not case.said(*row.lacks)
        if (shown := case.messages.find(row.says, row.code))
        for i, cause in enumerate(row.causes)
    ]  # fmt: skip
