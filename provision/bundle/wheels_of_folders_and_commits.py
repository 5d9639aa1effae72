"""Build wheels of the folders and commits in a lock, and read build requirements of source archives."""

from __future__ import annotations

import base64
import csv
import hashlib
import importlib.metadata
import io
import re
import shutil
import zipfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

import tomli
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from ..errors import BuildError, LockError
from ..index import bounded_archive, uv
from ..model import LockedPackage, PackageSources
from ..system import write_inside_folder
from ..system.untrusted import check_file_name, check_relative
from ..system.write_inside_folder import write_file
from . import WORK, not_writable

_BY_INSTALLERS = ("INSTALLER", "REQUESTED", "direct_url.json", "uv_cache.json", "uv_build.json", "RECORD")
_TIMEOUT = 3600.0
# The default of PEP 518
_PEP_518 = ("setuptools", "wheel")
_EPOCH = (2020, 1, 1, 0, 0, 0)


def wheel_of_unhashed(
    package: LockedPackage, line: str, folder: Path, python: str, sources: PackageSources
) -> str:
    """Build the wheel of a folder or commit, and return its file name. Raises BuildError.

    uv builds and installs `line` into a temporary folder, and the wheel contains the installed files. Raises LockError
    for compiled code.
    """
    work = folder.parent / WORK
    shutil.rmtree(work, ignore_errors=True)
    try:
        write_inside_folder.make_folder(work, root=work.parent)
        wanted = work / "requirements.txt"
        wanted.write_text(line.removeprefix("-e ") + "\n", encoding="utf-8")
        words = ["pip", "install", "--no-deps", "--target", str((work / "t").absolute()),
                 "--requirements", str(wanted.absolute())]  # fmt: skip
        done = uv.run_uv(words, sources, python=python, settings=uv.Settings(builds=True, timeout=_TIMEOUT))
        if not done.ok:
            raise BuildError(
                f"no wheel can be built from {line}", log=uv.redacted(done.stderr),
                hint="correct the error above, or add a wheel of it to --find-links",
            )  # fmt: skip
        installed = [d for d in importlib.metadata.distributions(path=[str(work / "t")])
                 if canonicalize_name(d.metadata["Name"]) == canonicalize_name(package.name)]  # fmt: skip
        return _remade(installed[0], folder)
    except OSError as error:
        raise not_writable(folder, error) from error
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _remade(dist: importlib.metadata.Distribution, folder: Path) -> str:
    """Rebuild the wheel of an installed distribution by its RECORD, without scripts that installers generate."""
    tags = re.findall(r"^Tag:\s*(\S+)", dist.read_text("WHEEL") or "", re.MULTILINE)
    if any(not t.endswith("-none-any") for t in tags):
        raise LockError(
            f"{dist.metadata['Name']} contains compiled code ({tags[0]}): its wheel may not work on another machine",
            hint="build its wheel for the target, and name the folder with --find-links",
        )
    scripts = {e.name for e in dist.entry_points if e.group in ("console_scripts", "gui_scripts")}
    name = re.sub(r"[-_.]+", "_", dist.metadata["Name"])
    stem, contents, info = f"{name}-{dist.version}", {}, f"{name}-{dist.version}.dist-info"
    for file in dist.files or ():
        place = PurePosixPath(str(file))
        if place.parts[0] != "..":  # files outside of site-packages, such as scripts, are skipped below
            check_relative(str(file))
        is_metadata = len(place.parts) == 2 and place.parts[0].endswith(".dist-info")
        info = place.parts[0] if is_metadata else info
        if (
            place.parts[0] in ("..", "bin")
            or place.suffix == ".pyc"
            or (is_metadata and place.name in _BY_INSTALLERS)
        ):
            if place.parts[0] == "bin" and place.name not in scripts:
                contents[f"{stem}.data/scripts/{place.name}"] = Path(str(file.locate())).read_bytes()
            continue
        contents[str(place)] = Path(str(file.locate())).read_bytes()
    tag = "-".join(".".join(dict.fromkeys(t.split("-")[i] for t in tags)) for i in range(3))
    return write(folder, f"{stem}-{tag}.whl", contents, info)


def build_requires(path: Path) -> tuple[str, ...]:
    """Return the build requirements in a source archive's pyproject.toml. Raises LockError for an oversized archive.

    Further requirements of the build backend are known only when it runs.
    """
    try:
        data = tomli.loads(bounded_archive.read_of_sdist(path, "pyproject.toml").decode())
        named = data["build-system"]["requires"]
        return tuple(str(Requirement(text)) for text in named)
    except (KeyError, TypeError, InvalidRequirement, *bounded_archive.DAMAGED):
        return _PEP_518


def write(folder: Path, name: str, contents: Mapping[str, bytes], info: str) -> str:
    """Write a wheel with its RECORD in `info`, and return its name. Raises BuildError, UnsafeNameError.

    The bytes are reproducible, so that a repeated bundle keeps the file.
    """
    rows = []
    check_file_name(name)
    buffer = io.BytesIO()
    try:
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as wheel:
            for inside, data in contents.items():
                digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
                rows.append((inside, f"sha256={digest}", len(data)))
                wheel.writestr(_member(inside), data)
            text = io.StringIO()
            csv.writer(text, lineterminator="\n").writerows([*rows, (f"{info}/RECORD", "", "")])
            wheel.writestr(_member(f"{info}/RECORD"), text.getvalue())
        write_file(folder / name, buffer.getvalue(), root=folder.parent)
    except OSError as error:
        raise not_writable(folder, error) from error
    return name


def _member(inside: str) -> zipfile.ZipInfo:
    member = zipfile.ZipInfo(inside, _EPOCH)
    member.compress_type = zipfile.ZIP_DEFLATED
    member.external_attr = (0o755 if ".data/scripts/" in inside else 0o644) << 16
    return member
