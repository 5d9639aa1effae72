"""The options that an environment was made with: recorded inside it, and laid under those of a later command.

The record holds what command lines gave. What gpuenv.yaml says is read anew each time, so that a change of
the file is followed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from ..environment import place, state
from ..errors import BuildError
from ..model import ProjectConfig
from ..project.config.file_digests import digest_files, read_cached_config
from . import environment_paths as where, project_options as inproject
from .options import Choices
from .project_folder import locate_project_file

KERNEL = "kernel.json"
_TARGET = frozenset({"target", "driver", "driver_os", "gpu", "gpus", "platform", "glibc"})
_PACKAGES = frozenset({"framework", "with_", "requirement", "project", "extra", "group"})
_NOT_RECORDED = frozenset(
    {
        "cache_dir",
        "offline",
        "no_build",
        "python_bounds",
        "dependencies_only",
        "bundle",
        "config",
        "target_name",
        "indexes",
        "given",
        "planned",
        "named",
    }
)
_PATHS = ("target", "project", "requirement", "profiles", "find_links", "channel")
# Options with a key in gpuenv.yaml, and the key.
_SINGLE = {"python": "python", "cuda": "cuda", "manager": "manager", "device": "device", "index": "index"}
_LISTS = {"extra": "extras", "group": "groups", "channel": "channels"}


def recall_options(env: Path, choices: Choices, said: Collection[str] = (), *, lock: bool = False) -> Choices:
    """The options, with those below that the environment was made with and that `said` (the options of this
    command line) does not name; `lock`: a lock decides the packages. Raises BuildError, DataError."""
    before = state.read(env, "request.json") if place.made_by_gpuenv(env) else None
    if not before:
        return dataclasses.replace(choices, given=record(choices))
    config = locate_project_file() if "framework" not in said else None
    kept = _recorded(env, before, config, choices)
    for name in _replaced(kept, set(said), in_project=config is not None, lock=lock):
        kept.pop(name, None)
    merged = dataclasses.replace(choices, **kept)
    return record_kernel(env, dataclasses.replace(merged, given=record(merged)))


def record_create_options(env: Path, choices: Choices, *, lock: bool, recreate: bool) -> Choices:
    """`recalled` for `create`. A record that cannot be read is no obstacle to --recreate, which replaces it."""
    try:
        return recall_options(where.make_absolute(env), choices, choices.asked(), lock=lock)
    except BuildError:
        if not recreate:
            raise
        return dataclasses.replace(choices, given=record(choices))


def record_kernel(env: Path, choices: Choices) -> Choices:
    """The options with ipykernel, where the environment has a Jupyter kernel."""
    from ..environment import kernel

    if not (env / place.MARK / KERNEL).exists() or kernel.named(choices.with_):
        return choices
    return dataclasses.replace(choices, with_=[*choices.with_, kernel.PACKAGE])


def without_own_packages(choices: Choices) -> Choices:
    """The options without the packages that only this environment has: the project's lock is for all."""
    return dataclasses.replace(choices, with_=[], requirement=[], extra=[], group=[])


def without_machine(choices: Choices) -> Choices:
    """The options without those for the machine, but for the name of a target, which has a lock of its own."""
    named = choices.target if choices.target and not choices.target.exists() else None
    none = dict.fromkeys(("driver", "driver_os", "gpus", "platform", "glibc", "python", "cuda"))
    return dataclasses.replace(choices, target=named, gpu=[], device="auto", **none)  # type: ignore[arg-type]  # each may be None


def record(choices: Choices) -> dict[str, Any]:
    """The options of a command line as an environment keeps them: paths are absolute."""
    kept = {}
    for field in dataclasses.fields(Choices):
        value = getattr(choices, field.name)
        if field.name in _NOT_RECORDED or not value or value == field.default:
            continue
        kept[field.name] = _mapped(field.name, value, _absolute)
    return kept


