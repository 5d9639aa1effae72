"""The door to conda channels: py-rattler in a process of its own (`worker/`)."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ...errors import GpuenvError, UsageError
from ...system import process, scratch_folders
from ...system.redaction import redact_text
from . import condarc as conda_auth
from .condarc import configuration

_WORKER = Path(__file__).resolve().parent / "worker" / "__main__.py"
_TIMEOUT = 4 * 3600.0
_SUBDIRS = {"linux-x86_64": "linux-64", "linux-aarch64": "linux-aarch64", "windows-x86_64": "win-64"}
_CONFIGURED = ("solve", "install", "addresses")
"""What the user's own configuration of conda has a say in."""


def subdir(platform: str) -> str:
    """Conda's name for a platform ("linux-64")."""
    return _SUBDIRS[platform]


def require(*modules: str) -> None:
    """Raise UsageError, with the command that helps, where the conda extra is not installed."""
    absent = [m for m in modules or ("rattler", "conda_lock") if importlib.util.find_spec(m) is None]
    if absent:
        raise UsageError(
            f"conda environments need {' and '.join(absent)}, which this gpuenv was installed without",
            hint="pip install 'gpuenv[conda]'",
        )


def cache_dir(chosen: str | None) -> Path:
    """The shared package cache: rattler's own, so that pixi's and gpuenv's packages are one copy."""
    if chosen:
        return Path(chosen) / "conda"
    environ = process.environ()
    if environ.get("RATTLER_CACHE_DIR"):
        return Path(environ["RATTLER_CACHE_DIR"])
    base = Path(environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "rattler" / "cache"


def _patience() -> float:
    """Seconds that a server may keep silent: twice what uv or pip are told to wait, else two minutes."""
    from ...index.pip_config import pip_configuration

    environ = process.environ()
    told = environ.get("UV_HTTP_TIMEOUT", "")
    return 2 * (float(told) if told.isdigit() else pip_configuration(environ).timeout or 60.0)


def _configured(
    operation: str, told: Callable[[dict[str, Any]], None], failure: type[GpuenvError], scratch: Path
) -> tuple[dict[str, Any], dict[str, str]]:
    """What the user's configuration adds to a request, and the variables that the engine gets; what of it is
    not followed is told."""
    environ = process.environ()
    try:
        found = configuration(environ)
        held, absent = conda_auth.read(environ)
    except ValueError as error:
        raise failure(
            str(error), hint="mend the file, or name another with CONDARC or RATTLER_AUTH_FILE"
        ) from error
    for text in (*found.said, *filter(None, [absent])):
        told({"event": "note", "text": text})
    values, lent = found.values, {}
    if operation != "addresses":  # whose answer is where packages lie, with what lets one in
        values, known = conda_auth.of_mirrors(values)
        lent = conda_auth.lend(known, held, scratch)
        environ |= lent
    if found.certificates:
        environ["SSL_CERT_DIR" if Path(found.certificates).is_dir() else "SSL_CERT_FILE"] = found.certificates
    more = {"offline": True} if values.get("offline") is True else {}
    return {"rc": values, "lent": environ["RATTLER_AUTH_FILE"] if lent else None, **more}, environ


def ask(
    operation: str,
    request: dict[str, Any],
    told: Callable[[dict[str, Any]], None],
    failure: type[GpuenvError],
) -> dict[str, Any]:
    """One answer of the worker. `told` gets what it tells on its way.

    Raises `failure` where the engine crashed or a configuration file cannot be used; what the engine
    refused is in the answer's `error`.
    """
    require("rattler")

    def on_line(line: str) -> None:
        if line.startswith('{"event"'):
            told(json.loads(line))

    with scratch_folders.scratch("conda") as scratch:
        answer = scratch / "answer.json"
        more: dict[str, Any] = {"rc": {}}
        environ = process.environ()
        if operation in _CONFIGURED:
            more, environ = _configured(operation, told, failure, scratch)
        paths = [p for p in sys.path if p and p != str(Path.cwd())]
        whole = {**request, "op": operation, "parent": os.getpid(), "answer": str(answer), "sys_path": paths}
        done = process.run(
            [sys.executable, "-I", str(_WORKER)], env=environ,
            stdin=json.dumps({**whole, "patience": _patience(), **more}), timeout=_TIMEOUT, on_line=on_line,
        )  # fmt: skip
        if answer.exists():
            found = dict(json.loads(answer.read_text(encoding="utf-8")))
            if found.get("error", {}).get("kind") == "ConfigurationError":
                raise failure(
                    redact_text(found["error"]["text"]), hint="mend the configuration that is named"
                )
            return found
        if not scratch.is_dir():
            raise failure(
                f"{scratch} vanished while the conda engine was to {operation}",
                hint="temporary files are made there: see that nothing removes them, or name another folder with TMPDIR",
            )
    log = redact_text("\n".join(x for x in done.stderr.splitlines() if not x.startswith('{"event"')))
    how = done.signal or ("its deadline passed" if done.timed_out else f"exit code {done.returncode}")
    first = next((x.strip() for x in log.splitlines() if x.strip() and "panicked at" not in x), "")
    raise failure(
        f"the conda engine (py-rattler) broke down while it was to {operation}: {how}"
        + (f": {first}" if first else ""),
        log=log[-4000:] or None,
        hint="nothing half-made stays; the lines above are the engine's own",
    )
