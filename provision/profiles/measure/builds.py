"""Measure the builds of every framework on the default index, the wheels of cuDNN, and the CUDA toolkits.

What `read_` functions return is kept by the sha256 of the wheel. The `_rows` functions make rows of it.
"""

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

from ... import model
from ...index.archives import MOST_LIBRARY, member, read_member
from ...system.kernels import (
    ELF,
    PTX,
    FatBinaries,
    capability,
    from_binaries,
    kernels,
    machine_code,
    parse_arch_list,
    read_fatbins,
    read_nvidia_folders,
)
from ...system.versions import minor, numbers
from .libraries import cuda_majors, cudnn_majors, measure_libraries
from .reader import (
    GPU_NAMES,
    Documents,
    Reader,
    ReleaseWheels,
    WheelFile,
    allowed_pythons,
    allows,
    cudnn_specifier,
    format_requirement,
    is_yanked,
    list_required,
    list_tested,
    parse,
    pythons,
    releases,
    representative,
    unresolvable,
)

Row = dict[str, Any]


def _needs(reader: Reader, build: ReleaseWheels, fact: Row, extras: Sequence[str] = ()) -> Row:
    """Return the columns of a build's GPU requirements: `requires`, its `cudnn`, and what is `unresolvable`."""
    minors = pythons(build.wheels)
    lines = []
    for need, where in list_required(fact["requires"], build.platform, minors, extras):
        if GPU_NAMES.fullmatch(need.name):
            lines.append(format_requirement(need, where, minors))
            if need.name == "cuda-toolkit":  # what the meta package requires is written out too
                lines += _expand_toolkit(reader, need, build.platform, where, minors)
    columns = {
        "requires": sorted(set(lines)), "cudnn": cudnn_specifier(lines),
        "unresolvable": unresolvable(reader, fact["requires"], build.platform, minors, extras),
    }  # fmt: skip
    return {k: v for k, v in columns.items() if v}


def _expand_toolkit(
    reader: Reader, wanted: Requirement, platform: str, where: Sequence[str], minors: Sequence[str]
) -> list[str]:
    fitting = [w for w in reader.wheels("cuda-toolkit") if allows(wanted.specifier, str(w.version))]
    fact = fitting and reader.facts(max(fitting, key=lambda w: w.version), "metadata")
    if not fact:
        reader.add_problem(f"{wanted}: the meta package is not on the index")
        return []
    needs = list_required(fact["requires"], platform, where, sorted(wanted.extras))
    return [format_requirement(r, where, minors) for r, _ in needs]


# --- torch: CUDA from torch/version.py, kernels from its list of architectures ------------------------

_DEEP_TORCH = 512 << 20
_SMALL = 2 << 20
_ARCH_LIST = re.compile(rb"(?:(?:sm|compute)_\d+[af]?)(?: (?:sm|compute)_\d+[af]?)+")
_GLIBC = re.compile(rb"GLIBC_(2\.\d+)\0")


def read_torch(wheel: zipfile.ZipFile) -> Row:
    """Return CUDA release, kernels, and the glibc of the symbols in torch's libraries.

    Raise ValueError if the wheel does not state its CUDA, or lacks code for a stated architecture.
    """
    text = read_member(wheel, "torch/version.py", "the wheel").decode()
    stated = re.search(r"^cuda(?:: [^=]+)? = (?:None|'([\d.]+)')", text, re.MULTILINE)
    if not stated:
        raise ValueError("torch/version.py does not state its CUDA version")
    facts: Row = {"cuda": stated[1], "kernels": "", "glibc": None}
    library = member(wheel, r"torch/lib/libtorch_python\.so")
    if stated[1] and library:
        data = read_member(wheel, library, "the wheel", MOST_LIBRARY)
        lists = {m.decode() for m in _ARCH_LIST.findall(data)}
        if len(lists) != 1:
            raise ValueError(f"{library} has {len(lists)} lists of architectures")
        words = lists.pop().split()
        cuda = [
            n for n in sorted(wheel.namelist()) if re.fullmatch(r"torch/lib/libtorch_cuda(_c\w+)?\.so", n)
        ]
        _confirm(wheel, cuda, machine_code(words), _DEEP_TORCH)
        # The other libraries (libgomp, libc10, ...) are read where they are small.
        small = [i.filename for i in wheel.infolist() if i.file_size < _SMALL]
        others = [n for n in small if re.fullmatch(r"torch/lib/lib[^/]*\.so[^/]*", n)]
        texts = [data, *(read_member(wheel, n, "the wheel", MOST_LIBRARY) for n in others)]
        glibcs = (g.decode() for text in texts for g in _GLIBC.findall(text))
        facts |= {"kernels": parse_arch_list(words), "glibc": max(glibcs, key=numbers, default="0")}
    return facts


