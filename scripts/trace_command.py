"""Trace a command: which files of provision/ it runs, how deep its calls go, and which function calls which.

    python scripts/trace_command.py [--chain] [--files] create --framework jax

Counted are functions that run, in all threads: no bodies of modules and classes, comprehensions or generator expressions.
A function that calls itself counts once in a chain. Children are not traced. The numbers go to standard error, after what the command
writes; `--chain` adds the deepest chain of calls, `--files` the files.
"""

from __future__ import annotations

import inspect
import runpy
import sys
import threading
from functools import cache
from pathlib import Path
from types import CodeType, FrameType

ROOT = Path(__file__).resolve().parent.parent
FOLDER = f"{ROOT / 'provision'}/"
_INNER = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")


class Trace:
    """The functions that ran as "file:function", their calls, and the deepest chain of them, the caller first."""

    def __init__(self) -> None:
        self.functions: set[str] = set()
        self.calls: set[tuple[str, str]] = set()
        self.deepest: list[str] = []

    def note(self, frame: FrameType, event: str, _argument: object) -> None:
        """Note a call. Python calls this for every event of a profile."""
        if event != "call" or not (name := name_function(frame.f_code)):
            return
        chain = [name]
        caller = frame.f_back
        while caller:
            above = name_function(caller.f_code)
            if above and above not in chain:
                chain.append(above)
            caller = caller.f_back
        self.functions.add(name)
        self.calls.update({(chain[1], name)} if chain[1:] else ())
        self.deepest = max(self.deepest, chain[::-1], key=len)


@cache
def name_function(code: CodeType) -> str:
    """Return "file:function" for a function of provision/, else nothing."""
    is_function = code.co_flags & inspect.CO_OPTIMIZED and code.co_name not in _INNER
    if not is_function or not code.co_filename.startswith(FOLDER):
        return ""
    name = getattr(code, "co_qualname", code.co_name)  # since Python 3.11
    return f"{code.co_filename.removeprefix(FOLDER)}:{name.replace('<locals>.', '')}"


def main() -> None:
    """Run a command under the trace, and write its numbers."""
    shown, words = set[str](), sys.argv[1:]
    while words and words[0] in ("--chain", "--files"):
        shown.add(words.pop(0))
    sys.argv = ["gpuenv", *words]
    sys.path.insert(0, str(ROOT))
    trace = Trace()
    threading.setprofile(trace.note)
    sys.setprofile(trace.note)
    try:
        runpy.run_module("provision", run_name="__main__")
    finally:
        sys.setprofile(None)
        files = sorted({name.partition(":")[0] for name in trace.functions})
        rows = [
            f"{len(files)} files, depth {len(trace.deepest)}, {len(trace.calls)} edges, {len(trace.functions)} functions"
        ]
        rows += trace.deepest if "--chain" in shown else []
        rows += files if "--files" in shown else []
        sys.stderr.write("\n".join(rows) + "\n")


if __name__ == "__main__":
    main()
