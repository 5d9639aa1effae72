"""Judges the differences from the lock: the stage `lock`, and a cause if something failed.

A change that breaks nothing is a warning. With `--locked` it is a failure.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from packaging.version import InvalidVersion, Version

from ...model import (
    FRAMEWORKS,
    VENV_LOCK,
    WHEEL_NAMES,
    Confidence,
    EnvironmentChange,
    Evidence,
    Finding,
    Lock,
    Target,
)
from ...profiles.findings import make_finding
from ..read_libraries import CUDNN_PACKAGE, shorten_version
from ..verification_state import Judgement, Verification
from . import compare_wheels

CHANGED = "changed_since_lock"
"""The cause where nothing of the taxonomy says more: an environment that is not what was built."""

_MACHINE = ("driver", "gpu")
_INSTALLERS = ("pip", "setuptools", "wheel", "uv", "conda")
_NVIDIA = re.compile(r"^(nvidia-|libcu|libnv|cuda-)")


def judge_drift(run: Verification) -> None:
    """Add the stage `lock` if something has changed, or if `--locked` asks for it."""
    if run.lock is None or not run.env.made_by_gpuenv:
        return
    locked, broken = run.options.locked, run.broken
    thorough = locked or run.options.deep or broken not in (None, "driver")
    sizes = run.early_probes.sizes.result() if run.early_probes.sizes and not thorough else None
    changes = compare_wheels.find_drift(
        Path(run.env.path), run.lock, python=run.env.python_version, thorough=thorough, sizes=sizes
    ).changes
    if locked:
        changes += _compare_loaded(run) + (
            compare_machine(run.lock, run.baseline.target) if run.device != "cpu" else ()
        )
    said = next((s.detail for s in run.stages if s.status == "fail"), "")
    run.drift = changes = tuple(sorted(changes, key=lambda c: (not _is_named(c, said), _get_weight(c))))
    if changes:
        run.findings.insert(0, _make_change_finding(run, changes, broken))
        run.add("lock", _make_judgement(changes, failing=locked), None)
    elif locked:
        run.add("lock", Judgement(status="pass", detail=_describe_match(run)), None)


def _describe_match(run: Verification) -> str:
    assert run.lock is not None
    machine = "" if run.device == "cpu" else ", on the hardware it was made for"
    return f"{len(run.lock.packages)} packages match the lock{machine}"


def _make_judgement(changes: Sequence[EnvironmentChange], *, failing: bool) -> Judgement:
    more = f", and {len(changes) - 1} more" if len(changes) > 1 else ""
    return Judgement(
        status="fail" if failing else "warn",
        detail=f"{changes[0].text}{more}",
        evidence=_list_evidence(changes[1:]),
    )


def _list_evidence(changes: Sequence[EnvironmentChange]) -> tuple[Evidence, ...]:
    return tuple(Evidence(text=c.text, source=c.paths[0] if c.paths else None) for c in changes[:12])


# --- what else than packages -----------------------------------------------------------------------


def compare_machine(lock: Lock, target: Target | None) -> tuple[EnvironmentChange, ...]:
    """Return how this machine's driver and GPUs differ from those of the lock.

    If the lock is for several classes of hosts, the most similar class counts.
    """
    if target is None or lock.plan.device == "cpu":
        return ()
    if lock.classes:  # a class has one name for all boards of a capability
        return min((_compare_target(c.target, target, named=False) for c in lock.classes), key=len)
    named = all(g.name for g in (*lock.target.gpus, *target.gpus))
    return _compare_target(lock.target, target, named=named)


def _compare_target(wanted: Target, target: Target, *, named: bool) -> tuple[EnvironmentChange, ...]:
    changes = []
    if wanted.driver and wanted.driver != target.driver:
        here = f"driver {target.driver}" if target.driver else "none"
        text = f"the lock was made for driver {wanted.driver}; this machine has {here}"
        changes.append(EnvironmentChange(kind="driver", name="driver", text=text, locked=wanted.driver,
                            found=target.driver))  # fmt: skip
    had, have = (
        {f"{g.name} ({g.capability})" if named else g.capability for g in t.gpus} for t in (wanted, target)
    )
    if had and had != have:
        was, now = (", ".join(sorted(x)) or "none" for x in (had, have))
        text = f"the lock was made for GPU {was}; this machine has {now}"
        changes.append(EnvironmentChange(kind="gpu", name="gpu", text=text, locked=was, found=now))
    return tuple(changes)


def _compare_loaded(run: Verification) -> tuple[EnvironmentChange, ...]:
    """Compare the cuDNN that each framework's process loaded with the plan's."""
    wanted = run.lock.plan.cudnn if run.lock else None
    if not wanted or run.device == "cpu":
        return ()
    return tuple(
        EnvironmentChange(
            kind="cudnn", name=v.name, locked=wanted, found=v.cudnn_loaded,
            text=f"{v.name} loaded cuDNN {v.cudnn_loaded}, but the lock has {wanted}",
        )
        for v in run.verdicts
        if v.cudnn_loaded and v.cudnn_loaded != shorten_version(wanted)
    )  # fmt: skip


# --- the cause ---------------------------------------------------------------------------------------


def _make_change_finding(
    run: Verification, changes: Sequence[EnvironmentChange], broken: str | None
) -> Finding:
    """Return the finding for the change that most likely caused the failure."""
    main = changes[0]
    cause, confidence = CHANGED, _choose_confidence(run, main, broken)
    if broken:
        said = run.findings[-1] if run.findings and confidence != "possible" else None
        known_cause = said.cause if said and said.confidence != "possible" else None
        cause = _find_cause(run, changes, main) or known_cause or CHANGED
    more = len(changes) - 1
    return make_finding(
        "environment_changed",
        _list_evidence(changes),
        cause=cause,
        confidence=confidence,
        change=_describe_change(main),
        more=more or None,
        noun="change" if more == 1 else "changes",
        steps=_describe_fix(run, changes),
    )


def _choose_confidence(run: Verification, main: EnvironmentChange, broken: str | None) -> Confidence:
    """Return how sure it is that the change is the cause.

    Without a failure the change is the only finding, so it is certain. A change explains no failure of the
    driver, and none that a variable caused.
    """
    if broken is None:
        return "certain"
    if run.blamed or broken == "driver" or main.kind in _MACHINE or _get_weight(main) > 4:
        return "possible"
    return "certain" if _get_weight(main) < 4 else "likely"


def _get_weight(change: EnvironmentChange) -> int:
    """Return the rank of a change by its effect on convolutions. 0 is the strongest."""
    if change.kind == "python":
        return 0
    if change.kind == "cudnn" or CUDNN_PACKAGE.match(change.name):
        return 2
    if change.name in (*FRAMEWORKS, "pytorch", "jaxlib"):
        return 1
    if _NVIDIA.match(change.name) or re.match(r"jax-cuda|triton|numpy$", change.name):
        return 3
    return {"driver": 4, "gpu": 4}.get(change.kind, 5 if change.name in _INSTALLERS else 4)


def _is_named(change: EnvironmentChange, said: str) -> bool:
    """Return whether a failure names this package: "module 'numpy' has no attribute"."""
    return re.search(rf"['./\s]{change.name.replace('-', '_')}\b", said) is not None


def _describe_change(change: EnvironmentChange) -> str:
    if change.kind == "replaced":
        return f"{change.name} {change.locked} was replaced by {change.found}"
    if change.kind == "removed":
        return f"{change.name} {change.locked} was removed"
    return change.text[0].upper() + change.text[1:] if change.kind in ("python", *_MACHINE) else change.text


def _describe_fix(run: Verification, changes: Sequence[EnvironmentChange]) -> str:
    path = shlex.quote(run.env.path)
    steps = []
    if any(c.kind == "python" for c in changes):
        lock = shlex.quote(f"{run.env.path}/.gpuenv/{VENV_LOCK}")
        steps.append(f"Build it with the Python of its lock: gpuenv create {path} --recreate --lock {lock}")
    elif any(c.kind not in _MACHINE for c in changes):
        steps.append(f"Restore the locked packages: gpuenv repair {path}")
    if any(c.kind in _MACHINE for c in changes):
        steps.append("To select builds for this machine, run the create command again with --recreate")
    return ". ".join(steps) + "."


def _find_cause(
    run: Verification, changes: Sequence[EnvironmentChange], main: EnvironmentChange
) -> str | None:
    """Return the cause that a change has alone, or None."""
    assert run.lock is not None
    if run.lock.plan.device == "cuda":
        if any(_to_cpu(run, c) for c in changes):
            return "cpu_only_build"
        if main.kind == "cudnn" or CUDNN_PACKAGE.match(main.name):
            return _find_cudnn_cause(main)
        if _NVIDIA.match(main.name):
            return _find_nvidia_cause(main)
    jax = {p.name for p in run.lock.packages if re.match(r"jax(lib|-cuda\d+-(plugin|pjrt))?$", p.name)}
    changed = {c.name for c in changes if c.kind == "replaced"} & jax
    if main.name in changed and changed != jax:
        return "jax_plugin_version_mismatch"
    return "numpy_abi" if main.name == "numpy" and main.kind == "replaced" else None


def _to_cpu(run: Verification, change: EnvironmentChange) -> bool:
    """Return whether a CPU build replaced a CUDA build of a framework."""
    if re.match(r"jax-cuda\d+-(plugin|pjrt)$", change.name):
        return change.kind == "removed"
    framework = WHEEL_NAMES.get(change.name, change.name)
    planned = {b.framework for b in run.lock.plan.builds if b.cuda} if run.lock else set()
    if framework not in planned or change.kind not in ("replaced", "modified", "overwritten"):
        return False
    return "+cpu" in (change.found or "") or not run.installed.builds.get(framework, True)


def _find_cudnn_cause(change: EnvironmentChange) -> str | None:
    if _is_gone(change):
        return "cudnn_not_found"
    if change.kind == "modified":
        return None  # truncated, or of another version: the stage libraries decides
    order = _compare_versions(change)
    if change.kind in ("replaced", "cudnn") and order is not None:
        major = (change.locked or "").split(".")[0] != (change.found or "").split(".")[0]
        if major:
            return "cudnn_major_mismatch"
        if order < 0:
            return "cudnn_older_than_compiled"
    return "cudnn_shadowed_by_other_copy"


def _find_nvidia_cause(change: EnvironmentChange) -> str | None:
    if _is_gone(change):
        return "nvidia_libs_not_installed"
    if change.kind == "modified":
        return None
    order = _compare_versions(change)
    return "cuda_lib_older_than_compiled" if order is not None and order < 0 else "nvidia_lib_symbol_mismatch"


def _is_gone(change: EnvironmentChange) -> bool:
    return change.kind == "removed" or re.search(r"\b(is|are) missing \(", change.text) is not None


def _compare_versions(change: EnvironmentChange) -> int | None:
    """Return -1, 0 or 1 if the installed version is older than, equal to, or newer than the locked one."""
    try:
        installed, locked = Version(change.found or ""), Version(change.locked or "")
    except InvalidVersion:
        return None
    return (installed > locked) - (installed < locked)
