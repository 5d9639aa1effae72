"""Measure the builds of every framework on the default index, cuDNN and the CUDA toolkit."""

from __future__ import annotations

import ast
import re
import struct
import zipfile
from collections.abc import Iterable, Sequence
from typing import Any

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from provision import model
from provision.index.bounded_archive import MOST_LIBRARY, read_member
from provision.index.read_architectures_from_stream import (
    ELF,
    PTX,
    FatBinaries,
    capability,
    from_binaries,
    from_words,
    kernels,
    machine_code,
    read_fatbins,
    read_nvidia_folders,
)
from provision.index.remote_wheels import member

from ...model import TORCH_COMPANIONS
from . import reader as rq
from .libraries import measure_libraries
from .reader import (
    Documents,
    Reader,
    WheelFile,
    nothing_more,
    number,
    pythons,
    releases,
    representative,
    row_of,
    yanked,
)

OLDEST_TORCH = "1.12"
_SMALL = 2 << 20
_DEEP_TORCH = 512 << 20

_ARCH_LIST = re.compile(rb"(?:(?:sm|compute)_\d+[af]?)(?: (?:sm|compute)_\d+[af]?)+")
_GLIBC = re.compile(rb"GLIBC_(2\.\d+)\0")


def read_torch(wheel: zipfile.ZipFile) -> dict[str, Any]:
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
        _confirm_torch(wheel, words)
        facts["kernels"] = from_words(words)
        facts["glibc"] = max((_find_glibc(data), *_find_small_glibcs(wheel)), key=number)
    return facts


def _confirm_torch(wheel: zipfile.ZipFile, words: list[str]) -> None:
    """Raise ValueError unless the fat binaries of libtorch_cuda hold code for all that torch says it
    was compiled for. Files differ in what they are compiled for, so it is read until all were seen."""
    wanted = machine_code(words)
    seen: frozenset[tuple[int, int]] = frozenset()
    for name in sorted(
        n for n in wheel.namelist() if re.fullmatch(r"torch/lib/libtorch_cuda(_c\w+)?\.so", n)
    ):
        with wheel.open(name) as file:
            seen |= read_fatbins(file, enough=1 << 20, budget=_DEEP_TORCH, until=wanted - seen).kinds
        if wanted <= seen:
            return
    missing = " ".join(f"sm_{arch}" for _, arch in sorted(wanted - seen))
    raise ValueError(
        f"torch names {missing}, but the first {_DEEP_TORCH >> 20} MiB of its CUDA library contain no code for this"
    )


def _find_glibc(library: bytes) -> str:
    """Return the newest glibc whose symbols a library needs, or "0"."""
    return max((g.decode() for g in _GLIBC.findall(library)), key=number, default="0")


def _find_small_glibcs(wheel: zipfile.ZipFile) -> list[str]:
    """Return the glibc of the other libraries that are small enough to be read whole (libgomp, libc10, ...)."""
    names = [i.filename for i in wheel.infolist() if i.file_size < _SMALL]
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
    builds = reader.builds("torch", OLDEST_TORCH)
    facts = reader.all_facts((representative(m) for _, _, m in builds), "torch", read_torch)
    companions = _read_companions(reader)
    rows = []
    for version, platform, wheels in builds:
        fact = facts[representative(wheels)]
        if fact:
            rows.append(_make_torch_row(reader, (version, platform, wheels), fact, companions, tested))
    return rows


