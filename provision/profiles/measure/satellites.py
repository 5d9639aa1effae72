"""Measures packages that are compiled against a framework or CUDA.

There is one row for the newest patch of each release series.
"""

from __future__ import annotations

import functools
import re
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from email.parser import HeaderParser
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from packaging.metadata import parse_email
from packaging.specifiers import SpecifierSet
from packaging.utils import InvalidSdistFilename, canonicalize_name, parse_sdist_filename
from packaging.version import InvalidVersion, Version

from provision import model
from provision.errors import LockError
from provision.index.bounded_archive import DAMAGED, read_of_sdist
from provision.index.read_architectures_from_stream import FatBinaries, from_binaries
from provision.model import FRAMEWORKS, Satellite, from_plain
from provision.system import untrusted
from provision.system.elf import ElfError, read_elf

from . import reader as rq
from .libraries import (
    LIBRARY,
    NVIDIA,
    OTHER_GPU,
    abi_of,
    cuda_majors,
    cudnn_majors,
    cxx11_of,
    framework_called,
    measure_files,
    measure_libraries,
    named_cuda,
)
from .reader import Documents, Reader, WheelFile, number, representative

if TYPE_CHECKING:
    from collections.abc import Iterable

    from provision.index.simple_api import File

    from .reader import Reader


OLDEST = "2024-11-22"
"""The day from which on releases are measured; of a package without any since then, the newest one is."""
STEP = 64 << 20
"""Bytes of one request: nearly the whole wheel is read."""
PLATFORM = "linux-x86_64"
MINORS = tuple(f"3.{n}" for n in range(8, 20))
_PYTHON = "3.12"
"""The Python for which markers of requirements are judged, where a release allows it."""

_ALTERNATIVE = re.compile(r".*_cuda(\d\d)(\d)(?:_\w+)?\.so")


def satellite_rows(reader: Reader, documents: Documents) -> list[dict[str, Any]]:
    """Return the rows of every package in the table `satellite_packages`. One wheel is unpacked at a time."""
    rows = []
    for named in documents.get("satellite_packages", ()):
        package, parts = named["package"], int(named.get("parts", "2"))
        if reader.only is not None and package not in {name for name, _, _ in reader.only}:
            continue
        for version, files in newest_of_series(reader, package, parts).items():
            if not reader.takes(version, PLATFORM, package):
                continue
            try:
                rows += _make_rows(reader, package, version, files, documents)
            except ValueError as error:
                reader.problem(f"{package} {version}: {error}")
    return rows


def newest_of_series(reader: Reader, package: str, parts: int) -> dict[Version, list[WheelFile] | Source]:
    """Return the newest final release of each series since `OLDEST`, newest first, with its wheels.

    If no release of the series has wheels for this platform, return its source archive.
    """
    wheels: dict[Version, list[WheelFile]] = defaultdict(list)
    for wheel in reader.wheels(package):
        if wheel.platform in (PLATFORM, "any") and _is_counted(wheel.version, wheel.file):
            wheels[wheel.version].append(wheel)
    from_source = {s.version: s for s in sources(reader, package) if _is_counted(s.version, s.file)}
    by_series: dict[tuple[int, ...], Version] = {}
    for versions in (from_source, wheels):
        by_series |= {(*v.release, 0, 0, 0)[:parts]: v for v in sorted(versions)}
    days = {v: _find_upload_day(reader, wheels.get(v) or [from_source[v]]) for v in by_series.values()}
    recent = [v for v in days if days[v] >= OLDEST] or sorted(days)[-1:]
    return {v: wheels.get(v) or from_source[v] for v in sorted(recent, reverse=True)}


def _is_counted(version: Version, file: File) -> bool:
    """Return whether a file belongs to a final release that was not yanked."""
    return not (version.is_prerelease or version.local or file.yanked is not None)


def _find_upload_day(reader: Reader, files: Iterable[WheelFile | Source]) -> str:
    """Return the day on which the first file of a release was uploaded, or "" if the index does not state it."""
    days = [f.file.uploaded for f in files]
    if None in days:
        reader.problem(f"{next(iter(files)).file.name}: the index does not state when it was uploaded")
    return min((d[:10] for d in days if d), default="")


