"""Find the slots of a candidate, which fill its title and its fix, and which rows of fixes can require.

They are facts of the text and values derived from them here, such as the index of a CUDA, or the package of a compiled
extension. `resolve` chooses versions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

from packaging.version import Version

from ..model import (
    FRAMEWORKS,
    FrameworkRequest,
    Plan,
    Request,
    Target,
    TargetGpu,
    format_label,
)
from ..profiles.wording import SLOT, fill_text
from ..system.versions import major
from .case import Candidate, Case
from .context import list_programs
from .facts import CONDITIONS
from .libraries import find_cuda_of, find_cudnn_major
from .lines import package_of, read_frame

_COMMON = 12  # the CUDA major that most drivers in use support
_PAGE = "https://download.pytorch.org/whl/"
PROGRAM_SLOTS = (
    "install",
    "gpu_build",
    "conda_build",
    "libraries",
    "memory",
    "workers",
    "check",
    "cpu_package",
)
SLOTS = frozenset(
    (*CONDITIONS, *PROGRAM_SLOTS, "cudnn_built", "cudnn_loaded", "launch_fixed", "pip", "package", "module", "missing",
     "missing_cuda", "missing_cudnn", "old_cuda", "old_cudnn", "cu", "cuda_major", "driver_label", "installed_label", "proposed_label", "index",
     "floor", "fits", "create", "create_python", "release", "upgrade", "worked", "held_by_others", "launch_fewer", "two_wheels",
     "kept_wheel", "symbol_library", "symbol_wheel", "other_copy", "variable", "ptx_version", "nvcc", "old_arch", "gcc", "gxx",
     "own_code", "wanted_wheel", "wanted_label", "wheel_pythons", "companion", "cudnn_upgrade", "why", "others", "guess", "wanted_by", "deb", "t64", "rpm", "instead")
)  # fmt: skip
"""What a row may name beside other facts. Each is also a condition: that it is known."""


def find_slots(found: Candidate, case: Case) -> dict[str, str]:
    """Return the slots of a candidate."""
    slots = {"pip": "pip"} | {name: known[0].value for name, known in case.facts.seen.items()}
    slots |= dict((*_find_libraries(found, case), *_read_details(found, case)))
    slots |= found.slots
    _add_versions(slots, found, case)
    _add_programs(slots, found, case)
    return slots


def _add_programs(slots: dict[str, str], found: Candidate, case: Case) -> None:
    """Add the commands of the program at fault: that of the package, then those that the evidence names, then others."""
    rows = list_programs(case, found.evidence)
    package = slots.get("package")
    if package:
        own = [r for r in case.profiles.programs if package == r.program or package in r.modules]
        slots["package"] = own[0].program if own else package
        rows = [*own, *rows]
    rows += [r for r in case.profiles.programs if r.program == slots.get("framework") and r not in rows]
    if rows:
        slots["program"] = rows[0].program
    framework = next((r.program for r in rows if r.program in FRAMEWORKS), None)
    if framework:
        slots.setdefault("framework", framework)
    for slot in PROGRAM_SLOTS:
        mine = rows[:1] if slot == "install" else rows
        text = next((t for r in mine if (t := getattr(r, slot))), None)
        if text and all(n in slots for n in SLOT.findall(text)):
            slots.setdefault(slot, fill_text(text, slots, sentence=False))


def _find_libraries(found: Candidate, case: Case) -> Iterator[tuple[str, str]]:
    """Yield the missing library and its CUDA or cuDNN."""
    names = case.facts.all("missing")
    of_cudnn = found.cause.startswith("cudnn")
    if named := [n for n in names if ("cudnn" in n.lower()) == of_cudnn] or names:
        yield "missing", named[0]
    if cuda := next((c for n in names if (c := find_cuda_of(n))), None):
        yield "missing_cuda", cuda
    if cudnn := next((m for n in names if "cudnn" in n.lower() and (m := find_cudnn_major(n))), None):
        yield "missing_cudnn", cudnn


_EXTENSION = re.compile(r"((?:[\w.~:-]*[/\\])*)([\w-]+?)(?:\.(?:cpython|cp3)[\w-]*|\.abi3)?\.(?:so|pyd)\b")
_ONE_LIBRARY = re.compile(r"\bnvidia[-_]([a-z]{2,12}(?:[-_][a-z]{2,12})?)[-_]cu(1\d)\b")
_FAMILIES = {"nvjitlink": "nvidia-nvjitlink", "nccl": "nvidia-nccl", "cublas": "nvidia-cublas", "cusparse": "nvidia-cusparse",
             "cusolver": "nvidia-cusolver", "cufft": "nvidia-cufft", "nvrtc": "nvidia-cuda-nvrtc", "cupti": "nvidia-cuda-cupti"}  # fmt: skip
_OF_OTHERS = (
    re.compile(
        r"([\d.]+) ([MG])iB total capacity; ([\d.]+) ([MG])iB already allocated; ([\d.]+) ([MG])iB free;(?: ([\d.]+) ([MG])iB reserved)?"
    ),
    re.compile(
        r"total capacity of ([\d.]+) ([MG])iB of which ([\d.]+) ([MG])iB is free.*?this process has ([\d.]+) ([MG])iB",
        re.IGNORECASE,
    ),
)
_RESERVED = re.compile(r"([\d.]+) ([MG])iB already allocated;.*; ([\d.]+) ([MG])iB reserved")
_UNUSED = re.compile(
    r"([\d.]+) ([MG])iB is allocated by PyTorch, and ([\d.]+) ([MG])iB is reserved by PyTorch but unallocated"
)
_FRAGMENTED = 0.2  # of the reserved memory that is unused
_BUILT = re.compile(
    r"(?:Failed building wheel for|Building wheel for|Failed to(?: download and)? build|pip3? install(?: -\S+)*|Collecting) "
    r"`?([A-Za-z][\w.-]{1,60})(?![\w.-]|` into the environment)"  # uv names in backticks what it builds, and a remedy
)
_WORKED = re.compile(
    r"\b(?:works|worked)(?: fine)? (?:with|in|on) ((?:[A-Za-z]\w* )?v?\d+\.\d+(?:\.\d+)*)|"
    r"\b((?:[A-Za-z]\w* )?v?\d+\.\d+(?:\.\d+)*)(?: image)? (?:works|worked|still worked)\b"
)
_SHOWN = tuple(
    (slot, re.compile(form), value)
    for slot, form, value in (
        ("ptx_version", r"Unsupported \.version (\d+\.\d+)", r"\1"),
        ("old_cuda", r"Unsupported \.version [1-6]\.", "yes"),  # PTX 7.0 came with CUDA 11
        ("gcc", r"gcc versions later than (\d+)", r"gcc-\1"),
        ("gxx", r"gcc versions later than (\d+)", r"g++-\1"),
        ("other_copy", r"(/[^\s:'\"]*cudnn[^\s:'\"]*\.so(?:[\d.]*\d)?)", r"\1"),
        ("variable", r"\b[A-Z][A-Z0-9]+(?:_[A-Z0-9]+)+\b|\bPYTHONHOME\b", r"\g<0>"),
    )
)
"""Slots that the lines of the evidence state."""


def _read_details(found: Candidate, case: Case) -> Iterator[tuple[str, str]]:
    """Yield what the lines of the evidence, or other lines, say in a form of their own."""
    shown = " ".join(e.text for e in found.evidence)
    if match := re.search(r"CUDA\s+configurations?:?\s+(\d{1,2}\.\d)", case.text):
        yield "proposed_label", format_label(match[1])
    if _count_others(shown) > 0.25:
        yield "held_by_others", "yes"
    if match := re.search(
        r"\b(torchrun|torch\.distributed\.(?:launch|run))\b.{0,300}?--(nproc[-_]per[-_]node)", case.text
    ):
        yield "launch_fewer", f"torchrun --{match[2]}=gpu ..."
    for slot, form, value in _SHOWN:
        if match := form.search(shown):
            yield slot, match.expand(value)
    if match := re.search(r"requirement ((?:torch|torchvision|torchaudio)==[\w.]+)\+(cu\d+)", shown):
        yield "wanted_wheel", match[1]
        yield "wanted_label", match[2]
        pythons = {
            p
            for b in case.profiles.builds
            if (f"torch=={b.version}", b.local) == match.groups()
            for p in b.python
        }
        if b := sorted(pythons, key=Version):
            yield "wheel_pythons", f"{b[0]} to {b[-1]}"
    if (match := re.search(r"architecture 'compute_(\d)(\d)'", shown)) and (cuda := case.facts.first("cuda")):
        model = next((g for g in case.profiles.gpus if g.capability == f"{match[1]}.{match[2]}"), None)
        if model and model.last_cuda and Version(model.last_cuda) < Version(cuda):
            yield "nvcc", cuda
            yield "old_arch", f"compute_{match[1]}{match[2]}"
    if match := _WORKED.search(case.text):
        yield "worked", (match[1] or match[2]).strip()
    yield from _find_wheels(shown, case)
    yield from _find_package(found, shown, case)


def _count_others(text: str) -> float:
    """Return the share of the GPU's memory that other processes hold, by the figures of an out-of-memory message."""
    for form in _OF_OTHERS:
        if sizes := _read_sizes(form.search(text)):
            total, used = (
                sizes[0],
                (sizes[2] + max(sizes[1], sizes[3]) if len(sizes) == 4 else sizes[1] + sizes[2]),
            )
            return (total - used) / total
    return 0


