"""Whether a program, or a process that it started, had a CUDA context.

A context maps /dev/nvidia-uvm into its process, and nothing else does: NVML and cuInit only open it (measured with
driver 580.159.04, an H100). Making and destroying a context takes 0.13 s and more. So looking each 10 ms finds even a program that does
nothing else, in containers too, where NVML names processes by the ids of the host.
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

from .children import find_descendants

_DEVICE = "/dev/nvidia-uvm"
_PAUSE, _SHORT_PAUSE = 0.02, 0.01
_SHARE = 0.01
"""The most of the time that looking may take, but for the first seconds after a process opened the device."""
_SECONDS = 10.0


class ContextWatch(threading.Thread):
    """Looks for a CUDA context in the descendants of this process until one is found, or `end` is called."""

    def __init__(self) -> None:
        super().__init__(name="gpu-watch", daemon=True)
        self._stop_now = threading.Event()
        self._found = False

    def run(self) -> None:
        pause, opened = _PAUSE, None
        while not self._found and not self._stop_now.wait(pause):
            start, cost = time.monotonic(), time.thread_time()
            using = [pid for pid in _list_family() if _opens_device(pid)]
            self._found = any(map(_has_context, using))
            opened = opened or (start if using else None)
            soon = opened is not None and start - opened < _SECONDS
            pause = _SHORT_PAUSE if soon else max(_PAUSE, (time.thread_time() - cost) / _SHARE)

    def end(self) -> bool:
        """Stop looking, and return whether a context was found."""
        self._stop_now.set()
        self.join()
        return self._found


def _list_family() -> set[int]:
    """Return the descendants of this process, from the kernel's lists of children, or else from all processes."""
    found, todo = set[int](), [os.getpid()]
    while todo:
        pid = todo.pop()
        try:
            lists = [task / "children" for task in Path(f"/proc/{pid}/task").iterdir()]
            children = {int(word) for one in lists for word in one.read_bytes().split()}
        except OSError:  # it has ended, or the kernel has no such lists
            if pid == os.getpid():
                return find_descendants(pid)
            continue
        todo += children - found
        found |= children
    return found


def _opens_device(pid: int) -> bool:
    try:
        return any(map(_is_device, os.scandir(f"/proc/{pid}/fd")))
    except OSError:  # it has ended, or belongs to another user
        return False


def _is_device(entry: os.DirEntry[str]) -> bool:
    try:
        return os.readlink(entry.path).endswith(_DEVICE)  # noqa: PTH115  # many files, many times a second
    except OSError:  # it was closed
        return False


def _has_context(pid: int) -> bool:
    """Return whether a process has the mapping. Its list of mappings is long, so only users of the device are read."""
    try:
        with Path(f"/proc/{pid}/maps").open("rb") as maps:
            return any(line.rstrip().endswith(_DEVICE.encode()) for line in maps)
    except OSError:
        return False
