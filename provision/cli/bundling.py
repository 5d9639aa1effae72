"""`gpuenv bundle`: the command."""

from __future__ import annotations

from pathlib import Path

import typer

from .. import show
from ..request import options as o
from ..system import process
from . import exit_codes


def bundle_(
    folder: Path = typer.Argument(
        ..., metavar="DIR", help="Where the bundle goes: a new folder, or a bundle."
    ),
    framework: o.Frameworks = None,
    with_: o.With = None,
    requirement: o.Requirements = None,
    project: o.ProjectDir = None,
    extra: o.Extras = None,
    group: o.Groups = None,
    lock: Path | None = typer.Option(None, "--lock", help="The lock to bundle, in place of a fresh one."),
    force: o.Force = False,
    allow_md5: o.AllowMd5 = False,
    target: o.TargetFile = None,
    driver: o.Driver = None,
    driver_os: o.DriverOs = None,
    gpu: o.GpuNames = None,
    gpus: o.GpuIndexes = None,
    platform: o.Platform = None,
    glibc: o.Glibc = None,
    python: o.PythonVersion = None,
    cuda: o.Cuda = None,
    index: o.Index = "auto",
    manager: o.ManagerName = "venv",
    channel: o.Channels = None,
    device: o.DeviceName = "auto",
    find_links: o.FindLinks = None,
    offline: o.Offline = False,
    pre: o.Pre = False,
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
    """Everything that a machine without a network needs, in one folder."""
    from ..commands import bundle_lock, bundle_making

    given = locals()
    screen = show.Screen(json=json, quiet=quiet, verbose=verbose, environ=process.environ())
    wanted = bundle_lock.Given(file=lock, allow_md5=allow_md5, force=force)
    made = bundle_making.make(show.emitter(screen), folder, o.choices(given), wanted)
    show.result(screen, made)
    return exit_codes.of(made)


def register(app: typer.Typer) -> None:
    """Add the command `bundle`."""
    app.command(name="bundle")(bundle_)
