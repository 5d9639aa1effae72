"""Define the typer application and its options. Only the command that runs is imported."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field
from typing import Annotated, Any, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup

from .. import __version__, show
from ..model import Event, declare
from ..model.declare import BUILD, CHOICE, OUTPUT, SOURCES, TARGET
from ..system import process, trust
from . import exit_codes
from .verbs import ALIASES, COMMANDS, EXAMPLES, FIRST_COMMANDS, GROUPS, load_command

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
            panel = getattr(parameter, "rich_help_panel", None) or "Options"
            if parameter.param_type_name == "argument":
                panel = "Arguments"
            elif parameter.name == "help":
                panel = OUTPUT
            panels[panel].append(row)
        for panel, rows in panels.items():
            if rows:
                with formatter.section(panel):
                    formatter.write_dl(rows)
        if examples := EXAMPLES.get(ctx.command_path.partition(" ")[2]):
            with formatter.section("Examples"):
                formatter.write_dl(examples, col_max=_WIDEST_EXAMPLE)


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
            for name, text in GROUPS.items():
                self.commands[name] = Commands(
                    name=name,
                    help=text,
                    no_args_is_help=True,
                    rich_markup_mode=None,
                    context_settings=_SETTINGS,
                )

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


def _prepare_command(name: str) -> Any:
    """Return the command with its options."""
    verb = COMMANDS[name]
    kind, function = load_command(name)

    def run(context: typer.Context, **given: Any) -> int:
        """Run the command, show its result and return its exit code."""
        values = {name: value for name, value in given.items() if value is not None}
        trust.accept_project(bool(values.get("trust_project")))
        output = declare.build_options(verb.output, values, frozenset())
        options = declare.build_options(kind, values, find_named_options(context, values))
        # What the command line says beside the options, for the commands that have a field for it.
        more = {
            "brief": not output.json, "command": context.obj or [], "stdout_to_stderr": output.json,
            "diagnose": output.json or not output.quiet,
        }  # fmt: skip
        wanted = {name: value for name, value in more.items() if hasattr(options, name)}
        options = dataclasses.replace(options, **wanted)
        screen = show.Screen(
            json=output.json, quiet=output.quiet, verbose=output.verbose, environ=process.environ()
        )
        if getattr(options, "takes_stdout", False):
            screen.out = screen.err
        emit = functools.partial(show.show_event, screen)
        trust.listen(lambda text: emit(Event("note", "trust", text)))
        try:
            value = function(options, emit)
        finally:
            screen.stop_activity()  # before an error is shown, on a screen of its own
        code = exit_codes.get_exit_code(value, options)
        show.show_result(screen, value, explain=getattr(options, "explain", False), good=code == 0)
        if signal := getattr(value, "signal", None):  # the program of `run` was ended by it: so is gpuenv
            return process.end_by_signal(signal)
        return code

    declare_parameters(run, kind, verb.output)
    one = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    one.command(name.rsplit(maxsplit=1)[-1], help=verb.help, cls=Command, context_settings=_SETTINGS)(run)
    command = typer.main.get_command(one)
    command.usage_words = verb.usage  # type: ignore[attr-defined]  # it is a Command; typer's types do not state it
    return command


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


def declare_parameters(function: Callable[..., int], *kinds: type) -> None:
    """Give a function the signature that typer reads: the context and all declared options of the dataclasses."""
    parameters = [inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)]
    for kind in kinds:
        for owner, field, option in declare.iterate_options(kind):
            variable = get_variable(field.name, option, kind)
            parameters.append(_make_parameter(field, _read_types(owner)[field.name], option, variable))
    function.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # read by inspect


def find_named_options(context: typer.Context, values: Mapping[str, Any]) -> frozenset[str]:
    """Return the options that the command line or a variable names, including those with their default value."""
    source = context.get_parameter_source
    return frozenset(
        name for name in values if getattr(source(name), "name", "") in ("COMMANDLINE", "ENVIRONMENT")
    )


def get_variable(name: str, option: declare.Option, kind: type) -> str | None:
    """Return the variable that sets an option: GPUENV_ and its long flag.

    Return None for an option that permits something, or names what a command removes. A variable left in a
    shell or job must not decide that.
    """
    if (
        name in ("force", "trust_project")
        or name.startswith("allow_")
        or name in getattr(kind, "NAMES_WHAT_IS_REMOVED", ())
    ):
        return None
    long = next((flag for flag in option.flags if flag.startswith("--")), None)
    return f"GPUENV_{long.partition('/')[0].strip('-').replace('-', '_').upper()}" if long else None


@functools.cache
def _read_types(owner: type) -> dict[str, Any]:
    """Return the types of a dataclass's own options. Types of other fields may not be imported."""
    fields = [field for kind, field, _ in declare.iterate_options(owner) if kind is owner]
    wanted = type(owner.__name__, (), {"__annotations__": {field.name: field.type for field in fields}})
    known = {k: v for kind in reversed(owner.__mro__) for k, v in vars(sys.modules[kind.__module__]).items()}
    return get_type_hints(wanted, known)  # an option that is inherited has the types of its own module


def _make_completion(name: str) -> Callable[[str], Any]:
    """Return a completion function that is imported when a shell calls it."""

    def complete(incomplete: str) -> Any:
        from ..actions import completion

        return completion.complete(name, incomplete)

    return complete


def _make_parameter(
    field: Field[Any], kind: Any, option: declare.Option, variable: str | None
) -> inspect.Parameter:
    """Return the parameter of an option. A list is None if the command line does not name it."""
    default = inspect.Parameter.empty if field.default is MISSING else field.default
    if field.default_factory is not MISSING:
        kind, default = kind | None, None
    complete = _make_completion(option.complete) if option.complete else None
    info: Any
    if option.is_argument:
        info = typer.Argument(
            help=option.help or None, metavar=option.metavar, hidden=option.hidden,
            show_default=option.show_default, autocompletion=complete,
        )  # fmt: skip
    else:
        info = typer.Option(
            *option.flags, help=option.help, metavar=option.metavar, rich_help_panel=option.panel,
            autocompletion=complete, envvar=variable, show_envvar=False,
        )  # fmt: skip
    return inspect.Parameter(
        field.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, info]
    )