def is_same(before: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Whether two records of `request.json` ask for the same, however their paths are written."""
    return (
        before.get("lock") == wanted.get("lock")
        and _same_files(before, wanted)
        and not list_differing(before, wanted)
    )


def _same_files(before: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Whether the files are the same; an earlier version counted every byte of gpuenv.yaml."""
    old, new = before.get("files"), wanted.get("files")
    return bool(
        old == new or (old and new and old == {**new, "digest": digest_files(new["names"], exact=True)})
    )


def list_differing(before: Mapping[str, Any], wanted: Mapping[str, Any]) -> set[str]:
    """The options that two records of `request.json` differ in."""
    old, new = before.get("choices") or {}, wanted.get("choices") or {}
    return {
        k for k in old.keys() | new.keys()
        if (_mapped(k, old.get(k), _absolute) or None) != (_mapped(k, new.get(k), _absolute) or None)
    }  # fmt: skip


def _replaced(kept: Mapping[str, Any], said: set[str], *, in_project: bool, lock: bool) -> set[str]:
    """The recorded options that this command line replaces: those that it names, and what depends on them."""
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


def _recorded(env: Path, before: Mapping[str, Any], config: Path | None, choices: Choices) -> dict[str, Any]:
    """The recorded options as fields of `Choices`. Raises BuildError for a record that cannot be read."""
    had, given = before.get("choices") or {}, before.get("given")
    if not isinstance(had, dict) or not isinstance(given, dict | None):
        raise _unreadable(env, "expected a mapping of options")
    if given is not None and (config or not had.get("config")):
        found = dict(given)
    elif config and had.get("config"):
        found = _of_command_line(had, read_cached_config(config, where.get_cache_dir(choices)))
    else:
        found = {k: v for k, v in had.items() if k not in _NOT_RECORDED}
    if config and not had.get("config"):  # made before there was a gpuenv.yaml, which applies now
        found = {k: v for k, v in found.items() if k not in _PACKAGES}
    found = {k: _mapped(k, v, _from_here) for k, v in found.items()}
    try:
        whole = inproject.parse_options(found)
    except (ValueError, TypeError) as error:
        raise _unreadable(env, str(error)) from error
    return {k: getattr(whole, k) for k in found}


def _unreadable(env: Path, why: str) -> BuildError:
    return BuildError(f"the recorded options of {env} cannot be read: {why}", hint="gpuenv create --recreate")


def _of_command_line(had: Mapping[str, Any], said: ProjectConfig) -> dict[str, Any]:
    """What the command line gave, from a record of version 0.1.0, which has it together with what gpuenv.yaml
    said. Its packages cannot be told apart: they are the file's."""
    found = {k: had[k] for k in (*_TARGET, "pre", "profiles", "only_binary") if had.get(k)}
    target = said.targets.get(had.get("target_name") or "")
    if target is not None:
        found = {k: v for k, v in found.items() if k not in _TARGET} | {"target": had["target_name"]}
    for option, key in _SINGLE.items():
        of_file = {getattr(said, key), getattr(target, key, None), None, "auto", "venv"}
        if had.get(option) not in of_file:
            found[option] = had[option]
    for option, key in _LISTS.items():
        found[option] = [x for x in had.get(option) or [] if x not in getattr(said, key)]
    links = {str(Path(had["config"]).parent / f) for f in said.find_links} | set(said.find_links)
    found["find_links"] = [x for x in had.get("find_links") or [] if x not in links]
    return found


def others(have: list[str], wanted: list[str]) -> list[str]:
    """The requirements of `have` for packages that `wanted` does not name, both as `--with` takes them."""
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
    """A path from the root. An address, a channel's name and the name of a target stay what they are."""
    text = str(value)
    if "://" in text or (name == "channel" and not text.startswith((".", "/"))):
        return text
    if name == "target" and not Path(text).exists():
        return text
    return str(Path(text).absolute())


def _from_here(name: str, value: str) -> str:
    """A recorded path as it is written in this folder."""
    here = Path.cwd()
    if "://" not in value and Path(value).is_absolute() and Path(value).is_relative_to(here):
        below = str(Path(value).relative_to(here))
        return f"./{below}" if name == "channel" else below
    return value
