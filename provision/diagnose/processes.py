"""Judge exhausted limits, kills and crashes of a process.

The stack and the loaded frameworks decide the cause of a crash.
"""

from __future__ import annotations

import re

from ..model import Confidence, Evidence
from .candidates import Case, CauseCandidate
from .crashes import Crash, read
from .how_run_program_ended import Ran
from .judge_crash_outside_frameworks import unexplained
from .pattern_search import evidence
from .tracebacks import raised

_LIMIT = "process_limit_reached"
_DAMAGED = "package_files_damaged"
_TOGETHER = "conflicting_frameworks_in_one_env"
_KILLED = re.compile(r"^(?:\S{1,80}: line \d{1,6}: +\d{1,8} )?Killed(?: {2,}.*)?$")
_REQUESTS = (
    re.compile(r"you tried to allocate (\d{1,20}) bytes"),
    re.compile(r"Unable to allocate (\d{1,6}(?:\.\d{1,3})?) (KiB|MiB|GiB|TiB) for an array"),
)
_UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_ABSURD = 1 << 40  # bytes in one piece that no program means to have: a fault in its arithmetic
_NO_MEMORY = re.compile(
    r"^(?:\S{1,80} )?(?:numpy\.\S{1,60}\.)?_?(?:Array)?MemoryError\b|std::bad_alloc|DefaultCPUAllocator: (?:can't|not enough)|"
    r"Unable to allocate \d.{1,20}for an array|[Cc]annot allocate memory(?! in static TLS)|failed to map segment|Memory allocation still failed"
)
_FRAMEWORKS = ("torch", "tensorflow", "jaxlib", "onnxruntime", "tensorrt", "paddle", "mxnet")


def killed(case: Case) -> list[CauseCandidate]:
    """Judge a program that SIGKILL ended.

    The kernel counts the processes that it ends when memory runs out. If it counted none, a person or a
    scheduler sent the signal, which is no failure.
    """
    ran, said = case.ran, (*case.said.group("killed"), *case.said.group("worker_killed"))
    lines = tuple(evidence(x) for x in case.said.lines if _KILLED.match(x.text.strip()))[:2]
    by_signal = bool(ran and ran.signal == "SIGKILL")
    if not (said or lines or by_signal):
        return []
    if ran is None or ran.oom_kills is None:
        return (
            [_make_killed((*lines, *_make_signal_evidence(ran)), 50, "possible")]
            if lines or by_signal
            else []
        )
    if ran.oom_kills == 0:
        return []
    counted = Evidence(
        text=f"the kernel's out-of-memory counter (oom_kill) rose by {ran.oom_kills} while the program ran",
        source=ran.oom_source,
    )
    is_exact = by_signal and ran.oom_source == "cgroup"  # the machine's count has other programs too
    return [
        _make_killed(
            (counted, *lines, *said, *_make_signal_evidence(ran)), 92, "certain" if is_exact else "likely"
        )
    ]


def _make_signal_evidence(ran: Ran | None) -> tuple[Evidence, ...]:
    return (Evidence(text=f"ended by {ran.signal}", source="the program"),) if ran and ran.signal else ()


def _make_killed(shown: tuple[Evidence, ...], weight: int, confidence: Confidence) -> CauseCandidate:
    sure = confidence != "possible"
    return CauseCandidate(
        cause=_LIMIT, weight=weight, confidence=confidence, evidence=shown,
        title="The kernel ended the program: memory ran out" if sure
        else "The program was ended by SIGKILL. The usual cause is that memory ran out",
        fix="Use less memory (fewer data-loader workers, less data in memory), or raise the limit of the container or "
        "job (`docker run --memory`, `sbatch --mem`)." if sure
        else "Check whether memory ran out: `sudo dmesg | grep -i oom`. If so, use less memory or raise the limit. "
        "A scheduler or a person can send SIGKILL too.",
    )  # fmt: skip


