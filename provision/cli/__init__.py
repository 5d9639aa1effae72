"""Run a command line: put its words into order, run typer, handle signals, and show every failure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import typer

from .. import __version__, show
from ..errors import GpuenvError, UsageError
from ..model import declare, name_few
from ..system import process, redaction, trust
from . import exit_codes, system_errors
from .typer_app import app
from .verbs import COMMANDS, GROUPS, OF_OTHER_TOOLS, SEVERAL_TARGETS, find_commands_with, load_command

# The errors of typer, and of the click inside it, for a wrong command line.
_WRONG_USAGE: type[Exception] = typer.BadParameter.__mro__[1]


def _is_on(environ: Mapping[str, str], variable: str) -> bool:
    """Return whether a variable sets an option without a value. The words are those of typer."""
    return environ.get(variable, "").strip().lower() in ("1", "true", "t", "yes", "y", "on")


def _find_command_name(argv: list[str]) -> str:
    """Return the name of the command in a command line."""
    return next((a for a in argv if not a.startswith("-")), "")


def run(argv: Sequence[str]) -> int:
    """Run a command line and return its exit code. Every failure is shown here."""
    redaction.hide_credentials()
    environ = process.environ()
    screen = show.Screen(json=_is_on(environ, "GPUENV_JSON"), environ=environ)
    try:
        ours, command, note = words = read_words(argv)
        screen.json = screen.json or "--json" in ours
        process.handle_signals()
        if _find_command_name(ours) != "run":  # the user's program keeps its processes and its umask
            process.adopt_orphans()
            trust.narrow_umask()
        if process.has_borrowed_rights():
            refused = UsageError("gpuenv refuses to run with another user's rights (setuid)")
            return _show_error(screen, refused)
        note_on_home = trust.choose_home(cache="--cache-dir" not in ours) if command is None else None
        if "_GPUENV_COMPLETE" in environ:
            from ..actions import completion  # few runs complete words

            if (versions := completion.version_in_bash(environ)) is not None:
                screen.line("\n".join(versions))
                return 0
        elif note_on_home:
            screen.say(f"note: {note_on_home}")
        if note and not {"-q", "--quiet"} & {*ours} and not _is_on(environ, "GPUENV_QUIET"):
            screen.say(f"note: {note}")
        try:
            _refuse_several_targets(ours)
            code = typer.main.get_command(app).main(
                ours, prog_name="gpuenv", standalone_mode=False, obj=command
            )
        except GpuenvError as error:
            return _explain_error(screen, error, ours)
        except _WRONG_USAGE as error:
            if type(error).__name__ == "NoArgsIsHelpError" and not screen.json:
                screen.say(str(error), always=True)  # no arguments: show the overview
                return exit_codes.USAGE
            return _show_error(screen, _as_usage_error(error, words))
        except (KeyboardInterrupt, typer.Abort):
            return _show_interrupt(screen, exit_codes.INTERRUPTED, "interrupted")
        except SystemExit as error:
            screen.stop_activity()
            if error.code in (process.TERMINATED, process.HUNG_UP) and screen.json:
                _show_interrupt(screen, int(error.code), "terminated")
            raise
    except Exception as error:  # noqa: BLE001  # an unexpected error is shown as gpuenv's own
        if (refusal := system_errors.explain(error)) is None:
            show.show_bug(screen, __version__)
            return exit_codes.BUG
        return _show_error(screen, refusal)
    if code == exit_codes.INTERRUPTED and command is None:  # typer turns an interrupt into an exit code
        return _show_interrupt(screen, exit_codes.INTERRUPTED, "interrupted")
    return code if isinstance(code, int) else 0


def _explain_error(screen: show.Screen, error: GpuenvError, ours: list[str]) -> int:
    """Show an error with the causes in its log and a hint, and return its exit code."""
    system_errors.add_limits(error)
    if error.log and not error.findings:
        from ..actions.explain import explain_log

        error.findings = explain_log(error.log, error.device)
    if error.log:  # the project that uv solves for is not the user's
        error.log = error.log.replace("gpuenv-plan depends on", "you require")
    if option := re.match(r"--[a-z-]+", error.message):
        variable = f"GPUENV_{option[0].strip('-').replace('-', '_').upper()}"
        if screen.environ.get(variable) and not any(w.startswith(option[0]) for w in ours):
            error.message += f" ({variable} is set)"
    if isinstance(error, UsageError) and error.hint is None and (word := _find_command_name(ours)):
        error.hint = f"gpuenv {word} --help lists the options"
    return _show_error(screen, error)


def _refuse_several_targets(ours: list[str]) -> None:
    """Raise UsageError if --target is repeated for a command of one machine. typer would use the last one."""
    if _find_command_name(ours) in SEVERAL_TARGETS:
        return
    count = sum(word == "--target" or word.startswith("--target=") for word in ours)
    if count > 1:
        raise UsageError(
            f"--target is used {count} times, but `gpuenv {_find_command_name(ours)}` supports only one machine",
            hint=f"use --target once. These commands support several: {', '.join(SEVERAL_TARGETS)}",
        )


def _show_error(screen: show.Screen, error: GpuenvError) -> int:
    """Show an error and return its exit code."""
    code = exit_codes.get_error_code(error)
    show.show_error(screen, error, code)
    return code


def _show_interrupt(screen: show.Screen, code: int, word: str) -> int:
    """Show that a run was ended: as text, or as the one document of `--json`."""
    screen.stop_activity()
    if screen.json:
        show.show_error(screen, GpuenvError(word, hint=_AFTER_INTERRUPT), code)
    else:
        screen.say(f"{word}\nhint: {_AFTER_INTERRUPT}", always=True)
    return code


_AFTER_INTERRUPT = "run the same command again: it undoes or continues what was begun"


_OF_TYPER = (
    (r"^No such command '(.*?)'.*", r"unknown command \1"),
    (r"^Got unexpected extra arguments? ?(?:\(s\) )?\((.*)\)$", r"unexpected argument: \1"),
    (r"^Missing argument '(.*)'\.?$", r"the argument \1 is missing"),
    (r"^Missing option '(.*)'\.?$", r"the option \1 is missing"),
    (r"^No such option: (\S+) \(Possible options: (.*)\)", r"unknown option \1. Did you mean \2?"),
    (r"^No such option: (\S+)\.?", r"unknown option \1."),
)
"""The messages of typer, and what gpuenv says."""


def _as_usage_error(error: Exception, words: CommandWords) -> UsageError:
    """Return typer's error for a wrong command line as a UsageError, with a hint."""
    ours = words.ours
    message = getattr(error, "format_message", lambda: str(error))()
    context = getattr(error, "ctx", None)
    command = context.command_path if context else "gpuenv"
    from ..config.options import suggest_options

    for pattern, words_of_gpuenv in _OF_TYPER:
        message = re.sub(pattern, words_of_gpuenv, message)
    if message.startswith("unknown command"):
        group = command.removeprefix("gpuenv").strip()
        known = [w.removeprefix(group).split()[0] for w in COMMANDS if w.startswith(group)]
        others = {} if group else OF_OTHER_TOOLS
        import difflib

        near = difflib.get_close_matches(message.rpartition(" ")[2], (*known, *others), n=1)
        meant = near and (others.get(near[0]) or f"Did you mean {command} {near[0]}?")
        return UsageError(message, hint=meant or f"{command} --help lists the commands")
    if _find_command_name(ours) == "run" and (program := find_python_options(words)):
        return UsageError(message, hint=f"gpuenv run python {shlex.join(program)}")
    unknown = re.match(r"unknown option (--?[\w-]+)", message)
    if unknown and (there := OF_OTHER_TOOLS.get(f"{command.removeprefix('gpuenv ')} {unknown[1]}")):
        return UsageError(unknown[0], hint=there)
    if unknown and (found := find_commands_with(unknown[1])):
        commands = name_few([f"gpuenv {name}" for name in found])
        return UsageError(unknown[0], hint=f"{unknown[1]} is an option of {commands}")
    if message.startswith("unexpected argument") and (options := suggest_options(ours)):
        return UsageError(message, hint=f"{command} {options}")
    return UsageError(message, hint=f"{command} --help lists the options")


# --- the words of a command line -----------------------------------------------------------------
# They are put into order before typer reads them: options may come before a command, and `run` takes the words of
# another program. Its forms are `run [OPTION...] CMD [ARG...]`, `run [OPTION...] ENV CMD [ARG...]` with the path of an
# environment, and `run [OPTION...] [ENV] [OPTION...] -- CMD [ARG...]`.

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
        for _, field, option in declare.iterate_options(kind):
            words |= dict.fromkeys(option.flags, 1 if isinstance(field.default, bool) else 2)
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
