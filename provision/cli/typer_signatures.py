"""Generate the function that typer reads a command's options from."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field
from typing import Annotated, Any, get_type_hints

import typer

from ..model import declare

CONTEXT = "context"


def make_callback(call: Callable[..., int], *kinds: type) -> Callable[..., int]:
    """Return `call` with a signature of the context and all declared options of the dataclasses."""
    parameters = [inspect.Parameter(CONTEXT, inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)]
    for kind in kinds:
        hints: dict[type, dict[str, Any]] = {}
        for owner, field, how in declare.iterate_options(kind):
            if owner not in hints:
                hints[owner] = _read_types(owner)
            parameters.append(
                _make_parameter(field, hints[owner][field.name], how, get_variable(field.name, how, kind))
            )

    def called(context: typer.Context, **given: Any) -> int:
        return call(context, {name: value for name, value in given.items() if value is not None})

    called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # read by inspect
    return called


def find_named_options(context: typer.Context, values: Mapping[str, Any]) -> frozenset[str]:
    """Return the options that the command line or a variable names, including those with their default value."""
    source = context.get_parameter_source
    return frozenset(
        name for name in values if getattr(source(name), "name", "") in ("COMMANDLINE", "ENVIRONMENT")
    )


def get_variable(name: str, how: declare.Option, kind: type) -> str | None:
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
    flags = how.flags or (declare.make_flag(name),)
    long = next((flag for flag in flags if flag.startswith("--")), None)
    return f"GPUENV_{long.partition('/')[0].strip('-').replace('-', '_').upper()}" if long else None


def _read_types(owner: type) -> dict[str, Any]:
    """Return the types of a dataclass's own options. Types of other fields may not be imported."""
    fields = [field for kind, field, _ in declare.iterate_options(owner) if kind is owner]
    wanted = type(owner.__name__, (), {"__annotations__": {field.name: field.type for field in fields}})
    return get_type_hints(wanted, vars(sys.modules[owner.__module__]))


def _make_completion(name: str) -> Callable[[str], Any]:
    """Return a completion function that is imported when a shell calls it."""

    def complete(incomplete: str) -> Any:
        from ..commands import completion

        return completion.complete(name, incomplete)

    return complete


def _make_parameter(
    field: Field[Any], kind: Any, how: declare.Option, variable: str | None
) -> inspect.Parameter:
    """Return the parameter of an option. A list is None if the command line does not name it."""
    default = inspect.Parameter.empty if field.default is MISSING else field.default
    if field.default_factory is not MISSING:
        kind, default = kind | None, None
    complete = _make_completion(how.complete) if how.complete else None
    info: Any
    if how.is_argument:
        info = typer.Argument(
            help=how.help or None, metavar=how.metavar, hidden=how.hidden, show_default=how.show_default,
            autocompletion=complete,
        )  # fmt: skip
    else:
        flags = how.flags or (declare.make_flag(field.name),)
        info = typer.Option(
            *flags, help=how.help, metavar=how.metavar, rich_help_panel=how.panel, autocompletion=complete,
            envvar=variable, show_envvar=False,
        )  # fmt: skip
    return inspect.Parameter(
        field.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, info]
    )
