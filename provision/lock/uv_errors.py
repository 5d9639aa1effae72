"""Reads what uv prints when it finds no solution. No other module reads uv's prose."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from ..environment.uv_install import hint_dependencies_alone, read_failure, write_project_key
from ..errors import LockError
from ..index import refusals
from ..index.places import list_indexes
from ..index.simple_api import project_files, version_of
from ..index.uv import LONGEST_SOLVE
from ..model import FRAMEWORKS, PROJECT_FOLDER, PackageSources, RequirementLine, name_few, requirement_name
from ..system import process
from ..system.redaction import clean, redact
from ..system.versions import exact, meets
from ..wheels.releases import SourceArchives

_REPOSITORY = re.compile(r"Failed to (?:\w+ and )?(?:build|download|resolve)[^`]*`([^`]*?)(git\+[^`\s]+)`")
_FETCHED = re.compile(r"/git(?:\.exe)? fetch [^`]*?'(\w+://[^'\s]+)'")
"""The fetch command in uv's output. For a repository that only another package requires, uv prints nothing else."""
_FILE = re.compile(r"Failed to (?:\w+ and )?(?:build|download|resolve)[^`]*`[^`]* @ (https?://[^`\s]+)`")
_PAGE = re.compile(r"Failed to read `--find-links` URL: (\S+)")
_ABSENT = re.compile(
    r"(?<![A-Za-z0-9._-])([A-Za-z0-9._-]+) was not found in the (?:package registry|provided package locations)"
)
_DISABLED = re.compile(r"Building source distributions(?: for `([^`]+)`)? is disabled")
_BUILD = re.compile(r"Failed to (?:\w+ and )?build `([^`]+)`")
_OTHER_PYTHONS = re.compile(
    r"(?<![A-Za-z0-9._-])([A-Za-z0-9._-]{1,200})(?:\[\S{1,200}\])?(?:[<>=!~]\S{0,200})? ha(?:s|ve) no wheels with a matching Python \w{1,20} tag"
)
"""A package that has wheels for other Pythons only, and no source archive."""
_NO_WHEEL = re.compile(r"Wheels are required for `([A-Za-z0-9._-]+)`")
_UNUSABLE = ("no", "usable", "wheels")
_RELEASE = re.compile(r"([A-Za-z0-9._-]{1,200})([<>=!~][^\s`]{1,200})?")
_VARIANT = re.compile(r"Package `([A-Za-z0-9._-]+)` resolved to a wheel variant")
_TABLE = re.compile(
    r"(?:Failed to parse variant metadata `|Failed to fetch: \S{1,500}/)([\w.+!-]{1,240}-variants\.json)"
)
_PLATFORM = re.compile(
    r"(?:(?<![A-Za-z0-9._-])([A-Za-z0-9._-]{1,200})==(\S{1,100}) has )?no wheels with a matching platform tag "
    r"\(e\.g\., `manylinux_2_(\d+)_"
)
_GLIBC = re.compile(r"`manylinux_2_(\d+)_")
_BOUND = r"[<>=!~]=?\d+(?:\.(?:\d+|\*))*"
_PYTHON = re.compile(rf"depends? on Python({_BOUND}(?:,{_BOUND})*)")


