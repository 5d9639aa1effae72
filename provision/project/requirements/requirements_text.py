"""Split a requirements file into logical lines and options, as pip's "Requirements File Format" documents."""

from __future__ import annotations

import functools
import optparse
import re
import shlex
from collections.abc import Iterator
from optparse import Values
from pathlib import Path
from typing import Any, NoReturn

from provision.errors import UsageError
from provision.system import trust

from ..quote_for_messages_and_parse_requirement import LONGEST, quote_text
from ..tree import find_root, refuse_outside

MAX_BYTES = 8 << 20
_COMMENT = re.compile(r"(^|\s)#.*$")


def read_bytes(path: Path, name: str, included: str | None = None) -> bytes:
    """Return a file's bytes. Raises UsageError, which names the including line if there is one."""
    by = f", included by {included}" if included else ""
    refuse_outside(path, [find_root(path.absolute().parent)], name, "name the file that the link leads to")
    try:
        if path.exists() and not path.is_file():  # reading a pipe may hang, and a device may never end
            raise UsageError(f"{name} is not a regular file{by}", hint="name a requirements file")
        return trust.read_project(path, MAX_BYTES)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(f"{name} cannot be read: {reason}{by}", hint="check the path") from error


def split_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield lines with their numbers: joined at a final backslash, without comments. Variables stay."""
    for number, line in _join_lines(text):
        bare = _COMMENT.sub("", line).strip()
        if bare:
            yield number, bare


def _join_lines(text: str) -> Iterator[tuple[int, str]]:
    """Join lines that end with a backslash with the next. A comment ends a joined line."""
    pieces: list[str] = []
    first = 0
    for number, line in enumerate(text.splitlines(), start=1):
        comment = line.lstrip().startswith("#")
        if line.endswith("\\") and not comment:
            first = first if pieces else number
            pieces.append(line.strip("\\"))
            continue
        pieces.append(" " + line if comment else line)
        yield (first if len(pieces) > 1 else number), "".join(pieces)
        pieces = []
    if pieces:
        yield first, "".join(pieces)


# Options of a whole line that gpuenv reads: requirements, constraints, editables, package sources and --pre.
# All others configure pip. uv and the plan decide those matters here.
_LISTS = {
    ("-r", "--requirement"): "requirements",
    ("-c", "--constraint"): "constraints",
    ("-e", "--editable"): "editables",
    ("--extra-index-url",): "extra_index_urls",
    ("-f", "--find-links"): "find_links",
    ("--trusted-host",): "not_followed",
    ("--no-binary",): "not_followed",
    ("--only-binary",): "not_followed",
    ("--use-feature",): "ignored",
    ("--hash",): "hashes",
    ("--config-settings", "--config-setting", "-C"): "not_followed",
    ("--global-option",): "not_followed",
    ("--install-option",): "not_followed",
}
_LONGEST_LINE = 100_000
"""The most characters in a line with its hashes. A package with 300 wheels has about 30,000."""
_FLAGS = {
    ("--no-index",): "no_index",
    ("--pre",): "pre",
    ("--prefer-binary",): "prefer_binary",
    ("--require-hashes",): "require_hashes",
}


class _Parser(optparse.OptionParser):
    """The option parser that pip uses, except that a mistake raises ValueError instead of ending the program."""

    def error(self, msg: str) -> NoReturn:
        raise ValueError(msg)

    def exit(self, status: int = 0, msg: str | None = None) -> NoReturn:
        raise ValueError(msg or f"the options of a requirements file cannot be read (exit code {status})")


def _build_parser() -> _Parser:
    parser = _Parser(add_help_option=False, usage=optparse.SUPPRESS_USAGE)
    for names, field in _LISTS.items():
        if field == "not_followed":
            parser.add_option(
                *names, action="callback", type="str", callback=_record_ignored, default=[], dest=field
            )
        else:
            parser.add_option(*names, action="append", dest=field, default=[])
    parser.add_option("-i", "--index-url", "--pypi-url", action="store", dest="index_url", default=None)
    for names, field in _FLAGS.items():
        parser.add_option(*names, action="store_true", dest=field, default=False)
    return parser


@functools.cache
def _no_options() -> Values:
    """Return the options of a line without options."""
    return _build_parser().get_default_values()


def has_file_options(options: Values) -> bool:
    """Return whether a line has an option of the whole file. pip ignores those behind a requirement."""
    lists = (options.requirements, options.constraints, options.index_url, options.extra_index_urls)
    return any(lists) or bool(options.find_links or options.no_index or options.pre)


def _record_ignored(option: Any, name: str, value: str, parser: Any) -> None:
    del option
    parser.values.not_followed = [*parser.values.not_followed, f"{name} {value}"]


def split_options(line: str, origin: str) -> tuple[str, Values]:
    """Split a logical line into its requirement ("" if there is none) and its options. Raises UsageError."""
    if len(line) > _LONGEST_LINE or any(len(word) > LONGEST for word in line.split()):
        # shlex copies a word once for each of its characters
        raise UsageError(
            f"{origin}: {quote_text(line)!r}: {len(line)} characters in one line",
            hint="split it into several lines",
        )
    words = line.split(" ")
    cut = next((i for i, word in enumerate(words) if word.startswith("-")), len(words))
    requirement, rest = " ".join(words[:cut]).strip(), " ".join(words[cut:])
    if not rest:
        return requirement, _no_options()
    # pip ignores what follows -e PATH. The author meant a marker there.
    marker = re.search(r"\s;.*", rest) if re.match(r"-e|--e", rest) else None
    try:
        options, surplus = _build_parser().parse_args(shlex.split(rest[: marker.start()] if marker else rest))
    except ValueError as error:
        raise UsageError(
            f"{origin}: {quote_text(line)!r}: {quote_text(str(error))}",
            hint="use the requirements file format that pip documents",
        ) from error
    if surplus:
        raise UsageError(
            f"{origin}: {quote_text(line)!r}: unexpected {quote_text(surplus[0])!r} after the options",
            hint="write it on a line of its own",
        )
    if marker and options.editables:
        options.editables[-1] += marker[0]
    return requirement, options
