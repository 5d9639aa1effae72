"""The record of an environment, the files in its `.gpuenv/`: request, plan, lock, verdict and installed packages.

Whoever can write into a project can write these files. So what decides where packages come from, or which commands
run, counts only if this user's registry has the digest of the file: then this user's gpuenv wrote it at this path.

The RECORD of each locked distribution is stored by digest. A package that was replaced, edited or installed again has
another RECORD. Packages that the user adds are not stored.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import platform
import re
import shlex
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import BuildError, UsageError
from ..model import VENV_LOCK, Emit, Event, as_document, from_plain, normalize_name
from ..system import trust, untrusted
from ..system.files import write_file, writing
from ..system.redaction import redact_value
from . import registry
from .distributions import find_sites, list_info_folders, list_installed
from .place import MARK, find_python, get_old_path, made_by_gpuenv

if TYPE_CHECKING:
    from ..model import Device, Environment, Lock, Machine, Plan, Verdict


_AGAIN = "build it again: gpuenv create --recreate"


def read(env: Path, name: str) -> dict[str, Any]:
    """Return a file of `.gpuenv/`, which is empty if it is missing. Raises BuildError if it is damaged."""
    path = env / MARK / name
    try:
        data = json.loads(trust.read_project(path, env=env))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        raise BuildError(f"{path} cannot be read: {error}", hint=_AGAIN) from error
    if not isinstance(data, dict):
        raise BuildError(f"{path} is not a table", hint=_AGAIN)
    return data


def is_of_project(env: Path) -> bool:
    """Return whether the environment was made from a project's file, whose contents the options do not repeat."""
    try:
        return read_config_path(env) is not None
    except BuildError:
        return False


def read_config_path(env: Path) -> Path | None:
    """Return the project's file that the environment was made from, as its record says. Raises BuildError."""
    recorded = read(env, "request.json").get("choices")
    named = recorded.get("config") if isinstance(recorded, dict) else None
    return Path(named) if isinstance(named, str) and Path(named).is_absolute() else None


def write(env: Path, name: str, document: dict[str, Any]) -> None:
    """Write one file of `.gpuenv/` atomically and without credentials. Raises BuildError."""
    folder = env / MARK
    with writing(folder):
        write_file(folder / name, _text(document), root=env)


def _text(document: dict[str, Any]) -> str:
    return json.dumps(redact_value(document), indent=1) + "\n"


# --- who wrote the record ------------------------------------------------------------------------

_RECORD = ("request.json", "plan.json", "lock.json", VENV_LOCK, "kernel.json")
"""The files that decide what later commands install and run."""


def digest_record(env: Path) -> frozenset[str]:
    """Return the names and digests of an environment's record, for `vouch`."""
    found = set()
    for name in _RECORD:
        try:
            found.add(_named_digest(name, untrusted.read_bytes(env / MARK / name)))
        except FileNotFoundError:
            continue
        except OSError:
            found.add(f"{name} unreadable")
    return frozenset(found)


def _named_digest(name: str, data: bytes) -> str:
    return f"{name} {hashlib.sha256(data).hexdigest()}"


def vouch(env: Path, record: frozenset[str]) -> None:
    """Enter what is about to be written at an environment's path into the registry, beside what is there already.

    A run that is killed before or after it writes leaves a record that counts. Without a writable registry no
    record counts, which `registry.add` reports.
    """
    there = digest_record(env) | digest_record(get_old_path(env))
    with contextlib.suppress(BuildError):
        registry.add(env, record=(registry.read(env, "record") & there) | record)


def is_vouched(env: Path) -> bool:
    """Return whether this user's gpuenv wrote the record of an environment at this path, or at the one that it was
    moved from. Links are followed."""
    if not made_by_gpuenv(env):
        return False
    real, record = env.resolve(), digest_record(env.resolve())
    return record <= registry.read(real, "record") or registry.move_entry(real, record)


def read_vouched(env: Path, name: str) -> dict[str, Any]:
    """Return a file of the record, or an empty one if there is none that counts. Raises BuildError."""
    return read(env, name) if is_vouched(env) else {}


