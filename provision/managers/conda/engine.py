"""Runs the conda engine, py-rattler, in a separate process (`worker/`)."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ...errors import GpuenvError, UsageError
from ...system import process, trust
from ...system.redaction import clean
from ...system.scratch import make_scratch
from . import condarc as conda_auth
from .condarc import configuration

_WORKER = Path(__file__).resolve().parent / "worker" / "__main__.py"
_TIMEOUT = 4 * 3600.0
_SUBDIRS = {"linux-x86_64": "linux-64", "linux-aarch64": "linux-aarch64", "windows-x86_64": "win-64"}
_CONFIGURED = ("solve", "install", "addresses")
"""The operations that use the user's conda configuration."""


def subdir(platform: str) -> str:
    """Return conda's name for a platform ("linux-64")."""
    return _SUBDIRS[platform]


def require(*modules: str) -> None:
    """Raise UsageError with the install command if the conda extra is not installed."""
    absent = [m for m in modules or ("rattler", "conda_lock") if importlib.util.find_spec(m) is None]
    if absent:
        raise UsageError(
            f"conda environments need {' and '.join(absent)}, which is not installed",
            hint="run pip install 'gpuenv[conda]'",
        )


def cache_dir(chosen: str | None) -> Path:
    """Return rattler's package cache, which gpuenv shares with pixi."""
    environ = process.environ()
    usual = Path(environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rattler" / "cache"
    named = Path(chosen) / "conda" if chosen else Path(environ.get("RATTLER_CACHE_DIR") or usual)
    return trust.settle_cache(named)


def _get_patience() -> float:
    """Return the seconds to wait for a silent server: twice the timeout of uv or pip, else two minutes."""
    from ...index.pip_config import pip_configuration

    environ = process.environ()
    timeout = environ.get("UV_HTTP_TIMEOUT", "")
    return 2 * (float(timeout) if timeout.isdigit() else pip_configuration(environ).timeout or 60.0)


def _read_configuration(
    operation: str, on_progress: Callable[[dict[str, Any]], None], failure: type[GpuenvError], scratch: Path
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the user's configuration for a request, and the engine's variables. Emit a note for each ignored key."""
    environ = process.environ()
    try:
        configured = configuration(environ)
        credentials, absent = conda_auth.read(environ)
    except ValueError as error:
        raise failure(
            str(error), hint="correct the file, or name another with CONDARC or RATTLER_AUTH_FILE"
        ) from error
    for text in (*configured.said, *filter(None, [absent])):
        on_progress({"event": "note", "text": text})
    values, lent = configured.values, {}
    if operation != "addresses":  # its answer contains addresses with credentials
        values, known = conda_auth.split_mirror_credentials(values)
        lent = conda_auth.write_auth_file(known, credentials, scratch)
        environ |= lent
    if configured.certificates:
        environ["SSL_CERT_DIR" if Path(configured.certificates).is_dir() else "SSL_CERT_FILE"] = (
            configured.certificates
        )
    more = {"offline": True} if values.get("offline") is True else {}
    return {"rc": values, "lent": environ["RATTLER_AUTH_FILE"] if lent else None, **more}, environ


def ask(
    operation: str,
    request: dict[str, Any],
    on_progress: Callable[[dict[str, Any]], None],
    failure: type[GpuenvError],
) -> dict[str, Any]:
    """Run one request of the worker and return its answer. `on_progress` receives its progress.

    Raises `failure` if the engine crashes or a configuration file cannot be used. The answer's `error` has any other
    failure.
    """
    require("rattler")

    def on_line(line: str) -> None:
        if line.startswith('{"event"'):
            on_progress(json.loads(line))

    with make_scratch("conda") as scratch:
        answer = scratch / "answer.json"
        more: dict[str, Any] = {"rc": {}}
        environ = process.environ()
        if operation in _CONFIGURED:
            more, environ = _read_configuration(operation, on_progress, failure, scratch)
        paths = [p for p in sys.path if p and p != str(Path.cwd())]
        whole = {**request, "op": operation, "parent": os.getpid(), "answer": str(answer), "sys_path": paths}
        done = process.run(
            [sys.executable, "-I", str(_WORKER)], env=environ,
            stdin=json.dumps({**whole, "patience": _get_patience(), **more}), timeout=_TIMEOUT, on_line=on_line,
        )  # fmt: skip
        if answer.exists():
            reply = dict(json.loads(answer.read_text(encoding="utf-8")))
            if reply.get("error", {}).get("kind") == "ConfigurationError":
                text = clean(reply["error"]["text"])
                raise failure(text, hint="correct the configuration named above")
            return reply
        if not scratch.is_dir():
            raise failure(
                f"{scratch} was removed while the conda engine ran {operation}",
                hint="keep temporary files during a run, or choose another folder with TMPDIR",
            )
    raise _describe_crash(operation, done, failure)


def _describe_crash(operation: str, done: process.Finished, failure: type[GpuenvError]) -> GpuenvError:
    """Return the error for a worker that ended without an answer."""
    log = clean("\n".join(x for x in done.stderr.splitlines() if not x.startswith('{"event"')))
    how = done.signal or ("it exceeded its deadline" if done.timed_out else f"exit code {done.returncode}")
    first = next((x.strip() for x in log.splitlines() if x.strip() and "panicked at" not in x), "")
    return failure(
        f"the conda engine (py-rattler) failed in {operation}: {how}" + (f": {first}" if first else ""),
        log=log[-4000:] or None,
        hint="read the messages of the conda engine (py-rattler) above. Nothing was changed",
    )
