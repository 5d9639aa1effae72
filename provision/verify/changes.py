"""Judges whether an environment is still what its lock and this machine ask for: the stages `lock` and `variants`, and
later installs in a system-wide Python.

A change that breaks nothing is a warning. With `--locked` it is a failure. If something failed, a change can be the
cause.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from packaging.version import InvalidVersion, Version

from ..environment import record
from ..environment.distributions import Distribution, list_distributions
from ..environment.drift import find_drift
from ..errors import LockError
from ..index.variants import NVIDIA, cuda_of, kernels_of, parse_variants
from ..model import (
    FRAMEWORKS,
    VENV_LOCK,
    WHEEL_NAMES,
    Confidence,
    EnvironmentChange,
    Evidence,
    Finding,
    Lock,
    Target,
    is_stack_package,
)
from ..profiles.wording import make_finding
from ..system import untrusted
from ..system.kernels import find_run_mode
from .libraries import CUDNN_PACKAGE
from .state import Judgement, State

CHANGED = "changed_since_lock"
"""The cause where nothing of the taxonomy says more: an environment that is not what was built."""

_MACHINE = ("driver", "gpu")
_INSTALLERS = ("pip", "setuptools", "wheel", "uv", "conda")
_NVIDIA = re.compile(r"^(nvidia-|libcu|libnv|cuda-)")


def judge_drift(state: State) -> None:
    """Add the stage `lock` if something has changed, or if `--locked` asks for it."""
    lock, locked, failed, early = state.lock, state.options.locked, state.failed, state.early
    if lock is None or not state.env.made_by_gpuenv:
        return
    thorough = locked or state.options.deep or bool(failed and failed.stage != "driver")
    sizes = None if thorough else early.sizes.result()
    drift = find_drift(Path(state.env.path), lock, python=state.paths.version, thorough=thorough, sizes=sizes)
    changes = list(drift.changes)
    if locked and state.device != "cpu":
        changes += compare_machine(lock, early.machine.result().target)
    changes.sort(key=lambda c: (not (failed and _is_named(c, failed.detail)), _get_weight(c)))
    state.drift = tuple(changes)
    if changes:
        state.findings.insert(0, _make_change_finding(state, lock, changes))
        more = f", and {len(changes) - 1} more" if len(changes) > 1 else ""
        detail = f"{changes[0].text}{more}"
        state.add("lock", Judgement("fail" if locked else "warn", detail, _list_evidence(changes[1:])))
    elif locked:
        machine = "" if state.device == "cpu" else ", on the hardware it was made for"
        state.add("lock", Judgement("pass", f"{len(lock.packages)} packages match the lock{machine}"))


def _list_evidence(changes: Sequence[EnvironmentChange]) -> tuple[Evidence, ...]:
    return tuple(Evidence(c.text, c.paths[0] if c.paths else None) for c in changes[:12])


# --- what else than packages ---------------------------------------------------------------------


def compare_machine(lock: Lock, target: Target) -> list[EnvironmentChange]:
    """Return how this machine's driver and GPUs differ from those of the lock.

    If the lock is for several classes of hosts, the most similar class counts.
    """
    if lock.plan.device == "cpu":
        return []
    if lock.classes:  # a class has one name for all boards of a capability
        return min((_compare_target(c.target, target, named=False) for c in lock.classes), key=len)
    named = all(g.name for g in (*lock.target.gpus, *target.gpus))
    return _compare_target(lock.target, target, named=named)


def _compare_target(wanted: Target, target: Target, *, named: bool) -> list[EnvironmentChange]:
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
    return changes


# --- the cause -----------------------------------------------------------------------------------


def _make_change_finding(state: State, lock: Lock, changes: Sequence[EnvironmentChange]) -> Finding:
    """Return the finding for the change that most likely caused the failure."""
    main, more = changes[0], len(changes) - 1
    cause, confidence = CHANGED, _choose_confidence(state, main)
    if state.failed:
        last = state.findings[-1] if state.findings and confidence != "possible" else None
        known = last.cause if last and last.confidence != "possible" else None
        cause = _find_cause(state, lock, changes) or known or CHANGED
    title = main.text
    if main.kind in ("replaced", "removed"):
        title = f"{main.name} {main.locked} was {main.kind}"
        title += f" by {main.found}" if main.kind == "replaced" else ""
        if _is_never_installed(state, changes):
            title = f"the lock was changed, and the environment was not: {main.text}"
    return make_finding(
        "environment_changed",
        _list_evidence(changes),
        cause=cause,
        confidence=confidence,
        change=title[0].upper() + title[1:] if main.kind in ("python", *_MACHINE) else title,
        more=more or None,
        noun="change" if more == 1 else "changes",
        steps=_describe_fix(state, changes),
    )


def _choose_confidence(state: State, main: EnvironmentChange) -> Confidence:
    """Return how sure it is that the change is the cause.

    Without a failure the change is the only finding, so it is certain. A change explains no failure of the
    driver, and none that a variable caused.
    """
    if state.failed is None:
        return "certain"
    if state.blamed or state.failed.stage == "driver" or main.kind in _MACHINE or _get_weight(main) > 4:
        return "possible"
    return "certain" if _get_weight(main) < 4 else "likely"


def _get_weight(change: EnvironmentChange) -> int:
    """Return the rank of a change by its effect on convolutions. 0 is the strongest."""
    if change.kind == "python":
        return 0
    if CUDNN_PACKAGE.match(change.name):
        return 2
    if change.name in (*FRAMEWORKS, "pytorch", "jaxlib"):
        return 1
    if _NVIDIA.match(change.name) or re.match(r"jax-cuda|triton|numpy$", change.name):
        return 3
    return 5 if change.name in _INSTALLERS else 4


def _is_named(change: EnvironmentChange, failure: str) -> bool:
    """Return whether a failure names this package: "module 'numpy' has no attribute"."""
    return re.search(rf"['./\s]{change.name.replace('-', '_')}\b", failure) is not None


def _describe_fix(state: State, changes: Sequence[EnvironmentChange]) -> str:
    path, kinds = shlex.quote(state.env.path), {c.kind for c in changes}
    steps = []
    if "python" in kinds:
        lock = shlex.quote(f"{state.env.path}/.gpuenv/{VENV_LOCK}")
        steps.append(f"Build it with the Python of its lock: gpuenv create {path} --recreate --lock {lock}")
    elif _is_never_installed(state, changes):
        steps.append(f"Install the project's lock: gpuenv sync {path}")
    elif not kinds <= set(_MACHINE):
        steps.append(f"Restore the locked packages: gpuenv repair {path}")
    if not kinds.isdisjoint(_MACHINE):
        steps.append("To select builds for this machine, run the create command again with --recreate")
    return ". ".join(steps) + "."


def _is_never_installed(state: State, changes: Sequence[EnvironmentChange]) -> bool:
    """Return whether the lock names releases that the lock inside the environment does not: the project's is newer."""
    try:
        inside = {p.name: p.version for p in record.read_lock(Path(state.env.path)).packages}
    except LockError:
        return False  # a lock inside that cannot be read says nothing of the project's
    return any(c.kind in ("replaced", "removed") and inside.get(c.name) != c.locked for c in changes)


