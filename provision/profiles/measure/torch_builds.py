"""Measures torch on the default index: CUDA from torch/version.py, kernels from its list of architectures."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterable, Sequence
from typing import Any

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from provision.index.bounded_archive import MOST_LIBRARY, read_member
from provision.index.read_architectures_from_stream import from_words, machine_code, read_fatbins
from provision.index.remote_wheels import member

from ...model import TORCH_COMPANIONS
from . import evaluate_wheel_requirements as rq
from .cached_wheel_facts import (
    Documents,
    Reader,
    WheelFile,
    nothing_more,
    number,
    pythons,
    releases,
    representative,
    row_of,
)

OLDEST = "1.12"
SMALL = 2 << 20
DEEP = 512 << 20

_ARCH_LIST = re.compile(rb"(?:(?:sm|compute)_\d+[af]?)(?: (?:sm|compute)_\d+[af]?)+")
_GLIBC = re.compile(rb"GLIBC_(2\.\d+)\0")


def measure(wheel: zipfile.ZipFile) -> dict[str, Any]:
    """Return CUDA release, kernels, and the glibc of the symbols in torch's Python library.

    Raise ValueError if the wheel does not state its CUDA, or lacks code for a stated architecture.
    """
    text = read_member(wheel, "torch/version.py", "the wheel").decode()
    cuda = re.search(r"^cuda(?:: [^=]+)? = '([\d.]+)'", text, re.MULTILINE)
    if not cuda and not re.search(r"^cuda(?:: [^=]+)? = None", text, re.MULTILINE):
        raise ValueError("torch/version.py does not state its CUDA version")
    library = member(wheel, r"torch/lib/libtorch_python\.so")
    facts: dict[str, Any] = {"cuda": cuda[1] if cuda else None, "kernels": "", "glibc": None}
    if cuda and library:
        data = read_member(wheel, library, "the wheel", MOST_LIBRARY)
        lists = {m.decode() for m in _ARCH_LIST.findall(data)}
        if len(lists) != 1:
            raise ValueError(f"{library} has {len(lists)} lists of architectures")
        words = lists.pop().split()
        _confirm(wheel, words)
        facts["kernels"] = from_words(words)
        facts["glibc"] = max((_find_glibc(data), *_find_small_glibcs(wheel)), key=number)
    return facts


def _confirm(wheel: zipfile.ZipFile, words: list[str]) -> None:
    """Raise ValueError unless the fat binaries of libtorch_cuda hold code for all that torch says it
    was compiled for. Files differ in what they are compiled for, so it is read until all were seen."""
    wanted = machine_code(words)
    seen: frozenset[tuple[int, int]] = frozenset()
    for name in sorted(
        n for n in wheel.namelist() if re.fullmatch(r"torch/lib/libtorch_cuda(_c\w+)?\.so", n)
    ):
        with wheel.open(name) as file:
            seen |= read_fatbins(file, enough=1 << 20, budget=DEEP, until=wanted - seen).kinds
        if wanted <= seen:
            return
    missing = " ".join(f"sm_{arch}" for _, arch in sorted(wanted - seen))
    raise ValueError(
        f"torch names {missing}, but the first {DEEP >> 20} MiB of its CUDA library contain no code for this"
    )


def _find_glibc(library: bytes) -> str:
    """Return the newest glibc whose symbols a library needs, or "0"."""
    return max((g.decode() for g in _GLIBC.findall(library)), key=number, default="0")


def _find_small_glibcs(wheel: zipfile.ZipFile) -> list[str]:
    """Return the glibc of the other libraries that are small enough to be read whole (libgomp, libc10, ...)."""
    names = [i.filename for i in wheel.infolist() if i.file_size < SMALL]
    return [
        _find_glibc(read_member(wheel, n, "the wheel", MOST_LIBRARY))
        for n in names
        if re.fullmatch(r"torch/lib/lib[^/]*\.so[^/]*", n)
    ]


def torch_rows(reader: Reader, documents: Documents) -> list[dict[str, Any]]:
    """Return one row per torch release and platform of the default index.

    The cuDNN of builds that are linked with it comes from the table `tested`.
    """
    tested = documents.get("tested", ())
    builds = reader.builds("torch", OLDEST)
    facts = reader.all_facts((representative(m) for _, _, m in builds), "torch", measure)
    companions = _read_companions(reader)
    rows = []
    for version, platform, wheels in builds:
        fact = facts[representative(wheels)]
        if fact:
            rows.append(_make_row(reader, (version, platform, wheels), fact, companions, tested))
    return rows


def _make_row(
    reader: Reader,
    build: tuple[Version, str, list[WheelFile]],
    fact: dict[str, Any],
    companions: dict[str, list[tuple[Version, SpecifierSet | None]]],
    tested: Sequence[dict[str, Any]],
) -> dict[str, Any]:
    version, platform, wheels = build
    row = row_of(version, platform, wheels, fact)
    if fact["cuda"]:
        requires = gpu_requirements(reader, fact["requires"], platform, pythons(wheels))
        row |= {"cuda": fact["cuda"], "kernels": fact["kernels"]}
        if requires:
            row["requires"] = requires
        if missing := rq.unresolvable(reader, fact["requires"], platform, pythons(wheels)):
            row["unresolvable"] = missing
        if cudnn := rq.cudnn_specifier(requires) or rq.documented(tested, version, fact["cuda"]):
            row["cudnn"] = cudnn
    if with_it := [
        f"{name}=={v}" for name in TORCH_COMPANIONS if (v := companion_for(version, companions[name]))
    ]:
        row["companions"] = with_it
    return row


def gpu_requirements(reader: Reader, lines: Iterable[str], platform: str, minors: Sequence[str]) -> list[str]:
    """Return a build's GPU requirements. Those of the meta package cuda-toolkit are written out too."""
    out = []
    for requirement, where in rq.required(lines, platform, minors):
        if not rq.GPU_NAMES.fullmatch(requirement.name):
            continue
        out.append(rq.written(requirement, where, minors))
        if requirement.name == "cuda-toolkit":
            out += _expand_toolkit(reader, requirement, platform, where, minors)
    return sorted(dict.fromkeys(out))


