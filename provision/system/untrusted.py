"""Reads files of strangers, and turns the names that they write into paths.

Only regular files are read, up to a size limit: a pipe in place of a RECORD would block its reader forever, and a
device may be endless. Files that name their encoding (requirements files, Python sources) may name only encodings of
texts: Python has others, such as punycode, that take minutes for a megabyte.

Names from locks, index pages, addresses, archives, records and manifests become paths only here. A name that leads to
another folder, plain or percent-encoded, is rejected, and one that a file system cannot store or treats specially.
"""

from __future__ import annotations

import codecs
import errno
import os
import re
import stat
from pathlib import Path, PurePosixPath
from typing import IO
from urllib.parse import unquote, urlsplit

from ..errors import LockError, UsageError
from .redaction import clean_line

MOST = 64 << 20
"""The most bytes. The largest RECORDs of frameworks have two million, conda-meta files ten."""


_CHUNK = 1 << 20
_CONFLICT = rb"(?m)^(?:<{7}|>{7}) "
_HANDED_ON = r"/dev/stdin|(/dev|/proc/self)/fd/\d+"


def read_bytes(path: Path, most: int = MOST) -> bytes:
    """Return the bytes of a regular file, or of a descriptor of the user (`--target <(ssh host ...)`).

    Raises OSError, also for other file types and files above the limit. `trust` reads files that decide something.
    """
    with open_regular(path) as file:
        return read_open(file, path, most)


def is_descriptor(path: Path) -> bool:
    """Return whether a path is a descriptor that the user opened for gpuenv."""
    return re.fullmatch(_HANDED_ON, str(path)) is not None


def open_regular(path: Path) -> IO[bytes]:
    """Open a regular file, or a descriptor of the user. Raises OSError, also for other file types."""
    if is_descriptor(path):
        return path.open("rb")
    # Without O_NONBLOCK, opening a pipe would wait for a writer.
    number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        raise OSError(errno.EINVAL, "is not a regular file", str(path))
    return os.fdopen(number, "rb")


def read_open(file: IO[bytes], path: Path, most: int) -> bytes:
    """Return the bytes of an open file. Raises OSError above the limit."""
    data = bytearray()  # `file.read(most + 1)` would allocate all of it, which may exceed a memory limit
    while chunk := file.read(_CHUNK):
        data += chunk
        if len(data) > most:
            raise OSError(errno.EFBIG, f"is larger than {most >> 20} MiB", str(path))
    return bytes(data)


def refuse_endless(path: Path) -> None:
    """Raise OSError for an endless device. Pipes and terminals have an end."""
    if stat.S_ISCHR(path.stat().st_mode) and not (
        is_descriptor(path) or str(path).startswith(("/dev/tty", "/dev/null"))
    ):
        raise OSError(errno.EINVAL, "is a device", str(path))


def find_conflict(data: bytes) -> int | None:
    """Return the line of the first merge conflict marker of git, or None."""
    marker = re.search(_CONFLICT, data)
    return data.count(b"\n", 0, marker.start()) + 1 if marker else None


def read_text(path: Path, most: int = MOST) -> str:
    """Return the text of a file. Invalid bytes become replacement characters."""
    return read_bytes(path, most).decode("utf-8", "replace")


# --- texts that name their encoding ---------------------------------------------------------------

_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # before UTF-16, whose mark is its beginning
    (codecs.BOM_UTF16_BE, "utf-16-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
)
_DECLARED = rb"[ \t\f]*#.{0,400}?coding[:=][ \t]*([-\w.]{1,40})"  # PEP 263, and pip
_CODECS = (
    r"utf-?8(-sig)?|utf-?(16|32)(-?[lb]e)?|(us-)?ascii|latin-?\d{1,2}|iso-?8859-?\d{1,2}|(cp|windows-)125\d|"
    r"cp(437|850|852|855|858|866|874|932|936|949|950)|shift-?jis(-?(2004|x0213))?|sjis|euc-?(jp|kr|cn|jis-2004|jisx0213)|"
    r"gb2312|gbk|gb18030|big5(-?hkscs)?|koi8-?[rtu]|mac-?(cyrillic|greek|iceland|latin2|roman|turkish)|tis-?620|johab"
)


