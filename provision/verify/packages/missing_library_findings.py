"""Makes the findings for libraries that packages need: cause and fix."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...model import Environment, Evidence, Finding
from ...profiles.findings import make_finding
from ..explain_unopened_nvidia_libraries import name_nvidia_wheel
from . import fix_for_missing_library
from .compiled_files import Package
from .fitting_measured_release import Beside
from .fix_for_wrong_build import describe_build_fix
from .import_in_children import Attempt
from .loader_search import OF_FRAMEWORK, Problem
from .nominate_packages import Nominated

MISSING, OLD, OTHER_BUILD, DAMAGED, UNSEARCHED = (
    "system_library_missing", "system_libs_too_old", "extension_built_for_other_torch_or_cuda",
    "package_files_damaged", "nvidia_libs_not_on_loader_path",
)  # fmt: skip
_OF_FRAMEWORKS = re.compile(r"lib(torch|c10|tensorflow|shm|caffe2|jax)")
_MOST_EVIDENCE = 12


@dataclass(frozen=True, kw_only=True, slots=True)
class FindingContext:
    """The environment of the packages, and the known rows about libraries."""

    env: Environment
    sites: Sequence[str]
    rows: fix_for_missing_library.RemedyRows
    here: fix_for_missing_library.LinuxDistribution
    beside: Beside


def choose_cause(problem: Problem) -> str:
    """Return the cause of one problem."""
    if problem.kind == "damaged":
        return DAMAGED
    if problem.kind == "unsearched":
        return UNSEARCHED
    if problem.kind == "version":
        return OLD
    if problem.kind in OF_FRAMEWORK:
        return OTHER_BUILD
    built_for = _OF_FRAMEWORKS.match(problem.library) or name_nvidia_wheel(problem.library)
    return OTHER_BUILD if built_for else MISSING


def make_findings(
    nominated: Sequence[Nominated],
    attempts: Mapping[Package, Attempt],
    failing: set[Package],
    context: FindingContext,
) -> tuple[Finding, ...]:
    """Return one finding per cause, those that fail a stage first."""
    ordered = sorted(nominated, key=lambda n: n.package not in failing)
    causes: dict[str, dict[Package, list[Problem]]] = {}
    for one in ordered:
        for problem in one.problems:
            causes.setdefault(choose_cause(problem), {}).setdefault(one.package, []).append(problem)
    return tuple(_make_cause_finding(c, problems_of, attempts, context) for c, problems_of in causes.items())


def _make_cause_finding(
    cause: str,
    problems_of: Mapping[Package, Sequence[Problem]],
    attempts: Mapping[Package, Attempt],
    context: FindingContext,
) -> Finding:
    evidence: list[Evidence] = []
    for package, problems in problems_of.items():
        if package in attempts:
            evidence += attempts[package].evidence()[:2]
        evidence += _list_evidence(package, problems)
    package = next(iter(problems_of))
    more = len(problems_of) - 1
    return make_finding(
        "packages_do_not_load",
        tuple(dict.fromkeys(evidence))[:_MOST_EVIDENCE],
        cause=cause,
        problem=describe_problems(package, problems_of[package]),
        more=more or None,
        noun="package" if more == 1 else "packages",
        steps=_describe_fix(cause, problems_of, context),
        confidence="certain" if all(p in attempts and attempts[p].refused for p in problems_of) else "likely",
    )


def _list_evidence(package: Package, problems: Sequence[Problem]) -> list[Evidence]:
    """Return one piece of evidence for each library and version, with the first file that needs it."""
    first: dict[str, list[Problem]] = {}
    for problem in problems:
        first.setdefault(describe_problem(problem), []).append(problem)
    return [
        Evidence(
            text=f"{package}: {text}" + (f" (and {len(same) - 1} more files)" if len(same) > 1 else ""),
            source=same[0].file,
        )
        for text, same in first.items()
    ]


def describe_problem(problem: Problem) -> str:
    """Return one problem in words."""
    if problem.kind == "damaged":
        return f"{problem.found} {problem.detail}"
    if problem.kind == "framework":
        return f"was built for {problem.library}, and {problem.found} is installed"
    if problem.kind == "symbol":
        return f"needs the symbol {problem.detail}, which {problem.found} does not export"
    if problem.kind == "version":
        return f"needs {problem.detail} of {problem.library}, which {problem.found} does not define"
    if problem.kind == "unsearched":
        return f"needs {problem.library}, which is installed in {os.path.dirname(problem.found or '')}"
    return f"needs {problem.library}, which is missing"


def describe_problems(package: Package, problems: Sequence[Problem]) -> str:
    """Return the problems of one package as a sentence."""
    names = list(dict.fromkeys(p.library for p in problems))
    shown = ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
    kinds = {p.kind for p in problems}
    if kinds == {"damaged"}:
        return f"{package} has damaged files: {shown}"
    if kinds == {"version"}:
        versions = list(dict.fromkeys(p.detail for p in problems))
        return f"{package} needs {', '.join(versions[:3])} of {shown}, but the installed version is older"
    if kinds == {"unsearched"}:
        return f"{package} does not find {shown}, which this environment contains"
    if kinds <= set(OF_FRAMEWORK):
        return f"{package} {describe_problem(problems[0])}"
    if all(p.any_of for p in problems):
        return f"{package} includes several alternative libraries, but none can be loaded: {shown} missing"
    return f"{package} needs {shown}, which this system does not have"


def _describe_fix(
    cause: str, problems_of: Mapping[Package, Sequence[Problem]], context: FindingContext
) -> str:
    packages = list(problems_of)
    problems = [p for rows in problems_of.values() for p in rows]
    if cause == DAMAGED:
        return fix_for_missing_library.describe_damage(context.env, packages, context.sites)
    if cause == UNSEARCHED:
        return fix_for_missing_library.describe_unsearched(
            [os.path.dirname(p.found) for p in problems if p.found]
        )
    if cause == OLD:
        return fix_for_missing_library.describe_versions(
            packages, list(dict.fromkeys(p.detail for p in problems))
        )
    if cause == OTHER_BUILD:
        return describe_build_fix(problems_of, context.rows, context.beside, context.env, context.sites)
    return fix_for_missing_library.describe_missing(
        problems_of, context.rows, context.env, context.sites, context.here
    )
