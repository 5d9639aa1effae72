"""Rows of profiles/failures.yaml: causes of failures, messages of programs, and rules between them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class FailureCause:
    """A root cause of failures: its layer ("1" is the lowest, the driver), title and fix.

    `decides` is the evidence that would prove it, with the command that shows it. A cause with `about_gpu` is a
    failure to use a GPU, and never applies to a CPU environment. A cause with `of_jobs` depends on the jobs that run
    on a machine, and is no fault of the machine. `in_container` and `on_windows` replace `fix` there. In `title` and
    `fix`, {name} is a fact. A part in [[double brackets]] is omitted if its fact is unknown.
    """

    cause: str
    layer: str
    title: str
    fix: str
    decides: str
    about_gpu: bool = False
    in_container: str | None = None
    on_windows: str | None = None
    of_jobs: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class FailureMessage:
    """Patterns (`says`) of texts with the same meaning. One of them must match.

    `example` is one such line, and `source` the program or file that prints it.
    """

    name: str
    says: tuple[str, ...]
    example: str
    source: str


@dataclass(frozen=True, kw_only=True, slots=True)
class CatalogueMessage:
    """A message from the source code of a program.

    `says` are patterns for its forms. `code` is its number if the program prints one. `causes` are its possible
    causes, the likeliest first. `source` is the file that prints it. If a message in `lacks` is also in the text, it
    has another meaning.

    `releases` are the releases whose source has it, "A to B" with all between them, or the releases seen in public
    logs. They are "unknown" if no release was read. `absent` are the nearest releases without it. Without an `absent`
    release on a side, the range is open on that side.
    """

    name: str
    program: str
    says: tuple[str, ...]
    causes: tuple[str, ...]
    releases: str
    source: str
    code: str | None = None
    absent: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class FailureRule:
    """A rule from a text to a cause. Any of `says` must match (patterns, or "@name" of a message).

    All of `wants` and none of `lacks` must be true. They are names of messages, or facts ("torch==1.8.0",
    "os=windows"). `weight` ("1" to "100") orders causes that the same words allow. `confidence` is "certain" only if
    the words prove the cause. `title` and `fix` replace those of the cause.
    """

    name: str
    cause: str
    says: tuple[str, ...]
    example: str
    source: str
    confidence: str
    weight: str
    wants: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()
    title: str | None = None
    fix: str | None = None