def _confirm(
    wheel: zipfile.ZipFile, libraries: Iterable[str], wanted: frozenset[tuple[int, int]], budget: int
) -> None:
    """Raise ValueError unless the fat binaries of the libraries hold all code that the wheel says it was compiled for.

    Files differ in what they are compiled for, so they are read until all was seen.
    """
    left = wanted
    for name in libraries:
        with wheel.open(name) as file:
            left -= read_fatbins(file, enough=1 << 20, budget=budget, until=left).kinds
        if not left:
            return
    missing = " ".join(f"{'PTX' if kind == PTX else 'code'} {arch}" for kind, arch in sorted(left))
    raise ValueError(
        f"the wheel names architectures that are not in the first {budget >> 20} MiB of its CUDA library: {missing}"
    )


def torch_rows(reader: Reader, documents: Documents) -> list[Row]:
    """Return one row per torch release and platform.

    The cuDNN of builds that are linked with it comes from the table `tested`.
    """
    measured = reader.measured(reader.builds("torch", "1.6"), "torch", read_torch)
    companions = {name: _read_companion(reader, name) for name in model.TORCH_COMPANIONS}
    rows = []
    for build, fact in measured:
        row = build.row(fact)
        if fact["cuda"]:
            row |= {"cuda": fact["cuda"], "kernels": fact["kernels"]}
            known = [r["cudnn"] for r in list_tested(documents, build.version) if r["cuda"] == fact["cuda"]]
            row |= ({"cudnn": known[0]} if known else {}) | _needs(reader, build, fact)
        pins = [f"{n}=={v}" for n, known in companions.items() if (v := companion_for(build.version, known))]
        rows.append(row | ({"companions": pins} if pins else {}))
    return rows


def _read_companion(reader: Reader, name: str) -> list[tuple[Version, SpecifierSet | None]]:
    """Return a companion's releases, newest first, with the torch that they require (None: any)."""
    # Wheels for ARM of 2022 state no release of torch.
    wheels = {
        v: representative([w for w in ws if w.platform == "linux-x86_64"] or ws)
        for v, ws in releases(reader.wheels(name), "0.6").items()
    }
    facts = reader.all_facts(wheels.values(), "metadata")
    found: list[tuple[Version, SpecifierSet | None]] = []
    for version, wheel in wheels.items():
        if fact := facts[wheel]:
            needs = (need for line in fact["requires"] if (need := parse(line)) and need.name == "torch")
            torch = next(needs, None)
            found.append((version, torch.specifier or None if torch else None))
    return found


def companion_for(
    torch: Version, candidates: Iterable[tuple[Version, SpecifierSet | None]]
) -> Version | None:
    """Return the newest companion made for a torch.

    A companion that requires no torch matches only the torch of its own minor version.
    """
    for version, wanted in candidates:
        if version.is_prerelease:
            continue
        if (
            wanted.contains(str(torch), prereleases=True)
            if wanted
            else version.release[:2] == torch.release[:2]
        ):
            return version
    return None


# --- TensorFlow: build_info.py, and the requirements of and-cuda --------------------------------------

_TENSORFLOW_LIBRARY = r"tensorflow/(libtensorflow_cc\.so\.2|python/_pywrap_tensorflow_internal\.(so|pyd))"
_DEEP_TENSORFLOW = 1024 << 20


