"""Explain the failure of a stage or a program of an environment by its output, for the commands that ran it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from .. import detect
from ..config import rows
from ..config.options import Choices
from ..environment.place import made_by_gpuenv
from ..errors import GpuenvError
from ..model import (
    Device,
    Emit,
    Event,
    Finding,
    Machine,
    drop_event,
)
from ..system import process
from ..system.process import foreground
from ..system.process.children import signal_name

_SHELL_SIGNAL = 128  # a shell exits with 128 plus the number of the signal that ended its command


def explain_log(
    log: str, device: Device | None = None, choices: Choices | None = None
) -> tuple[Finding, ...]:
    """Return the findings in the log of a failed stage, without examining the machine again.

    `choices` name the user's rows and the cache. An error before a command has read its options has none.
    """
    try:
        known = rows.load(choices or Choices())
    except GpuenvError:
        return ()  # the profiles are broken too, but the stage's own failure is reported
    from ..diagnose import Circumstances, find_causes
    from ..resolve import resolve

    text = [("log", [log.encode("utf-8", "replace")])]
    return find_causes(text, known, Circumstances(resolve=resolve, device=device)).findings


def explain_program(
    name: str, root: Path, command: Sequence[str], ended: process.Finished, before: foreground.OomKills,
    choices: Choices, folder: Path | None = None, emit: Emit = drop_event,
) -> tuple[Finding, ...]:  # fmt: skip
    """Diagnose the last output of a program of an environment, with how it ended, its limits, and where its modules come
    from.

    `before` are the counts of out-of-memory kills at its start. `folder` is where it ran, by default the
    current folder. A crash without a cause is a note.
    """
    from ..diagnose import Circumstances, Ran, find_causes
    from ..environment.record import read_device
    from ..resolve import resolve

    oom_kills, oom_source = foreground.oom_kills().since(before) or (None, None)
    here = folder or Path.cwd()
    ran = Ran(
        signal=ended.signal or signal_name(_SHELL_SIGNAL - ended.returncode),
        oom_kills=oom_kills,
        oom_source=oom_source,
        address_space=foreground.limit("RLIMIT_AS"),
        open_files=foreground.limit("RLIMIT_NOFILE"),
        memory=foreground.memory(),
        made_by_gpuenv=made_by_gpuenv(root),
        env=root,
        folders=[here, *(Path(here, w).resolve().parent for w in command[:8] if w.endswith(".py"))],
    )
    known, device = rows.load(choices), read_device(root)
    text = [(name, [ended.stderr.encode("utf-8", "replace")])]
    alone = Circumstances(resolve=resolve, device=device, ran=ran)
    diagnosis = find_causes(text, known, alone)
    for note in diagnosis.notes:
        emit(Event("note", "diagnose", note))
    if not diagnosis.findings:
        return ()
    on_gpu = device != "cpu"  # only now is this machine examined
    machine, holders = detect_machine(cuda=on_gpu), detect.read_holders if on_gpu else None
    return find_causes(text, known, dataclasses.replace(alone, machine=machine, holders=holders)).findings


def detect_machine(*, cuda: bool) -> Machine:
    """Read this machine without its Pythons and CUDA libraries, which decide no cause. `cuda` starts CUDA too."""
    return detect.detect({"driver", "context", "hardware", "environment", *(["cuda"] if cuda else [])})
