"""Finds the addresses of channels for this user: names, mirrors, proxies, credentials."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import tomli_w

from . import Json, awaited

_DEFAULT = "conda-forge"


class ConfigurationError(ValueError):
    """A setting of the user's configuration that cannot be used."""


def read_config(rc: Json) -> Any:
    """Return the configuration of rattler and pixi over the TLS, proxies and mirrors of .condarc.

    Raises ConfigurationError.
    """
    from rattler import Config

    document: Json = {"tls-no-verify": True} if rc.get("ssl_verify") is False else {}
    if isinstance(rc.get("ssl_verify"), str):
        document["tls-root-certs"] = "system"
    proxies = {k: v for k, v in (rc.get("proxy_servers") or {}).items() if k in ("http", "https") and v}
    document |= {"proxy-config": proxies} if proxies else {}
    document["mirrors"] = {
        _find_root(_find_address(name, rc), rc): [places] if isinstance(places, str) else places or []
        for name, places in (rc.get("mirrored_channels") or {}).items()
    }
    try:
        config = Config.from_toml(tomli_w.dumps(document))
        for tool in ("pixi", "rattler"):
            config = config.merge(Config.load_from_default_locations(tool))
    except Exception as error:
        raise ConfigurationError(f"the configuration of rattler or pixi cannot be used: {error}") from error
    return config


def make_client(config: Any, request: Json) -> Any:
    """Return the engine's HTTP client. It reads credentials once, so their file for one run is then removed."""
    client = _connect(config)
    if request.get("lent"):
        Path(request["lent"]).unlink()
    return client


def _connect(config: Any) -> Any:
    """Return a client that sends a mirror its own credentials.

    The engine's default client would send the channel's credentials to the mirror. But only the default client applies a
    complete configuration, so it is used if the configuration has more than mirrors.
    """
    from rattler import Client, networking as net

    more = (config.tls_no_verify, config.proxy_http, config.proxy_https, config.s3_options,
            config.authentication_override_file, config.tls_root_certs not in (None, "system"))  # fmt: skip
    if any(more) or not config.mirrors:
        return Client.from_config(config)
    tries = 3  # the engine's default
    order = (net.RetryMiddleware(tries), net.MirrorMiddleware(config.mirrors), net.AuthenticationMiddleware(),
             net.OciMiddleware(), net.GCSMiddleware(), net.S3Middleware())  # fmt: skip
    return Client(list(order))


def list_channels(request: Json, config: Any) -> list[Any]:
    """Return the channels to use, best first. Raises ConfigurationError."""
    from rattler import Channel

    rc = request["rc"]
    names = request["channels"] or rc.get("channels") or config.default_channels or [_DEFAULT]
    by_address = {}
    for name in names:
        for place in _list_members(name, rc, bool(request["channels"])):
            by_address[place] = Channel(place, _read_alias(rc))
    return list(by_address.values()) or [Channel(_DEFAULT, _read_alias(rc))]


def _list_members(name: str, rc: Json, insisted: bool) -> list[str]:
    """Return the addresses of a channel name. A group has several."""
    groups = rc.get("custom_multichannels") or {}
    if name == "nodefaults":
        return []
    if name == "defaults" and "defaults" not in groups:
        if rc.get("default_channels"):
            return [_find_address(n, rc) for n in rc["default_channels"]]
        if insisted:
            raise ConfigurationError(
                "the channel `defaults` means default_channels of .condarc, which is empty"
            )
        return []
    if name in groups:
        return [_find_address(str(n), rc) for n in groups[name] or ()]
    return [_find_address(name, rc)]


def _find_address(name: str, rc: Json) -> str:
    """Return the address of a channel. custom_channels define one for a name and its subfolders."""
    custom = {str(k): str(v) for k, v in (rc.get("custom_channels") or {}).items()}
    for known in sorted(custom, key=len, reverse=True):
        if name == known or name.startswith(f"{known}/"):
            return f"{custom[known].rstrip('/')}/{name}"
    return name


def _read_alias(rc: Json) -> Any:
    from rattler import ChannelConfig

    alias = rc.get("channel_alias")
    return ChannelConfig(f"{str(alias).rstrip('/')}/") if alias else ChannelConfig()


def _find_root(name: str, rc: Json) -> str:
    from rattler import Channel

    return str(Channel(name, _read_alias(rc)).base_url).rstrip("/")


def strip_url(url: str) -> str:
    """Return a URL without credentials: a user and password, or a /t/TOKEN/ in the path of a server."""
    parts = urlsplit(url)
    if parts.scheme == "file":
        return url  # a folder can be called t
    path = re.sub(r"/t/[^/]+(?=/|$)", "", parts.path)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], path=path).geturl()


