"""Runs the conda engine, py-rattler, in a separate process (`worker/`), with the user's configuration of conda.

Paths and order of .condarc files follow conda's documentation ("Using the .condarc conda configuration file"). Later
files override earlier ones, lists are joined, and maps are merged. Values may contain credentials and go only to the
engine. For a mirror it reads credentials from rattler's auth files and ignores those in the mirror's address. So gpuenv
writes them into an auth file for one run.
"""

from __future__ import annotations

import importlib.util
import json
import re
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

from ..errors import GpuenvError, LockError, UsageError
from ..index.refusals import CONDA_CHANNEL, find_refusal
from ..system import process, trust
from ..system.redaction import clean, clean_line
from ..system.scratch import make_scratch

_WORKER = Path(__file__).resolve().parent / "worker" / "__main__.py"
_TIMEOUT = 4 * 3600.0
_CONFIGURED = ("solve", "install", "addresses")
"""The operations that use the user's conda configuration."""
_READ_MESSAGES = "read the messages of the conda engine (py-rattler) above"
Failure = TypeVar("Failure", bound=GpuenvError)


def require(*modules: str) -> None:
    """Raise UsageError with the install command if the conda extra is not installed."""
    absent = [m for m in modules if importlib.util.find_spec(m) is None]
    if absent:
        package = Path(__file__).resolve().parents[1]
        released = next(f / "release" for f in (package, package.parent) if (f / "release").is_dir())
        python, file = (shlex.quote(str(p)) for p in (sys.executable, released / "requirements-conda.txt"))
        raise UsageError(
            f"conda environments need the extra conda of gpuenv; not installed: {', '.join(absent)}",
            hint=f"{python} -m uv pip install --python {python} --require-hashes -r {file}",
        )


