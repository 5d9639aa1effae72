"""Runs a probe in the environment's own Python, and reads its report and the API logs of cuDNN and cuBLAS."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import select
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..model import Evidence
from ..model.values import Value
from ..system import process
from ..system.probes import Record, join_sources, parse_records
from ..system.redaction import clean
from ..system.scratch import make_scratch

NO_ANSWER = "no answer within"
ENDED_BY = "the process was ended by"
"""How the words begin that say how a probe's process ended."""


class ProbeReport(Value):
    """The records of a probe in order, and the end of its process.

    `seconds` is the deadline that it ran under. `log` holds the kept lines of the API logs of cuDNN and
    cuBLAS. `malformed` is what
    is wrong with the first record that lacks what its kind must hold.
    """

    records: tuple[Record, ...]
    finished: process.Finished
    seconds: float
    log: str = ""
    malformed: str | None = None

    def read_log(self, stage: str) -> str:
        """The part of the log that was written while the framework ran a stage."""
        start = self.log.find(f"gpuenv: {stage}\n")
        if start < 0 and stage == "convolution":
            start = 0  # without a pipe the library that opens the file first empties it
        if start < 0:
            return ""
        end = self.log.find("gpuenv: ", start + 1)
        return self.log[start:] if end < 0 else self.log[start:end]

    def all(self, kind: str) -> list[Record]:
        return [r for r in self.records if r["kind"] == kind]

    def last(self, kind: str) -> Record | None:
        return next((r for r in reversed(self.records) if r["kind"] == kind), None)

    def stage_record(self, stage: str) -> Record | None:
        """The record of a stage of the low-level probe, or None if it was not reached."""
        return next((r for r in self.all("stage") if r["stage"] == stage), None)

    def values(self, stage: str) -> Mapping[str, Any]:
        """The values that a stage of the low-level probe reported; empty if it was not reached."""
        record = self.stage_record(stage)
        return record["values"] if record else {}

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
        """The reasons that cuDNN logged for its last errors. They say more than the status."""
        reasons = re.findall(r"^e!\s+Error: (.+)$", clean(self.log), re.MULTILINE)
        return tuple(Evidence(r[:500], "cuDNN's log") for r in dict.fromkeys(reasons[-20:]))[-3:]

    def words(self, lines: int = 8) -> tuple[Evidence, ...]:
        """The last lines of stderr, or those of Python's fault handler: the error, the stack, the loaded modules."""
        text = [line.rstrip() for line in clean(self.finished.stderr).splitlines() if line.strip()]
        crash = next((i for i, line in enumerate(text) if line.startswith("Fatal Python error: ")), None)
        shown = text[-lines:]
        if crash is not None:
            stack = next((i for i in range(crash, len(text)) if text[i].startswith("Current thread ")), crash)
            modules = [line for line in text[stack:] if line.startswith("Extension modules: ")]
            shown = [text[crash], *(text[stack : stack + 7] if stack > crash else ()), *modules[:1]]
        return tuple(Evidence(line[:500], "stderr") for line in shown)


def run_probe(
    python: str,
    probes: Sequence[str],
    request: Mapping[str, Any],
    *,
    environ: Mapping[str, str],
    timeout: float,
    options: Sequence[str] = (),
    later_input: Callable[[], Mapping[str, Any] | None] | None = None,
    on_start: Callable[[], None] | None = None,
) -> ProbeReport:
    """Run probes with the target's Python, and collect cuDNN's API log. `timeout` is in seconds.

    `options` are options of Python. `later_input` returns the input that the probe reads when it needs it. None ends
    the probe there. `on_start` is called when the process runs.

    The working directory is an empty folder, because Python would import a file named torch.py from the user's folder.
    Raise OSError if that Python cannot be started.

    Code that runs before the probe (a sitecustomize, a .pth file) can write to the report's descriptor too. So each
    record contains a random word of this run, and other records are dropped. This does not stop hostile code, which
    can read that word.
    """
    from ..environment import interpreter  # only where it is used: commands that read do not load it

    word = os.urandom(16).hex()
    with make_scratch("verify") as scratch:
        empty = Path(scratch, "empty")
        empty.mkdir()
        with collect_log(Path(scratch)) as log:
            finished = interpreter.start(
                python,
                [*options, "-c", join_sources(*probes), json.dumps({**request, "run": word})],
                env={**environ, **log.environ},
                cwd=empty,
                timeout=timeout,
                report="GPUENV_REPORT",
                on_start=on_start,
                stdin=None if later_input is None else lambda: json.dumps(later_input()) + "\n",
            )
    records = parse_records(finished.report, word)
    wrong = [find_malformed(r) for r in records]
    return ProbeReport(
        records=tuple(r for r, problem in zip(records, wrong, strict=True) if problem is None),
        finished=finished,
        seconds=timeout,
        log=log.text,
        malformed=next(filter(None, wrong), None),
    )