def find_secrets(request: Json, config: Any) -> dict[str, str]:
    """Return addresses with credentials by their plain addresses.

    They cover every requested or configured channel, because a lock can name more channels than a request.
    """
    rc = request["rc"]
    everywhere = {**request, "channels": [*request["channels"], *(rc.get("channels") or ()),
                                          *(rc.get("custom_channels") or ())]}  # fmt: skip
    everywhere["channels"] = [
        n for n in everywhere["channels"] if n != "defaults" or rc.get("default_channels")
    ]
    urls = {strip_url(c.base_url): c.base_url for c in list_channels(everywhere, config)}
    alias = str(rc.get("channel_alias") or "")
    if alias:
        urls[strip_url(f"{alias.rstrip('/')}/")] = f"{alias.rstrip('/')}/"
    return {plain: url for plain, url in urls.items() if plain != url}


def insert_credentials(url: str, known: dict[str, str]) -> str:
    """Return an address with its credentials."""
    for plain, secret in sorted(known.items(), key=lambda kv: -len(kv[0])):
        if url.startswith(plain):
            return secret + url[len(plain) :]
    return url


async def addresses(request: Json) -> Json:
    """Return the addresses of packages for this user: mirrors first, then the channel, with credentials.

    gpuenv reads the answer once and never stores it.
    """
    config = read_config(request["rc"])
    channel_secrets = find_secrets(request, config)
    file = request["auth_file"] or config.authentication_override_file
    known = json.loads(Path(file).read_text(encoding="utf-8")) if file else {}
    addresses_of = {}
    for url in request["urls"]:
        places = [m.rstrip("/") + url[len(c.rstrip("/")) :] for c, ms in config.mirrors.items()
                  if url.startswith(c.rstrip("/") + "/") for m in ms]  # fmt: skip
        addresses_of[url] = [
            _authorize(place, known) for place in (*places, insert_credentials(url, channel_secrets))
        ]
    return {"addresses": addresses_of}


def _authorize(url: str, known: Json) -> str:
    """Return an address with the credentials of its host from the auth file."""
    parts = urlsplit(url)
    for host, login in known.items():
        url_host = parts.hostname or ""  # rattler's auth file has hosts without a port
        fits = host in (url_host, parts.netloc) or (host.startswith("*.") and url_host.endswith(host[1:]))
        if fits and "BasicHTTP" in login:
            user, password = (quote(login["BasicHTTP"][k], safe="") for k in ("username", "password"))
            return parts._replace(netloc=f"{user}:{password}@{parts.netloc}").geturl()
        if fits and "CondaToken" in login:
            return parts._replace(path=f"/t/{login['CondaToken']}{parts.path}").geturl()
    return url


async def solve(request: Json) -> Json:
    """Return the first solution of `attempts`, and the explanation if the first attempt failed.

    Packages with an address in `prefer` keep their versions if possible.
    """
    from rattler import Gateway, SourceConfig

    rc = request["rc"]
    config = read_config(rc)
    action: Any = "force-cache-only" if request["offline"] else "cache-or-fetch"
    gateway = Gateway(
        cache_dir=Path(request["cache"]) / "repodata",
        client=make_client(config, request),
        default_config=SourceConfig(cache_action=action),
    )
    offered = list_channels(request, config)
    shown = [strip_url(c.base_url) for c in offered]
    awaited.update(shown)
    attempts = request["attempts"]

    async def query(names: set[str]) -> list[Any]:
        found = await gateway.query(offered, request["subdirs"], sorted(names), recursive=False)
        return [record for records in found for record in records]

    names = {name for attempt in attempts for name in _list_names(attempt)}
    missing = names - {record.name.normalized for record in await query(names)}
    answer: Json = {"missing": sorted(missing), "channels": shown, "lacking": []}
    if "python" in missing:
        return answer
    preferred = set(request["prefer"])
    kept = await query({url.rsplit("/", 1)[1].rsplit("-", 2)[0] for url in preferred}) if preferred else []
    kept = [record for record in kept if strip_url(record.url) in preferred]
    settings = {"gateway": gateway, "platforms": request["subdirs"], "locked_packages": kept,
                "channel_priority": _read_priority(rc)}  # fmt: skip
    for attempt in attempts:
        specs, lacking = _choose(attempt, missing, {url.rstrip("/").rsplit("/", 1)[-1] for url in shown})
        outcome: list[Any] | str = ""
        if attempt is attempts[0]:
            answer["lacking"] = lacking
            if kept:  # unchanged first
                outcome = await _solve(offered, specs, attempt, pinned_packages=kept, **settings)
        elif lacking:
            continue
        if isinstance(outcome, str):
            outcome = await _solve(offered, specs, attempt, **settings)
        if isinstance(outcome, list):
            return answer | {"label": attempt["label"], "records": [convert_record(r) for r in outcome]}
        answer.setdefault("refusal", outcome)
    return answer


