"""Read a crash from a text: its stack and the loaded modules.

Python's fault handler prints the stack of each thread and the extension modules that were imported. Stack traces of
C++ and the kernel's log name libraries.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from .lines import Line
from .tracebacks import frame, package_of

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


@dataclass(slots=True)
class Crash:
    """A crash of a process ("Segmentation fault"), and the line with it.

    It has the stack of the crashed thread (innermost first: file, line, function), extension modules, and the
    libraries of a native stack.
    """

    how: str
    line: Line
    frames: list[tuple[str, int, str]] = field(default_factory=list)
    frame_lines: list[Line] = field(default_factory=list)
    modules: tuple[str, ...] = ()
    modules_line: Line | None = None
    libraries: list[str] = field(default_factory=list)
    library_lines: list[Line] = field(default_factory=list)

    @property
    def loading(self) -> bool:
        """Whether the crash happened while a library was loaded."""
        first = self.frames[0] if self.frames else ("", 0, "")
        functions = [function for _, _, function in self.frames[:4]]
        return ("create_module" in functions and first[0].startswith("<frozen importlib")) or (
            first[0].endswith("ctypes/__init__.py") and first[2] in ("__init__", "LoadLibrary")
        )

    @property
    def place(self) -> int | None:
        """The index of the first frame that is neither of the import system nor of the standard library's ctypes."""
        for i, (file, _, function) in enumerate(self.frames):
            if file.startswith("<frozen ") or (file.endswith("ctypes/__init__.py") and function in _LOADER):
                continue
            return i
        return None

    @property
    def package(self) -> str | None:
        """The package of site-packages that the crash happened in."""
        native = next((p for path in self.libraries[:6] if (p := package_of(path))), None)
        return native or (package_of(self.frames[self.place][0]) if self.place is not None else None)

    def loaded(self) -> tuple[str, ...]:
        """Return the top-level names of the extension modules and of both stacks, each once."""
        names = [m.partition(".")[0] for m in self.modules]
        names += [p for file, _, _ in self.frames if (p := package_of(file))]
        names += [p for path in self.libraries if (p := package_of(path))]
        return tuple(dict.fromkeys(names))


def read(lines: Sequence[Line]) -> Crash | None:
    """Return the last crash of a text that has a Python stack or a native stack."""
    crash: Crash | None = None
    reading = False
    for line in lines:
        text = line.text.strip()
        if match := _FATAL.search(text):
            crash, reading = Crash(match.group(1), line), False
        elif _NATIVE.search(text):
            crash = crash or Crash("Segmentation fault", line)
            _read_native(crash, line)
        elif crash is None:
            continue
        elif match := _CURRENT.match(text):
            reading = text.startswith("Current") or not crash.frames
        elif match := _MODULES.match(text):
            crash.modules = tuple(m.strip() for m in match.group(1).split(","))
            crash.modules_line = line
        elif reading and (found := frame(line.text)) and len(crash.frames) < _FRAMES:
            crash.frames.append(found)
            crash.frame_lines.append(line)
    return crash if crash and (crash.frames or crash.libraries) else None


def _read_native(crash: Crash, line: Line) -> None:
    """Add the libraries in a line of a native stack, except those of the system."""
    for path in _LIBRARY.findall(line.text)[:4]:
        if not _SYSTEM.match(path.rpartition("/")[2]) and path not in crash.libraries:
            crash.libraries.append(path)
            crash.library_lines.append(line)