def _make_rows(
    reader: Reader, package: str, version: Version, files: list[WheelFile] | Source, documents: Documents
) -> list[dict[str, Any]]:
    row: dict[str, Any] = {"package": package, "version": str(version), "platform": PLATFORM, "index": "pypi"}
    if isinstance(files, Source):
        fact = source_facts(reader, files)
        rows = [row | {"form": fact["form"]} | ({"nvcc": "yes"} if fact["nvcc"] else {})] if fact else []
    else:
        wheels = [w for w in files if w.platform == PLATFORM] or files
        wheel = representative(wheels)
        fact = reader.facts(wheel, "satellite", measure_libraries, STEP)
        row |= {"form": "wheel", "pythons": " ".join(pythons_of(wheels, fact))} if fact else {}
        known = WheelContext(package, wheel.glibc, _list_optional(package, documents))
        rows = [row | part for part in wheel_rows(known, fact)] if fact else []
    for one in rows:
        assert fact is not None
        one |= {"sha256": fact["sha256"], "bytes": str(fact["size"])}
        _add_framework(one, fact, documents)
    return rows


def pythons_of(wheels: list[WheelFile], fact: dict[str, Any]) -> list[str]:
    """Return the minor versions that the wheels support. "3.10+" is a wheel for 3.10 and all later ones."""
    exact = sorted({w.python for w in wheels if w.python}, key=number)
    tags = [m for w in wheels if not w.python for m in re.findall(r"-(?:cp|py)3(\d+)(?=[-.])", w.file.name)]
    if all(w.python for w in wheels):
        return exact
    tagged = f"3.{min(map(int, tags))}" if tags else MINORS[0]
    first = next((m for m in _list_minors(fact) if number(m) >= number(tagged)), tagged)
    return [p for p in exact if number(p) < number(first)] + [f"{first}+"]


def _list_minors(fact: dict[str, Any]) -> list[str]:
    """Return the minor versions of Python that a release allows."""
    allowed = SpecifierSet(fact["requires_python"] or "")
    return [m for m in MINORS if rq.allows(allowed, f"{m}.20")] or [_PYTHON]


class WheelContext(NamedTuple):
    """Facts about a wheel beside its libraries: its package and the glibc of its tag.

    `optional` are NVIDIA's libraries (names without "lib" and ".so") that only optional modules of the package
    need.
    """

    package: str
    glibc: str | None = None
    optional: frozenset[str] = frozenset()


def _list_optional(package: str, documents: Documents) -> frozenset[str]:
    rows = documents.get("satellite_optional", ())
    return frozenset(name for d in rows if d["package"] == package for name in d["libraries"].split())


def wheel_rows(known: WheelContext, fact: dict[str, Any]) -> list[dict[str, Any]]:
    """Return what the libraries of a wheel add to its row, once for each CUDA release with a file of its own.

    Raise ValueError if they contradict each other.
    """
    own_libraries = {n: lib for n, lib in fact["libraries"].items() if _is_own(n, lib)}
    shared = [lib for n, lib in own_libraries.items() if not _ALTERNATIVE.fullmatch(n)]
    here = {n.rsplit("/", 1)[-1] for n in fact["libraries"]}
    bundles = sorted(n for n in here if (m := NVIDIA.fullmatch(n)) and m["stem"] != "cuda")
    by_release: dict[str | None, list[dict[str, Any]]] = defaultdict(list)
    for name, library in own_libraries.items():
        if match := _ALTERNATIVE.fullmatch(name):
            by_release[f"{match[1]}.{match[2]}"].append(library)
    rows = []
    for release, libraries in (by_release or {None: []}).items():
        row = _make_row([*shared, *libraries], here, known)
        if release and row.get("cuda") != release.split(".")[0]:
            raise ValueError(f"its library for CUDA {release} needs CUDA {row.get('cuda', 'nothing')}")
        row |= {"cuda": release} if release else {}
        row |= {"bundles": bundles} if bundles else {}
        if glibcs := [g for g in (known.glibc, row.pop("glibc", None)) if g]:
            row["glibc"] = max(glibcs, key=number)
        rows.append(row)
    return rows


def _is_own(member: str, library: dict[str, Any]) -> bool:
    """Return whether a library is neither a copy of NVIDIA's nor made for other vendors' GPUs."""
    other = any(OTHER_GPU.fullmatch(name) for name in library["needed"])
    return not other and not NVIDIA.fullmatch(member.rsplit("/", 1)[-1])


