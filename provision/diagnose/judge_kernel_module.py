"""Find a driver whose kernel module is built for another kernel than the running one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from ..model import Evidence
from .candidates import Case, CauseCandidate
from .pattern_search import evidence
from .shell_commands import ShellCommand, shell_commands

_RELEASE = re.compile(r"(?<![\w.])(\d{1,2}\.\d{1,3}\.\d{1,3}[\w.+-]{0,80})")
_DKMS = re.compile(
    r"^nvidia[\w-]{0,30}(?:/|, ?)\S{1,40}, (\d{1,2}\.\d{1,3}\.\d{1,3}[\w.+-]{0,80}),.{0,60}\binstalled"
)
_FILE = re.compile(r"/lib/modules/([\w.+-]{1,80})/\S{0,120}\bnvidia\.ko")
_NO_GPU = (
    "sees_no_gpu",
    "no_device",
    "no_cuda_gpus",
    "no_driver",
    "no_communication",
    "no_devices_found",
    "dlopen",
)


def other_kernel(case: Case) -> list[CauseCandidate]:
    """Compare the kernels with a module of the driver to the running kernel."""
    commands = shell_commands(case.said.lines)
    running = next(_read_running(commands), None)
    built = dict(_read_built(commands))
    unloaded = next(_read_unloaded(commands), None)
    shows = next((s for name in _NO_GPU if (s := case.said.group(name))), ())
    if running is None or not built or running[0] in built or case.said.group("wsl") or _is_loaded(commands):
        return []
    if unloaded is None and not shows:
        return []
    kernels = ", ".join(built)
    return [
        CauseCandidate(
            cause="driver_module_not_loaded", weight=94, confidence="likely",
            evidence=(*([unloaded] if unloaded else []), *shows[:1], running[1], *list(built.values())[:1]),
            title=f"The driver's kernel module is built for another kernel ({kernels}) than the running one ({running[0]})",
        )
    ]  # fmt: skip


def _read_running(commands: Iterable[ShellCommand]) -> Iterator[tuple[str, Evidence]]:
    """Yield the release that uname prints, with its line."""
    for command in commands:
        if re.match(r"uname\b", command.typed):
            for line in command.output[:2]:
                if match := _RELEASE.search(line.text):
                    yield match.group(1), evidence(line)


def _read_built(commands: Iterable[ShellCommand]) -> Iterator[tuple[str, Evidence]]:
    """Yield the kernels with a module of the driver, with their lines."""
    for command in commands:
        if not re.search(r"\bdkms\b|/lib/modules|\bmodinfo\b", command.typed):
            continue
        for line in command.output:
            if match := _DKMS.match(line.text.strip()) or _FILE.search(line.text):
                yield match.group(1), evidence(line)


def _is_loaded(commands: Iterable[ShellCommand]) -> bool:
    """Return whether lsmod lists the driver's module."""
    return any(
        line.text.strip().startswith("nvidia")
        for command in commands
        if re.search(r"\blsmod\b", command.typed)
        for line in command.output
    )


def _read_unloaded(commands: Iterable[ShellCommand]) -> Iterator[Evidence]:
    """Yield the line of an lsmod whose complete output has no module of the driver."""
    for command in commands:
        if re.search(r"\blsmod\b", command.typed) and command.ended:
            yield evidence(command.line)
