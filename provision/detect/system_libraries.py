"""The cuDNN and CUDA files that the loader would find, in the order in which it looks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from ..model import NVIDIA_LIBRARY_FAMILIES, LibraryFile
from ..system.loader_cache import loader_cache
from .kernel_files import absolute_entries, entries, is_there, under

FILE = re.compile(
    rf"(?:{'|'.join((*NVIDIA_LIBRARY_FAMILIES, 'libcuda'))})(?:[A-Z_-][\w-]*)?\.so\.(?P<version>[\d.]*\d)"
)
DRIVER_FOLDERS = ("/usr/lib/wsl/lib", "/usr/local/nvidia/lib64", "/usr/local/nvidia/lib")


def find_files(
    sonames: Iterable[str], root: Path, environ: Mapping[str, str], machine: str
) -> dict[str, str]:
    """soname -> the real file that the loader takes for it, by its rules (ld.so(8)), unloaded."""
    found: dict[str, str] = {}
    wanted = tuple(sonames)
    for folder in absolute_entries(environ.get("LD_LIBRARY_PATH")):
        for soname in wanted:
            if is_there(folder / soname):
                found.setdefault(soname, str((folder / soname).resolve()))
    for soname, path in loader_cache(root, machine):
        if soname in wanted and is_there(Path(path)):
            found.setdefault(soname, str(Path(path).resolve()))
    return found


def file_version(soname: str, real: str) -> str | None:
    """The version in a real file's name, where it says more than the soname: "9.14.0" in
    libcudnn.so.9.14.0. Wheels name the file as the soname, which tells the major only."""
    found = FILE.fullmatch(real)
    if not found or (real == soname and found["version"].count(".") < 2):
        return None
    return found["version"]


def folder_libraries(folder: Path, names: Iterable[str]) -> tuple[LibraryFile, ...]:
    """The libraries among a folder's file names. Of the names of one file the shortest with a
    version is the soname (libcudart.so.11.0 before libcudart.so.11.0.221)."""
    sonames: dict[Path, str] = {}
    for name in sorted((n for n in names if FILE.fullmatch(n)), key=lambda n: (len(n), n)):
        sonames.setdefault((folder / name).resolve(), name)
    return tuple(
        LibraryFile(soname=soname, path=str(folder / soname), version=file_version(soname, real.name))
        for real, soname in sonames.items()
        if is_there(real)
    )


def read_libraries(root: Path, environ: Mapping[str, str], machine: str) -> tuple[LibraryFile, ...]:
    """LD_LIBRARY_PATH first, then the loader's cache, then where toolkits and drivers are put
    without being on the loader's path."""
    found: list[LibraryFile] = []
    for folder in absolute_entries(environ.get("LD_LIBRARY_PATH")):
        found += folder_libraries(folder, (path.name for path in entries(folder)))
    cached: dict[Path, list[str]] = {}
    for soname, path in loader_cache(root, machine):
        cached.setdefault(Path(path).parent, []).append(soname)
    for folder, names in cached.items():
        found += folder_libraries(folder, names)
    toolkits = [p / "lib64" for p in entries(under(root, "/usr/local")) if p.name.startswith("cuda")]
    for folder in (*toolkits, *(under(root, name) for name in DRIVER_FOLDERS)):
        found += folder_libraries(folder, (path.name for path in entries(folder)))
    first: dict[tuple[str, Path], LibraryFile] = {}
    for library in found:
        first.setdefault((library.soname, Path(library.path).resolve()), library)
    return tuple(first.values())
