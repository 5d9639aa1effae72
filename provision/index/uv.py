"""uv, the installer: the only module that starts it.

uv runs in a private folder with an empty uv.toml, without a search for configuration, with an explicit Python
and a filtered environment. So nothing in the current folder, in a folder for temporary files or in one of
their parents decides what uv does. What the user configured reaches uv as variables (`uv_config`).

Addresses go to uv through its environment and never through its arguments, which any user of the
machine can read in the process list and which may hold credentials. uv hands git an address as it finds it in a
requirement, user and password included. Here they are taken out, and git gets them from a file that only this user
can read, through its own credential helper `store` (gitcredentials(7))."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit

from ..model import PackageSources
from ..system import process, scratch_folders
from ..system.redaction import redact_text
from . import pytorch_index, uv_config

_CHOOSING = (("pip", "compile"), ("pip", "install"))
"""The commands that choose versions or take files from places."""

_RULES_OF_VERSIONS = ("UV_CONSTRAINT", "UV_OVERRIDE", "UV_EXCLUDE", "UV_EXCLUDE_NEWER", "UV_PRERELEASE",
                      "UV_RESOLUTION")  # fmt: skip
_DROPPED = re.compile(r"UV_|PIP_|PYTHON|VIRTUAL_ENV$|GIT_")
# How git reaches a server and which configuration of the user it reads. The rest (GIT_DIR, GIT_WORK_TREE, ...)
# says which repository to use, and is set for example in a hook.
_GIT = re.compile(
    r"GIT_(SSH|SSL|ASKPASS|PROXY|HTTP|TRACE|CURL|LFS|TERMINAL_PROMPT$|ALLOW_PROTOCOL$|PROTOCOL|"
    r"CONFIG_(GLOBAL|SYSTEM|NOSYSTEM|COUNT|KEY_\d+|VALUE_\d+)$)"
)
_PATHS = ("TMPDIR", "SSL_CERT_FILE", "SSL_CERT_DIR", "NETRC")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How one command of uv runs.

    `only_wheels` leaves just the find-links, `alone` no index but the default one of the sources. `locked` says
    that a lock chose the versions: no rule about versions applies. `variables` stand over all others. `git_logins`
    are credentials for git's store (`git_credentials.without_credentials`).
    `on_line` gets each line of stderr; `terminal` makes that a terminal.
    """

    only_wheels: bool = False
    alone: bool = False
    locked: bool = False
    variables: Mapping[str, str] = field(default_factory=dict)
    git_logins: Sequence[str] = ()
    timeout: float = 60.0
    on_line: Callable[[str], None] | None = None
    terminal: bool = False


PLAIN = Settings()
_LOOKING = threading.Lock()


@cache
def program() -> str:
    """The uv that was installed along with gpuenv. Raises FileNotFoundError without it."""
    with _LOOKING:  # `sysconfig` gives a second thread a table that the first one has not filled yet
        from uv import find_uv_bin

        return find_uv_bin()


def run_uv(
    arguments: Sequence[str],
    sources: PackageSources,
    *,
    python: str | Path | None,
    settings: Settings = PLAIN,
) -> process.Finished:
    """Run a command of uv, isolated; paths in `arguments` are absolute. `python` is the interpreter, None for a
    command that has none. Raises OSError when uv cannot be started or the private folder cannot be made."""
    env = environment(sources, process.environ(), settings)
    argv = [program(), *arguments, "--no-config"]
    if python is not None:
        argv += ["--python", str(Path(python).absolute())]
    if uv_config.is_on(env.pop("UV_NO_INDEX", None)) and tuple(arguments[:2]) in _CHOOSING:
        argv.append("--no-index")
    with scratch_folders.scratch("uv") as folder:
        (folder / "uv.toml").touch()
        env |= variables(folder, settings.git_logins, env)
        return process.run(
            argv, env=env, cwd=folder, timeout=settings.timeout, on_line=settings.on_line,
            terminal=settings.terminal,
        )  # fmt: skip


def environment(
    sources: PackageSources, environ: Mapping[str, str], settings: Settings = PLAIN
) -> dict[str, str]:
    """The environment for uv: the user's own without what would take over, the configured indexes, and no
    surprise downloads.

    Several indexes are merged as pip merges them: the best version of all of them is taken, and hashes decide
    what is installed. The PyTorch index is never one of them: it is asked for what is named for it, alone.
    """
    env = filtered(environ) | uv_config.variables(environ)
    if settings.locked:
        env = {k: v for k, v in env.items() if k not in _RULES_OF_VERSIONS}
    env.update(UV_PYTHON_DOWNLOADS="never", NO_COLOR="1")
    if sources.cache_dir:
        env["UV_CACHE_DIR"] = str(Path(sources.cache_dir).absolute() / "uv")
    if sources.cert and "SSL_CERT_FILE" not in env:
        env["SSL_CERT_FILE"] = sources.cert
    if sources.proxy:
        env |= {"HTTP_PROXY": sources.proxy, "HTTPS_PROXY": sources.proxy}
    if sources.timeout:
        env.setdefault("UV_HTTP_TIMEOUT", f"{sources.timeout:.0f}")
    if sources.trusted:
        env["UV_INSECURE_HOST"] = " ".join([*sources.trusted, *env.get("UV_INSECURE_HOST", "").split()])
    _set_places(env, sources, settings)
    if sources.exclude_newer and not settings.locked:
        env["UV_EXCLUDE_NEWER"] = sources.exclude_newer
    if sources.offline:
        env["UV_OFFLINE"] = "1"
    return {**env, **settings.variables}


def _set_places(env: dict[str, str], sources: PackageSources, settings: Settings) -> None:
    """Name the indexes and the folders and pages of wheels."""
    if sources.default:
        env["UV_DEFAULT_INDEX"] = sources.default
    named = [*sources.extra, *uv_config.extra_indexes(env)]
    for name in ("UV_INDEX", "UV_EXTRA_INDEX_URL"):
        env.pop(name, None)
    theirs = [i for i in named if not pytorch_index.is_one(uv_config.address(i), sources.pytorch)]
    if theirs and not settings.alone:
        env["UV_INDEX"] = " ".join(dict.fromkeys(theirs))
    if sources.extra and not settings.alone:
        env["UV_INDEX_STRATEGY"] = "unsafe-best-match"
    if sources.find_links:
        links = [p if "://" in p else str(Path(p).absolute()) for p in sources.find_links]
        given = [*links, *filter(None, env.get("UV_FIND_LINKS", "").split(","))]
        env["UV_FIND_LINKS"] = ",".join(dict.fromkeys(given))
    if settings.only_wheels or sources.no_index:
        env["UV_NO_INDEX"] = "1"


def filtered(environ: Mapping[str, str]) -> dict[str, str]:
    """The user's variables without those of uv, pip, Python and git that decide what is run or read; relative
    paths are resolved, as uv runs in another folder."""
    kept = {k: v for k, v in environ.items() if not _DROPPED.match(k) or _GIT.match(k)}
    for name in _PATHS:
        if value := kept.get(name):
            kept[name] = os.pathsep.join(str(Path(p).absolute()) for p in value.split(os.pathsep) if p)
    return kept


def redacted(log: str) -> str:
    """Return a program's output without the credentials in its addresses."""
    return redact_text(log)


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
