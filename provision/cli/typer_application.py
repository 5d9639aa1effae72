"""Define the typer application. Only the command that runs is imported."""

from __future__ import annotations

import sys
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from .. import __version__, show
from ..model import Event, declare
from ..model.declare import BUILD, CHOICE, OUTPUT, SOURCES, TARGET
from ..system import process, trust
from . import exit_codes, typer_signatures
from .command_table import ALIASES, COMMANDS, FIRST_COMMANDS, GROUPS, load_command

_HELP = (
    "Build Python environments that match the NVIDIA driver, the GPUs and cuDNN, and prove that they work."
)
_PANELS = ("Arguments", "Options", CHOICE, TARGET, BUILD, SOURCES, OUTPUT)
"""The headings of options in the order of the help."""
_WIDEST_EXAMPLE = 46
_SETTINGS = {"help_option_names": ["-h", "--help"]}


class Command(TyperCommand):
    """A command whose help lists options under headings, as plain text for pipes and logs."""

    usage_words = ""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the words of the usage line."""
        return [self.usage_words] if self.usage_words else super().collect_usage_pieces(ctx)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write arguments and options under their headings, then examples."""
        panels: dict[str, list[tuple[str, str]]] = {name: [] for name in _PANELS}
        for parameter in self.get_params(ctx):
            if (row := parameter.get_help_record(ctx)) is None:
                continue
            panel = "Arguments" if parameter.param_type_name == "argument" else _get_heading(parameter)
            panels.setdefault(panel, []).append(row)
        for panel, rows in panels.items():
            if rows:
                with formatter.section(panel):
                    formatter.write_dl(rows)
        _write_examples(formatter, ctx)


def _write_examples(formatter: Any, ctx: Any) -> None:
    from .examples import EXAMPLES  # only help shows them

    if rows := EXAMPLES.get(ctx.command_path.partition(" ")[2]):
        with formatter.section("Examples"):
            formatter.write_dl(rows, col_max=_WIDEST_EXAMPLE)


def _get_heading(parameter: Any) -> str:
    if parameter.name == "help":
        return OUTPUT
    return str(getattr(parameter, "rich_help_panel", None) or "Options")


class Commands(TyperGroup):
    """A group whose commands have only a name and a help text until one is run."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.first = self.name if self.name in GROUPS else ""
        for words, verb in COMMANDS.items():
            first, _, last = words.rpartition(" ")
            if first == self.first:
                self.commands[last] = Command(last, help=verb.help, rich_markup_mode=None)
        if not self.first:
            self.commands.update((name, _make_group(name)) for name in GROUPS)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands of a new project first, then all others."""
        named = {name: self.commands[name] for name in self.list_commands(ctx)}
        first = [] if self.first else [(name, named.pop(name).help) for name in FIRST_COMMANDS]
        rest = [(name, command.help) for name, command in named.items()]
        for heading, rows in (("Main commands", first), ("More commands" if first else "Commands", rest)):
            if rows:
                with formatter.section(heading):
                    formatter.write_dl(rows)
        if first:
            formatter.write_paragraph()
            formatter.write_text("gpuenv COMMAND --help shows the options and examples of a command.")

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command by its name or alias."""
        return super().get_command(ctx, cmd_name if self.first else ALIASES.get(cmd_name, cmd_name))

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Return the requested command with its options, and the remaining words."""
        name, command, rest = super().resolve_command(ctx, args)
        if command is not None and not isinstance(command, Commands):
            name = command.name
            command = _prepare_command(f"{self.first} {name}".strip())
        return name, command, rest


def _make_group(name: str) -> Commands:
    return Commands(
        name=name, help=GROUPS[name], no_args_is_help=True, rich_markup_mode=None, context_settings=_SETTINGS
    )


def _prepare_command(name: str) -> Any:
    """Return the command with its options."""
    verb = COMMANDS[name]
    kind, function = load_command(name)

    def call(context: typer.Context, values: dict[str, Any]) -> int:
        trust.accept_project(bool(values.get("trust_project")))
        output = declare.build_options(verb.output, values, frozenset())
        options = declare.build_options(kind, values, typer_signatures.find_named_options(context, values))
        return _run_command(function, verb.adapt(options, output, context.obj), output)

    one = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    one.command(name.rsplit(maxsplit=1)[-1], help=verb.help, cls=Command, context_settings=_SETTINGS)(
        typer_signatures.make_callback(call, kind, verb.output)
    )
    command = typer.main.get_command(one)
    command.usage_words = verb.usage  # type: ignore[attr-defined]  # it is a Command; typer's types do not state it
    return command


def _run_command(function: Any, options: Any, output: Any) -> int:
    """Run a command, show its result and return its exit code.

    If a signal ended the user's program, it ends this process too.
    """
    screen = show.Screen(
        json=output.json, quiet=output.quiet, verbose=output.verbose, environ=process.environ()
    )
    if getattr(options, "takes_stdout", False):
        screen.out = screen.err
    emit = show.make_emitter(screen)
    trust.listen(lambda text: emit(Event(kind="note", stage="trust", text=text)))
    value = function(options, emit)
    code = exit_codes.get_exit_code(value, options)
    show.show_result(screen, value, explain=getattr(options, "explain", False), good=code == 0)
    if signal_name := exit_codes.get_signal(value):
        return process.die_of(signal_name)
    return code


app = typer.Typer(
    name="gpuenv",
    help=_HELP,
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings=_SETTINGS,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"gpuenv {__version__}\n")
        raise typer.Exit


@app.callback()
def main(
    version: bool = typer.Option(
        False, "--version", "-V", callback=_print_version, is_eager=True, help="Print the version."
    ),
) -> None:
    """Build Python environments that match the NVIDIA driver, the GPUs and cuDNN, and prove that they work."""
