"""Decodes files that name their encoding: requirements files and Python sources.

Only encodings of texts are accepted. Python has others, such as punycode, that take minutes for a megabyte.
"""

from __future__ import annotations

import codecs
import re

from ..errors import UsageError

_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # before UTF-16, whose mark is its beginning
    (codecs.BOM_UTF16_BE, "utf-16-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
)
_DECLARED = re.compile(rb"[ \t\f]*#.{0,400}?coding[:=][ \t]*([-\w.]{1,40})")  # PEP 263, and pip
_CODECS = re.compile(
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
            if match := _DECLARED.match(line):
                encoding = match[1].decode("ascii", "replace").lower().replace("_", "-")
                encoding = re.sub(r"-(unix|dos|mac)$", "", encoding)  # line ends, in Emacs
                break
    if not _CODECS.fullmatch(encoding):
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