def _find_cause(state: State, lock: Lock, changes: Sequence[EnvironmentChange]) -> str | None:
    """Return the cause that the main change has alone, or None."""
    main = changes[0]
    if lock.plan.device == "cuda":
        if any(_is_to_cpu(state, lock, c) for c in changes):
            return "cpu_only_build"
        is_cudnn = bool(CUDNN_PACKAGE.match(main.name))
        if is_cudnn or _NVIDIA.match(main.name):
            return _find_library_cause(main, cudnn=is_cudnn)
    jax = {p.name for p in lock.packages if re.match(r"jax(lib|-cuda\d+-(plugin|pjrt))?$", p.name)}
    changed = {c.name for c in changes if c.kind == "replaced"} & jax
    if main.name in changed and changed != jax:
        return "jax_plugin_version_mismatch"
    return "numpy_abi" if main.name == "numpy" and main.kind == "replaced" else None


def _is_to_cpu(state: State, lock: Lock, change: EnvironmentChange) -> bool:
    """Return whether a CPU build replaced a CUDA build of a framework."""
    if re.match(r"jax-cuda\d+-(plugin|pjrt)$", change.name):
        return change.kind == "removed"
    framework = WHEEL_NAMES.get(change.name, change.name)
    planned = {b.framework for b in lock.plan.builds if b.cuda}
    if framework not in planned or change.kind not in ("replaced", "modified", "overwritten"):
        return False
    return "+cpu" in (change.found or "") or not state.installed.builds.get(framework, True)


def _find_library_cause(change: EnvironmentChange, *, cudnn: bool) -> str | None:
    """Return the cause of a changed NVIDIA library, or None for one that the stage `libraries` judges: truncated, or
    of another version."""
    if change.kind == "removed" or re.search(r"\b(is|are) missing \(", change.text):
        return "cudnn_not_found" if cudnn else "nvidia_libs_not_installed"
    if change.kind == "modified":
        return None
    try:
        found, locked = Version(change.found or ""), Version(change.locked or "")
    except InvalidVersion:
        found = locked = Version("0")
    if not cudnn:
        return "cuda_lib_older_than_compiled" if found < locked else "nvidia_lib_symbol_mismatch"
    if change.kind == "replaced":
        if found.major != locked.major:
            return "cudnn_major_mismatch"
        if found < locked:
            return "cudnn_older_than_compiled"
    return "cudnn_shadowed_by_other_copy"


# --- packages that were installed after the image of a system-wide Python, as Colab's ------------
#
# Only file times show it. An image installs its packages within a day, and later installs have a later time. If
# the packages of a folder share no such day, only the user's own site-packages are reported.

