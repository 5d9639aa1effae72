"""Source releases: their metadata, and whether their build compiles CUDA code or downloads a wheel."""

from __future__ import annotations

import re
import tempfile
from email.parser import HeaderParser
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from packaging.utils import InvalidSdistFilename, parse_sdist_filename
from packaging.version import InvalidVersion, Version

from provision.errors import LockError
from provision.index.bounded_archive import DAMAGED, read_of_sdist

if TYPE_CHECKING:
    from provision.index.simple_api import File

    from .cached_wheel_facts import Reader

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
