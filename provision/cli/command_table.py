"""The table of commands: the options of each, its function by name, its help."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..model.option import OUTPUT, option


@dataclass(frozen=True, kw_only=True)
class Output:
    """The options of what a command shows."""

    json: bool = option(False, help="One JSON document on standard output.", panel=OUTPUT)
    quiet: bool = option(False, "--quiet", "-q", help="Errors and the last line only.", panel=OUTPUT)
    verbose: bool = option(False, "--verbose", "-v", help="Also notes, versions, logs.", panel=OUTPUT)


@dataclass(frozen=True, kw_only=True)
class OutputOfRun(Output):
    """The options of what `run` shows."""

    json: bool = option(
        False, panel=OUTPUT,
        help="One JSON document on standard output; what CMD writes goes to standard error.",
    )  # fmt: skip


Adapt = Callable[[Any, Output, "list[str] | None"], Any]


@dataclass(frozen=True)
class Verb:
    """A command: the dataclass of its options, its help, how its options depend on the output and on the command of
    `run`, and its usage where typer could not tell it."""

    options: str
    help: str
    output: type[Output] = Output
    adapt: Adapt = lambda options, _output, _command: options
    usage: str = ""


def _shortened(options: Any, output: Output, _command: list[str] | None) -> Any:
    """Leave the lock out of a value of `create` that is shown in words."""
    return dataclasses.replace(options, brief=not output.json)


def _with_command(options: Any, output: Output, command: list[str] | None) -> Any:
    """Give `run` its command, whose standard output is not to mix with a document."""
    return dataclasses.replace(
        options, command=command or [], stdout_to_stderr=output.json, diagnose=output.json or not output.quiet
    )


VERBS = {
    "create": Verb(
        "CreateOptions", "Build an environment that fits this machine, and prove it.", adapt=_shortened
    ),
    "sync": Verb("SyncOptions", "The same as create, for the project of this folder.", adapt=_shortened),
    "verify": Verb(
        "VerifyOptions", "The verdict on any environment: a venv, a conda prefix, or a python executable."
    ),
    "detect": Verb("DetectOptions", "This machine: driver, GPUs, Pythons, CUDA and cuDNN files."),
    "resolve": Verb("ResolveOptions", "The builds that fit, and why nothing newer does. Builds nothing."),
    "lock": Verb(
        "LockOptions", "The exact files, with hashes and the hardware they are for, without building."
    ),
    "diagnose": Verb(
        "DiagnoseOptions", "The cause of a failure and its fix, from logs, this machine and an environment."
    ),
    "run": Verb(
        "RunOptions", "CMD in the environment; its exit code, and the cause where it fails.",
        output=OutputOfRun, adapt=_with_command, usage="[OPTIONS] [ENV --] CMD [ARGS]...",
    ),
    "list": Verb("ListOptions", "The environments that gpuenv made on this machine."),
    "remove": Verb("RemoveOptions", "Remove environments that gpuenv made; anything else is left alone."),
    "report": Verb(
        "ReportOptions", "One text to paste into an issue, without names, addresses and credentials."
    ),
    "init": Verb(
        "InitOptions", "Write gpuenv.yaml, `make env` and .gitignore for the project in this folder."
    ),
    "add": Verb(
        "AddOptions", "A package more: into gpuenv.yaml, the lock and the environment, under the plan."
    ),
    "drop": Verb(
        "DropOptions", "A package less: the inverse of add, in gpuenv.yaml, the lock and the environment."
    ),
    "repair": Verb(
        "RepairOptions", "Put back what was replaced, removed or changed in an environment, from its lock."
    ),
    "export": Verb(
        "ExportOptions",
        "A lock in another tool's form: of ENV, of a lock file, or of ./pylock.toml where ENV is not there.",
    ),
    "bundle": Verb("BundleOptions", "Everything that a machine without a network needs, in one folder."),
    "cache dir": Verb("CacheDirOptions", "The folder that gpuenv keeps files in between runs."),
    "cache prune": Verb("CachePruneOptions", "Remove what was not used for a month."),
    "cache clean": Verb("CacheCleanOptions", "Remove all that gpuenv keeps; later runs make it again."),
    "profiles list": Verb("ProfilesListOptions", "The tables: how many rows, from where, read when."),
    "profiles show": Verb("ProfilesShowOptions", "The rows of profile files."),
    "profiles check": Verb(
        "ProfilesCheckOptions", "Whether profiles are valid: file, row and key of every mistake at once."
    ),
    "profiles update": Verb(
        "ProfilesUpdateOptions",
        "Read the index for releases that are not known yet, into your own overlay.",
    ),
}  # fmt: skip
"""The commands by the words that ask for them. The module has the first word's name, the function the last's."""
GROUPS = {
    "cache": "What gpuenv keeps between runs.",
    "profiles": "What is known of drivers, GPUs, cuDNN and framework builds.",
}
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
SEVERAL_TARGETS = ("resolve", "lock")
"""The commands that take --target for several machines."""
ALIASES = {"ls": "list", "rm": "remove"}
"""Other names of commands, which the help does not list."""


def loaded(name: str) -> tuple[type, Callable[..., Any]]:
    """Import a command: the dataclass of its options, and its function."""
    first, last = name.split(maxsplit=1)[0], name.rsplit(maxsplit=1)[-1]
    module = importlib.import_module(f"...commands.{first}", __name__)
    return getattr(module, VERBS[name].options), getattr(module, last)
