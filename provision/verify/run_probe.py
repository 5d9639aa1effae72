"""Runs a probe in the target's own Python and reads its report."""

from __future__ import annotations

import json
import os
import pkgutil
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..system import process, scratch_folders
from ..system.redaction import clean
from . import cudnn_log

if TYPE_CHECKING:
    from ..model import Evidence

Record = dict[str, Any]
NO_ANSWER = "no answer within"
ENDED_BY = "the process was ended by"
"""How the words begin that say how a probe's process ended."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ProbeReport:
    """The records of a probe in order, and the end of its process.

    `seconds` is the deadline that it ran under. `log` holds the kept lines of cuDNN's API log. `malformed`
    names the first record without a required field, and that field.
    """

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
        """How the process ended, as a sentence, or None if it ended well."""
        if self.finished.ok:
            return f"its report is malformed: {self.malformed}" if self.malformed else None
        last = self.last("begin")
        doing = f" while {last['doing']}" if last else ""
        if self.finished.timed_out:
            return f"{NO_ANSWER} {self.seconds:g} s{doing}"
        if self.finished.signal:
            return f"{ENDED_BY} {self.finished.signal}{doing}"
        return f"the process exited with status {self.finished.returncode}{doing}"

    @property
    def stage(self) -> str | None:
        """The stage that the process was in when it ended."""
        last = self.last("begin")
        return None if last is None else str(last["stage"])

    def complaints(self) -> tuple[Evidence, ...]:
        """Return the reasons that cuDNN logged for its last errors. They say more than the status."""
        from ..model import Evidence

        reasons = re.findall(r"^e!\s+Error: (.+)$", clean(self.log), re.MULTILINE)
        return tuple(Evidence(text=r[:500], source="cuDNN's log") for r in dict.fromkeys(reasons[-20:]))[-3:]

    def words(self, lines: int = 8) -> tuple[Evidence, ...]:
        """Return the last lines of stderr, as evidence."""
        from ..model import Evidence

        text = [line.rstrip() for line in clean(self.finished.stderr).splitlines() if line.strip()]
        shown = _find_crash_lines(text) or text[-lines:]
        return tuple(Evidence(text=line[:500], source="stderr") for line in shown)


def _find_crash_lines(text: Sequence[str]) -> list[str]:
    """Return the lines of Python's fault handler: the error, the stack, and the loaded modules."""
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


def name_framework_probes(name: str) -> tuple[str, ...]:
    """Return the probes of a framework's stages. ONNX Runtime also needs the probe that contains its models."""
    return ("onnx_models", "framework_onnxruntime") if name == "onnxruntime" else (f"framework_{name}",)


def join_sources(*names: str) -> str:
    """Return the text of some probes as one program. They share code because they are in one file."""
    return "\n".join(_read_probe(name) for name in names)


def _read_probe(name: str) -> str:
    data = pkgutil.get_data("provision", f"probes/{name}.py")
    assert data is not None  # every loader that can import gpuenv has files
    return data.decode("utf-8")


@dataclass(frozen=True, kw_only=True, slots=True)
class ChildSettings:
    """How the process of a probe runs. `timeout` is in seconds. `options` are options of Python.

    `later_input` returns the input that the probe reads when it needs it. None ends the probe there. `on_start` is
    called when the process runs.
    """

    environ: Mapping[str, str]
    timeout: float
    options: Sequence[str] = ()
    later_input: Callable[[], Mapping[str, Any] | None] | None = None
    on_start: Callable[[], None] | None = None

    def with_variables(self, variables: Mapping[str, str]) -> ChildSettings:
        return replace(self, environ={**self.environ, **variables})


def run_probe(
    python: str, probes: Sequence[str], request: Mapping[str, Any], child: ChildSettings
) -> ProbeReport:
    """Run probes with the target's Python, and collect cuDNN's API log.

    The working directory is an empty folder, because Python would import a file named torch.py from the user's folder.
    Raise OSError if that Python cannot be started.

    Code that runs before the probe (a sitecustomize, a .pth file) can write to the report's descriptor too. So each
    record contains a random word of this run, and other records are dropped. This does not stop hostile code, which
    can read that word.
    """
    from ..environment import interpreter  # only where it is used: commands that read do not load it

    later = child.later_input
    word = os.urandom(16).hex()
    with scratch_folders.scratch("verify") as scratch:
        empty = Path(scratch, "empty")
        empty.mkdir()
        with cudnn_log.collected(Path(scratch)) as log:
            finished = interpreter.start(
                python,
                [*child.options, "-c", join_sources(*probes), json.dumps({**request, "run": word})],
                env={**child.environ, **log.environ},
                cwd=empty,
                timeout=child.timeout,
                report="GPUENV_REPORT",
                on_start=child.on_start,
                stdin=None if later is None else lambda: json.dumps(later()) + "\n",
            )
    records = _parse(finished.report, word)
    wrong = [find_malformed(r) for r in records]
    return ProbeReport(
        records=tuple(r for r, problem in zip(records, wrong, strict=True) if problem is None),
        finished=finished,
        seconds=child.timeout,
        log=log.text,
        malformed=next(filter(None, wrong), None),
    )


def _parse(report: bytes, word: str | None = None) -> tuple[Record, ...]:
    """Return the records of a report that contain the run's word.

    A crash may cut the last line short, and the size limit the first.
    """
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


# --- the form of a report ---
#
# The environment's own Python writes the report, so a damaged or changed environment can write anything. A record
# of another form is dropped and reported as malformed.
_TEXT = (str,)
_MAYBE = (str, type(None))
_NUMBER = (int, float)

