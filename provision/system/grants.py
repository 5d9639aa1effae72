"""Grants: which variables of the user may be sent to which servers.

Files of a project and locks may name variables in addresses (`https://host/${TOKEN}/simple`), as in pip and uv. Who
writes such a file chooses both the variable and the server. So `expand` inserts a value only into an address whose
origin (scheme, host and port) the user granted it to:

- by an address of their own configuration or command line with that origin (`allow_origins`),
- by the variable GPUENV_GRANT, or by `grants:` in their configuration file (`allow`).

A variable anywhere else than in the address of a server is never replaced. `restore` puts the references back into
every text that is written or shown. Answers of servers pass through `escape_references`, so that they cannot name a
variable.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from urllib.parse import quote, unquote

from ..errors import GrantError, MissingVariableError, UsageError

REFERENCE = r"\$\{([A-Z0-9_]+)\}"

_SCHEMES = r"(?:git\+)?(?P<scheme>https?|ssh)://"
_REST = r"[^\x00-\x20\x7f\\]*"
# Strict, because uv, git and Python read a backslash or a control character in an authority differently.
_ADDRESS = (
    rf"(?i){_SCHEMES}(?:(?P<user>[^\x00-\x20\x7f/?#@\\]*)@)?(?P<host>[a-z0-9._-]+|\[[0-9a-f:.]+\])(?::(?P<port>[0-9]{{1,5}}))?"
    rf"(?:[/?#]{_REST})?"
)
_WRITTEN_SERVER = rf"(?i){_SCHEMES}(?:[^\s/?#@]*@)?(?P<server>[^\s/?#@]+)"
_PORTS = {"http": 80, "https": 443, "ssh": 22}
_VARIABLE = "GPUENV_GRANT"
_GRAMMAR = f"write {_VARIABLE}='NAME=https://HOST:PORT', and separate several by blanks"
_MOST = 50
"""The most variables in one address."""

_granted: set[tuple[str, str]] = set()
"""The grants of the user's configuration file: a variable and an origin."""
_own_origins: set[str] = set()
"""The origins of the user's own indexes, which may get every variable."""


def origin(address: str) -> str | None:
    """Return "scheme://host:port" of a server's address, or None for any other text."""
    match = re.fullmatch(_ADDRESS, address)
    if match is None:
        return None
    scheme = match["scheme"].lower()
    return f"{scheme}://{match['host'].lower()}:{int(match['port'] or _PORTS[scheme])}"


def allow_origins(addresses: Iterable[str]) -> None:
    """Grant all variables to the origins of addresses that the user configured or typed. Paths are ignored."""
    _own_origins.update(filter(None, map(origin, addresses)))


def allow(name: str, address: str, where: str) -> None:
    """Grant one variable to the origin of an address. Raises UsageError."""
    _granted.add(_parse_grant(name, address, where))


def is_own_origin(address: str) -> bool:
    """Return whether an address has the origin of an index that the user configured or typed."""
    return origin(address) in _own_origins


def _parse_grant(name: str, address: str, where: str) -> tuple[str, str]:
    to = origin(address)
    if to is None or "@" in address or not re.fullmatch("[A-Z0-9_]+", name):
        raise UsageError(f"{where}: expected NAME=https://HOST:PORT after {name[:40]!r}", hint=_GRAMMAR)
    return name, to


