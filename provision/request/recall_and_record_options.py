"""Read and write the options that an environment was made with.

The record contains the options of command lines. gpuenv.yaml is read again each time, so that its changes
apply.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from ..environment import place, state
from ..errors import BuildError
from ..model import Emit, Event
from . import project_options as inproject
from .project_folder import locate_project_file
from .shared_options import Choices

KERNEL = "kernel.json"
_TARGET = frozenset({"target", "driver", "driver_os", "gpu", "gpus", "platform", "glibc"})
_PACKAGES = frozenset({"framework", "with_", "requirement", "project", "extra", "group"})
_NOT_RECORDED = frozenset(
    {
        "cache_dir",
        "trust_project",
        "offline",
        "no_build",
        "python_bounds",
        "dependencies_only",
        "bundle",
        "config",
        "target_name",
        "indexes",
        "typed",
        "planned",
        "named",
    }
)
_PATHS = ("target", "project", "requirement", "profiles", "find_links", "channel")


def recall_options(env: Path, choices: Choices, said: Collection[str] = (), *, lock: bool = False) -> Choices:
    """Return the options merged with the recorded ones of the environment, if this user's gpuenv wrote the record.

    Options in `said` (of this command line) override recorded ones. With `lock` a lock decides the packages.
    Raises BuildError, DataError.
    """
    before = state.read_vouched(env, "request.json")
    if not before:
        return dataclasses.replace(choices, typed=record(choices))
    config = locate_project_file() if "framework" not in said else None
    kept = _recorded(env, before, config)
    for name in _replaced(kept, set(said), in_project=config is not None, lock=lock):
        kept.pop(name, None)
    merged = dataclasses.replace(choices, **kept)
    return record_kernel(env, dataclasses.replace(merged, typed=record(merged)))


def recall_for_create(env: Path, choices: Choices, emit: Emit, *, lock: bool, recreate: bool) -> Choices:
    """Return the options of `recall_options` for `create`, and say so if the record does not count.

    A record that this version cannot read is ignored with --recreate, which replaces it.
    """
    if place.made_by_gpuenv(env) and not state.is_vouched(env):
        text = f"{state.explain_unvouched(env)}. Its recorded options are not used: give them again, and --recreate to replace it"
        emit(Event(kind="warning", stage="env", text=text))
    try:
        return recall_options(env, choices, choices.decided(), lock=lock)
    except BuildError:
        if not recreate:
            raise
        return dataclasses.replace(choices, typed=record(choices))


def record_kernel(env: Path, choices: Choices) -> Choices:
    """Return the options with ipykernel if the environment has a Jupyter kernel."""
    from ..environment import kernel

    if not state.read_vouched(env, KERNEL) or kernel.named(choices.with_):
        return choices
    return dataclasses.replace(choices, with_=[*choices.with_, kernel.PACKAGE])


def without_own_packages(choices: Choices) -> Choices:
    """Return the options without packages of this environment alone. The project's lock is for all
    environments."""
    return dataclasses.replace(choices, with_=[], requirement=[], extra=[], group=[])


def without_machine(choices: Choices) -> Choices:
    """Return the options without those of the machine. The name of a target stays, because it has its own
    lock."""
    named = choices.target if choices.target and not choices.target.exists() else None
    none = dict.fromkeys(("driver", "driver_os", "gpus", "platform", "glibc", "python", "cuda"))
    return dataclasses.replace(choices, target=named, gpu=[], device="auto", **none)  # type: ignore[arg-type]  # each may be None


def record(choices: Choices) -> dict[str, Any]:
    """Return the options of a command line as an environment records them, with absolute paths."""
    kept = {}
    for field in dataclasses.fields(Choices):
        value = getattr(choices, field.name)
        if field.name in _NOT_RECORDED or not value or value == field.default:
            continue
        kept[field.name] = _mapped(field.name, value, _absolute)
    return kept


def is_same(before: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Return whether two records of `request.json` are equal, regardless of how their paths are written."""
    return all(before.get(k) == wanted.get(k) for k in ("lock", "files")) and not list_differing(
        before, wanted
    )


def list_differing(before: Mapping[str, Any], wanted: Mapping[str, Any]) -> set[str]:
    """Return the options in which two records of `request.json` differ."""
    old, new = before.get("choices") or {}, wanted.get("choices") or {}
    return {
        k for k in old.keys() | new.keys()
        if (_mapped(k, old.get(k), _absolute) or None) != (_mapped(k, new.get(k), _absolute) or None)
    }  # fmt: skip


def _replaced(kept: Mapping[str, Any], said: set[str], *, in_project: bool, lock: bool) -> set[str]:
    """Return the recorded options that this command line replaces, and those that depend on them."""
    gone = set(said)
    if said & _TARGET:  # another machine is described again
        gone |= _TARGET | {"device", "cuda"}
    if "device" in said:
        gone.add("cuda")
    if "manager" in said:
        gone.add("channel")
    if lock and not in_project:
        gone |= _PACKAGES
    if "framework" in said or (not in_project and said & {"requirement", "project"}):
        gone |= _PACKAGES
    return gone & set(kept)


def _recorded(env: Path, before: Mapping[str, Any], config: Path | None) -> dict[str, Any]:
    """Return the recorded options as fields of `Choices`. Raises BuildError for the record of another version."""
    had = before["choices"]
    values = {k: v for k, v in had.items() if k not in _NOT_RECORDED}
    if config or not had.get("config"):
        values = dict(before["given"])
    if config and not had.get("config"):
        # It was made before there was a gpuenv.yaml, which applies now.
        values = {k: v for k, v in values.items() if k not in _PACKAGES}
    values = {k: _mapped(k, v, _from_here) for k, v in values.items()}
    try:
        whole = inproject.parse_options(values)
    except (ValueError, TypeError) as error:
        raise BuildError(
            f"the recorded options of {env} cannot be read: {error}", hint="gpuenv create --recreate"
        ) from error
    return {k: getattr(whole, k) for k in values}


def others(have: list[str], wanted: list[str]) -> list[str]:
    """Return the requirements in `have` for packages that `wanted` does not name. Both have the form of
    `--with`."""
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    names = {canonicalize_name(Requirement(w).name) for w in wanted}
    return [h for h in have if canonicalize_name(Requirement(h).name) not in names]


# --- paths -----------------------------------------------------------------------------------


def _mapped(name: str, value: Any, convert: Any) -> Any:
    if name not in _PATHS or not value:
        return value
    return [convert(name, x) for x in value] if isinstance(value, list) else convert(name, value)


def _absolute(name: str, value: Path | str) -> str:
    """Return an absolute path. A URL, the name of a channel and the name of a target are unchanged."""
    text = str(value)
    if "://" in text or (name == "channel" and not text.startswith((".", "/"))):
        return text
    if name == "target" and not Path(text).exists():
        return text
    return str(Path(text).absolute())


def _from_here(name: str, value: str) -> str:
    """Return a recorded path relative to the current folder if it is below that."""
    here = Path.cwd()
    if "://" not in value and Path(value).is_absolute() and Path(value).is_relative_to(here):
        below = str(Path(value).relative_to(here))
        return f"./{below}" if name == "channel" else below
    return value
