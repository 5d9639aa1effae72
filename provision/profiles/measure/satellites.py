"""Measure packages that are compiled against a framework or CUDA: releases of the index, and installed ones.

There is one row for the newest patch of each release series. A release without wheels is read from its source archive.
"""

from __future__ import annotations

import functools
import re
import tempfile
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import IO, Any

from packaging.specifiers import SpecifierSet
from packaging.utils import InvalidSdistFilename, canonicalize_name, parse_sdist_filename
from packaging.version import InvalidVersion, Version

from ... import model
from ...errors import LockError
from ...index.archives import DAMAGED, list_sdist
from ...index.simple_api import File
from ...model.values import Value
from ...system.elf import ElfError, read_elf
from ...system.kernels import FatBinaries, from_binaries
from ...system.versions import major, numbers
from .libraries import (
    LIBRARY,
    NVIDIA,
    OTHER_GPU,
    abi_of,
    cuda_majors,
    cudnn_majors,
    find_framework,
    measure_files,
    measure_libraries,
    parse_cuda_name,
)
from .reader import (
    Documents,
    Reader,
    WheelFile,
    allowed_pythons,
    list_required,
    pythons,
    read_header,
    representative,
)

Row = dict[str, Any]

OLDEST = "2024-11-22"
"""The day from which on releases are measured; of a package without any since then, the newest one is."""
STEP = 64 << 20
"""Bytes of one request: nearly the whole wheel is read."""
PLATFORMS = ("linux-x86_64", "linux-aarch64")
_PYTHON = "3.12"
"""The Python for which markers of requirements are judged, where a release allows it."""


# --- releases of the index ----------------------------------------------------------------------------


def satellite_rows(reader: Reader, documents: Documents) -> list[Row]:
    """Return the rows of every package in the table `satellite_packages`, platform by platform. One wheel is unpacked
    at a time."""
    rows = []
    for platform in PLATFORMS:
        for named in documents.get("satellite_packages", ()):
            package, parts = named["package"], int(named.get("parts", "2"))
            if reader.only is not None and package not in {name for name, _, _ in reader.only}:
                continue
            for version, files in newest_of_series(reader, package, parts, platform).items():
                if reader.is_requested(version, platform, package):
                    try:
                        rows += _release_rows(reader, package, version, platform, files, documents)
                    except ValueError as error:
                        reader.add_problem(f"{package} {version}: {error}")
    return rows


def newest_of_series(
    reader: Reader, package: str, parts: int, platform: str
) -> dict[Version, list[WheelFile] | File]:
    """Return the newest final release of each series since `OLDEST`, newest first, with its wheels.

    If no release of the series has wheels for the platform, return its source archive.
    """
    wheels, archives = defaultdict(list), {}
    for wheel in reader.wheels(package):
        if wheel.platform in (platform, "any") and _is_final(wheel.version, wheel.file):
            wheels[wheel.version].append(wheel)
    for file in reader.files(package):
        try:
            version = parse_sdist_filename(file.name)[1]
        except (InvalidSdistFilename, InvalidVersion):
            continue
        if _is_final(version, file):
            archives[version] = file
    by_series: dict[tuple[int, ...], Version] = {}
    for versions in (archives, wheels):
        by_series |= {(*v.release, 0, 0, 0)[:parts]: v for v in sorted(versions)}
    found = {v: wheels.get(v) or archives[v] for v in by_series.values()}
    days = {}
    for version, files in found.items():
        listed = [files] if isinstance(files, File) else [w.file for w in files]
        uploaded = [f.uploaded for f in listed]
        if None in uploaded:
            reader.add_problem(f"{listed[0].name}: the index does not state when it was uploaded")
        days[version] = min((day[:10] for day in uploaded if day), default="")
    recent = [v for v in days if days[v] >= OLDEST] or sorted(days)[-1:]
    return {v: found[v] for v in sorted(recent, reverse=True)}


def _is_final(version: Version, file: File) -> bool:
    """Return whether a file belongs to a final release that was not yanked."""
    return not (version.is_prerelease or version.local or file.yanked is not None)


def _release_rows(
    reader: Reader,
    package: str,
    version: Version,
    platform: str,
    files: list[WheelFile] | File,
    documents: Documents,
) -> list[Row]:
    row: Row = {"package": package, "version": str(version), "platform": platform}
    if isinstance(files, File):
        fact = reader.read_cached(files, "source", functools.partial(_read_source, reader, files))
        parts = [{"form": fact["form"]}] if fact else []
    else:
        wheels = [w for w in files if w.platform == platform] or files
        wheel = representative(wheels)
        fact = reader.facts(wheel, "satellite", measure_libraries, STEP)
        optional = {
            name for d in documents.get("satellite_optional", ()) if d["package"] == package
            for name in d.get("libraries", "").split()
        }  # fmt: skip
        parts = wheel_rows(fact, package, wheel.glibc, optional) if fact else []
        row |= {"form": "wheel", "pythons": " ".join(_pythons_of(wheels, fact))} if fact else {}
    rows = [row | part for part in parts]
    for one in rows:
        assert fact is not None
        one |= {"sha256": fact["sha256"], "bytes": str(fact["size"])}
        _add_framework(one, fact, documents)
    return rows


