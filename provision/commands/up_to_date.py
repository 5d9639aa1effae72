"""Decide from a few files whether an environment is up to date.

`make env` asks this each time. No stage is imported, no profile read and no lock taken. Every doubt is left
to the full `create`.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

from ..config import project as inproject, record
from ..config.options import Choices, get_cache_dir, make_absolute
from ..config.project import digest_files
from ..config.record import read_own_project
from ..environment import place, registry, state
from ..errors import BuildError
from ..model import CreateResult, Emit, Event, Lock
from ..system import process, untrusted
from ..system.redaction import redact_value
from .run import activate_line
from .verify import is_good, is_outdated, machine_for_verdict


def describe_up_to_date(emit: Emit, env: Path, choices: Choices, *, brief: bool) -> CreateResult | None:
    """Return the result if everything is up to date, or None if it is not certain. A `brief` result has no
    lock."""
    env = make_absolute(env)
    if not place.made_by_gpuenv(env) or not place.is_undisturbed(env):
        return None
    if state.find_python(env) is None or not state.is_vouched(env):
        return None
    before = state.read(env, "request.json") or {}
    if not before or (env / place.MARK / record.KERNEL).exists():
        return None  # a kernel may have to be registered again
    choices = inproject.apply_project(choices)
    wanted = make_record(choices, None, (before.get("files") or {}).get("names", []))
    if not record.is_same(before, wanted):
        return None
    machine = machine_for_verdict()
    digest = (state.read(env, "lock.json") or {}).get("digest")
    project = read_own_project(env, get_cache_dir(choices))
    checks = project.digest if project else None
    verdict = state.find_valid_verdict(env, state.list_circumstances(env, digest, machine, checks))
    plan = state.read_plan(env)
    if verdict is None or plan is None or not _scripts_settled(env) or is_outdated(plan, choices):
        return None
    environment = state.read_environment(env, changed=False)
    lock = None
    if not brief:
        from ..wheels import pylock

        lock = pylock.read_in(env / place.MARK)
    value = CreateResult(machine=machine, plan=plan, lock=lock, environment=environment, verdict=verdict)
    return finish_creation(emit, value, env)


def _scripts_settled(env: Path) -> bool:
    script = env / "bin" / "activate"
    try:
        return not script.exists() or f".{env.name}.gpuenv-new" not in untrusted.read_text(script)
    except OSError:
        return False  # the full `create` reports it


def make_record(choices: Choices, lock_file: Lock | None, files: list[str]) -> dict[str, Any]:
    """Return what two runs of `create` must have in common.

    It contains the options, the lock if one is named, the project's files, and the options of the command
    line.
    """
    plain = inproject.as_plain_options(
        dataclasses.replace(choices, cache_dir=None, offline=False, bundle=None, no_build=False)
    )
    digested = {"names": files, "digest": digest_files(files)} if files else None
    return {
        "choices": redact_value(json.loads(json.dumps(plain))),
        "given": redact_value(json.loads(json.dumps(choices.typed))),
        "lock": state.lock_digest(lock_file),
        "files": digested,
    }


def finish_creation(emit: Emit, value: CreateResult, env: Path) -> CreateResult:
    """Add the environment to the registry, and emit the next step."""
    try:
        registry.add(env)
    except BuildError as error:
        emit(Event(kind="note", stage="build", text=error.message))
    if is_good(value):
        emit(Event(kind="next", stage="build", text=activate_line(env, process.environ())))
    return value
