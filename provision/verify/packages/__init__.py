"""Stage `packages`: checks that every installed package finds the libraries that it needs.

The compiled files are read as the dynamic loader would load them. A package that needs a missing library is
imported, and only the import decides whether the stage fails. The stage runs after the proof of the frameworks,
and rolls nothing back.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...model import FRAMEWORKS, Environment, Finding, Profiles, StageResult, Status
from . import fix_for_missing_library, missing_library_findings as named
from .compiled_files import Package
from .fitting_measured_release import beside
from .import_in_children import Attempt, import_packages
from .nominate_packages import LibraryRows, Nominated, Reading, read

if TYPE_CHECKING:
    from ..options import Options
    from ..python_paths import PythonPaths

__all__ = ["Reading", "StageInputs", "judge", "named_and_required", "read_environment"]

_OF_FRAMEWORKS = {*FRAMEWORKS, "jaxlib", "tensorflow-cpu"}


@dataclass(frozen=True, kw_only=True, slots=True)
class StageInputs:
    """The inputs of the stage. `required` returns the packages whose failure fails the stage.

    With a lock these are the packages that the user or the project named, and their requirements. It is None
    without a lock.
    """

    env: Environment
    paths: PythonPaths
    options: Options
    environ: Mapping[str, str]
    known: Callable[[], Profiles]
    required: Callable[[Sequence[Package]], Collection[str]] | None = None


def read_environment(
    env: Environment, paths: PythonPaths, environ: Mapping[str, str], known: Profiles
) -> Reading:
    """Read the compiled files of an environment's packages."""
    return read(
        env.python,
        paths,
        environ,
        LibraryRows(
            opened=known.opened_libraries,
            optional=known.optional_libraries,
            satellites=known.satellites,
        ),
    )


def judge(reading: Reading, inputs: StageInputs) -> tuple[StageResult, tuple[Finding, ...]]:
    """Return the stage and its findings. Import the nominated packages, but not with `--quick`."""
    start = time.perf_counter()
    if reading.unread or not (reading.files or reading.nominated):
        why = reading.unread or "no package here has compiled files"
        return StageResult(stage="packages", status="skip", detail=why), ()
    attempts = {}
    if reading.nominated and not inputs.options.quick:
        tried = import_packages(inputs.env.python, reading.nominated, inputs.environ, inputs.options.timeout)
        attempts = {a.nominated.package: a for a in tried}
    left = [n for n in reading.nominated if n.package not in attempts or not attempts[n.package].loads]
    failing = _list_failing(left, attempts, reading.packages, inputs)
    left.sort(key=lambda n: (n.package not in failing, n.package.name not in _OF_FRAMEWORKS))
    rows = inputs.known() if left else Profiles()
    place = named.FindingContext(
        env=inputs.env, sites=inputs.paths.sites, here=fix_for_missing_library.read_distribution(),
        rows=fix_for_missing_library.RemedyRows(
            system=rows.system_libraries, replacements=rows.replacements,
            satellites=rows.satellites, toolkits=rows.toolkits,
        ),
        beside=beside(reading.packages, inputs.paths.version, inputs.paths.prefix),
    )  # fmt: skip
    findings = named.make_findings(left, attempts, failing, place)
    status: Status = "fail" if failing else "warn" if left else "pass"
    stage = StageResult(
        stage="packages",
        status=status,
        detail=_describe_result(reading, left, failing),
        seconds=round(time.perf_counter() - start, 3),
        evidence=tuple(e for f in findings for e in f.evidence),
    )
    return stage, findings


def _list_failing(
    left: Sequence[Nominated],
    attempts: Mapping[Package, Attempt],
    packages: Sequence[Package],
    inputs: StageInputs,
) -> set[Package]:
    """Return the required packages whose import fails because of a library. They fail the stage."""
    refused = {n.package for n in left if n.package in attempts and attempts[n.package].refused}
    if not refused:
        return set()
    wanted = _OF_FRAMEWORKS if inputs.required is None else inputs.required(packages)
    return {p for p in refused if p.name in wanted}


def _describe_result(reading: Reading, left: Sequence[Nominated], failing: set[Package]) -> str:
    if not left:
        return (
            f"{reading.files} libraries of {len(reading.packages)} packages: all required libraries are found"
        )
    first = left[0]
    text = named.describe_problems(first.package, first.problems)
    if first.package in failing:
        text += "; its import fails"
    more = len(left) - 1
    return text + (f"; {more} more package{'s' if more > 1 else ''}" if more else "")


def named_and_required(packages: Sequence[Package], names: Collection[str], python: str) -> frozenset[str]:
    """Return packages and their requirements on this machine without extras. `python` is the version."""
    known = {p.name: p for p in packages}
    seen: dict[str, None] = {}
    todo = [n for n in names if n in known]
    while todo:
        name = todo.pop()
        if name not in seen:
            seen[name] = None
            todo += [n for n in known[name].requires_always(python) if n in known]
    return frozenset(seen)