def _make_row(libraries: list[dict[str, Any]], here: set[str], known: WheelContext) -> dict[str, Any]:
    row: dict[str, Any] = {}
    needed = {n for lib in libraries for n in lib["needed"]} - here - {lib["soname"] for lib in libraries}
    of_nvidia = {n: m["stem"] for n in sorted(needed) if (m := NVIDIA.fullmatch(n))}
    needs = [n for n, stem in of_nvidia.items() if stem not in known.optional]
    optional = [n for n in of_nvidia if n not in needs]
    row |= ({"needs": needs} if needs else {}) | ({"optional": optional} if optional else {})
    opened = {n for lib in libraries for n in lib["opened"]} - here
    row |= _find_cuda(needs, opened, known.package) | _find_cudnn(needs, opened)
    symbols = [s for lib in libraries for s in lib["symbols"]]
    if kind := abi_of(symbols):
        row["abi"] = kind
    if kind == "exact" and (strings := cxx11_of(symbols)):
        row["cxx11"] = strings
    kinds = frozenset((kind, arch) for lib in libraries for kind, arch in lib["kernels"])
    if kernels := from_binaries(FatBinaries(kinds, 0, 0)):
        row["kernels"] = kernels
    if glibcs := [lib["glibc"] for lib in libraries if lib["glibc"]]:
        row["glibc"] = max(glibcs, key=number)
    return row


def _find_cuda(needs: Iterable[str], opened: Iterable[str], package: str) -> dict[str, str]:
    """Return the CUDA major version: from needs, else from names in the code, else from the package's name."""
    needed = cuda_majors(needs)
    if len(needed) > 1:
        raise ValueError(f"its libraries need CUDA {' and '.join(sorted(needed))}")
    if needed:
        return {"cuda": needed.pop(), "cuda_by": "needed"}
    named = named_cuda(package)
    if named:
        return {"cuda": named, "cuda_by": "name"}
    majors = cuda_majors(opened)
    return {"cuda": majors.pop(), "cuda_by": "dlopen"} if len(majors) == 1 else {}


def _find_cudnn(needs: Iterable[str], opened: Iterable[str]) -> dict[str, str]:
    for names, by in ((needs, "needed"), (opened, "dlopen")):
        majors = cudnn_majors(names)
        if len(majors) == 1:
            return {"cudnn": f"=={majors.pop()}.*", "cudnn_by": by}
    return {}


def _add_framework(row: dict[str, Any], fact: dict[str, Any], documents: Documents) -> None:
    """Add the framework that metadata or a document states, and the extras that a document names."""
    package, version = row["package"], row["version"]
    documented = [
        d for d in documents.get("satellite_frameworks", ())
        if d["package"] == package and f"{version}.".startswith(f"{d['version']}.")
    ]  # fmt: skip
    if frameworks := [*(d["built_for"] for d in documented), *filter(None, [framework_of(fact)])]:
        row["built_for"] = frameworks[0]
    if cudas := [d["cuda"] for d in documented if "cuda" in d and row.get("cuda")]:
        row["cuda"] = cudas[0]
    for extra in documents.get("satellite_extras", ()):
        if extra["package"] == package and SpecifierSet(extra["versions"]).contains(version):
            row["extras"] = extra["extras"]


def framework_of(fact: dict[str, Any]) -> str | None:
    """Return the requirement on the framework that a wheel's code calls, or on its only one, or None."""
    symbols = [s for lib in fact.get("libraries", {}).values() for s in lib["symbols"]]
    called = framework_called(symbols)
    minors = _list_minors(fact)
    python = _PYTHON if _PYTHON in minors else minors[-1]
    stated: dict[str, str] = {
        canonicalize_name(r.name): f"{canonicalize_name(r.name)}{r.specifier}"
        for r, _ in rq.required(fact["requires"], PLATFORM, [python])
        if canonicalize_name(r.name) in model.PROJECT_FRAMEWORKS
    }
    if called:
        return stated.get(called)
    return next(iter(stated.values())) if len(stated) == 1 else None


MOST = 64 << 20
"""Bytes of a source archive. Those of the packages that are measured have up to 10 MB."""
_DOWNLOADS = re.compile(rb'NVIDIA_PIP_INDEX_URL|build-backend *= *"(?:wheel|nvidia)_stub\b')
"""A build that downloads a wheel from NVIDIA's own index."""
_COMPILES_CUDA = re.compile(rb"\bCUDAExtension\b|\bnvcc\b")


class Source(NamedTuple):
    """A source archive that an index lists."""

    file: File
    version: Version


def sources(reader: Reader, package: str) -> list[Source]:
    """Return the source archives of a project."""
    releases = []
    for file in reader.files(package):
        try:
            releases.append(Source(file, parse_sdist_filename(file.name)[1]))
        except (InvalidSdistFilename, InvalidVersion):
            continue
    return releases


def source_facts(reader: Reader, source: Source) -> dict[str, Any] | None:
    """Return the facts of a source archive, from the cache if it was read before.

    If it cannot be read, add a problem and return None.
    """
    return reader.remembered(source.file, "source", lambda: _read(reader, source.file))