async def _solve(channels: list[Any], specs: list[str], attempt: Json, **settings: Any) -> list[Any] | str:
    """Return the records of a solution, or the solver's explanation."""
    import rattler
    from rattler.exceptions import SolverError

    virtual = [
        rattler.GenericVirtualPackage(
            rattler.PackageName(v["name"]), rattler.Version(v["version"]), rattler.BuildString(v["build"])
        )
        for v in attempt["virtual"]
    ]
    try:
        return await rattler.solve(
            channels,
            [rattler.MatchSpec(s) for s in specs],
            virtual_packages=virtual,
            constraints=[rattler.MatchSpec(c) for c in attempt["constraints"]],
            **settings,
        )
    except SolverError as error:
        return str(error)


def _name_in(spec: str) -> str:
    return spec.split(maxsplit=1)[0]


def _list_names(attempt: Json) -> list[str]:
    """Return every package that an attempt may request."""
    ways = [way for _, ways in attempt["frameworks"] for way in ways]
    return [
        "python",
        *map(_name_in, attempt["packages"]),
        *(_name_in(s) for way in ways for s in way["specs"]),
    ]


def _choose(attempt: Json, missing: set[str], channels: set[str]) -> tuple[list[str], list[str]]:
    """Return the specs that the channels can provide, and the frameworks that they lack."""
    specs, lacking = [attempt["python"]], []
    for framework, ways in attempt["frameworks"]:
        provided = [way for way in ways if way["channel"] in channels] or ways
        way = next((w for w in provided if not missing & set(map(_name_in, w["specs"]))), None)
        if way is None:
            lacking.append(framework)
        else:
            specs += way["specs"]
    specs += [s for s in attempt["packages"] if _name_in(s) not in missing]
    return list(dict.fromkeys(specs)), lacking


def _read_priority(rc: Json) -> Any:
    """Return conda's channel_priority. The default is strict, as conda-forge recommends."""
    from rattler.channel.channel_priority import ChannelPriority

    value = rc.get("channel_priority")
    word = {True: "flexible", False: "disabled", None: "strict"}.get(value, str(value).lower())
    words = {"strict": ChannelPriority.Strict, "flexible": ChannelPriority.Flexible,
             "disabled": ChannelPriority.Disabled}  # fmt: skip
    if word not in words:
        raise ConfigurationError(
            f"channel_priority in .condarc is {value}: expected strict, flexible or disabled"
        )
    return words[word]


def convert_record(record: Any) -> Json:
    """Return a record as JSON without credentials."""
    return {
        "name": record.name.normalized,
        "version": str(record.version),
        "build": str(record.build),
        "subdir": record.subdir,
        "url": strip_url(record.url),
        "channel": strip_url(record.channel or ""),
        "sha256": record.sha256.hex() if record.sha256 else None,
        "md5": record.md5.hex() if record.md5 else None,
        "size": record.size,
        "depends": list(record.depends),
    }


async def pixi(request: Json) -> Json:
    """Return the packages of an environment and platform of a pixi.lock."""
    from rattler import LockFile

    read = LockFile.from_path(Path(request["path"]))
    environment = read.default_environment() or next((e for _, e in read.environments()), None)
    if environment is None:
        raise ValueError("it has no environment")
    platform = next((p for p in environment.platforms() if str(p.name) == request["subdir"]), None)
    if platform is None:
        names = " ".join(str(p.name) for p in environment.platforms())
        raise ValueError(f"it has no packages for {request['subdir']} (only {names})")
    records = environment.conda_repodata_records_for_platform(platform) or []
    wheels = environment.pypi_packages_for_platform(platform) or []
    return {"records": [convert_record(r) for r in records], "wheels": [_convert_wheel(w) for w in wheels]}


def _convert_wheel(wheel: Any) -> Json:
    try:
        sha256 = wheel.hashes.sha256.hex()
    except AttributeError:  # it has none: py-rattler 0.28 cannot say so
        sha256 = None
    return {"name": wheel.name, "version": wheel.version, "url": wheel.location, "sha256": sha256}


async def index(request: Json) -> Json:
    """Index a folder of packages as a channel."""
    from rattler.index import index_fs

    folder = Path(request["folder"])
    (folder / "noarch").mkdir(parents=True, exist_ok=True)
    await index_fs(folder, write_zst=False, write_shards=False, force=True)
    return {"indexed": str(folder)}
