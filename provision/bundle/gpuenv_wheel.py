"""Build the wheel of the running gpuenv for a bundle, and list its requirements."""

from __future__ import annotations

import importlib.metadata
import json
from collections.abc import Iterable
from email.message import Message
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import tomli
from packaging.markers import Marker
from packaging.requirements import Requirement

from ..errors import BuildError
from .wheels_of_folders_and_commits import write

_WHEEL = "Wheel-Version: 1.0\nGenerator: gpuenv\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def requirements(*extras: str) -> tuple[str, ...]:
    """Return gpuenv's requirements with these extras and their markers. Raises BuildError."""
    result = []
    for text in _metadata(_distribution()).get_all("Requires-Dist", []):
        need = Requirement(text)
        if need.marker and "extra" in str(need.marker):
            if not any(need.marker.evaluate({"extra": e}) for e in extras):
                continue
            need.marker = None
        result.append(str(need))
    return tuple(result)


def requires_python() -> str:
    """Return the Pythons that gpuenv supports as a PEP 440 specifier. Raises BuildError."""
    return str(_metadata(_distribution())["Requires-Python"] or "")


def wheel(folder: Path, data: Path) -> str:
    """Write gpuenv's wheel into a folder, and return its file name. Raises BuildError.

    `data` is the folder of profiles, which is beside the package in a checkout, as is that of the released requirements.
    """
    dist = _distribution()
    package = Path(__file__).resolve().parent.parent
    files = {f"{package.name}/{p.relative_to(package).as_posix()}": p for p in _sources(package)}
    if not (package / "profiles_data").is_dir():
        files |= {f"{package.name}/profiles_data/{p.name}": p for p in sorted(data.glob("*.yaml"))}
        released = sorted((package.parent / "release").glob("requirements*.txt"))
        files |= {f"{package.name}/release/{p.name}": p for p in released}
    metadata = _metadata(dist)
    stem = f"gpuenv-{metadata['Version']}"
    for file in dist.files or ():
        if ".dist-info/licenses/" in str(file) or ".dist-info/sboms/" in str(file):
            files[f"{stem}.dist-info/{str(file).partition('.dist-info/')[2]}"] = Path(str(file.locate()))
    contents = {name: path.read_bytes() for name, path in files.items()}
    texts = {
        "METADATA": metadata.as_string(),
        "WHEEL": _WHEEL,
        "entry_points.txt": dist.read_text("entry_points.txt"),
    }
    contents |= {f"{stem}.dist-info/{name}": (text or "").encode() for name, text in texts.items()}
    return write(folder, f"{stem}-py3-none-any.whl", contents, f"{stem}.dist-info")


def _distribution() -> importlib.metadata.Distribution:
    try:
        return importlib.metadata.distribution("gpuenv")
    except importlib.metadata.PackageNotFoundError as error:
        raise BuildError(
            "this gpuenv is not installed, so its wheel cannot be built",
            hint="install gpuenv with pip from a checkout or a wheel",
        ) from error


def _sources(package: Path) -> Iterable[Path]:
    return sorted(
        p for p in package.rglob("*") if p.is_file() and "__pycache__" not in p.parts and p.suffix != ".pyc"
    )


def _metadata(dist: importlib.metadata.Distribution) -> Message:
    """Return METADATA. For a checkout, the requirements come from its current pyproject.toml."""
    import email

    metadata = email.message_from_string(dist.read_text("METADATA") or "")
    origin = json.loads(dist.read_text("direct_url.json") or "{}")
    if not origin.get("dir_info", {}).get("editable"):
        return metadata
    folder = Path(unquote(urlsplit(origin["url"]).path))
    project: dict[str, Any] = tomli.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for name in ("Requires-Dist", "Provides-Extra"):
        del metadata[name]
    for text in project["dependencies"]:
        metadata["Requires-Dist"] = text
    for extra, texts in project.get("optional-dependencies", {}).items():
        metadata["Provides-Extra"] = extra
        for text in texts:
            need = Requirement(text)
            with_extra = f'extra == "{extra}"'
            need.marker = Marker(f"({need.marker}) and {with_extra}" if need.marker else with_extra)
            metadata["Requires-Dist"] = str(need)
    return metadata
