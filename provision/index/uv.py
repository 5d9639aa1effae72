"""Runs uv, the installer. No other module starts it.

uv runs in a private folder with an empty uv.toml, without a search for configuration. It gets an explicit Python and
a filtered environment. So files in the current folder, in temporary folders or in their parents have no effect. The
user's configuration reaches uv as variables (`PackageSources.uv`).

Addresses may contain credentials, and every user of the machine can read arguments in the process list. So uv gets
addresses through its environment. uv passes addresses of requirements to git unchanged, with user and password. So
they are removed here. git gets them from a file that only this user can read, through its credential helper `store`
(gitcredentials(7)).
"""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit

from ..errors import BuildError
from ..model import PackageSources
from ..model.values import Value
from ..system import process, trust
from ..system.scratch import make_scratch
from .config import is_on, is_pytorch, strip_name, uv_extra

LONGEST_SOLVE = 900.0
"""The most seconds of one solve."""
_CHOOSING = (("pip", "compile"), ("pip", "install"))
"""The commands that choose versions or take files from indexes."""

_RULES_OF_VERSIONS = ("UV_CONSTRAINT", "UV_OVERRIDE", "UV_EXCLUDE", "UV_EXCLUDE_NEWER", "UV_PRERELEASE",
                      "UV_RESOLUTION")  # fmt: skip
_DROPPED = re.compile(r"UV_|PIP_|PYTHON|VIRTUAL_ENV$|GIT_")
# The connection of git to a server, and the user's configuration of git. The rest (GIT_DIR, GIT_WORK_TREE, ...) names
# the repository to use, and is set for example in a hook.
_GIT = re.compile(
    r"GIT_(SSH|SSL|ASKPASS|PROXY|HTTP|TRACE|CURL|LFS|TERMINAL_PROMPT$|ALLOW_PROTOCOL$|PROTOCOL|"
    r"CONFIG_(GLOBAL|SYSTEM|NOSYSTEM|COUNT|KEY_\d+|VALUE_\d+)$)"
)
_EXPANDED = re.compile(r"[A-Z0-9_]+")
# uv replaces `${NAME}` in the requirements of folders, commits and archives. Their authors are strangers, so a solve has
# only the variables that uv, git, the programs for passwords, and compilers need. An installation gets all.
_NEEDED = (
    r"UV_|GIT_|SSH_|SSL_|XDG_|LC_|KEYRING_|DBUS_|RUST_|RAYON_|LD_LIBRARY_PATH$|"
    r"CUDA_|CUDNN_|NVCC_|TORCH_|CMAKE_|PKG_CONFIG|SETUPTOOLS_|SKBUILD|(CC|CXX|CPP|CFLAGS|CXXFLAGS|CPPFLAGS|LDFLAGS|LIBRARY_PATH|"
    r"CPATH|MAX_JOBS|NINJA_STATUS)$|"
    r"(ALL_PROXY|APPDATA|COMSPEC|DISPLAY|HOME|HTTPS?_PROXY|LANG|LOCALAPPDATA|LOGNAME|NETRC|NO_COLOR|NO_PROXY|PATH|PATHEXT|"
    r"PROGRAMDATA|REQUESTS_CA_BUNDLE|SHELL|SYSTEMROOT|TEMP|TERM|TMP|TMPDIR|USER|USERNAME|USERPROFILE|WAYLAND_DISPLAY)$"
)
_CLOUD = r"AWS_|AZURE_|CLOUDSDK_|GOOGLE_|ARTIFACTS_|VSS_"
_WITH_CLOUD = ("UV_KEYRING_PROVIDER", "UV_S3_ENDPOINT_URL", "UV_GCS_ENDPOINT_URL", "UV_AZURE_ENDPOINT_URL")
_PATHS = ("TMPDIR", "SSL_CERT_FILE", "SSL_CERT_DIR", "NETRC")


class Settings(Value):
    """The settings of one command of uv.

    `builds` says that build code may run, which gets all variables of the user. `locked` says that
    a lock chose the versions, so that rules about versions do not apply. `variables` replace all others. `git_logins`
    are credentials for git's store (`without_credentials`). `on_line` gets each line of stderr. `terminal` makes
    stderr a terminal.
    """

    builds: bool = False
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
    """Return the path of the uv that is installed with gpuenv. Raises BuildError if it is missing."""
    with _LOOKING:  # `sysconfig` gives a second thread a table that the first one is still filling
        from uv import find_uv_bin

        try:
            return find_uv_bin()
        except FileNotFoundError:
            raise BuildError(
                f"gpuenv requires the program uv, which is missing in {sys.prefix}", hint="reinstall gpuenv"
            ) from None


@cache
def own_index() -> str:
    """Return the default index of uv, which its help states, without a slash at its end, or "" if uv cannot be run.

    Nothing that configures uv is read. A uv that is missing or damaged is reported where it is needed.
    """
    try:
        helped = process.run(
            [program(), "help", "--no-pager", "--no-config", "pip", "compile"], env={}, cwd="/", timeout=60
        )
    except (OSError, BuildError):
        return ""
    stated = re.search(r"\(by\s+default:\s+<(https://[^\s>]+)>\)", helped.stdout)
    return stated[1].rstrip("/") if stated else ""


