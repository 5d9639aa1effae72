"""Write wheels: of the folders and commits in a lock, and of the running gpuenv."""

from __future__ import annotations

import csv
import importlib.metadata
import io
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from .. import profiles
from ..environment.distributions import format_sha256
from ..errors import BuildError, LockError
from ..index import archives, uv
from ..model import LockedPackage, PackageSources
from ..system.files import write_file, writing
from ..system.redaction import clean
from ..system.toml import tomllib
from ..system.untrusted import check_file_name, check_relative
from . import work_folder

_BY_INSTALLERS = ("INSTALLER", "REQUESTED", "direct_url.json", "uv_cache.json", "uv_build.json", "RECORD")
_TIMEOUT = 3600.0
# The default of PEP 518
_PEP_518 = ("setuptools", "wheel")
_EPOCH = (2020, 1, 1, 0, 0, 0)


def build_unhashed(
    package: LockedPackage, line: str, folder: Path, python: str, sources: PackageSources
) -> str:
    """Build the wheel of a folder or commit, and return its file name. Raises BuildError.

    uv builds and installs `line` into a temporary folder, and the wheel contains the installed files. Raises LockError
    for compiled code.
    """
    with work_folder(folder.parent) as work:
        wanted = work / "requirements.txt"
        wanted.write_text(line.removeprefix("-e ") + "\n", encoding="utf-8")
        words = ["pip", "install", "--no-deps", "--target", str((work / "t").absolute()),
                 "--requirements", str(wanted.absolute())]  # fmt: skip
        finished = uv.run_uv(
            words, sources, python=python, settings=uv.Settings(builds=True, timeout=_TIMEOUT)
        )
        if not finished.ok:
            raise BuildError(
                f"no wheel can be built from {line}", log=clean(finished.stderr),
                hint="correct the error above, or add a wheel of it to --find-links",
            )  # fmt: skip
        installed = [d for d in importlib.metadata.distributions(path=[str(work / "t")])
                 if canonicalize_name(d.metadata["Name"]) == canonicalize_name(package.name)]  # fmt: skip
        return _rebuild_wheel(installed[0], folder)


def _rebuild_wheel(dist: importlib.metadata.Distribution, folder: Path) -> str:
    """Rebuild the wheel of an installed distribution by its RECORD, without scripts that installers generate."""
    tags = re.findall(r"^Tag:\s*(\S+)", dist.read_text("WHEEL") or "", re.MULTILINE)
    if any(not t.endswith("-none-any") for t in tags):
        raise LockError(
            f"{dist.metadata['Name']} contains compiled code ({tags[0]}): its wheel may not work on another machine",
            hint="build its wheel for the target, and name the folder with --find-links",
        )
    scripts = {e.name for e in dist.entry_points if e.group in ("console_scripts", "gui_scripts")}
    name = re.sub(r"[-_.]+", "_", dist.metadata["Name"])
    stem, contents = f"{name}-{dist.version}", {}
    info = f"{stem}.dist-info"
    for file in dist.files or ():
        inside = PurePosixPath(str(file))
        top = inside.parts[0]
        if top == "..":  # outside of site-packages
            continue
        check_relative(str(file))
        is_metadata = len(inside.parts) == 2 and top.endswith(".dist-info")
        info = top if is_metadata else info
        target = f"{stem}.data/scripts/{inside.name}" if top == "bin" else str(inside)
        made_by_installer = inside.name in (
            scripts if top == "bin" else _BY_INSTALLERS if is_metadata else ()
        )
        if inside.suffix != ".pyc" and not made_by_installer:
            contents[target] = Path(str(file.locate())).read_bytes()
    tag = "-".join(".".join(dict.fromkeys(t.split("-")[i] for t in tags)) for i in range(3))
    return write(folder, f"{stem}-{tag}.whl", contents, info)


def build_requires(path: Path) -> tuple[str, ...]:
    """Return the build requirements in a source archive's pyproject.toml. Raises LockError for an oversized archive.

    Further requirements of the build backend are known only when it runs.
    """
    try:
        text = archives.list_sdist(path, "pyproject.toml".__eq__)["pyproject.toml"] or b""
        data = tomllib.loads(text.decode())
        named = data["build-system"]["requires"]
        return tuple(str(Requirement(text)) for text in named)
    except (KeyError, TypeError, InvalidRequirement, *archives.DAMAGED):
        return _PEP_518


def write(folder: Path, name: str, contents: Mapping[str, bytes], info: str) -> str:
    """Write a wheel with its RECORD in `info`, and return its name. Raises BuildError, UnsafeNameError.

    The bytes are reproducible, so that a repeated bundle keeps the file.
    """
    rows = []
    check_file_name(name)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as wheel:
        for inside, data in contents.items():
            rows.append((inside, format_sha256(data), len(data)))
            wheel.writestr(_make_member(inside), data)
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([*rows, (f"{info}/RECORD", "", "")])
        wheel.writestr(_make_member(f"{info}/RECORD"), text.getvalue())
    with writing(folder):
        write_file(folder / name, buffer.getvalue(), root=folder.parent)
    return name


def _make_member(inside: str) -> zipfile.ZipInfo:
    member = zipfile.ZipInfo(inside, _EPOCH)
    member.compress_type = zipfile.ZIP_DEFLATED
    member.external_attr = 0o644 << 16  # an installer makes scripts executable
    return member


_WHEEL = "Wheel-Version: 1.0\nGenerator: gpuenv\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def own_requirements(*extras: str) -> tuple[str, ...]:
    """Return gpuenv's requirements with these extras and their markers."""
    result = []
    for text in importlib.metadata.requires("gpuenv") or ():
        need = Requirement(text)
        if need.marker and "extra" in str(need.marker):
            if not any(need.marker.evaluate({"extra": e}) for e in extras):
                continue
            need.marker = None
        result.append(str(need))
    return tuple(result)


def own_pythons() -> str:
    """Return the Pythons that gpuenv supports as a PEP 440 specifier."""
    return str(importlib.metadata.metadata("gpuenv")["Requires-Python"])


def own_wheel(folder: Path) -> str:
    """Write gpuenv's wheel into a folder, and return its file name. Raises BuildError.

    In a checkout the profiles and the released requirements are beside the package.
    """
    dist = importlib.metadata.distribution("gpuenv")
    package = Path(__file__).resolve().parent.parent
    sources = (p for p in sorted(package.rglob("*")) if p.is_file() and "__pycache__" not in p.parts)
    files = {f"{package.name}/{p.relative_to(package).as_posix()}": p for p in sources if p.suffix != ".pyc"}
    if not (package / "profiles_data").is_dir():
        files |= {
            f"{package.name}/profiles_data/{p.name}": p for p in sorted(profiles.directory().glob("*.yaml"))
        }
        released = sorted((package.parent / "release").glob("requirements*.txt"))
        files |= {f"{package.name}/release/{p.name}": p for p in released}
    stem = f"gpuenv-{dist.version}"
    for file in dist.files or ():
        if ".dist-info/licenses/" in str(file) or ".dist-info/sboms/" in str(file):
            files[f"{stem}.dist-info/{str(file).partition('.dist-info/')[2]}"] = Path(str(file.locate()))
    contents = {name: path.read_bytes() for name, path in files.items()}
    texts = {name: dist.read_text(name) or "" for name in ("METADATA", "entry_points.txt")}
    contents |= {
        f"{stem}.dist-info/{name}": text.encode() for name, text in (texts | {"WHEEL": _WHEEL}).items()
    }
    return write(folder, f"{stem}-py3-none-any.whl", contents, f"{stem}.dist-info")
