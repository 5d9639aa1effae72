"""`gpuenv list` and `gpuenv remove`; what they need is imported when they run."""

from __future__ import annotations

from pathlib import Path

import typer

from .. import show
from ..request import options as o
from ..system import process
from . import completing


def list_(json: o.Json = False, quiet: o.Quiet = False, verbose: o.Verbose = False) -> int:
    """The environments that gpuenv made on this machine."""
    from ..commands.listed import listed
    from ..environment import registry
    from ..model import Listing

    screen = show.Screen(json=json, quiet=quiet, verbose=verbose, environ=process.environ())
    show.result(screen, Listing(environments=listed(registry.environments())))
    return 0


def remove(
    envs: list[Path] = typer.Argument(
        metavar="ENV...", help="Environments that gpuenv made.", autocompletion=completing.environments
    ),
    cache_dir: o.CacheDir = None,  # noqa: ARG001  # the lock was there once: scripts may pass it
    json: o.Json = False,
    quiet: o.Quiet = False,
    verbose: o.Verbose = False,
) -> int:
    """Remove environments that gpuenv made; anything else is left alone."""
    from ..commands import removing

    screen = show.Screen(json=json, quiet=quiet, verbose=verbose, environ=process.environ())
    show.result(screen, removing.remove(show.emitter(screen), envs))
    return 0


def register(app: typer.Typer) -> None:
    """Add the commands `list` and `remove`."""
    app.command(name="list")(list_)
    app.command()(remove)
