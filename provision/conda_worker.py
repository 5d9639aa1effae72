"""Solves and installs conda packages with py-rattler, in a process of its own.

A program, never imported: a panic or crash of the engine ends this process, not gpuenv's. It reads one
JSON request from stdin, tells its progress as JSON lines on stderr, writes its answer to the file
that the request names, and ends with `os._exit`, because the engine's threads now and then crash an
interpreter that is on its way out. Channels, mirrors and credentials come from the request and from the
user's own conda and rattler configuration.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import hashlib
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

_KEYS = ("channel_alias", "custom_channels", "channels", "default_channels", "proxy_servers", "ssl_verify")


def main() -> None:
    """Answer one request."""
    request = json.loads(sys.stdin.read())
    _die_with(request["parent"])
    # Started with -I, as the folder of this file holds modules of other names.
    sys.path[:] = request["sys_path"]
    threading.Thread(target=_end_when_stalled, args=(request,), daemon=True).start()
    try:
        answer = asyncio.run(_OPERATIONS[request["op"]](request))
    except BaseException as error:  # noqa: BLE001  # a panic of the engine is no Exception
        answer = {"error": {"kind": type(error).__name__, "text": str(error)}}
    _end_with(request, answer)


def _end_with(request: dict[str, Any], answer: dict[str, Any]) -> None:
    draft = Path(f"{request['answer']}.{threading.get_ident()}")
    draft.write_text(json.dumps(answer), encoding="utf-8")
    draft.replace(request["answer"])
    os._exit(0)


def _die_with(parent: int) -> None:
    """End when gpuenv ends, however it ends: nobody else may find us at work in its prefix."""
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


# --- servers that never answer -------------------------------------------------------------------

_ALIVE = 0.02
"""Seconds of processor time that even a slow download uses up in the time it is given."""
_waiting: set[str] = set()


def _end_when_stalled(request: dict[str, Any]) -> None:
    """The engine waits without an end for a server that has taken the connection and sends nothing. Where
    nothing at all was done for `patience` seconds while a connection is open, that is the answer. A wait
    for another process's lock on the cache has no open connection and may take as long as it takes."""
    used, since = time.process_time(), time.monotonic()
    while sys.platform == "linux":
        time.sleep(1.0)
        if time.process_time() - used > _ALIVE:
            used, since = time.process_time(), time.monotonic()
        elif time.monotonic() - since > request["patience"] and _connected():
            told = f"nothing came for {request['patience']:.0f} s: {', '.join(sorted(_waiting))}"
            _end_with(request, {"error": {"kind": "Stalled", "text": told}})


def _connected() -> bool:
    """Whether this process has a TCP connection that is open or being opened."""
    held = set()
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            held.add(str(link.readlink()))
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for row in Path(f"/proc/self/net/{table}").read_text(encoding="ascii").splitlines()[1:]:
                fields = row.split()
                if fields[3] in ("01", "02") and f"socket:[{fields[9]}]" in held:
                    return True
    return False


def _tell(event: str, **fields: Any) -> None:
    sys.stderr.write(json.dumps({"event": event, **fields}) + "\n")
    sys.stderr.flush()


# --- configuration -----------------------------------------------------------------------------


def condarc() -> dict[str, Any]:
    """What .condarc files say of channels and the network, the later file winning key by key
    (the order of `conda config --show-sources`); environment variables in values are expanded."""
    import yaml

    places = ["/etc/conda/.condarc", "$CONDA_ROOT/.condarc", "$XDG_CONFIG_HOME/conda/.condarc", "~/.config/conda/.condarc",
              "~/.conda/.condarc", "~/.condarc", "$CONDA_PREFIX/.condarc", "$CONDARC"]  # fmt: skip
    merged: dict[str, Any] = {}
    for place in places:
        path = Path(os.path.expandvars(place)).expanduser()
        if str(path).startswith("$") or not path.is_file():
            continue
        data = yaml.safe_load(os.path.expandvars(path.read_text(encoding="utf-8"))) or {}
        merged |= {key: data[key] for key in _KEYS if key in data}
    return merged


