"""The source of gpuenv that `gpuenv init` records for `make env`."""

from __future__ import annotations

import importlib.metadata
import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from ..errors import UsageError
from ..system.redaction import redact
from .gpuenv_from import checked_address, is_address

# These have a meaning to make, or end the quotes of its command.
_UNFIT = re.compile(r"[\x00-\x1f\x7f'\"`$\\]|://")


def recorded_source(text: str | None, folder: Path) -> str:
    """Return the address or the path that a Makefile in `folder` names; "" where none is known. Raises UsageError."""
    if text is None:
        return _origin(folder)
    if "://" in text:
        return checked_address(text)
    path = Path(text).expanduser()
    if not _is_source(path):
        raise UsageError(
            f"--gpuenv-from {text!r}: expected an address, a wheel or a checkout of gpuenv",
            hint="name git+https://HOST/PROJECT@COMMIT, or the path of a file .whl or of a folder with pyproject.toml",
        )
    named = _named(path, folder)
    if _UNFIT.search(named):
        raise UsageError(
            f"--gpuenv-from {text!r}: a Makefile cannot name this path", hint="move it to another folder"
        )
    return named


def _origin(folder: Path) -> str:
    """Return what the running gpuenv was installed from, by its direct_url.json; "" for a name of an index."""
    try:
        text = importlib.metadata.distribution("gpuenv").read_text("direct_url.json")
        origin: dict[str, Any] = json.loads(text or "{}")
        url = str(origin.get("url", ""))
    except (importlib.metadata.PackageNotFoundError, ValueError):
        return ""  # `make env` then names the variable to set
    if urlsplit(url).scheme == "file" and "vcs_info" not in origin:
        path = Path(unquote(urlsplit(url).path))
        named = _named(path, folder) if _is_source(path) else ""
        return "" if _UNFIT.search(named) else named
    address = _address(redact(url), origin)
    return address if is_address(address) else ""


def _address(url: str, origin: dict[str, Any]) -> str:
    part = f"#subdirectory={origin['subdirectory']}" if "subdirectory" in origin else ""
    if vcs := origin.get("vcs_info"):
        return f"{vcs.get('vcs')}+{url}@{vcs.get('commit_id')}{part}"
    digest = origin.get("archive_info", {}).get("hashes", {}).get("sha256")
    return f"{url}#sha256={digest}" if digest else url


def _is_source(path: Path) -> bool:
    return path.is_file() if path.suffix == ".whl" else (path / "pyproject.toml").is_file()


def _named(path: Path, folder: Path) -> str:
    """Return the path from the folder where it is inside, so that a clone has it too."""
    path = path.absolute()
    return f"./{path.relative_to(folder)}" if path.is_relative_to(folder) else str(path)
