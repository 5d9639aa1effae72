"""The cuDNN and CUDA files that the loader would find, in the order in which it looks.

The loader's cache is read as glibc wrote it: no program is started for it."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path

from ..model import NVIDIA_LIBRARY_FAMILIES, Library
from ..system import process
from .files import absolute_entries, entries, is_there, under

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


def folder_libraries(folder: Path, names: Iterable[str]) -> tuple[Library, ...]:
    """The libraries among a folder's file names. Of the names of one file the shortest with a
    version is the soname (libcudart.so.11.0 before libcudart.so.11.0.221)."""
    sonames: dict[Path, str] = {}
    for name in sorted((n for n in names if FILE.fullmatch(n)), key=lambda n: (len(n), n)):
        sonames.setdefault((folder / name).resolve(), name)
    return tuple(
        Library(soname=soname, path=str(folder / soname), version=file_version(soname, real.name))
        for real, soname in sonames.items()
        if is_there(real)
    )


def read_libraries(root: Path, environ: Mapping[str, str], machine: str) -> tuple[Library, ...]:
    """LD_LIBRARY_PATH first, then the loader's cache, then where toolkits and drivers are put
    without being on the loader's path."""
    found: list[Library] = []
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
    first: dict[tuple[str, Path], Library] = {}
    for library in found:
        first.setdefault((library.soname, Path(library.path).resolve()), library)
    return tuple(first.values())


# How `ldconfig -p` names the libraries that a 64-bit process of each machine may load, and the flags that they
# have in the cache (glibc's ldconfig.h: FLAG_ELF_LIBC6 and the required ABI).
FLAVOURS = {"x86_64": "x86-64", "aarch64": "AArch64"}
_FLAGS = {"x86_64": 0x0303, "aarch64": 0x0A03}
_MAGIC = b"glibc-ld.so.cache1.1"
_HEAD, _ENTRY = struct.Struct("=20sII20x"), struct.Struct("=iIIIQ")
_MOST = 1 << 26  # bytes; the caches of real systems have some hundred thousand


def loader_cache(root: Path, machine: str) -> tuple[tuple[str, str], ...]:
    """(soname, path) of what /etc/ld.so.cache has for a machine, in its order; empty where there is none."""
    cache = under(root, "/etc/ld.so.cache")
    if not is_there(cache):
        return ()
    try:
        rows = cache_rows(cache.read_bytes()[:_MOST], _FLAGS.get(machine))
    except OSError:
        rows = None
    return _by_ldconfig(cache, machine) if rows is None else rows


def cache_rows(data: bytes, flags: int | None) -> tuple[tuple[str, str], ...] | None:
    """(soname, path) of the libraries with these flags (None: of all); None for a file of another kind, as
    glibc before 2.2 or another libc has it."""
    start = data.find(_MAGIC)
    if start < 0 or len(data) < start + _HEAD.size:
        return None
    data = data[start:]  # an older table may stand before; strings are counted from here
    count = _HEAD.unpack_from(data)[1]
    if _HEAD.size + count * _ENTRY.size > len(data):
        return None
    rows = []
    for number in range(count):
        kind, key, value, *_ = _ENTRY.unpack_from(data, _HEAD.size + number * _ENTRY.size)
        if flags is None or kind == flags:
            rows.append((_text(data, key), _text(data, value)))
    return tuple(rows)


def _text(data: bytes, start: int) -> str:
    end = data.find(b"\0", start)
    return data[start : end if end >= 0 else len(data)].decode("utf-8", "surrogateescape")


def ldconfig_rows(text: str, flavour: str | None) -> tuple[tuple[str, str], ...]:
    r"""(soname, path) from `ldconfig -p`, in its order; other machines' libraries are left out.

    A line is "\tlibcuda.so.1 (libc6,x86-64) => /usr/lib/x86_64-linux-gnu/libcuda.so.1".
    """
    rows = re.findall(r"^[ \t]+(\S+) \(([^)\n]*)\) => (/.*)$", text, re.MULTILINE)
    return tuple((soname, path) for soname, kind, path in rows if not flavour or flavour in kind)


def _by_ldconfig(cache: Path, machine: str) -> tuple[tuple[str, str], ...]:
    for program in ("/sbin/ldconfig", "/usr/sbin/ldconfig"):
        if is_there(Path(program)):
            try:
                ended = process.run([program, "-p", "-C", str(cache)], timeout=20)
            except OSError:
                continue
            return ldconfig_rows(ended.stdout, FLAVOURS.get(machine))
    return ()
