"""Record the options of an environment in it, and recall them for the next command."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from ..environment import place, record, registry
from ..errors import BuildError, DataError, GpuenvError
from ..model import Check, Emit, Event, Lock, Machine, Verdict, as_plain
from ..model.declare import iterate_options
from ..model.values import Value
from ..requirements.nodes import MAX_BYTES
from ..system import trust
from ..system.redaction import redact_value
from . import rows
from .env import find_in_folder, locate_project_file
from .file import PYPROJECT, YAML_NAMES
from .options import Choices, get_cache_dir
from .project import as_plain_options, digest_files, parse_options, read_cached_config, read_requirements


def list_named_packages(env: Path, lock: Lock, c: Choices) -> frozenset[str] | None:
    """Return the normalized names, or None if they are not recorded, for example after installing a lock."""
    from packaging.requirements import InvalidRequirement, Requirement
    from packaging.utils import canonicalize_name

    try:
        data = record.read_vouched(env, "request.json").get("choices") or {}
        recorded = parse_options(data)
        if not (recorded.framework or recorded.with_ or recorded.requirement or recorded.project):
            return None
        requirements = read_requirements(recorded, rows.load(c), lock.target)
        names = [Requirement(text).name for text in (*recorded.framework, *recorded.with_)]
    except (GpuenvError, InvalidRequirement, ValueError, TypeError, OSError):
        return None  # written by another version of gpuenv, or the project's files are missing
    names += [*requirements.frameworks, *(n.name for n in requirements.lines if n.name and not n.constraint)]
    names += [b.framework for b in lock.plan.builds]
    return frozenset(canonicalize_name(n) for n in names)


class OwnProject(Value):
    """A project's file, its checks, and the requirement files that it lists.

    `problem` states why the file was not read; there are no checks then. `missing` is true if the file does
    not exist.
    """

    file: Path
    checks: tuple[Check, ...] = ()
    requirements: tuple[str, ...] = ()
    problem: str | None = None
    missing: bool = False

    @property
    def digest(self) -> str | None:
        """The digest of the checks, or None without checks."""
        text = json.dumps(as_plain(self.checks), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest() if self.checks else None


def read_own_project(env: Path, cache_dir: Path | None) -> OwnProject | None:
    """Return the project that an environment was made with, or None.

    Its checks are commands, so this user's gpuenv must have written the record that names the file, here or where the
    environment was moved or copied from. Then the file beside the environment counts. It must
    belong to this user, to the environment's owner or to root, and nobody else may write to it. Raises DataError
    for an invalid file, BuildError for an unreadable record.
    """
    file = record.read_config_path(env) if place.made_by_gpuenv(env) else None
    if file is None or file.name not in (*YAML_NAMES, PYPROJECT):
        return None
    vouched = record.is_vouched(env)
    if not vouched and not registry.has_record(record.digest_record(env.resolve())):
        return OwnProject(file=file, problem=record.explain_unvouched(env))
    if not vouched or not file.exists():
        file = find_in_folder(env.parent) or file
    try:
        data = trust.read_project(file, env=env, most=MAX_BYTES + 1)
    except FileNotFoundError:
        return OwnProject(file=file, problem=f"{file} is missing", missing=True)
    except trust.UntrustedError as error:
        return OwnProject(file=file, problem=error.reason)
    except OSError as error:
        return OwnProject(file=file, problem=f"{file} {_describe_os_error(error)}")
    try:
        config = read_cached_config(file, cache_dir, data)
    except DataError as error:
        error.message = f"{file.parent}: {error.message}"
        raise
    return OwnProject(file=file, checks=config.checks, requirements=config.requirements)


def _describe_os_error(error: OSError) -> str:
    reason = error.strerror or type(error).__name__
    return reason if reason[:1].islower() else f"cannot be read: {reason}"


KERNEL = "kernel.json"
_TARGET = frozenset({"target", "driver", "driver_os", "gpu", "gpus", "platform", "glibc"})
_PACKAGES = frozenset({"framework", "with_", "requirement", "project", "extra", "group"})
_RECORDED = {
    field.name: field for _, field, _ in iterate_options(Choices)
    if field.name not in ("cache_dir", "trust_project", "offline", "no_build")
}  # fmt: skip
"""The options that the next command takes from the record: not how one run reaches its sources."""
_PATHS = ("target", "project", "requirement", "profiles", "find_links", "channel")


def recall_options(env: Path, choices: Choices, typed: Collection[str], *, lock: bool = False) -> Choices:
    """Return the options merged with the recorded ones of the environment, if this user's gpuenv wrote the record.

    Options in `typed` (of this command line) override recorded ones. With `lock` a lock decides the packages.
    Raises BuildError, DataError.
    """
    before = record.read_vouched(env, "request.json")
    if not before:
        return dataclasses.replace(choices, typed=list_typed(choices))
    config = locate_project_file() if "framework" not in typed else None
    kept = _read_recorded(env, before, config)
    for name in _list_replaced(kept, set(typed), in_project=config is not None, lock=lock):
        kept.pop(name, None)
    merged = dataclasses.replace(choices, **kept)
    merged = dataclasses.replace(merged, typed=list_typed(merged))
    return add_kernel_package(merged) if record.read_vouched(env, KERNEL) else merged


def recall_for_create(env: Path, choices: Choices, emit: Emit, *, lock: bool, recreate: bool) -> Choices:
    """Return the options of `recall_options` for `create`, and say so if the record does not count.

    A record that this version cannot read is ignored with --recreate, which replaces it.
    """
    if place.made_by_gpuenv(env) and not record.is_vouched(env):
        text = f"{record.explain_unvouched(env)}. Its recorded options are not used: give them again, and --recreate to replace it"
        emit(Event("warning", "env", text))
    try:
        return recall_options(env, choices, choices.explicit(), lock=lock)
    except BuildError:
        if not recreate:
            raise
        return dataclasses.replace(choices, typed=list_typed(choices))


def add_kernel_package(choices: Choices) -> Choices:
    """Return the options with ipykernel, which a Jupyter kernel needs."""
    from ..environment import kernel

    if kernel.is_named(choices.with_):
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


def list_typed(choices: Choices) -> dict[str, Any]:
    """Return the options of a command line as an environment records them, with absolute paths."""
    kept = {}
    for name, field in _RECORDED.items():
        value = getattr(choices, name)
        if value and value != field.default:
            kept[name] = _map_paths(name, value, _absolute)
    return kept


def make_request_file(choices: Choices, lock_file: Lock | None, files: list[str]) -> dict[str, Any]:
    """Return what two runs of `create` must have in common, as `request.json` keeps it.

    It contains the options, the lock if one is named, the project's files, and the options of the command
    line.
    """
    plain = as_plain_options(
        dataclasses.replace(choices, cache_dir=None, offline=False, bundle=None, no_build=False)
    )
    return {
        "choices": redact_value({k: _map_paths(k, v, _absolute) for k, v in plain.items()}),
        "given": redact_value(choices.typed),
        "lock": record.lock_digest(lock_file),
        "files": {"names": files, "digest": digest_files(files)} if files else None,
    }


def compare_request(env: Path, choices: Choices, lock: Lock | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the `request.json` of an environment, and the one that a run with these options would write."""
    before = record.read(env, "request.json")
    return before, make_request_file(choices, lock, (before.get("files") or {}).get("names", []))


