"""The distributions that are installed in an environment, as their dist-info folders and conda-meta state them.

This is the one reader of dist-info folders, of their RECORD, METADATA and INSTALLER, and of conda-meta. It runs no
code of the environment.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from ..model import normalize_name
from ..model.values import Value
from ..system import untrusted
from ..system.files import hash_readable

_SUFFIX = ".dist-info"
_CONDA_LIBRARIES = ("cudnn",)
"""Libraries that conda packages install without a distribution of Python."""


class RecordRow(NamedTuple):
    """A file of a package's RECORD.

    `digest` is its sha256 in hexadecimal, and `size` is in bytes. Both are None for a row without them. `name` is the
    path in RECORD, relative to site-packages.
    """

    path: str
    digest: str | None
    size: int | None
    name: str = ""


class Distribution(Value, kw_only=False):
    """A distribution in a site-packages folder. `name` is in normal form, `folder` is its dist-info."""

    name: str
    version: str
    folder: Path

    def __str__(self) -> str:
        return f"{self.name} {self.version}"

    @property
    def root(self) -> Path:
        """The folder that the paths of its files are relative to."""
        return self.folder.parent

    def _read(self, name: str) -> bytes | None:
        try:
            return untrusted.read_bytes(self.folder / name)
        except OSError:
            return None

    @cached_property
    def record(self) -> bytes | None:
        """The contents of RECORD, or None without one."""
        return self._read("RECORD")

    @property
    def record_digest(self) -> str | None:
        """The sha256 of RECORD."""
        return None if self.record is None else hashlib.sha256(self.record).hexdigest()

    @property
    def record_text(self) -> str:
        """RECORD as text, or "" without one."""
        return (self.record or b"").decode("utf-8", "replace")

    @cached_property
    def rows(self) -> tuple[RecordRow, ...]:
        """The files in RECORD without bytecode, which Python writes and removes itself."""
        return tuple(row for row in self.select_rows("") if not row.name.endswith(".pyc"))

    def select_rows(self, text: str) -> Iterator[RecordRow]:
        """Yield the rows of RECORD that contain a text. torch has ten thousand rows, so only these are parsed."""
        site = str(self.folder.parent)
        for name, digest, size in _split_rows(r for r in self.record_text.splitlines() if text in r):
            yield RecordRow(join_row(site, name), _parse_sha256(digest), _parse_size(size), name)

    def find_wrong_sizes(self) -> dict[str, str]:
        """Return the files that are missing or of another size than RECORD lists: path -> "missing" or "size".

        The result is that of `compare_file` for all rows, without making them. The size of metadata is not compared:
        some published wheels list other sizes for it (decord 0.6.0).
        """
        site, wrong = str(self.folder.parent), {}
        for name, _, size in _split_rows(self.record_text.splitlines()):
            if name.endswith(".pyc"):
                continue
            path = join_row(site, name)
            try:
                actual = os.stat(path).st_size  # noqa: PTH116  # ten thousand files
            except OSError:
                wrong[path] = "missing"
            else:
                if size and size != str(actual) and _parse_size(size) not in (None, actual):
                    wrong |= {} if ".dist-info/" in name else {path: "size"}
        return wrong

    @cached_property
    def metadata(self) -> str:
        """The header of METADATA with each value in one line, or "" without one. Some wheels have lines of Windows."""
        text = (self._read("METADATA") or b"").decode("utf-8", "replace").replace("\r\n", "\n")
        return re.sub(r"\n[ \t]+", " ", text.split("\n\n", 1)[0])

    def find_values(self, key: str) -> list[str]:
        """Return the values of a key of METADATA."""
        values = re.findall(rf"^{key}:(.*)", self.metadata, re.MULTILINE | re.IGNORECASE)
        return [text for value in values if (text := value.strip())]

    @cached_property
    def requirements(self) -> tuple[str, ...]:
        """The requirements of METADATA with versions and markers."""
        return tuple(self.find_values("Requires-Dist"))

    @cached_property
    def requires(self) -> tuple[str, ...]:
        """The names that METADATA requires. Markers are ignored, because the user may have requested an extra."""
        names = (re.match(r"[\w.-]+", text) for text in self.requirements)
        return tuple(dict.fromkeys(normalize_name(n[0]) for n in names if n))

    @property
    def installer(self) -> str:
        """The name of the program that installed it, or "" without INSTALLER."""
        return (self._read("INSTALLER") or b"").decode("utf-8", "replace").strip()


def find_sites(env: Path) -> tuple[Path, ...]:
    """Return the site-packages folders of an environment."""
    return tuple(sorted((*env.glob("lib/python3*/site-packages"), *env.glob("Lib/site-packages"))))


def list_names(folder: str | Path) -> list[str]:
    """Return the names in a folder, sorted; none if it cannot be read."""
    try:
        return sorted(os.listdir(folder))  # noqa: PTH208  # names alone
    except (OSError, ValueError):
        return []


def list_info_folders(site: str | Path) -> list[str]:
    """Return the names of the dist-info folders in a site-packages folder."""
    return [name for name in list_names(site) if name.endswith(_SUFFIX)]


def list_distributions(site: str | Path) -> Iterator[Distribution]:
    """Yield the distributions of a site-packages folder. A name that begins with "~" is one that pip removes."""
    for entry in list_info_folders(site):
        name, _, version = entry.removesuffix(_SUFFIX).partition("-")
        if version and not name.startswith("~"):
            yield Distribution(normalize_name(name), version, Path(site, entry))


def find_distribution(sites: Iterable[str | Path], name: str) -> Distribution | None:
    """Return the first distribution of a name in normal form."""
    return next((d for site in sites for d in list_distributions(site) if d.name == name), None)


def list_installed(env: Path) -> Iterator[Distribution]:
    """Yield the distributions of an environment."""
    return (one for site in find_sites(env) for one in list_distributions(site))


def read_distributions(env: Path) -> dict[str, tuple[Distribution, ...]]:
    """Return the distributions of an environment by name. An interrupted installer can leave two of the same name."""
    distributions: dict[str, tuple[Distribution, ...]] = {}
    for one in list_installed(env):
        distributions[one.name] = (*distributions.get(one.name, ()), one)
    return distributions


def read_versions(env: Path) -> dict[str, str]:
    """Return the versions of an environment's distributions by their normal names."""
    versions = {d.name: d.version for d in list_installed(env) if _is_version(d.version)}
    libraries = (r for r in list_conda_records(env) if r.name in _CONDA_LIBRARIES)
    return versions | {r.name: r.version for r in libraries if _is_version(r.version)}