def _make_torch_row(
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


OLDEST_TENSORFLOW = "2.4"
_TENSORFLOW_LIBRARY = r"tensorflow/(libtensorflow_cc\.so\.2|python/_pywrap_tensorflow_internal\.(so|pyd))"
_DEEP_TENSORFLOW = 1024 << 20


def read_tensorflow(wheel: zipfile.ZipFile) -> dict[str, Any]:
    """Return CUDA, cuDNN major version and kernels from build_info.py. A wheel without it is a CPU shim.

    Raise ValueError if build_info is incomplete, or does not match the library.
    """
    name = member(wheel, r"tensorflow/python/platform/build_info\.py")
    if not name:
        return {"cuda": None, "cudnn": None, "kernels": ""}
    match = re.search(r"OrderedDict\((\[.*\])\)", read_member(wheel, name, "the wheel").decode())
    if not match:
        raise ValueError(f"{name} has no build_info")
    info = dict(ast.literal_eval(match[1]))
    if not info["is_cuda_build"]:
        return {"cuda": None, "cudnn": None, "kernels": ""}
    if "cuda_version" not in info or "cuda_compute_capabilities" not in info:
        raise ValueError("build_info describes a CUDA build, but does not state its CUDA version and GPUs")
    _confirm_tensorflow(wheel, info["cuda_compute_capabilities"])
    return {
        "cuda": _parse_cuda(info["cuda_version"]),
        "cudnn": info["cudnn_version"].rpartition("_")[2],
        "kernels": _list_kernels(info["cuda_compute_capabilities"]),
    }


def _confirm_tensorflow(wheel: zipfile.ZipFile, words: list[str]) -> None:
    """Raise ValueError unless TensorFlow's library contains all architectures that build_info names.

    It must have machine code for each sm_XY and PTX for each compute_XY. It is read until all were found.
    """
    wanted = frozenset((PTX if w.startswith("compute_") else ELF, int(w.partition("_")[2])) for w in words)
    name = member(wheel, _TENSORFLOW_LIBRARY)
    if not name:
        raise ValueError(
            "the wheel is marked as a CUDA build, but its CUDA library is not at the expected path"
        )
    with wheel.open(name) as file:
        seen = read_fatbins(file, enough=1 << 20, budget=_DEEP_TENSORFLOW, until=wanted).kinds
    if not wanted <= seen:
        missing = " ".join(
            f"{'PTX' if kind == PTX else 'code'} {arch}" for kind, arch in sorted(wanted - seen)
        )
        raise ValueError(
            f"build_info names architectures that are not in the first {_DEEP_TENSORFLOW >> 20} MiB of {name}: {missing}"
        )


def _parse_cuda(text: str) -> str:
    """Return the CUDA minor version: "12.5.1" is 12.5, and "64_112" of Windows is 11.2."""
    digits = text.rpartition("_")[2]
    if "." not in digits:
        return f"{digits[:-1]}.{digits[-1]}"
    return ".".join(digits.split(".")[:2])


def _list_kernels(words: list[str]) -> str:
    """Return the kernels of a build: machine code and PTX for compute_XY, machine code for sm_XY."""
    ptx = {capability(w.partition("_")[2]) for w in words if w.startswith("compute_")}
    return kernels(ptx | {capability(w.partition("_")[2]) for w in words}, ptx)


def searched(wheel: zipfile.ZipFile) -> dict[str, Any]:
    """Return the folders of the NVIDIA wheels that TensorFlow's loader searches.

    They are the RUNPATH of the library that opens CUDA's libraries by name.
    """
    name = member(wheel, r"tensorflow/libtensorflow_framework\.so\.2")
    if not name:
        return {"searched": []}
    with wheel.open(name) as file:
        return {"searched": sorted(read_nvidia_folders(file))}


def tensorflow_rows(reader: Reader, documents: Documents) -> list[dict[str, Any]]:
    """Return one row per TensorFlow release and platform of the default index.

    A release without the and-cuda extra has its cuDNN from the table `tested`.
    """
    tested = documents.get("tested", ())
    builds = reader.builds("tensorflow", OLDEST_TENSORFLOW)
    facts = reader.all_facts((representative(m) for _, _, m in builds), "tensorflow", read_tensorflow)
    cuda = (w for w, fact in facts.items() if fact and fact["cuda"] and w.platform.startswith("linux"))
    paths = reader.all_facts(cuda, "tensorflow-searched", searched)
    return [
        _make_tensorflow_row(reader, build, fact, paths.get(representative(build[2])), tested)
        for build in builds
        if (fact := facts[representative(build[2])])
    ]


def _make_tensorflow_row(
    reader: Reader,
    build: tuple[Version, str, list[WheelFile]],
    fact: dict[str, Any],
    paths: dict[str, Any] | None,
    tested: Sequence[dict[str, Any]],
) -> dict[str, Any]:
    version, platform, wheels = build
    minors = pythons(wheels)
    row = row_of(version, platform, wheels, fact)
    if fact["cuda"]:
        row |= {"cuda": fact["cuda"], "kernels": fact["kernels"]}
        required = rq.required(fact["requires"], platform, minors, ("and-cuda",))
        requires = sorted(rq.written(r, w, minors) for r, w in required if rq.GPU_NAMES.fullmatch(r.name))
        if requires:
            row["requires"] = requires
        if cudnn := rq.cudnn_specifier(requires) or rq.documented(
            tested, version, fact["cuda"], fact["cudnn"]
        ):
            row["cudnn"] = cudnn
        else:
            reader.problem(f"tensorflow {version}: neither a pin nor a document states its cuDNN version")
        if missing := rq.unresolvable(reader, fact["requires"], platform, minors, ("and-cuda",)):
            row["unresolvable"] = missing
    if paths and paths["searched"]:
        row["searched"] = " ".join(paths["searched"])
    return row


GPU_PACKAGE = "onnxruntime-gpu"
_ONNXRUNTIME_EXTRAS = ("cuda", "cudnn")
OLDEST_ONNXRUNTIME = "1.16"
"""The first release with code for compute capability 9.0."""
_CUDA = re.compile(r"^cuda_version ?= ?['\"](\d+\.\d+)", re.MULTILINE)


def read_onnxruntime(wheel: zipfile.ZipFile) -> dict[str, Any]:
    """Return CUDA release, CUDA and cuDNN majors and kernels of a GPU wheel. Up to 1.20 none states its CUDA release."""
    info = member(wheel, r"onnxruntime/capi/build_and_package_info\.py")
    match = _CUDA.search(read_member(wheel, info, "the wheel").decode()) if info else None
    libraries = measure_libraries(wheel)["libraries"].values()
    kinds = frozenset((kind, arch) for library in libraries for kind, arch in library["kernels"])
    names = {n for library in libraries for n in (*library["needed"], *library["opened"])}
    return {
        "cuda": match[1] if match else None,
        "majors": sorted(libraries.cuda_majors(names)),
        "cudnn": sorted(libraries.cudnn_majors(names)),
        "kernels": from_binaries(FatBinaries(kinds, 0, 0)),
    }


def onnxruntime_rows(reader: Reader, documents: Documents) -> list[dict[str, Any]]:
    """Return one row for each release, platform and device. Windows has no row with CUDA: its libraries have no ELF
    headers to measure."""
    gpu = [b for b in reader.builds(GPU_PACKAGE, OLDEST_ONNXRUNTIME) if b[1].startswith("linux")]
    cpu = reader.builds("onnxruntime", OLDEST_ONNXRUNTIME)
    built = reader.all_facts(
        (representative(wheels) for _, _, wheels in gpu), "onnxruntime", read_onnxruntime
    )
    listed = reader.all_facts((representative(wheels) for _, _, wheels in cpu), "metadata", nothing_more)
    rows = [
        row
        for build in gpu
        if (fact := built[representative(build[2])])
        and (row := _make_gpu_row(reader, build, fact, documents))
    ]
    rows += [
        row_of(version, platform, wheels, fact)
        for version, platform, wheels in cpu
        if (fact := listed[representative(wheels)])
    ]
    return sorted(rows, key=lambda row: (Version(row["version"]), "cuda" in row), reverse=True)


def _find_documented(version: Version, fact: dict[str, Any], documents: Documents) -> dict[str, str]:
    """Return the row of the table `tested` for a release with the CUDA of its wheel, or no values.

    The CUDA is the release that the wheel states, else the major version of its libraries.
    """
    for row in documents.get("tested", ()):
        cuda = row["cuda"]
        same = cuda == fact["cuda"] if fact["cuda"] else [cuda.split(".")[0]] == fact["majors"]
        if same and f"{version}.".startswith(f"{row['version']}."):
            return row
    return {}


def _make_gpu_row(
    reader: Reader,
    build: tuple[Version, str, Sequence[WheelFile]],
    fact: dict[str, Any],
    documents: Documents,
) -> dict[str, Any] | None:
    """Return the row of a GPU wheel, or None if nothing states its CUDA release."""
    version, platform, wheels = build
    documented = _find_documented(version, fact, documents)
    cuda = fact["cuda"] or documented.get("cuda")
    if cuda is None:
        reader.problem(f"{GPU_PACKAGE} {version}: neither the wheel nor a document states its CUDA release")
        return None
    minors = pythons(wheels)
    row = row_of(version, platform, wheels, fact)
    row |= {"package": GPU_PACKAGE, "cuda": cuda, "kernels": fact["kernels"]}
    required = rq.required(fact["requires"], platform, minors, _ONNXRUNTIME_EXTRAS)
    requires = sorted(rq.written(r, where, minors) for r, where in required if rq.GPU_NAMES.fullmatch(r.name))
    if requires:
        row["requires"] = requires
    if cudnn := rq.cudnn_specifier(requires):
        row["cudnn"] = cudnn
    elif documented:
        row["cudnn"] = documented["cudnn"]
    elif len(fact["cudnn"]) == 1:
        row["cudnn"] = f"=={fact['cudnn'][0]}.*"
    else:
        reader.problem(f"{GPU_PACKAGE} {version}: neither a requirement nor a library states its cuDNN")
    if missing := rq.unresolvable(reader, fact["requires"], platform, minors, _ONNXRUNTIME_EXTRAS):
        row["unresolvable"] = missing
    return row


OLDEST_JAX = "0.4.14"
_JAX_EXTRAS = ("cuda13", "cuda12")
MINORS = tuple(f"3.{n}" for n in range(8, 20))


def read_plugin(wheel: zipfile.ZipFile) -> dict[str, Any]:
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
    jaxes = releases(reader.wheels("jax"), OLDEST_JAX)
    jaxes = {v: w for v, w in jaxes.items() if any(reader.takes(v, p) for p in model.PLATFORMS)}
    facts = reader.all_facts((representative(w) for w in jaxes.values()), "metadata", nothing_more)
    if reader.only is None and not reader.known:
        _read_ahead(reader)
    rows = []
    for version, wheels in jaxes.items():
        fact = facts[representative(wheels)]
        if not fact:
            continue
        offered = [e for e in _JAX_EXTRAS if any(_is_of_extra(line, e) for line in fact["requires"])]
        for platform in (p for p in model.PLATFORMS if reader.takes(version, p)):
            cuda_rows = [_make_cuda_row(reader, version, platform, extra, fact) for extra in offered]
            mark = {"yanked": "yes"} if yanked(tuple(wheels)) else {}
            rows += [r | mark for r in (*cuda_rows, _make_cpu_row(reader, version, platform, fact)) if r]
    return rows


def _read_ahead(reader: Reader) -> None:
    """Read every plugin's wheel at once rather than one after the other."""
    builds = [
        [w for w in wheels if w.platform == platform]
        for extra in _JAX_EXTRAS
        for wheels in releases(reader.wheels(f"jax-{extra}-plugin"), OLDEST_JAX).values()
        for platform in model.PLATFORMS
    ]
    reader.all_facts((representative(b) for b in builds if b), "jax-plugin", read_plugin)


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
    fact = reader.facts(representative(plugin), "jax-plugin", read_plugin)
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
    fact = reader.facts(representative(same), "jax-plugin", read_plugin) if same else None
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


OLDEST_CUDNN = "8.5"
PACKAGES = {"11": "nvidia-cudnn-cu11", "12": "nvidia-cudnn-cu12", "13": "nvidia-cudnn-cu13"}

_LIBRARY = re.compile(r"nvidia/[^/]+/(?:lib|bin)/(?:x64/|x86_64/)?(libcudnn[^/]*\.so\.\d+|cudnn[^/]*\.dll)")
_OPS = r"nvidia/.*/(libcudnn_ops(_infer)?\.so\.\d+|cudnn_ops(_infer)?64_\d+\.dll)"


def read_cudnn(wheel: zipfile.ZipFile) -> dict[str, Any]:
    """Return the kernels of the first complete fat binary of libcudnn_ops, and the names of the libraries.

    Raise ValueError for a wheel without it.
    """
    libraries = sorted({m[1] for n in wheel.namelist() if (m := _LIBRARY.fullmatch(n))})
    ops = member(wheel, _OPS)
    if not ops:
        if not libraries:
            raise ValueError("the wheel contains no libraries")
        raise ValueError(f"the wheel contains no libcudnn_ops library, only {' '.join(libraries)}")
    with wheel.open(ops) as file:
        binaries = read_fatbins(file, enough=1, budget=1 << 27)
    if not binaries.fatbins:
        raise ValueError(f"{ops} has no fat binary")
    return {"kernels": from_binaries(binaries), "libraries": libraries}


def cudnn_rows(reader: Reader, documents: Documents) -> list[dict[str, Any]]:
    """Return one row per cuDNN package, release and platform. The oldest drivers come from the table `floors`."""
    floors = {row["cuda"]: row for row in documents.get("floors", ())}
    builds = [
        (cuda, package, version, platform, wheels)
        for cuda, package in PACKAGES.items()
        for version, platform, wheels in reader.builds(package, OLDEST_CUDNN, package)
        if not version.is_prerelease
    ]
    facts = reader.all_facts((representative(b[4]) for b in builds), "cudnn", read_cudnn)
    rows = []
    for cuda, package, version, platform, wheels in builds:
        fact = facts[representative(wheels)]
        if not fact:
            continue
        row = {
            "package": package,
            "version": str(version),
            "cuda": cuda,
            "platform": platform,
            "kernels": fact["kernels"],
            "libraries": fact["libraries"],
            "sha256": fact["sha256"],
            "bytes": str(fact["bytes"]),
        }
        if tags := [w.glibc for w in wheels if w.glibc]:
            row["glibc"] = min(tags, key=number)
        if yanked(tuple(wheels)):
            row["yanked"] = "yes"
        floor = floors.get(cuda, {})
        row |= {k: floor[k] for k in ("driver_linux", "driver_windows") if k in floor}
        rows.append(row)
    return rows


OLDEST_TOOLKIT = "11.8"
_LINUX = "linux-x86_64"


def toolkit_rows(reader: Reader, _: Documents) -> list[dict[str, Any]]:
    """Return one row per toolkit release: `parts` are "extra requirement ...", with its pins on Linux."""
    wheels = releases(reader.wheels("cuda-toolkit"), OLDEST_TOOLKIT)
    wheels = {v: w for v, w in wheels.items() if not v.is_prerelease and reader.takes(v, "any")}
    facts = reader.all_facts((representative(w) for w in wheels.values()), "metadata", nothing_more)
    rows = []
    for version in sorted(wheels, key=lambda v: number(str(v)), reverse=True):
        fact = facts[representative(wheels[version])]
        if fact:
            rows.append({"version": str(version), "parts": _list_parts(fact["requires"])})
    return rows


def _list_parts(lines: list[str]) -> list[str]:
    """Return every extra except `all`, each with its requirements: a library, and the libraries that it needs."""
    by_extra: dict[str, list[str]] = {}
    for line in lines:
        extra = _parse_extra(line)
        required = rq.required([line], _LINUX, ["3.12"], [extra]) if extra and extra != "all" else []
        by_extra.setdefault(extra, []).extend(str(r) for r, _ in required if r.name.startswith("nvidia-"))
    return [" ".join([extra, *names]) for extra, names in sorted(by_extra.items()) if names]


def _parse_extra(line: str) -> str:
    """Return the extra of a Requires-Dist line, or ""."""
    _, _, marker = line.partition("extra ==")
    return marker.strip().split()[0].strip("\"')") if marker else ""
