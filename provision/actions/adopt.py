"""`gpuenv create --adopt`: make an existing venv of another tool one of gpuenv, with the packages that it has."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import shutil
from pathlib import Path
from urllib.parse import unquote, urlsplit

from packaging.version import Version

from ..config import recall, rows
from ..config.options import BuildOptions, Choices
from ..config.project import apply_project
from ..config.sources import read_locked_sources
from ..config.target import get_minor_version
from ..detect import machine_for_verdict
from ..environment import place, record, venv
from ..environment.distributions import Distribution, read_distributions
from ..environment.interpreter import ask_version
from ..environment.place import locate_environment
from ..errors import BuildError, LockError, ResolveError, UsageError
from ..lock import solve_near
from ..lock.changes import list_differences
from ..lock.formats import check_choices
from ..lock.request import make_request
from ..model import FRAMEWORKS, CreateResult, Emit, Event, Lock, is_expected
from .build import EnvironmentBuild
from .prove import Proof

_PACKAGES = {"onnxruntime-gpu": "onnxruntime"}
_SEEDS = ("pip", "setuptools", "wheel")
"""Packages that tools put into each venv, whatever it is for."""


def adopt(options: BuildOptions, env: Path, choices: Choices, emit: Emit) -> CreateResult:
    """Verify a venv of another tool, lock what it has, and record it. Raises UsageError, LockError, ResolveError."""
    check_choices(choices)
    _refuse_others(env)
    with place.lock_place(env, emit, wait=True):
        emit(Event("start", "lock", f"locking the packages of {env}"))
        lock = _lock_installed(emit, env, choices)
        choices = apply_project(choices)
        build = EnvironmentBuild(
            options=options, env=env, choices=choices, emit=emit, machine=machine_for_verdict(),
            recorded=recall.make_request_file(choices, lock, []),
        )  # fmt: skip
        build.set_lock(lock, read_locked_sources(choices, lock))
        if options.verify is not False:
            proof = Proof(locate_environment(env), choices, emit, lock=lock)
            with proof.start():
                build.verdict = proof.run()
            if not is_expected(build.verdict, lock.plan.device):
                emit(Event("warning", "build", f"{env} was not adopted: its verification failed"))
                build.rolled_back = True
                return build.make_result()
        _record(build)
        build.run_later_stages()
    return build.make_result()


def _refuse_others(env: Path) -> None:
    """Raise UsageError for a path that is no venv of another tool."""
    if place.made_by_gpuenv(env):
        raise UsageError(f"{env} is one of gpuenv already", hint="gpuenv verify")
    if not (env / "pyvenv.cfg").is_file() or env.is_symlink():
        raise UsageError(
            f"--adopt {env}: no venv is there",
            hint="name a venv that another tool made; a conda environment cannot be adopted",
        )


def _record(build: EnvironmentBuild) -> None:
    """Write what gpuenv records of an environment, or nothing."""
    env, mark = build.env, build.env / place.MARK
    try:
        mark.mkdir()
        venv.make_relocatable(env)
        build.write_record(env)
        record.vouch(env.resolve(), record.digest_record(env))
    except BaseException:
        shutil.rmtree(mark, ignore_errors=True)
        raise


def _lock_installed(emit: Emit, env: Path, choices: Choices) -> Lock:
    """Return a lock of exactly the installed packages. Raises UsageError, LockError, ResolveError."""
    found = _read_installed(env)
    wanted = _request_installed(env, found, choices)
    context = make_request(wanted, emit)
    plan, lock = solve_near(context, wanted, emit)
    if lock is None:
        raise ResolveError(
            f"gpuenv knows no build of {', '.join(wanted.framework)} that fits this machine",
            hint=plan.hint or "gpuenv resolve --explain",
        )
    lock = dataclasses.replace(
        lock, packages=tuple(p for p in lock.packages if p.name in found or p.name not in _SEEDS)
    )
    have = dataclasses.replace(
        lock,
        packages=tuple(
            dataclasses.replace(p, version=found[p.name].version) for p in lock.packages if p.name in found
        ),
    )
    if differ := list_differences(have, lock):
        raise LockError(
            f"{env} cannot be locked as it is: {len(differ)} of its packages would differ",
            log="\n".join(differ),
            hint=f"build a new one beside it: gpuenv create {env.name}-gpuenv --framework {lock.plan.builds[0].framework}",
        )
    return lock


def _read_installed(env: Path) -> dict[str, Distribution]:
    """Return the installed distributions by name. Raises BuildError where an installer left two of one name."""
    found = read_distributions(env)
    if twice := next((name for name, several in found.items() if len(several) > 1), None):
        raise BuildError(f"{env} has {twice} twice", hint="repair it with the tool that made it")
    return {name: several[0] for name, several in found.items()}


def _request_installed(env: Path, found: dict[str, Distribution], choices: Choices) -> Choices:
    """Return the options whose lock has the installed packages and no others. Raises UsageError."""
    names = {name: _PACKAGES.get(name, name) for name in found if _PACKAGES.get(name, name) in FRAMEWORKS}
    if not names:
        raise UsageError(
            f"{env} has none of {', '.join(FRAMEWORKS)}",
            hint=f"install one of them there, or build a new environment beside it: gpuenv create {env.name}-gpuenv --framework torch",
        )
    if any(env.glob("lib/python3.*t")):
        raise UsageError(
            f"{env} has a free-threaded Python, and no row has a wheel for one",
            hint=f"build one for a Python with the GIL beside it: gpuenv create {env.name}-gpuenv --framework torch",
        )
    labels = {Version(found[name].version).local or "" for name in names}
    gpu = any(name.startswith("nvidia-cudnn") or name in _PACKAGES for name in found) or any(
        label.startswith("cu") for label in labels
    )
    stack = rows.load(choices).stack
    rest = [one for name, one in found.items() if name not in names and name not in (*stack, *_SEEDS)]
    return dataclasses.replace(
        choices,
        framework=[f"{framework}=={_get_public_version(found[name])}" for name, framework in names.items()],
        with_=[_make_requirement(one) for one in rest],
        python=get_minor_version(ask_version(locate_environment(env))),
        device="cuda" if gpu and machine_for_verdict().gpus else "cpu",
        index=choices.index if choices.index != "auto" or any(labels) else "pypi",
    )


def _get_public_version(one: Distribution) -> str:
    return Version(one.version).public


def _make_requirement(one: Distribution) -> str:
    """Return the requirement of an installed package: its release, or where it was installed from. Raises UsageError."""
    origin: dict[str, object] = {}
    with contextlib.suppress(OSError, ValueError):
        origin = json.loads((one.folder / "direct_url.json").read_text(encoding="utf-8"))
    url, vcs = origin.get("url"), origin.get("vcs_info")
    if isinstance(vcs, dict) and vcs.get("vcs") == "git":
        return f"{one.name} @ git+{url}@{vcs.get('commit_id')}"
    if isinstance(url, str) and (one.folder / "direct_url.json").is_file():
        folder = Path(unquote(urlsplit(url).path))
        if url.startswith("file:") and folder.is_dir():
            raise UsageError(
                f"{one} was installed from the folder {folder}, which has no release to lock",
                hint="name it in gpuenv.yaml as `project:` or in a requirements file, and build a new environment: gpuenv create",
            )
        return f"{one.name} @ {url}"
    return f"{one.name}=={_get_public_version(one)}"
