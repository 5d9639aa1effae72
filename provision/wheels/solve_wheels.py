"""Solves a plan's pins with uv, for one Python and platform, into a lock.

uv chooses all other packages. The plan's choices are checked afterwards. So a CUDA plan never ends in a CPU wheel,
and no environment gets two cuDNN packages.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from packaging.utils import canonicalize_name

from ..errors import LockError
from ..index.http import Http
from ..index.wheel_folders import expand_address, find_links
from ..model import (
    PROJECT_FRAMEWORKS,
    Event,
    Lock,
    LockedPackage,
    PackageSources,
    Plan,
    RequirementLine,
    TransitiveFrameworks,
)
from ..system import grants, scratch_folders
from ..system.redaction import redact
from .allowed_source_builds import SourceBuilds, describe_build, source_builds
from .ask_uv import Ask, only_files
from .assert_planned import assert_hashes, assert_is_plan, assert_no_other_framework, named_for_cpu
from .index_of_each_file import FileIndexes, drop_pages
from .pylock import file_name, is_source
from .read_source_archives import SourceArchive
from .remembered_source_packages import digest_question
from .uv_solution import Requirers, parse_annotations, parse_pylock, parse_versions


@dataclasses.dataclass(frozen=True, kw_only=True)
class SolveOptions:
    """The inputs of a solve beside the plan and its sources.

    `needs` are the requirements of a project. `prefer` are versions to keep if possible. `elsewhere` are packages of
    another manager. `builds` decides what may be built from source. `python` is the interpreter that starts uv, of any
    version.
    """

    needs: Sequence[RequirementLine] = ()
    prefer: Mapping[str, str] = dataclasses.field(default_factory=dict)
    elsewhere: Collection[str] = ()
    builds: SourceBuilds | None = None
    python: str | None = None


def lock(
    plan: Plan, sources: PackageSources, emit: Callable[[Event], None], options: SolveOptions | None = None
) -> Lock:
    """Solve a plan's pins, and a project's needs, into a lock. Raises LockError.

    Its reasons: an index does not answer (`unreachable`), the packages conflict (`contradiction`), a package has no
    wheel (`no_wheel`), a package requires another framework (`brought`), or the solution differs from the plan.
    """
    options = options or SolveOptions()
    emit(Event(kind="start", stage="lock", text="solving the packages of the plan"))
    with scratch_folders.scratch("lock") as scratch:
        builds, needs = options.builds or source_builds(sources, emit), options.needs
        ask = Ask(scratch, plan, sources, options.python, tuple(needs), builds)
        pins = _list_pins(plan, sources)
        question = digest_question(plan, pins, needs, sources)
        builds.recall(question, plan)
        packages, solved = _solve(ask, pins, options, emit)
    packages = _add_sizes(drop_pages(packages, sources), sources)
    assert_no_other_framework(plan, packages, {*options.elsewhere, *named_for_cpu(plan, needs)})
    assert_is_plan(plan, packages, sources)
    assert_hashes(needs, packages)
    described = {p: _describe(p, builds, ask) for p in packages if is_source(p)}
    for package, archive in described.values():
        emit(describe_build(package, archive, plan))
    packages = tuple(described[p][0] if p in described else p for p in packages)
    builds.remember(question, described, needs)
    emit(Event(kind="done", stage="lock", text=f"{len(packages)} packages", done=len(packages)))
    requirers = Requirers(lambda: ask.annotated(solved))
    return Lock(manager="venv", target=plan.target, plan=plan, packages=packages, required_by=requirers)


def _solve(
    ask: Ask, pins: list[str], options: SolveOptions, emit: Callable[[Event], None]
) -> tuple[tuple[LockedPackage, ...], str]:
    """Return the packages of a solution with their indexes, and uv's text of it. Raises LockError."""
    try:
        solved = _take_wheels(ask.solved(pins, options.prefer), ask, pins, options.prefer)
        return _add_indexes(parse_pylock(solved, ask.plan), ask, solved), solved
    finally:
        took = ", ".join(f"{s:.2f} s" for s in ask.seconds)
        emit(Event(kind="done", stage="lock", text=f"uv took {took}" if took else "uv was not run"))