def read_tensorflow(wheel: zipfile.ZipFile) -> Row:
    """Return CUDA, cuDNN major version and kernels from build_info.py. A wheel without it is a CPU shim.

    Raise ValueError if build_info is incomplete, or does not match the library.
    """
    info: dict[str, Any] = {}
    if name := member(wheel, r"tensorflow/python/platform/build_info\.py"):
        match = re.search(r"OrderedDict\((\[.*\])\)", read_member(wheel, name, "the wheel").decode())
        if not match:
            raise ValueError(f"{name} has no build_info")
        info = dict(ast.literal_eval(match[1]))
    if not info or not info["is_cuda_build"]:
        return {"cuda": None, "cudnn": None, "kernels": ""}
    if "cuda_version" not in info or "cuda_compute_capabilities" not in info:
        raise ValueError("build_info describes a CUDA build, but does not state its CUDA version and GPUs")
    words = info["cuda_compute_capabilities"]
    library = member(wheel, _TENSORFLOW_LIBRARY)
    if not library:
        raise ValueError(
            "the wheel is marked as a CUDA build, but its CUDA library is not at the expected path"
        )
    # It has machine code for each sm_XY and PTX for each compute_XY.
    wanted = frozenset((PTX if w.startswith("compute_") else ELF, int(w.partition("_")[2])) for w in words)
    _confirm(wheel, [library], wanted, _DEEP_TENSORFLOW)
    # "12.5.1" is 12.5, and "64_112" of Windows is 11.2.
    digits = info["cuda_version"].rpartition("_")[2]
    cuda = minor(digits) if "." in digits else f"{digits[:-1]}.{digits[-1]}"
    # machine code and PTX for compute_XY, machine code for sm_XY
    ptx = {capability(w.partition("_")[2]) for w in words if w.startswith("compute_")}
    code = ptx | {capability(w.partition("_")[2]) for w in words}
    return {"cuda": cuda, "cudnn": info["cudnn_version"].rpartition("_")[2], "kernels": kernels(code, ptx)}


def read_search_path(wheel: zipfile.ZipFile) -> Row:
    """Return the folders of the NVIDIA wheels that TensorFlow's loader searches.

    They are the RUNPATH of the library that opens CUDA's libraries by name.
    """
    name = member(wheel, r"tensorflow/libtensorflow_framework\.so\.2")
    if not name:
        return {"searched": []}
    with wheel.open(name) as file:
        return {"searched": sorted(read_nvidia_folders(file))}


def tensorflow_rows(reader: Reader, documents: Documents) -> list[Row]:
    """Return one row per TensorFlow release and platform.

    A release without the and-cuda extra has its cuDNN from the table `tested`.
    """
    measured = reader.measured(reader.builds("tensorflow", "2.4"), "tensorflow", read_tensorflow)
    cuda = (b.wheel for b, fact in measured if fact["cuda"] and b.platform.startswith("linux"))
    paths = reader.all_facts(cuda, "tensorflow-searched", read_search_path)
    rows = []
    for build, fact in measured:
        row = build.row(fact)
        if fact["cuda"]:
            for known in list_tested(documents, build.version):
                same = fact["cudnn"] is None or allows(SpecifierSet(known["cudnn"]), f"{fact['cudnn']}.99")
                if known["cuda"] == fact["cuda"] and same:
                    row.setdefault("cudnn", known["cudnn"])
            row |= {
                "cuda": fact["cuda"],
                "kernels": fact["kernels"],
                **_needs(reader, build, fact, ["and-cuda"]),
            }
            if "cudnn" not in row:
                reader.add_problem(
                    f"tensorflow {build.version}: neither a pin nor a document states its cuDNN version"
                )
        if (path := paths.get(build.wheel)) and path["searched"]:
            row["searched"] = " ".join(path["searched"])
        rows.append(row)
    return rows


# --- ONNX Runtime: onnxruntime-gpu, and onnxruntime for the CPU ---------------------------------------

GPU_PACKAGE = "onnxruntime-gpu"
_OLDEST_ONNXRUNTIME = "1.16"
"""The first release with code for compute capability 9.0."""
_CUDA = re.compile(r"^cuda_version ?= ?['\"](\d+\.\d+)", re.MULTILINE)


def read_onnxruntime(wheel: zipfile.ZipFile) -> Row:
    """Return CUDA release, CUDA and cuDNN majors and kernels of a GPU wheel. Up to 1.20 none states its CUDA release."""
    info = member(wheel, r"onnxruntime/capi/build_and_package_info\.py")
    match = _CUDA.search(read_member(wheel, info, "the wheel").decode()) if info else None
    libraries = measure_libraries(wheel)["libraries"].values()
    kinds = frozenset((kind, arch) for library in libraries for kind, arch in library["kernels"])
    names = {n for library in libraries for n in (*library["needed"], *library["opened"])}
    return {
        "cuda": match[1] if match else None, "majors": sorted(cuda_majors(names)),
        "cudnn": sorted(cudnn_majors(names)), "kernels": from_binaries(FatBinaries(kinds, 0, 0)),
    }  # fmt: skip


