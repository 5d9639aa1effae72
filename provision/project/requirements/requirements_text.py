"""A requirements file's bytes to logical lines, as pip does it ("Requirements File Format"), and the options that a
line may carry, read as pip reads them."""

from __future__ import annotations

import codecs
import functools
import optparse
import re
import shlex
from collections.abc import Iterator, Mapping
from optparse import Values
from pathlib import Path
from typing import Any, NoReturn

from provision.errors import UsageError
from provision.system import variable_references

from ..quoted_text import LONGEST, shown

MAX_BYTES = 8 << 20
_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF16, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
)
_CODING = re.compile(rb"coding[:=]\s*([-\w.]+)")
_COMMENT = re.compile(r"(^|\s)#.*$")


def read_bytes(path: Path, name: str, included: str | None = None) -> bytes:
    """A file's bytes. Raises UsageError naming the line that includes it, where one does."""
    by = f", included by {included}" if included else ""
    try:
        if path.exists() and not path.is_file():  # a pipe would hang, a device never end
            raise UsageError(f"{name} is not a regular file{by}", hint="name a requirements file")
        with path.open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(f"{name} cannot be read: {reason}{by}", hint="check the path") from error
    if len(data) > MAX_BYTES:
        raise UsageError(f"{name} is larger than {MAX_BYTES} bytes{by}", hint="name a requirements file")
    return data


def decoded(data: bytes, name: str) -> str:
    """The text: by its byte order mark, else by a coding line among the first two, else UTF-8.

    Raises UsageError.
    """
    encoding = "utf-8"
    for mark, its in _BOMS:
        if data.startswith(mark):
            data, encoding = data[len(mark) :], its
            break
    else:
        for line in data.split(b"\n")[:2]:
            if line[:1] == b"#" and (found := _CODING.search(line)):
                encoding = found[1].decode("ascii", "replace")
                break
    try:
        text = data.decode(encoding)
    except (UnicodeDecodeError, LookupError, ValueError) as error:
        raise UsageError(f"{name} is no text in {encoding}: {error}", hint="save it as UTF-8") from error
    if "\0" in text:
        raise UsageError(f"{name} holds NUL bytes: it is no text in {encoding}", hint="save it as UTF-8")
    return text


def logical_lines(text: str, environ: Mapping[str, str], name: str | None) -> Iterator[tuple[int, str]]:
    """Return lines with their numbers: joined at a final backslash, without comments, ${VARIABLES} replaced.

    Raises MissingVariableError for a variable that is not set. Where `name` is None, it stays as written.
    """
    for number, line in _joined(text):
        bare = _COMMENT.sub("", line).strip()
        if bare:
            yield number, variable_references.expand(bare, environ, f"{name} line {number}" if name else None)


def _joined(text: str) -> Iterator[tuple[int, str]]:
    """Lines joined with the next where they end with a backslash; a comment ends what is joined."""
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


# Options of a whole line. Those that say something here: requirements, constraints, editables, where
# packages come from, --pre. The others choose how pip works; uv and the plan decide that here.
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
"""Characters of a line with its hashes: one of a package with 300 wheels has some 30,000."""
_FLAGS = {
    ("--no-index",): "no_index",
    ("--pre",): "pre",
    ("--prefer-binary",): "prefer_binary",
    ("--require-hashes",): "require_hashes",
}


class _Parser(optparse.OptionParser):
    """optparse, as pip uses it, except that a mistake is raised instead of ending the program."""

    def error(self, msg: str) -> NoReturn:
        raise ValueError(msg)

    def exit(self, status: int = 0, msg: str | None = None) -> NoReturn:
        raise ValueError(msg or f"exit {status}")


def _parser() -> _Parser:
    parser = _Parser(add_help_option=False, usage=optparse.SUPPRESS_USAGE)
    for names, field in _LISTS.items():
        if field == "not_followed":
            parser.add_option(
                *names, action="callback", type="str", callback=_not_followed, default=[], dest=field
            )
        else:
            parser.add_option(*names, action="append", dest=field, default=[])
    parser.add_option("-i", "--index-url", "--pypi-url", action="store", dest="index_url", default=None)
    for names, field in _FLAGS.items():
        parser.add_option(*names, action="store_true", dest=field, default=False)
    return parser


@functools.cache
def _nothing() -> Values:
    """Return the options of a line without any."""
    return _parser().get_default_values()


def is_of_a_line(options: Values) -> bool:
    """Whether there is an option that means the whole file, which pip drops after a requirement."""
    given = (options.requirements, options.constraints, options.index_url, options.extra_index_urls)
    return any(given) or bool(options.find_links or options.no_index or options.pre)


def _not_followed(option: Any, name: str, value: str, parser: Any) -> None:
    del option
    parser.values.not_followed = [*parser.values.not_followed, f"{name} {value}"]


def split_options(line: str, origin: str) -> tuple[str, Values]:
    """A logical line as its requirement ("" where it has none) and its options. Raises UsageError."""
    if len(line) > _LONGEST_LINE or any(len(word) > LONGEST for word in line.split()):
        # shlex copies a word for each of its characters
        raise UsageError(
            f"{origin}: {shown(line)!r}: {len(line)} characters in one line",
            hint="Write it in several lines.",
        )
    words = line.split(" ")
    cut = next((i for i, word in enumerate(words) if word.startswith("-")), len(words))
    requirement, rest = " ".join(words[:cut]).strip(), " ".join(words[cut:])
    if not rest:
        return requirement, _nothing()
    # pip drops what follows -e PATH; a marker there is what the author meant
    marker = re.search(r"\s;.*", rest) if re.match(r"-e|--e", rest) else None
    try:
        options, surplus = _parser().parse_args(shlex.split(rest[: marker.start()] if marker else rest))
    except ValueError as error:
        raise UsageError(
            f"{origin}: {shown(line)!r}: {shown(str(error))}",
            hint="a requirements file has the form that pip documents",
        ) from error
    if surplus:
        raise UsageError(
            f"{origin}: {shown(line)!r}: {shown(surplus[0])!r} follows the options",
            hint="write it in a line of its own",
        )
    if marker and options.editables:
        options.editables[-1] += marker[0]
    return requirement, options