def _expand_toolkit(
    reader: Reader, wanted: Requirement, platform: str, where: Sequence[str], minors: Sequence[str]
) -> list[str]:
    fitting = [w for w in reader.wheels("cuda-toolkit") if rq.allows(wanted.specifier, str(w.version))]
    fact = fitting and reader.facts(max(fitting, key=lambda w: w.version), "metadata", nothing_more)
    if not fact:
        reader.problem(f"{wanted}: the meta package is not on the index")
        return []
    required = rq.required(fact["requires"], platform, where, sorted(wanted.extras))
    return [rq.written(r, where, minors) for r, _ in required]


def _read_companions(reader: Reader) -> dict[str, list[tuple[Version, SpecifierSet | None]]]:
    """Return each companion's releases, newest first, with the torch that they require (None: any)."""
    companions = {}
    for name in TORCH_COMPANIONS:
        one = {v: representative(ws) for v, ws in releases(reader.wheels(name), "0.12").items()}
        facts = reader.all_facts(one.values(), "metadata", nothing_more)
        companions[name] = [(v, _find_torch(fact["requires"])) for v, w in one.items() if (fact := facts[w])]
    return companions


def _find_torch(lines: Iterable[str]) -> SpecifierSet | None:
    for line in lines:
        requirement = rq.parse(line)
        if requirement and requirement.name == "torch":
            return requirement.specifier or None
    return None


def companion_for(
    torch: Version, candidates: Iterable[tuple[Version, SpecifierSet | None]]
) -> Version | None:
    """Return the newest companion made for a torch.

    A companion that requires no torch matches only the torch of its own minor version.
    """
    for version, wanted in candidates:
        if version.is_prerelease:
            continue
        if wanted is None:
            if version.release[:2] == torch.release[:2]:
                return version
        elif wanted.contains(str(torch), prereleases=True):
            return version
    return None
