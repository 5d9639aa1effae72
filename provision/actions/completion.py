"""Complete the values of options in a shell: environments, frameworks, versions, targets, GPUs and formats.

An option names a function of this module, and `complete` calls it. The scripts of shells evaluate what they receive,
so only plain characters leave this module: see `_PLAIN`. A shell asks on every key press, so no stage is imported.
With a broken file nothing is completed; the command itself reports the error.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import GpuenvError
from ..model import FRAMEWORKS, MANAGERS, PLATFORMS, Profiles
from ..system import process
from ..system.redaction import clean

if TYPE_CHECKING:
    from ..model import ProjectConfig

_Words = Iterable[str | tuple[str, str]]
"""Values, some with a description."""

_PLAIN = re.compile(r"(?!-)(?!.*:::)[\w@%+=:,./~<> -]+")
"""Values and descriptions: no character expands, quotes, or ends a word in double quotes, and `:::` is typer's."""
_UNQUOTED = r"[\w@%+=:,./~-]+"
"""The characters that bash and PowerShell take as written in a word."""
_MOST_SHOWN = 100
_SPEC = re.compile(r"([A-Za-z]\w*)((?:[^,]*,)*\s*(?:===?|>=|<=|~=|!=|<|>)\s*)[\w.]*")


def complete(name: str, incomplete: str) -> list[tuple[str, str]]:
    """Return the values of the function NAME that begin as typed, as this shell inserts them, with descriptions.

    A value with another character is left out, and so is such a description.
    """
    return _prepare_words(globals()[name](incomplete), incomplete)


def _prepare_words(words: _Words, incomplete: str) -> list[tuple[str, str]]:
    pairs = ((word, "") if isinstance(word, str) else word for word in words)
    return [
        (_escape(value), shown if _PLAIN.fullmatch(shown := clean(text, _MOST_SHOWN)) else "")
        for value, text in pairs
        if value.startswith(incomplete) and _PLAIN.fullmatch(value) and clean(value) == value
    ]


def _escape(text: str) -> str:
    """Return the text with escapes for bash and PowerShell, which insert a completion unchanged.

    A word in quotes needs none. zsh and fish escape by themselves.
    """
    environ = process.environ()
    shell = environ.get("_GPUENV_COMPLETE", "").removeprefix("complete_")
    if shell in ("powershell", "pwsh"):
        return text if re.fullmatch(_UNQUOTED, text) else f"'{text}'"
    if shell != "bash" or _typed_words(environ)[-1][:1] in ("'", '"'):
        return text
    return re.sub(rf"(?!{_UNQUOTED})(.)", r"\\\1", text)


def version_in_bash(environ: Mapping[str, str]) -> list[str] | None:
    """Return the versions after `--framework torch==`, or None if something else is completed.

    Bash splits `torch==2.1` into three words and completes the last one, which typer cannot handle.
    """
    if environ.get("_GPUENV_COMPLETE") != "complete_bash":
        return None
    before = _typed_words(environ)
    options = [i for i, word in enumerate(before) if word in ("--framework", "-f")]
    typed = before[options[-1] + 1 :] if options else []
    if typed[:1] == ["="]:
        del typed[0]
    if len(typed) not in (2, 3) or typed[0] not in FRAMEWORKS or typed[1] not in ("==", "==="):
        return None
    return [value for value, _ in _prepare_words(_versions(typed[0]), "".join(typed[2:]))]


def _typed_words(environ: Mapping[str, str]) -> list[str]:
    """Return Bash's words up to the completed one, as they were typed."""
    typed = environ.get("COMP_WORDS", "").split("\n")
    at = environ.get("COMP_CWORD", "")
    return (typed[: int(at) + 1] if at.isdigit() else typed) or [""]


# --- what is in this folder and on this machine ------------------------------------------------


def environments(incomplete: str) -> _Words:
    """Yield the registered environments in the form in which the word begins: `/...`, `~/...`, `./...`, or below this folder.

    Without a match a shell completes files, so that other paths can be typed too.
    """
    from ..environment import registry

    home = process.environ().get("HOME", "")
    for env in registry.list_environments(prune=False):
        below = os.path.relpath(env)
        if incomplete.startswith("~"):
            yield f"~/{env.relative_to(home)}" if home and env.is_relative_to(home) else ""
        elif incomplete.startswith("./"):
            yield f"./{below}"
        elif not incomplete.startswith("/") and (incomplete.startswith("..") or not below.startswith("..")):
            yield below
        else:
            yield str(env)


