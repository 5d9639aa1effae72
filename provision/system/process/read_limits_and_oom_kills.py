"""Reads limits of this process and its children, and counts of out-of-memory kills."""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
_CGROUPS = Path("/sys/fs/cgroup")
_NO_LIMIT = 1 << 60  # without a limit cgroup v1 writes the largest multiple of a page


@dataclass(frozen=True, slots=True)
class OomKills:
    """The number of out-of-memory kills by file. The machine's count includes other containers, the cgroup's does not."""

    machine: int | None
    cgroup: int | None

    def since(self, before: OomKills) -> tuple[int, str] | None:
        """Return the kills since then and the file that counts them, or None without a count."""
        if self.cgroup is not None and before.cgroup is not None and self.cgroup > before.cgroup:
            return self.cgroup - before.cgroup, "cgroup"
        if self.machine is None or before.machine is None:
            return None
        return self.machine - before.machine, "/proc/vmstat"


def oom_kills(proc: Path = _PROC, cgroups: Path = _CGROUPS) -> OomKills:
    """Return the current counts. A missing file, as on other systems, counts nothing."""
    counts = [
        _read_count(f / n)
        for f in _list_cgroup_folders(proc, cgroups)
        for n in ("memory.events", "memory.oom_control")
    ]
    return OomKills(_read_count(proc / "vmstat"), next((n for n in counts if n is not None), None))


def memory(proc: Path = _PROC, cgroups: Path = _CGROUPS) -> int | None:
    """Return the bytes of memory of the machine, or of its container or job if less. None if unknown."""
    total = re.search(r"^MemTotal: +(\d+) kB", _read_text(proc / "meminfo"), re.MULTILINE)
    sizes = [int(total.group(1)) << 10] if total else []
    for folder in _list_cgroup_folders(proc, cgroups):
        for name in ("memory.max", "memory.limit_in_bytes"):
            text = _read_text(folder / name).strip()
            if text.isdigit() and int(text) < _NO_LIMIT:
                sizes.append(int(text))
    return min(sizes, default=None)


def limit(name: str) -> int | None:
    """Return a limit of this process ("RLIMIT_AS"), or None without one."""
    try:
        import resource
    except ImportError:  # not on Windows
        return None
    soft, _ = resource.getrlimit(getattr(resource, name))
    return None if soft in (resource.RLIM_INFINITY, -1) else soft


def _list_cgroup_folders(proc: Path, cgroups: Path) -> list[Path]:
    """Return the folders of this process's memory cgroup and its parents, innermost first.

    In a container its cgroup is the root.
    """
    folders: list[Path] = []
    for line in _read_text(proc / "self" / "cgroup").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number != "0" and "memory" not in controllers.split(","):
            continue
        top = cgroups if number == "0" else cgroups / "memory"
        here = top / path.lstrip("/")
        folders += [here, *(p for p in here.parents if p.is_relative_to(top))]
    return list(dict.fromkeys(folders))


def _read_count(path: Path) -> int | None:
    count = re.search(r"^oom_kill (\d+)$", _read_text(path), re.MULTILINE)
    return int(count.group(1)) if count else None


def _read_text(path: Path) -> str:
    with contextlib.suppress(OSError):
        return path.read_text(encoding="ascii", errors="replace")
    return ""
