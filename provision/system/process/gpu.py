"""Whether a program, or a process that it started, had a CUDA context.

A context maps /dev/nvidia-uvm into its process, and nothing else does: NVML and cuInit only open it (measured with
driver 580.159.04, an H100). Making a context takes more than 0.1 s, and the mapping stays until the context is destroyed or the process
ends. So looking every 20 ms finds it, in containers too, where NVML names processes by the ids of the host.
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

from .children import find_descendants

_DEVICE = "/dev/nvidia-uvm"
_PAUSE = 0.02
_SHARE = 0.01
"""The most of the time that looking may take."""


class ContextWatch(threading.Thread):
    """Looks for a CUDA context in the descendants of this process until one is found, or `end` is called."""

    def __init__(self) -> None:
        super().__init__(name="gpu-watch", daemon=True)
        self._stop_now = threading.Event()
        self._found = False

    def run(self) -> None:
        pause = _PAUSE
        while not self._found and not self._stop_now.wait(pause):
            start = time.thread_time()
            self._found = any(map(_has_context, _list_family()))
            pause = max(_PAUSE, (time.thread_time() - start) / _SHARE)

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
        except FileNotFoundError:
            if pid == os.getpid():  # a kernel without these lists
                return find_descendants(pid)
            continue
        except OSError:
            continue
        todo += children - found
        found |= children
    return found


def _has_context(pid: int) -> bool:
    """Return whether a process has the mapping. Only one that opened the device has a long list of mappings to read."""
    try:
        if not any(map(_is_device, os.scandir(f"/proc/{pid}/fd"))):
            return False
        with Path(f"/proc/{pid}/maps").open("rb") as maps:
            return any(line.rstrip().endswith(_DEVICE.encode()) for line in maps)
    except OSError:  # it has ended, or belongs to another user
        return False


def _is_device(entry: os.DirEntry[str]) -> bool:
    try:
        return os.readlink(entry.path).endswith(_DEVICE)  # noqa: PTH115  # many files, many times a second
    except OSError:  # it was closed
        return False