def read_python(env: Path) -> str | None:
    """Return the Python of an environment as "3.12", or None if its folders name none or several."""
    versions = {
        m.group(1) for p in env.glob("lib/python3.*") if (m := re.fullmatch(r"python(3\.\d{1,2})", p.name))
    }
    return versions.pop() if len(versions) == 1 else None


def _is_version(text: str) -> bool:
    from packaging.version import (  # slow to import, and verify --quick needs no version
        InvalidVersion,
        Version,
    )

    try:
        Version(text)
    except InvalidVersion:
        return False
    return True


# --- rows of RECORD ------------------------------------------------------------------------------


def compare_file(row: RecordRow, since: float | None, *, hashes: bool = False) -> str | None:
    """Return how a file differs from its row: "missing", "size" or "bytes", or None for no difference.

    The bytes are read with `hashes`, or for a file that was written after `since` (seconds since 1970).
    """
    try:
        linked = row.digest is None and row.size is None  # such a row may be of a link to nothing
        status = os.stat(row.path, follow_symlinks=not linked)  # noqa: PTH116  # ten thousand files
    except OSError:
        return "missing"
    if row.size is not None and status.st_size != row.size:
        return "size"
    if row.digest is None or not (hashes or (since is not None and status.st_mtime > since)):
        return None
    return "bytes" if hash_readable(row.path) != row.digest else None


def _split_rows(lines: Iterable[str]) -> Iterator[list[str]]:
    """Yield the cells of rows. Only a path with a comma or a quote is quoted, so few rows need the csv reader."""
    for line in lines:
        try:
            cells = next(csv.reader([line])) if '"' in line else line.rsplit(",", 2)
        except csv.Error:
            continue  # a cell longer than any path
        if len(cells) == 3 and cells[0] and "\0" not in cells[0]:
            yield cells


def join_row(site: str, name: str) -> str:
    """Return the path of a file in RECORD, whose name is relative to site-packages."""
    return f"{site}/{name}" if ".." not in name and name[0] != "/" else os.path.normpath(f"{site}/{name}")


