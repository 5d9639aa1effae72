"""List words for shell completion: environments, framework versions, targets, GPUs and export formats.

A shell asks on every key press, so no stage is imported. With a broken file nothing is completed; the command
itself reports the error.
"""

from __future__ import annotations

from pathlib import Path

from ..errors import GpuenvError


def environments() -> list[Path]:
    """Return the environments of the registry."""
    from ..environment import registry

    return registry.environments(prune=False)


def versions(framework: str) -> list[tuple[str, str]]:
    """Return the versions of a framework in the profiles, newest first, each with its CUDA versions."""
    from packaging.version import Version

    from ..request import load_profiles
    from ..request.shared_options import Choices

    known: dict[str, set[str]] = {}
    try:
        builds = load_profiles.load_all(Choices()).builds
    except GpuenvError:
        return []
    for build in builds:
        if build.framework == framework and not build.yanked:
            known.setdefault(build.version, set()).update({build.cuda} if build.cuda else ())
    ordered = sorted(known, key=Version, reverse=True)
    return [(v, f"CUDA {', '.join(sorted(known[v], key=Version))}" if known[v] else "CPU") for v in ordered]


def targets() -> list[tuple[str, str]]:
    """Return the targets that the project names, each with a description."""
    from ..project.config.digests_and_cached_config import read_cached_config
    from ..request.paths_of_environment_and_cache import get_cache_dir
    from ..request.project_folder import locate_project_file
    from ..request.shared_options import Choices

    try:
        file = locate_project_file()
        said = read_cached_config(file, get_cache_dir(Choices())).targets if file else {}
    except GpuenvError:
        return []
    return [
        (name, " ".join(x for x in (t.driver or t.file, *t.gpus, t.platform) if x))
        for name, t in said.items()
    ]


def gpus() -> list[tuple[str, str]]:
    """Return boards with their compute capability, and capabilities with their generation."""
    from ..request import load_profiles
    from ..request.shared_options import Choices

    try:
        models = load_profiles.load_all(Choices()).gpus
    except GpuenvError:
        return []
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