_DEVICE = {"index": (int,), "name": _MAYBE, "capability": _MAYBE, "uuid": _MAYBE}
_FAILED = ({"call": _TEXT}, type(None))
_MEMORY = {"index": (int,), "free_mib": (int,), "total_mib": (int,)}
_HOLDER = {
    "gpu": (int, type(None)),
    "pid": (int,),
    "memory_mib": (int, type(None)),
    "name": _MAYBE,
    "framework": _MAYBE,
}
_KINDS: dict[str, dict[str, Any]] = {
    "begin": {"stage": _TEXT, "doing": _TEXT},
    "stage": {"stage": _TEXT, "failed": _FAILED, "values": {}},
    "framework": {"version": _TEXT, "cuda": _MAYBE, "file": _TEXT, "devices": [_DEVICE]},
    "failed": {"stage": _TEXT},
    "convolution": {
        "device": (int,), "case": _TEXT, "dtype": _TEXT, "which": _TEXT, "error": (*_NUMBER, type(None)),
        "tolerance": _NUMBER, "reason": _TEXT, "ok": (bool,),
    },
    "unserved": {"case": _TEXT, "dtype": _TEXT, "reason": _TEXT},
    "mapped": {"files": list},
    "computed": {"files": [_TEXT]},
    "waited": {"seconds": _NUMBER},
    "extension": {"package": _TEXT, "path": _TEXT, "error": _MAYBE},
    "needs": {
        "device": _TEXT, "python": _TEXT, "compilers": [_TEXT], "compiler": _MAYBE, "include": _TEXT, "headers": (bool,),
    },
    "compiled": {"max_error": _NUMBER, "ok": (bool,)},
    "required": {"module": _TEXT, "error": _MAYBE},
    "imported": {"module": _TEXT, "error": _MAYBE},
    "enter": {"framework": _TEXT},
    "startup": {"what": _TEXT, "value": _MAYBE, "file": _TEXT, "line": (int,), "pth": (list, type(None))},
    "copy": {"source": (int,), "target": (int,), "direct": (bool,), "ok": (bool,)},
    "all_reduce": {"ok": (bool,)},
    "where": {
        "version": _TEXT, "executable": _TEXT, "prefix": _TEXT, "base_prefix": _TEXT, "path": [_TEXT],
        "sites": [_TEXT], "user_site": _MAYBE, "frameworks": {},
    },
}  # fmt: skip
_STAGES: dict[str, dict[str, Any]] = {
    "driver": {
        "kernel_module": _MAYBE, "files": [{"path": _TEXT, "problem": _MAYBE}], "mig": [_TEXT],
        "devices": [{**_DEVICE, "uuid": _TEXT, "capability": _TEXT}],
    },
    "runtime": {"libcudart": _MAYBE, "memory": [_MEMORY], "holders": [_HOLDER]},
    "cudnn": {"mapped": list},
}  # fmt: skip
_REACHED: dict[str, dict[str, Any]] = {
    "driver": {"cuda": _TEXT},
    "runtime": {"version": _TEXT, "libcudart": _TEXT},
    "cudnn": {"number": (int,)},
}


def find_malformed(record: Mapping[str, Any]) -> str | None:
    """Return the first field of a record that is missing or of a wrong type, or None."""
    kind = record["kind"]
    if kind not in _KINDS:
        return None
    wrong = _check_fields(record, {"at": _NUMBER, **_KINDS[kind]}) or _check_kind(record)
    return f"a record {kind!r} {wrong}" if wrong else None


def _check_kind(record: Mapping[str, Any]) -> str | None:
    """Return what is wrong beyond the types of the fields."""
    kind = record["kind"]
    if kind == "stage":
        reached = _REACHED.get(record["stage"], {}) if record["failed"] is None else {}
        return _check_fields(
            record["values"], {**_STAGES.get(record["stage"], {}), **reached}
        ) or _check_pairs(record["values"], "mapped")
    if kind == "failed":
        return None if "call" in record else _check_fields(record, {"error": _TEXT, "text": _TEXT})
    if kind == "convolution" and record["tolerance"] <= 0:
        return "has a tolerance of 0 or less"
    return _check_pairs(record, "files") if kind == "mapped" else None


def _check_pairs(record: Mapping[str, Any], name: str) -> str | None:
    """Check that a list contains pairs of a path and a version."""
    right = all(
        isinstance(row, list) and len(row) == 2 and isinstance(row[0], str) and isinstance(row[1], _MAYBE)
        for row in record.get(name, ())
    )
    return None if right else f"has an entry in {name!r} that is not a pair of path and version"


def _check_fields(record: Mapping[str, Any], wanted: Mapping[str, Any]) -> str | None:
    for name, form in wanted.items():
        if name not in record:
            return f"lacks {name!r}"
        if not _has_form(record[name], form):
            return f"has a wrong {name!r}"
    return None


def _has_form(value: Any, form: Any) -> bool:
    """Return whether a value has a form: a class, one of several, a list of forms, or a mapping of forms."""
    if isinstance(form, list):
        return isinstance(value, list) and all(_has_form(item, form[0]) for item in value)
    if isinstance(form, dict):
        return isinstance(value, dict) and _check_fields(value, form) is None
    if isinstance(form, tuple):
        return any(_has_form(value, one) for one in form)
    return isinstance(value, form) and not (isinstance(value, bool) and form is not bool)
