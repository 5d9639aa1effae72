"""`gpuenv init`: gpuenv.yaml, `make env`, a line of .gitignore."""

from __future__ import annotations

from pathlib import Path

import typer
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from .. import show
from ..commands.gpuenv_origin import InitFrom, recorded_source
from ..model import Event, Profiles
from ..request import facts
from ..request import options as o
from ..system import process


def init(
    framework: o.Frameworks = None,
    gpuenv_from: InitFrom = None,
    profiles: o.ProfileDirs = None,
    cache_dir: o.CacheDir = None,
    json: o.Json = False,
    quiet: o.Quiet = False,
    verbose: o.Verbose = False,
) -> int:
    """Write gpuenv.yaml, `make env` and .gitignore for the project in this folder."""
    from ..project.init.signs import Known
    from ..project.init.starting import initialise

    screen = show.Screen(json=json, quiet=quiet, verbose=verbose, environ=process.environ())
    known = facts.known(o.Choices(profiles=list(profiles or []), cache_dir=cache_dir))
    names = Known(
        companions=companions(known),
        stack=stack(known),
        imports={row.module: row for row in known.imports},
        conda={row.conda: row for row in known.conda_names},
    )
    folder = Path.cwd()
    made = initialise(
        folder, framework or (), known=names, environ=process.environ(),
        gpuenv_from=recorded_source(gpuenv_from, folder),
    )  # fmt: skip
    show.event(screen, Event(kind="next", stage="init", text="gpuenv create"))
    show.result(screen, made)
    return 0


def companions(known: Profiles) -> dict[str, str]:
    """Packages that come with a framework's build (torchvision) -> the framework."""
    return {
        canonicalize_name(Requirement(text).name): build.framework
        for build in known.builds
        for text in build.companions
    }


def stack(known: Profiles) -> frozenset[str]:
    """The distributions that the frameworks' builds and NVIDIA's toolkit bring along: the plan picks them."""
    texts = [text for build in known.builds for text in build.requires]
    texts += [text for release in known.toolkits for part in release.parts for text in part.split()[1:]]
    return frozenset(canonicalize_name(Requirement(text).name) for text in texts)


def register(app: typer.Typer) -> None:
    """Add the command `init`."""
    app.command()(init)