def explain(
    finished: process.Finished,
    sources: PackageSources,
    roots: Iterable[str],
    needs: Sequence[RequirementLine],
    archives: SourceArchives,
) -> LockError:
    """Return the error for a run of uv without a solution. `archives` knows the indexes of the packages."""
    log = clean("\n".join(x for x in finished.stderr.splitlines() if not x.startswith("DEBUG ")))
    if finished.timed_out:
        return LockError(
            f"solving the packages took longer than {LONGEST_SOLVE:.0f} s", log=log,
            hint="try again, or add bounds to the packages in the log above",
        )  # fmt: skip
    if stored := refusals.find_storage_failure(log):
        return LockError(stored.message, hint=stored.hint, log=log)
    if "Git operation failed" in log:
        if named := _REPOSITORY.search(log):
            whole = named[2].partition("#")[0]
            return _explain_repository(named[2], whole.rpartition("@")[0] or whole, needs, log)
        if fetched := _FETCHED.search(log):
            return _explain_repository(fetched[1], fetched[1].removesuffix(".git"), needs, log)
    if page := _PAGE.search(log):
        return LockError(
            f"the page of wheels {page[1]} cannot be read", log=log,
            unreachable=None if "404 Not Found" in log else page[1],
            hint="check the network and --find-links. If the page has no wheels for the selected framework release, "
            "request an older framework",
        )  # fmt: skip
    # first, because a build prints addresses and words of the network too
    if unbuilt := explain_unbuilt_need(log, needs):
        failure = read_failure(log)
        unbuilt.failed = failure.name if failure else None
        return unbuilt
    if (file := _FILE.search(log)) and (refusal := refusals.find_refusal(log)):
        hint = "check the address, and the network and the proxy"
        text = f"cannot read {file[1]}{_find_origin(file[1], needs)}: the server {refusal.words}"
        closed = refusal.cause not in ("missing", "withdrawn")
        return LockError(text, hint=hint, log=log, unreachable=file[1] if closed else None)
    configured = " or ".join(map(redact, filter(None, (sources.default, *sources.extra))))
    if refused := refusals.find_failure(log, configured=configured or None):
        return _explain_index(refused, sources, needs, log)
    if "No solution found" in log or "unsatisfiable" in log:
        return _no_solution(log, sources, [*roots, *(n.text for n in needs)], needs, archives)
    if (refused_build := _refused_build(log)) is not None:
        return LockError(f"{refused_build or 'a package'} was not built", log=log, unbuilt=refused_build)
    first = next((x.removeprefix("error: ") for x in log.splitlines() if x.startswith("error")), "")
    return LockError(
        f"the packages could not be solved: {first}", log=log, hint="correct the problem in the log above"
    )


def find_variant(log: str) -> str | None:
    """Return the first package of a solution whose wheel is a variant: uv cannot write it into pylock.toml."""
    match = _VARIANT.search(log)
    return match[1] if match else None


def find_table(log: str) -> str | None:
    """Return the file of a release's variants that uv cannot read."""
    match = _TABLE.search(log)
    return match[1] if match else None


def _explain_index(
    refused: refusals.UvFailure, sources: PackageSources, needs: Sequence[RequirementLine], log: str
) -> LockError:
    """Return the error for a request that failed, with the address of the project's index that it was sent to."""
    stated = [redact(n.index) for n in needs if n.index]  # no other index may have what these need
    named = (
        {i: i for i in stated}
        | {redact(sources.pytorch): "pytorch"}
        | {i: i for i in map(redact, sources.extra)}
    )
    kinds = (k for i, k in named.items() if i and (refused.address or "").startswith(i.rstrip("/")))
    return LockError(
        refused.message.removesuffix(" (pip)"),  # gpuenv itself asks for pip
        hint=refused.hint, log=log.rstrip().rpartition("\n")[2] if refused.index_unavailable else log,
        unreachable=next(kinds, "pypi") if refused.index_unavailable else None,
    )  # fmt: skip


def _explain_repository(address: str, bare: str, needs: Sequence[RequirementLine], log: str) -> LockError:
    """Return the error for a repository that git cannot fetch, with the line that names it. `bare` is in that line."""
    return LockError(
        f"git cannot fetch the repository {address}{_find_origin(bare, needs)}", log=log, unreachable=bare,
        hint="check the address, the network and your access to it",
    )  # fmt: skip


def _find_origin(address: str, needs: Sequence[RequirementLine]) -> str:
    """Return the line that names an address, in parentheses, or "" if none does."""
    return next((f" ({n.origin})" for n in needs if address in redact(n.text)), "")


