"""Verify a real environment on a real NVIDIA GPU; exits 1 when anything is not proved.

    python tests/gpu/run_gpu.py ENV [--out FOLDER] [--framework torch --framework jax] [--compare]

ENV is a venv, a conda prefix or a python executable that has the frameworks. Needs no pytest: run it
with any Python that can import provision. One verdict is written per step, as JSON, and a table is
printed; a step that raises is a failed step, and the others still run.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import statistics
import subprocess
import sys
import time
import traceback
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from verified import verify

from provision.actions.explain import explain_log
from provision.model import Event, Verdict, as_document
from provision.verify import Options, locate_environment
from provision.verify.state import FRAMEWORK_STAGES, LAYERS

BARE = Path(__file__).with_name("bare.py")
STAGES = {*LAYERS, *FRAMEWORK_STAGES}


def say(event: Event) -> None:
    print(f"    {event.kind}: {event.text}", flush=True)


def problems(verdict: Verdict, quick: bool) -> list[str]:
    """What speaks against a healthy GPU environment."""
    found = [] if verdict.verdict == "works" else [f"verdict {verdict.verdict}: {verdict.hint}"]
    found += [
        f"{s.stage} {s.framework or ''}: {s.status}: {s.detail}" for s in verdict.stages if s.status != "pass"
    ]
    if quick:
        return found
    found += [f"no stage {s}" for s in STAGES - {s.stage for s in verdict.stages}]
    for framework in verdict.frameworks:
        cudnn = [x for x in framework.libraries if x.soname.startswith("libcudnn")]
        if not cudnn:
            found.append(f"{framework.name}: no libcudnn was mapped")
        found += [f"{framework.name}: {x.path} is not the environment's" for x in cudnn if not x.inside]
        if not framework.devices:
            found.append(f"{framework.name}: no device")
        for device in framework.devices:
            dtypes = {c.dtype for c in device.convolutions if c.case == "conv2d"}
            if not {"float32", "float16"} <= dtypes:
                found.append(f"{framework.name}: only {sorted(dtypes)} were graded")
    return found


def step(name: str, env: str, options: Options, out: Path) -> list[str]:
    print(f"== {name}", flush=True)
    start = time.perf_counter()
    try:
        verdict = verify(locate_environment(Path(env)), options, emit=say, diagnose=explain_log)
    except Exception:  # noqa: BLE001 - a step that raises must not keep the next from running
        traceback.print_exc()
        return [f"{name}: raised"]
    seconds = time.perf_counter() - start
    (out / f"{name}.json").write_text(json.dumps(as_document(verdict), indent=1))
    for s in verdict.stages:
        took = "" if s.seconds is None else f"{s.seconds:.3f} s"
        print(f"  {s.stage:12} {s.framework or '':11} {s.status:5} {took:9} {s.detail}")
    for f in verdict.findings:
        print(f"  finding: {f.cause} ({f.confidence}): {f.title}; {f.fix}")
    print(f"  {verdict.verdict} in {seconds:.2f} s", flush=True)
    return [f"{name}: {p}" for p in problems(verdict, options.quick)]


def compare(env: str, names: list[str], rounds: int = 7) -> None:
    """Print what a verdict costs beside a script that runs the same operations, in alternating rounds after one warm-up."""
    where = locate_environment(Path(env))
    for name in names:
        mine, theirs = [], []
        for _ in range(rounds + 1):
            start = time.perf_counter()
            subprocess.run([where.python, BARE, name], check=True, timeout=300, capture_output=True)
            theirs.append(time.perf_counter() - start)
            start = time.perf_counter()
            verify(where, Options(frameworks=(name,)), emit=lambda _: None)
            mine.append(time.perf_counter() - start)
        a, b = statistics.median(mine[1:]), statistics.median(theirs[1:])
        ranges = " and ".join(f"{min(x[1:]):.2f} to {max(x[1:]):.2f}" for x in (mine, theirs))
        print(f"  {name}: verify {a:.2f} s, bare {b:.2f} s ({ranges}), ratio {a / b:.2f}", flush=True)


def quick(env: str) -> None:
    """Medians of --quick, called here and as a command."""
    where, times, verdict = locate_environment(Path(env)), [], None
    for _ in range(7):
        start = time.perf_counter()
        verdict = verify(where, Options(quick=True), emit=lambda _: None)
        times.append(time.perf_counter() - start)
    stages = ", ".join(f"{s.stage} {s.seconds or 0:.3f} s" for s in (verdict.stages if verdict else ()))
    print(f"  verify(quick): {sorted(times)[3]:.3f} s ({stages})", flush=True)
    if importlib.util.find_spec("typer") is None:
        print("  gpuenv verify --quick: this Python has no typer")
        return
    times = []
    for _ in range(8):
        start = time.perf_counter()
        argv = [sys.executable, "-m", "provision", "verify", env, "--quick", "--json"]
        subprocess.run(argv, capture_output=True, check=True, cwd=Path(__file__).parents[2], timeout=60)
        times.append(time.perf_counter() - start)
    print(f"  gpuenv verify --quick: {sorted(times[1:])[3]:.3f} s", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("env")
    parser.add_argument("--out", type=Path, default=Path("verdicts"))
    parser.add_argument("--framework", action="append", default=[])
    parser.add_argument("--compare", action="store_true", help="also measure the cost against a bare script")
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    names = asked.framework or ["torch", "jax"]
    bad = step("quick", asked.env, Options(quick=True), asked.out)
    for framework in names:
        bad += step(framework, asked.env, Options(frameworks=(framework,), timeout=200), asked.out)
    bad += step("all", asked.env, Options(frameworks=tuple(names), deep=True, timeout=200), asked.out)
    if asked.compare:
        compare(asked.env, names)
        quick(asked.env)
    print("\n".join(["", *bad]) if bad else "\nall stages pass; the cuDNN that ran is the environment's")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
