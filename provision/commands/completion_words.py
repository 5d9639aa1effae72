"""List words for shell completion: environments, versions, drivers, targets, GPUs, packages and export formats.

A shell asks on every key press, so no stage is imported. With a broken file nothing is completed; the command
itself reports the error.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import GpuenvError
from ..model import Profiles

if TYPE_CHECKING:
    from ..model import ProjectConfig


def environments() -> list[Path]:
    """Return the environments of the registry."""
    from ..environment import registry

    return registry.environments(prune=False)


def _profiles() -> Profiles:
    """Return the rows of the profiles, or none if a file is broken."""
    from ..request import load_profiles
    from ..request.shared_options import Choices

    try:
        return load_profiles.load_all(Choices())
    except GpuenvError:
        return Profiles()


def _config() -> ProjectConfig | None:
    """Return what the project's file says, or None if there is none or it is broken."""
    from ..project.config.digests_and_cached_config import read_cached_config
    from ..request.paths_of_environment_and_cache import get_cache_dir
    from ..request.project_folder import locate_project_file
    from ..request.shared_options import Choices

    try:
        file = locate_project_file()
        return read_cached_config(file, get_cache_dir(Choices())) if file else None
    except GpuenvError:
        return None


def _newest_first(versions: Iterable[str]) -> list[str]:
    from packaging.version import Version

    return sorted(versions, key=Version, reverse=True)


def versions(framework: str) -> list[tuple[str, str]]:
    """Return the versions of a framework in the profiles, newest first, each with its CUDA versions."""
    known: dict[str, set[str]] = {}
    for build in _profiles().builds:
        if build.framework == framework and not build.yanked:
            known.setdefault(build.version, set()).update({build.cuda} if build.cuda else ())
    return [
        (v, f"CUDA {', '.join(reversed(_newest_first(known[v])))}" if known[v] else "CPU")
        for v in _newest_first(known)
    ]


def cudas() -> list[tuple[str, str]]:
    """Return the CUDA versions of the builds, newest first, each with its frameworks."""
    known: dict[str, dict[str, None]] = {}
    for build in _profiles().builds:
        if build.cuda and not build.yanked:
            known.setdefault(build.cuda, {})[build.framework] = None
    return [(cuda, ", ".join(known[cuda])) for cuda in _newest_first(known)]


def pythons() -> list[str]:
    """Return the Pythons that the builds have wheels for, newest first."""
    return _newest_first({python for build in _profiles().builds for python in build.python})


def drivers() -> list[tuple[str, str, str]]:
    """Return the driver branches, newest first: the branch, its first release on Linux, and its CUDA."""
    known = _profiles()
    first = {release.cuda: release.linux for release in known.cuda}
    return [
        (row.branch, release, row.cuda)
        for row in reversed(known.branches)
        if (release := first.get(row.cuda))
    ]


def packages() -> list[str]:
    """Return the names of the packages that the project's file lists."""
    from ..project.config.edit_packages import parse_package_name

    config = _config()
    return [parse_package_name(text) for text in config.packages] if config else []


def targets() -> list[tuple[str, str]]:
    """Return the targets that the project names, each with a description."""
    config = _config()
    return [
        (name, " ".join(x for x in (t.driver or t.file, *t.gpus, t.platform) if x))
        for name, t in (config.targets if config else {}).items()
    ]


def gpus() -> list[tuple[str, str]]:
    """Return boards with their compute capability, and capabilities with their generation."""
    models = _profiles().gpus
    boards = [
        (board.removeprefix("GeForce "), f"capability {model.capability}")
        for model in models for board in model.boards
    ]  # fmt: skip
    return [*boards, *((model.capability, model.generation) for model in models)]


def cuda_devices() -> list[str]:
    """Return a CUDA device for each device file of the driver. The driver is not called."""
    device_files = [
        path for path in Path("/dev").glob("nvidia*") if path.name.removeprefix("nvidia").isdigit()
    ]
    return [f"cuda:{number}" for number in range(len(device_files))]


def formats() -> list[str]:
    """Return the formats of an export."""
    from .. import export

    return list(export.FORMATS)
