"""What the shell completes beyond commands and options: environments, frameworks with their versions, targets.

A shell waits for each of these at every press of a key, so they import what they need and no stage; where
something is broken there is nothing to complete, and the command itself will say why.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from .. import model
from ..errors import GpuenvError
from ..model import FRAMEWORKS
from ..system import process

if TYPE_CHECKING:
    from ..model import Profiles

# Not compiled here: every command imports this, and hardly any completes.
_SPEC = r"(?P<name>[A-Za-z]\w*)(?P<before>(?:[^,]*,)*\s*(?:===?|>=|<=|~=|!=|<|>)\s*)(?P<version>[\w.]*)"


def words(*allowed: str) -> Callable[[str], list[str]]:
    """A completion among fixed words."""
    return lambda incomplete: [w for w in allowed if w.startswith(incomplete)]


# --- environments ------------------------------------------------------------------------------


def environments(incomplete: str) -> list[str]:
    """Environments of the registry as one would type them from here. A shell completes files where there
    are none, so that any other path can be typed as well."""
    from ..environment import registry

    found = [way for env in registry.environments(prune=False) for way in _ways(env, incomplete)]
    # What no terminal shows as it is, none can type either.
    return [_as_typed(way) for way in found if way.startswith(incomplete) and way.isprintable()]


def _ways(env: Path, incomplete: str) -> Iterable[str]:
    """A path in the manner in which the word begins: `/...`, `~/...`, `./...`, or below this folder."""
    if incomplete.startswith("/"):
        yield str(env)
        return
    home = process.environ().get("HOME", "")
    if incomplete.startswith("~"):
        if home and env.is_relative_to(home):
            yield f"~/{env.relative_to(home)}"
        return
    below = os.path.relpath(env)
    if incomplete.startswith("./"):
        yield f"./{below}"
    elif not below.startswith("..") or incomplete.startswith(".."):
        yield below
    elif not incomplete:
        yield str(env)


def _as_typed(text: str) -> str:
    """Bash puts a completion into the line as it is: what would end the word is escaped, unless the word
    began with a quote. Other shells do that themselves."""
    environ = process.environ()
    if environ.get("_GPUENV_COMPLETE") != "complete_bash" or _words(environ)[-1][:1] in ("'", '"'):
        return text
    return re.sub(r"([^\w@%+=:,./~-])", r"\\\1", text)


# --- frameworks --------------------------------------------------------------------------------


def frameworks(incomplete: str) -> list[tuple[str, str]]:
    """Names, and behind a whole name or a comparison the versions that are known."""
    spec = re.fullmatch(_SPEC, incomplete)
    if spec:
        return [
            (f"{spec['name']}{spec['before']}{version}", cuda)
            for version, cuda in _versions(spec["name"])
            if version.startswith(spec["version"])
        ]
    names = [(name, "") for name in FRAMEWORKS if name.startswith(incomplete)]
    if incomplete in FRAMEWORKS:
        names += [(f"{incomplete}=={version}", cuda) for version, cuda in _versions(incomplete)]
    return names


def _versions(framework: str) -> list[tuple[str, str]]:
    """The versions that the profiles know, newest first, each with the CUDA that it is built with."""
    from packaging.version import Version

    known: dict[str, set[str]] = {}
    for build in _profiles().builds:
        if build.framework == framework and not build.yanked:
            known.setdefault(build.version, set()).update({build.cuda} if build.cuda else ())
    ordered = sorted(known, key=Version, reverse=True)
    return [(v, f"CUDA {', '.join(sorted(known[v], key=Version))}" if known[v] else "CPU") for v in ordered]


def _profiles() -> Profiles:
    """What is known, from the cache that every command shares. (`ask` would import the stages.)"""
    import platformdirs

    from .. import profiles

    own = Path(platformdirs.user_config_dir("gpuenv")) / "profiles"
    try:
        return profiles.load([own] if own.is_dir() else [], cache_dir=_cache())
    except GpuenvError:
        return model.Profiles()


def _cache() -> Path:
    import platformdirs

    return Path(platformdirs.user_cache_dir("gpuenv"))


def version_in_bash(environ: Mapping[str, str]) -> list[str] | None:
    """The versions behind `--framework torch==`, None where something else is completed.

    Bash takes `torch==2.1` for three words and completes the last, of which typer can make nothing.
    """
    if environ.get("_GPUENV_COMPLETE") != "complete_bash":
        return None
    before = _words(environ)
    options = [i for i, word in enumerate(before) if word in ("--framework", "-f")]
    typed = before[options[-1] + 1 :] if options else []
    if typed[:1] == ["="]:
        del typed[0]
    if len(typed) not in (2, 3) or typed[0] not in FRAMEWORKS or typed[1] not in ("==", "==="):
        return None
    return [version for version, _ in _versions(typed[0]) if version.startswith("".join(typed[2:]))]


def _words(environ: Mapping[str, str]) -> list[str]:
    """Bash's words up to the one that is completed, as they were typed."""
    typed = environ.get("COMP_WORDS", "").split("\n")
    at = environ.get("COMP_CWORD", "")
    typed = typed[: int(at) + 1] if at.isdigit() else typed
    return typed or [""]


# --- targets -----------------------------------------------------------------------------------


def targets(incomplete: str) -> list[tuple[str, str]]:
    """The targets that gpuenv.yaml names here."""
    from ..project.config.cache import cached_config
    from ..project.config.kinds import CONFIG_NAME

    file = Path.cwd() / CONFIG_NAME
    try:
        said = cached_config(file, _cache()).targets if file.is_file() else {}
    except GpuenvError:
        return []
    return [
        (name, " ".join(x for x in (t.driver or t.file, *t.gpus, t.platform) if x))
        for name, t in said.items()
        if name.startswith(incomplete)
    ]