def onnxruntime_rows(reader: Reader, documents: Documents) -> list[Row]:
    """Return one row for each release, platform and device. Windows has no row with CUDA: its libraries have no ELF
    headers to measure."""
    gpu = [b for b in reader.builds(GPU_PACKAGE, _OLDEST_ONNXRUNTIME) if b.platform.startswith("linux")]
    rows = [
        row for build, fact in reader.measured(gpu, "onnxruntime", read_onnxruntime)
        if (row := _make_onnxruntime_row(reader, build, fact, documents))
    ]  # fmt: skip
    cpu = reader.builds("onnxruntime", _OLDEST_ONNXRUNTIME)
    rows += [build.row(fact) for build, fact in reader.measured(cpu, "metadata")]
    return sorted(rows, key=lambda row: (Version(row["version"]), "cuda" in row), reverse=True)


def _make_onnxruntime_row(
    reader: Reader, build: ReleaseWheels, fact: Row, documents: Documents
) -> Row | None:
    """Return the row of a GPU wheel, or None if nothing states its CUDA release."""
    known: Row = {}
    for row in reversed(list_tested(documents, build.version)):
        # The CUDA is the release that the wheel states, else the major version of its libraries.
        if fact["cuda"] == row["cuda"] or (
            not fact["cuda"] and [row["cuda"].split(".")[0]] == fact["majors"]
        ):
            known = row
    cuda = fact["cuda"] or known.get("cuda")
    if cuda is None:
        reader.add_problem(
            f"{GPU_PACKAGE} {build.version}: neither the wheel nor a document states its CUDA release"
        )
        return None
    row = build.row(fact) | {"package": GPU_PACKAGE, "cuda": cuda, "kernels": fact["kernels"]}
    if known or len(fact["cudnn"]) == 1:
        row["cudnn"] = known["cudnn"] if known else f"=={fact['cudnn'][0]}.*"
    row |= _needs(reader, build, fact, ["cuda", "cudnn"])
    if "cudnn" not in row:
        reader.add_problem(
            f"{GPU_PACKAGE} {build.version}: neither a requirement nor a library states its cuDNN"
        )
    return row


# --- JAX: jax, jaxlib, and the CUDA plugin with the kernels -------------------------------------------

_JAX_EXTRAS = ("cuda13", "cuda12")
_OLDEST_JAX = "0.4.14"


def read_plugin(wheel: zipfile.ZipFile) -> Row:
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
    for number in range(10):
        value = major * 1000 + number * 10
        if library[18:20] == b"\xb7\x00":
            words = (struct.pack("<I", 0x52800000 | value << 5 | register) for register in range(31))
            hit = any(m.start() % 4 == 0 for word in words for m in re.finditer(re.escape(word), library))
        else:
            hit = bool(re.search(rb"[\xb8-\xbf]" + re.escape(struct.pack("<I", value)), library))
        if hit:
            cuda.add(f"{major}.{number}")
    return cuda


def cudnn_numbers(library: bytes) -> list[int]:
    """Return constants in x86-64 code that could be CUDNN_VERSION (8904 is 8.9.4, 91002 is 9.10.2)."""
    if library[18:20] != b"\x3e\x00":
        return []
    loads = re.finditer(rb"[\xb8-\xbf](..[\x00\x01]\x00)", library, re.DOTALL)
    values = {struct.unpack("<I", m[1])[0] for m in loads}
    return sorted(v for v in values if 8500 <= v < 9000 or 90000 <= v < 100000)


