"""Source archives in a bundle: what builds them must be in it as well."""

from __future__ import annotations

import tarfile
import zipfile
from pathlib import Path

import tomli
from packaging.requirements import InvalidRequirement, Requirement

# What PEP 518 says for an archive that names nothing.
_DEFAULT = ("setuptools", "wheel")


def build_requires(path: Path) -> tuple[str, ...]:
    """The build requirements that a source archive's pyproject.toml names; what its build tool asks for
    besides is known only once that runs."""
    try:
        data = tomli.loads(_pyproject(path))
        named = data["build-system"]["requires"]
        return tuple(str(Requirement(text)) for text in named)
    except (
        OSError,
        KeyError,
        TypeError,
        ValueError,
        InvalidRequirement,
        tarfile.TarError,
        zipfile.BadZipFile,
    ):
        return _DEFAULT


def _pyproject(path: Path) -> str:
    """The text of NAME-VERSION/pyproject.toml. Raises KeyError where there is none."""
    if path.suffix == ".zip":
        with zipfile.ZipFile(path) as archive:
            return archive.read(_top(archive.namelist())).decode()
    with tarfile.open(path) as archive_:
        file = archive_.extractfile(_top(archive_.getnames()))
        assert file  # a regular file by its name; a link raises KeyError before
        return file.read().decode()


def _top(names: list[str]) -> str:
    found = [n for n in names if n.count("/") == 1 and n.endswith("/pyproject.toml")]
    if not found:
        raise KeyError("pyproject.toml")
    return found[0]
