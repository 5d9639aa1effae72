"""Runs the conda engine, py-rattler, in a separate process (`worker/`)."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from ..errors import GpuenvError, UsageError
from ..system import process, trust
from ..system.redaction import clean, clean_line
from ..system.scratch import make_scratch

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
    from ..index.config import pip_settings

    environ = process.environ()
    timeout = environ.get("UV_HTTP_TIMEOUT", "")
    return 2 * (float(timeout) if timeout.isdigit() else pip_settings(environ).timeout or 60.0)


def _prepare(
    operation: str, on_progress: Callable[[dict[str, Any]], None], failure: type[GpuenvError], scratch: Path
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the user's configuration for a request, and the engine's variables. Emit a note for each ignored key."""
    environ = process.environ()
    try:
        configured = read_configuration(environ)
        credentials, absent = read_auth_file(environ)
    except ValueError as error:
        raise failure(
            str(error), hint="correct the file, or name another with CONDARC or RATTLER_AUTH_FILE"
        ) from error
    for text in (*configured.said, *filter(None, [absent])):
        on_progress({"event": "note", "text": text})
    values, lent = configured.values, {}
    if operation != "addresses":  # its answer contains addresses with credentials
        values, known = split_mirror_credentials(values)
        lent = write_auth_file(known, credentials, scratch)
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
            more, environ = _prepare(operation, on_progress, failure, scratch)
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


_LISTS = ("channels", "default_channels")
_MAPS = ("custom_channels", "custom_multichannels", "mirrored_channels", "proxy_servers")
_BOOLEANS = {"true": True, "false": False, "1": True, "0": False}
_GROUPS = ("custom_multichannels", "mirrored_channels")
_WORDS = ("channel_alias", "channel_priority", "offline", "ssl_verify")
# Keys that change package sources or access to them, which the engine does not support
_UNSERVED = ("allowlist_channels", "channel_settings", "client_ssl_cert", "client_ssl_cert_key",
             "denylist_channels", "whitelist_channels")  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class Configuration:
    """The configuration. `said` are notes about keys that gpuenv ignores."""

    values: dict[str, Any] = field(default_factory=dict)
    said: tuple[str, ...] = ()

    @property
    def certificates(self) -> str | None:
        """Return the certificate file or folder of `ssl_verify`, or None for the system's."""
        return _find_certificates(self.values.get("ssl_verify"))


def read_configuration(environ: Mapping[str, str]) -> Configuration:
    """Read conda's configuration. Raises ValueError with the path of an invalid file."""
    values: dict[str, Any] = {}
    unserved: dict[str, None] = {}
    for path in _iterate_files(environ):
        data = _read(path, environ)
        unserved |= {f"{key} in {path}": None for key in _UNSERVED if data.get(key)}
        values = _merge(values, {k: data[k] for k in (*_LISTS, *_MAPS, *_WORDS) if data.get(k) is not None})
    values = _merge(values, _read_variables(environ))
    said = [f"{words} is ignored: gpuenv does not support it" for words in unserved]
    if values.get("offline") is True:
        said.append("conda is configured to be offline: gpuenv contacts no channel")
    if isinstance(values.get("proxy_servers"), dict):
        others = sorted(k for k in values["proxy_servers"] if k not in ("http", "https"))
        said += [
            f"proxy_servers in .condarc: {_quote(k)} is ignored, only http and https apply" for k in others
        ]
    return Configuration(values=values, said=tuple(said))


def _find_certificates(ssl_verify: object) -> str | None:
    named = isinstance(ssl_verify, str) and ssl_verify not in ("", "truststore")
    return str(Path(str(ssl_verify)).expanduser()) if named else None


def _quote(text: object) -> str:
    return clean_line(str(text), 200)


# --- files ---------------------------------------------------------------------------------------


def _iterate_files(environ: Mapping[str, str]) -> Iterator[Path]:
    """Yield the files that conda reads, lowest priority first."""
    home = Path(environ.get("HOME") or Path.home())
    folders = [Path("/etc/conda"), Path("/var/lib/conda")]
    folders += [Path(environ[v]) for v in ("CONDA_ROOT",) if environ.get(v)]
    if environ.get("XDG_CONFIG_HOME"):
        folders.append(Path(environ["XDG_CONFIG_HOME"]) / "conda")
    folders += [home / ".config" / "conda", home / ".conda"]
    for folder in dict.fromkeys(folders):
        yield from _iterate_folder(folder)
    yield from _iterate_existing(home / ".condarc")
    if environ.get("CONDA_PREFIX"):
        yield from _iterate_folder(Path(environ["CONDA_PREFIX"]))
    if environ.get("CONDARC"):
        yield from _iterate_existing(Path(environ["CONDARC"]).expanduser())


def _iterate_folder(folder: Path) -> Iterator[Path]:
    yield from _iterate_existing(folder / ".condarc")
    yield from _iterate_existing(folder / "condarc")
    if (folder / "condarc.d").is_dir():
        yield from sorted(p for p in (folder / "condarc.d").iterdir() if p.suffix in (".yml", ".yaml"))


def _iterate_existing(path: Path) -> Iterator[Path]:
    if path.is_file():
        yield path