def memory(case: Case) -> list[CauseCandidate]:
    """Judge refused host memory: by the limit if it is known, otherwise by the amount requested."""
    shows = tuple(evidence(x) for x in case.said.lines if _NO_MEMORY.search(x.text.strip()))[:2]
    if not shows:
        return []
    request = next((a for e in shows if (a := _parse_bytes(e.text))), None)
    ran = case.ran
    if ran and ran.address_space is not None:
        limit = Evidence(text=f"RLIMIT_AS is {ran.address_space} bytes", source="getrlimit")
        return [
            CauseCandidate(
                cause=_LIMIT, weight=88, confidence="likely", evidence=(*shows, limit),
                title=f"This shell allows a process {ran.address_space >> 20} MiB of address space (ulimit -v)",
                fix="Remove the limit: `ulimit -v unlimited`, or request a job without one from the scheduler.",
            )
        ]  # fmt: skip
    last = next(reversed(raised(case.said.lines)), None)
    if request is None and last and last.kind == "MemoryError":
        title = (
            "The system could not give the program enough memory. The machine's memory is full, not the GPU's"
        )
        weight = 48
    elif request is None or request >= _ABSURD:
        return []
    elif ran and ran.memory is not None and request > ran.memory:
        title = f"The program asked for {_format_gib(request)} GiB of memory at once; this machine or container has {_format_gib(ran.memory)}"
        weight = 80
    else:
        title, weight = f"The system could not give the program {_format_gib(request)} GiB of memory", 50
    sure: Confidence = "likely" if weight >= 66 else "possible"
    return [
        CauseCandidate(cause=_LIMIT, weight=weight, confidence=sure, evidence=shows, title=title, fix=_LESS)
    ]


_LESS = "Use less memory (a smaller batch or array, fewer workers), or a machine, container or job with more."


def _parse_bytes(text: str) -> int | None:
    """Return the bytes in the message of a failed allocation, or None."""
    for pattern in _REQUESTS:
        if match := pattern.search(text):
            unit = _UNITS[match.group(2)] if pattern.groups > 1 else 1
            return int(float(match.group(1)) * unit)
    return None


def _format_gib(size: int) -> str:
    return f"{size / (1 << 30):.1f}"


def open_files(case: Case) -> list[CauseCandidate]:
    """Report the limit on open files."""
    shows = case.said.group("open_files")
    if not shows or case.ran is None or case.ran.open_files is None:
        return []
    return [
        CauseCandidate(
            cause=_LIMIT, weight=90, confidence="likely", evidence=shows,
            title=f"The program opened more than the {case.ran.open_files} files that this shell allows (ulimit -n)",
        )
    ]  # fmt: skip


def crash(case: Case) -> list[CauseCandidate]:
    """Judge a crash by its stack and the loaded libraries. A crash in the program's own code has no cause."""
    stack = read(case.said.lines)
    if stack is None:
        return _judge_unseen_crash(case.ran)
    package, loaded = stack.package, stack.loaded()
    frameworks = [n for n in _FRAMEWORKS if n in loaded]
    shows = _list_evidence(stack)
    where = _describe_place(stack)
    if stack.loading and stack.how == "Bus error":
        of = f" of {package}" if package else ""
        title = f"A library{of} is truncated: loading it ended the program with SIGBUS"
        return [CauseCandidate(cause=_DAMAGED, weight=88, confidence="likely", evidence=shows, title=title)]
    if copies := _find_copies(stack):
        title = f"The program crashed{where} with two copies of {copies} in its stack"
        cause = "cudnn_shadowed_by_other_copy" if "cudnn" in copies else "nvidia_lib_symbol_mismatch"
        return [CauseCandidate(cause=cause, weight=84, confidence="likely", evidence=shows, title=title)]
    if len(frameworks) > 1:
        title = f"The program crashed{where}; {' and '.join(frameworks)} are loaded in one process"
        return [CauseCandidate(cause=_TOGETHER, weight=84, confidence="likely", evidence=shows, title=title)]
    if package is None or not frameworks:
        return _judge_own_crash(case.ran, stack) if case.ran else unexplained(case)
    if package not in _FRAMEWORKS:
        cause, weight = "extension_built_for_other_torch_or_cuda", 70 if stack.loading else 46
        title = f"The program crashed{where} while {frameworks[0]} was loaded"
    elif stack.loading:
        cause, weight, title = _DAMAGED, 46, f"The program crashed{where} while a library was loaded"
    else:
        cause, weight, title = "framework_bug_upgrade", 40, f"The program crashed{where}"
    confidence: Confidence = "likely" if weight >= 66 else "possible"
    return [CauseCandidate(cause=cause, weight=weight, confidence=confidence, evidence=shows, title=title)]


