"""List all commands: their options, function and help text."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, NamedTuple

from ..model.declare import OUTPUT, iterate_options, option
from ..model.values import Value


class Output(Value):
    """The options for the output of a command."""

    json: bool = option(False, help="Print one JSON document.", panel=OUTPUT)
    quiet: bool = option(False, "--quiet", "-q", help="Print only errors and the last line.", panel=OUTPUT)
    verbose: bool = option(
        False, "--verbose", "-v", help="Print more: versions, evidence and logs.", panel=OUTPUT
    )


class OutputOfRun(Output):
    """The options for the output of `run`."""

    json: bool = option(
        False, panel=OUTPUT,
        help="Print one JSON document; the output of CMD goes to standard error.",
    )  # fmt: skip


class CommandEntry(NamedTuple):
    """A command: its help in one line. `usage` is set if typer cannot derive it.

    Its module has the name of its first word, and the function that of the last.
    """

    help: str
    output: type[Output] = Output
    usage: str = ""


COMMANDS = {
    "create": CommandEntry("Build an environment that fits this machine, and verify it."),
    "sync": CommandEntry("Build or update the environment of the project in this folder."),
    "verify": CommandEntry("Test whether an environment works: venv, conda or any Python."),
    "detect": CommandEntry("Show this machine: driver, GPUs, Pythons and CUDA libraries."),
    "resolve": CommandEntry("Show which builds fit a machine, and why newer ones do not."),
    "lock": CommandEntry("Write the lock file without building an environment."),
    "diagnose": CommandEntry("Find the cause of a GPU failure, and its fix."),
    "run": CommandEntry(
        "Run a program in an environment, and diagnose its failure.",
        output=OutputOfRun,
        usage="[OPTIONS] [ENV --] CMD [ARGS]...",
    ),
    "list": CommandEntry("List the environments that gpuenv made on this machine."),
    "remove": CommandEntry("Remove environments that gpuenv made."),
    "report": CommandEntry("Print an anonymous report to paste into an issue."),
    "init": CommandEntry("Write gpuenv.yaml for the project in this folder."),
    "add": CommandEntry("Add packages to the project and its environment."),
    "drop": CommandEntry("Remove packages from the project and its environment."),
    "repair": CommandEntry("Restore an environment to its lock."),
    "export": CommandEntry("Convert a lock for Docker, conda, Slurm and other tools."),
    "bundle": CommandEntry("Collect all files for an installation without a network."),
    "cache dir": CommandEntry("Print the folder of the cache."),
    "cache prune": CommandEntry("Remove files that were not used for a month."),
    "cache clean": CommandEntry("Remove all cached files."),
    "profiles list": CommandEntry("List the files of data, with their number of rows and date."),
    "profiles show": CommandEntry("Show the rows of one or more files, with their sources."),
    "profiles check": CommandEntry("Check profiles and list all mistakes."),
    "profiles update": CommandEntry("Read new releases from the index into your own profiles."),
}
"""The commands by the words that ask for them."""
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
    "add -r": "write the file under `requirements:` in gpuenv.yaml, then gpuenv sync, which locks and installs it",
}
"""Commands of uv, pixi, conda and poetry, and what to type in their place."""
SEVERAL_TARGETS = ("resolve", "lock", "bundle")
"""The commands that take --target for several machines."""
ALIASES = {"ls": "list", "rm": "remove"}
"""Other names of commands, which the help does not list."""


def load_command(name: str) -> tuple[type, Callable[..., Any]]:
    """Import a command. Return the dataclass of its options and its function."""
    words = name.split()
    module = importlib.import_module(f"...actions.{words[0]}", __name__)
    return getattr(module, f"{''.join(map(str.capitalize, words))}Options"), getattr(module, words[-1])


EXAMPLES: dict[str, tuple[tuple[str, str], ...]] = {
    "create": (
        ("gpuenv create", "build what gpuenv.yaml asks for in .venv"),
        ("gpuenv create --framework torch", "newest torch for this machine"),
        ("gpuenv create -f 'torch>=2.6' --with torchvision -r requirements.txt", "with other packages"),
        ("gpuenv create --framework jax --device cpu", "without a GPU"),
        ("gpuenv create --locked", "install exactly the lock"),
    ),
    "sync": (
        ("gpuenv sync", "bring .venv up to date with gpuenv.yaml"),
        ("gpuenv sync --locked", "install exactly the lock"),
    ),
    "verify": (
        ("gpuenv verify", "test .venv, or the active environment"),
        ("gpuenv verify /opt/conda/envs/train", "test an environment of another tool"),
        ("gpuenv verify --quick", "driver, CUDA and cuDNN in seconds"),
        ("gpuenv verify --deep --report verdict.html", "run all checks, and write an HTML page"),
    ),
    "detect": (
        ("gpuenv detect", "show this machine"),
        ("gpuenv detect --json > node.json", "describe this machine, for --target of other commands"),
        ("gpuenv detect --variant-properties", "list what installers compare wheel variants with"),
    ),
    "resolve": (
        ("gpuenv resolve --framework torch", "plan for this machine"),
        ("gpuenv resolve -f torch --driver 535.129.03 --gpu V100", "plan for another machine"),
        ("gpuenv resolve -f torch --driver 550.54.15 --gpu T4 --pip", "the same build with pip or uv"),
        ("gpuenv resolve -f torch --target node.json --explain", "show every build, and why it fits or not"),
    ),
    "lock": (
        ("gpuenv lock", "write or update pylock.toml"),
        ("gpuenv lock --check", "fail if the lock is out of date"),
        ("gpuenv lock --upgrade numpy", "upgrade one package"),
    ),
    "diagnose": (
        ("gpuenv diagnose train.log", "find the cause of a failure"),
        ("python train.py 2>&1 | gpuenv diagnose -", "read standard input"),
        ("gpuenv diagnose --env .venv", "verify an environment too"),
    ),
    "run": (
        ("gpuenv run python train.py", "in the project's .venv"),
        ("gpuenv run /opt/envs/a -- pytest -x", "in another environment"),
        ("gpuenv run python -c 'import torch'", "options after CMD belong to CMD"),
    ),
    "list": (("gpuenv list", "paths, frameworks, verdicts and sizes"),),
    "remove": (("gpuenv remove .venv --dry-run", "show what would be removed"),),
    "report": (
        ("gpuenv report", "describe this machine and .venv"),
        ("gpuenv report /opt/conda/envs/train", "describe another environment"),
    ),
    "init": (
        ("gpuenv init", "find frameworks in requirements and imports"),
        ("gpuenv init --framework torch", "name the framework"),
    ),
    "add": (
        ("gpuenv add einops", "newest release that fits"),
        ("gpuenv add 'transformers>=4.50' --dry-run", "show what would change"),
    ),
    "drop": (("gpuenv drop einops", "remove a package"),),
    "repair": (
        ("gpuenv repair", "restore .venv to its lock"),
        ("gpuenv repair --dry-run", "show what differs"),
    ),
    "export": (
        ("gpuenv export --format requirements -o requirements.txt", "for pip"),
        ("gpuenv export --format dockerfile -o Dockerfile", "for a container"),
        ("gpuenv export --format sbatch -o train.sbatch", "for Slurm"),
    ),
    "bundle": (
        ("gpuenv bundle torch-bundle --framework torch --target node.json", "for another machine"),
        ("gpuenv create --bundle torch-bundle", "install it there"),
    ),
    "profiles update": (("gpuenv profiles update torch", "add new releases of torch"),),
    "profiles show": (("gpuenv profiles show gpus", "GPUs and their capabilities"),),
}


def find_commands_with(flag: str) -> list[str]:
    """Return the commands that have an option."""
    return [
        name
        for name in COMMANDS
        if any(flag in option.flags for _, _, option in iterate_options(load_command(name)[0]))
    ]
