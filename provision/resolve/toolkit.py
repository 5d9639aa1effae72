"""Choose the release of NVIDIA's CUDA toolkit for a plan, and plan requested parts of it in its versions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from ..model import Build, CudaCompiler, RejectionReason, ToolkitRelease, requirement_name
from ..model.values import Value
from ..system.versions import major, meets, minor, overlap, version
from .question import Question

NVCC = "nvcc"
"""The word of gpuenv for the compiler and what compiling needs."""

_META = "cuda-toolkit"
_SUFFIX = re.compile(r"-cu\d+$")


class RequestedPart(Value):
    """A requested part: the requirement, and its place in a file, or None for an option."""

    need: Requirement
    origin: str | None = None

    @property
    def name(self) -> str:
        """The name in normal form."""
        return canonicalize_name(self.need.name)

    @property
    def is_nvcc(self) -> bool:
        """Whether an option requests the compiler as `nvcc`."""
        return self.origin is None and self.name == NVCC

    def __str__(self) -> str:
        return f"{self.need} ({self.origin})" if self.origin else str(self.need)


def toolkit_packages(question: Question, chosen: list[Build]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the lines for the parts of the toolkit that options and files name, and notes on what changed."""
    parts = list(_requested_parts(question))
    if not parts or question.request.device != "cuda":
        return (), tuple(f"{NVCC} is left out: the environment is for the CPU" for p in parts if p.is_nvcc)
    release = next(toolkits(question, chosen), None)
    if release is None:
        return (), tuple(f"{p} is left out: no CUDA toolkit fits the plan" for p in parts)
    brought = {requirement_name(r) for b in chosen for r in b.requires}
    lines: list[str] = []
    notes = []
    for part in parts:
        part_lines = list(_list_lines(question, part, release))
        same = (n for n in map(Requirement, part_lines) if _strip_major(n.name) == _strip_major(part.name))
        instead = next(same, None)
        if part.origin and not part.need.extras and instead and instead.name in brought:
            continue  # another note states that the plan selects it
        lines += part_lines
        if not part_lines:
            notes.append(f"{part} is left out: CUDA {release.version} has no such wheel")
        elif part.is_nvcc:
            names = ", ".join(Requirement(line).name for line in part_lines)
            notes.append(f"nvcc is from CUDA {release.version}: {names}")
        elif instead and (part.origin or not _is_same(instead, part)):
            notes.append(f"{part} is replaced by {instead} from CUDA {release.version}")
    return tuple(dict.fromkeys(lines)), tuple(notes)


def is_toolkit_part(question: Question, need: Requirement) -> bool:
    """Return whether `toolkit_packages` has the line for a package that an option names."""
    name = canonicalize_name(need.name)
    if need.url:
        return False
    if question.request.device != "cuda":
        return name == NVCC
    return name in (NVCC, _META) or _strip_major(name) in _list_names(question.profiles.toolkits)


def compiler_of(question: Question, cuda: str) -> CudaCompiler | None:
    """Return the profile row of nvcc of a CUDA release, or None."""
    return next((row for row in question.profiles.compilers if row.cuda == minor(cuda)), None)


def asks_for_nvcc(question: Question) -> bool:
    """Return whether an option requests the compiler as `nvcc`."""
    needs = map(Requirement, question.request.packages)
    return any(canonicalize_name(need.name) == NVCC and not need.url for need in needs)


def compiler_objections(question: Question, build: Build) -> Iterator[RejectionReason]:
    """Yield an objection to a build if nvcc is requested and no wheel has it for the build's CUDA."""
    if asks_for_nvcc(question):
        row = compiler_of(question, build.cuda or "")
        if row is None or not row.extras:
            yield RejectionReason(
                "not_requested",
                f"no wheel has nvcc for CUDA {build.cuda}, which --with nvcc requests",
            )