def is_fragmented(text: str) -> bool:
    """Return whether much of what PyTorch reserved is unused. It proposes an option in every message."""
    allocated, reserved = _read_sizes(_RESERVED.search(text)) or (0, 0)
    allocated, unused = _read_sizes(_UNUSED.search(text)) or (allocated, reserved - allocated)
    return unused > _FRAGMENTED * (allocated + unused)


def _read_sizes(match: re.Match[str] | None) -> list[float]:
    """Return the sizes of a match, whose groups are numbers and their units, in MiB."""
    pairs = zip(match.groups()[::2], match.groups()[1::2], strict=True) if match else ()
    return [float(n) * (1024 if unit == "G" else 1) for n, unit in pairs if n]


def _find_wheels(shown: str, case: Case) -> Iterator[tuple[str, str]]:
    """Yield two packages of one NVIDIA library, and the library of the message with its package."""
    majors: dict[str, set[str]] = {}
    for line in case.lines:
        for family, cuda in _ONE_LIBRARY.findall(line.text) if "nvidia" in line.text else ():
            majors.setdefault(family.replace("_", "-"), set()).add(cuda)
    family = next((name for name in _FAMILIES if name in shown.lower()), None)
    two = next((n for n in majors if len(majors[n]) > 1 and (family is None or n in _FAMILIES[family])), None)
    built = case.cuda_built
    if two:
        both = sorted(majors[two])
        kept = major(built) if built and major(built) in both else both[-1]
        yield "two_wheels", " ".join(f"nvidia-{two}-cu{m}" for m in both)
        yield "kept_wheel", f"nvidia-{two}-cu{kept}"
    if family:
        soname = re.search(rf"lib{family}\w*\.so(?:\.\d+)?", shown, re.IGNORECASE)
        numbers = re.findall(r"\.so\.(1\d)\b", shown)
        cuda = numbers[-1] if numbers else major(built) if built else "12"
        yield "symbol_library", soname[0] if soname else f"lib{family}"
        if cuda != "11":  # libraries of CUDA 11 often are conda's
            wheel = f"{_FAMILIES[family]}-cu{cuda}"
            if release := re.search(r"__nvJitLink\w*?_(\d+_\d+)\b", shown):  # of the library that misses it
                wheel = f"'{wheel}=={release[1].replace('_', '.')}.*'"
            yield "symbol_wheel", wheel


