"""Reads the configuration of uv: uv.toml of user and system, and UV_* variables.

uv itself never searches for a configuration, because it would find the files of the current folder and its parents.
Only the settings listed here apply. File names and precedence are those of uv's documentation, "Configuration files":
the environment, then the user's file, then the system's. UV_CONFIG_FILE replaces both files, and UV_NO_CONFIG ignores
them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import LockError
from ..system import trust

_TEXTS = {
    "index-strategy": "UV_INDEX_STRATEGY",
    "keyring-provider": "UV_KEYRING_PROVIDER",
    "link-mode": "UV_LINK_MODE",
    "exclude-newer": "UV_EXCLUDE_NEWER",
    "prerelease": "UV_PRERELEASE",
    "resolution": "UV_RESOLUTION",
    "python-install-mirror": "UV_PYTHON_INSTALL_MIRROR",
    "python-downloads-json-url": "UV_PYTHON_DOWNLOADS_JSON_URL",
    "http-proxy": "HTTP_PROXY",
    "https-proxy": "HTTPS_PROXY",
}
_NUMBERS = {
    f"concurrent-{what}": f"UV_CONCURRENT_{what.upper()}" for what in ("builds", "downloads", "installs")
}
_SWITCHES = {
    "compile-bytecode": "UV_COMPILE_BYTECODE",
    "native-tls": "UV_SYSTEM_CERTS",
    "system-certs": "UV_SYSTEM_CERTS",
    "no-build": "UV_NO_BUILD",
    "no-cache": "UV_NO_CACHE",
    "no-index": "UV_NO_INDEX",  # uv has no such variable: `uv.run_uv` passes it as an option
    "offline": "UV_OFFLINE",
}
_ENVIRONMENT = {
    *_TEXTS.values(), *_NUMBERS.values(), *_SWITCHES.values(), "UV_CACHE_DIR", "UV_DEFAULT_INDEX", "UV_INDEX_URL",
    "UV_INDEX", "UV_EXTRA_INDEX_URL", "UV_FIND_LINKS", "UV_INSECURE_HOST", "UV_NATIVE_TLS", "UV_CREDENTIALS_DIR",
    "UV_COMPILE_BYTECODE_TIMEOUT", "UV_HTTP_TIMEOUT", "UV_REQUEST_TIMEOUT", "UV_HTTP_CONNECT_TIMEOUT",
    "UV_HTTP_RETRIES", "UV_LOCK_TIMEOUT", "UV_NO_BUILD_PACKAGE", "UV_CONSTRAINT", "UV_OVERRIDE", "UV_EXCLUDE",
    "UV_BUILD_CONSTRAINT", "UV_PYTHON_INSTALL_DIR", "UV_PYTHON_CACHE_DIR", "UV_GIT_LFS", "UV_GITHUB_TOKEN",
    "UV_NO_GITHUB_FAST_PATH", "UV_S3_ENDPOINT_URL", "UV_GCS_ENDPOINT_URL", "UV_AZURE_ENDPOINT_URL",
}  # fmt: skip
_OF_AN_INDEX = re.compile(r"UV_INDEX_[A-Z0-9_]+_(USERNAME|PASSWORD)")
_PATHS = ("UV_CACHE_DIR", "UV_CREDENTIALS_DIR", "UV_PYTHON_INSTALL_DIR", "UV_PYTHON_CACHE_DIR")
_LISTS_OF_PATHS = dict.fromkeys(
    ("UV_CONSTRAINT", "UV_OVERRIDE", "UV_EXCLUDE", "UV_BUILD_CONSTRAINT"), " "
) | {"UV_FIND_LINKS": ","}
_TRUE = ("1", "true", "yes", "on", "y", "t")


def variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return uv's settings as its variables, with relative paths resolved.

    Raises LockError with the name of an unreadable file.
    """
    settings: dict[str, str] = {}
    for path in _list_files(environ):
        for name, value in _read_file(path, named="UV_CONFIG_FILE" in environ).items():
            settings.setdefault(name, value)
    named = {k: v for k, v in environ.items() if k in _ENVIRONMENT or _OF_AN_INDEX.fullmatch(k)}
    if "UV_DEFAULT_INDEX" in named or "UV_INDEX_URL" in named:
        settings.pop("UV_DEFAULT_INDEX", None)
    return settings | {name: _resolve(name, value) for name, value in named.items() if value}


def default_index(settings: Mapping[str, str]) -> str | None:
    """Return the address of uv's default index, without a name before it ("mine=https://...")."""
    index = settings.get("UV_DEFAULT_INDEX") or settings.get("UV_INDEX_URL")
    return address(index) if index else None


def extra_indexes(settings: Mapping[str, str]) -> tuple[str, ...]:
    """Return uv's other indexes in uv's form, with names."""
    return tuple(" ".join(settings.get(name, "") for name in ("UV_INDEX", "UV_EXTRA_INDEX_URL")).split())