def _take_wheels(solved: str, ask: Ask, pins: list[str], prefer: Mapping[str, str]) -> str:
    """Return a solution that uses existing wheels in place of source archives, if there is one.

    After a refusal for some releases of a package, all of its releases may come from source.
    """
    needless = ask.builds.with_wheels(parse_pylock(solved, ask.plan), ask.plan)
    if needless:
        with contextlib.suppress(LockError), ask.builds.forbidding(needless):
            return ask.solved(pins, prefer)
    return solved


def find_required_frameworks(
    plan: Plan, sources: PackageSources, needs: Sequence[RequirementLine], builds: SourceBuilds
) -> TransitiveFrameworks:
    """Return the frameworks that a project's needs require. `plan` has the Python and the platform.

    Raises LockError if the needs have no solution.
    """
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
    """Return the newest framework versions that a project's needs allow without pins, none newer than the plan's.

    Raises LockError if there are none.
    """
    loose = [f"{b.package_name}<={b.version}" for b in plan.builds]
    with scratch_folders.scratch("lock") as scratch:
        ask = Ask(scratch, plan, sources, None, tuple(needs), builds)
        text = ask.compiled(ask.source([*loose, *plan.packages]), "requirements.txt")
    pins = (re.match(r"([A-Za-z0-9._-]+)==([^\s;]+)", row) for row in text.splitlines())
    # without labels ("2.13.0+cpu"), which <= does not allow
    versions: dict[str, str] = {canonicalize_name(m[1]): m[2].partition("+")[0] for m in pins if m}
    return {b.framework: versions[b.package_name] for b in plan.builds if b.package_name in versions}


def _describe(
    package: LockedPackage, builds: SourceBuilds, ask: Ask
) -> tuple[LockedPackage, SourceArchive | None]:
    """Return a source archive with the requirements that it was solved with, and its description."""
    if builds.stated is None:
        return package, None
    archive = builds.stated.archive(package) or builds.stated.archives.describe([package]).get(package)
    return builds.stated.recorded(package, ask.needs, ask.plan), archive


def _list_pins(plan: Plan, sources: PackageSources) -> list[str]:
    pins = list(dict.fromkeys(r for b in plan.builds for r in b.requirements))
    pins += [p for p in plan.packages if p not in pins]
    if not sources.offline or _has_wheel(sources, "pip"):
        pins.append("pip")
    return pins


def _has_wheel(sources: PackageSources, name: str) -> bool:
    folders = [p for p in sources.find_links if "://" not in p and Path(p).exists()]
    return any(w.name == name for w in find_links(folders))


# --- the solution --------------------------------------------------------------------------------


def _add_indexes(packages: Sequence[LockedPackage], ask: Ask, solved: str) -> tuple[LockedPackage, ...]:
    """Return the packages with their indexes, from their addresses or else from another run of uv."""
    of_index = parse_versions(solved)
    places = FileIndexes(ask.sources, ask.bound, only_wheels=only_files(ask.sources))
    indexes = places.indexes([p for p in packages if p.name in of_index])
    if indexes is None:
        indexes = parse_annotations(ask.annotated(solved))
    return tuple(
        dataclasses.replace(p, index=redact(indexes[p.name]) if p.name in indexes else None,
                            url=_get_address(p))
        for p in packages
    )  # fmt: skip


def _get_address(package: LockedPackage) -> str:
    """Return a package's address for the lock. Raises LockError if a variable contains the file's name."""
    url = redact(package.url)
    if not package.unhashed and grants.names_in(url.rpartition("/")[2]):
        raise LockError(
            f"the address of {package.name} has no file name: {url}",
            hint=f"add the file name after the variable: .../{file_name(package)}",
        )
    return url


def _add_sizes(packages: tuple[LockedPackage, ...], sources: PackageSources) -> tuple[LockedPackage, ...]:
    """Return the packages with sizes, which HEAD requests find if the index does not state them.

    The size of a download is shown before it starts. It stays unknown if a server refuses the request.
    """
    urls = {p.url: expand_address(p) for p in packages if p.size is None}
    unknown = [u for u in urls.values() if u.startswith("file:") or not sources.offline]
    if not unknown:
        return packages
    try:
        sizes = Http(tries=1, timeout=5.0).sizes(unknown)
    except LockError:
        sizes = {}
    return tuple(dataclasses.replace(p, size=p.size or sizes.get(urls.get(p.url, p.url))) for p in packages)