def _find_package(found: Candidate, shown: str, case: Case) -> Iterator[tuple[str, str]]:
    """Yield the package at fault: of the extension in the message, of the last traceback, or the one that is built."""
    known = {m: r.program for r in case.profiles.programs for m in (*r.modules, r.program)}
    if found.cause in ("build_toolkit_missing_or_mismatched", "host_compiler_unsuitable"):
        names = _BUILT.findall(case.text)
        if names and names[-1] not in ("-e", "."):
            yield "package", names[-1]
        return
    if found.cause == "python_packages_incompatible":
        if match := re.search(r"from '([A-Za-z]\w*)|module '([A-Za-z]\w*)|requires ([A-Za-z][\w-]*)", shown):
            name = match[1] or match[2] or match[3]
            row = next((r for r in case.profiles.imports if r.module == name), None)
            yield "package", row.package if row else name
        return
    if found.cause not in (
        "extension_built_for_other_torch_or_cuda", "package_files_damaged", "system_libs_too_old", "framework_bug_upgrade"
    ):  # fmt: skip
        return
    for folder, name in _EXTENSION.findall(shown):
        path = PurePosixPath(f"{folder}{name}".replace("\\", "/"))
        package = package_of(str(path)) or ""
        for part in (name, package.partition(".")[0], *reversed(path.parts[:-1])):
            if part in known:
                yield "package", known[part]
                return
        if package and not name.startswith("lib"):
            yield "package", package.partition(".")[0].replace("_", "-")
            return
        if not name.startswith(("lib", "_")) and "/" in str(path):
            yield "package", name
            yield "own_code", "yes"
            return
    companions = ("torchvision", "torchaudio", "torchtext")
    named = [m for m in known if re.search(rf"(?<![\w-]){re.escape(m)}(?![\w-])", shown)]
    folders = (
        p
        for line in reversed(case.lines)
        if (f := read_frame(line.text))
        for p in reversed(PurePosixPath(f[0].replace("\\", "/")).parts)
    )
    others = (r.program for r in list_programs(case) if found.cause.startswith("extension"))
    name_ = next((m for m in (*named, *folders, *others) if m in known and known[m] not in FRAMEWORKS), None)
    if name_:
        yield "package", known[name_]
        if known[name_] in companions:
            yield "companion", "yes"