def _parse_sha256(cell: str) -> str | None:
    """Return the hash of a row in hexadecimal, or None for a row without a valid one."""
    match = re.fullmatch(r"sha256=([A-Za-z0-9_-]{43})=?", cell)
    return base64.urlsafe_b64decode(match[1] + "=").hex() if match else None


def format_sha256(data: bytes) -> str:
    """Return the hash of a file as a row of RECORD has it."""
    return f"sha256={base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b'=').decode()}"


def _parse_size(cell: str) -> int | None:
    return int(cell) if re.fullmatch(r"[0-9]{1,18}", cell) else None


# --- conda-meta ----------------------------------------------------------------------------------


class CondaRecord(Value, kw_only=False):
    """A record of conda-meta: `stem` is "numpy-2.3.1-py311h1_0"."""

    root: Path
    stem: str

    @property
    def name(self) -> str:
        return self.stem.rsplit("-", 2)[0]

    @property
    def version(self) -> str:
        return self.stem.rsplit("-", 2)[1]

    @property
    def text(self) -> str:
        """The contents of the record, or "" if it cannot be read."""
        try:
            return untrusted.read_text(self.root / "conda-meta" / f"{self.stem}.json")
        except OSError:
            return ""

    @cached_property
    def rows(self) -> tuple[RecordRow, ...]:
        """Its files without bytecode, with digests and sizes in this prefix. Links have neither. Damaged rows are
        left out.

        conda writes the prefix into some text files, so their recorded size does not apply.
        """
        try:
            listed = json.loads(self.text)["paths_data"]["paths"]
        except (ValueError, RecursionError, KeyError, TypeError):
            return ()
        rows = (
            self._make_row(r) for r in (listed if isinstance(listed, list) else ()) if isinstance(r, dict)
        )
        return tuple(row for row in rows if row and not row.name.endswith(".pyc"))

    def find_wrong_sizes(self) -> dict[str, str]:
        """Return the files that are missing or of another size: path -> "missing" or "size"."""
        return {row.path: how for row in self.rows if (how := compare_file(row, None))}

    def _make_row(self, row: dict[str, Any]) -> RecordRow | None:
        name, digest, size = row.get("_path"), row.get("sha256_in_prefix"), row.get("size_in_bytes")
        if not isinstance(name, str) or "\0" in name:
            return None
        if row.get("prefix_placeholder"):
            size = None
        elif not isinstance(digest, str):
            digest = row.get("sha256")
        if row.get("path_type") == "softlink":
            digest = size = None
        return RecordRow(
            str(self.root / name),
            digest if isinstance(digest, str) else None,
            size if isinstance(size, int) else None,
            name,
        )


def list_conda_records(prefix: Path) -> list[CondaRecord]:
    """Return the records in conda-meta. Each file is read when it is needed."""
    return [CondaRecord(prefix, p.stem) for p in sorted((prefix / "conda-meta").glob("*-*-*.json"))]


def list_conda_infos(prefix: Path) -> frozenset[str]:
    """Return the names of the dist-info folders of conda packages."""
    texts = (record.text for record in list_conda_records(prefix))
    return frozenset(n for text in texts for n in re.findall(r'site-packages/([^/"]+\.dist-info)/', text))


def find_owner_of_missing(env: Path, module: str) -> str | None:
    """Return the installed package ("numpy 2.1.0") whose RECORD lists missing files of a module.

    Returns None if no package lists the module, or if its files exist.
    """
    start = module.replace(".", "/")
    row = re.compile(rf'^"?({re.escape(start)}(?:\.py|/__init__\.py|\.[\w-]{{1,80}}\.so|\.so|/[^,]{{1,300}}\.(?:py|so)))"?,', re.MULTILINE)  # fmt: skip
    for one in list_installed(env):
        listed = row.findall(one.record_text)
        if any(not (one.folder.parent / name).exists() for name in _select_opened(start, listed)):
            return str(one)
    return None


def has_module(env: Path, module: str) -> bool:
    """Return whether site-packages has a module, as a folder with an __init__.py or as a file."""
    start = module.replace(".", "/")
    return any(
        (site / start / "__init__.py").exists() or (site / f"{start}.py").exists() for site in find_sites(env)
    )


def _select_opened(start: str, listed: list[str]) -> list[str]:
    """Return the files that an import of the module opens. For a package without __init__ these are all of its files."""
    opened = [n for n in listed if n == f"{start}/__init__.py" or not n.startswith(f"{start}/")]
    return opened or listed
