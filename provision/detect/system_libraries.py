"""Lists the cuDNN and CUDA files that the loader would find, in its order."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from ..model import NVIDIA_LIBRARY_FAMILIES, LibraryFile
from ..system import trust
from ..system.loader_cache import loader_cache
from .kernel_files import is_there, list_entries, under

FILE = re.compile(
    rf"(?:{'|'.join((*NVIDIA_LIBRARY_FAMILIES, 'libcuda'))})(?:[A-Z_-][\w-]*)?\.so\.(?P<version>[\d.]*\d)"
)
DRIVER_FOLDERS = ("/usr/lib/wsl/lib", "/usr/local/nvidia/lib64", "/usr/local/nvidia/lib")


def find_files(
    sonames: Iterable[str], root: Path, environ: Mapping[str, str], machine: str
) -> dict[str, str]:
    """Return soname -> real file that the loader would load, by its rules (ld.so(8)). Nothing is loaded."""
    files: dict[str, str] = {}
    wanted = tuple(sonames)
    for folder in trust.list_absolute_entries(environ.get("LD_LIBRARY_PATH")):
        for soname in wanted:
            if is_there(folder / soname):
                files.setdefault(soname, str((folder / soname).resolve()))
    for soname, path in loader_cache(root, machine):
        if soname in wanted and is_there(Path(path)):
            files.setdefault(soname, str(Path(path).resolve()))
    return files


def parse_file_version(soname: str, real: str) -> str | None:
    """Return the version in a file name if it says more than the soname: "9.14.0" in libcudnn.so.9.14.0.

    Wheels name the file like the soname, which shows only the major version.
    """
    match = FILE.fullmatch(real)
    if not match or (real == soname and match["version"].count(".") < 2):
        return None
    return match["version"]


def list_folder_libraries(folder: Path, names: Iterable[str]) -> tuple[LibraryFile, ...]:
    """Return the libraries among the file names of a folder.

    If a file has several names, its soname is the shortest with a version (libcudart.so.11.0 before
    libcudart.so.11.0.221).
    """
    sonames: dict[Path, str] = {}
    for name in sorted((n for n in names if FILE.fullmatch(n)), key=lambda n: (len(n), n)):
        sonames.setdefault((folder / name).resolve(), name)
    return tuple(
        LibraryFile(soname=soname, path=str(folder / soname), version=parse_file_version(soname, real.name))
        for real, soname in sonames.items()
        if is_there(real)
    )


def read_libraries(root: Path, environ: Mapping[str, str], machine: str) -> tuple[LibraryFile, ...]:
    """Return the libraries in LD_LIBRARY_PATH, in the loader's cache, and in folders of toolkits and drivers.

    The loader does not search the folders of toolkits and drivers.
    """
    libraries: list[LibraryFile] = []
    for folder in trust.list_absolute_entries(environ.get("LD_LIBRARY_PATH")):
        libraries += list_folder_libraries(folder, (path.name for path in list_entries(folder)))
    cached: dict[Path, list[str]] = {}
    for soname, path in loader_cache(root, machine):
        cached.setdefault(Path(path).parent, []).append(soname)
    for folder, names in cached.items():
        libraries += list_folder_libraries(folder, names)
    toolkits = [p / "lib64" for p in list_entries(under(root, "/usr/local")) if p.name.startswith("cuda")]
    for folder in (*toolkits, *(under(root, name) for name in DRIVER_FOLDERS)):
        libraries += list_folder_libraries(folder, (path.name for path in list_entries(folder)))
    first: dict[tuple[str, Path], LibraryFile] = {}
    for library in libraries:
        first.setdefault((library.soname, Path(library.path).resolve()), library)
    return tuple(first.values())