# --- versions ----------------------------------------------------------------------------------


def _add_versions(slots: dict[str, str], found: Candidate, case: Case) -> None:
    """Add the versions, labels and indexes that suit the text's driver, GPU, Python and CUDA."""
    facts = case.facts
    built = case.cuda_built
    if built:
        slots.setdefault("cuda_build", built)
        if floor := case.find_driver_floor(built):
            slots["floor"] = floor
    stated = slots.get("missing_cuda") or built or facts.first("cuda") or facts.first("driver_cuda")
    cuda_major = major(stated) if stated else "12"
    if stated and int(cuda_major) < 11:
        slots.setdefault("old_cuda", "yes")
    slots["cuda_major"], slots["cu"] = cuda_major, f"cu{cuda_major}"
    cudnn = slots.get("missing_cudnn") or slots.get("cudnn_built")
    if cudnn and int(major(cudnn)) < 8:
        slots["old_cudnn"] = "yes"
    if wanted := slots.get("cudnn_built"):
        above = int(major(wanted)) + 1
        slots["cudnn_upgrade"] = (
            f'`{slots["pip"]} install -U "nvidia-cudnn-{slots["cu"]}>={wanted},<{above}"`'
        )
    speaks = facts.first("driver_cuda")
    if speaks:
        slots["driver_label"] = format_label(speaks)
    if installed := facts.first("cuda"):
        slots["installed_label"] = format_label(installed)
    framework = found.slots.get("framework") or next((n for n in FRAMEWORKS if facts.first(n)), None)
    if framework and (version := facts.first(framework)):
        slots["release"] = f"{framework} {version}"
        slots["upgrade"] = f"{slots['pip']} install -U {framework}"
    framework = framework or facts.first("framework")
    if framework is None and case.find_message("imports_tensorflow", "dnn_handle", "loaded_older"):
        framework = "tensorflow"
    if framework:
        slots.setdefault("framework", framework)
    plan = _find_build(framework, case) if framework and case.causes[found.cause].by_build else None
    label = None
    if plan:
        version, cuda, subject = plan
        slots["fits"] = f"{framework} {version} for CUDA {cuda} runs on {subject}"
        label = format_label(cuda)
        if facts.holds("owner=environment"):
            slots["create"] = f"gpuenv create --framework '{framework}=={'.'.join(version.split('.')[:2])}.*'"
    elif facts.holds("owner=environment") and framework:
        slots["create"] = f"gpuenv create --recreate --framework {framework}"
    if label is None and built and found.cause.startswith("extension"):
        label = format_label(built)
    if label := label or _find_label(case):
        slots["index"] = f"{_PAGE}{label}"
    pythons = [p for b in case.profiles.builds if b.framework == framework and b.cuda for p in b.python]
    if pythons:
        newest = max(set(pythons), key=lambda p: (pythons.count(p), Version(p)))
        slots["create_python"] = f"gpuenv create --framework {framework} --python {newest}"