def cache_dir(chosen: str | None) -> Path:
    """Return rattler's package cache, which gpuenv shares with pixi."""
    environ = process.environ()
    usual = Path(environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rattler" / "cache"
    named = Path(chosen) / "conda" if chosen else Path(environ.get("RATTLER_CACHE_DIR") or usual)
    return trust.secure_cache(named)


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
            try:
                more, environ = _configure(operation, on_progress, scratch)
            except ValueError as error:
                raise failure(
                    str(error), hint="correct the file, or name another with CONDARC or RATTLER_AUTH_FILE"
                ) from error
        paths = [p for p in sys.path if p and p != str(Path.cwd())]
        whole = {**request, "op": operation, "answer": str(answer), "sys_path": paths}
        finished = process.run(
            [sys.executable, "-I", str(_WORKER)], env=environ,
            stdin=json.dumps({**whole, "patience": _get_patience(), **more}), timeout=_TIMEOUT, on_line=on_line,
        )  # fmt: skip
        if answer.exists():
            reply = dict(json.loads(answer.read_text(encoding="utf-8")))
            if reply.get("error", {}).get("kind") == "ConfigurationError":
                raise failure(clean(reply["error"]["text"]), hint="correct the configuration named above")
            return reply
        if not scratch.is_dir():
            raise failure(
                f"{scratch} was removed while the conda engine ran {operation}",
                hint="keep temporary files during a run, or choose another folder with TMPDIR",
            )
    log = clean("\n".join(x for x in finished.stderr.splitlines() if not x.startswith('{"event"')))
    how = finished.signal or (
        "it exceeded its deadline" if finished.timed_out else f"exit code {finished.returncode}"
    )
    first = next((x.strip() for x in log.splitlines() if x.strip() and "panicked at" not in x), "")
    raise failure(
        f"the conda engine (py-rattler) failed in {operation}: {how}" + (f": {first}" if first else ""),
        log=log[-4000:] or None,
        hint=f"{_READ_MESSAGES}. Nothing was changed",
    )


def _get_patience() -> float:
    """Return the seconds to wait for a silent server: twice the timeout of uv or pip, else two minutes."""
    from ..index.config import pip_settings

    environ = process.environ()
    timeout = environ.get("UV_HTTP_TIMEOUT", "")
    return 2 * (float(timeout) if timeout.isdigit() else pip_settings(environ).timeout or 60.0)


def _configure(
    operation: str, on_progress: Callable[[dict[str, Any]], None], scratch: Path
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the user's configuration for a request, and the engine's variables. Emit a note for each ignored key."""
    environ = process.environ()
    values, notes = read_configuration(environ)
    credentials, absent = read_auth_file(environ)
    for text in (*notes, *filter(None, [absent])):
        on_progress({"event": "note", "text": text})
    lent = None
    if operation != "addresses":  # its answer contains addresses with credentials
        values, known = _split_mirror_credentials(values)
        if known:
            lent = environ["RATTLER_AUTH_FILE"] = str(scratch / "auth.json")
            Path(lent).touch(mode=0o600)
            Path(lent).write_text(json.dumps({**credentials, **known}), encoding="utf-8")
    if certificates := _find_certificates(values.get("ssl_verify")):
        environ["SSL_CERT_DIR" if Path(certificates).is_dir() else "SSL_CERT_FILE"] = certificates
    return {
        "rc": values,
        "lent": lent,
        **({"offline": True} if values.get("offline") is True else {}),
    }, environ


def _split_mirror_credentials(values: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
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


Faults = Sequence[tuple[str, str, str]]
"""Pattern, message and hint of each."""


def explain(
    failure: type[Failure], text: str, where: str, local: Faults, remote: Faults, otherwise: str
) -> Failure:
    """Return the error for a message of the engine: a fault of this machine, the channel's refusal, or `otherwise`.

    `remote` are faults that apply where the channel refuses nothing, or lacks the file.
    """
    refusal = find_refusal(text, where, CONDA_CHANNEL)
    rest = remote if refusal is None or refusal.cause in ("missing", "withdrawn") else ()
    for pattern, fault, hint in (*local, *rest):
        if re.search(pattern, text, re.IGNORECASE):
            return failure(f"{fault}: {where}", hint=hint, log=text)
    if refusal:
        words = refusal.words if where in refusal.words else f"{refusal.words}: {where}"
        error = failure(f"{CONDA_CHANNEL.name} {words}", hint=refusal.hint, log=text)
        if isinstance(error, LockError):
            error.unreachable = where
        return error
    return failure(otherwise, log=text, hint=_READ_MESSAGES)


def find_address(text: str) -> str | None:
    """Return the first address in a message of the engine."""
    address = re.search(r"(?:https?|file)://[^\s'\"`)]+", text)
    return address[0].rstrip(":/,") if address else None


# --- .condarc and CONDA_* ------------------------------------------------------------------------

_LISTS = ("channels", "default_channels")
_GROUPS = ("custom_multichannels", "mirrored_channels")
_MAPS = (*_GROUPS, "custom_channels", "proxy_servers")
_BOOLEANS = {"true": True, "false": False, "1": True, "0": False}
_WORDS = ("channel_alias", "channel_priority", "offline", "ssl_verify")
# Keys that change package sources or access to them, which the engine does not support
_IGNORED = ("allowlist_channels", "channel_settings", "client_ssl_cert", "client_ssl_cert_key",
            "denylist_channels", "whitelist_channels")  # fmt: skip


def read_configuration(environ: Mapping[str, str]) -> tuple[dict[str, Any], list[str]]:
    """Return conda's configuration, and notes on keys that gpuenv ignores.

    Raises ValueError with the path of an invalid file.
    """
    values: dict[str, Any] = {}
    notes: dict[str, None] = {}
    for path in filter(Path.is_file, _list_files(environ)):
        data = _read(path, environ)
        notes |= {
            f"{key} in {path} is ignored: gpuenv does not support it": None
            for key in _IGNORED
            if data.get(key)
        }
        _merge(values, data)
    _merge(values, _read_variables(environ))
    if values.get("offline") is True:
        notes["conda is configured to be offline: gpuenv contacts no channel"] = None
    for name in sorted({*(values.get("proxy_servers") or ())} - {"http", "https"}):
        notes[
            f"proxy_servers in .condarc: {clean_line(str(name), 200)} is ignored, only http and https apply"
        ] = None
    return values, list(notes)


def _list_files(environ: Mapping[str, str]) -> Iterator[Path]:
    """Yield the files that conda reads, lowest priority first. Some do not exist."""
    home = Path(environ.get("HOME") or Path.home())
    folders = [Path("/etc/conda"), Path("/var/lib/conda")]
    if environ.get("CONDA_ROOT"):
        folders.append(Path(environ["CONDA_ROOT"]))
    if environ.get("XDG_CONFIG_HOME"):
        folders.append(Path(environ["XDG_CONFIG_HOME"]) / "conda")
    for folder in dict.fromkeys([*folders, home / ".config" / "conda", home / ".conda"]):
        yield from _list_folder(folder)
    yield home / ".condarc"
    if environ.get("CONDA_PREFIX"):
        yield from _list_folder(Path(environ["CONDA_PREFIX"]))
    if environ.get("CONDARC"):
        yield Path(environ["CONDARC"]).expanduser()


def _list_folder(folder: Path) -> list[Path]:
    parts = sorted(p for p in (folder / "condarc.d").glob("*") if p.suffix in (".yml", ".yaml"))
    return [folder / ".condarc", folder / "condarc", *parts]


def _read(path: Path, environ: Mapping[str, str]) -> dict[str, Any]:
    """Return the keys of a file, with the values of `$NAME` and `${NAME}`. An unset variable stays."""
    import yaml

    try:
        content = trust.read_configuration(path, named=str(path) == environ.get("CONDARC")) or b""
        text = re.sub(r"\$(\w+)|\$\{(\w+)\}", lambda m: environ.get(m[1] or m[2], m[0]), content.decode())
        data = yaml.safe_load(text)
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
    return {key: _check(path, key, value) for key, value in data.items() if value is not None}


def _check(place: Path | str, key: str, value: Any) -> Any:
    """Return a value in the form of its key. conda reads one word as a list of one."""
    if key in _LISTS:
        words = [value] if isinstance(value, str) else value
        if not (isinstance(words, list) and all(isinstance(w, str) for w in words)):
            raise ValueError(f"{place}: {key} is not a list of channels")
        return words
    if key in _MAPS and not isinstance(value, dict):
        raise ValueError(f"{place}: {key} is not a map")
    for name, entry in value.items() if key in _MAPS else ():
        words = entry if isinstance(entry, list) and key in _GROUPS else [entry]
        if not all(isinstance(w, str) for w in words if w is not None):
            raise ValueError(f"{place}: {key} has an invalid address: {clean_line(str(name), 200)}")
    if key == "channel_alias" and not isinstance(value, str):
        raise ValueError(f"{place}: {key} is not an address")
    if key == "ssl_verify":
        value = _BOOLEANS.get(str(value).lower(), value)
        named = _find_certificates(value)
        if named and not Path(named).exists():
            raise ValueError(f"{place}: {key} names {named}, which does not exist")
    return value


def _find_certificates(ssl_verify: object) -> str | None:
    """Return the certificate file or folder of `ssl_verify`, or None for the system's."""
    named = isinstance(ssl_verify, str) and ssl_verify not in ("", "truststore")
    return str(Path(str(ssl_verify)).expanduser()) if named else None


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


def _merge(values: dict[str, Any], above: Mapping[str, Any]) -> None:
    """Add the keys of another file as conda does."""
    for key in (k for k in (*_LISTS, *_MAPS, *_WORDS) if k in above):
        if key in _LISTS:
            values[key] = list(dict.fromkeys([*above[key], *values.get(key, ())]))
        elif key in _MAPS:
            values[key] = {**values.get(key, {}), **above[key]}
        else:
            values[key] = above[key]


def read_auth_file(environ: Mapping[str, str]) -> tuple[dict[str, Any], str | None]:
    """Read the file of RATTLER_AUTH_FILE, and return a note if it is missing.

    Raises ValueError for a file that the engine cannot read, this one or the one in the home folder. The message quotes
    nothing of the file.
    """
    _read_hosts(Path(environ.get("HOME") or Path.home()) / ".rattler" / "credentials.json")
    named = environ.get("RATTLER_AUTH_FILE")
    if not named:
        return {}, None
    hosts = _read_hosts(Path(named), named=True)
    return (
        hosts or {},
        None if hosts is not None else f"RATTLER_AUTH_FILE names {named}, which does not exist",
    )


def _read_hosts(path: Path, *, named: bool = False) -> dict[str, Any] | None:
    refused = f"the auth file {path} cannot be read: "
    try:
        if (content := trust.read_configuration(path, named=named)) is None:
            return None
        data = json.loads(content)
    except OSError as error:
        raise ValueError(f"{refused}{error.strerror}") from error
    except (ValueError, RecursionError) as error:
        line = f": line {error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        raise ValueError(f"{refused}it is not JSON{line}") from None
    if not isinstance(data, dict) or not all(isinstance(entry, dict) for entry in data.values()):
        raise ValueError(f"{refused}expected a mapping of hosts to credentials")
    return data
