"""What lets the engine into channels and mirrors: rattler's auth files, and passwords in addresses of mirrors.

The engine looks for credentials in auth files only once it knows the mirror that it asks, and then drops
those that stand in the mirror's own address: they are handed to it in a file of one run.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from ...system import foreign


def read(environ: Mapping[str, str]) -> tuple[dict[str, Any], str | None]:
    """The file that RATTLER_AUTH_FILE names, and a sentence where it is not there. Raises ValueError, which
    quotes nothing of it, for a file that the engine could not read: this one, or the one in the home folder."""
    home = Path(environ.get("HOME") or Path.home()) / ".rattler" / "credentials.json"
    _hosts(home)
    named = environ.get("RATTLER_AUTH_FILE")
    if not named:
        return {}, None
    found = _hosts(Path(named))
    said = None if found is not None else f"RATTLER_AUTH_FILE names {named}, which is not there"
    return found or {}, said


def _hosts(path: Path) -> dict[str, Any] | None:
    try:
        data = json.loads(foreign.read_strictly(path))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ValueError(f"the auth file {path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        line = f": line {error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        raise ValueError(f"the auth file {path} cannot be read: it is no JSON{line}") from None
    if not isinstance(data, dict) or not all(isinstance(told, dict) for told in data.values()):
        raise ValueError(f"the auth file {path} cannot be read: a host and what lets one in is expected")
    return data


def of_mirrors(values: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """conda's configuration with mirrors by their plain addresses, and what lets one in by their hosts."""
    known: dict[str, Any] = {}

    def plain(address: str) -> str:
        parts = urlsplit(address)
        if parts.hostname and parts.password is not None:
            user, password = unquote(parts.username or ""), unquote(parts.password)
            known[parts.hostname] = {"BasicHTTP": {"username": user, "password": password}}
        return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()

    told = {
        channel: [plain(a) for a in ([places] if isinstance(places, str) else places or ())]
        for channel, places in (values.get("mirrored_channels") or {}).items()
    }
    return {**values, "mirrored_channels": told}, known


def lend(known: Mapping[str, Any], held: Mapping[str, Any], scratch: Path) -> dict[str, str]:
    """The variable that names an auth file of one run, with these beside those that are held; none where
    there is nothing to add."""
    if not known:
        return {}
    path = scratch / "auth.json"
    path.touch(mode=0o600)
    path.write_text(json.dumps({**held, **known}), encoding="utf-8")
    return {"RATTLER_AUTH_FILE": str(path)}
