"""Measures JAX on the default index: jax, jaxlib, and the CUDA plugin with the kernels."""

from __future__ import annotations

import re
import struct
import zipfile
from collections.abc import Iterable
from typing import Any

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from provision import model
from provision.index.bounded_archive import MOST_LIBRARY, read_member
from provision.index.read_architectures_from_stream import from_binaries, read_fatbins
from provision.index.remote_wheels import member

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
    yanked,
)

OLDEST = "0.4.14"
EXTRAS = ("cuda13", "cuda12")
MINORS = tuple(f"3.{n}" for n in range(8, 20))


def measure(wheel: zipfile.ZipFile) -> dict[str, Any]:
    """Return the plugin's CUDA (a constant in the code of _versions.so) and the kernels of its _prng.so."""
    versions, prng = member(wheel, r".*/_versions\.so"), member(wheel, r".*/_prng\.so")
    if not versions or not prng:
        raise ValueError("the plugin has no _versions.so or no _prng.so")
    major = re.search(r"cuda(\d+)", versions)
    assert major, versions
    code = read_member(wheel, versions, "the wheel", MOST_LIBRARY)
    built = cuda_in_code(code, int(major[1]))
    if len(built) != 1:
        raise ValueError(f"{versions} names {len(built)} CUDA releases: {' '.join(sorted(built))}")
    with wheel.open(prng) as file:
        binaries = read_fatbins(file, enough=4, budget=1 << 26)
    if not binaries.fatbins:
        raise ValueError(f"{prng} has no fat binary")
    return {"cuda": built.pop(), "kernels": from_binaries(binaries), "numbers": cudnn_numbers(code)}


def cuda_in_code(library: bytes, major: int) -> set[str]:
    """Return the CUDA releases ("12.9") that the code of a library loads as a constant (CUDART_VERSION, 12090).

    x86-64 has the constant behind "mov r32, imm32", AArch64 in "movz w, imm16".
    """
    cuda = set()
    arm = library[18:20] == b"\xb7\x00"
    for minor in range(10):
        value = major * 1000 + minor * 10
        if arm:
            words = {struct.pack("<I", 0x52800000 | value << 5 | register) for register in range(31)}
            hit = any(at % 4 == 0 for word in words for at in _find_places(library, word))
        else:
            hit = any(
                library[at - 1] & 0xF8 == 0xB8 for at in _find_places(library, struct.pack("<I", value)) if at
            )
        if hit:
            cuda.add(f"{major}.{minor}")
    return cuda


def cudnn_numbers(library: bytes) -> list[int]:
    """Return constants in x86-64 code that could be CUDNN_VERSION (8904 is 8.9.4, 91002 is 9.10.2)."""
    if library[18:20] != b"\x3e\x00":
        return []
    loads = re.finditer(rb"[\xb8-\xbf](..[\x00\x01]\x00)", library, re.DOTALL)
    values = {struct.unpack("<I", m[1])[0] for m in loads}
    return sorted(v for v in values if 8500 <= v < 9000 or 90000 <= v < 100000)


