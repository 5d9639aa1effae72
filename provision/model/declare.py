"""Declarations of command-line options: dataclasses whose fields have flags and help."""

import dataclasses
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

TARGET = "Target machine"
CHOICE = "Frameworks and packages"
SOURCES = "Package sources"
BUILD = "Build"
OUTPUT = "Output"
"""The headings of options in the help. "Options" is for those of one command."""
REQUIRED = object()
"""The default of a required argument."""
_KEY = "gpuenv"
_GROUP = "gpuenv group"


class Option(NamedTuple):
    """The declaration of one option.

    Without `flags` the flag is the name of the field. `panel` is its heading in the help. `complete` names the
    completion of its words. `show_default` can be the text of the default in the help.
    """

    help: str = ""
    is_argument: bool = False
    flags: tuple[str, ...] = ()
    panel: str | None = None
    metavar: str | None = None
    complete: str | None = None
    hidden: bool = False
    show_default: bool | str = True


class Group(NamedTuple):
    """Options that commands share: `kind` is their dataclass, and `taken` says which fields a command has."""

    kind: type
    taken: Callable[[str], bool]


def option(default: Any, *flags: str, **about: Any) -> Any:
    """Declare an option, `about` which Option says more. A list option can be repeated."""
    return _make_field(default, Option(flags=flags, **about))


def argument(default: Any = REQUIRED, **about: Any) -> Any:
    """Declare an argument, a word of the command line without a flag."""
    return _make_field(default, Option(is_argument=True, **about))


# Options of several commands.
env_argument = partial(
    argument, None, help="Path of the environment.  [default: .venv]", complete="environments"
)
env_option = partial(option, None, help="Path of the environment.  [default: .venv]", complete="environments")
verify_option = partial(
    option, None, "--verify/--no-verify",
    help="Always verify, or never. By default gpuenv verifies what changed.",
)  # fmt: skip
quick_option = partial(option, False, help="Verify driver, CUDA and cuDNN only, for GPUs that are in use.")
checks_option = partial(option, True, "--checks/--no-checks", help="Run the checks of gpuenv.yaml, or not.")
dry_run_option = partial(option, False, help="Show what would be done, without changes.")
force_option = partial(option, False, help="Replace files that gpuenv did not write or that were edited.")


def make_flag(name: str) -> str:
    """Return the flag of a field that declares none."""
    return f"--{name.rstrip('_').replace('_', '-')}"


def group(kind: type, *only: str, without: tuple[str, ...] = ()) -> Any:
    """Declare a field that holds a group of options: all of them, `only` some, or all `without` some."""
    taken = Group(kind, lambda name: name in only if only else name not in without)
    return dataclasses.field(default_factory=kind, metadata={_GROUP: taken})


def iterate_options(kind: type) -> Iterator[tuple[type, dataclasses.Field[Any], Option]]:
    """Yield the options of a dataclass and its groups: the dataclass that has the field, the field, the declaration.

    Each option has its flags. An argument has none.
    """
    for field in dataclasses.fields(kind):
        if shared := field.metadata.get(_GROUP):
            yield from (one for one in iterate_options(shared.kind) if shared.taken(one[1].name))
        elif declared := field.metadata.get(_KEY):
            flags = () if declared.is_argument else declared.flags or (make_flag(field.name),)
            yield kind, field, declared._replace(flags=flags)


def build_options(kind: type, values: dict[str, Any], named: frozenset[str]) -> Any:
    """Make a dataclass of options from the `values` of a command line, which names the options `named`."""
    arguments: dict[str, Any] = {}
    for field in dataclasses.fields(kind):
        if shared := field.metadata.get(_GROUP):
            taken = {name: value for name, value in values.items() if shared.taken(name)}
            arguments[field.name] = build_options(shared.kind, taken, named)
        elif _KEY in field.metadata and field.name in values:
            arguments[field.name] = values[field.name]
        elif field.name == "named":
            arguments["named"] = named & {f.name for f in dataclasses.fields(kind)}
    return kind(**arguments)


def _make_field(default: Any, declaration: Option) -> Any:
    metadata = {_KEY: declaration}
    if default is REQUIRED:
        return dataclasses.field(metadata=metadata)
    if default is list:
        return dataclasses.field(default_factory=list, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)