def _judge_own_crash(ran: Ran | None, crash: Crash) -> list[CauseCandidate]:
    """Judge a SIGSEGV outside of every framework in a program that gpuenv ran."""
    if ran is None or ran.signal != "SIGSEGV":
        return []
    file, line, function = crash.frames[0] if crash.frames else ("", 0, "")
    where = f" in {function} ({short_path(file)}, line {line})" if file else _describe_place(crash)
    return [
        CauseCandidate(
            cause="framework_bug_upgrade", weight=24, confidence="possible", evidence=_list_evidence(crash),
            title=f"Compiled code crashed (SIGSEGV){where}; no framework is in its stack",
            fix="Check what the program calls there. Check the environment: `gpuenv verify`. Find the library: "
            "`gpuenv run gdb -batch -ex run -ex bt --args python PROGRAM`.",
        )
    ]  # fmt: skip


def short_path(file: str) -> str:
    """Return the path of a module below its library folder."""
    return re.split(r"/(?:site-packages|dist-packages|lib/python3\.\d+)/", file)[-1]


def _judge_unseen_crash(ran: Ran | None) -> list[CauseCandidate]:
    """Judge a SIGSEGV without a stack in the output, in a program that gpuenv ran."""
    if ran is None or ran.signal != "SIGSEGV":
        return []
    return [
        CauseCandidate(
            cause="framework_bug_upgrade", weight=24, confidence="possible", evidence=_make_signal_evidence(ran),
            title="Compiled code crashed (SIGSEGV); the output does not name the library",
            fix="Check the environment: `gpuenv verify`. Then find the library: `gpuenv run -- gdb "
            "-batch -ex run -ex bt --args python PROGRAM`. Install another release of its package.",
        )
    ]  # fmt: skip


def _describe_place(crash: Crash) -> str:
    """Return the place, such as " in torch (torch/nn/modules/conv.py, line 549, _conv_forward)"."""
    if crash.libraries:
        return f" in {crash.libraries[0].rpartition('/')[2]}"
    if crash.place is None or crash.package is None:
        return ""
    file, line, function = crash.frames[crash.place]
    short = re.split(r"/(?:site|dist)-packages/", file)[-1]
    return f" in {crash.package} ({short}, line {line}, {function})"


def _list_evidence(crash: Crash) -> tuple[Evidence, ...]:
    """Return the lines of the crash, its place, its libraries and the loaded modules."""
    place = (crash.frame_lines[crash.place],) if crash.place is not None else ()
    modules = (crash.modules_line,) if crash.modules_line else ()
    shown = [evidence(x) for x in (crash.line, *place, *crash.library_lines[:2])]
    if modules:
        names = ", ".join(crash.loaded()[:12])
        shown.append(Evidence(text=f"loaded: {names}", source=modules[0].source, line=modules[0].number))
    return tuple(dict.fromkeys(shown))


def _find_copies(crash: Crash) -> str | None:
    """Return a family of NVIDIA libraries that the stack loads from two folders."""
    folders: dict[str, set[str]] = {}
    for path in crash.libraries:
        folder, _, name = path.rpartition("/")
        family = re.match(r"lib(cudnn|cublas|nccl|nvrtc|cusparse|cusolver)", name)
        if folder and family:
            folders.setdefault(family.group(0), set()).add(folder)
    return next((family for family, seen in folders.items() if len(seen) > 1), None)
