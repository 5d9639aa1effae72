"""Writes the README.txt of a bundle."""

from __future__ import annotations

from ..model import Bundle


def text(bundle: Bundle) -> str:
    """Return README.txt with the commands and their requirements."""
    target = bundle.target
    gpus = ", ".join(f"{g.name or 'GPU'} ({g.capability})" for g in target.gpus)
    meant = [
        target.platform,
        *([f"driver {target.driver}"] if target.driver else []),
        *([gpus] if gpus else []),
    ]
    lines = [
        f"{', '.join(bundle.frameworks)} for {bundle.device}, for machines without a network:",
        f"{', '.join(meant)}, Python {bundle.python}. Created by gpuenv {bundle.gpuenv}.",
        "",
        *_commands(bundle),
        "",
        "The commands use no network, and compare every file with gpuenv-bundle.json first.",
    ]
    if bundle.archive:
        version = bundle.archive.version
        said = f"Python {version} is included, and is used if the machine has no Python {_minor(version)}."
        lines += ["", said, *_without_python(bundle)]
    else:
        lines += ["", f"Python is not included: the machine needs Python {bundle.python}."]
    return "\n".join([*lines, *(f"Note: {n}." for n in bundle.notes)]) + "\n"


def _commands(bundle: Bundle) -> list[str]:
    windows = bundle.target.platform.startswith("windows")
    python, folder = ("py", r"gpuenv-tool\Scripts") if windows else ("python3", "gpuenv-tool/bin")
    slash = "\\" if windows else "/"
    wanted = "'gpuenv[conda]'" if bundle.manager == "conda" else "gpuenv"
    return [
        "In this folder, with any Python 3.10 or newer:",
        "",
        f"  {python} -m venv gpuenv-tool && {folder}{slash}pip install --no-index --find-links gpuenv {wanted}",
        f"  {folder}{slash}gpuenv create ENV --bundle .",
        "",
        "ENV is the path of the new environment.",
    ]


def _without_python(bundle: Bundle) -> list[str]:
    assert bundle.archive
    major, minor = (int(n) for n in bundle.archive.version.split(".")[:2])
    if bundle.target.platform.startswith("windows") or (major, minor) < (3, 10):
        return []
    return [
        "Without any Python on the machine, unpack the archive with tar xzf, and use python/bin/python3 instead of python3."
    ]


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])
