"""Make each fault that breaks cuDNN for real, on a real GPU, and check that verify names it.

    python tests/gpu/faults.py ENV [--out FOLDER] [--peers] [--only WORDS] [--healthy 10]

Needs root, one NVIDIA GPU, an environment with any of torch, JAX and TensorFlow (each fault is tried with
those that it has), and any Python that can import provision.
Each fault is made in a process of its own that has left the mount namespace (spoil.py), so nothing on
disk changes and faults do not meet; those that take the GPU's memory run alone. For each the first stage
that is not right, the cause and the fix are held against what was expected. `--peers` also asks what
people ask today. Exits 1 when a fault was not named.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

import spoil
from matrix import Fault, faults
from spoil import Place
from verified import verify

from provision.actions.explain import explain_log
from provision.actions.prove import Proof
from provision.config.options import Choices
from provision.model import as_document
from provision.verify import Options, locate_environment

# --- in the process of one fault -------------------------------------------------------------------

AVAILABLE = {
    "torch": "import torch; print(torch.cuda.is_available())",
    "jax": "import jax; print(jax.default_backend())",
    "tensorflow": "import tensorflow; print(tensorflow.config.list_physical_devices('GPU'))",
}


def peers(python: str, frameworks: set[str]) -> dict[str, str]:
    """What people ask today, under the same fault: the last words of each."""
    env = {**os.environ, "FAULT_PEER": "1", "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    env["TF_FORCE_GPU_ALLOW_GROWTH"] = "true"
    collect = {"collect_env": [python, "-m", "torch.utils.collect_env"]} if "torch" in frameworks else {}
    asked = {
        **collect,
        **{f"sees a GPU: {f}": [python, "-c", AVAILABLE[f]] for f in sorted(frameworks)},
        **{
            f"conv {f}": [python, str(Path(__file__).with_name("bare.py")), f, "--one"]
            for f in sorted(frameworks)
        },
    }
    return {name: _said(argv, env, name) for name, argv in asked.items()}


def _said(argv: list[str], env: dict[str, str], name: str) -> str:
    try:
        done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=45, check=False)
    except subprocess.TimeoutExpired:
        return "no answer in 45 s"
    if name == "collect_env":
        wanted = r"^(Is CUDA available|CUDA used to build PyTorch|GPU models.*|GPU \d.*|Nvidia driver version|cuDNN version):.*(\n/\S+)?"
        rows = [m.group(0).replace("\n", " ") for m in re.finditer(wanted, done.stdout, re.MULTILINE)]
        return "; ".join(rows) or f"exit {done.returncode}: {done.stderr[-300:]}"
    if done.returncode == 0:
        return (done.stdout.strip().splitlines() or ["(nothing)"])[-1]
    last = [r for r in done.stderr.strip().splitlines() if r.strip()]
    how = f"signal {-done.returncode}" if done.returncode < 0 else f"exit {done.returncode}"
    return f"{how}: {last[-1][:300] if last else ''}"


def judged(fault: Fault | None, verdict: Any) -> dict[str, Any]:
    """A verdict held against what was expected."""
    bad = next((s for s in verdict.stages if s.status == "fail"), None)
    bad = bad or next((s for s in verdict.stages if s.status == "warn"), None)
    top = verdict.findings[0] if verdict.findings else None
    row = {
        "stage": bad.stage if bad else "",
        "status": bad.status if bad else "pass",
        "cause": top.cause if top else "",
        "confidence": top.confidence if top else "",
        "title": top.title if top else (bad.detail if bad else ""),
        "fix": (top.fix if top else "") or "",
    }
    if fault is None or fault.healthy:
        row["ok"] = verdict.verdict == "works" and bad is None and top is None
    else:
        cause = row["cause"] in fault.causes if fault.causes else not row["cause"]
        text = f"{row['title']} {row['fix']} {bad.detail if bad else ''}".replace("\n", " ")
        row["ok"] = bool(row["stage"] in fault.stages and cause and re.search(fault.says, text))
    return row


def one(fault: Fault | None, place: Place, asked: argparse.Namespace) -> list[dict[str, Any]]:
    """Make one fault in this process and verify; the rows of the table."""
    rows = []
    with contextlib.ExitStack() as stack:
        python = asked.env
        if fault is not None:
            spoil.alone()
            python = fault.make(place, stack) or python
        runs = fault.runs if fault else tuple((f,) for f in place.frameworks)
        for frameworks in runs:
            start = time.perf_counter()
            options = Options(frameworks=frameworks, timeout=60)
            env = locate_environment(Path(python))
            verdict = verify(env, options, emit=lambda _: None, diagnose=explain_log)
            if fault and fault.packages:
                proof = Proof(env, Choices(cache_dir=Path(asked.cache)), lambda _: None, options)
                with proof.start(driver=False, packages=True):
                    verdict = proof.add_packages(verdict)
            row = judged(fault, verdict)
            if fault and fault.heals and verdict.verdict == "works" and Path(fault.heals).exists():
                row |= {"ok": None, "title": f"the driver made {fault.heals} again"}
            row |= {"frameworks": "+".join(frameworks), "seconds": round(time.perf_counter() - start, 2)}
            rows.append(row | {"verdict": as_document(verdict)})
        if asked.peers and fault is not None and not fault.healthy:
            rows[0]["peers"] = peers(locate_environment(Path(python)).python, {f for r in runs for f in r})
    return rows


# --- the parent --------------------------------------------------------------------------------------


def run_one(index: int, name: str, asked: argparse.Namespace, scratch: Path) -> list[dict[str, Any]]:
    """One fault in a child with a deadline; whatever happens there is a row."""
    answer = scratch / f"{index}.json"
    argv = [sys.executable, __file__, asked.env, "--child", str(index), "--answer", str(answer)]
    argv += ["--cache", str(scratch.parent / "cache"), "--only", asked.only] + ["--peers"] * asked.peers
    child = subprocess.Popen(
        argv, start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        output = child.communicate(timeout=asked.deadline)[0]
        rows = json.loads(answer.read_text()) if answer.exists() else [{"ok": False, "title": output[-600:]}]
    except subprocess.TimeoutExpired:
        rows = [{"ok": False, "title": f"no answer in {asked.deadline} s"}]
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
    for row in rows:
        row["fault"] = name
        print(line(row), flush=True)
    return rows


def line(row: dict[str, Any]) -> str:
    name = f"{row['fault']} [{row.get('frameworks', '')}]"
    mark = "ok" if row["ok"] else ("not made" if row["ok"] is None else "NOT OK")
    told = [name.ljust(54), row.get("stage", "").ljust(12), row.get("status", "").ljust(5)]
    told += [
        row.get("cause", "").ljust(31),
        row.get("confidence", "").ljust(9),
        f"{row.get('seconds', 0):6.1f} s",
        mark,
    ]
    return " | ".join(told) + ("" if row["ok"] else f"\n      {row.get('title', '')}")


def child(asked: argparse.Namespace) -> None:
    """In the child: make the fault and write the rows to the answer's file."""
    scratch = Path(tempfile.mkdtemp(prefix="fault-", dir=Path(asked.answer).parent))
    try:
        place = spoil.look(locate_environment(Path(asked.env)).python, scratch)
        chosen = [None, *select(faults(place), asked.only)][asked.child]
        rows = one(chosen, place, asked)
    except spoil.NotMadeError as why:
        rows = [{"ok": None, "title": str(why)}]
    except Exception:  # noqa: BLE001 - a fault that raises is a row too
        rows = [{"ok": False, "title": traceback.format_exc()[-1500:]}]
    Path(asked.answer).write_text(json.dumps(rows))
    os._exit(0)