def _read(path: Path, environ: Mapping[str, str]) -> dict[str, Any]:
    import yaml

    try:
        content = trust.read_configuration(path, named=str(path) == environ.get("CONDARC")) or b""
        data = yaml.safe_load(_expand(content.decode(), environ))
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} cannot be read: {error}") from error
    except yaml.YAMLError as error:
        where = getattr(error, "problem_mark", None)
        line = f" line {where.line + 1}" if where else ""
        raise ValueError(
            f"{path}{line} is not YAML: {getattr(error, 'problem', None) or 'invalid syntax'}"
        ) from None
    except RecursionError:
        raise ValueError(f"{path} is nested too deeply for a .condarc") from None
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise ValueError(f"{path} is not a .condarc: it has no keys")  # noqa: TRY004  # one class for every bad file
    return {key: _check(path, key, value) for key, value in data.items()}


def _check(path: Path | str, key: str, value: Any) -> Any:
    """Return a value in the form of its key. conda reads one word as a list of one."""
    if key in _LISTS:
        words = [value] if isinstance(value, str) else value
        if words is not None and not (isinstance(words, list) and all(isinstance(w, str) for w in words)):
            raise ValueError(f"{path}: {key} is not a list of channels")
        return words
    if key in _MAPS and value is not None and not isinstance(value, dict):
        raise ValueError(f"{path}: {key} is not a map")
    for name, entry in value.items() if key in _MAPS and value else ():
        words = entry if isinstance(entry, list) and key in _GROUPS else [entry]
        if not all(isinstance(w, str) for w in words if w is not None):
            raise ValueError(f"{path}: {key} has an invalid address: {_quote(name)}")
    if key == "channel_alias" and not isinstance(value, str | None):
        raise ValueError(f"{path}: {key} is not an address")
    if key == "ssl_verify":
        value = _BOOLEANS.get(str(value).lower(), value)
        named = _find_certificates(value)
        if named and not Path(named).exists():
            raise ValueError(f"{path}: {key} names {named}, which does not exist")
    return value


def _expand(text: str, environ: Mapping[str, str]) -> str:
    """Return a text with the values of `$NAME` and `${NAME}`. An unset variable stays."""
    return re.sub(r"\$(\w+)|\$\{(\w+)\}", lambda m: environ.get(m[1] or m[2], m[0]), text)


def _read_variables(environ: Mapping[str, str]) -> dict[str, Any]:
    """Return the keys from CONDA_* variables, with lists separated by commas."""
    values: dict[str, Any] = {}
    for key in (*_LISTS, *_WORDS):
        variable = f"CONDA_{key.upper()}"
        text = environ.get(variable)
        if text and key in _LISTS:
            values[key] = [w.strip() for w in text.split(",") if w.strip()]
        elif text:
            values[key] = _check(variable, key, _BOOLEANS.get(text.lower(), text))
    return values


def _merge(below: dict[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Merge two files as conda does."""
    merged = dict(below)
    for key, value in above.items():
        before = below.get(key)
        if key in _LISTS and before:
            merged[key] = _join(value, before)
        elif key in _MAPS and before:
            merged[key] = {**before, **value}
        else:
            merged[key] = value
    return merged


def _join(first: Sequence[str], then: Sequence[str]) -> list[str]:
    return list(dict.fromkeys([*first, *then]))


def read_auth_file(environ: Mapping[str, str]) -> tuple[dict[str, Any], str | None]:
    """Read the file of RATTLER_AUTH_FILE, and return a note if it is missing.

    Raises ValueError for a file that the engine cannot read, this one or the one in the home folder. The message quotes
    nothing of the file.
    """
    home = Path(environ.get("HOME") or Path.home()) / ".rattler" / "credentials.json"
    _read_hosts(home)
    named = environ.get("RATTLER_AUTH_FILE")
    if not named:
        return {}, None
    hosts = _read_hosts(Path(named), named=True)
    said = None if hosts is not None else f"RATTLER_AUTH_FILE names {named}, which does not exist"
    return hosts or {}, said


def _read_hosts(path: Path, *, named: bool = False) -> dict[str, Any] | None:
    try:
        if (content := trust.read_configuration(path, named=named)) is None:
            return None
        data = json.loads(content)
    except OSError as error:
        raise ValueError(f"the auth file {path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        line = f": line {error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        raise ValueError(f"the auth file {path} cannot be read: it is not JSON{line}") from None
    if not isinstance(data, dict) or not all(isinstance(entry, dict) for entry in data.values()):
        raise ValueError(f"the auth file {path} cannot be read: expected a mapping of hosts to credentials")
    return data


def split_mirror_credentials(values: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the configuration with mirror addresses without credentials, and the credentials by host."""
    known: dict[str, Any] = {}

    def plain(address: str) -> str:
        parts = urlsplit(address)
        if parts.hostname and parts.password is not None:
            user, password = unquote(parts.username or ""), unquote(parts.password)
            known[parts.hostname] = {"BasicHTTP": {"username": user, "password": password}}
        return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()

    mirrors = {
        channel: [plain(a) for a in ([places] if isinstance(places, str) else places or ())]
        for channel, places in (values.get("mirrored_channels") or {}).items()
    }
    return {**values, "mirrored_channels": mirrors}, known


def write_auth_file(
    known: Mapping[str, Any], credentials: Mapping[str, Any], scratch: Path
) -> dict[str, str]:
    """Write an auth file for one run, and return its variable. Return nothing without credentials to add."""
    if not known:
        return {}
    path = scratch / "auth.json"
    path.touch(mode=0o600)
    path.write_text(json.dumps({**credentials, **known}), encoding="utf-8")
    return {"RATTLER_AUTH_FILE": str(path)}
