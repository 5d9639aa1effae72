"""pip's configuration (pip.conf and PIP_*), and the URL of the default index.

Order and file names are those of pip's documentation, "Configuration". The files are global, user, site, and the one
that PIP_CONFIG_FILE names, followed by the environment. In each, [global] is before [install].
"""

from __future__ import annotations

import configparser
import functools
import hashlib
import json
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ..errors import LockError
from ..model import PackageSources
from ..system import trust
from ..system.scratch import make_scratch
from . import uv_config

_KEYS = ("index-url", "extra-index-url", "find-links", "trusted-host", "cert", "proxy", "no-index", "timeout",
         "default-timeout")  # fmt: skip
_TRUE = ("1", "true", "yes", "on", "y", "t")


@dataclass(frozen=True, kw_only=True, slots=True)
class PipConfig:
    """pip's settings for the sources of packages.

    URLs are as written, with credentials. Show them only after `redact`.
    """

    index_url: str | None = None
    extra_index_urls: tuple[str, ...] = ()
    find_links: tuple[str, ...] = ()
    trusted_hosts: tuple[str, ...] = ()
    cert: str | None = None
    proxy: str | None = None
    no_index: bool = False
    timeout: float | None = None


def pip_files(environ: Mapping[str, str]) -> list[Path]:
    """Return the configuration files of pip, weakest first, including missing ones."""
    named = environ.get("PIP_CONFIG_FILE")
    if named == os.devnull:
        return []
    home = Path(environ.get("HOME") or Path.home())
    dirs = (environ.get("XDG_CONFIG_DIRS") or "/etc/xdg").split(os.pathsep)
    files = [Path(d) / "pip" / "pip.conf" for d in dirs if d] + [Path("/etc/pip.conf")]
    if not (named and Path(named).exists()):
        user = Path(environ.get("XDG_CONFIG_HOME") or home / ".config")
        files += [home / ".pip" / "pip.conf", user / "pip" / "pip.conf"]
    if venv := environ.get("VIRTUAL_ENV"):
        files.append(Path(venv) / "pip.conf")
    return files + ([Path(named)] if named else [])


def parse_pip_conf(text: str) -> dict[str, dict[str, str]]:
    """Return the sections of a pip.conf. Keys have the names of pip's options. Raises ValueError."""
    parser = configparser.RawConfigParser()
    try:
        parser.read_string(text)
    except configparser.Error as e:
        raise ValueError(str(e).replace("\n", " ")) from e
    return {s: {k.replace("_", "-"): v for k, v in parser.items(s)} for s in parser.sections()}


def pip_configuration(environ: Mapping[str, str]) -> PipConfig:
    """Return pip's configuration for `pip install`. Raises LockError with the name of an invalid file."""
    options: dict[str, dict[str, str]] = {"global": {}, "install": {}}
    for path in pip_files(environ):
        try:
            data = trust.read_configuration(path, named=str(path) == environ.get("PIP_CONFIG_FILE"))
            sections = parse_pip_conf(data.decode()) if data else {}
        except (OSError, ValueError) as e:
            raise LockError(
                f"{path} is not a valid configuration of pip: {e}",
                hint="correct or move the file; pip reads it too",
            ) from e
        for section, values in options.items():
            values.update(sections.get(section, {}))
    merged = {**options["global"], **options["install"]}
    for key in _KEYS:
        if value := environ.get("PIP_" + key.upper().replace("-", "_")):
            merged[key] = value
    return PipConfig(
        index_url=merged.get("index-url") or None,
        extra_index_urls=tuple(merged.get("extra-index-url", "").split()),
        find_links=tuple(merged.get("find-links", "").split()),
        trusted_hosts=tuple(merged.get("trusted-host", "").split()),
        cert=merged.get("cert") or None,
        proxy=merged.get("proxy") or None,
        no_index=merged.get("no-index", "").strip().lower() in _TRUE,
        timeout=_parse_seconds(merged.get("timeout") or merged.get("default-timeout")),
    )


def _parse_seconds(text: str | None) -> float | None:
    """Return a time-out as pip reads it, or None for an invalid one, which pip reports itself."""
    try:
        seconds = float(text or 0)
    except ValueError:
        return None
    return seconds if 0 < seconds < 1e6 else None


def default_index(environ: Mapping[str, str], *, cache_dir: Path | None = None) -> str:
    """Return the URL of the default index, without a slash at its end.

    It is configured for pip or uv, else uv's default. The latter is kept in `cache_dir`. Raises LockError if uv does
    not report it.
    """
    settings = uv_config.variables(environ)
    configured = (
        environ.get("GPUENV_INDEX_PYPI")
        or uv_config.default_index(settings)
        or pip_configuration(environ).index_url
    )
    if configured:
        return configured.rstrip("/")
    kept = cache_dir / f"default-index-{_digest_settings(settings)}" if cache_dir else None
    if kept and (url := _read_kept(kept)):
        return url
    url = _ask_uv()
    if kept:
        trust.write_cached(kept, url + "\n")
    return url


def _digest_settings(settings: Mapping[str, str]) -> str:
    """Return a digest of everything that decides uv's default: its settings from files and variables, and its
    version."""
    from . import uv

    program = Path(uv.program())
    status = program.stat()
    decided = [sorted(settings.items()), str(program.resolve()), status.st_size, status.st_mtime_ns]
    return hashlib.sha256(json.dumps(decided).encode()).hexdigest()[:16]


def _read_kept(path: Path) -> str | None:
    """Return the address that an earlier run wrote, or None for a missing or damaged file."""
    try:
        url = trust.read_cached(path).decode("utf-8", "replace").strip()
    except OSError:
        return None
    return url if re.fullmatch(r"(?:https?|file)://[^\s@]+", url) else None


@functools.cache
def _ask_uv() -> str:
    from . import uv

    options = ["--no-deps", "--no-header", "--emit-index-annotation", "--quiet"]
    settings = uv.Settings(alone=True, locked=True, timeout=120)
    with make_scratch("index") as folder:
        requirements = folder / "requirements.in"
        requirements.write_text("packaging\n", encoding="utf-8")
        words = ["pip", "compile", str(requirements), *options]
        done = uv.run_uv(words, PackageSources(), python=sys.executable, settings=settings)
    index = re.search(r"#\s*from\s+(\S+)", done.stdout)
    if not index:
        raise _explain_unknown_index(done.stderr)
    return index[1].rstrip("/")


def _explain_unknown_index(log: str) -> LockError:
    """Return the error for an index that did not answer, or for any other failure of uv."""
    hint = "check the network and its proxy, or name a reachable index in PIP_INDEX_URL"
    causes = re.findall(r"^\s*(?:cause|Caused by): (.+)$", log, re.MULTILINE)
    address = re.search(r"https?://[^\s`)]+", log)
    if not causes or not address:
        return LockError("uv did not report the default package index", hint=hint, log=log)
    proxy = " by the proxy" if "tunnel error" in log or "proxy" in log.lower() else ""
    reason = re.sub(r" \(os error \d+\)$", "", causes[-1])
    return LockError(
        f"cannot reach the index {address[0]}: {reason[0].lower()}{reason[1:]}{proxy}", hint=hint
    )
