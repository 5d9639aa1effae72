"""Judge how a process ended: killed, out of memory or files, or crashed. The stack of a crash decides its cause."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ..model import FRAMEWORKS, Evidence
from .case import Candidate, Case, candidate
from .libraries import CUDA, CUDNN
from .lines import Line, package_of, read_frame

_LIMIT, _DAMAGED, _BUG = "process_limit_reached", "package_files_damaged", "framework_bug_upgrade"

# --- limits ------------------------------------------------------------------------------------

_KILLED = re.compile(r"^(?:\S{1,80}: line \d{1,6}: +\d{1,8} )?Killed(?: {2,}.*)?$")
_REQUEST = re.compile(
    r"you tried to allocate (\d{1,20}) (byte)s|Unable to allocate (\d{1,6}(?:\.\d{1,3})?) (KiB|MiB|GiB|TiB) for an array"
)
_UNITS = {"byte": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_ABSURD = 1 << 40  # bytes in one piece that no program means to have: a fault in its arithmetic
_NO_MEMORY = re.compile(
    r"^(?:\S{1,80} )?(?:numpy\.\S{1,60}\.)?_?(?:Array)?MemoryError\b|std::bad_alloc|DefaultCPUAllocator: (?:can't|not enough)|"
    r"Unable to allocate \d.{1,20}for an array|[Cc]annot allocate memory(?! in static TLS)|failed to map segment|Memory allocation still failed"
)
_USED = re.compile(r"\b(\d{1,7}) ?MiB(?: ?/ ?|, )(\d{2,7}) ?MiB")
_EMPTY = 0.05  # of the GPU's memory: what the desktop or the driver uses


def judge_killed(case: Case) -> Iterator[Candidate]:
    """Judge a program that SIGKILL ended.

    The kernel counts the processes that it ends when memory runs out. If it counted none, a person or a
    scheduler sent the signal, which is no failure.
    """
    ran, said = case.circumstances.ran, (*case.find_message("killed"), *case.find_message("worker_killed"))
    lines = tuple(x.evidence for x in case.lines if _KILLED.match(x.text.strip()))[:2]
    by_signal = bool(ran and ran.signal == "SIGKILL")
    signal = (Evidence(f"ended by {ran.signal}", "the program"),) if ran and ran.signal else ()
    if ran is None or ran.oom_kills is None:
        if not (lines or by_signal):
            return
        yield candidate(
            _LIMIT, 50, (*lines, *signal),
            "The program was ended by SIGKILL. The usual cause is that memory ran out",
            case="killed",
        )  # fmt: skip
        return
    if ran.oom_kills == 0 or not (said or lines or by_signal):
        return
    counted = case.facts.find_lines("oom_kills")
    is_exact = by_signal and ran.oom_source == "cgroup"  # the machine's count has other programs too
    yield candidate(
        _LIMIT, 92, (*counted, *lines, *said, *signal), "The kernel ended the program: memory ran out",
        confidence="certain" if is_exact else "likely", case="memory",
    )  # fmt: skip


def judge_host_memory(case: Case) -> Iterator[Candidate]:
    """Judge refused host memory: by the limit if it is known, otherwise by the amount requested."""
    shows = tuple(x.evidence for x in case.lines if _NO_MEMORY.search(x.text.strip()))[:2]
    if not shows:
        return
    ran = case.circumstances.ran
    if ran and ran.address_space is not None:
        limit = Evidence(f"RLIMIT_AS is {ran.address_space} bytes", "getrlimit")
        title = f"This shell allows a process {ran.address_space >> 20} MiB of address space (ulimit -v)"
        yield candidate(_LIMIT, 88, (*shows, limit), title, case="address_space")
        return
    found = next((m for e in shows if (m := _REQUEST.search(e.text))), None)
    request = int(float(found[1] or found[3]) * _UNITS[found[2] or found[4]]) if found else None
    if request is None and case.exceptions and case.exceptions[-1].kind == "MemoryError":
        title, weight = "The system could not give the program enough memory. The machine's memory is full, not the GPU's", 48  # fmt: skip
    elif request is None or request >= _ABSURD:
        return
    elif ran and ran.memory is not None and request > ran.memory:
        title = f"The program asked for {_format_gib(request)} GiB of memory at once; this machine or container has {_format_gib(ran.memory)}"
        weight = 80
    else:
        title, weight = f"The system could not give the program {_format_gib(request)} GiB of memory", 50
    yield candidate(_LIMIT, weight, shows, title, case="memory")


def _format_gib(size: int) -> str:
    return f"{size / (1 << 30):.1f}"


def judge_address_space(case: Case) -> Iterator[Candidate]:
    """Find a limit on address space, which CUDA needs for the memory of the machine and of all GPUs.

    The text must not show that all GPUs are in use.
    """
    limits, shows = (
        case.find_message("address_space_limited")[:1],
        case.find_message("oom", "oom_xla", "cuinit_unknown")[:1],
    )
    loads = [
        (int(match[1]) / int(match[2]), line)
        for line in (case.lines if limits and shows else ())
        for match in _USED.finditer(line.text)
        if int(match[2])
    ]
    unused = [line.evidence for share, line in loads if share < _EMPTY][:1]
    if not limits or not shows or (loads and not unused):
        return
    title = "The address space of the process is limited, and CUDA needs more of it than the job allows"
    weight = 90 if unused else 56
    yield candidate(_LIMIT, weight, (*limits, *unused, *shows), title, case="address_space")


def judge_open_files(case: Case) -> Iterator[Candidate]:
    """Report the limit on open files."""
    shows, ran = case.find_message("open_files"), case.circumstances.ran
    if not shows or ran is None or ran.open_files is None:
        return
    title = f"The program opened more than the {ran.open_files} files that this shell allows (ulimit -n)"
    yield candidate(_LIMIT, 90, shows, title)


# --- crashes -----------------------------------------------------------------------------------

_FATAL = re.compile(r"Fatal Python error: (Segmentation fault|Bus error|Aborted|Illegal instruction)")
_CURRENT = re.compile(r"^(?:Current thread|Thread) 0x[0-9a-f]+.{0,40}\(most recent call first\)")
_MODULES = re.compile(r"^Extension modules: (.{1,4000}?)(?: \(total: \d+\))?$")
# "/x/libcudnn_ops.so.9(+0x1a2b) [0x7f..]", "from /x/libtorch.so" (gdb), "segfault at 0 ip .. in libx.so[7f..+1000]".
_LIBRARY = re.compile(
    r"(?:^|[\s(])((?:/[\w.+-]{1,80}){0,30}/?[\w+-]{2,80}\.so(?:\.\d{1,6}){0,4})(?=[\[(+\s]|$)"
)
_NATIVE = re.compile(r"\[0x[0-9a-f]{4,16}\]|^#\d{1,3} +0x[0-9a-f]{4,16} in |segfault at [0-9a-f]")
_SYSTEM = re.compile(r"^(?:lib(?:c|pthread|m|dl|gcc_s|stdc\+\+)|ld-linux.*)\.so|^libpython")
_LOADER = ("create_module", "_call_with_frames_removed", "module_from_spec", "_load_unlocked", "exec_module",
           "_find_and_load_unlocked", "_find_and_load", "_handle_fromlist", "_gcd_import", "__init__", "LoadLibrary")  # fmt: skip
_FRAMES = 200
_FOLDERS = r"/(?:lib/python3\.\d+/)?(?:site|dist)-packages/|/lib/python3\.\d+/"
_SAID = re.compile(
    r"^(?:.{0,120}[\s:])?Segmentation fault(?: {1,12}\(core dumped\)(?: .{0,200})?|[.!]{0,3})$|^zsh: segmentation fault|"
    r"Fatal Python error: (?:Segmentation fault|Bus error)|\bsegfault at [0-9a-f]|(?:received|signal:?|by) .{0,12}SIGSEGV|"
    r"\bSIGSEGV.{0,12}(?:received|caught)|\bexit(?:ed)?(?: with)?(?: code| status)?[ :=]{1,3}(?:139|-11)\b|"
    r"\bexitcode {0,4}: {0,2}-11\b",
    re.IGNORECASE,
)
_FRAMEWORKS = ("torch", "tensorflow", "jaxlib", "onnxruntime", "tensorrt", "paddle", "mxnet")
_OF_FRAMEWORKS = {
    "torch": re.compile(r"lib(?:torch|c10)(?:_\w{1,30})?\.so"),
    "tensorflow": re.compile(r"(?:libtensorflow\w{0,30}|_pywrap_tensorflow\w{0,30})\.so"),
}
_FAMILY = re.compile(r"lib(cudnn|cublas|nccl|nvrtc|cusparse|cusolver)")
_GDB = "`gpuenv run -- gdb -batch -ex run -ex bt --args python program.py`"
_STACK = f"{_GDB} names the libraries on the stack"


class Frame(NamedTuple):
    """A frame of a stack, and its line of the text."""

    file: str
    line: int
    function: str
    shown: Line

    @property
    def place(self) -> str:
        """The file below its folder of packages, and the line."""
        return f"{re.split(_FOLDERS, self.file)[-1]}, line {self.line}"


@dataclass
class Crash:
    """A crash of a process ("Segmentation fault"), and the line with it.

    It has the stack of the crashed thread (innermost first) that Python's fault handler prints, its extension modules, and the libraries of a native stack, which C++ and the kernel's log name.
    """

    how: str
    line: Line
    frames: list[Frame] = field(default_factory=list)
    modules: tuple[str, ...] = ()
    modules_line: Line | None = None
    libraries: dict[str, Line] = field(default_factory=dict)

    @property
    def loading(self) -> bool:
        """Whether the crash happened while a library was loaded."""
        if not self.frames:
            return False
        first = self.frames[0]
        if first.file.endswith("ctypes/__init__.py"):
            return first.function in ("__init__", "LoadLibrary")
        return first.file.startswith("<frozen importlib") and "create_module" in [
            f.function for f in self.frames[:4]
        ]

    @property
    def frame(self) -> Frame | None:
        """The first frame that is neither of the import system nor of the standard library's ctypes."""
        for frame in self.frames:
            of_ctypes = frame.file.endswith("ctypes/__init__.py") and frame.function in _LOADER
            if not frame.file.startswith("<frozen ") and not of_ctypes:
                return frame
        return None

    @property
    def package(self) -> str | None:
        """The package of site-packages that the crash happened in."""
        native = next((p for path in [*self.libraries][:6] if (p := package_of(path))), None)
        return native or (package_of(self.frame.file) if self.frame else None)

    @property
    def loaded(self) -> list[str]:
        """The top-level names of the extension modules and of both stacks, each once."""
        files = (*(frame.file for frame in self.frames), *self.libraries)
        names = [m.partition(".")[0] for m in self.modules] + [p for f in files if (p := package_of(f))]
        return list(dict.fromkeys(names))

    @property
    def library(self) -> str | None:
        """The name of the library on top of the native stack."""
        return next((path.rpartition("/")[2] for path in self.libraries), None)

    @property
    def place(self) -> str:
        """The place, such as " in torch (torch/nn/modules/conv.py, line 549, _conv_forward)", or ""."""
        if self.library:
            return f" in {self.library}"
        if self.frame is None or self.package is None:
            return ""
        return f" in {self.package} ({self.frame.place}, {self.frame.function})"


