"""Insert the extras (`name[cuda12]`) that packages need for their CUDA libraries.

They are compared with the lock afterwards.
"""

from __future__ import annotations

import dataclasses

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from ..model import Lock, Plan, Profiles, RequestContext, RequirementLine
from .extras_for_cuda_libraries import ExtraRows, disagreements, missing_extras, named_in


def add_extras(plan: Plan, context: RequestContext) -> Plan:
    """Return the plan with the missing extras of its packages and of the project's packages, and one note on
    them."""
    if not plan.builds or not _installs_wheels(plan):
        return plan
    rows = _rows(plan, context.profiles)
    needs = [n for n in context.demands.needs if _is_plain(n)]
    overridden = {canonicalize_name(n.name or "") for n in needs if n.override}
    constraints = [*(n.text for n in needs if n.constraint), *context.request.pins]
    wanted = [n.text for n in needs if not n.constraint]
    named = named_in((*plan.packages, *wanted), constraints)
    missing = {n.name: missing_extras(n, rows) for n in named if n.name not in overridden}
    missing = {name: extras for name, extras in missing.items() if extras}
    if not missing:
        return plan
    packages = [_with(text, missing) for text in plan.packages]
    have = {canonicalize_name(Requirement(text).name) for text in packages}
    packages += [
        _bare(text, missing) for text in wanted if (name := _name(text)) in missing and name not in have
    ]
    added = ", ".join(f"{name}[{','.join(extras)}]" for name, extras in missing.items())
    note = f"{added}: adding these extras, because they install required CUDA libraries"
    return dataclasses.replace(plan, packages=tuple(dict.fromkeys(packages)), notes=(*plan.notes, note))


def disagreements_of(lock: Lock, known: Profiles) -> list[str]:
    """Return sentences on the extras of a lock's plan that are not those that its releases need."""
    if not _installs_wheels(lock.plan):
        return []
    locked = {p.name: p.version for p in lock.packages}
    return list(disagreements(named_in(lock.plan.packages), locked, _rows(lock.plan, known)))


def _installs_wheels(plan: Plan) -> bool:
    """Return whether CUDA libraries are installed as wheels. CPU builds have none, and conda packages require
    their own."""
    return plan.device == "cuda" and plan.manager == "venv"


def _rows(plan: Plan, known: Profiles) -> ExtraRows:
    return ExtraRows(satellites=known.satellites, platform=plan.platform, cuda_major=plan.cuda_major)


def _is_plain(need: RequirementLine) -> bool:
    return bool(need.name) and not (need.local or need.vcs or need.editable)


def _name(text: str) -> str:
    return canonicalize_name(Requirement(text).name)


def _with(text: str, missing: dict[str, tuple[str, ...]]) -> str:
    need = Requirement(text)
    extras = missing.get(canonicalize_name(need.name), ())
    if need.url or not extras:
        return text
    need.extras |= set(extras)
    return str(need)


def _bare(text: str, missing: dict[str, tuple[str, ...]]) -> str:
    """Return the extras of a requirement as a line without bounds and hashes. Those stay in their own line."""
    need = Requirement(text)
    marker = f"; {need.marker}" if need.marker else ""
    return f"{need.name}[{','.join(missing[canonicalize_name(need.name)])}]{marker}"
