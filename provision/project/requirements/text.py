"""A requirements file's bytes to logical lines, as pip does it ("Requirements File Format")."""

from __future__ import annotations

import codecs
import re
from typing import TYPE_CHECKING

from provision.errors import UsageError
from provision.system import references

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

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
            yield number, references.expand(bare, environ, f"{name} line {number}" if name else None)


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