def _pythons_of(wheels: Sequence[WheelFile], fact: Row) -> list[str]:
    """Return the minor versions that the wheels support. "3.10+" is a wheel for 3.10 and all later ones."""
    exact = pythons(wheels)
    if all(w.python for w in wheels):
        return exact
    tags = [m for w in wheels if not w.python for m in re.findall(r"-(?:cp|py)3(\d+)(?=[-.])", w.file.name)]
    tagged = f"3.{min(map(int, tags), default=8)}"
    first = next((m for m in _list_pythons(fact) if numbers(m) >= numbers(tagged)), tagged)
    return [p for p in exact if numbers(p) < numbers(first)] + [f"{first}+"]


def _list_pythons(fact: Row) -> list[str]:
    return allowed_pythons(fact) or [_PYTHON]


# --- what the libraries of a wheel say ----------------------------------------------------------------

_ALTERNATIVE = re.compile(r".*_cuda(\d\d)(\d)(?:_\w+)?\.so")


def wheel_rows(
    fact: Row, package: str, glibc: str | None = None, optional: Collection[str] = ()
) -> list[Row]:
    """Return what the libraries of a wheel add to its row, once for each CUDA release with a file of its own.

    `glibc` is that of its tag. `optional` are NVIDIA's libraries (names without "lib" and ".so") that only optional
    modules of the package need. Raise ValueError if the libraries contradict each other.
    """
    shared: list[Row] = []
    by_release: dict[str | None, list[Row]] = defaultdict(list)
    for name, library in fact["libraries"].items():
        other = any(OTHER_GPU.fullmatch(needed) for needed in library["needed"])
        if other or NVIDIA.fullmatch(name.rsplit("/", 1)[-1]):
            continue  # a copy of NVIDIA's, or made for other vendors' GPUs
        match = _ALTERNATIVE.fullmatch(name)
        (by_release[f"{match[1]}.{match[2]}"] if match else shared).append(library)
    here = {n.rsplit("/", 1)[-1] for n in fact["libraries"]}
    rows = []
    for release, own in (by_release or {None: []}).items():
        row = _library_row([*shared, *own], here, package, optional)
        if release and row.get("cuda") != major(release):
            raise ValueError(f"its library for CUDA {release} needs CUDA {row.get('cuda', 'nothing')}")
        row |= {"cuda": release} if release else {}
        if glibcs := [g for g in (glibc, *(lib["glibc"] for lib in (*shared, *own))) if g]:
            row["glibc"] = max(glibcs, key=numbers)
        rows.append(row)
    return rows


def _library_row(libraries: list[Row], here: set[str], package: str, optional: Collection[str]) -> Row:
    symbols = [s for lib in libraries for s in lib["symbols"]]
    kinds = frozenset((kind, arch) for lib in libraries for kind, arch in lib["kernels"])
    needed = {n for lib in libraries for n in lib["needed"]} - here - {lib["soname"] for lib in libraries}
    needs = [n for n in sorted(needed) if (m := NVIDIA.fullmatch(n)) and m["stem"] not in optional]
    opened = {n for lib in libraries for n in lib["opened"]} - here
    row = {
        "needs": needs, "abi": abi_of(symbols), "kernels": from_binaries(FatBinaries(kinds, 0, 0)),
        **_find_cuda(needs, opened, package),
    }  # fmt: skip
    for names, by in ((opened, "dlopen"), (needs, "needed")):
        if len(majors := cudnn_majors(names)) == 1:
            row |= {"cudnn": f"=={majors.pop()}.*", "cudnn_by": by}
    return {k: v for k, v in row.items() if v}


def _find_cuda(needs: Iterable[str], opened: Iterable[str], package: str) -> dict[str, str]:
    """Return the CUDA major version: from needs, else from the package's name, else from names in the code."""
    needed = cuda_majors(needs)
    if len(needed) > 1:
        raise ValueError(f"its libraries need CUDA {' and '.join(sorted(needed))}")
    if needed:
        return {"cuda": needed.pop(), "cuda_by": "needed"}
    if named := parse_cuda_name(package):
        return {"cuda": named, "cuda_by": "name"}
    majors = cuda_majors(opened)
    return {"cuda": majors.pop(), "cuda_by": "dlopen"} if len(majors) == 1 else {}


def _add_framework(row: Row, fact: Row, documents: Documents) -> None:
    """Add the framework that metadata or a document states, and the extras that a document names."""
    package, version = row["package"], row["version"]
    documented = [
        d for d in documents.get("satellite_frameworks", ())
        if d["package"] == package and f"{version}.".startswith(f"{d['version']}.")
    ]  # fmt: skip
    if documented:
        row |= {"built_for": documented[0]["built_for"], "built_by": "document"}
    elif stated := framework_of(fact, row["platform"]):
        row["built_for"] = stated
    if cudas := [d["cuda"] for d in documented if "cuda" in d and row.get("cuda")]:
        row["cuda"] = cudas[0]
    for extra in documents.get("satellite_extras", ()):
        if extra["package"] == package and SpecifierSet(extra["versions"]).contains(version):
            row["extras"] = extra["extras"]


