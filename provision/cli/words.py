"""Reorder the words of a command line before typer reads them.

Options may come before a command. `run` takes the words of another program. Its forms are `run [OPTION...]
CMD [ARG...]`, `run [OPTION...] ENV CMD [ARG...]` with the path of an environment, and `run [OPTION...] [ENV]
[OPTION...] -- CMD [ARG...]`.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from ..model import declare
from .verbs import COMMANDS, GROUPS, load_command

_ANYWHERE = ("--json", "-q", "--quiet", "-v", "--verbose")
"""Options of every command that may come before its name."""
_HELP = ("-h", "--help")


class CommandWords(NamedTuple):
    """gpuenv's own words, the command of `run` or None, and a note on how they were read."""

    ours: list[str]
    command: list[str] | None
    note: str | None = None


def read_words(argv: Sequence[str]) -> CommandWords:
    """Read a command line. The disk shows whether a word is the path of an environment."""
    argv = _as_options(_move_command_first(list(argv)))
    if argv[:1] == ["create"]:
        argv = [_as_path(word) for word in argv]
    if argv[:1] != ["run"]:
        return CommandWords(argv, None)
    flags = _read_run_flags()
    at = 1
    while at < len(argv) and argv[at] != "--" and argv[at].startswith("-"):
        at = _skip_option(argv, at, flags) or at + 1  # typer reports an unknown one
    dashes = _find_dashes(argv, at, flags)
    if dashes is not None:
        return CommandWords(argv[:dashes], argv[dashes + 1 :])
    if at >= len(argv):
        return CommandWords(argv, None)
    from ..config.env import is_environment

    if not is_environment(argv[at]):
        return CommandWords(argv[:at], argv[at:])
    if at + 1 == len(argv):
        return CommandWords(argv, None)
    env, program = shlex.quote(argv[at]), shlex.quote(argv[at + 1])
    note = f"{argv[at]} is an environment. {argv[at + 1]} runs in it. To run it as a program instead: gpuenv run {env} -- {program}"
    return CommandWords(argv[: at + 1], argv[at + 1 :], note)


def find_python_options(words: CommandWords) -> list[str]:
    """Return the words of `run` starting at an option of Python (-c, -m), or none."""
    at = next((i for i, word in enumerate(words.ours) if word in ("-c", "-m")), None)
    return [] if at is None else [*words.ours[at:], *(words.command or [])]


def _as_path(word: str) -> str:
    """Return `./torch` as an absolute path. Path would shorten it to `torch`, which is a framework too."""
    from ..config.options import find_framework

    return str(Path.cwd() / word) if word.startswith("./") and find_framework(word[2:]) else word


def _read_run_flags() -> dict[str, int]:
    """Return the options that the dataclasses of `run` declare, each with its number of words: 2 with a value."""
    words = dict.fromkeys(_HELP, 1)
    for kind in (load_command("run")[0], COMMANDS["run"].output):
        for _, field, how in declare.iterate_options(kind):
            words |= dict.fromkeys(how.flags, 1 if isinstance(field.default, bool) else 2)
    return words


def _skip_option(argv: Sequence[str], at: int, flags: Mapping[str, int]) -> int | None:
    """Return the index after the option at an index, or None if it is not an option of `run`."""
    name, equals, _ = argv[at].partition("=")
    return at + (1 if equals else flags[name]) if name in flags else None


def _as_options(argv: list[str]) -> list[str]:
    """Return `help CMD` as `CMD --help`."""
    if argv[:1] == ["help"]:
        return [*(word for word in argv[1:] if not word.startswith("-")), "--help"]
    return argv


def _move_command_first(argv: list[str]) -> list[str]:
    """Return the words with options before a command moved after its name."""
    first = next((i for i, word in enumerate(argv) if word not in _ANYWHERE), len(argv))
    before, words = argv[:first], argv[first:]
    if not words or words[0].startswith("-"):
        return words or argv
    name = 2 if words[0] in GROUPS and len(words) > 1 and not words[1].startswith("-") else 1
    return [*words[:name], *before, *words[name:]]


def _find_dashes(argv: Sequence[str], at: int, flags: Mapping[str, int]) -> int | None:
    """Return the index of the `--` that ends gpuenv's own words, or None.

    Only options of `run` may come between the environment and it.
    """
    behind: int | None = at if argv[at : at + 1] == ["--"] else at + 1
    while behind is not None and behind < len(argv):
        if argv[behind] == "--":
            return behind
        behind = _skip_option(argv, behind, flags)
    return None
