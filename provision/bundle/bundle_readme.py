"""What a person reads who finds a bundle on a stick."""

from __future__ import annotations

from ..model import Bundle


def text(bundle: Bundle) -> str:
    """README.txt: the two commands, and what they need."""
    target = bundle.target
    gpus = ", ".join(f"{g.name or 'GPU'} ({g.capability})" for g in target.gpus)
    meant = [
        target.platform,
        *([f"driver {target.driver}"] if target.driver else []),
        *([gpus] if gpus else []),
    ]
    lines = [
        f"{', '.join(bundle.frameworks)} for {bundle.device}, for machines without a network:",
        f"{', '.join(meant)}, Python {bundle.python}. Made by gpuenv {bundle.gpuenv}.",
        "",
        *_commands(bundle),
        "",
        "Nothing is taken from a network, and every file is held against gpuenv-bundle.json first.",
    ]
    if bundle.archive:
        version = bundle.archive.version
        said = f"Python {version} is in it and is unpacked where the machine has no Python {_minor(version)}."
        lines += ["", said, *_without_python(bundle)]
    else:
        lines += ["", f"There is no Python in it: the machine needs Python {bundle.python}."]
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
        "ENV is where the environment goes.",
    ]


def _without_python(bundle: Bundle) -> list[str]:
    assert bundle.archive
    major, minor = (int(n) for n in bundle.archive.version.split(".")[:2])
    if bundle.target.platform.startswith("windows") or (major, minor) < (3, 10):
        return []
    return ["Without any Python there: tar xzf the archive, and take python/bin/python3 for python3 above."]


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])