# --- the form of a report ------------------------------------------------------------------------
#
# The environment's own Python writes the report, so a damaged or changed environment can write anything. A record
# of another form is dropped and reported as malformed.

_TYPES: dict[str, Any] = {
    "text": str, "int": int, "number": (int, float), "bool": bool, "list": list, "map": dict,
}  # fmt: skip
GRADED = ("convolution", "matmul", "attention", "attention_backend")
"""The records of graded results, by what was computed."""
_FORMS = {
    "begin": "stage:text doing:text",
    "stage": "stage:text failed:call? values:map",
    "framework": "version:text cuda:text? file:text devices:device*",
    "failed": "stage:text",
    **dict.fromkeys(
        GRADED,
        "device:int case:text dtype:text which:text error:number? tolerance:number reason:text ok:bool",
    ),
    "operation": "case:text error:number? tolerance:number ok:bool",
    "backend": "device:int backend:text",
    "attention_by": "case:text backend:text",
    "unserved": "stage:text case:text dtype:text reason:text",
    "mapped": "files:pair*",
    "computed": "files:text*",
    "waited": "seconds:number",
    "extension": "package:text path:text error:text?",
    "numpy": "version:text error:text",
    "needs": "device:text python:text include:text",
    "imported": "module:text error:text?",
    "enter": "framework:text",
    "startup": "what:text value:text? file:text line:int pth:list?",
    "copy": "source:int target:int access:bool speed:number host_speed:number ok:bool",
    "sent": "source:int target:int ok:bool",
    "all_reduce": "device:int ok:bool",
    "arm": "variables:text*",
    "arm_end": "failures:text*",
    "where": "version:text prefix:text include:text path:text* sites:text* user_site:text? frameworks:map",
    # parts of records
    "exception": "error:text text:text",
    "call": "call:text",
    "device": "index:int name:text? capability:text? uuid:text?",
    "gpu": "index:int name:text? capability:text uuid:text",
    "device_file": "path:text problem:text?",
    "memory": "index:int free_mib:int total_mib:int",
    "condition": "index:int slowed:list? lanes:int? most_lanes:int? ecc:bool? remap:bool?",
    "holder": "gpu:int? pid:int memory_mib:int? name:text? framework:text?",
    # values of stages, and of stages that did not fail
    "driver": "kernel_module:text? files:device_file* mig:text* devices:device*",
    "runtime": "libcudart:text? memory:memory* holders:holder* conditions:condition*",
    "cudnn": "mapped:pair*",
    "driver reached": "cuda:text devices:gpu*",
    "runtime reached": "version:text libcudart:text",
    "cudnn reached": "number:int",
}
"""The fields of a record by its kind. A type with `?` may be None, one with `*` is a list. A pair is a path and a version."""


def find_malformed(record: Mapping[str, Any]) -> str | None:
    """Return the first field of a record that is missing or of a wrong type, or None."""
    kind = record["kind"]
    if kind not in _FORMS:
        return None
    wrong = _check_fields(record, "at:number " + _FORMS[kind])
    if wrong is None and kind == "stage":
        stage = record["stage"]
        reached = f"{stage} reached" if record["failed"] is None else ""
        wrong = _check_fields(record["values"], f"{_FORMS.get(stage, '')} {_FORMS.get(reached, '')}")
    elif wrong is None and kind == "failed" and "call" not in record:
        wrong = _check_fields(record, _FORMS["exception"])
    elif wrong is None and kind in GRADED and record["tolerance"] <= 0:
        wrong = "has a tolerance of 0 or less"
    return f"a record {kind!r} {wrong}" if wrong else None


def _check_fields(record: Mapping[str, Any], form: str) -> str | None:
    for field in form.split():
        name, _, kind = field.partition(":")
        if name not in record:
            return f"lacks {name!r}"
        if not _is_of_kind(record[name], kind):
            return f"has a wrong {name!r}"
    return None


def _is_of_kind(value: Any, kind: str) -> bool:
    if kind.endswith("?"):
        return value is None or _is_of_kind(value, kind[:-1])
    if kind.endswith("*"):
        return isinstance(value, list) and all(_is_of_kind(item, kind[:-1]) for item in value)
    if kind == "pair":
        return isinstance(value, list) and len(value) == 2 and all(map(_is_of_kind, value, ("text", "text?")))
    if kind in _TYPES:
        return isinstance(value, _TYPES[kind]) and (kind == "bool" or not isinstance(value, bool))
    return isinstance(value, dict) and _check_fields(value, _FORMS[kind]) is None


