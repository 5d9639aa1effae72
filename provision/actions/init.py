"""`gpuenv init`: write gpuenv.yaml, `make env` and a line of .gitignore."""

from __future__ import annotations

from pathlib import Path

from ..config.options import Choices
from ..model import VENV_LOCK, Emit, Event, InitResult, drop_event
from ..model.declare import group, option
from ..model.values import Value
from ..system import process


class InitOptions(Value):
    """The options of `init`."""

    gpuenv_from: str | None = option(
        None, metavar="SOURCE",
        help="Address, wheel or checkout that `make env` installs gpuenv from. By default the source of this gpuenv.",
    )  # fmt: skip
    choices: Choices = group(Choices, "framework", "profiles", "cache_dir", "trust_project")


def init(options: InitOptions, emit: Emit = drop_event) -> InitResult:
    """Write gpuenv.yaml, `make env` and .gitignore for the project in this folder."""
    from ..config import rows
    from ..config.write import write_project_files
    from ..export.source import choose_recorded_source

    folder = Path.cwd()
    result = write_project_files(
        folder, options.choices.framework, known=rows.load(options.choices), environ=process.environ(),
        gpuenv_from=choose_recorded_source(options.gpuenv_from, folder),
    )  # fmt: skip
    step = "gpuenv create"
    if not (folder / VENV_LOCK).exists():
        step = f"gpuenv lock  # commit {VENV_LOCK} with the files above, then: gpuenv create"
    emit(Event("next", "init", step))
    return result
