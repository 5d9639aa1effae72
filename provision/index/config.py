"""Reads the configuration of uv (uv.toml, UV_*) and of pip (pip.conf, PIP_*), and tells the PyTorch index from others.

uv itself never searches for a configuration, because it would find the files of the current folder and its parents.
Only the settings listed here apply. File names and precedence are those of uv's documentation, "Configuration files":
the environment, then the user's file, then the system's. UV_CONFIG_FILE replaces both files, and UV_NO_CONFIG ignores
them. pip's are those of its documentation, "Configuration": global, user, site, and the file that PIP_CONFIG_FILE
names, followed by the environment. In each, [global] is before [install].
"""

from __future__ import annotations

import configparser
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import LockError
from ..model import PYTORCH_INDEX_PACKAGES, LockedPackage, PackageSources, Plan
from ..model.values import Value
from ..system import process, trust

_VARIABLES = {
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
    "concurrent-builds": "UV_CONCURRENT_BUILDS",
    "concurrent-downloads": "UV_CONCURRENT_DOWNLOADS",
    "concurrent-installs": "UV_CONCURRENT_INSTALLS",
    "compile-bytecode": "UV_COMPILE_BYTECODE",
    "native-tls": "UV_SYSTEM_CERTS",
    "system-certs": "UV_SYSTEM_CERTS",
    "no-build": "UV_NO_BUILD",
    "no-cache": "UV_NO_CACHE",
    "no-index": "UV_NO_INDEX",  # uv has no such variable: `uv.run_uv` passes it as an option
    "offline": "UV_OFFLINE",
}
_ENVIRONMENT = {
    *_VARIABLES.values(), "UV_CACHE_DIR", "UV_DEFAULT_INDEX", "UV_INDEX_URL",
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
GUARD_FILE = ".gpuenv/constraints.txt"
"""The constraints of an environment for other tools. An active one names them in UV_CONSTRAINT."""
_TRUE = ("1", "true", "yes", "on", "y", "t")


def uv_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return uv's settings as its variables, with relative paths resolved.

    Raises LockError with the name of an unreadable file.
    """
    settings: dict[str, str] = {}
    for path in _list_files(environ):
        for name, value in _read_file(path, named="UV_CONFIG_FILE" in environ).items():
            settings.setdefault(name, value)
    named = {k: v for k, v in environ.items() if k in _ENVIRONMENT or _OF_AN_INDEX.fullmatch(k)}
    if others := named.get("UV_CONSTRAINT"):
        named["UV_CONSTRAINT"] = " ".join(w for w in others.split() if not w.endswith(f"/{GUARD_FILE}"))
    if "UV_DEFAULT_INDEX" in named or "UV_INDEX_URL" in named:
        settings.pop("UV_DEFAULT_INDEX", None)
    return settings | {name: _resolve(name, value) for name, value in named.items() if value}


def plain_sources() -> PackageSources:
    """Return sources with the configuration of uv alone, for its commands that ask no index. Raises LockError."""
    return PackageSources(uv=uv_variables(process.environ()))


def uv_default(settings: Mapping[str, str]) -> str | None:
    """Return the address of uv's default index, without a name before it ("mine=https://...")."""
    index = settings.get("UV_DEFAULT_INDEX") or settings.get("UV_INDEX_URL")
    return strip_name(index) if index else None


def uv_extra(settings: Mapping[str, str]) -> tuple[str, ...]:
    """Return uv's other indexes in uv's form, with names."""
    return tuple(" ".join(settings.get(name, "") for name in ("UV_INDEX", "UV_EXTRA_INDEX_URL")).split())


_PROXIES = [n for name in ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY") for n in (name.lower(), name)]
"""In the order of urllib.request.getproxies: a name in lower case is stronger."""


def find_origin(value: str) -> str | None:
    """Return the file or the variable of uv or pip that names an index, a proxy or a certificate, or None for a
    default or an option."""
    place, environ = value.rpartition("://")[2].rstrip("/"), process.environ()
    for name in (
        "UV_DEFAULT_INDEX",
        "UV_INDEX_URL",
        "UV_INDEX",
        "UV_EXTRA_INDEX_URL",
        "PIP_INDEX_URL",
        "PIP_EXTRA_INDEX_URL",
        "PIP_CERT",
        "PIP_PROXY",
        *_PROXIES,
    ):
        if place in environ.get(name, ""):
            return name
    files = (*_list_files(environ), *reversed(pip_files(environ)))
    return next((str(f) for f in files if place.encode() in (trust.read_configuration(f) or b"")), None)


def strip_name(index: str) -> str:
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
    user = Path(environ.get("XDG_CONFIG_HOME") or home / ".config")
    system = [Path(d) for d in (environ.get("XDG_CONFIG_DIRS") or "/etc/xdg").split(os.pathsep) if d]
    files = [folder / "uv" / "uv.toml" for folder in (user, *system, Path("/etc"))]
    return [path for path in files if path.is_absolute()]


def _read_file(path: Path, *, named: bool) -> dict[str, str]:
    """Return a uv.toml as variables. The table [pip] replaces the rest, as in uv. Raises LockError."""
    try:
        content = trust.read_configuration(path, named=named)
        if content is None:
            return {}
        from ..system.toml import tomllib

        data = tomllib.loads(content.decode())
    except (OSError, ValueError) as error:
        raise LockError(
            f"{path} is not a valid configuration of uv: {error}",
            hint="correct or move the file, or ignore it with UV_NO_CONFIG=1",
        ) from error
    pip = data.get("pip")
    data |= {k: v for k, v in pip.items() if k not in ("target", "prefix")} if isinstance(pip, dict) else {}
    as_variables = {
        name: str(int(data[key]) if isinstance(data[key], bool) else data[key])
        for key, name in _VARIABLES.items() if isinstance(data.get(key), (str, int))
    }  # fmt: skip
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


# --- pip -------------------------------------------------------------------------------------------

_KEYS = ("index-url", "extra-index-url", "find-links", "trusted-host", "cert", "proxy", "no-index", "timeout",
         "default-timeout")  # fmt: skip


class PipConfig(Value):
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


def pip_settings(environ: Mapping[str, str]) -> PipConfig:
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
        no_index=is_on(merged.get("no-index")),
        timeout=_parse_seconds(merged.get("timeout") or merged.get("default-timeout")),
    )


def _parse_seconds(text: str | None) -> float | None:
    """Return a time-out as pip reads it, or None for an invalid one, which pip reports itself."""
    try:
        seconds = float(text or 0)
    except ValueError:
        return None
    return seconds if 0 < seconds < 1e6 else None


def own_cache(sources: PackageSources) -> Path:
    """Return gpuenv's own cache, beside the installer's."""
    import platformdirs

    return trust.secure_cache(Path(sources.cache_dir or platformdirs.user_cache_dir("gpuenv")))


# --- the PyTorch index -----------------------------------------------------------------------------

# A plan that takes torch from this index takes all of its packages from it, and no others. They have code compiled
# against exactly that torch. Releases of the same number on other indexes do not.
# Wheels are below /whl and, for one build, below its local label: /whl/cu128, /whl/cpu, /whl/nightly/cu130.
_PLACE = re.compile(r"(/whl(?:/nightly)?)(?:/(?:cu\d+|cpu|xpu|rocm[\d.]+))?/?$")


def is_pytorch(url: str, base: str = "") -> bool:
    """Return whether an address belongs to the PyTorch index or a mirror: below `base`, or with the same layout.

    Its index of wheel variants (/whl/variant) is one as any other: it has no pages for labels.
    """
    plain = url.partition("?")[0].rstrip("/")
    if plain.endswith("/variant"):
        return False
    return bool(_PLACE.search(plain)) or bool(base and f"{plain}/".startswith(base.rstrip("/") + "/"))


def pytorch_base(url: str) -> str:
    """Return the address that is the parent of every build's address."""
    return _PLACE.sub(r"\1", url.rstrip("/"))


def pytorch_packages(plan: Plan) -> tuple[str, ...]:
    """Return the packages that a plan takes from the PyTorch index, if any."""
    return PYTORCH_INDEX_PACKAGES if any(b.index == "pytorch" for b in plan.builds) else ()


def pytorch_address(base: str, plan: Plan) -> str:
    """Return the address of a plan's builds. The pages of one local label list no other builds."""
    pins = [r for b in plan.builds if b.index == "pytorch" for r in b.requirements]
    local = next((r.partition("+")[2] for r in pins if r.startswith("torch===")), "")
    return f"{base.rstrip('/')}/{local}" if local else base


def split_pytorch(
    packages: tuple[LockedPackage, ...], plan: Plan
) -> tuple[tuple[LockedPackage, ...], tuple[LockedPackage, ...]]:
    """Return a lock's packages of the PyTorch index, and all others.

    A package from a folder of wheels is one of the others.
    """
    names = pytorch_packages(plan)
    theirs = tuple(p for p in packages if p.name in names and p.index is not None)
    return theirs, tuple(p for p in packages if p not in theirs)
