"""Runs a probe in the target's own Python and reads what it told."""

from __future__ import annotations

import contextlib
import json
import os
import pkgutil
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..system import process, scratch_folders
from . import cudnn_log, report_shape

if TYPE_CHECKING:
    from ..model import Evidence

Record = dict[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Told:
    """The records of a probe in order, and how its process ended. `seconds` is the deadline that it
    ran under, `log` what cuDNN's API log told."""

    records: tuple[Record, ...]
    finished: process.Finished
    seconds: float
    log: str = ""
    malformed: str | None = None
    """What is wrong with the first record that lacks what its kind must hold."""

    def all(self, kind: str) -> list[Record]:
        return [r for r in self.records if r["kind"] == kind]

    def last(self, kind: str) -> Record | None:
        return next((r for r in reversed(self.records) if r["kind"] == kind), None)

    @property
    def death(self) -> str | None:
        """How the process ended where it did not end well: a sentence, None where it did."""
        if self.finished.ok:
            return f"its report is malformed: {self.malformed}" if self.malformed else None
        last = self.last("begin")
        doing = f" while {last['doing']}" if last else ""
        if self.finished.timed_out:
            return f"no answer within {self.seconds:g} s{doing}"
        if self.finished.signal:
            return f"the process was ended by {self.finished.signal}{doing}"
        return f"the process exited with status {self.finished.returncode}{doing}"

    @property
    def stage(self) -> str | None:
        """The stage that the process was in when it ended."""
        last = self.last("begin")
        return None if last is None else str(last["stage"])

    def complaints(self) -> tuple[Evidence, ...]:
        """What cuDNN itself logged as the reason of its last errors: more than the status says."""
        from ..model import Evidence

        reasons = re.findall(r"^e!\s+Error: (.+)$", self.log, re.MULTILINE)
        return tuple(Evidence(text=r[:500], source="cuDNN's log") for r in dict.fromkeys(reasons[-20:]))[-3:]

    def words(self, lines: int = 8) -> tuple[Evidence, ...]:
        """The last lines of stderr, as evidence."""
        from ..model import Evidence

        text = [line.rstrip() for line in self.finished.stderr.splitlines() if line.strip()]
        shown = _crash(text) or text[-lines:]
        return tuple(Evidence(text=line[:500], source="stderr") for line in shown)


def _crash(text: Sequence[str]) -> list[str]:
    """Where a process crashed and what was loaded, of what Python's fault handler prints; empty where it did not."""
    start = next((i for i, line in enumerate(text) if line.startswith("Fatal Python error: ")), None)
    if start is None:
        return []
    stack = next((i for i in range(start, len(text)) if text[i].startswith("Current thread ")), start)
    modules = [line for line in text[stack:] if line.startswith("Extension modules: ")]
    return (
        [text[start], *text[stack : stack + 7], *modules[:1]]
        if stack > start
        else [text[start], *modules[:1]]
    )


def source(*names: str) -> str:
    """The text of probes, one after another: they share code by standing in one file."""
    return "\n".join(_text(name) for name in names)


def _text(name: str) -> str:
    data = pkgutil.get_data("provision", f"probes/{name}.py")
    assert data is not None  # every loader that gpuenv can be imported by has files
    return data.decode("utf-8")


def run(
    python: str,
    probes: Sequence[str],
    asked: Mapping[str, Any],
    *,
    environ: Mapping[str, str],
    timeout: float,
    options: Sequence[str] = (),
    later: Callable[[], Mapping[str, Any] | None] | None = None,
    on_start: Callable[[], None] | None = None,
) -> Told:
    """Run probes with the target's Python, from an empty folder (a file named torch.py in the user's
    would be imported in torch's place), and collect cuDNN's API log beside it.

    `timeout` is in seconds. `later` gives what the probe reads from stdin once it needs it, None where there
    will be nothing; `on_start` is called once the probe runs. Raises OSError when that Python cannot be started.

    Whatever starts before the probe (a sitecustomize, a .pth file) has the report's descriptor too, so each
    record says a word of this run; others are not believed. Code that is made to fool gpuenv can read that
    word, as it can change the framework itself: this keeps out what was not.
    """
    word = os.urandom(16).hex()
    with scratch_folders.scratch("verify") as scratch:
        empty = Path(scratch, "empty")
        empty.mkdir()
        with cudnn_log.collected(Path(scratch)) as log:
            finished = process.run(
                [python, *options, "-c", source(*probes), json.dumps({**asked, "run": word})],
                env={**environ, **log.environ},
                cwd=empty,
                timeout=timeout,
                report="GPUENV_REPORT",
                on_start=on_start,
                stdin=None if later is None else lambda: json.dumps(later()) + "\n",
            )
    records = _parse(finished.report, word)
    wrong = [report_shape.problem(r) for r in records]
    return Told(
        records=tuple(r for r, problem in zip(records, wrong, strict=True) if problem is None),
        finished=finished,
        seconds=timeout,
        log=log.text,
        malformed=next(filter(None, wrong), None),
    )


def _parse(report: bytes, word: str | None = None) -> tuple[Record, ...]:
    """The records of a report that say the run's word; the last line may be cut short by a crash, the first
    by its length."""
    records = []
    for line in report.split(b"\n"):
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if (
            isinstance(record, dict)
            and isinstance(record.get("kind"), str)
            and record.pop("run", None) == word
        ):
            records.append(record)
    return tuple(records)


def bytecode(python_packages: Sequence[str], cache: Path | None) -> dict[str, str]:
    """How the child keeps its bytecode out of the target.

    Where the packages are compiled already, reading what is there is fastest; where they are not, the
    bytecode goes to gpuenv's cache, so that only the first verify pays for compiling.
    """
    compiled = any(os.path.isdir(os.path.join(p, "__pycache__")) for p in python_packages)
    if compiled or cache is None:
        return {"PYTHONDONTWRITEBYTECODE": "1"}
    return {"PYTHONPYCACHEPREFIX": str(cache / "bytecode")}


@contextlib.contextmanager
def moved_bytecode(cache: Path | None, old: Path, new: Path) -> Iterator[None]:
    """Use the bytecode of an environment for its copy in another place, and in the end that of the copy for the
    environment: Python keeps it by path."""
    if cache is None or old == new:
        yield
        return
    mine, other = (cache / "bytecode" / str(p.absolute()).lstrip("/") for p in (old, new))
    _move(mine, other)
    try:
        yield
    finally:
        _move(other, mine)


def _move(source: Path, target: Path) -> None:
    with contextlib.suppress(OSError):  # Python compiles again what is not there
        if source.is_dir():
            shutil.rmtree(target, ignore_errors=True)
            source.rename(target)