def read_crash(lines: Sequence[Line]) -> Crash | None:
    """Return the last crash of a text that has a Python stack or a native stack."""
    crash: Crash | None = None
    reading = False
    for line in lines:
        text = line.text.strip()
        if match := _FATAL.search(text):
            crash, reading = Crash(match[1], line), False
        elif _NATIVE.search(text):
            crash = crash or Crash("Segmentation fault", line)
            for path in _LIBRARY.findall(line.text)[:4]:
                if not _SYSTEM.match(path.rpartition("/")[2]):
                    crash.libraries.setdefault(path, line)
        elif crash is None:
            continue
        elif match := _CURRENT.match(text):
            reading = text.startswith("Current") or not crash.frames
        elif match := _MODULES.match(text):
            crash.modules = tuple(m.strip() for m in match[1].split(","))
            crash.modules_line = line
        elif reading and (found := read_frame(line.text)) and len(crash.frames) < _FRAMES:
            crash.frames.append(Frame(*found, line))
    return crash if crash and (crash.frames or crash.libraries) else None


def judge_crash(case: Case) -> Iterator[Candidate]:
    """Judge a crash by its stack and the loaded libraries."""
    crash, ran = read_crash(case.lines), case.circumstances.ran
    if crash is None:
        return
    package, frameworks = crash.package, [n for n in _FRAMEWORKS if n in crash.loaded]
    shows, where = _list_evidence(crash), crash.place
    if crash.loading and crash.how == "Bus error":
        named = f" of {package}" if package else ""
        title = f"A library{named} is truncated: loading it ended the program with SIGBUS"
        yield candidate(_DAMAGED, 88, shows, title)
        return
    if copies := _find_copies(crash):
        title = f"The program crashed{where} with two copies of {copies} in its stack"
        cause = "cudnn_shadowed_by_other_copy" if "cudnn" in copies else "nvidia_lib_symbol_mismatch"
        yield candidate(cause, 84, shows, title)
        return
    if len(frameworks) > 1:
        title = f"The program crashed{where}; {' and '.join(frameworks)} are loaded in one process"
        yield candidate("conflicting_frameworks_in_one_env", 84, shows, title)
        return
    together = [
        n
        for n in FRAMEWORKS
        if case.facts.first(n) or (n in ("torch", "tensorflow") and case.find_message(f"imports_{n}"))
    ]
    if (
        crash.loading
        and (others := [n for n in together if n not in (package or "")])
        and (package or len(together) > 1)
    ):
        title = (
            f"The program crashed{where} while a library was loaded, in a process with {' and '.join(others)}"
        )
        yield candidate("conflicting_frameworks_in_one_env", 60, shows, title)
        return
    if package and frameworks:
        if package not in _FRAMEWORKS:
            title = f"The program crashed{where} while {frameworks[0]} was loaded"
            weight = 70 if crash.loading else 46
            yield candidate("extension_built_for_other_torch_or_cuda", weight, shows, title)
            return
        if crash.loading:
            yield candidate(_DAMAGED, 46, shows, f"The program crashed{where} while a library was loaded")
            return
        yield candidate(_BUG, 40, shows, f"The program crashed{where}")
        return
    if ran is None or ran.signal == "SIGSEGV":
        yield from _judge_outside(case, crash)