def _requested_parts(question: Question) -> Iterator[RequestedPart]:
    for text in question.request.packages:
        need = Requirement(text)
        if is_toolkit_part(question, need):
            yield RequestedPart(need=need)
    for line in question.request.stack:
        need = Requirement(line.text)
        name = canonicalize_name(need.name)
        if name == _META or _strip_major(name) in _list_names(question.profiles.toolkits):
            yield RequestedPart(need=need, origin=line.origin)


def _strip_major(name: str) -> str:
    """Return a part's name without the CUDA major at its end, which wheels before CUDA 13 have."""
    return _SUFFIX.sub("", name)


@cache
def _list_names(toolkits: tuple[ToolkitRelease, ...]) -> frozenset[str]:
    texts = {text for row in toolkits for part in row.parts for text in part.split(" ")[1:]}
    return frozenset(_strip_major(requirement_name(text)) for text in texts)


def _list_lines(question: Question, part: RequestedPart, release: ToolkitRelease) -> Iterator[str]:
    """Yield the lines for one part in a toolkit release, or none if it has no such part."""
    row = compiler_of(question, release.version)
    compiler = row.extras if row else ()
    if part.is_nvcc:
        yield from _list_extras(release, compiler)
    elif part.name == _META:
        extras = f"[{','.join(sorted(part.need.extras))}]" if part.need.extras else ""
        yield f"{_META}{extras}=={release.version}"
    else:
        for package, (extra, _) in toolkit_parts(release).items():
            if _strip_major(package) == _strip_major(part.name):
                # nvcc of one CUDA is incompatible with the parts of another.
                yield from _list_extras(release, compiler if extra in compiler else (extra,))


def _list_extras(release: ToolkitRelease, extras: tuple[str, ...]) -> Iterator[str]:
    """Yield the requirements of some extras of `cuda-toolkit`."""
    for part in release.parts:
        extra, *texts = part.split(" ")
        if extra in extras:
            yield from texts


def _is_same(line: Requirement, part: RequestedPart) -> bool:
    """Return whether a line is what an option requests."""
    pinned = next((s.version.removesuffix(".*") for s in line.specifier if s.operator == "=="), None)
    return part.name == line.name and (pinned is None or meets(pinned, str(part.need.specifier)))


# --- the releases of the toolkit ----------------------------------------------------------


def toolkits(question: Question, chosen: list[Build]) -> Iterator[ToolkitRelease]:
    """Yield the toolkit releases that meet the bounds of all builds.

    First are the newest of the CUDA minor that the newest build was made with, because libraries support
    programs of an older minor. Then come the nearest later minors. A wheel can require more than the release
    that it was built with has.
    """
    built = max((b.cuda for b in chosen if b.cuda), key=version)
    minors: dict[str, list[ToolkitRelease]] = {}
    for release in question.profiles.toolkits:
        cuda = minor(release.version)
        if major(cuda) == major(built) and version(cuda) >= version(built):
            minors.setdefault(cuda, []).append(release)
    for cuda in sorted(minors, key=version):
        for release in sorted(minors[cuda], key=lambda r: version(r.version), reverse=True):
            parts = toolkit_parts(release)
            needs = [pair for b in chosen for pair in bounds_of(b.requires).items() if pair[0] in parts]
            if all(overlap(bounds, parts[name][1]) for name, bounds in needs):
                yield release


@cache
def toolkit_parts(toolkit: ToolkitRelease) -> dict[str, tuple[str, str]]:
    """Return for each package the extra with the fewest other packages, and the bounds."""
    parts: dict[str, tuple[str, str]] = {}
    for part in sorted(toolkit.parts, key=lambda p: p.count(" ")):
        extra, *texts = part.split(" ")
        for need in map(Requirement, texts):
            parts.setdefault(need.name, (extra, str(need.specifier)))
    return parts


@cache
def bounds_of(requires: tuple[str, ...]) -> dict[str, str]:
    """Return the bounds of each package."""
    return {n.name: str(n.specifier) for n in map(Requirement, requires)}