def _no_solution(
    log: str,
    sources: PackageSources,
    roots: Sequence[str],
    needs: Sequence[RequirementLine],
    archives: SourceArchives,
) -> LockError:
    """Return the error for requirements that conflict, or that no index meets."""
    if absent := _ABSENT.search(log):
        return _explain_absent(absent[1], sources, needs, log, archives)
    named = tuple(n for n in dict.fromkeys(map(requirement_name, roots)) if n and is_named(n, log))
    lines = [f"{n.text} ({n.origin})" for n in needs if n.package in named]
    without = refusals.find_absent_package(log)
    holdings, releases, _ = _read_holdings(without, sources)
    old = _PLATFORM.search(plain := _clean_log(log))
    pin = _pin(without, [*roots, *(n.text for n in needs)])
    if pin and releases:
        message = f"{without} has no version {pin}; {_describe_nearest(Version(pin), releases)}"
        lines = [f"{n.text} ({n.origin})" for n in needs if _pin(without, [n.text])]
    elif holdings:
        message = f"no version of {without} meets all requirements: {'; '.join(holdings)}"
    elif old and old[1]:
        needed = min((int(n) for n in _GLIBC.findall(plain) if int(n) > int(old[3])), default=None)
        message = f"{old[1]} {old[2]} has no wheel for glibc 2.{old[3]}{f'; it needs glibc 2.{needed}' if needed else ''}"
    else:
        message = "the requirements conflict with each other"
    message += f": see {', '.join(lines[:5])}" if lines else ""
    hint = "relax one of the requirements in the log above"
    if old:
        hint = (
            f"the packages are for glibc 2.{old[3]}. If the machine has a newer one "
            "(`ldd --version`), name it: --glibc for one machine, `glibc` in the file, line or gpuenv.yaml of a --target"
        )
    pythons = tuple(dict.fromkeys(_PYTHON.findall(plain)))
    return LockError(
        message, log=make_readable(log), contradiction=True, no_wheel=find_missing_wheel(log, archives), named=named,
        pythons=pythons, hint=hint,
    )  # fmt: skip


def _explain_absent(
    name: str, sources: PackageSources, needs: Sequence[RequirementLine], log: str, archives: SourceArchives
) -> LockError:
    where = next((f" ({n.origin})" for n in needs if n.name == canonicalize_name(name)), "")
    message, hint, closed = f"the package {name}{where} was not found", None, None
    *_, unread = _read_holdings(name, sources)
    if unread:  # uv tells only some refusals, and this index may have the package
        message, hint, closed = f"{message}, and {unread.message}", unread.hint, unread.unreachable
    else:
        indexes = () if sources.offline or sources.no_index else list_indexes(sources)
        places = name_few(list(map(redact, (*indexes, *sources.find_links))))
        message += f" in {places}" if places else ""
    return LockError(
        message, unreachable=closed, absent=None if closed else str(canonicalize_name(name)),
        no_wheel=find_missing_wheel(log, archives),
        hint=hint or "check the name, --find-links, and the indexes that pip or uv is configured with",
    )  # fmt: skip


def _read_holdings(
    name: str | None, sources: PackageSources
) -> tuple[list[str], list[Version], LockError | None]:
    """Return a sentence for each index (its versions, or that it has none, or its error), the versions on the indexes
    (without prereleases if there are others), and the last error."""
    if name is None or sources.offline or sources.no_index:
        return [], [], None
    from ..index.downloads import add_credentials
    from ..index.http import Http

    http = Http(tries=1, timeout=10.0)
    sentences, every, unread = [], set[Version](), None
    for index in list_indexes(sources):
        try:
            files = project_files(http, add_credentials(index, ()), name)
        except LockError as error:
            unread = error
            sentences.append(error.message.rstrip("."))
            continue
        every |= {v for f in files if (v := version_of(f.name, name))}
        versions = sorted({v for f in files if f.name.endswith(".whl") and (v := version_of(f.name, name))})
        if not versions:
            held = f"no wheel of {name}"
        elif len(versions) == 1:
            held = f"only {name} {versions[0]}"
        else:
            held = f"{len(versions)} versions of {name}, {versions[0]} to {versions[-1]}"
        sentences.append(f"{redact(index)} has {held}")
    return sentences, [v for v in every if not v.is_prerelease] or [*every], unread