def _config(rc: dict[str, Any]) -> Any:
    """The rattler configuration of the user (mirrors, authentication, TLS, proxies), over what
    .condarc says of TLS and proxies."""
    from rattler import Config

    lines = []
    if rc.get("ssl_verify") is False:
        lines.append("tls-no-verify = true")
    proxies = {k: v for k, v in (rc.get("proxy_servers") or {}).items() if k in ("http", "https")}
    if proxies:
        lines += ["[proxy-config]", *(f"{k} = {json.dumps(v)}" for k, v in proxies.items())]
    config = Config.from_toml("\n".join(lines))
    for tool in ("pixi", "rattler"):
        config = config.merge(Config.load_from_default_locations(tool))
    return config


def _channels(request: dict[str, Any], rc: dict[str, Any]) -> list[Any]:
    from rattler import Channel, ChannelConfig

    names = request["channels"] or rc.get("channels") or ["conda-forge"]
    alias = ChannelConfig(str(rc.get("channel_alias") or "https://conda.anaconda.org/"))
    named = {str(k): str(v).rstrip("/") + f"/{k}" for k, v in (rc.get("custom_channels") or {}).items()}
    found = []
    for name in names:
        group = rc.get("default_channels") if name == "defaults" else None
        found += [Channel(named.get(n, n), alias) for n in (group or [name])]
    return found


# --- solving -----------------------------------------------------------------------------------


async def _solve(request: dict[str, Any]) -> dict[str, Any]:
    """The first of `attempts` that solves, with the refusal of the first one where it does not."""
    from rattler import Client, Gateway, SourceConfig

    rc = condarc()
    config = _config(rc)
    action: Any = "force-cache-only" if request["offline"] else "cache-or-fetch"
    gateway = Gateway(
        cache_dir=Path(request["cache"]) / "repodata",
        client=Client.from_config(config),
        default_config=SourceConfig(cache_action=action),
    )
    channels = _channels(request, rc)
    _waiting.update(_plain_url(c.base_url) for c in channels)
    _tell("reading", channels=[_plain_url(c.base_url) for c in channels])
    missing = []
    for name in request["names"]:
        held = await gateway.query(channels, request["subdirs"], [name], recursive=False)
        missing += [] if any(held) else [name]
    answer: dict[str, Any] = {"missing": missing, "channels": [_plain_url(c.base_url) for c in channels]}
    for attempt in request["attempts"]:
        if set(attempt.get("names", ())) & set(missing):
            continue
        outcome = await _attempt(attempt, gateway, channels, request["subdirs"])
        if isinstance(outcome, list):
            return answer | {"label": attempt["label"], "records": outcome}
        answer.setdefault("refusal", outcome)
    return answer


async def _attempt(attempt: dict[str, Any], gateway: Any, channels: list[Any], subdirs: Any) -> Any:
    """The records of a solution, or the solver's words why there is none."""
    import rattler
    from rattler.exceptions import SolverError

    virtual = [
        rattler.GenericVirtualPackage(
            rattler.PackageName(v["name"]), rattler.Version(v["version"]), rattler.BuildString(v["build"])
        )
        for v in attempt["virtual"]
    ]
    try:
        records = await rattler.solve(
            channels,
            [rattler.MatchSpec(s) for s in attempt["specs"]],
            gateway=gateway,
            platforms=subdirs,
            virtual_packages=virtual,
            constraints=[rattler.MatchSpec(c) for c in attempt["constraints"]],
        )
    except SolverError as error:
        return str(error)
    return [_as_plain(r) for r in records]


def _as_plain(record: Any) -> dict[str, Any]:
    return {
        "name": record.name.normalized,
        "version": str(record.version),
        "build": str(record.build),
        "subdir": record.subdir,
        "url": _plain_url(record.url),
        "channel": _plain_url(record.channel or ""),
        "sha256": record.sha256.hex() if record.sha256 else None,
        "md5": record.md5.hex() if record.md5 else None,
        "size": record.size,
        "depends": list(record.depends),
    }


def _plain_url(url: str) -> str:
    """A URL without what lets one in: a user and password, or a /t/TOKEN/ in the path."""
    parts = urlsplit(url)
    path = parts.path
    if path.startswith("/t/"):
        path = "/" + path.split("/", 3)[3]
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], path=path).geturl()


# --- installing --------------------------------------------------------------------------------