def select(found: list[Fault], words: str) -> list[Fault]:
    return [f for f in found if re.search(words, f.name, re.IGNORECASE)]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("env")
    parser.add_argument("--out", type=Path, default=Path("faults"))
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--healthy", type=int, default=10)
    parser.add_argument("--deadline", type=float, default=150.0, help="seconds for one fault")
    parser.add_argument("--workers", type=int, default=4)
    for hidden in ("--child", "--answer", "--cache"):
        parser.add_argument(hidden, type=int if hidden == "--child" else str, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.child is not None:
        child(asked)
    start = time.perf_counter()
    scratch = Path(tempfile.mkdtemp(prefix="faults-"))
    try:
        rows = matrix(asked, scratch)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    asked.out.mkdir(parents=True, exist_ok=True)
    full = [{k: r.get(k) for k in ("fault", "frameworks", "verdict")} for r in rows]
    (asked.out / "verdicts.json").write_text(json.dumps(full))
    (asked.out / "summary.json").write_text(
        json.dumps([{k: v for k, v in r.items() if k != "verdict"} for r in rows], indent=1)
    )
    good, bad = sum(r["ok"] is True for r in rows), sum(r["ok"] is False for r in rows)
    print(
        f"\n{good} named as expected, {bad} not, {len(rows) - good - bad} not made; {time.perf_counter() - start:.0f} s"
    )
    return 1 if bad else 0


def matrix(asked: argparse.Namespace, scratch: Path) -> list[dict[str, Any]]:
    """All faults, those that bear company in a pool; the order of the rows is the matrix's."""
    place = spoil.look(locate_environment(Path(asked.env)).python, scratch)
    chosen = select(faults(place), asked.only)
    with concurrent.futures.ThreadPoolExecutor(asked.workers) as pool:
        together = [(n, f.name) for n, f in enumerate(chosen, 1) if not f.alone]
        together += [(0, "healthy")] * asked.healthy
        futures = []
        for number, (index, name) in enumerate(together):
            place_of_its_own = scratch / str(number)
            place_of_its_own.mkdir()
            futures.append(pool.submit(run_one, index, name, asked, place_of_its_own))
        rows = [row for future in futures for row in future.result()]
    for index, fault in enumerate(chosen, 1):
        if fault.alone:
            folder = scratch / f"alone-{index}"
            folder.mkdir()
            rows += run_one(index, fault.name, asked, folder)
    if asked.peers:
        show_peers(rows)
    return rows


def show_peers(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        if "peers" in row:
            print(f"\n{row['fault']}")
            for name, said in row["peers"].items():
                print(f"    {name:22} {said}")


if __name__ == "__main__":
    sys.exit(main())
