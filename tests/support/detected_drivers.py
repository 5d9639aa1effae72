"""Machines with a stub driver."""

import json
import os
from pathlib import Path

from command import KEPT, run_forked

from driver_stub import build, scenario
from provision.detect.query import DriverAnswer

DATA = Path(__file__).parents[1] / "data" / "detect"


def cuda(code):
    return DriverAnswer(source="libcuda", code=code, error=f"libcuda: cuInit returned {code}")


def nvml(code, **more):
    return DriverAnswer(source="nvml", code=code, error=f"NVML code {code}", **more)


_DETECT = """
import json, os, sys
from pathlib import Path
from provision import detect
from provision.model import as_document
root, seconds, alone, *parts = sys.argv[1:]
os.setsid()  # without a terminal
environ = {} if alone == "True" else None
machine = detect.detect(parts or detect.WITH_CUDA, root=Path(root), environ=environ, seconds=float(seconds))
print(json.dumps(as_document(machine)))
"""


def detected_machine(
    folder, what, files, parts=(), *, driver="580.159.04", leave_out=(), env=None, seconds=60, alone=False
):
    """What `detect` says under a stub driver and the made files, which lie in `folder`/root; with `alone` it searches no folder of libraries.

    Libraries that are left out cannot be loaded."""
    root = folder / "root"
    root.mkdir(exist_ok=True)
    for path, text in files.items():
        file = root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    kept = {k: v for k, v in os.environ.items() if k in (*KEPT, "HOME") and k != "LD_LIBRARY_PATH"}
    env = {
        **kept,
        "PATH": "/nowhere",
        **scenario(build(folder / "driver", driver, leave_out=leave_out), what),
        **(env or {}),
    }
    done = run_forked("-c", _DETECT, root, seconds, alone, *parts, env=env)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