class _Reporter:
    """Hands on what the engine tells while it downloads and links."""

    def __init__(self, names: list[str]) -> None:
        self.names, self.linked = names, 0
        self.downloads: dict[int, int] = {}
        self.caching: dict[int, str] = {}

    def on_populate_cache_start(self, operation: int, package_name: str) -> int:
        self.caching[operation] = package_name
        return operation

    def on_download_start(self, cache_entry: int) -> int:
        _waiting.add(self.caching.get(cache_entry, ""))
        return cache_entry

    def on_download_completed(self, download_idx: int) -> None:
        _waiting.discard(self.caching.get(download_idx, ""))

    def on_download_progress(self, download_idx: int, progress: int, total: int | None) -> None:
        before = self.downloads.get(download_idx, 0)
        if progress - before > 1 << 20 or progress == total:  # a line for every MiB is enough
            self.downloads[download_idx] = progress
            _tell("download", name=self.caching.get(download_idx, ""), done=progress, total=total)

    def on_link_complete(self, index: int) -> None:
        del index
        self.linked += 1
        _tell("link", done=self.linked, total=len(self.names))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("on_"):
            return lambda *_args: 0
        raise AttributeError(name)


async def _install(request: dict[str, Any]) -> dict[str, Any]:
    """Link packages into a prefix; every local file and every download is held against its hash. With
    `reinstall` only those are linked, again where they are there, and packages of others stay."""
    from rattler import Client, MatchSpec, PackageCache, PrefixRecord, ValidationMode, install

    prefix, packages = Path(request["prefix"]), request["packages"]
    again = set(request.get("reinstall") or ())
    mine = [p for p in packages if not again or p["name"] in again]
    _check_local_files(mine)
    rc = condarc()
    secrets = {_plain_url(c.base_url): c.base_url for c in _channels(request, rc)}
    records = [_record(p, secrets) for p in packages]
    mode = ValidationMode.full() if request["distrust"] else ValidationMode.fast()
    cache = PackageCache.new_layered([Path(request["cache"]) / "pkgs"], validation_mode=mode)
    if request["offline"]:
        held = await cache.index()
        absent = [p["name"] for p, r in zip(packages, records, strict=True)
                  if p in mine and not p["url"].startswith("file:") and not held.contains_record(r)]  # fmt: skip
        if absent:
            return {"error": {"kind": "Offline", "text": " ".join(absent)}}
    there = [PrefixRecord.from_path(p) for p in sorted((prefix / "conda-meta").glob("*.json")) if again]
    others = {r.name.normalized for r in there} - {p["name"] for p in packages}
    await install(
        records,
        prefix,
        reinstall_packages=again or None,
        ignored_packages=others or None,
        package_cache=cache,
        client=Client.from_config(_config(rc)),
        show_progress=False,
        reporter=_Reporter([p["name"] for p in mine]),
        requested_specs=[MatchSpec(s)._match_spec for s in request["specs"]],  # noqa: SLF001  # it takes no other
        execute_link_scripts=False,
    )
    _complete_records(prefix, {p["url"]: p for p in mine})
    return {"installed": len(mine)}


def _check_local_files(packages: list[dict[str, Any]]) -> None:
    """The engine compares downloads with the lock's hashes, but not files of a file:// channel."""
    for package in packages:
        if not package["url"].startswith("file:"):
            continue
        name = "sha256" if package["sha256"] else "md5"
        with Path(unquote(urlsplit(package["url"]).path)).open("rb") as file:
            found = _digest(file, name)
        if found != package[name]:
            raise ValueError(
                f"hash mismatch for {package['url']}: expected {name} {package[name]}, it is {found}"
            )


def _digest(file: Any, name: str) -> str:
    state = hashlib.new(name)
    while chunk := file.read(1 << 20):
        state.update(chunk)
    return state.hexdigest()


def _record(package: dict[str, Any], secrets: dict[str, str]) -> Any:
    from rattler import BuildString, PackageRecord, RepoDataRecord

    url = package["url"]
    for plain, secret in secrets.items():
        if url.startswith(plain):
            url = secret + url[len(plain) :]
    channel, subdir, file = package["url"].rsplit("/", 2)
    stem = file.removesuffix(".conda").removesuffix(".tar.bz2")
    build = stem.rsplit("-", 1)[1]
    number = build.rsplit("_", 1)[-1]
    record = PackageRecord(
        package["name"],
        package["version"],
        BuildString(build),
        int(number) if number.isdigit() else 0,
        subdir,
        noarch="generic" if subdir == "noarch" else None,
        depends=package["depends"],
        sha256=bytes.fromhex(package["sha256"]) if package["sha256"] else None,
        md5=bytes.fromhex(package["md5"]) if package["md5"] else None,
        size=package["size"],
    )
    return RepoDataRecord(record, unquote(file), url, channel + "/")