def _read_variable(environ: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return the grants of GPUENV_GRANT. Raises UsageError."""
    entries = [entry.partition("=") for entry in re.split(r"[\s,]+", environ.get(_VARIABLE, "")) if entry]
    return [_parse_grant(name, address, _VARIABLE) for name, _, address in entries]


def list_variables(text: str) -> list[str]:
    """Return the variables that a text names."""
    return re.findall(REFERENCE, text)


def escape_references(url: str) -> str:
    """Return an address of a server's answer without references to variables."""
    return url.replace("${", "$%7B")


def refuse_reference(text: str, where: str) -> None:
    """Raise UsageError for a text that names a variable and is no address of a server."""
    if names := list_variables(text):
        raise UsageError(
            f"{where}: ${{{names[0]}}} does not stand in the address of a server",
            hint="write the text itself: gpuenv replaces variables in http, https and ssh addresses only",
        )


def expand(address: str, where: str, environ: Mapping[str, str]) -> str:
    """Return an address with the values of its variables. `where` is its file and line.

    Raises MissingVariableError for an unset variable, GrantError for one that the user did not grant to the address's
    origin, and UsageError for a text that is no address. No message has a value.
    """
    names = list(dict.fromkeys(list_variables(address)))
    if not names:
        return address
    if len(list_variables(address)) > _MOST:
        raise UsageError(
            f"{where} names more than {_MOST} variables", hint="use fewer variables in an address"
        )
    values = {name: environ.get(name, "") for name in names}
    for name in (n for n in names if not values[n]):
        raise MissingVariableError(name, where, is_empty=name in environ)
    expanded = _fill(address, values)
    to = origin(expanded)
    written = re.match(_WRITTEN_SERVER, address)
    server = f"{written['scheme']}://{written['server']}" if written else ""
    if server and not list_variables(server) and origin(server) not in (None, to):
        raise UsageError(
            f"{where}: the value of {' or '.join(names)} changes the server of the address",
            hint="write /, ?, #, @ and \\ in the value in their encoded form, such as %2F",
        )
    if to is None:
        refuse_reference(address, where)
    known = _read_variable(environ)
    allowed = {name for name, granted in [*known, *_granted] if granted == to}
    lacking = [name for name in names if to not in _own_origins and name not in allowed]
    if lacking:
        # A host that a variable states stays a reference, which the shell replaces between double quotes.
        named, mark = (
            (to, "'")
            if server and not list_variables(server)
            else (server or list_variables(address)[0], '"')
        )
        named = f"${{{named}}}" if named in names else named
        line = " ".join(f"{n}={o}" for n, o in [*dict.fromkeys(known), *((name, named) for name in lacking)])
        raise GrantError(
            f"{where}: ${{{lacking[0]}}} is in an address of {named}, and you did not grant it to this server",
            hint=f"if this server may get the value, run export {_VARIABLE}={mark}{line}{mark}",
        )
    _remember(address, expanded, values)
    return expanded


def _fill(text: str, values: Mapping[str, str]) -> str:
    return re.sub(REFERENCE, lambda match: values[match[1]], text)


# --- references in texts that are written or shown ------------------------------------------------

_LEAST = 8
"""The fewest characters of a value that is recognized at another place of an address."""
ARCHIVES = (".whl", ".zip", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar")
_IN_TEXT = r"(?i)((?:https?|ssh)://)([^\s\"'`<>/?#@]*@)?([^\s\"'`<>/?#]*)([^\s\"'`<>]*)"
_END = r"(?=[/?#&=@:]|[)\].,;}]*$)"

_starts: dict[str, str] = {}
"""The start of an expanded address, up to the end of a value -> as written. Both have no user and password."""
_parts: dict[str, str] = {}
"""A part of a path or query with a value -> as written."""
_logins: dict[str, tuple[str, str]] = {}
"""An expanded address without user and password -> these, and as written."""


def _remember(address: str, expanded: str, values: Mapping[str, str]) -> None:
    """Record the parts of an expanded address for `restore`."""
    login, bare = _split_login(address)
    its_login, its_bare = _split_login(expanded)
    if list_variables(login):
        _logins[_without_commit(its_bare)] = (its_login, login)
    path = re.match(r"(?:[a-z+]+://)?[^/?#]*", bare, re.IGNORECASE)
    host_end = path.end() if path else 0
    path_end = len(re.split(r"[?#]", bare, maxsplit=1)[0])
    is_file = re.split(r"[?#]", its_bare, maxsplit=1)[0].lower().endswith(ARCHIVES)
    for part in re.finditer(r"[^/?#&=@:]+", bare):
        its_names = list_variables(part[0])
        if not its_names or (is_file and bare.rfind("/", 0, path_end) < part.start() < path_end):
            continue  # a file name is not secret
        for convert in (str, _encode, unquote):
            said = {name: convert(value) for name, value in values.items()}
            _starts[_split_login(_fill(bare[: part.end()], said))[1]] = bare[: part.end()]
            if part.start() >= host_end and any(len(values[name]) >= _LEAST for name in its_names):
                _parts[_fill(part[0], said)] = part[0]


def _encode(value: str) -> str:
    return quote(value, safe="%/:?#[]@!$&'()*+,;=")


def _split_login(address: str) -> tuple[str, str]:
    """Return user and password, and the address without them, git's prefix and a default port."""
    address = address.removeprefix("git+")
    match = re.match(_IN_TEXT, address)
    if match is None:
        return "", address
    return (match[2] or "").removesuffix("@"), _join(match) + address[match.end() :]


def _join(match: re.Match[str]) -> str:
    """Return an address of a text without user, password and default port, with a host in lower case."""
    scheme, host = match[1].lower(), match[3]
    host = re.sub(r"^[^$]*$", lambda m: m[0].lower(), host)
    return scheme + host.removesuffix(f":{_PORTS[scheme.removesuffix('://')]}") + match[4]


def _without_commit(bare: str) -> str:
    return re.sub(r"@[^/@]*$", "", bare.partition("#")[0].rstrip(")].,:;}"))


def restore(text: str) -> str:
    """Return a text with the references of its expanded addresses."""
    return re.sub(_IN_TEXT, _restore_address, text) if (_starts or _logins) and "://" in text else text


def _restore_address(match: re.Match[str]) -> str:
    user, bare = match[2] or "", _join(match)
    login = _logins.get(_without_commit(bare))
    if login and (user in ("", f"{login[0]}@") or "*" in user):
        user = f"{login[1]}@"
    start = max(
        (s for s in _starts if bare.startswith(s) and re.match(_END, bare[len(s) :])), key=len, default=""
    )
    if not (start or login):
        bare = match[1] + match[3] + match[4]
    rest = bare[len(start) :] if start else match[4]
    if _parts:
        pattern = "|".join(map(re.escape, sorted(_parts, key=len, reverse=True)))
        rest = re.sub(rf"(?<=[/=&?#:@])(?:{pattern}){_END}", lambda m: _parts[m[0]], rest)
    head = _starts[start] if start else bare[: len(bare) - len(match[4])]
    scheme, slashes, server = head.partition("://")
    return scheme + slashes + user + server + rest if slashes else head + rest
