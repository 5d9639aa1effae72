"""Source archives in a bundle: what builds them must be in it as well."""

from __future__ import annotations

from pathlib import Path

import tomli
from packaging.requirements import InvalidRequirement, Requirement

from ..index import archives

# What PEP 518 says for an archive that names nothing.
_DEFAULT = ("setuptools", "wheel")


def build_requires(path: Path) -> tuple[str, ...]:
    """Return the build requirements that a source archive's pyproject.toml names; what its build tool asks for
    besides is known only once that runs. Raises LockError for an archive that unpacks to more than is sane."""
    try:
        data = tomli.loads(archives.read_of_sdist(path, "pyproject.toml").decode())
        named = data["build-system"]["requires"]
        return tuple(str(Requirement(text)) for text in named)
    except (KeyError, TypeError, InvalidRequirement, *archives.DAMAGED):
        return _DEFAULT