def cudnn_major(reader: Reader, package: str, numbers: Iterable[int]) -> int | None:
    """Return the cuDNN major version that code was built with.

    It is the constant that is a release on the index. Return None if constants of several major versions are.
    """
    released = {w.version.release[:3] for w in reader.wheels(package)}
    majors = set()
    for value in numbers:
        scale = 1000 if value < 10000 else 10000
        if (value // scale, value % scale // 100, value % 100) in released:
            majors.add(value // scale)
    return majors.pop() if len(majors) == 1 else None


def _find_places(data: bytes, part: bytes) -> Iterable[int]:
    at = data.find(part)
    while at >= 0:
        yield at
        at = data.find(part, at + 1)


def jax_rows(reader: Reader, _: Documents) -> list[dict[str, Any]]:
    """Return a CPU row per JAX release and platform, and one per CUDA extra and Linux platform."""
    jaxes = releases(reader.wheels("jax"), OLDEST)
    jaxes = {v: w for v, w in jaxes.items() if any(reader.takes(v, p) for p in model.PLATFORMS)}
    facts = reader.all_facts((representative(w) for w in jaxes.values()), "metadata", nothing_more)
    if reader.only is None and not reader.known:
        _read_ahead(reader)
    rows = []
    for version, wheels in jaxes.items():
        fact = facts[representative(wheels)]
        if not fact:
            continue
        offered = [e for e in EXTRAS if any(_is_of_extra(line, e) for line in fact["requires"])]
        for platform in (p for p in model.PLATFORMS if reader.takes(version, p)):
            cuda_rows = [_make_cuda_row(reader, version, platform, extra, fact) for extra in offered]
            mark = {"yanked": "yes"} if yanked(tuple(wheels)) else {}
            rows += [r | mark for r in (*cuda_rows, _make_cpu_row(reader, version, platform, fact)) if r]
    return rows


def _read_ahead(reader: Reader) -> None:
    """Read every plugin's wheel at once rather than one after the other."""
    builds = [
        [w for w in wheels if w.platform == platform]
        for extra in EXTRAS
        for wheels in releases(reader.wheels(f"jax-{extra}-plugin"), OLDEST).values()
        for platform in model.PLATFORMS
    ]
    reader.all_facts((representative(b) for b in builds if b), "jax-plugin", measure)


def _is_of_extra(line: str, extra: str) -> bool:
    return bool(re.search(rf"""extra\s*==\s*['"]{extra}['"]""", line))


def _list_wanted(jax: dict[str, Any], platform: str, minors: list[str], extra: str) -> dict[str, Requirement]:
    """Return the requirements of jax[extra], one per project with all its specifiers joined."""
    joined: dict[str, Requirement] = {}
    for requirement, _ in rq.required(jax["requires"], platform, minors, ("", extra)):
        known = joined.setdefault(requirement.name, requirement)
        known.specifier &= requirement.specifier
    return joined


def _list_minors(jax: dict[str, Any]) -> list[str]:
    return [m for m in MINORS if rq.allows(SpecifierSet(jax["requires_python"] or ""), f"{m}.20")]


def _make_cpu_row(
    reader: Reader, version: Version, platform: str, jax: dict[str, Any]
) -> dict[str, Any] | None:
    wanted = _list_wanted(jax, platform, _list_minors(jax), "cpu")
    jaxlib = _find_newest(reader, "jaxlib", wanted.get("jaxlib"), platform)
    return _join_row(version, platform, jax, [jaxlib]) if jaxlib else None


def _make_cuda_row(
    reader: Reader, version: Version, platform: str, extra: str, jax: dict[str, Any]
) -> dict[str, Any] | None:
    wanted = _list_wanted(jax, platform, _list_minors(jax), extra)
    jaxlib = _find_newest(reader, "jaxlib", wanted.get("jaxlib"), platform)
    plugin = _find_newest(reader, f"jax-{extra}-plugin", wanted.get(f"jax-{extra}-plugin"), platform)
    if not jaxlib or not plugin:
        return None
    exact = Requirement(f"jax-{extra}-pjrt=={plugin[0].version}")
    pjrt = _find_newest(reader, exact.name, exact, platform)
    fact = reader.facts(representative(plugin), "jax-plugin", measure)
    if not pjrt:
        reader.problem(f"jax {version} {extra} {platform}: {exact} is not on the index")
    row = _join_row(version, platform, jax, [jaxlib, plugin, pjrt]) if pjrt and fact else None
    if not row or not fact:
        return None
    minors = row["python"].split()
    gpu = rq.required(fact["requires"], platform, minors, ("with-cuda",))
    gpu += [(r, tuple(minors)) for r in wanted.values()]
    cuda = extra.replace("cuda", "cu")
    gpu = _limit_cudnn(
        gpu,
        f"nvidia-cudnn-{cuda}",
        cudnn_major(reader, f"nvidia-cudnn-{cuda}", _read_numbers(reader, plugin)),
    )
    nvidia = sorted({rq.written(r, where, minors) for r, where in gpu if r.name.startswith("nvidia-")})
    row["requires"] += nvidia
    row |= {"cuda": fact["cuda"], "kernels": fact["kernels"]}
    row |= {"sha256": fact["sha256"], "bytes": str(fact["bytes"])}
    if cudnn := rq.cudnn_specifier(nvidia):
        row["cudnn"] = cudnn
    if missing := rq.unresolvable(reader, nvidia, platform, minors):
        row["unresolvable"] = missing
    return row


def _read_numbers(reader: Reader, plugin: list[WheelFile]) -> list[int]:
    """Return the constants of a plugin release, from its x86-64 wheel."""
    same = [
        w
        for w in reader.wheels(_name_project(plugin[0]))
        if w.version == plugin[0].version and w.platform == "linux-x86_64"
    ]
    fact = reader.facts(representative(same), "jax-plugin", measure) if same else None
    return fact["numbers"] if fact else []


def _limit_cudnn(
    gpu: list[tuple[Requirement, tuple[str, ...]]], package: str, major: int | None
) -> list[tuple[Requirement, tuple[str, ...]]]:
    """Return the requirements with cuDNN limited to the major version it was built with.

    Wheels of early 2024 have no upper bound, but load only libcudnn.so.8.
    """
    for requirement, _ in gpu:
        open_ended = not any(s.operator in ("<", "<=", "==") for s in requirement.specifier)
        if requirement.name == package and major is not None and open_ended:
            requirement.specifier &= SpecifierSet(f"<{major + 1}")
    return gpu


def _join_row(
    version: Version, platform: str, jax: dict[str, Any], parts: list[list[WheelFile]]
) -> dict[str, Any] | None:
    """Return the row of a release made of several projects' wheels, or None if they share no Python.

    It has the Pythons that all have, and the newest glibc that any needs.
    """
    served = [m for m in _list_minors(jax) if all(not (p := pythons(part)) or m in p for part in parts)]
    if not served:
        return None
    row: dict[str, Any] = {"version": str(version), "platform": platform, "index": "pypi"}
    row["python"] = " ".join(served)
    glibcs = [w.glibc for part in parts for w in part if w.glibc]
    if glibcs:
        row["glibc"] = max(glibcs, key=number)
    row["requires"] = [f"{_name_project(part[0])}=={part[0].version}" for part in parts]
    return row


def _name_project(wheel: WheelFile) -> str:
    return canonicalize_name(wheel.file.name.partition("-")[0])


def _find_newest(reader: Reader, project: str, wanted: Requirement | None, platform: str) -> list[WheelFile]:
    """Return the wheels of the newest release that a requirement allows on a platform, yanked ones last."""
    if wanted is None:
        return []
    fitting = [
        w
        for w in reader.wheels(project)
        if w.platform == platform
        and rq.allows(wanted.specifier, str(w.version))
        and not w.version.is_prerelease
    ]
    if not fitting:
        return []
    best = max(fitting, key=lambda w: (w.file.yanked is None, w.version)).version
    return [w for w in fitting if w.version == best]
