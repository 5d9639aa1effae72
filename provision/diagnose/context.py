"""Add installed versions of the text's environment that the text does not name.

The text comes first. If it names another version or paths of another environment, nothing is added.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..model import Device, Evidence
from .facts import Facts
from .lines import Line
from .notes import Remarks
from .version_texts import package

_DECIDING = ("torch", "tensorflow", "jax", "jaxlib", "python", "cuda_build")
_PACKAGES = (*_DECIDING[:4], "torchvision", "torchaudio", "numpy", "onnxruntime", "onnxruntime-gpu", "ctranslate2",
             "triton", "xformers", "flash-attn", "jax-cuda12-plugin", "jax-cuda13-plugin")  # fmt: skip
_RUNTIME = re.compile(r"nvidia-cuda-runtime(?:-cu1\d)?")
_CUDNN = re.compile(r"nvidia-cudnn-cu1\d|cudnn")
_PREFIX = re.compile(r"((?:/[^/\s\"':]{1,100}){1,30}?)/lib(?:64)?/python3\.\d{1,2}/(?:site|dist)-packages")
_FOREIGN = ("windows", "macos")
_SHOWN = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class Installed:
    """The environment at `path`: the versions of its distributions, its Python, and the device it was made for.
    `why` says what names the environment."""

    path: str
    why: str
    versions: Mapping[str, str] = field(default_factory=dict)
    python: str | None = None
    device: Device | None = None


def applicable(
    installed: Installed | None, lines: Sequence[Line], facts: Facts, remarks: Remarks | None
) -> Installed | None:
    """Return the environment if the text can be of it, and remark which one was used or why not."""
    env_facts = facts_of(installed) if installed else Facts()
    if installed is None or not lines or not env_facts.seen:
        return None
    reason = _find_contradiction(installed, env_facts, lines, facts)
    if remarks:
        remarks.environment = (
            f"{installed.path} was not used: {reason}" if reason else _summarize(installed, env_facts)
        )
    return None if reason else installed


def facts_of(installed: Installed) -> Facts:
    """Return the facts in the files of an environment."""
    facts = Facts()
    for name, version in installed.versions.items():
        where = Evidence(text=f"{name} {version}", source=installed.path)
        if name in _PACKAGES:
            public, _, local = version.partition("+")
            package(facts, name, public, local, where)
        elif _CUDNN.fullmatch(name):
            facts.add("cudnn", ".".join(version.split(".")[:3]), where)
    for name, version in installed.versions.items():
        if _RUNTIME.fullmatch(name) and not facts.first("cuda_build") and not facts.first("cpu_build"):
            where = Evidence(text=f"{name} {version}", source=installed.path)
            facts.add("cuda_build", ".".join(version.split(".")[:2]), where)
    if installed.python and facts.seen:
        facts.add(
            "python", installed.python, Evidence(text=f"Python {installed.python}", source=installed.path)
        )
    return facts


def add_facts(facts: Facts, installed: Installed | None) -> tuple[Evidence, ...]:
    """Add facts that the text does not name. Return their evidence."""
    if installed is None:
        return ()
    known = set(facts.seen)
    if known & {"cpu_build", "cuda_build", "kernels"}:
        known |= {"cpu_build", "cuda_build"}
    shown = []
    for name, values in facts_of(installed).seen.items():
        if name not in known:
            facts.add(name, values[0].value, values[0].evidence)
            shown.append(values[0].evidence)
    return tuple(dict.fromkeys(shown))


def device_of(installed: Installed | None, lines: Sequence[Line]) -> Device | None:
    """Return the environment's device if the text has its paths. "cpu" excludes causes."""
    named = installed is not None and _is_named(installed, lines)
    return installed.device if installed and named else None


def _list_prefixes(lines: Sequence[Line]) -> list[str]:
    """Return the folders of environments that a text's paths name."""
    prefixes = (m.group(1) for x in lines if "-packages" in x.text for m in _PREFIX.finditer(x.text))
    return list(dict.fromkeys(prefixes))


def _is_named(installed: Installed, lines: Sequence[Line]) -> bool:
    """Return whether a text's paths are of the environment. A path can hold blanks."""
    path = Path(installed.path)
    folders = {f"{path.as_posix()}/lib" for path in (path, path.resolve())}
    return any(folder in x.text for x in lines for folder in folders)


def _find_contradiction(
    installed: Installed, env_facts: Facts, lines: Sequence[Line], facts: Facts
) -> str | None:
    """Return why a text is not of an environment."""
    prefixes = _list_prefixes(lines)
    if prefixes and not _is_named(installed, lines):
        return f"the log has paths of {prefixes[0]}"
    if other := next((os for os in _FOREIGN if os in facts.all("os")), None):
        return f"the log is from {other}"
    for name in _DECIDING:
        stated, has = facts.all(name), env_facts.first(name)
        framework = name in _PACKAGES
        if stated and (has or framework) and not any(_is_same(v, has or "") for v in stated):
            there = f"the environment has {has}" if has else "the environment does not have it"
            return f"the log names {name.replace('_', ' ')} {stated[0]}, {there}"
    return None


def _is_same(stated: str, has: str) -> bool:
    """Return whether a stated version, perhaps shortened ("2.4"), is the one installed."""
    return f"{has}.".startswith(f"{stated.partition('+')[0]}.")


def _summarize(installed: Installed, env_facts: Facts) -> str:
    """Return the note on the environment that was read, with its versions."""
    named = [f[0].evidence.text for n, f in env_facts.seen.items() if n in (*_DECIDING, "cudnn")]
    shown = ", ".join(list(dict.fromkeys(named))[:_SHOWN])
    prove = f"gpuenv diagnose --env {shlex.quote(installed.path)}"
    return f"versions missing from the log were read in {installed.path} ({installed.why}): {shown}; to verify: {prove}"