# Causes that a later installation can have: those of builds and libraries, not of drivers and memory.
_PACKAGE_CAUSES = re.compile(
    r"cudnn|cuda_(major|lib)|nvidia_lib|cpu_only|arch_|jax_plugin|conflicting|numpy_abi|no_gpu_build|framework_bug|driver_too_old"
)
# Packages with code that is compiled against the stack
_COMPILED = re.compile(r"numpy|cupy[\w-]*|onnxruntime-gpu|xformers|flash-attn|bitsandbytes|ctranslate2")
_DAY = 86400.0
_MANY = 20  # fewer packages show no day
_SHARE = 0.6  # of them, installed within one day


def add_later_installs(findings: Iterable[Finding], later: tuple[Evidence, ...]) -> list[Finding]:
    """Return the findings, with later installs as evidence of those about builds and libraries."""
    return [
        replace(f, evidence=(*f.evidence, *later)) if _PACKAGE_CAUSES.match(f.cause) else f for f in findings
    ]


def find_later_installs(sites: Sequence[str], user_site: str | None) -> tuple[Evidence, ...]:
    """Return the packages of the stack that were installed later, the latest first, with their installers."""
    installs: list[tuple[float, Distribution, str]] = []
    for site in dict.fromkeys(s for s in sites if s != user_site):
        found = _read_times(site)
        end = _find_image_end([when for when, _ in found])
        installs += [(when, one, "") for when, one in found if end and when > end]
    for when, one in _read_times(user_site) if user_site else ():
        installs.append((when, one, ", in the user's site-packages"))
    evidence = []
    for when, one, where in sorted(installs, key=lambda row: -row[0]):
        if is_stack_package(one.name) or _COMPILED.fullmatch(one.name):
            day = dt.datetime.fromtimestamp(when, tz=dt.timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
            text = f"{one} ({one.installer or 'unknown'}, {day}{where})"
            evidence.append(Evidence(text, "installed since the runtime was made"))
    return tuple(evidence[:8])


def _read_times(site: str) -> list[tuple[float, Distribution]]:
    """Return the packages of a folder, each with the time of its installation."""
    times = []
    for one in list_distributions(site):
        paths = (path for path in (one.folder, one.folder / "RECORD") if path.exists())
        if when := max((os.stat(path).st_mtime for path in paths), default=0.0):
            times.append((when, one))
    return times


def _find_image_end(times: Sequence[float]) -> float | None:
    """Return the end of the day in which most packages were installed, or None if there is no such day."""
    ordered = sorted(times)
    if len(ordered) < _MANY:
        return None
    best, last, start = 0, 0.0, 0
    for end, time in enumerate(ordered):
        while time - ordered[start] > _DAY:
            start += 1
        if end - start + 1 > best:
            best, last = end - start + 1, time
    return last if best >= _SHARE * len(ordered) else None


# --- the installed variants of wheels (PEP 825), compared with the driver and the GPUs ------------------------

_VARIANT = "variant.json"


def judge_variants(state: State) -> None:
    """Add the stage `variants` if an installed package is a variant and the GPUs are known."""
    saw = state.gpu_report.values("driver") if state.gpu_report else {}
    if not saw.get("devices"):
        return
    labels: list[str] = []
    unfit: list[Evidence] = []
    for one in (d for site in state.paths.sites for d in list_distributions(site)):
        path = one.folder / _VARIANT
        if not path.is_file():
            continue
        try:
            text = untrusted.read_text(path)
            labels.append(f"{one} {next(iter(parse_variants(text)))}")
            unfit += [Evidence(f"{labels[-1]} {why}", str(path)) for why in _find_misfits(text, saw)]
        except (OSError, ValueError, StopIteration):
            unfit.append(Evidence(f"the properties of {one} cannot be read", str(path)))
    if unfit:
        more = f", and {len(unfit) - 1} more" if len(unfit) > 1 else ""
        state.add("variants", Judgement("warn", unfit[0].text + more, tuple(unfit)))
    elif labels:
        state.add("variants", Judgement("pass", f"for the GPUs of this machine: {', '.join(sorted(labels))}"))


def _find_misfits(text: str, saw: Mapping[str, Any]) -> Iterator[str]:
    """Yield why a variant is not for the driver and the devices that the stage driver saw. Its file lists the namespaces of all variants of its release."""
    (properties,) = parse_variants(text).values()
    cuda, kernels = cuda_of(properties), kernels_of(properties)
    speaks = saw.get("cuda")
    if cuda and speaks and Version(cuda).major > Version(speaks).major:
        yield f"is for CUDA {cuda}; the driver supports CUDA {speaks}"
    for gpu in saw["devices"]:
        if kernels and gpu["capability"] and not find_run_mode(kernels, gpu["capability"], frozenset()):
            yield f"has no kernels for {gpu['name']} ({gpu['capability']}); built for {' '.join(kernels)}"
    if not cuda and NVIDIA in json.loads(text).get("default-priorities", {}).get("namespace", ()):
        yield "is the build without CUDA of a package that has variants for GPUs"