def _complete_records(prefix: Path, packages: dict[str, Any]) -> None:
    """Put into conda-meta what a lock does not carry (dependencies, constraints, noarch), from the
    packages themselves, so that conda and mamba can go on from here; and no credentials."""
    for path in (prefix / "conda-meta").glob("*.json"):
        data = json.loads(path.read_text(encoding="utf-8"))
        plain = _plain_url(data.get("url") or "")
        index = Path(data.get("extracted_package_dir") or "") / "info" / "index.json"
        if plain not in packages or not index.is_file():
            continue
        told = json.loads(index.read_text(encoding="utf-8"))
        kept = {k: told[k] for k in ("depends", "constrains", "noarch", "license", "build_number",
                                     "timestamp", "track_features") if k in told}  # fmt: skip
        # Channels correct dependencies of packages after they were built: the lock's come first.
        if packages[plain]["depends"]:
            kept["depends"] = packages[plain]["depends"]
        path.write_text(json.dumps(data | kept | {"url": plain}, indent=2) + "\n", encoding="utf-8")


# --- bundles -----------------------------------------------------------------------------------


async def _addresses(request: dict[str, Any]) -> dict[str, Any]:
    """Where packages lie for this user, the best place first: mirrors, then their own address with what
    lets one in. The answer is read once and never kept."""
    rc = condarc()
    config = _config(rc)
    secrets = {_plain_url(c.base_url): c.base_url for c in _channels(request, rc)}
    file = request["auth_file"] or config.authentication_override_file
    known = json.loads(Path(file).read_text(encoding="utf-8")) if file else {}
    found = {}
    for url in request["urls"]:
        places = [m.rstrip("/") + url[len(c.rstrip("/")) :] for c, ms in config.mirrors.items()
                  if url.startswith(c.rstrip("/") + "/") for m in ms]  # fmt: skip
        own = next((s + url[len(p) :] for p, s in secrets.items() if p != s and url.startswith(p)), url)
        found[url] = [_let_in(place, known) for place in (*places, own)]
    return {"addresses": found}


def _let_in(url: str, known: dict[str, Any]) -> str:
    """An address with the user and password, or the token, that the auth file has for its host."""
    parts = urlsplit(url)
    for host, said in known.items():
        fits = parts.netloc == host or (host.startswith("*.") and parts.netloc.endswith(host[1:]))
        if fits and "BasicHTTP" in said:
            user, password = (quote(said["BasicHTTP"][k], safe="") for k in ("username", "password"))
            return parts._replace(netloc=f"{user}:{password}@{parts.netloc}").geturl()
        if fits and "CondaToken" in said:
            return parts._replace(path=f"/t/{said['CondaToken']}{parts.path}").geturl()
    return url


async def _index(request: dict[str, Any]) -> dict[str, Any]:
    """Make a folder of packages a channel."""
    from rattler.index import index_fs

    folder = Path(request["folder"])
    (folder / "noarch").mkdir(parents=True, exist_ok=True)
    await index_fs(folder, write_zst=False, write_shards=False, force=True)
    return {"indexed": str(folder)}


# --- locks of pixi -----------------------------------------------------------------------------


async def _pixi(request: dict[str, Any]) -> dict[str, Any]:
    """The conda packages of one environment and platform of a pixi.lock, and what else it names."""
    from rattler import LockFile

    read = LockFile.from_path(Path(request["path"]))
    environment = read.default_environment() or next((e for _, e in read.environments()), None)
    if environment is None:
        raise ValueError("it holds no environment")
    platform = next((p for p in environment.platforms() if str(p.name) == request["subdir"]), None)
    if platform is None:
        names = " ".join(str(p.name) for p in environment.platforms())
        raise ValueError(f"it holds no packages for {request['subdir']} (only {names})")
    records = environment.conda_repodata_records_for_platform(platform) or []
    return {"records": [_as_plain(r) for r in records]}


_OPERATIONS = {"solve": _solve, "install": _install, "pixi": _pixi, "addresses": _addresses, "index": _index}

if __name__ == "__main__":
    main()
