"""A lock for a venv: the plan's pins solved by uv for the target's Python and platform.

uv decides what else is needed; what the plan decided is asserted afterwards, so that a CUDA plan
never ends in a CPU wheel and no environment gets two cuDNN packages.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from ..errors import LockError
from ..index import pytorch_index
from ..index.http import Http
from ..index.wheel_folders import find_links
from ..model import (
    PROJECT_FRAMEWORKS,
    TORCH_COMPANIONS,
    Event,
    Lock,
    LockedPackage,
    PackageSources,
    Plan,
    RequirementLine,
    TransitiveFrameworks,
    is_cpu_build,
)
from ..system import process, scratch_folders, variable_references
from ..system.redaction import redact
from .allowed_source_builds import SourceBuilds, describe_build, source_builds
from .index_of_files import FileIndexes, without_pages
from .pylock import file_name, is_source
from .remembered_refusals import question_of
from .repeat_last_solve import EarlySolve
from .source_archives import SourceArchive
from .uv_question import Ask, only_files
from .uv_solution import Requirers, parse_annotations, parse_pylock, versions_of


def lock(
    plan: Plan,
    sources: PackageSources,
    emit: Callable[[Event], None],
    *,
    python: str | None = None,
    needs: Sequence[RequirementLine] = (),
    prefer: Mapping[str, str] | None = None,
    builds: SourceBuilds | None = None,
    elsewhere: Collection[str] = (),
    early: EarlySolve | None = None,
) -> Lock:
    """Solve a plan's pins, and what a project needs beside them, into a lock.

    `python` is an interpreter for uv to start from; any will do. `prefer` are versions that stay where
    they still fit; `builds` says what may be built from source; `elsewhere` are packages that another
    manager brings; `early` may know the answer. Raises LockError when the index does
    not answer (`unreachable`), the packages contradict each other (`contradiction`), one has no wheel
    (`no_wheel`), a framework comes along unplanned (`brought`), or the result is not the plan.
    """
    emit(Event(kind="start", stage="lock", text="solving the packages of the plan"))
    with scratch_folders.scratch("lock") as scratch:
        builds = builds or source_builds(sources, emit)
        ask = Ask(scratch, plan, sources, python, tuple(needs), builds)
        pins = _pins(plan, sources)
        question = question_of(plan, pins, needs, sources)
        builds.recall(question)
        try:
            known = early.answer(ask, pins, prefer or {}) if early else None
            solved = known or ask.solved(pins, prefer or {})
            packages = _with_indexes(parse_pylock(solved, plan), ask, solved)
        finally:
            took = ", ".join(f"{s:.2f} s" for s in ask.seconds)
            emit(Event(kind="done", stage="lock", text=f"uv took {took}" if took else "uv was not run"))
    packages = _with_sizes(without_pages(packages, sources), sources)
    _assert_no_other_framework(plan, packages, {*elsewhere, *_named_for_cpu(plan, needs)})
    _assert_is_plan(plan, packages, sources)
    assert_hashes(needs, packages)
    described = {p: _described(p, builds, ask) for p in packages if is_source(p)}
    for package, archive in described.values():
        emit(describe_build(package, archive, plan))
    packages = tuple(described[p][0] if p in described else p for p in packages)
    builds.remember(question, (p.name for p in described), needs)
    if early:
        early.keep()
    emit(Event(kind="done", stage="lock", text=f"{len(packages)} packages", done=len(packages)))
    return Lock(
        manager="venv", target=plan.target, plan=plan, packages=packages,
        required_by=Requirers(lambda: ask.annotated(solved)),
    )  # fmt: skip


def frameworks_in(
    plan: Plan, sources: PackageSources, needs: Sequence[RequirementLine], builds: SourceBuilds
) -> TransitiveFrameworks:
    """The frameworks that a project's needs bring along by themselves; `plan` tells the Python and the
    platform. Raises LockError where the needs cannot be solved."""
    where = f"Python {plan.python} on {plan.platform}"
    with scratch_folders.scratch("lock") as scratch:
        ask = Ask(scratch, plan, sources, None, tuple(needs), builds)
        while True:
            try:
                text = ask.compiled(ask.source([]), "requirements.txt")
                break
            except LockError as error:
                name = error.no_wheel
                if name is None or name in (*builds.allowed, *builds.unread, *PROJECT_FRAMEWORKS):
                    raise
                if builds.reading:
                    builds.leave_out(
                        name, f"{name} has no wheel for {where}, and its source archive is not read"
                    )
                else:
                    builds.allow_wheelless(name, where)
    names = {str(canonicalize_name(row.partition("==")[0])) for row in text.splitlines() if "==" in row}
    frameworks = tuple(f for f in PROJECT_FRAMEWORKS if f in names)
    return TransitiveFrameworks(
        frameworks=frameworks, allowed=tuple(builds.allowed), unread=tuple(builds.unread)
    )


def allowed(
    plan: Plan, sources: PackageSources, needs: Sequence[RequirementLine], builds: SourceBuilds
) -> dict[str, str]:
    """The newest framework versions, none above the plan's, that go with a project's needs where the
    plan pins nothing. Raises LockError when there are none."""
    loose = [f"{b.package_name}<={b.version}" for b in plan.builds]
    with scratch_folders.scratch("lock") as scratch:
        ask = Ask(scratch, plan, sources, None, tuple(needs), builds)
        text = ask.compiled(ask.source([*loose, *plan.packages]), "requirements.txt")
    pins = (re.match(r"([A-Za-z0-9._-]+)==([^\s;]+)", row) for row in text.splitlines())
    # without labels ("2.13.0+cpu"): <= takes none
    found: dict[str, str] = {canonicalize_name(m[1]): m[2].partition("+")[0] for m in pins if m}
    return {b.framework: found[b.package_name] for b in plan.builds if b.package_name in found}


def _described(
    package: LockedPackage, builds: SourceBuilds, ask: Ask
) -> tuple[LockedPackage, SourceArchive | None]:
    """Return a source archive with the requirements that it was solved with, and its description."""
    if builds.stated is None:
        return package, None
    found = builds.stated.archive(package) or builds.stated.archives.describe([package]).get(package)
    return builds.stated.recorded(package, ask.needs, ask.plan), found


def _pins(plan: Plan, sources: PackageSources) -> list[str]:
    pins = list(dict.fromkeys(r for b in plan.builds for r in b.requirements))
    pins += [p for p in plan.packages if p not in pins]
    if not sources.offline or _has_wheel(sources, "pip"):
        pins.append("pip")
    return pins


def _has_wheel(sources: PackageSources, name: str) -> bool:
    folders = [p for p in sources.find_links if "://" not in p and Path(p).exists()]
    return any(w.name == name for w in find_links(folders))


# --- what came back --------------------------------------------------------------------------


def _with_indexes(packages: Sequence[LockedPackage], ask: Ask, solved: str) -> tuple[LockedPackage, ...]:
    """The packages with their indexes: as their addresses show, else as uv states them in another run."""
    of_index = versions_of(solved)
    places = FileIndexes(ask.sources, ask.bound, only_wheels=only_files(ask.sources))
    indexes = places.indexes([p for p in packages if p.name in of_index])
    if indexes is None:
        indexes = parse_annotations(ask.annotated(solved))
    return tuple(
        dataclasses.replace(p, index=redact(indexes[p.name]) if p.name in indexes else None,
                            url=_address(p))
        for p in packages
    )  # fmt: skip


def _address(package: LockedPackage) -> str:
    """Return a package's address as the lock has it. Raises LockError where a variable holds the file's name."""
    url = redact(package.url)
    if not package.unhashed and variable_references.names_in(url.rpartition("/")[2]):
        raise LockError(
            f"the address of {package.name} has no file name: {url}",
            hint=f"add the file name after the variable: .../{file_name(package)}",
        )
    return url


def _with_sizes(packages: tuple[LockedPackage, ...], sources: PackageSources) -> tuple[LockedPackage, ...]:
    """Sizes that the index did not tell, asked by HEAD: how much there is to download is said
    before it is downloaded. A server that refuses the question leaves the size unknown."""
    environ = process.environ()
    urls = {
        p.url: variable_references.expand(p.url, environ, f"the address of {p.name}")
        for p in packages
        if p.size is None
    }
    asked = [u for u in urls.values() if u.startswith("file:") or not sources.offline]
    if not asked:
        return packages
    try:
        sizes = Http(tries=1, timeout=5.0).sizes(asked)
    except LockError:
        sizes = {}
    return tuple(dataclasses.replace(p, size=p.size or sizes.get(urls.get(p.url, p.url))) for p in packages)


def assert_hashes(needs: Sequence[RequirementLine], packages: tuple[LockedPackage, ...]) -> None:
    """Raise LockError unless each file is one of those that the project's own hashes name."""
    locked = {p.name: p for p in packages}
    for need in needs:
        package = locked.get(canonicalize_name(need.name or ""))
        told = {h.partition(":")[2] for h in need.hashes if h.startswith("sha256:")}
        if package and told and package.sha256 not in told:
            raise LockError(
                f"{need.origin} has hashes for {package.name}, but none for {file_name(package)}",
                hint=f"add its sha256 {package.sha256}, or remove the hashes",
            )