def _describe_nearest(pin: Version, releases: Sequence[Version]) -> str:
    """Return the newest of the releases before a version, and the oldest of those after it."""
    before = max((v for v in releases if v < pin), default=None)
    after = min((v for v in releases if v > pin), default=None)
    if before and after:
        return f"the nearest are {before} and {after}"
    return f"the newest is {before}" if before else f"the oldest is {after}"


def _pin(name: str | None, texts: Iterable[str]) -> str | None:
    """Return the one version of a package that a requirement allows, or None."""
    for text in texts:
        same = name and requirement_name(text) == canonicalize_name(name)
        if same and (pinned := exact(str(Requirement(text).specifier))):
            return pinned
    return None


def make_readable(log: str) -> str:
    """Return uv's reasons in words for a person: gpuenv's own project is "the request"."""
    text = re.sub(r"\bgpuenv-plan(?:==0)?\b", "the request", log)
    return text.replace("the request depends on", "the request has").replace(
        "your project's requirements are", "the request is"
    )


def first_reason(log: str) -> str | None:
    """Return the first of uv's reasons, on one line, or None."""
    text = " ".join(re.sub(r"[^\x20-\x7e]", " ", make_readable(log)).split())
    because = re.search(r"Because (.{1,240}?)(?:, we can conclude|\.(?: |$)|$)", text)
    return because[1] if because else None


def is_named(name: str, log: str) -> bool:
    """Return whether uv's reasons name a package."""
    written = re.escape(name).replace(r"\-", "[-_.]+")
    return (
        re.search(rf"(?<![A-Za-z0-9._-]){written}(?![A-Za-z0-9_.-]*[A-Za-z0-9_-])", log, re.IGNORECASE)
        is not None
    )


def find_missing_wheel(log: str, archives: SourceArchives) -> str | None:
    """Return the package without a wheel that a refusal names, or None if it names none.

    uv also reports a withdrawn release as one without usable wheels, and proposes a build. That reason is ignored.
    """
    text = _clean_log(log)
    unusable = find_unusable(text)
    for name in dict.fromkeys(str(canonicalize_name(n)) for n in _NO_WHEEL.findall(text)):
        if not _are_withdrawn(unusable.get(name, ()), archives.list_yanked(name)):
            return name
    match = _OTHER_PYTHONS.search(text)
    return str(canonicalize_name(match[1])) if match else None


def find_unusable(log: str) -> dict[str, tuple[str, ...]]:
    """Return the bounds of the releases without usable wheels in a refusal, by package. "" means any release.

    "all of: fire==1.0 fire>=1.2,<2 have no usable wheels" has two.
    """
    unusable: dict[str, list[str]] = {}
    words = log.split()
    for at in range(2, len(words) - 2):
        if words[at - 1] not in ("has", "have") or not words[at + 2].startswith(_UNUSABLE[2]):
            continue
        if (words[at], words[at + 1]) == _UNUSABLE[:2]:
            for name, bounds in _releases_before(words, at - 1):
                unusable.setdefault(name, []).append(bounds)
    return {name: tuple(reversed(bounds)) for name, bounds in unusable.items()}


def _releases_before(words: Sequence[str], end: int) -> Iterator[tuple[str, str]]:
    """Yield name and bounds of the releases of one package that come last before a word."""
    package = ""
    for at in range(end - 1, -1, -1):
        match = _RELEASE.fullmatch(words[at])
        name = str(canonicalize_name(match[1])) if match else ""
        if match is None or (package and name != package):
            return
        package = name
        yield name, match[2] or ""


def _are_withdrawn(bounds: Iterable[str], releases: Mapping[Version, bool]) -> bool:
    """Return whether all releases within the bounds are withdrawn.

    `releases` are those of the index, with True for withdrawn ones.
    """
    of_each = [[gone for v, gone in releases.items() if meets(str(v), text)] for text in bounds]
    return bool(of_each) and all(withdrawn and all(withdrawn) for withdrawn in of_each)