def run_uv(
    arguments: Sequence[str],
    sources: PackageSources,
    *,
    python: str | Path | None,
    settings: Settings = PLAIN,
) -> process.Finished:
    """Run a command of uv in isolation. Paths in `arguments` are absolute.

    `python` is the interpreter, or None for a command without one. Raises OSError if uv cannot be started or the
    private folder cannot be created.
    """
    env = environment(sources, process.environ(), settings)
    trust.secure_cache(cache_folder(env))
    argv = [program(), *arguments, "--no-config"]
    if python is not None:
        argv += ["--python", str(Path(python).absolute())]
    if is_on(env.pop("UV_NO_INDEX", None)) and tuple(arguments[:2]) in _CHOOSING:
        argv.append("--no-index")
    with make_scratch("uv") as folder:
        (folder / "uv.toml").touch()
        env |= variables(folder, settings.git_logins, env)
        return process.run(
            argv, env=env, cwd=folder, timeout=settings.timeout, on_line=settings.on_line,
            terminal=settings.terminal,
        )  # fmt: skip


def environment(
    sources: PackageSources, environ: Mapping[str, str], settings: Settings = PLAIN
) -> dict[str, str]:
    """Return the environment for uv: the user's own, filtered, with the configured indexes and no downloads of
    Python.

    Several indexes are merged as in pip: the best version of all is taken, and hashes decide what is installed. The
    PyTorch index is never one of them. It serves only the packages that name it.
    """
    env = {**filter_variables(environ), **sources.uv}
    if not settings.builds:
        needed = re.compile(f"{_NEEDED}|{_CLOUD}" if any(env.get(name) for name in _WITH_CLOUD) else _NEEDED)
        env = {k: v for k, v in env.items() if not _EXPANDED.fullmatch(k) or needed.match(k)}
    if settings.locked:
        env = {k: v for k, v in env.items() if k not in _RULES_OF_VERSIONS}
    env.update(UV_PYTHON_DOWNLOADS="never", NO_COLOR="1", UV_NO_WRAP="1")
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
    _set_places(env, sources)
    if sources.exclude_newer and not settings.locked:
        env["UV_EXCLUDE_NEWER"] = sources.exclude_newer
    if sources.offline:
        env["UV_OFFLINE"] = "1"
    return {**env, **settings.variables}


def _set_places(env: dict[str, str], sources: PackageSources) -> None:
    """Add the indexes and the folders and pages of wheels."""
    if sources.default:
        env["UV_DEFAULT_INDEX"] = sources.default
    named = [*sources.extra, *uv_extra(env)]
    for name in ("UV_INDEX", "UV_EXTRA_INDEX_URL"):
        env.pop(name, None)
    theirs = [i for i in named if not is_pytorch(strip_name(i), sources.pytorch)]
    if theirs:
        env["UV_INDEX"] = " ".join(dict.fromkeys(theirs))
    if sources.extra:
        env["UV_INDEX_STRATEGY"] = "unsafe-best-match"
    if sources.find_links:
        links = [p if "://" in p else str(Path(p).absolute()) for p in sources.find_links]
        all_links = [*links, *filter(None, env.get("UV_FIND_LINKS", "").split(","))]
        env["UV_FIND_LINKS"] = ",".join(dict.fromkeys(all_links))
    if sources.no_index:
        env["UV_NO_INDEX"] = "1"


def filter_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the user's variables without those of uv, pip, Python and git that decide what is run or read.

    Relative paths are resolved, because uv runs in another folder.
    """
    kept = {k: v for k, v in environ.items() if not _DROPPED.match(k) or _GIT.match(k)}
    for name in _PATHS:
        if value := kept.get(name):
            kept[name] = os.pathsep.join(str(Path(p).absolute()) for p in value.split(os.pathsep) if p)
    if "PATH" in kept:
        kept["PATH"] = trust.filter_path(kept["PATH"])  # uv starts git
    return kept


def cache_folder(environ: Mapping[str, str]) -> Path:
    """Return uv's cache."""
    base = Path(environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(environ.get("UV_CACHE_DIR") or base / "uv").absolute()


def installer_cache(sources: PackageSources) -> Path:
    """Return the cache of a run of uv."""
    return cache_folder(environment(sources, process.environ()))


_ADDRESS = re.compile(r"git\+(https?://)([^\s/?#\"'`<>]+)@(?=[^\s@/?#\"'`<>]+(?:[/?#\s]|$))")


def without_credentials(text: str) -> tuple[str, tuple[str, ...]]:
    """Return a text of requirements without user and password of its git addresses, and these separately.

    They have the form of git's credential store: "https://user:password@host:port".
    """
    logins: dict[str, None] = {}

    def bare(match: re.Match[str]) -> str:
        scheme, login = match[1], match[2]
        rest = text[match.end() : match.end() + 300]
        host = urlsplit(scheme + re.split(r"[\s/?#]", rest, maxsplit=1)[0]).netloc
        logins[f"{scheme}{login if ':' in login else f'{login}:'}@{host}"] = None
        return f"git+{scheme}"

    return _ADDRESS.sub(bare, text), tuple(logins)


def variables(folder: Path, credentials: Sequence[str], environ: Mapping[str, str]) -> dict[str, str]:
    """Write credentials into a file of a private folder, and return the variables that make git use it.

    The user's own credential helpers stay. Raises OSError.
    """
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
