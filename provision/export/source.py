"""Where an export gets gpuenv from: its own wheel beside the file, or the address of `--gpuenv-from`."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from ..errors import UsageError
from ..model.values import Value
from ..system import untrusted
from ..system.files import suggest_fix, write_file
from ..system.redaction import redact
from ..system.scratch import make_scratch
from . import INSTALL_GPUENV
from .subject import GpuenvSource

# None of these characters is special in sh, make, YAML, JSON or workflow expressions.
_ADDRESS = re.compile(r"(?:git\+)?(?:https?|ssh|file)://[A-Za-z0-9._~:/@#=+,%&-]+")
_KINDS = "git+https://HOST/PROJECT@COMMIT or https://HOST/gpuenv-VERSION-py3-none-any.whl"
# Special characters of make, and quotes that would end its command.
_UNFIT = re.compile(r"[\x00-\x1f\x7f'\"`$\\]|://")


def check_address(text: str) -> str:
    """Return the address of a `--gpuenv-from`. Raises UsageError for a name and for credentials."""
    shown = f"--gpuenv-from {redact(text)}"
    if redact(text) != text:
        raise UsageError(
            f"{shown}: the address contains credentials", hint="keep them in pip's or git's configuration"
        )
    if not _ADDRESS.fullmatch(text):
        raise UsageError(
            f"{shown}: expected a URL. On an index, a different project can have the same name",
            hint=f"--gpuenv-from {_KINDS}",
        )
    return text


class GpuenvWheel(Value):
    """The wheel of the running gpuenv, and its place beside an export."""

    path: Path
    data: bytes

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.data).hexdigest()

    def state(self) -> str:
        """Return "missing", "the same" or "another" for the file at the wheel's path. Raises UsageError."""
        try:
            return "the same" if untrusted.read_bytes(self.path) == self.data else "another"
        except FileNotFoundError:
            return "missing"
        except OSError as error:
            raise UsageError(f"cannot read {self.path}: {error.strerror}", hint="move it away") from error

    def refuse_to_replace(self, *, force: bool) -> None:
        """Raise UsageError if a different wheel exists at the path, unless `force` is true."""
        if not force and self.state() == "another":
            raise UsageError(
                f"{self.path} differs from the wheel of the running gpuenv and is kept",
                hint="move it away, or replace it with --force",
            )

    def write(self) -> bool:
        """Write the wheel if it is missing or different, and return whether it was written. Raises
        UsageError."""
        if self.state() == "the same":
            return False
        try:
            write_file(self.path, self.data)
        except OSError as error:
            hint = suggest_fix(error, "use --gpuenv-from ADDRESS")
            raise UsageError(f"cannot write {self.path}: {error.strerror}", hint=hint) from error
        return True

    def remark(self) -> str | None:
        """Return a warning if an export to standard output needs the wheel in its folder. Raises UsageError."""
        state = {"missing": "is missing", "another": "has another hash"}.get(self.state())
        return (
            f"{self.path.name} {state}. It must be in the same folder as the exported file. Use --output FILE to write both files"
            if state
            else None
        )


def choose_source(
    form: str, address: str | None, base: Path, folder: Path
) -> tuple[GpuenvSource, GpuenvWheel | None]:
    """Return where an export whose paths start from `folder` gets gpuenv from, and the wheel to write into `base`: that of
    the running gpuenv, without an address. Raises UsageError, BuildError."""
    if address is not None:
        if form not in INSTALL_GPUENV:
            raise UsageError(
                f"--gpuenv-from: an export in the format {form} does not install gpuenv",
                hint=f"use it with {', '.join(INSTALL_GPUENV)}",
            )
        return GpuenvSource(address=check_address(address)), None
    if form not in INSTALL_GPUENV:
        return GpuenvSource(), None
    from ..bundle import wheels

    with make_scratch("export") as scratch:
        name = wheels.own_wheel(scratch)
        wheel = GpuenvWheel(path=base / name, data=(scratch / name).read_bytes())
    return GpuenvSource(wheel=wheel.path.relative_to(folder).as_posix(), sha256=wheel.sha256), wheel


def choose_recorded_source(text: str | None, folder: Path) -> str:
    """Return the address or path that a Makefile in `folder` names, or "" if none is known. Raises
    UsageError."""
    if text is None:
        return _origin(folder)
    if "://" in text:
        return check_address(text)
    path = Path(text).expanduser()
    if not _is_source(path):
        raise UsageError(
            f"--gpuenv-from {text!r}: expected an address, a wheel or a checkout of gpuenv",
            hint="name git+https://HOST/PROJECT@COMMIT, or the path of a file .whl or of a folder with pyproject.toml",
        )
    named = _relative_path(path, folder)
    if _UNFIT.search(named):
        raise UsageError(
            f"--gpuenv-from {text!r}: a Makefile cannot contain this path", hint="move it to another folder"
        )
    return named


def _origin(folder: Path) -> str:
    """Return the address in direct_url.json that this gpuenv was installed from, or "" if it came from an
    index."""
    try:
        text = importlib.metadata.distribution("gpuenv").read_text("direct_url.json")
        origin: dict[str, Any] = json.loads(text or "{}")
        url = str(origin.get("url", ""))
    except (importlib.metadata.PackageNotFoundError, ValueError):
        return ""  # `make env` then names the variable to set
    if urlsplit(url).scheme == "file" and "vcs_info" not in origin:
        path = Path(unquote(urlsplit(url).path))
        named = _relative_path(path, folder) if _is_source(path) else ""
        return "" if _UNFIT.search(named) else named
    address = _address(redact(url), origin)
    return address if _ADDRESS.fullmatch(address) and redact(address) == address else ""


def _address(url: str, origin: dict[str, Any]) -> str:
    part = f"#subdirectory={origin['subdirectory']}" if "subdirectory" in origin else ""
    if vcs := origin.get("vcs_info"):
        return f"{vcs.get('vcs')}+{url}@{vcs.get('commit_id')}{part}"
    digest = origin.get("archive_info", {}).get("hashes", {}).get("sha256")
    return f"{url}#sha256={digest}" if digest else url


def _is_source(path: Path) -> bool:
    return path.is_file() if path.suffix == ".whl" else (path / "pyproject.toml").is_file()


def _relative_path(path: Path, folder: Path) -> str:
    """Return the path relative to the folder if it is inside, so that it is valid in a clone."""
    path = path.absolute()
    return f"./{path.relative_to(folder)}" if path.is_relative_to(folder) else str(path)
