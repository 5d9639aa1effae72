"""Read which libraries and packages exist, from the output of commands that list them.

Facts: `present` (a library's file), `wheel` (an NVIDIA package, such as "cublas-cu12"), `cudnn` (a version that is
installed), `searched` (a family of libraries that a command did not find) and packages by their names. `cudnn_listed`
says that the text lists the copies of cuDNN.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from .facts import Facts
from .lines import Line
from .pattern_search import evidence
from .shell_commands import ShellCommand, shell_commands
from .version_texts import package

_LISTED = re.compile(
    r"\b(?:find|ls|ldconfig|locate|where|whereis|dir|dpkg|rpm|ldd|Get-ChildItem|gci)\b|\bshow -f\b|\bshow .{0,20}--files\b", re.IGNORECASE
)  # fmt: skip
_PACKAGES = re.compile(r"\b(?:pip3?|conda|mamba|micromamba|uv pip)\b.{0,40}\b(?:list|freeze)\b")
_WHOLE_DISK = re.compile(r"\bfind /(?:\s|usr\b|opt\b)|\b(?:p?locate)\b|\bwhere\b.{0,10} /r\b", re.IGNORECASE)
_FILE = re.compile(
    r"(?<![\w./\\-])((?:[\w.~$@+-]{0,80}[/\\]){0,30}(?:lib[\w+-]{2,60}\.so(?:\.\d{1,5}){0,4}|[\w-]{3,60}\.dll))(?![\w.-]*\.(?:py|txt|h)\b)",
    re.IGNORECASE,
)
_GONE = re.compile(r"cannot|not found|no such file|undefined|could not", re.IGNORECASE)
_NOTHING = re.compile(
    r"0$|.{0,60}(?:no such file or directory|could not find files|no matches found|not find any)", re.IGNORECASE
)  # fmt: skip
_WHEEL = re.compile(r"^nvidia[-_]([a-z]{2,20}?(?:[-_][a-z]{2,12})?)[-_]cu(1\d)\s{1,40}(\d{1,3}(?:\.\d{1,5}){1,3})|^nvidia[-_]([a-z]{2,20}?(?:[-_][a-z]{2,12})?)[-_]cu(1\d)==(\d{1,3}(?:\.\d{1,5}){1,3})")  # fmt: skip
_CUDNN_FILE = re.compile(r"(?:^|[/\\])libcudnn\.so\.(\d{1,2}\.\d{1,2}\.\d{1,3})$")
_CUDNN_DEB = re.compile(r"\blibcudnn\d{1,2}(?:-[\w-]{1,20})?[ \t:]\S{0,10}[ \t]{0,40}(\d{1,2}\.\d{1,2}\.\d{1,3})[.\d]{0,6}[-+]")  # fmt: skip
_CUDNN_PACKAGE = re.compile(r"^(?:nvidia[-_])?cudnn(?:[-_]cu1\d)?(?:==|\s{1,40})(\d{1,2}\.\d{1,2}\.\d{1,3})")
_TOOLKIT = re.compile(r"^(?:cudatoolkit|cuda-toolkit|cuda-cudart)\s{1,40}(\d{1,2}\.\d{1,2})")
_HEADER = re.compile(r"#define CUDNN_(MAJOR|MINOR|PATCHLEVEL)\s{1,20}(\d{1,3})\b")
_SHOWN = re.compile(r"^(Name|Version): {0,4}(\S{1,60})$")
_FAMILIES = {
    "cudnn": re.compile(r"cudnn", re.IGNORECASE),
    "cuda": re.compile(r"cudart|cublas|cufft|cusparse|cusolver|curand|nvrtc|libcu\*", re.IGNORECASE),
    "zlib": re.compile(r"zlibwapi", re.IGNORECASE),
}


def add_inventory(facts: Facts, lines: Sequence[Line]) -> None:
    """Add what the commands of a text list as existing, and what they search and do not find."""
    _read_headers(facts, lines)
    _read_shown_packages(facts, lines)
    for command in shell_commands(lines):
        if _PACKAGES.search(command.typed):
            _read_packages(facts, command)
        elif _LISTED.search(command.typed):
            _read_files(facts, command)


def _read_files(facts: Facts, command: ShellCommand) -> None:
    """Add the libraries of a listing, or the families that a search did not find."""
    shown = [line for line in command.output if not _GONE.search(line.text)]
    for line in shown:
        where = evidence(line)
        for match in list(_FILE.finditer(line.text))[:12]:
            facts.add("present", match.group(1), where)
            _add_cudnn(facts, _CUDNN_FILE.search(match.group(1)), line)
        _add_cudnn(facts, _CUDNN_DEB.search(line.text), line)
    if not command.ended or any(not _NOTHING.match(line.text.strip()) for line in command.output):
        return
    if any(";" in part for part in (command.typed,)) and command.output:
        return
    for family, names in _FAMILIES.items():
        if names.search(command.typed):
            facts.add("searched", family, evidence(command.line))
            if _WHOLE_DISK.search(command.typed):
                facts.add("absent", family, evidence(command.line))


def _read_packages(facts: Facts, command: ShellCommand) -> None:
    """Add the NVIDIA packages of a list, or that a list of packages has none."""
    for line in command.output:
        text, where = line.text.strip(), evidence(line)
        if match := _WHEEL.match(text):
            name, major, version = (g for g in match.groups() if g is not None)
            facts.add("wheel", f"{name.replace('_', '-')}-cu{major}", where)
            facts.add(f"nvidia-{name}-cu{major}", version, where)
        if match := _TOOLKIT.match(text):
            facts.add("cuda", match.group(1), where)
            facts.add("conda_toolkit", match.group(1), where)
        _add_cudnn(facts, _CUDNN_PACKAGE.match(text), line)
    wanted = "nvidia" in command.typed.lower() or not re.search(r"[|]", command.typed)
    if wanted and command.output and not facts.all("wheel") and not facts.all("conda_toolkit"):
        facts.add("no_wheels", "yes", evidence(command.line))


def _add_cudnn(facts: Facts, match: re.Match[str] | None, line: Line) -> None:
    if match:
        facts.add("cudnn", match.group(1), evidence(line))
        facts.add("cudnn_listed", match.group(1), evidence(line))


def _read_headers(facts: Facts, lines: Sequence[Line]) -> None:
    """Read the version in cudnn_version.h, which three lines define."""
    numbers: dict[str, str] = {}
    for line in lines:
        if "CUDNN_" in line.text and (match := _HEADER.search(line.text)):
            numbers[match.group(1)] = match.group(2)
            if len(numbers) == 3:
                version = ".".join(numbers[n] for n in ("MAJOR", "MINOR", "PATCHLEVEL"))
                facts.add("cudnn", version, evidence(line))
                facts.add("cudnn_listed", version, evidence(line))
                numbers = {}


def _read_shown_packages(facts: Facts, lines: Sequence[Line]) -> None:
    """Read the name and version of `pip show`, which are on two lines."""
    name: str | None = None
    for line in lines:
        match = _SHOWN.match(line.text.strip())
        if match and match.group(1) == "Name":
            name = match.group(2)
        elif match and name:
            public, _, local = match.group(2).partition("+")
            if re.match(r"\d{1,4}\.\d", public):
                package(facts, name, public, local, evidence(line))
            name = None