def _judge_outside(case: Case, crash: Crash) -> Iterator[Candidate]:
    """Judge a crash by SIGSEGV or SIGBUS outside of every framework. An abort says its reason in its own words.

    Most such crashes have nothing to do with a GPU. So only a Python package, a CUDA library or a framework's library
    on top of the stack gives a cause, which is at most possible.
    """
    by_signal = crash.how in ("Segmentation fault", "Bus error")
    if not by_signal or not any(_SAID.search(x.text.strip()) for x in case.lines):
        return
    if name := crash.library:
        title, owner = f"The program crashed in {name}", None
        framework = next((f for f, pattern in _OF_FRAMEWORKS.items() if pattern.match(name)), None)
        if framework:
            cause, title, owner = _BUG, f"{title}, a library of {framework}", framework
        elif CUDNN.match(name):
            cause, title = "cudnn_shadowed_by_other_copy", f"{title}; two cuDNN builds may be mixed"
        elif CUDA.match(name):
            cause, title = "nvidia_lib_symbol_mismatch", f"{title}; two CUDA releases may be mixed"
        else:
            return
        at = next(iter(crash.libraries.values()))
    elif crash.package and crash.frame:
        owner, at = crash.package, crash.frame.shown
        cause, title = _BUG, f"The program crashed{crash.place}"
        if crash.loading:
            cause, title = _DAMAGED, f"{title} while it loaded a library"
    else:
        return
    yield candidate(cause, 30, (crash.line.evidence, at.evidence), title, case="crash", package=owner)