def find_kept_verdict(
    env: Path, choices: Choices, machine: Machine, lock: str | None, *, checks: bool = True
) -> Verdict | None:
    """Return the verdict on an environment if nothing that it depends on changed since.

    `lock` is the digest of its lock. Without `checks`, those of the project are left out.
    """
    project = read_own_project(env, get_cache_dir(choices)) if checks else None
    under = record.list_circumstances(env, lock, machine, project.digest if project else None)
    return record.find_valid_verdict(env, under)


def is_same(before: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Return whether two records of `request.json` are equal, regardless of how their paths are written."""
    return all(before.get(k) == wanted.get(k) for k in ("lock", "files")) and not list_differing(
        before, wanted
    )


def list_differing(before: Mapping[str, Any], wanted: Mapping[str, Any]) -> set[str]:
    """Return the options in which a record differs from the one that a run would write, whose paths are absolute."""
    old, new = before.get("choices") or {}, wanted.get("choices") or {}
    return {
        k for k in old.keys() | new.keys()
        if (_map_paths(k, old.get(k), _absolute) or None) != (new.get(k) or None)
    }  # fmt: skip


def _list_replaced(kept: Mapping[str, Any], typed: set[str], *, in_project: bool, lock: bool) -> set[str]:
    """Return the recorded options that this command line replaces, and those that depend on them."""
    gone = set(typed)
    if typed & _TARGET:  # another machine is described again
        gone |= _TARGET | {"device", "cuda"}
    if "device" in typed:
        gone.add("cuda")
    if "manager" in typed:
        gone.add("channel")
    if lock and not in_project:
        gone |= _PACKAGES
    if "framework" in typed or (not in_project and typed & {"requirement", "project"}):
        gone |= _PACKAGES
    return gone & set(kept)


def _read_recorded(env: Path, before: Mapping[str, Any], config: Path | None) -> dict[str, Any]:
    """Return the recorded options as fields of `Choices`. Raises BuildError for the record of another version."""
    had = before["choices"]
    left_out = {field.name for field in dataclasses.fields(Choices)} - _RECORDED.keys()
    values = {k: v for k, v in had.items() if k not in left_out}
    if config or not had.get("config"):
        values = dict(before["given"])
    if config and not had.get("config"):
        # It was made before there was a gpuenv.yaml, which applies now.
        values = {k: v for k, v in values.items() if k not in _PACKAGES}
    values = {k: _map_paths(k, v, _relative_path) for k, v in values.items()}
    try:
        whole = parse_options(values)
    except (ValueError, TypeError) as error:
        raise BuildError(
            f"the recorded options of {env} cannot be read: {error}", hint="gpuenv create --recreate"
        ) from error
    return {k: getattr(whole, k) for k in values}


# --- paths -----------------------------------------------------------------------------------


def _map_paths(name: str, value: Any, convert: Any) -> Any:
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


def _relative_path(name: str, value: str) -> str:
    """Return a recorded path relative to the current folder if it is below that."""
    here = Path.cwd()
    if "://" not in value and Path(value).is_absolute() and Path(value).is_relative_to(here):
        below = str(Path(value).relative_to(here))
        return f"./{below}" if name == "channel" else below
    return value
