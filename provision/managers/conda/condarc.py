"""Reads conda's configuration: .condarc files, CONDA_* variables and auth files.

Paths and order follow conda's documentation ("Using the .condarc conda configuration file"). Later files override
earlier ones, lists are joined, and maps are merged. Values may contain credentials and go only to the engine.

For a mirror the engine reads credentials from rattler's auth files and ignores those in the mirror's address. So
gpuenv writes them into an auth file for one run.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from ...system import trust
from ...system.redaction import clean_line

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


def configuration(environ: Mapping[str, str]) -> Configuration:
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


def read(environ: Mapping[str, str]) -> tuple[dict[str, Any], str | None]:
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