def _find_label(case: Case) -> str | None:
    """Return the CUDA label of torch's index that suits the text's Python, GPU, system and driver."""
    python, speaks = case.facts.first("python"), case.facts.first("driver_cuda")
    # CUDA 13 needs a driver that many machines do not have yet; 12 runs with that driver too.
    older = speaks is not None and int(major(speaks)) < _COMMON
    for cuda in (None,) if older else (str(_COMMON), None):
        if plan := _make_plan(case, "torch", cuda=cuda, python=python):
            return format_label(plan.builds[0].cuda)
    return None


def _find_target(case: Case) -> Target:
    """Return the target of the text: its driver and GPUs, otherwise those of this machine."""
    facts, machine = case.facts, case.circumstances.machine
    driver = facts.first("driver")
    capability = case.capability
    gpus: tuple[TargetGpu, ...] = ()
    if capability and capability in {g.capability for g in case.profiles.gpus}:
        gpus = (TargetGpu(capability=capability, name=facts.first("gpu")),)
    same = not gpus or (machine and {capability} == {g.capability for g in machine.target.gpus})
    if machine and same and not case.names_other_driver():
        return machine.target
    native = facts.holds("os=windows") and not facts.holds("os=wsl")
    return Target(
        platform="windows-x86_64" if native else "linux-x86_64",
        glibc=None if native else facts.first("glibc") or "2.35",
        driver=driver,
        driver_os="windows" if native or facts.holds("os=wsl") else "linux",
        driver_cuda=facts.first("driver_cuda"),
        gpus=gpus,
    )


def _make_plan(case: Case, framework: str, **bounds: Any) -> Plan | None:
    """Return the plan that resolve makes for the text's target, or None without a CUDA build."""
    request = Request(frameworks=(FrameworkRequest(name=framework),), device="cuda", **bounds)
    resolve = case.circumstances.resolve
    if resolve and request not in case.plans:
        case.plans[request] = resolve(request, _find_target(case), case.profiles)
    plan = case.plans.get(request)
    return plan if plan and plan.builds and plan.builds[0].cuda else None


def _find_build(framework: str, case: Case) -> tuple[str, str, str] | None:
    """Return version and CUDA of the build that resolve chooses for the text's target, and the words for the target."""
    target = _find_target(case)
    plan = _make_plan(case, framework) if target.driver or target.gpus else None
    if plan is None:
        return None
    version, cuda = plan.builds[0].version, plan.builds[0].cuda or ""
    whose = [f"driver {target.driver}"] if target.driver else []
    whose += [f"a {g.name or 'GPU'} ({g.capability})" for g in target.gpus[:1]]
    if not target.driver and (floor := case.find_driver_floor(cuda)):
        whose.append(f"driver {floor} or newer")
    return version, cuda, " with ".join(whose)
