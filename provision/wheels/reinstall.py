"""Removes wheels from an environment, and reinstalls wheels with changed files."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable, Collection, Iterable
from pathlib import Path

from ..environment.distributions import read_distributions
from ..environment.place import MARK
from ..errors import BuildError
from ..index import uv
from ..model import Event, Lock, LockedPackage, PackageSources, normalize_name
from .install import install_wheels
from .uv_install import UvInstall, get_python

_SETTINGS = uv.Settings(timeout=600)


def take_out(env: Path, names: Iterable[str]) -> None:
    """Remove distributions and their files. Raises BuildError."""
    names = list(names)
    if not names:
        return
    done = uv.run_uv(
        ["pip", "uninstall", *names], PackageSources(), python=get_python(env), settings=_SETTINGS
    )
    if not done.ok:
        raise BuildError(
            f"{', '.join(names)} could not be removed", log=uv.redacted(done.stderr),
            hint="rebuild the environment, which is unchanged: gpuenv create --recreate",
        )  # fmt: skip


# Six parameters: those of the managers, with the environment as the prefix.
def put_back(
    lock: Lock, wheels: tuple[LockedPackage, ...], env: Path, sources: PackageSources, emit: Callable[[Event], None], *,
    fresh: bool,
) -> None:  # fmt: skip
    """Reinstall some of a lock's wheels. Raises BuildError.

    `fresh` downloads them again and removes them from the installer's cache, whose files were changed.
    """
    if not wheels:
        return
    _remove_unrecorded(env, {normalize_name(p.name) for p in wheels})
    some = dataclasses.replace(lock, packages=wheels)
    if not fresh:
        install_wheels(UvInstall(some, env, sources, reinstall=True), emit)
        return
    cache = env / MARK / "fetched"
    fresh_sources = dataclasses.replace(sources, cache_dir=str(cache))
    install_wheels(UvInstall(some, env, fresh_sources, reinstall=True), emit)
    shutil.rmtree(cache, ignore_errors=True)
    uv.run_uv(["cache", "clean", *(p.name for p in wheels)], sources, python=None, settings=_SETTINGS)


def _remove_unrecorded(env: Path, names: Collection[str]) -> None:
    """Remove dist-info folders without a RECORD. An installer cannot remove their files, and would keep them beside
    new ones."""
    for name, several in read_distributions(env).items():
        for one in several if name in names else ():
            if not (one.folder / "RECORD").is_file():
                shutil.rmtree(one.folder)
