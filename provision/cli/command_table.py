"""List all commands: their options, function and help text."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..model.declare import OUTPUT, option


@dataclass(frozen=True, kw_only=True)
class Output:
    """The options for the output of a command."""

    json: bool = option(False, help="Print one JSON document.", panel=OUTPUT)
    quiet: bool = option(False, "--quiet", "-q", help="Print only errors and the last line.", panel=OUTPUT)
    verbose: bool = option(
        False, "--verbose", "-v", help="Print more: versions, evidence and logs.", panel=OUTPUT
    )


@dataclass(frozen=True, kw_only=True)
class OutputOfRun(Output):
    """The options for the output of `run`."""

    json: bool = option(
        False, panel=OUTPUT,
        help="Print one JSON document; the output of CMD goes to standard error.",
    )  # fmt: skip


Adapt = Callable[[Any, Output, "list[str] | None"], Any]


@dataclass(frozen=True)
class CommandEntry:
    """A command: the dataclass of its options, and its help in one line.

    `adapt` changes the options by the output and the command of `run`. `usage` is set if typer cannot derive
    it.
    """

    options: str
    help: str
    output: type[Output] = Output
    adapt: Adapt = lambda options, _output, _command: options
    usage: str = ""


def _shorten_value(options: Any, output: Output, _command: list[str] | None) -> Any:
    """Leave the lock out of the result of `create` if it is shown as text."""
    return dataclasses.replace(options, brief=not output.json)


def _add_command(options: Any, output: Output, command: list[str] | None) -> Any:
    """Add the command to the options of `run`. With --json its output goes to standard error."""
    return dataclasses.replace(
        options, command=command or [], stdout_to_stderr=output.json, diagnose=output.json or not output.quiet
    )


COMMANDS = {
    "create": CommandEntry(
        "CreateOptions", "Build an environment that fits this machine, and verify it.", adapt=_shorten_value
    ),
    "sync": CommandEntry("SyncOptions", "Build or update the environment of the project in this folder.", adapt=_shorten_value),
    "verify": CommandEntry(
        "VerifyOptions", "Test whether an environment works: venv, conda or any Python."
    ),
    "detect": CommandEntry("DetectOptions", "Show this machine: driver, GPUs, Pythons and CUDA libraries."),
    "resolve": CommandEntry("ResolveOptions", "Show which builds fit a machine, and why newer ones do not."),
    "lock": CommandEntry(
        "LockOptions", "Write the lock file without building an environment."
    ),
    "diagnose": CommandEntry(
        "DiagnoseOptions", "Find the cause of a GPU failure, and its fix."
    ),
    "run": CommandEntry(
        "RunOptions", "Run a program in an environment, and diagnose its failure.",
        output=OutputOfRun, adapt=_add_command, usage="[OPTIONS] [ENV --] CMD [ARGS]...",
    ),
    "list": CommandEntry("ListOptions", "List the environments that gpuenv made on this machine."),
    "remove": CommandEntry("RemoveOptions", "Remove environments that gpuenv made."),
    "report": CommandEntry(
        "ReportOptions", "Print an anonymous report to paste into an issue."
    ),
    "init": CommandEntry(
        "InitOptions", "Write gpuenv.yaml for the project in this folder."
    ),
    "add": CommandEntry(
        "AddOptions", "Add packages to the project and its environment."
    ),
    "drop": CommandEntry(
        "DropOptions", "Remove packages from the project and its environment."
    ),
    "repair": CommandEntry(
        "RepairOptions", "Restore an environment to its lock."
    ),
    "export": CommandEntry(
        "ExportOptions",
        "Convert a lock for Docker, conda, Slurm and other tools.",
    ),
    "bundle": CommandEntry("BundleOptions", "Collect all files for an installation without a network."),
    "cache dir": CommandEntry("CacheDirOptions", "Print the folder of the cache."),
    "cache prune": CommandEntry("CachePruneOptions", "Remove files that were not used for a month."),
    "cache clean": CommandEntry("CacheCleanOptions", "Remove all cached files."),
    "profiles list": CommandEntry("ProfilesListOptions", "List the profile tables, with their number of rows, source and date."),
    "profiles show": CommandEntry("ProfilesShowOptions", "Show the rows of one or more profiles."),
    "profiles check": CommandEntry(
        "ProfilesCheckOptions", "Check profiles and list all mistakes."
    ),
    "profiles update": CommandEntry(
        "ProfilesUpdateOptions",
        "Read new releases from the index into your own profiles.",
    ),
}  # fmt: skip
"""The commands by the words that ask for them. The module has the first word's name, the function the last's."""
GROUPS = {
    "cache": "Show or clean the cache of gpuenv.",
    "profiles": "Show or update the data on drivers, GPUs and builds.",
}
FIRST_COMMANDS = ("init", "create", "run", "add", "verify", "diagnose")
"""The commands that the help lists first, in the order of a new project."""
OF_OTHER_TOOLS = {
    "install": "gpuenv create builds an environment; gpuenv add PKG adds a package",
    "uninstall": "gpuenv drop PKG removes a package; gpuenv remove ENV an environment",
    "upgrade": "gpuenv lock --upgrade, then gpuenv create",
    "update": "gpuenv lock --upgrade, then gpuenv create",
    "new": "gpuenv init",
    "venv": "gpuenv create --framework torch",
    "info": "gpuenv detect",
    "exec": "gpuenv run CMD",
}
"""Commands of uv, pixi, conda and poetry, and what to type in their place."""
SEVERAL_TARGETS = ("resolve", "lock", "bundle")
"""The commands that take --target for several machines."""
ALIASES = {"ls": "list", "rm": "remove"}
"""Other names of commands, which the help does not list."""


def load_command(name: str) -> tuple[type, Callable[..., Any]]:
    """Import a command. Return the dataclass of its options and its function."""
    first, last = name.split(maxsplit=1)[0], name.rsplit(maxsplit=1)[-1]
    module = importlib.import_module(f"...commands.{first}", __name__)
    return getattr(module, COMMANDS[name].options), getattr(module, last)