def _named_for_cpu(plan: Plan, needs: Sequence[RequirementLine]) -> set[str]:
    """The frameworks that are asked for as packages for the CPU, beside those of the plan. A need has the name of a
    framework in no other case."""
    named = {str(canonicalize_name(n.name)) for n in needs if n.name and not (n.constraint or n.override)}
    asked = map(Requirement, plan.packages)
    named |= {canonicalize_name(n.name) for n in asked if is_cpu_build(canonicalize_name(n.name), n.extras)}
    return named & set(PROJECT_FRAMEWORKS)


def _assert_no_other_framework(
    plan: Plan, packages: tuple[LockedPackage, ...], elsewhere: Collection[str]
) -> None:
    planned = {*elsewhere, *(b.framework for b in plan.builds)}
    brought = [p for p in packages if p.name in PROJECT_FRAMEWORKS and p.name not in planned]
    if brought:
        words = " and ".join(f"{p.name} {p.version}" for p in brought)
        raise LockError(
            f"the requested packages require {words}, which is not part of the plan",
            hint=f"request it too: --framework {brought[0].name}",
            brought=tuple(p.name for p in brought),
        )


def _assert_is_plan(plan: Plan, packages: tuple[LockedPackage, ...], sources: PackageSources) -> None:
    """Raise LockError unless every pin of the plan is in the lock as it was meant, and from its index."""
    locked = {p.name: p for p in packages}
    for build in plan.builds:
        for text in build.requirements:
            _assert_pin(locked, text)
        mine = locked[build.package_name]
        if plan.device == "cuda" and mine.version.endswith("+cpu"):
            raise LockError(
                f"the plan needs CUDA {build.cuda}; the solver chose {file_name(mine)}", hint=_OTHER_PLACE
            )
    theirs, _ = pytorch_index.split(packages, plan)
    for package in theirs:
        if not pytorch_index.is_one(package.index or "", redact(sources.pytorch)):
            raise LockError(
                f"{package.name} came from {package.index}, not from the PyTorch index", hint=_OTHER_PLACE
            )
    if "torch" in locked:
        _assert_companions(locked["torch"].version, packages)
    if {"tensorflow", "tensorflow-cpu"} <= locked.keys():
        both = (f"{name} {locked[name].version}" for name in ("tensorflow", "tensorflow-cpu"))
        raise LockError(
            f"{' and '.join(both)} install the same files",
            hint="remove tensorflow-cpu: tensorflow runs on the CPU as well",
        )
    cudnn = [p for p in packages if re.fullmatch(r"nvidia-cudnn(-cu\d+)?", p.name)]
    if len(cudnn) > 1:
        names = " and ".join(f"{p.name} {p.version}" for p in cudnn)
        raise LockError(
            f"two cuDNN packages install into one folder: {names}",
            hint="put the frameworks into two environments",
        )


