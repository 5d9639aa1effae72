"""`gpuenv repair`: what was replaced, removed or changed in an environment, put back from its lock."""

from __future__ import annotations

from pathlib import Path

import typer

from .. import show
from ..request import options as o
from ..system import process
from . import exit_codes


def repair(
    env: o.Env = Path(".venv"),
    verify: bool = typer.Option(True, "--verify/--no-verify", help="Verify afterwards / not at all."),
    deep: bool = typer.Option(False, "--deep", help="Hash every file, not only those written since."),
    find_links: o.FindLinks = None,
    channel: o.Channels = None,
    offline: o.Offline = False,
    profiles: o.ProfileDirs = None,
    cache_dir: o.CacheDir = None,
    json: o.Json = False,
    quiet: o.Quiet = False,
    verbose: o.Verbose = False,
) -> int:
    """Put back what was replaced, removed or changed in an environment, from its lock."""
    from ..commands import restoring

    given = locals()
    screen = show.Screen(json=json, quiet=quiet, verbose=verbose, environ=process.environ())
    done = restoring.restore(show.emitter(screen), env, o.choices(given), proving=verify, deep=deep)
    show.result(screen, done)
    return exit_codes.of(done)


def register(app: typer.Typer) -> None:
    """Add the command `repair`."""
    app.command()(repair)
