"""Where channels lie for this user: names, mirrors, proxies, and what lets one in."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

_DEFAULT = "conda-forge"


class ConfigurationError(ValueError):
    """The user's configuration names something that cannot be served."""


def config(rc: dict[str, Any]) -> Any:
    """rattler's and pixi's configuration (mirrors, authentication, TLS, proxies), over what .condarc says
    of TLS, proxies and mirrors. Raises ConfigurationError."""
    from rattler import Config

    lines = ["tls-no-verify = true"] if rc.get("ssl_verify") is False else []
    lines += ['tls-root-certs = "system"'] if isinstance(rc.get("ssl_verify"), str) else []
    proxies = {k: v for k, v in (rc.get("proxy_servers") or {}).items() if k in ("http", "https") and v}
    if proxies:
        lines += ["[proxy-config]", *(f"{k} = {_quoted(v)}" for k, v in proxies.items())]
    if rc.get("mirrored_channels"):
        lines.append("[mirrors]")
        for name, told in rc["mirrored_channels"].items():
            lying = [told] if isinstance(told, str) else [str(place) for place in told or ()]
            lines.append(
                f"{_quoted(_root(_address(str(name), rc), rc))} = [{', '.join(map(_quoted, lying))}]"
            )
    try:
        found = Config.from_toml("\n".join(lines))
        for tool in ("pixi", "rattler"):
            found = found.merge(Config.load_from_default_locations(tool))
    except Exception as error:
        raise ConfigurationError(f"the configuration of rattler or pixi cannot be used: {error}") from error
    return found


def client(settled: Any, request: dict[str, Any]) -> Any:
    """What the engine asks with. It reads credentials once: a file of one run is not needed any longer."""
    made = _client(settled)
    if request.get("lent"):
        Path(request["lent"]).unlink()
    return made


def _client(settled: Any) -> Any:
    """Where a mirror is asked, what lets one in is the mirror's: the engine's own
    client would send it what lets one into the channel. Only the engine's own follows all of a configuration,
    so that it is taken where that says more than mirrors."""
    from rattler import Client, networking as net

    more = (settled.tls_no_verify, settled.proxy_http, settled.proxy_https, settled.s3_options,
            settled.authentication_override_file, settled.tls_root_certs not in (None, "system"))  # fmt: skip
    if any(more) or not settled.mirrors:
        return Client.from_config(settled)
    tries = 3  # the engine's own number
    order = (net.RetryMiddleware(tries), net.MirrorMiddleware(settled.mirrors), net.AuthenticationMiddleware(),
             net.OciMiddleware(), net.GCSMiddleware(), net.S3Middleware())  # fmt: skip
    return Client(list(order))


def _quoted(text: object) -> str:
    """A string of TOML."""
    return json.dumps(str(text), ensure_ascii=False)


def channels(request: dict[str, Any], settled: Any) -> list[Any]:
    """The channels to ask, best first. Raises ConfigurationError."""
    from rattler import Channel

    rc = request["rc"]
    asked = request["channels"] or rc.get("channels") or settled.default_channels or [_DEFAULT]
    found = {}
    for name in asked:
        for place in _members(name, rc, bool(request["channels"])):
            found[place] = Channel(place, _alias(rc))
    return list(found.values()) or [Channel(_DEFAULT, _alias(rc))]


def _members(name: str, rc: dict[str, Any], insisted: bool) -> list[str]:
    """A name's addresses: several where it stands for a group."""
    groups = rc.get("custom_multichannels") or {}
    if name == "nodefaults":
        return []
    if name == "defaults" and "defaults" not in groups:
        if rc.get("default_channels"):
            return [_address(n, rc) for n in rc["default_channels"]]
        if insisted:
            raise ConfigurationError(
                "the channel `defaults` stands for default_channels of .condarc, which names none"
            )
        return []
    if name in groups:
        return [_address(str(n), rc) for n in groups[name] or ()]
    return [_address(name, rc)]


def _address(name: str, rc: dict[str, Any]) -> str:
    """custom_channels give a name, and what lies below it, an address of its own."""
    custom = {str(k): str(v) for k, v in (rc.get("custom_channels") or {}).items()}
    for known in sorted(custom, key=len, reverse=True):
        if name == known or name.startswith(f"{known}/"):
            return f"{custom[known].rstrip('/')}/{name}"
    return name


def _alias(rc: dict[str, Any]) -> Any:
    from rattler import ChannelConfig

    told = rc.get("channel_alias")
    return ChannelConfig(f"{str(told).rstrip('/')}/") if told else ChannelConfig()


def _root(name: str, rc: dict[str, Any]) -> str:
    from rattler import Channel

    return str(Channel(name, _alias(rc)).base_url).rstrip("/")


def plain_url(url: str) -> str:
    """Return a URL without credentials: a user and password, or a /t/TOKEN/ in the path of a server."""
    parts = urlsplit(url)
    if parts.scheme == "file":
        return url  # a folder may be called t
    path = re.sub(r"/t/[^/]+(?=/|$)", "", parts.path)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], path=path).geturl()


def secrets(request: dict[str, Any], settled: Any) -> dict[str, str]:
    """Addresses with what lets one in, by the addresses that a lock has: of every channel that is asked
    or configured, as a lock may name more of them than one run asks."""
    rc = request["rc"]
    everywhere = {**request, "channels": [*request["channels"], *(rc.get("channels") or ()),
                                          *(rc.get("custom_channels") or ())]}  # fmt: skip
    everywhere["channels"] = [
        n for n in everywhere["channels"] if n != "defaults" or rc.get("default_channels")
    ]
    found = {plain_url(c.base_url): c.base_url for c in channels(everywhere, settled)}
    alias = str(rc.get("channel_alias") or "")
    if alias:
        found[plain_url(f"{alias.rstrip('/')}/")] = f"{alias.rstrip('/')}/"
    return {plain: told for plain, told in found.items() if plain != told}


def let_in(url: str, known: dict[str, str]) -> str:
    """An address with what lets one in."""
    for plain, secret in sorted(known.items(), key=lambda kv: -len(kv[0])):
        if url.startswith(plain):
            return secret + url[len(plain) :]
    return url


async def addresses(request: dict[str, Any]) -> dict[str, Any]:
    """Where packages lie for this user, the best place first: mirrors, then their own address with what
    lets one in. The answer is read once and never kept."""
    settled = config(request["rc"])
    mine = secrets(request, settled)
    file = request["auth_file"] or settled.authentication_override_file
    known = json.loads(Path(file).read_text(encoding="utf-8")) if file else {}
    found = {}
    for url in request["urls"]:
        places = [m.rstrip("/") + url[len(c.rstrip("/")) :] for c, ms in settled.mirrors.items()
                  if url.startswith(c.rstrip("/") + "/") for m in ms]  # fmt: skip
        found[url] = [_authorized(place, known) for place in (*places, let_in(url, mine))]
    return {"addresses": found}


def _authorized(url: str, known: dict[str, Any]) -> str:
    """An address with the user and password, or the token, that the auth file has for its host."""
    parts = urlsplit(url)
    for host, said in known.items():
        mine = parts.hostname or ""  # rattler's auth file names hosts without a port
        fits = host in (mine, parts.netloc) or (host.startswith("*.") and mine.endswith(host[1:]))
        if fits and "BasicHTTP" in said:
            user, password = (quote(said["BasicHTTP"][k], safe="") for k in ("username", "password"))
            return parts._replace(netloc=f"{user}:{password}@{parts.netloc}").geturl()
        if fits and "CondaToken" in said:
            return parts._replace(path=f"/t/{said['CondaToken']}{parts.path}").geturl()
    return url
