"""The commands `gpuenv profiles list|show|check|update`."""

from __future__ import annotations

from pathlib import Path

import typer

from .. import show
from ..request import options as o
from ..request import paths as where
from ..system import process

app = typer.Typer(
    name="profiles",
    help="What is known of drivers, GPUs, cuDNN and framework builds.",
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _screen(json: bool, quiet: bool, verbose: bool) -> show.Screen:
    return show.Screen(json=json, quiet=quiet, verbose=verbose, environ=process.environ())


@app.command("list")
def list_(
    profiles: o.ProfileDirs = None, json: o.Json = False, quiet: o.Quiet = False, verbose: o.Verbose = False
) -> int:
    """The tables: how many rows, from where, read when."""
    from ..commands import knowing

    show.result(_screen(json, quiet, verbose), knowing.listed(profiles or []))
    return 0


@app.command("show")
def show_(
    names: list[str] | None = typer.Argument(None, help="Profile files, as torch; all if none is named."),
    profiles: o.ProfileDirs = None,
    json: o.Json = False,
    quiet: o.Quiet = False,
    verbose: o.Verbose = False,
) -> int:
    """The rows of profile files."""
    from ..commands import knowing

    show.result(_screen(json, quiet, verbose), knowing.shown(names or [], profiles or []))
    return 0


@app.command()
def check(
    folders: list[Path] | None = typer.Argument(None, help="Folders; the shipped one and yours if none."),
    profiles: o.ProfileDirs = None,
    json: o.Json = False,
    quiet: o.Quiet = False,
    verbose: o.Verbose = False,
) -> int:
    """Whether profiles are valid: file, row and key of every mistake at once."""
    from ..commands import knowing

    show.result(_screen(json, quiet, verbose), knowing.checked(folders or [], profiles or []))
    return 0


@app.command()
def update(
    names: list[str] | None = typer.Argument(None, help="torch, tensorflow, jax, cudnn; all if none."),
    index: str | None = typer.Option(None, "--index", help="A simple index, if not pip's own."),
    profiles: Path | None = typer.Option(None, "--profiles", help="The overlay to write, if not yours."),
    cache_dir: o.CacheDir = None,
    json: o.Json = False,
    quiet: o.Quiet = False,
    verbose: o.Verbose = False,
) -> int:
    """Read the index for releases that are not known yet, into your own overlay."""
    from ..commands import knowing

    cache = where.cache_dir(o.Choices(cache_dir=cache_dir))
    screen = _screen(json, quiet, verbose)
    show.result(screen, knowing.updated(show.emitter(screen), names or [], index, profiles, cache))
    return 0


def register(main: typer.Typer) -> None:
    """Add the commands under `profiles`."""
    main.add_typer(app)