def write_vouched(env: Path, name: str, document: dict[str, Any]) -> None:
    """Write one file of the record of an environment that is in its place. Raises BuildError."""
    vouch(env.resolve(), frozenset({_named_digest(name, _text(document).encode())}))
    write(env, name, document)


def explain_unvouched(env: Path) -> str:
    """Return why a record does not count."""
    if registry.has_record(digest_record(env.resolve())):
        return f"{env} is a copy of an environment that your gpuenv made"
    return f"your gpuenv did not write {env / MARK} at this path, or another program changed it"


def require_vouched(env: Path) -> None:
    """Raise UsageError for an environment whose record does not count: it does not say what to install from where."""
    if made_by_gpuenv(env) and not is_vouched(env):
        raise UsageError(
            f"{env} was not changed: {explain_unvouched(env)}",
            hint=f"rebuild it from your options or project: gpuenv create {shlex.quote(str(env))} --recreate",
        )


# --- values ----------------------------------------------------------------------------------------


def read_lock(env: Path) -> Lock:
    """Return the lock inside an environment. Raises LockError."""
    from ..wheels import pylock

    return pylock.read_env_lock(env / MARK)


def read_lock_inside(env: Path) -> Lock | None:
    """Return the lock inside an environment, or None if gpuenv did not make it."""
    return read_lock(env) if made_by_gpuenv(env) else None


def read_plan(env: Path) -> Plan | None:
    from ..model import Plan

    data = read(env, "plan.json")
    return _parse(env, Plan, data) if data else None


def read_device(env: Path) -> Device | None:
    """Return the device of an environment that gpuenv made; None for any other or a damaged one."""
    try:
        plan = read_plan(env)
    except BuildError:
        return None
    return plan.device if plan else None


def _parse(env: Path, cls: Any, data: Any) -> Any:
    try:
        return from_plain(cls, data)
    except ValueError as error:
        raise BuildError(f"{env / MARK} is damaged: {error}", hint=_AGAIN) from error


def lock_digest(lock: Lock | None) -> str | None:
    return (
        None
        if lock is None
        else _digest(sorted(f"{p.name}=={p.version}:{p.sha256 or p.md5}" for p in lock.packages))
    )


def _digest(rows: list[str]) -> str:
    return hashlib.sha256("\n".join(rows).encode()).hexdigest()


def digest_installed(env: Path) -> str:
    """Return a digest of the installed distributions: the size and modification time of each RECORD.

    An installer that adds, replaces or removes a package changes it.
    """
    marks = []
    for site in find_sites(env):
        for name in list_info_folders(site):
            try:
                record = (site / name / "RECORD").stat()
            except FileNotFoundError:
                marks.append(f"{name}:none")
            else:
                marks.append(f"{name}:{record.st_size}:{record.st_mtime_ns}")
    return _digest(marks)


def read_environment(path: Path, *, changed: bool) -> Environment:
    """Return the built environment as a value."""
    from ..model import Environment

    python = find_python(path)
    plan = read_plan(path)
    return Environment(
        path=str(path),
        manager=plan.manager if plan else None,
        python=str(python) if python else "",
        python_version=plan.python if plan else None,
        made_by_gpuenv=True,
        changed=changed,
    )


# --- verdicts, one for each host that shares the disk ----------------------------------------------

LAST_VERDICT = "verdict.json"
VERDICTS = "verdicts"
"""The folder in MARK with a file for each host. A changed copy of an environment does not get it."""


def host_name() -> str:
    """Return the name of this host."""
    return platform.node() or "unknown"


def name_verdict_file(name: str) -> str:
    """Return the file name of a host's verdict, relative to MARK."""
    plain = re.sub(r"[^A-Za-z0-9.-]", "_", name).strip(".")[:100]
    if plain != name or not name:  # two hosts must not share a file
        digest = hashlib.sha256(name.encode("utf-8", "surrogateescape")).hexdigest()
        plain = f"{plain or 'host'}-{digest[:12]}"
    return f"{VERDICTS}/{plain}.json"