def framework_of(fact: Row, platform: str) -> str | None:
    """Return the requirement on the framework that a wheel's code calls, or on its only one, or None."""
    symbols = [s for lib in fact.get("libraries", {}).values() for s in lib["symbols"]]
    called, minors = find_framework(symbols), _list_pythons(fact)
    python = _PYTHON if _PYTHON in minors else minors[-1]
    stated: dict[str, str] = {
        name: f"{name}{need.specifier}"
        for need, _ in list_required(fact["requires"], platform, [python])
        if (name := canonicalize_name(need.name)) in model.PROJECT_FRAMEWORKS
    }
    if called:
        return stated.get(called)
    return next(iter(stated.values())) if len(stated) == 1 else None


# --- source archives ----------------------------------------------------------------------------------

MOST = 64 << 20
"""Bytes of a source archive. Those of the packages that are measured have up to 10 MB."""
_DOWNLOADS = re.compile(rb'NVIDIA_PIP_INDEX_URL|build-backend *= *"(?:wheel|nvidia)_stub\b')
"""A build that downloads a wheel from NVIDIA's own index."""
_BUILDING = ("setup.py", "pyproject.toml")


def _read_source(reader: Reader, file: File) -> Row:
    """Return the metadata of a source archive, and whether its build downloads a wheel."""
    if file.size is not None and file.size > MOST:
        raise ValueError(f"it has {file.size} bytes, expected at most {MOST}")
    answer = reader.http.get(file.url)
    assert answer is not None
    suffix = ".zip" if file.name.endswith(".zip") else ".tar.gz"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"source{suffix}"
        path.write_bytes(answer.body)
        try:
            files = list_sdist(path, (*_BUILDING, "PKG-INFO").__contains__)
        except (LockError, *DAMAGED) as error:
            raise ValueError(f"it cannot be read: {error}") from error
    about = files.get("PKG-INFO")
    if about is None:
        raise ValueError("it has no PKG-INFO")
    return {
        **read_header(about.decode("utf-8", "replace")),
        "form": "download" if any(_DOWNLOADS.search(files.get(n) or b"") for n in _BUILDING) else "source",
        "size": len(answer.body),
        "bytes": len(answer.body),
        "sha256": file.sha256,
    }


# --- installed packages -------------------------------------------------------------------------------

_OF_FRAMEWORKS = ("libtorch", "libc10", "libtensorflow")


class InstalledWheel(Value, kw_only=False):
    """A package in site-packages: its files and requirements, and the platform and Python of the environment."""

    package: str
    version: str
    files: Sequence[tuple[str, Path]]
    requires: Sequence[str]
    platform: str
    python: str

    def needs_measuring(self) -> bool:
        """Return whether the package requires a framework, or has libraries that are linked to CUDA or a
        framework."""
        needed = {
            canonicalize_name(r.name) for r, _ in list_required(self.requires, self.platform, [self.python])
        }
        return bool(self._libraries) and (
            not needed.isdisjoint(model.FRAMEWORKS) or any(map(_is_linked, self._libraries.values()))
        )

    def rows(self) -> list[model.Satellite]:
        """Return the rows of the package. If its libraries contradict each other or are damaged, return one
        without facts."""
        row: Row = {
            "package": self.package, "version": self.version, "platform": self.platform, "form": "wheel",
            "pythons": [self.python],
        }  # fmt: skip
        try:
            files = ((name, functools.partial(_open, path)) for name, path in self._libraries.items())
            fact: Row = {"libraries": measure_files(files), "requires": self.requires, "requires_python": ""}
            measured = wheel_rows(fact, self.package)
            built_for = framework_of(fact, self.platform)
        except (ValueError, OSError):
            measured, built_for = [{}], None
        satellites = []
        for part in measured:
            # Facts that only come from names in the code are left out. These may be alternatives.
            opened = {n for n in ("cuda", "cudnn") if part.get(f"{n}_by") == "dlopen"}
            kept = {n: v for n, v in part.items() if n.removesuffix("_by") not in opened}
            kept |= {"kernels": kept["kernels"].split()} if "kernels" in kept else {}
            stated = {"built_for": built_for} if built_for else {}
            satellites.append(model.Satellite.from_columns(row | kept | stated))
        return satellites

    @functools.cached_property
    def _libraries(self) -> dict[str, Path]:
        """The libraries inside site-packages, by their names in RECORD."""
        inside = [
            (n, p) for n, p in self.files if LIBRARY.fullmatch(n) and n[0] != "/" and ".." not in n.split("/")
        ]
        return {name: path for name, path in inside if path.is_file()}


def _is_linked(library: Path) -> bool:
    """Return whether a library needs a library of NVIDIA or of a framework."""
    try:
        needed = read_elf(str(library)).needed
    except (ElfError, OSError):
        return False
    return any(NVIDIA.fullmatch(n) or n.startswith(_OF_FRAMEWORKS) for n in needed)


def _open(path: Path) -> IO[bytes]:
    return path.open("rb")