_OTHER_PLACE = "remove the --find-links folder or the index that has another build of it"
_BUILD_LABEL = re.compile(r"cpu|cu\d+")


def _assert_companions(torch: str, packages: tuple[LockedPackage, ...]) -> None:
    """Raise LockError where torch is of a labelled build and a companion of another: its operators are
    compiled for that one and do not load."""
    label = torch.partition("+")[2]
    for package in packages:
        other = package.version.partition("+")[2]
        if package.name in TORCH_COMPANIONS and _BUILD_LABEL.fullmatch(label) and other != label:
            raise LockError(
                f"{package.name} {package.version} is not built for torch +{label}: its operators cannot load",
                hint=f"provide a +{label} wheel of {package.name} with --find-links, or request another build of torch",
                companion=package.name,
            )


def _assert_pin(locked: dict[str, LockedPackage], text: str) -> None:
    try:
        need = Requirement(text)
    except InvalidRequirement as error:
        raise LockError(
            f"the plan's requirement {text!r} cannot be read: {error}",
            hint="check the rows: gpuenv profiles check",
        ) from error
    got = locked.get(canonicalize_name(need.name))
    exact = next((s.version for s in need.specifier if s.operator == "==="), None)
    if got is None:
        raise LockError(f"the plan needs {text}, which the solved packages do not include", hint=_OTHER_PLACE)
    fits = got.version == exact if exact else need.specifier.contains(got.version, prereleases=True)
    if not fits:
        raise LockError(f"the plan needs {text}; the solver chose {got.version}", hint=_OTHER_PLACE)