def find_verdict_file(env: Path) -> str:
    """Return the file name of this host's verdict, or else of the last one. Raises BuildError."""
    last, this_host = read(env, LAST_VERDICT), name_verdict_file(host_name())
    is_own = last.get("host") in (None, host_name())
    return LAST_VERDICT if is_own or not (env / MARK / this_host).is_file() else this_host


def find_verified_time(env: Path) -> str | None:
    """Return the time of this host's verdict, otherwise of the last one of another host, or None."""
    try:
        seconds = (env / MARK / find_verdict_file(env)).stat().st_mtime
    except (OSError, BuildError):
        return None
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec="seconds")


def report_kept_verdict(env: Path, emit: Emit) -> None:
    """Say of which time a verdict is that is shown again."""
    when = (find_verified_time(env) or "")[:16].replace("T", " ")
    again = f"gpuenv verify {shlex.quote(str(env))}"
    text = f"verified at {when} UTC, and nothing changed since; to verify again: {again}"
    emit(Event("note", "verify", text))


def read_last_verdict(env: Path) -> dict[str, Any]:
    """Return the document of this host's verdict, else of the last one, empty without any. Raises BuildError."""
    return read(env, find_verdict_file(env))


def read_verdict(env: Path) -> Verdict | None:
    """Return the verdict of this host, else the last one of another. Raises BuildError."""
    from ..model import Verdict

    data = read_last_verdict(env)
    return _parse(env, Verdict, data.get("verdict")) if data else None


def list_circumstances(
    env: Path, digest: str | None, machine: Machine, checks: str | None = None
) -> dict[str, Any]:
    """Return the conditions of a verdict. While they are unchanged, the verdict is valid.

    `digest` is the lock's, and `checks` that of the project's checks.
    """
    target = machine.target
    return {
        **({"checks": checks} if checks else {}),
        "lock": digest,
        "driver": target.driver,
        "gpus": [g.uuid or g.capability for g in machine.gpus],
        "variables": {k: v for k, v in machine.environment.items() if k != "VIRTUAL_ENV"},
        "files": digest_installed(env),
    }


def keep_verdict(env: Path, verdict: Verdict, under: dict[str, Any]) -> None:
    """Store a verdict as this host's, and as the last one. No other host's is lost. Raises BuildError."""
    host = host_name()
    document = {"host": host, "verdict": as_document(verdict), "under": under}
    try:
        last = read(env, LAST_VERDICT)
    except BuildError:
        last = {}  # the file is damaged, and is replaced
    other, folder = last.get("host"), env / MARK / VERDICTS
    moved = isinstance(other, str) and other != host
    if moved:
        write(env, name_verdict_file(str(other)), last)
    if moved or folder.is_dir():
        write(env, name_verdict_file(host), document)
    write(env, LAST_VERDICT, document)


def find_valid_verdict(env: Path, under: dict[str, Any]) -> Verdict | None:
    """Return the last passing verdict of this host if its conditions are unchanged, else None."""
    from ..model import Verdict

    data = read_last_verdict(env)
    kept = data.get("under")
    if isinstance(kept, dict) and "checks" not in under:
        kept.pop("checks", None)  # the stored verdict includes checks that this call does not request
    if not data or kept != json.loads(json.dumps(under)):
        return None
    verdict: Verdict = _parse(env, Verdict, data.get("verdict"))
    return verdict if verdict.verdict in ("works", "cpu") else None


INSTALLED = "installed.json"


def note_installed(env: Path, lock: Lock) -> None:
    """Store the installed versions of the lock's packages. Raises BuildError."""
    from ..model import InstalledPackage, InstallRecord

    wanted = {normalize_name(p.name) for p in lock.packages}
    packages = [
        InstalledPackage(name=one.name, version=one.version, record=one.record_digest)
        for one in list_installed(env)
        if one.name in wanted
    ]
    write(env, INSTALLED, as_document(InstallRecord(packages=tuple(packages))))
