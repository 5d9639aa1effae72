"""The NVIDIA libraries of an environment: its packages, their files, and the wheels that bring them.

Only files of the environment are read. It needs no pip.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import field
from pathlib import Path

from ..environment.distributions import (
    Distribution,
    RecordRow,
    compare_file,
    find_distribution,
    list_conda_records,
    list_distributions,
    list_names,
)
from ..model import NVIDIA_LIBRARY_FAMILIES, normalize_name
from ..model.values import Value
from ..system import untrusted
from ..system.elf import loader_cache

CUDNN_PACKAGE = re.compile(r"^(nvidia-cudnn(-cu\d+)?|cudnn|libcudnn)$")
NVIDIA_LIBRARY = rf"^(?:{'|'.join(NVIDIA_LIBRARY_FAMILIES)})(?:Lt)?[._-]"
"""The names of the libraries that are compared and reported."""
_CONDA = re.compile(r"^(cudnn|libcudnn|cudatoolkit|cuda-|libcu|libnv)")
_FRAMEWORKS = re.compile(r"(jax|jaxlib|tensorflow)(-|$)")


class PythonPaths(Value):
    """The folders that the target's Python searches, and its `version`.

    `sites` are its site-packages folders in the order of sys.path. `roots` are the folders of the environment's
    own files. `frameworks` is framework -> the file that this Python would import. `include` is the folder of Python.h. `problems` are errors of the query.
    """

    prefix: str
    version: str
    sites: tuple[str, ...]
    roots: tuple[str, ...]
    user_site: str | None = None
    frameworks: Mapping[str, str] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    include: str = ""


class LibraryPackage(Value):
    """An installed package that contains NVIDIA libraries, or that may require them."""

    name: str
    version: str
    files: tuple[RecordRow, ...] = ()
    requires: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.name} {self.version}"

    @property
    def is_cudnn(self) -> bool:
        return bool(CUDNN_PACKAGE.match(self.name))


class InstalledLibraries(Value):
    """The CUDA packages and libraries of an environment. `files` are paths of libraries. `builds` is framework ->
    whether it is a CUDA build."""

    paths: PythonPaths
    packages: tuple[LibraryPackage, ...] = ()
    files: tuple[str, ...] = ()
    builds: Mapping[str, bool] = field(default_factory=dict)

    @property
    def cuda_framework(self) -> str:
        """The first framework with a CUDA build, or ""."""
        return next((name for name, cuda in self.builds.items() if cuda), "")


def read_installed(paths: PythonPaths) -> InstalledLibraries:
    """Read which CUDA packages and libraries an environment has, from dist-info folders and conda-meta."""
    packages = (*(p for site in paths.sites for p in read_wheels(site)), *read_conda(Path(paths.prefix)))
    return InstalledLibraries(
        paths=paths,
        packages=packages,
        files=tuple(p for f in list_folders(paths.sites, paths.prefix) for p in list_libraries(str(f))),
        builds=_find_cuda_builds(paths, packages),
    )


def list_folders(sites: Iterable[str | Path], prefix: str | Path) -> list[Path]:
    """Return the folders in which wheels and packages of conda have NVIDIA's libraries. Some do not exist."""
    wheels = [f for s in sites for f in (*sorted(Path(s, "nvidia").glob("*/lib")), Path(s, "torch", "lib"))]
    return [*wheels, *([Path(prefix, "lib")] if Path(prefix, "conda-meta").is_dir() else [])]


def read_wheels(site: str) -> Iterable[LibraryPackage]:
    for one in list_distributions(site):
        if one.name.startswith("nvidia-") or one.name == "torch":
            files = tuple(row for row in list_shared(one) if "/lib" in row.name)
            if one.name == "torch":
                files = tuple(row for row in files if re.match(NVIDIA_LIBRARY, os.path.basename(row.name)))
        elif _FRAMEWORKS.match(one.name):
            files = ()
        else:
            continue
        requires = tuple(name for name in one.requires if name.startswith("nvidia-"))
        yield LibraryPackage(name=one.name, version=one.version, files=files, requires=requires)


def list_shared(one: Distribution) -> Iterable[RecordRow]:
    """Yield the shared libraries that a wheel lists."""
    for row in one.select_rows(".so"):
        if re.search(r"\.so(\.\d+)*$", row.name):
            yield row._replace(path=os.path.normpath(row.path))


