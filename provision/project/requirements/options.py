"""The options that a line of a requirements file may carry, read as pip reads them."""

from __future__ import annotations

import functools
import optparse
import re
import shlex
from typing import TYPE_CHECKING, Any, NoReturn

from provision.errors import UsageError

from ..words import LONGEST, shown

if TYPE_CHECKING:
    from optparse import Values

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


def of_a_line(options: Values) -> bool:
    """Whether there is an option that means the whole file, which pip drops after a requirement."""
    given = (options.requirements, options.constraints, options.index_url, options.extra_index_urls)
    return any(given) or bool(options.find_links or options.no_index or options.pre)


def _not_followed(option: Any, name: str, value: str, parser: Any) -> None:
    del option
    parser.values.not_followed = [*parser.values.not_followed, f"{name} {value}"]


def split(line: str, origin: str) -> tuple[str, Values]:
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
