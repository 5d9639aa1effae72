"""Complete the values of options in a shell: environments, frameworks, targets and formats.

An option names its completion function in this module, and `complete` calls it. The scripts of shells evaluate what
they receive, so only plain characters leave this module: see `_PLAIN`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from ..commands import completion_words
from ..model import FRAMEWORKS, MANAGERS, PLATFORMS
from ..system import process
from ..system.redaction import clean

# Not compiled here: every command imports this module, but few complete words.
_SPEC = r"(?P<name>[A-Za-z]\w*)(?P<before>(?:[^,]*,)*\s*(?:===?|>=|<=|~=|!=|<|>)\s*)(?P<version>[\w.]*)"


_PLAIN = r"(?!-)[\w@%+=:,./~<> -]+"
"""The characters of values and descriptions: none of them expands, quotes, or ends a word in double quotes."""
_UNQUOTED = r"[\w@%+=:,./~-]+"
"""The characters that bash and PowerShell take as written in a word."""
_MOST_SHOWN = 100


def complete(name: str, incomplete: str) -> list[tuple[str, str]]:
    """Return the values that the function NAME lists, as this shell inserts them, each with a description.

    A value with another character is left out, and so is such a description.
    """
    return list(_express(globals()[name](incomplete)))


def _express(words: Iterable[str | tuple[str, str]]) -> Iterable[tuple[str, str]]:
    for word in words:
        value, shown = (word, "") if isinstance(word, str) else word
        shown = clean(shown, _MOST_SHOWN)
        if re.fullmatch(_PLAIN, value) and ":::" not in value and clean(value) == value:
            yield _as_typed(value), shown if re.fullmatch(_PLAIN, shown) and ":::" not in shown else ""


def _as_typed(text: str) -> str:
    """Return the text with escapes for bash and PowerShell, which insert a completion unchanged.

    A word in quotes needs none. zsh and fish escape by themselves.
    """
    environ = process.environ()
    shell = environ.get("_GPUENV_COMPLETE", "").removeprefix("complete_")
    if shell in ("powershell", "pwsh"):
        return text if re.fullmatch(_UNQUOTED, text) else f"'{text}'"
    if shell != "bash" or _words(environ)[-1][:1] in ("'", '"'):
        return text
    return re.sub(rf"(?!{_UNQUOTED})(.)", r"\\\1", text)


# --- environments ------------------------------------------------------------------------------


def environments(incomplete: str) -> list[str]:
    """Return the registered environments as they would be typed in this folder.

    Without a match a shell completes files, so that other paths can be typed too.
    """
    ways = [way for env in completion_words.environments() for way in _ways(env, incomplete)]
    return [way for way in ways if way.startswith(incomplete)]


def _ways(env: Path, incomplete: str) -> Iterable[str]:
    """Yield a path in the form in which the word begins: `/...`, `~/...`, `./...`, or below this folder."""
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


# --- frameworks --------------------------------------------------------------------------------


def frameworks(incomplete: str) -> list[tuple[str, str]]:
    """Return framework names, and known versions after a whole name or a comparison."""
    spec = re.fullmatch(_SPEC, incomplete)
    if spec:
        return [
            (f"{spec['name']}{spec['before']}{version}", cuda)
            for version, cuda in completion_words.versions(spec["name"])
            if version.startswith(spec["version"])
        ]
    names = [(name, "") for name in FRAMEWORKS if name.startswith(incomplete)]
    if incomplete in FRAMEWORKS:
        names += [
            (f"{incomplete}=={version}", cuda) for version, cuda in completion_words.versions(incomplete)
        ]
    return names


def version_in_bash(environ: Mapping[str, str]) -> list[str] | None:
    """Return the versions after `--framework torch==`, or None if something else is completed.

    Bash splits `torch==2.1` into three words and completes the last one, which typer cannot handle.
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
    versions = completion_words.versions(typed[0])
    return [value for value, _ in _express(versions) if value.startswith("".join(typed[2:]))]


def _words(environ: Mapping[str, str]) -> list[str]:
    """Return Bash's words up to the completed one, as they were typed."""
    typed = environ.get("COMP_WORDS", "").split("\n")
    at = environ.get("COMP_CWORD", "")
    typed = typed[: int(at) + 1] if at.isdigit() else typed
    return typed or [""]


# --- targets and formats -----------------------------------------------------------------------


def targets(incomplete: str) -> list[tuple[str, str]]:
    """Return the targets of gpuenv.yaml in this folder."""
    return [(name, shown) for name, shown in completion_words.targets() if name.startswith(incomplete)]


def devices(incomplete: str) -> list[tuple[str, str]]:
    """Return the devices for which an environment can be built."""
    known = (
        ("auto", "the GPU of the target, else the CPU"), ("cuda", "a GPU"), ("cpu", "the CPU"),
    )  # fmt: skip
    return [one for one in known if one[0].startswith(incomplete)]


def tested_devices(incomplete: str) -> list[str]:
    """Return the devices that `verify` accepts: the GPUs of this machine, all of them, the CPU."""
    return [name for name in (*completion_words.cuda_devices(), "all", "cpu") if name.startswith(incomplete)]


def managers(incomplete: str) -> list[str]:
    """Return the managers."""
    return [name for name in MANAGERS if name.startswith(incomplete)]


def gpus(incomplete: str) -> list[tuple[str, str]]:
    """Return boards, or compute capabilities after a digit."""
    names = completion_words.gpus()
    if not incomplete[:1].isdigit():
        names = [one for one in names if not one[0][:1].isdigit()]
    return [(name, shown) for name, shown in names if name.startswith(incomplete)]


def drivers(incomplete: str) -> list[tuple[str, str]]:
    """Return driver branches, or the first release of each after a dot."""
    words = [
        (release, f"first release of {branch}, CUDA {cuda}")
        if "." in incomplete
        else (branch, f"first release {release}, CUDA {cuda}")
        for branch, release, cuda in completion_words.drivers()
    ]
    return [one for one in words if one[0].startswith(incomplete)]


def cudas(incomplete: str) -> list[tuple[str, str]]:
    """Return the CUDA versions of builds, newest first, each with its frameworks."""
    return [one for one in completion_words.cudas() if one[0].startswith(incomplete)]


def pythons(incomplete: str) -> list[str]:
    """Return the versions of Python that builds have wheels for, newest first."""
    return [version for version in completion_words.pythons() if version.startswith(incomplete)]


def packages(incomplete: str) -> list[str]:
    """Return the packages of the project that can be dropped."""
    return [name for name in completion_words.packages() if name.startswith(incomplete)]


def platforms(incomplete: str) -> list[str]:
    """Return the platforms of a target."""
    return [name for name in PLATFORMS if name.startswith(incomplete)]


def formats(incomplete: str) -> list[str]:
    """Return the formats of an export."""
    return [name for name in completion_words.formats() if name.startswith(incomplete)]
