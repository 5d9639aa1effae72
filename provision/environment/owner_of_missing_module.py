"""Finds the installed package whose files of a module are missing."""

from __future__ import annotations

import re
from pathlib import Path

from .distributions import find_sites, list_distributions


def find_owner_of_missing(env: Path, module: str) -> str | None:
    """Return the installed package ("numpy 2.1.0") whose RECORD lists missing files of a module.

    Returns None if no package lists the module, or if its files exist.
    """
    start = module.replace(".", "/")
    row = re.compile(rf'^"?({re.escape(start)}(?:\.py|/__init__\.py|\.[\w-]{{1,80}}\.so|\.so|/[^,]{{1,300}}\.(?:py|so)))"?,', re.MULTILINE)  # fmt: skip
    for one in (d for site in find_sites(env) for d in list_distributions(site)):
        listed = row.findall(one.record_text)
        if any(not (one.folder.parent / name).exists() for name in _select_opened(start, listed)):
            return str(one)
    return None


def is_there(env: Path, module: str) -> bool:
    """Return whether site-packages has a module, as a folder with an __init__.py or as a file."""
    start = module.replace(".", "/")
    return any(
        (site / start / "__init__.py").exists() or (site / f"{start}.py").exists() for site in find_sites(env)
    )


def _select_opened(start: str, listed: list[str]) -> list[str]:
    """Return the files that an import of the module opens. For a package without __init__ these are all of its files."""
    opened = [n for n in listed if n == f"{start}/__init__.py" or not n.startswith(f"{start}/")]
    return opened or listed