def targets(_: str) -> _Words:
    """Return the targets of gpuenv.yaml, each with a description."""
    config = _config()
    return [
        (name, " ".join(x for x in (t.driver or t.file, *t.gpus, t.platform) if x))
        for name, t in (config.targets if config else {}).items()
    ]


def packages(_: str) -> _Words:
    """Return the names of the packages of the project that can be dropped."""
    from ..config.edit import parse_package_name

    config = _config()
    return [parse_package_name(text) for text in config.packages] if config else []


def tested_devices(_: str) -> _Words:
    """Return the devices that `verify` accepts: one for each device file of the driver, all of them, the CPU."""
    numbers = (path.name.removeprefix("nvidia") for path in Path("/dev").glob("nvidia*"))
    return [*(f"cuda:{number}" for number in numbers if number.isdigit()), "all", "cpu"]


def _config() -> ProjectConfig | None:
    """Return what the project's file says, or None if there is none or it is broken."""
    from ..config.env import locate_project_file
    from ..config.options import Choices, get_cache_dir
    from ..config.project import read_cached_config

    try:
        file = locate_project_file()
        return read_cached_config(file, get_cache_dir(Choices())) if file else None
    except GpuenvError:
        return None


# --- rows of the profiles ----------------------------------------------------------------------


def _profiles() -> Profiles:
    """Return the rows of the profiles, or none if a file is broken."""
    from ..config import rows
    from ..config.options import Choices

    try:
        return rows.load(Choices())
    except GpuenvError:
        return Profiles()


def _newest_first(versions: Iterable[str]) -> list[str]:
    from packaging.version import Version

    return sorted(versions, key=Version, reverse=True)


def frameworks(incomplete: str) -> _Words:
    """Return framework names, and known versions after a whole name or a comparison."""
    spec = _SPEC.fullmatch(incomplete)
    name, before = spec.groups() if spec else (incomplete, "==")
    known = [(f"{name}{before}{version}", shown) for version, shown in _versions(name)]
    return known if spec else [*FRAMEWORKS, *known]


def _versions(framework: str) -> list[tuple[str, str]]:
    """Return the versions of a framework, newest first, each with its CUDA versions."""
    known: dict[str, set[str]] = {}
    for build in _profiles().builds if framework in FRAMEWORKS else ():
        if build.framework == framework and not build.yanked:
            known.setdefault(build.version, set()).update({build.cuda} if build.cuda else ())
    return [
        (v, f"CUDA {', '.join(reversed(_newest_first(known[v])))}" if known[v] else "CPU")
        for v in _newest_first(known)
    ]


def cudas(_: str) -> _Words:
    """Return the CUDA versions of the builds, newest first, each with its frameworks."""
    known: dict[str, dict[str, None]] = {}
    for build in _profiles().builds:
        if build.cuda and not build.yanked:
            known.setdefault(build.cuda, {})[build.framework] = None
    return [(cuda, ", ".join(known[cuda])) for cuda in _newest_first(known)]


def pythons(_: str) -> _Words:
    """Return the Pythons that the builds have wheels for, newest first."""
    return _newest_first({python for build in _profiles().builds for python in build.python})


def drivers(incomplete: str) -> _Words:
    """Return driver branches, newest first, or the first release of each on Linux after a dot."""
    known = _profiles()
    first = {release.cuda: release.linux for release in known.cuda}
    for row in reversed(known.branches):
        if (release := first.get(row.cuda)) and "." in incomplete:
            yield release, f"first release of {row.branch}, CUDA {row.cuda}"
        elif release:
            yield row.branch, f"first release {release}, CUDA {row.cuda}"


def gpus(incomplete: str) -> _Words:
    """Return boards with their compute capability, or capabilities with their generation after a digit."""
    if incomplete[:1].isdigit():
        return [(model.capability, model.generation) for model in _profiles().gpus]
    return [
        (board.removeprefix("GeForce "), f"capability {model.capability}")
        for model in _profiles().gpus for board in model.boards
    ]  # fmt: skip


# --- fixed words -------------------------------------------------------------------------------


def devices(_: str) -> _Words:
    """Return the devices for which an environment can be built."""
    return [("auto", "the GPU of the target, else the CPU"), ("cuda", "a GPU"), ("cpu", "the CPU")]


def managers(_: str) -> _Words:
    """Return the managers."""
    return MANAGERS


def platforms(_: str) -> _Words:
    """Return the platforms of a target."""
    return PLATFORMS


def formats(_: str) -> _Words:
    """Return the formats of an export."""
    from .. import export

    return export.FORMATS
