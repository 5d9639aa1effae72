"""`gpuenv report [ENV]`; what it needs is imported when it runs."""

from __future__ import annotations

from pathlib import Path

import typer

from .. import show
from ..request import options as o
from ..system import process
from . import completing


def report(
    env: Path | None = typer.Argument(
        None,
        metavar="[ENV]",
        help="Path of the environment. [default: .venv]",
        autocompletion=completing.environments,
    ),
    json: o.Json = False,
    quiet: o.Quiet = False,
    verbose: o.Verbose = False,
) -> int:
    """One text to paste into an issue, without names, addresses and credentials."""
    from ..commands.reported import reported

    screen = show.Screen(json=json, quiet=quiet, verbose=verbose, environ=process.environ())
    told = reported(env)
    show.result(screen, told)
    if told.hidden:
        kinds = ", ".join(told.hidden)
        for row in screen.fold(f"note: hidden in it: {kinds}; read it before you paste it", first=""):
            screen.say(row)
    return 0


def register(app: typer.Typer) -> None:
    """Add the command `report`."""
    app.command()(report)