def _refused_build(log: str) -> str | None:
    """Return the package that uv refused to build: "name @ address", "name", or "" if uv does not know its name."""
    text = _clean_log(log)
    if not (disabled := _DISABLED.search(text)):
        return None
    named = _BUILD.search(text)
    same = named and disabled[1] and named[1].partition(" ")[0] == disabled[1]
    return named[1] if named and same else disabled[1] or ""


def _clean_log(log: str) -> str:
    return " ".join(log.split())


# --- sources that cannot be built ------------------------------------------------------------------

_NEEDS_TO_BUILD = re.compile(
    r"`([^`\s]+)` depends on `([^`\s]+)`, but doesn't declare it as a build dependency"
)
_IMPORTED = re.compile(rf"ModuleNotFoundError: No module named '({'|'.join(FRAMEWORKS)})'")


def explain_unbuilt_need(log: str, needs: Sequence[RequirementLine]) -> LockError | None:
    """Return the error of a solve in which a source could not be built, or None."""
    if needed := _find_needed_to_build(log, needs):
        return _explain_needed_framework(*needed, needs, log)
    failure = read_failure(log)
    if failure is None:
        return None
    folders = [need for need in needs if need.local]
    named = [need for need in needs if need.name and need.package == failure.name]
    only = folders if not failure.name and len(folders) == 1 else []
    need = next(iter(named or only), None)
    if need is None:
        return LockError(f"{failure.name or 'a source package'} could not be built: {failure.reason}", log=log,
                         hint="request releases that have wheels, or remove it")  # fmt: skip
    if need.origin == PROJECT_FOLDER and need.local:
        name = need.name or Path(need.local).name
        return LockError(f"{name} could not be built: {failure.reason}", log=log,
                         hint=hint_dependencies_alone(need.local))  # fmt: skip
    shown = need.name or clean(need.text)
    return LockError(f"{shown} ({need.origin}) could not be built: {failure.reason}", log=log,
                     hint=f"correct its build, or remove it from {need.origin.partition(' line ')[0]}")  # fmt: skip


def _find_needed_to_build(log: str, needs: Iterable[RequirementLine]) -> tuple[str, str] | None:
    """Return the source whose build fails, and the framework that it imports.

    uv does not name an editable folder. It is the only folder among the needs.
    """
    if named := _NEEDS_TO_BUILD.search(" ".join(log.split())):
        return str(canonicalize_name(named[1].partition("@")[0])), named[2]
    imported = _IMPORTED.search(log)
    folders = [n for n in needs if n.local]
    if imported is None or len(folders) != 1:
        return None
    return folders[0].name or Path(folders[0].local or "").name, imported[1]


def _explain_needed_framework(
    name: str, framework: str, needs: Sequence[RequirementLine], log: str
) -> LockError:
    """Return the error for a source whose build imports a framework, which only an environment with the framework can
    build."""
    need = next(
        (
            n
            for n in needs
            if name in (n.name, Path(n.local or "").name) or f"`{name} @ file://{n.local}`" in log
        ),
        None,
    )
    what, left_out = name, f"remove {name}"
    if need and need.local and framework not in FRAMEWORKS:
        return LockError(f"the build of {name} ({need.origin}) imports {framework}", log=log,
                         hint=f"in its pyproject.toml, add what has {framework} to requires of [build-system]")  # fmt: skip
    if need and need.local:
        what = f"{'-e ' if need.editable else ''}{shlex.quote(need.local)}"
        if need.origin == PROJECT_FOLDER:
            left_out = f"write {write_project_key(need.local)} into gpuenv.yaml"
    elif need and (need.vcs or " @ " in need.text):
        what = shlex.quote(need.text)
    return LockError(
        f"{name} has no wheel for this Python and platform, and the build of its source imports {framework}", log=log,
        hint=f"add a page of wheels with --find-links ADDRESS. Or {left_out}, and build it afterwards: "
        f"gpuenv run -- python -m pip install --no-build-isolation {what}",
    )  # fmt: skip
