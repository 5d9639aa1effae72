"""`gpuenv add PKG...`; what it needs is imported when it runs."""

from __future__ import annotations

from pathlib import Path

import typer

from .. import show
from ..request import options as o
from ..system import process
from . import completing, exit_codes

_DEFAULT_ENV = Path(".venv")


def add(
    packages: list[str] = typer.Argument(..., metavar="PKG...", help="Requirements, as 'einops>=0.8'."),
    env: Path = typer.Option(
        _DEFAULT_ENV, "--env", help="Path of the environment.", autocompletion=completing.environments
    ),
    verify: bool | None = typer.Option(None, "--verify/--no-verify", help="Verify again / not at all."),
    find_links: o.FindLinks = None,
    offline: o.Offline = False,
    no_build: o.NoBuild = False,
    only_binary: o.OnlyBinary = None,
    exclude_newer: o.ExcludeNewer = None,
    exclude_newer_except: o.ExcludeNewerExcept = None,
    profiles: o.ProfileDirs = None,
    cache_dir: o.CacheDir = None,
    json: o.Json = False,
    quiet: o.Quiet = False,
    verbose: o.Verbose = False,
) -> int:
    """A package more: into gpuenv.yaml, the lock and the environment, under the plan."""
    from ..commands import added

    screen = show.Screen(json=json, quiet=quiet, verbose=verbose, environ=process.environ())
    base = o.Choices(
        find_links=list(find_links or []), offline=offline, no_build=no_build,
        only_binary=list(only_binary or []), exclude_newer=exclude_newer,
        exclude_newer_except=list(exclude_newer_except or []), profiles=list(profiles or []), cache_dir=cache_dir,
    )  # fmt: skip
    made = added.add(show.emitter(screen), packages, env, base, verify=verify)
    show.result(screen, made)
    return exit_codes.of(made)


def register(app: typer.Typer) -> None:
    app.command("add")(add)
