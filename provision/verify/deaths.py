"""The cause of a process's end where only the signal says something."""

from __future__ import annotations

from ..model import Evidence, Finding
from ..system.process import Finished


def by_signal(finished: Finished, evidence: tuple[Evidence, ...]) -> Finding | None:
    """What SIGBUS and SIGKILL mean while libraries are loaded; None for other signals."""
    if finished.signal == "SIGBUS":
        return Finding(
            cause="package_files_damaged",
            title="A library's file is shorter than it says: reading it ended the process by SIGBUS",
            evidence=evidence,
            fix="Install the framework and its libraries again, without the installer's cache.",
        )
    if finished.signal == "SIGKILL" and not finished.timed_out:
        return Finding(
            cause="process_limit_reached",
            title="The process was ended by SIGKILL, as the kernel does when memory runs out",
            evidence=evidence,
            fix="See whether memory ran out (sudo dmesg | grep -i oom); if so, give the machine, container or job more.",
            confidence="possible",
        )
    return None