# --- the API logs of cuDNN and cuBLAS -----------------------------------------------------------------------------
#
# One JAX process writes about 400 MB of log. A pipe takes it, so it needs no disk space. Only two kinds of lines
# are kept: calls that compute, and cuDNN's messages on its errors.

_CHUNK = 1 << 20
_KEPT = 1 << 25  # bytes of lines; some 500,000 calls
# Calls that compute: of cuDNN the graph API of 8 and 9 and the older one, of cuBLAS the products. Errors as cuDNN 9
# writes them. The name of the stage that begins, which the probe writes.
_TELLING = re.compile(
    rb"^I! CuDNN [^\n]* function cudnn(?:BackendExecute|Convolution\w+)\(\) called[^\n]*\n"
    rb"|^I! cuBLAS \([^\n]* function cublasStatus_t cublas\w*[Gg]emm\w*\([^\n]*\n"
    rb"|^\[[^\n]*\[cublasLt\]\[\d+\]\[Trace\]\[cublasLt\w*Matmul\][^\n]*\n"
    rb"|^gpuenv: \w+\n"
    rb"|^e!\s+Error: [^\n]*\n",
    re.MULTILINE,
)


class Log:
    """The kept lines of a log. `environ` holds the switches of the libraries: LOGLEVEL for cuDNN 9 (3 logs every call),
    LOGINFO for cuDNN 8 and cuBLAS, and level 2 of cuBLASLt, which logs calls that start kernels."""

    def __init__(self, path: Path) -> None:
        self.environ = {
            "CUDNN_LOGLEVEL_DBG": "3",
            "CUDNN_LOGINFO_DBG": "1",
            "CUDNN_LOGDEST_DBG": str(path),
            "CUBLAS_LOGINFO_DBG": "1",
            "CUBLAS_LOGDEST_DBG": str(path),
            "CUBLASLT_LOG_LEVEL": "2",
            "CUBLASLT_LOG_FILE": str(path),
        }
        self._lines, self._size, self._rest = list[bytes](), 0, b""

    def add(self, chunk: bytes) -> None:
        """Add the next bytes of the log."""
        text = self._rest + chunk
        whole = text.rfind(b"\n") + 1
        self._rest = text[whole:][-_CHUNK:]  # a line without an end does not belong to a log
        for line in _TELLING.findall(text, 0, whole):
            if self._size < _KEPT:
                self._lines.append(line)
                self._size += len(line)

    @property
    def text(self) -> str:
        """The kept lines."""
        return b"".join(self._lines).decode("utf-8", "replace")


@contextlib.contextmanager
def collect_log(folder: Path) -> Iterator[Log]:
    """Collect the log of the processes that run within the block.

    All of it is read at the end of the block. If the disk has no pipes, a file in `folder` takes the log.
    """
    path = folder / "cudnn.log"
    log = Log(path)
    try:
        os.mkfifo(path)
    except OSError:  # a disk without pipes
        yield log
        with contextlib.suppress(FileNotFoundError), path.open("rb") as file:
            while chunk := file.read(_CHUNK):
                log.add(chunk)
        return
    with contextlib.ExitStack() as stack:
        reading = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        stack.callback(os.close, reading)
        # A writing end of gpuenv's own keeps the pipe open before cuDNN opens it, and after cuDNN closes it
        stack.callback(os.close, os.open(path, os.O_WRONLY))
        stopping, stop = os.pipe()
        stack.callback(os.close, stopping)
        reader = threading.Thread(target=_drain, args=(reading, stopping, log), daemon=True)
        reader.start()
        try:
            yield log
        finally:
            os.close(stop)
            reader.join()


def _drain(reading: int, stopping: int, log: Log) -> None:
    """Read the pipe until `stopping` is closed, then what is left in it.

    cuDNN writes line by line, and each read slows the framework. So a pipe that holds a whole chunk collects lines
    between two reads. Otherwise it holds 64 KiB.
    """
    try:
        wide = fcntl.fcntl(reading, fcntl.F_SETPIPE_SZ, _CHUNK) == _CHUNK
    except (AttributeError, OSError):  # not Linux; a user who has too many pipes
        wide = False
    poll = select.poll()
    poll.register(reading, select.POLLIN)
    poll.register(stopping, select.POLLIN)
    ready: list[int] = []
    while stopping not in ready:
        ready = [descriptor for descriptor, _ in poll.poll()]
        if reading in ready:
            log.add(os.read(reading, _CHUNK))
            if wide and stopping not in ready:
                time.sleep(0.002)