def address(index: str) -> str:
    """Return the address in "[NAME=]ADDRESS"."""
    return re.sub(r"^[\w.-]+=", "", index)


def is_on(text: str | None) -> bool:
    """Return whether a variable's value means yes."""
    return (text or "").strip().lower() in _TRUE


def _list_files(environ: Mapping[str, str]) -> list[Path]:
    """Return the configuration files, strongest first, including missing ones."""
    if is_on(environ.get("UV_NO_CONFIG")):
        return []
    if named := environ.get("UV_CONFIG_FILE"):
        return [Path(named).absolute()]
    home = Path(environ.get("HOME") or Path.home())
    user = [
        Path(environ.get("XDG_CONFIG_HOME") or home / ".config"),
        *_list_windows_folders(environ, "APPDATA"),
    ]
    system = [Path(d) for d in (environ.get("XDG_CONFIG_DIRS") or "/etc/xdg").split(os.pathsep) if d]
    system += [Path("/etc"), *_list_windows_folders(environ, "PROGRAMDATA")]
    files = [folder / "uv" / "uv.toml" for folder in (*user, *system)]
    return [path for path in files if path.is_absolute()]


def _list_windows_folders(environ: Mapping[str, str], name: str) -> list[Path]:
    return [Path(environ[name])] if os.name == "nt" and environ.get(name) else []


def _read_file(path: Path, *, named: bool) -> dict[str, str]:
    """Return a uv.toml as variables. The table [pip] replaces the rest, as in uv. Raises LockError."""
    try:
        content = trust.read_configuration(path, named=named)
        if content is None:
            return {}
        import tomli

        data = tomli.loads(content.decode())
    except (OSError, ValueError) as error:
        raise LockError(
            f"{path} is not a valid configuration of uv: {error}",
            hint="correct or move the file, or ignore it with UV_NO_CONFIG=1",
        ) from error
    pip = data.get("pip")
    data |= {k: v for k, v in pip.items() if k not in ("target", "prefix")} if isinstance(pip, dict) else {}
    as_variables = {name: data[key] for key, name in _TEXTS.items() if isinstance(data.get(key), str)}
    as_variables |= {name: str(data[key]) for key, name in _NUMBERS.items() if isinstance(data.get(key), int)}
    as_variables |= {
        name: "1" if data[key] else "0" for key, name in _SWITCHES.items() if isinstance(data.get(key), bool)
    }
    if isinstance(data.get("cache-dir"), str):
        as_variables["UV_CACHE_DIR"] = str(path.parent / data["cache-dir"])
    if hosts := _list_texts(data, "allow-insecure-host") + _list_texts(data, "trusted-host"):
        as_variables["UV_INSECURE_HOST"] = " ".join(hosts)
    if constraints := _list_texts(data, "no-build-package"):
        as_variables["UV_NO_BUILD_PACKAGE"] = " ".join(constraints)
    if isinstance(data.get("no-proxy"), list):
        as_variables["NO_PROXY"] = ",".join(_list_texts(data, "no-proxy"))
    return as_variables | _read_indexes(data, path)


def _read_indexes(data: Mapping[str, Any], path: Path) -> dict[str, str]:
    """Return the variables of indexes and find-links. An index for explicit sources is ignored."""
    as_variables: dict[str, str] = {}
    extra, links = [], _list_texts(data, "find-links")
    for row in data.get("index") or ():
        if not isinstance(row, dict) or not isinstance(row.get("url"), str) or row.get("explicit") is True:
            continue
        named = f"{row['name']}={row['url']}" if isinstance(row.get("name"), str) else row["url"]
        if row.get("format") == "flat":
            links.append(row["url"])
        elif row.get("default") is True:
            as_variables.setdefault("UV_DEFAULT_INDEX", named)
        else:
            extra.append(named)
    if isinstance(data.get("index-url"), str):
        as_variables.setdefault("UV_DEFAULT_INDEX", data["index-url"])
    if extra := [*extra, *_list_texts(data, "extra-index-url")]:
        as_variables["UV_INDEX"] = " ".join(extra)
    if links:
        as_variables["UV_FIND_LINKS"] = ",".join(_resolve_place(place, path.parent) for place in links)
    return as_variables


def _list_texts(data: Mapping[str, Any], key: str) -> list[str]:
    value = data.get(key)
    return (
        [v for v in value if isinstance(v, str)]
        if isinstance(value, Sequence) and not isinstance(value, str)
        else []
    )


def _resolve(name: str, value: str) -> str:
    if name in _PATHS:
        return str(Path(value).absolute())
    if separator := _LISTS_OF_PATHS.get(name):
        places = [place for place in value.split(separator) if place]
        return separator.join(_resolve_place(place, Path.cwd()) for place in places)
    return value


def _resolve_place(place: str, folder: Path) -> str:
    return place if "://" in place else str(folder / place)
