"""Writes the fix for a package whose build is for another framework or CUDA.

The fix is an extra, another release, or wheels with the missing libraries.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from packaging.requirements import Requirement

from ...model import PROJECT_FRAMEWORKS, Environment, Satellite
from ..drift.install_commands import make_pip_command
from . import fix_for_missing_library
from .compiled_files import Package
from .fitting_measured_release import Beside, find_fitting_release, parse_framework, select_rows
from .loader_search import OF_FRAMEWORK, Problem
from .wheel_of_library import find_cuda_major, find_wheel

Step = tuple[list[str], str]
"""Requirements to install, and why."""


def describe_build_fix(
    problems_of: Mapping[Package, Sequence[Problem]],
    rows: fix_for_missing_library.RemedyRows,
    here: Beside,
    env: Environment,
    sites: Sequence[str],
) -> str:
    """Return the fix for packages that were built for something else, each by the first way that the rows
    contain."""
    wanted: list[str] = []
    reasons: list[str] = []
    left: dict[Package, list[str]] = {}
    for package, problems in problems_of.items():
        libraries = list(dict.fromkeys(p.library for p in problems if p.kind not in OF_FRAMEWORK))
        step = _choose_step(package, libraries, rows, here)
        if step:
            wanted += step[0]
            reasons.append(step[1])
        else:
            left[package] = libraries
    texts = []
    if wanted:
        texts.append(f"{make_pip_command(env, sites, list(dict.fromkeys(wanted)))} ({'; '.join(reasons)}).")
    if left:
        texts.append(_describe_unknown(left, rows, here))
    return " ".join(texts)


def _choose_step(
    package: Package, libraries: Sequence[str], rows: fix_for_missing_library.RemedyRows, here: Beside
) -> Step | None:
    measured = select_rows(package, rows.satellites, here)
    extras = next((r.extras for r in measured if r.extras and set(libraries) <= set(r.needs)), ())
    if libraries and extras:
        named = ",".join(extras)
        return [
            f"{package.name}[{named}]=={package.version}"
        ], f"{package}[{named}] brings {', '.join(libraries)}"
    other = find_fitting_release(package, rows.satellites, here)
    if other:
        return (
            [f"{other.package}=={other.version}"],
            f"{package} was built for {_describe_target_of(measured) or 'other libraries'}, {other.package} {other.version} for {_describe_target(other)}",
        )
    if framework := _find_missing_framework(libraries, measured, package, here):
        return [str(framework)], f"{package} was built for {framework}"
    return _suggest_wheels(package, libraries, measured, rows, here)


def _suggest_wheels(
    package: Package,
    libraries: Sequence[str],
    measured: Sequence[Satellite],
    rows: fix_for_missing_library.RemedyRows,
    here: Beside,
) -> Step | None:
    """Return the NVIDIA wheels with the libraries, unless the environment has another CUDA."""
    wanted, present = _find_cuda(libraries, measured), find_cuda_major(here.libraries)
    if present and wanted and present != wanted:
        return None
    wheels = [find_wheel(n, rows.toolkits, wanted or present) for n in libraries]
    names = [w for w in wheels if w]
    if not libraries or len(names) < len(libraries):
        return None
    return (
        names,
        f"{'they include' if len(set(names)) > 1 else 'it includes'} {', '.join(libraries)} for {package}",
    )


def _describe_unknown(
    left: Mapping[Package, Sequence[str]], rows: fix_for_missing_library.RemedyRows, here: Beside
) -> str:
    """Return the fix for packages without a known release that fits."""
    libraries = [n for names in left.values() for n in names]
    cuda = find_cuda_major(libraries)
    wheels = [w for n in libraries if (w := find_wheel(n, rows.toolkits, cuda))]
    required = {r for package in left for r in package.requires}
    meant = (parse_framework(row) for package in left for row in select_rows(package, rows.satellites, here))
    required |= {found.name for found in meant if found}
    text = fix_for_missing_library.describe_other_build(
        list(left), [f for f in PROJECT_FRAMEWORKS if f in required], wheels
    )
    built = [
        f"{p} was built for {words}"
        for p in left
        if (words := _describe_target_of(select_rows(p, rows.satellites, here)))
    ]
    return f"{text} {'; '.join(built)}." if built else text


def _find_cuda(libraries: Sequence[str], measured: Sequence[Satellite]) -> str | None:
    stated = next((r.cuda.partition(".")[0] for r in measured if r.cuda), None)
    return find_cuda_major(libraries) or stated


def _describe_target_of(measured: Sequence[Satellite]) -> str:
    return _describe_target(measured[0]) if measured else ""


def _describe_target(row: Satellite) -> str:
    """Return the framework and the CUDA that a release was built for."""
    return " and ".join(x for x in (row.built_for, f"CUDA {row.cuda}" if row.cuda else None) if x)


def _find_missing_framework(
    libraries: Sequence[str], measured: Sequence[Satellite], package: Package, here: Beside
) -> Requirement | None:
    """Return the framework that is not installed and whose libraries are missing, or None."""
    owners = {o for n in libraries for prefix, o in _OWNERS.items() if n.startswith(prefix)}
    if len(owners) != 1 or not owners.isdisjoint(here.versions):
        return None
    owner = owners.pop()
    stated = next((f for r in measured if (f := parse_framework(r)) and f.name == owner), None)
    return stated or (Requirement(owner) if owner in package.requires else None)


_OWNERS = {"libtorch": "torch", "libc10": "torch", "libshm": "torch", "libtensorflow": "tensorflow"}
