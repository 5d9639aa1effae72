"""Passwords of git addresses, kept off git's command line, which any user of the machine can read.

uv hands git an address as it finds it in a requirement, user and password included. Here they are taken out, and git
gets them from a file that only this user can read, through its own credential helper `store` (gitcredentials(7)).
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

_ADDRESS = re.compile(r"git\+(https?://)([^\s/?#\"'`<>]+)@(?=[^\s@/?#\"'`<>]+(?:[/?#\s]|$))")


def without_credentials(text: str) -> tuple[str, tuple[str, ...]]:
    """Return a text of requirements without user and password of its git addresses, and these as git's credential
    store has them: "https://user:password@host:port"."""
    found: dict[str, None] = {}

    def bare(match: re.Match[str]) -> str:
        scheme, login = match[1], match[2]
        host = urlsplit(f"{scheme}{_authority_after(text, match.end())}").netloc
        found[f"{scheme}{login if ':' in login else f'{login}:'}@{host}"] = None
        return f"git+{scheme}"

    return _ADDRESS.sub(bare, text), tuple(found)


def _authority_after(text: str, start: int) -> str:
    return re.split(r"[\s/?#]", text[start : start + 300], maxsplit=1)[0]


def variables(folder: Path, credentials: Sequence[str], environ: Mapping[str, str]) -> dict[str, str]:
    """Write credentials into a file of a private folder, and return the variables that make git use it beside the
    user's own helpers. Raises OSError."""
    if not credentials:
        return {}
    path = folder / "git-credentials"
    number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(number, "w", encoding="utf-8") as file:
        file.write("\n".join(credentials) + "\n")
    count = environ.get("GIT_CONFIG_COUNT", "")
    first = int(count) if count.isdigit() else 0
    return {
        "GIT_CONFIG_COUNT": str(first + 1),
        f"GIT_CONFIG_KEY_{first}": "credential.helper",
        f"GIT_CONFIG_VALUE_{first}": f"store --file='{path}'",
    }