def cudnn_major(reader: Reader, package: str, constants: Iterable[int]) -> int | None:
    """Return the cuDNN major version that code was built with.

    It is the constant that is a release on the index. Return None if constants of several major versions are.
    """
    released = {w.version.release[:3] for w in reader.wheels(package)}
    majors = set()
    for value in constants:
        scale = 1000 if value < 10000 else 10000
        if (value // scale, value % scale // 100, value % 100) in released:
            majors.add(value // scale)
    return majors.pop() if len(majors) == 1 else None


def jax_rows(reader: Reader, _: Documents) -> list[Row]:
    """Return a CPU row per JAX release and platform, and one per CUDA extra and Linux platform."""
    jaxes = releases(reader.wheels("jax"), _OLDEST_JAX)
    jaxes = {v: w for v, w in jaxes.items() if any(reader.is_requested(v, p) for p in model.PLATFORMS)}
    facts = reader.all_facts((representative(w) for w in jaxes.values()), "metadata")
    rows = []
    for version, wheels in jaxes.items():
        if not (fact := facts[representative(wheels)]):
            continue
        text = "\n".join(fact["requires"])
        offered = [e for e in _JAX_EXTRAS if re.search(rf"""extra\s*==\s*['"]{e}['"]""", text)]
        for platform in (p for p in model.PLATFORMS if reader.is_requested(version, p)):
            made = [_make_jax_row(reader, version, platform, extra, fact) for extra in (*offered, "cpu")]
            rows += [r | ({"yanked": "yes"} if is_yanked(wheels) else {}) for r in made if r]
    return rows


def _make_jax_row(reader: Reader, version: Version, platform: str, extra: str, jax: Row) -> Row | None:
    """Return the row of jax[extra] on a platform, or None if one of its parts has no wheel there."""
    wanted: dict[str, Requirement] = {}
    for need, _ in list_required(jax["requires"], platform, allowed_pythons(jax), ("", extra)):
        wanted.setdefault(need.name, need).specifier &= need.specifier
    plugin_name, pjrt_name = f"jax-{extra}-plugin", f"jax-{extra}-pjrt"
    jaxlib = _find_newest(reader, wanted.get("jaxlib"), platform)
    if extra == "cpu" or not jaxlib:
        return _join_row(version, platform, jax, [jaxlib]) if jaxlib else None
    plugin = _find_newest(reader, wanted.get(plugin_name), platform)
    if not plugin:
        return None
    exact = Requirement(f"{pjrt_name}=={plugin[0].version}")
    pjrt = _find_newest(reader, exact, platform)
    if not pjrt:
        reader.add_problem(f"jax {version} {extra} {platform}: {exact} is not on the index")
    fact = reader.facts(representative(plugin), "jax-plugin", read_plugin)
    row = _join_row(version, platform, jax, [jaxlib, plugin, pjrt]) if pjrt and fact else None
    if not row or not fact:
        return None
    minors = row["python"].split()
    needs = list_required(fact["requires"], platform, minors, ("with-cuda",))
    needs += [(need, minors) for need in wanted.values()]
    cudnn = f"nvidia-cudnn-{extra.replace('cuda', 'cu')}"
    # The constants of cuDNN are in x86-64 code.
    same = [w for w in reader.wheels(plugin_name)
            if w.version == plugin[0].version and w.platform == "linux-x86_64"]  # fmt: skip
    code = reader.facts(representative(same), "jax-plugin", read_plugin) if same else None
    major = cudnn_major(reader, cudnn, code["numbers"] if code else ())
    for need, _ in needs:
        # Wheels of early 2024 have no upper bound, but load only libcudnn.so.8.
        is_open = not any(s.operator in ("<", "<=", "==") for s in need.specifier)
        if need.name == cudnn and major is not None and is_open:
            need.specifier &= SpecifierSet(f"<{major + 1}")
    nvidia = sorted(
        {format_requirement(r, where, minors) for r, where in needs if r.name.startswith("nvidia-")}
    )
    row["requires"] += nvidia
    row |= {
        "cuda": fact["cuda"],
        "kernels": fact["kernels"],
        "sha256": fact["sha256"],
        "bytes": str(fact["bytes"]),
    }
    more = {"cudnn": cudnn_specifier(nvidia), "unresolvable": unresolvable(reader, nvidia, platform, minors)}
    return row | {k: v for k, v in more.items() if v}


def _join_row(version: Version, platform: str, jax: Row, parts: list[list[WheelFile]]) -> Row | None:
    """Return the row of a release made of several projects' wheels, or None if they share no Python.

    It has the Pythons that all have, and the newest glibc that any needs.
    """
    served = [m for m in allowed_pythons(jax) if all(not (p := pythons(part)) or m in p for part in parts)]
    if not served:
        return None
    row: Row = {"version": str(version), "platform": platform, "index": "pypi", "python": " ".join(served)}
    if glibcs := [w.glibc for part in parts for w in part if w.glibc]:
        row["glibc"] = max(glibcs, key=numbers)
    row["requires"] = [
        f"{canonicalize_name(part[0].file.name.partition('-')[0])}=={part[0].version}" for part in parts
    ]
    return row


def _find_newest(reader: Reader, wanted: Requirement | None, platform: str) -> list[WheelFile]:
    """Return the wheels of the newest release that a requirement allows on a platform, yanked ones last."""
    fitting = [
        w for w in (reader.wheels(wanted.name) if wanted else ())
        if wanted and w.platform == platform and allows(wanted.specifier, str(w.version)) and not w.version.is_prerelease
    ]  # fmt: skip
    best = max(fitting, key=lambda w: (w.file.yanked is None, w.version), default=None)
    return [w for w in fitting if best and w.version == best.version]


# --- cuDNN: the GPUs of its ops library, and its sublibraries ----------------------------------------

_CUDNN_PACKAGES = {"11": "nvidia-cudnn-cu11", "12": "nvidia-cudnn-cu12", "13": "nvidia-cudnn-cu13"}
_CUDNN_LIBRARY = re.compile(
    r"nvidia/[^/]+/(?:lib|bin)/(?:x64/|x86_64/)?(libcudnn[^/]*\.so\.\d+|cudnn[^/]*\.dll)"
)
_OPS = r"nvidia/.*/(libcudnn_ops(_infer)?\.so\.\d+|cudnn_ops(_infer)?64_\d+\.dll)"


def read_cudnn(wheel: zipfile.ZipFile) -> Row:
    """Return the kernels of the first complete fat binary of libcudnn_ops, and the names of the libraries.

    Raise ValueError for a wheel without it.
    """
    libraries = sorted({m[1] for n in wheel.namelist() if (m := _CUDNN_LIBRARY.fullmatch(n))})
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


def cudnn_rows(reader: Reader, _: Documents) -> list[Row]:
    """Return one row per cuDNN package, release and platform."""
    rows = []
    for cuda, package in _CUDNN_PACKAGES.items():
        builds = [b for b in reader.builds(package, "8.5", package) if not b.version.is_prerelease]
        for build, fact in reader.measured(builds, "cudnn", read_cudnn):
            row = {
                "package": package, "version": str(build.version), "cuda": cuda, "platform": build.platform,
                "kernels": fact["kernels"], "libraries": fact["libraries"], "sha256": fact["sha256"],
                "bytes": str(fact["bytes"]),
            }  # fmt: skip
            if tags := [w.glibc for w in build.wheels if w.glibc]:
                row["glibc"] = min(tags, key=numbers)
            if is_yanked(build.wheels):
                row["yanked"] = "yes"
            rows.append(row)
    return rows


# --- CUDA toolkits: NVIDIA's `cuda-toolkit` package names the versions of libraries -------------------


def toolkit_rows(reader: Reader, _: Documents) -> list[Row]:
    """Return one row per toolkit release: `parts` are "extra requirement ...", with its pins on Linux."""
    wheels = releases(reader.wheels("cuda-toolkit"), "11.8")
    wheels = {v: w for v, w in wheels.items() if not v.is_prerelease and reader.is_requested(v, "any")}
    facts = reader.all_facts((representative(w) for w in wheels.values()), "metadata")
    return [
        {"version": str(version), "parts": _list_parts(fact["requires"])}
        for version, files in wheels.items() if (fact := facts[representative(files)])
    ]  # fmt: skip


def _list_parts(lines: list[str]) -> list[str]:
    """Return every extra except `all`, each with its requirements: a library, and the libraries that it needs."""
    by_extra: dict[str, list[str]] = {}
    for line in lines:
        extra = re.search(r"extra == *[\"']?([^\s\"')]+)", line)
        if extra and extra[1] != "all":
            needs = list_required([line], "linux-x86_64", ["3.12"], [extra[1]])
            by_extra.setdefault(extra[1], []).extend(str(r) for r, _ in needs if r.name.startswith("nvidia-"))
    return [" ".join([extra, *names]) for extra, names in sorted(by_extra.items()) if names]
