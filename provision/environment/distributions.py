"""The distributions that are installed in an environment, by the names of files. No code of the environment runs."""

from __future__ import annotations

import re
from pathlib import Path

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

_SITES = ("lib*/python3*/site-packages", "Lib/site-packages")
_OF_CONDA = ("cudnn",)  # libraries that conda packages bring without a distribution of Python


def read_versions(env: Path) -> dict[str, str]:
    """Return the versions of an environment's distributions by their normal names."""
    found = {}
    for folder in (f for site in _SITES for f in sorted(env.glob(f"{site}/*.dist-info"))):
        name, _, version = folder.name.removesuffix(".dist-info").partition("-")
        if _is_version(version):
            found[str(canonicalize_name(name))] = version
    for name in _OF_CONDA:
        for file in sorted(env.glob(f"conda-meta/{name}-*.json")):
            base, _, rest = file.name.rpartition("-")[0].rpartition("-")
            if base == name and _is_version(rest):
                found[name] = rest
    return found


def read_python(env: Path) -> str | None:
    """Return the Python of an environment as "3.12"; None where its folders name none or several."""
    found = {
        m.group(1) for p in env.glob("lib/python3.*") if (m := re.fullmatch(r"python(3\.\d{1,2})", p.name))
    }
    return found.pop() if len(found) == 1 else None


def _is_version(text: str) -> bool:
    try:
        Version(text)
    except InvalidVersion:
        return False
    return True