def describe_crash(case: Case) -> str | None:
    """Return a note on a crash without a cause, with the command that finds more, or None."""
    said = next((x for x in case.lines if _SAID.search(x.text.strip())), None)
    crash, ran = read_crash(case.lines), case.circumstances.ran
    if ran:
        if ran.signal != "SIGSEGV":
            return None
        if crash is None:
            return f"the program crashed (SIGSEGV), and its output does not say where: {_STACK}"
    elif said is None:
        return None
    elif crash is None:
        return (
            f"line {said.number} shows a crash without a stack: `gpuenv run -- CMD`, or `python -X faulthandler PROGRAM`, "
            "shows where it happened"
        )
    first = crash.frames[0] if crash.frames else None
    place = crash.library or (f"{first.function} ({first.place})" if first else "")
    own = next((f for f in crash.frames if not re.search(rf"^<|{_FOLDERS}", f.file)), first)
    called = f", called at {own.place}" if own and own is not first else ""
    script = crash.frames[-1].file if crash.frames else ""
    stack = _STACK.replace("program.py", script) if re.fullmatch(r"[\w./+-]+\.py", script) else _STACK
    return f"the program crashed in {place}{called}, outside of known packages: {stack}"


def _list_evidence(crash: Crash) -> list[Evidence]:
    """Return the lines of the crash, its place, its libraries and the loaded modules."""
    frame = [crash.frame.shown] if crash.frame else []
    shown = [x.evidence for x in (crash.line, *frame, *[*crash.libraries.values()][:2])]
    if line := crash.modules_line:
        text = f"loaded: {', '.join(crash.loaded[:12])}"
        shown.append(Evidence(text, line.source, line.number))
    return shown


def _find_copies(crash: Crash) -> str | None:
    """Return a family of NVIDIA libraries that the stack loads from two folders."""
    folders: dict[str, set[str]] = {}
    for path in crash.libraries:
        folder, _, name = path.rpartition("/")
        if folder and (family := _FAMILY.match(name)):
            folders.setdefault(family[0], set()).add(folder)
    return next((family for family, seen in folders.items() if len(seen) > 1), None)