def read_conda(prefix: Path) -> Iterable[LibraryPackage]:
    for record in list_conda_records(prefix):
        if _CONDA.match(record.name):
            files = tuple(
                row
                for row in record.rows
                if re.search(r"/lib[^/]*\.so(\.\d+)*$", row.name) and (row.digest or row.size is not None)
            )
            yield LibraryPackage(name=record.name, version=record.version, files=files)


def list_libraries(folder: str) -> list[str]:
    """Return the CUDA and cuDNN libraries in a folder, by name; empty if the folder cannot be read."""
    return [os.path.join(folder, n) for n in list_names(folder) if re.match(NVIDIA_LIBRARY, n) and ".so" in n]


def pick_library(files: Sequence[str], family: str, major: str | None = None) -> str | None:
    """Return the first file `lib<family>.so.<major>`, of any major version without `major`.

    This is the name that the loader requests. The development link without a number is never returned.
    """
    number = re.escape(major) if major else r"\d+"
    pattern = re.compile(rf"^{family}(-[0-9a-f]+)?\.so\.{number}(\.\d+)*$")
    named = [f for f in files if pattern.match(os.path.basename(f))]
    return min(named, key=lambda f: len(os.path.basename(f)), default=None)


def find_other_cudnn(paths: PythonPaths, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the libcudnn files outside the environment that the loader would find.

    It searches LD_LIBRARY_PATH and its cache.
    """
    folders = [folder for folder in environ.get("LD_LIBRARY_PATH", "").split(":") if folder]
    found = [f for d in folders for f in list_libraries(d) if os.path.basename(f).startswith("libcudnn.so")]
    cached = loader_cache(Path("/"), platform.machine())
    found += [path for soname, path in cached if soname.startswith("libcudnn.so")]
    return tuple(dict.fromkeys(path for path in found if not is_inside(path, paths.roots)))


def is_inside(path: str, roots: Sequence[str]) -> bool:
    """Return whether a file is in one of the folders, as named or with links resolved."""
    named = (path, os.path.realpath(path))
    return any(p == root or p.startswith(root.rstrip("/") + "/") for p in named for root in roots)


def map_owners(packages: Sequence[LibraryPackage]) -> dict[str, LibraryPackage]:
    """Return resolved path -> package for each library file, because uv may link files into its cache."""
    owned: dict[str, LibraryPackage] = {}
    for package in packages:
        for row in package.files:
            owned.setdefault(os.path.realpath(row.path), package)
    return owned


# --- builds of frameworks ------------------------------------------------------------------------


_TENSORFLOW = "python/platform/build_info.py"
_CUDA = {
    "torch": ("version.py", r"^cuda\b[^=\n]*= *['\"]([\d.]+)"),
    "tensorflow": (_TENSORFLOW, r"['\"]cuda_version['\"]\s*[,:]\s*['\"]([\d.]+)"),
    "onnxruntime": ("capi/build_and_package_info.py", r"^cuda_version *= *['\"]([\d.]+)"),
}
"""Where a framework states its CUDA. JAX does not."""


def _find_cuda_builds(paths: PythonPaths, packages: Sequence[LibraryPackage]) -> dict[str, bool]:
    """Return framework -> whether it is a CUDA build, without importing it."""
    builds = {}
    for name, origin in paths.frameworks.items():
        package = Path(origin).parent
        if name == "torch":
            builds[name] = not search_file(package / "version.py", r"^cuda\b[^=\n]*= *(None)")
        elif name == "tensorflow":
            builds[name] = not search_file(package / _TENSORFLOW, r"is_cuda_build['\"]\s*[,:]\s*(False)")
        elif name == "onnxruntime":
            builds[name] = any((package / "capi").glob("libonnxruntime_providers_cuda.*"))
        else:
            builds[name] = any(
                re.match(r"jax-cuda\d+-(plugin|pjrt)$", p.name)
                or (p.name == "jaxlib" and "cuda" in p.version)
                for p in packages
            )
    return builds


def read_built_major(paths: PythonPaths) -> str | None:
    """Return the CUDA major version that the frameworks on disk were built with, or None if they differ."""
    majors = {cuda.partition(".")[0] for name in _CUDA if (cuda := read_cuda(paths, name))}
    return majors.pop() if len(majors) == 1 else None


def read_cuda(paths: PythonPaths, framework: str) -> str | None:
    """Return the CUDA ("13.0") that a framework on disk was built with, or None if it states none."""
    if framework not in paths.frameworks:
        return None
    file, pattern = _CUDA[framework]
    return search_file(Path(paths.frameworks[framework]).parent / file, pattern)


def search_file(path: Path, pattern: str) -> str | None:
    """Return what the group of a pattern is in a file, or None if the file does not have it or cannot be read."""
    try:
        found = re.search(pattern, untrusted.read_text(path), re.MULTILINE)
    except OSError:
        return None
    return found[1] if found else None


def read_requirements(sites: Sequence[str], package: str) -> tuple[str, ...]:
    """Return the NVIDIA requirements of an installed wheel with versions, without markers."""
    one = find_distribution(sites, normalize_name(package))
    rows = [r.partition(";")[0] for r in one.requirements if r.startswith("nvidia-")] if one else []
    return tuple(re.sub(r"[\s()]", "", row) for row in rows)


# --- versions of cuDNN ---------------------------------------------------------------------------


def shorten_version(version: str | None) -> str | None:
    """Return the three parts of a cuDNN version on which plan and loaded library must agree."""
    return None if version is None else ".".join(version.split(".")[:3])


# --- files as their packages list them -----------------------------------------------------------


class FileProblem(Value, kw_only=False):
    """A file that differs from its package's list. `kind` is missing, short, size or bytes."""

    kind: str
    path: str
    text: str


DIFFERENCES = {
    "missing": "is missing",
    "short": "is truncated",
    "size": "has the wrong size",
    "bytes": "has different content",
}
"""What the kinds of FileProblem are called."""


def check_files(files: Sequence[RecordRow], hashes: bool) -> list[FileProblem]:
    """Return the files that are missing or have the wrong size, and with `hashes` those with other bytes."""
    with ThreadPoolExecutor(max_workers=4) as pool:  # hashing releases the interpreter's lock
        kinds = pool.map(lambda row: compare_file(row, None, hashes=hashes), files)
        return [_describe_problem(row, kind) for row, kind in zip(files, kinds, strict=True) if kind]


def _describe_problem(row: RecordRow, kind: str) -> FileProblem:
    if kind != "size":
        text = "this file is missing" if kind == "missing" else f"its sha256 is not {row.digest}"
        return FileProblem(kind, row.path, text)
    size = Path(row.path).stat().st_size
    short = size < (row.size or 0) and _is_cut_short(row.path, size)
    return FileProblem("short" if short else kind, row.path, f"{size} bytes, recorded {row.size}")


def _is_cut_short(path: str, size: int) -> bool:
    """Return whether an ELF file ends before its section headers, which linkers write last."""
    try:
        with open(path, "rb") as stream:
            head = stream.read(64)
    except OSError:
        return True
    if head[:5] != b"\x7fELF\x02":
        return True
    start = int.from_bytes(head[40:48], "little")
    entry, count = int.from_bytes(head[58:60], "little"), int.from_bytes(head[60:62], "little")
    return start + entry * count > size


# --- the wheels that bring libraries ---------------------------------------------------------------

# The family of a library's name, and the wheel that brings it (nvidia-cublas-cu12, nvidia-cublas).
_WHEELS = {
    "cudart": "cuda-runtime", "cublas": "cublas", "cudnn": "cudnn", "cufft": "cufft", "curand": "curand",
    "cusolver": "cusolver", "cusparseLt": "cusparselt", "cusparse": "cusparse", "cupti": "cuda-cupti",
    "nvrtc": "cuda-nvrtc", "nvJitLink": "nvjitlink", "nccl": "nccl", "nvshmem": "nvshmem",
    "cufile": "cufile", "nvjpeg": "nvjpeg", "npp": "npp",
}  # fmt: skip


def find_wheel_family(library: str) -> str | None:
    """Return the part of a wheel's name that says which libraries it has: "cuda-runtime" for libcudart.so.12."""
    stem = library[3:].partition(".so")[0]
    return next((wheel for family, wheel in _WHEELS.items() if stem.startswith(family)), None)


def name_nvidia_wheel(library: str) -> str | None:
    """Return the NVIDIA wheel that contains a library, by its soname: "nvidia-cuda-runtime-cu12"."""
    wheel, major = find_wheel_family(library), re.search(r"\.so\.(\d+)", library)
    if wheel is None or not library.startswith("lib"):
        return None
    old = wheel == "cuda-runtime" and major and int(major[1]) < 13
    return f"nvidia-{wheel}-cu{major[1]}" if old and major else f"nvidia-{wheel}"
