"""Write docs/reference/commands.md from the declarations of the options: `command_reference.py [--write]`."""

from __future__ import annotations

import argparse
import dataclasses
import sys
import typing
from pathlib import Path

from provision.cli.typer_app import get_variable
from provision.cli.verbs import ALIASES, COMMANDS, load_command
from provision.model import declare

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "commands.md"
HEAD = """\
# Commands and options

`scripts/command_reference.py --write` makes this page from the declarations of the options. `gpuenv COMMAND --help` prints the
same.

- `ENV` is a path. The default is `.venv` of the project: see [environments](../explanation/environments.md).
- A variable sets an option: `GPUENV_FRAMEWORK="torch jax"`, `GPUENV_OFFLINE=1`. Blanks separate the entries of a list. The
  command line replaces the variable. Options that permit something, or name what is removed, have none.
- `GPUENV_GRANT='NAME=https://HOST:PORT'` lets a project or a lock send the variable `NAME` to this server:
  [grant a variable](../how-to/mirrors.md#grant-a-variable-to-a-server).
- `--json` prints one [document](json.md) on standard output and nothing else there. Progress goes to standard error.
- `NO_COLOR` and `FORCE_COLOR` apply. Sizes of files are in MB.
- `gpuenv --install-completion` installs completion for bash, zsh and fish.
- `gpuenv run CMD`: options of gpuenv come before `CMD`. `gpuenv run ENV -- CMD` names an environment.
- A command ends with one of these [exit codes](exit-codes.md).
"""


def main() -> None:
    """Print the page, or write it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="write docs/reference/commands.md")
    options = parser.parse_args()
    if options.write:
        PAGE.write_text(page(), encoding="utf-8")
    else:
        sys.stdout.write(page())


def page() -> str:
    """Return the page: an overview, and a section for each command."""
    aliases = ", ".join(f"`gpuenv {alias}` is `gpuenv {name}`" for alias, name in ALIASES.items())
    overview = ["| Command | Does |", "|---|---|"]
    overview += [
        f"| [`{name}`](#gpuenv-{name.replace(' ', '-')}) | {cell(verb.help)} |"
        for name, verb in COMMANDS.items()
    ]
    return "\n".join([HEAD, f"{aliases}.", "", *overview, "", *map(section, COMMANDS)]) + "\n"


def section(name: str) -> str:
    """Return the section of a command: its help, its arguments, and its options under their headings."""
    verb = COMMANDS[name]
    kind, _ = load_command(name)
    declared = [*declare.iterate_options(kind), *declare.iterate_options(verb.output)]
    lines = [f"## gpuenv {name}", "", verb.help, ""]
    arguments = [(field, how) for _, field, how in declared if how.is_argument and not how.hidden]
    if arguments:
        lines += ["| Argument | |", "|---|---|"]
        lines += [f"| `{how.metavar or field.name.upper()}` | {cell(how.help)} |" for field, how in arguments]
        lines += [""]
    panels: dict[str, list[str]] = {}
    for _, field, how in declared:
        if not how.is_argument and not how.hidden:
            panels.setdefault(how.panel or "Options", []).append(row(field, how, kind))
    for panel, rows in panels.items():
        lines += [f"| {panel} | | Variable |", "|---|---|---|", *rows, ""]
    return "\n".join(lines)


def row(field: dataclasses.Field[typing.Any], how: declare.Option, kind: type) -> str:
    """Return the row of an option: its flags, its help and its variable."""
    value = f" {how.metavar}" if how.metavar else ""
    shown = ", ".join(f"`{flag}{value if flag.startswith('--') else ''}`" for flag in how.flags)
    variable = get_variable(field.name, how, kind)
    return f"| {cell(shown)} | {cell(how.help)} | {f'`{variable}`' if variable else ''} |"


def cell(text: str) -> str:
    """Return a text for one cell of a table."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


if __name__ == "__main__":
    main()