def decode(data: bytes, name: str) -> str:
    """Return the text of a file: by its byte order mark, a coding line among its first two, or as UTF-8.

    Raises UsageError with the file and the encoding.
    """
    encoding = "utf-8"
    for mark, its in _MARKS:
        if data.startswith(mark):
            data, encoding = data[len(mark) :], its
            break
    else:
        for line in data.split(b"\n", 2)[:2]:
            if match := re.match(_DECLARED, line):
                encoding = match[1].decode("ascii", "replace").lower().replace("_", "-")
                encoding = re.sub(r"-(unix|dos|mac)$", "", encoding)  # line ends, in Emacs
                break
    if not re.fullmatch(_CODECS, encoding):
        raise UsageError(
            f"{name} declares the encoding {encoding}, which is not supported", hint="save it as UTF-8"
        )
    try:
        text = data.decode(encoding)
    except (LookupError, ValueError) as error:
        raise UsageError(f"{name} is not {encoding} text: {error}", hint="save it as UTF-8") from error
    if "\0" in text:
        raise UsageError(f"{name} contains NUL bytes: it is not {encoding} text", hint="save it as UTF-8")
    return text


# --- names -----------------------------------------------------------------------------------------

MOST_NAME = 240
"""The most bytes of a name. File systems allow 255, and the draft of a file needs up to 12 more."""
_DEVICES = r"(?i)(con|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³])(\..*)?"
"""Device names on Windows, with any suffix."""
_SHOWN = 80


class UnsafeNameError(LockError, ValueError):
    """An untrusted name that cannot be a file name."""


def check_file_name(text: str, *, hidden: bool = False) -> str:
    """Return a name that is one path component. Raises UnsafeNameError.

    Names with a leading dot are for drafts and configuration, and require `hidden`.
    """
    if problem := _find_problem(text, hidden=hidden):
        raise UnsafeNameError(
            f"{clean_line(text, _SHOWN)!r} cannot be a file name: {problem}",
            hint="use another index or lock. This name is damaged, or is an attempt to write to another folder",
        )
    return text


def _find_problem(text: str, *, hidden: bool) -> str | None:
    """Return why a text cannot be a file name, or None. Every level of percent-encoding is checked."""
    while not (problem := _find_plain_problem(text, hidden=hidden)) and (decoded := unquote(text)) != text:
        text = decoded
    return problem


def _find_plain_problem(text: str, *, hidden: bool) -> str | None:
    if not text:
        return "it is empty"
    if text in (".", ".."):
        return "it names a folder"
    if "/" in text or "\\" in text:
        return "it has a separator and leads to another folder"
    if not text.isprintable():
        return "it has an unprintable character"
    if ":" in text or text[-1] in ". " or re.fullmatch(_DEVICES, text):
        return "it is a device name on Windows"
    if text[0] == "." and not hidden:
        return "it starts with a dot"
    if len(text.encode("utf-8", "surrogatepass")) > MOST_NAME:
        return f"it is longer than {MOST_NAME} bytes"
    return None


def file_name_of_url(url: str) -> str:
    """Return the decoded file name at the end of an address. Raises UnsafeNameError, ValueError."""
    return last_segments(url, 1)[0]


def path_of_url(url: str) -> Path:
    """Return the path in the address of a file or a folder of this machine. Raises ValueError."""
    return Path(unquote(urlsplit(url).path))


def last_segments(url: str, count: int, *, hidden: bool = False) -> list[str]:
    """Return up to `count` decoded segments at the end of an address. Raises UnsafeNameError, ValueError.

    `hidden` allows folders with a leading dot.
    """
    *folders, file = urlsplit(url).path.split("/")
    kept = [part for part in folders if part][-(count - 1) :] if count > 1 else []
    return [*(check_file_name(unquote(p), hidden=hidden) for p in kept), check_file_name(unquote(file))]


def check_relative(text: str) -> PurePosixPath:
    """Return a path inside a folder, written with "/". Raises UnsafeNameError."""
    parts = text.split("/")
    for part in parts:
        if problem := _find_problem(part, hidden=True):
            raise UnsafeNameError(
                f"{clean_line(text, _SHOWN)!r} is not a path inside the folder: {clean_line(part, _SHOWN)!r}: {problem}",
                hint="create or copy it again. This path is damaged, or is an attempt to reach another folder",
            )
    return PurePosixPath(*parts)


def join(folder: Path, text: str) -> Path:
    """Return the path of a file inside a folder. Raises UnsafeNameError."""
    return folder.joinpath(check_relative(text))
