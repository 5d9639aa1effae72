"""JAX on the default index: jax, jaxlib, and the CUDA plugin whose libraries hold the kernels."""

from __future__ import annotations

import re
import struct
from typing import TYPE_CHECKING, Any

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from provision import model
from provision.index.kernels import from_found, read_fatbins
from provision.index.wheels import member

from . import requirements as rq
from .reader import Reader, WheelFile, nothing_more, number, pythons, releases, representative, yanked

if TYPE_CHECKING:
    import zipfile
    from collections.abc import Iterable

OLDEST = "0.4.14"
MINORS = tuple(f"3.{n}" for n in range(8, 20))


def measure(wheel: zipfile.ZipFile) -> dict[str, Any]:
    """The plugin's CUDA (a constant in the code of _versions.so) and the kernels of its _prng.so."""
    versions, prng = member(wheel, r".*/_versions\.so"), member(wheel, r".*/_prng\.so")
    if not versions or not prng:
        raise ValueError("the plugin has no _versions.so or no _prng.so")
    major = re.search(r"cuda(\d+)", versions)
    assert major, versions
    built = cuda_in_code(wheel.read(versions), int(major[1]))
    if len(built) != 1:
        raise ValueError(f"{versions} names {len(built)} CUDA releases: {' '.join(sorted(built))}")
    with wheel.open(prng) as file:
        found = read_fatbins(file, enough=4, budget=1 << 26)
    if not found.fatbins:
        raise ValueError(f"{prng} has no fat binary")
    return {"cuda": built.pop(), "kernels": from_found(found)}


def cuda_in_code(library: bytes, major: int) -> set[str]:
    """CUDA releases ("12.9") that the code of a library loads as a constant (CUDART_VERSION, 12090).

    x86-64 has it behind a "mov r32, imm32", AArch64 in a "movz w, imm16".
    """
    found = set()
    arm = library[18:20] == b"\xb7\x00"
    for minor in range(10):
        value = major * 1000 + minor * 10
        if arm:
            words = {struct.pack("<I", 0x52800000 | value << 5 | register) for register in range(31)}
            hit = any(at % 4 == 0 for word in words for at in _places(library, word))
        else:
            hit = any(
                library[at - 1] & 0xF8 == 0xB8 for at in _places(library, struct.pack("<I", value)) if at
            )
        if hit:
            found.add(f"{major}.{minor}")
    return found


def _places(data: bytes, part: bytes) -> Iterable[int]:
    at = data.find(part)
    while at >= 0:
        yield at
        at = data.find(part, at + 1)


def jax_rows(reader: Reader) -> list[dict[str, Any]]:
    """A CPU row per JAX release and platform, and one per CUDA extra and Linux platform."""
    jaxes = releases(reader.wheels("jax"), OLDEST)
    facts = reader.all_facts((representative(w) for w in jaxes.values()), "metadata", nothing_more)
    rows = []
    for version, wheels in jaxes.items():
        fact = facts[representative(wheels)]
        if not fact:
            continue
        for platform in model.PLATFORMS:
            extras = [
                e for e in ("cuda12", "cuda13") if any(_names_extra(line, e) for line in fact["requires"])
            ]
            for extra in (*sorted(extras, reverse=True), None):
                row = _row(reader, version, platform, extra, fact)
                if row and yanked(tuple(wheels)):
                    row["yanked"] = "yes"
                rows += [row] if row else []
    return rows


def _names_extra(line: str, extra: str) -> bool:
    return bool(re.search(rf"""extra\s*==\s*['"]{extra}['"]""", line))


def _row(
    reader: Reader, version: Version, platform: str, extra: str | None, jax: dict[str, Any]
) -> dict[str, Any] | None:
    minors = [m for m in MINORS if rq.allows(SpecifierSet(jax["requires_python"] or ""), f"{m}.20")]
    held = {
        r.name: r
        for r, _ in rq.required(jax["requires"], platform, minors, (extra,) if extra else ("", "cpu"))
        if r.name == "jaxlib" or rq.GPU_NAMES.fullmatch(r.name)
    }
    jaxlib = _newest(reader, "jaxlib", held.get("jaxlib"), platform)
    if not jaxlib:
        return None
    parts = [jaxlib]
    row: dict[str, Any] = {"version": str(version), "platform": platform, "index": "pypi"}
    requires = [f"jaxlib=={jaxlib[0].version}"]
    if extra:
        plugin_name = f"jax-{extra}-plugin"
        plugin = _newest(reader, plugin_name, held.get(plugin_name), platform)
        pjrt = plugin and _newest(reader, f"jax-{extra}-pjrt", _exactly(plugin), platform)
        if not plugin or not pjrt:
            if plugin and not platform.startswith("windows"):
                reader.problem(
                    f"jax {version} {extra} {platform}: no jax-{extra}-pjrt of that version on the index"
                )
            return None
        fact = reader.facts(representative(plugin), "jax-plugin", measure)
        if not fact:
            return None
        parts += [plugin, pjrt]
        requires += [f"{plugin_name}=={plugin[0].version}", f"jax-{extra}-pjrt=={pjrt[0].version}"]
        gpu = [*rq.required(fact["requires"], platform, minors, ("with-cuda",))]
        gpu += [(r, tuple(minors)) for r in held.values()]
        requires += sorted({rq.written(r, w, minors) for r, w in gpu if r.name.startswith("nvidia-")})
        row |= {"cuda": fact["cuda"], "kernels": fact["kernels"]}
        row |= {"sha256": fact["sha256"], "bytes": str(fact["bytes"])}
        if cudnn := rq.cudnn_specifier(requires):
            row["cudnn"] = cudnn
    shared = [m for m in minors if all(not (p := pythons(part)) or m in p for part in parts)]
    if not shared:
        return None
    glibcs = [max(tags, key=number) for part in parts if (tags := [w.glibc for w in part if w.glibc])]
    if glibcs:
        row["glibc"] = max(glibcs, key=number)
    return row | {"python": " ".join(shared), "requires": requires}


def _exactly(wheels: list[WheelFile]) -> Any:
    return rq.parse(f"x=={wheels[0].version}")


def _newest(reader: Reader, project: str, wanted: Any, platform: str) -> list[WheelFile]:
    """The wheels of the newest release that a requirement takes on a platform, yanked ones last."""
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