def _read(reader: Reader, file: File) -> dict[str, Any]:
    if file.size is not None and file.size > MOST:
        raise ValueError(f"it has {file.size} bytes, expected at most {MOST}")
    answer = reader.http.get(file.url)
    assert answer is not None
    suffix = ".zip" if file.name.endswith(".zip") else ".tar.gz"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"source{suffix}"
        path.write_bytes(answer.body)
        header = HeaderParser().parsestr(_text(path, "PKG-INFO").decode("utf-8", "replace"))
        setup = _text(path, "setup.py", missing_ok=True)
        project = _text(path, "pyproject.toml", missing_ok=True)
    return {
        "name": file.name,
        "requires": header.get_all("Requires-Dist") or [],
        "requires_python": header.get("Requires-Python"),
        "form": "download" if _DOWNLOADS.search(setup + project) else "source",
        "nvcc": bool(_COMPILES_CUDA.search(setup)),
        "size": len(answer.body),
        "bytes": len(answer.body),
        "sha256": file.sha256,
    }


def _text(path: Path, name: str, *, missing_ok: bool = False) -> bytes:
    try:
        return read_of_sdist(path, name)
    except KeyError:
        if missing_ok:
            return b""
        raise ValueError(f"it has no {name}") from None
    except (LockError, *DAMAGED) as error:
        raise ValueError(f"its {name} cannot be read: {error}") from error


_OF_FRAMEWORKS = ("libtorch", "libc10", "libtensorflow")


@dataclass(frozen=True)
class InstalledWheel:
    """A package in site-packages: its `info` folder (NAME-VERSION.dist-info), and the platform and Python of the
    environment."""

    package: str
    version: str
    info: Path
    platform: str
    python: str

    def needs_measuring(self) -> bool:
        """Return whether the package requires a framework, or has libraries that are linked to CUDA or a
        framework."""
        needed = {
            canonicalize_name(r.name) for r, _ in rq.required(self._requires, self.platform, [self.python])
        }
        return bool(self._libraries) and (
            not needed.isdisjoint(FRAMEWORKS) or any(map(_is_linked, self._libraries))
        )

    def rows(self) -> list[Satellite]:
        """Return the rows of the package. If its libraries contradict each other or are damaged, return one
        without facts."""
        row: dict[str, Any] = {
            "package": self.package, "version": self.version, "platform": self.platform, "index": "pypi", "form": "wheel",
            "pythons": [self.python],
        }  # fmt: skip
        site = self.info.parent
        try:
            files = ((p.relative_to(site).as_posix(), functools.partial(_open, p)) for p in self._libraries)
            fact: dict[str, Any] = {
                "libraries": measure_files(files),
                "requires": self._requires,
                "requires_python": "",
            }
            measured = [row | part for part in wheel_rows(WheelContext(self.package), fact)]
            built_for = framework_of(fact)
        except (ValueError, OSError):
            return [_make_satellite(row)]
        stated = {"built_for": built_for} if built_for else {}
        return [_make_satellite(_drop_names(one) | stated) for one in measured]

    @functools.cached_property
    def _requires(self) -> Sequence[str]:
        try:
            return parse_email(untrusted.read_text(self.info / "METADATA"))[0].get("requires_dist", [])
        except (OSError, ValueError):
            return []

    @functools.cached_property
    def _libraries(self) -> list[Path]:
        """The libraries that RECORD lists, inside site-packages."""
        return [self.info.parent / row for row in self._list_recorded() if (self.info.parent / row).is_file()]

    def _list_recorded(self) -> Iterator[str]:
        try:
            lines = untrusted.read_text(self.info / "RECORD").splitlines()
        except (OSError, ValueError):
            return
        for line in lines:
            row = line.rsplit(",", 2)[0].strip('"')
            if LIBRARY.fullmatch(row) and not row.startswith("/") and ".." not in row.split("/"):
                yield row


def _is_linked(library: Path) -> bool:
    """Return whether a library needs a library of NVIDIA or of a framework."""
    try:
        needed = read_elf(str(library)).needed
    except (ElfError, OSError):
        return False
    return any(NVIDIA.fullmatch(n) or n.startswith(_OF_FRAMEWORKS) for n in needed)


def _open(path: Path) -> IO[bytes]:
    return path.open("rb")


def _drop_names(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row without facts that only come from names in the code. These may be alternatives."""
    opened = {n for n in ("cuda", "cudnn") if row.get(f"{n}_by") == "dlopen"}
    return {n: v for n, v in row.items() if n.removesuffix("_by") not in opened}


def _make_satellite(row: dict[str, Any]) -> Satellite:
    values = dict(row)
    if "kernels" in values:
        values["kernels"] = values["kernels"].split()
    return from_plain(Satellite, values)
