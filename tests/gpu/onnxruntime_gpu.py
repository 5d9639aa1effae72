"""Prove ONNX Runtime on a real GPU, and check that verify names what breaks it.

    python tests/gpu/onnxruntime_gpu.py FOLDER --find-links WHEELS

Needs one NVIDIA GPU, a Python that can import provision, and a folder with the wheels of onnxruntime-gpu, torch and what they
require (tests/gpu/wheelhouse.py makes those that are installed). Environments are made in FOLDER: ONNX Runtime alone, and
beside torch. Each fault is made in a copy of the first. Exits 1 where a verdict is not the expected one.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
SYSTEM_CUDNN = Path("/usr/lib/x86_64-linux-gnu/libcudnn.so.9")


def run(*words: object, environ: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run gpuenv from this checkout."""
    argv = [sys.executable, "-m", "provision", *map(str, words)]
    env = {**os.environ, "PYTHONPATH": str(ROOT), **(environ or {})}
    return subprocess.run(argv, env=env, capture_output=True, text=True, check=False)


def remove(pattern: str) -> Callable[[Path], dict[str, str]]:
    """Return a fault: the files of a pattern below site-packages are missing. They are hard links, so the first
    environment keeps its own."""

    def make(site: Path) -> dict[str, str]:
        files = list(site.glob(pattern))
        assert files, f"nothing matches {pattern}"
        for file in files:
            file.unlink()
        return {}

    return make


def preload_system_cudnn(_site: Path) -> dict[str, str]:
    """Make the system's cuDNN the one that is loaded first."""
    return {"LD_PRELOAD": str(SYSTEM_CUDNN)}


FAULTS: dict[str, tuple[Callable[[Path], dict[str, str]], str]] = {
    "the system's cuDNN is preloaded": (preload_system_cudnn, "LD_PRELOAD"),
    "a sublibrary of cuDNN is missing": (
        remove("nvidia/cudnn/lib/libcudnn_engines_precompiled.so.9"),
        "cudnn",
    ),
    "a library that the CUDA provider needs is missing": (
        remove("nvidia/cu13/lib/libcurand.so.10"),
        "libcurand",
    ),
    "the libraries of the provider's CUDA major are missing": (
        remove("nvidia/cu13/lib/libcu*.so.13"),
        "libcu",
    ),
    "the CUDA provider is missing": (
        remove("onnxruntime/capi/libonnxruntime_providers_cuda.so"),
        "onnxruntime",
    ),
}
"""Faults: what makes them, and a word that the verdict's first finding must have."""


def first_site(env: Path) -> Path:
    """Return the site-packages folder of a venv."""
    return next(env.glob("lib/python3*/site-packages"))


def prove(env: Path, frameworks: list[str], wheels: Path) -> bool:
    """Make an environment, print its verdict, and return whether it works."""
    words = [w for name in frameworks for w in ("--framework", name)]
    done = run("create", env, *words, "--find-links", wheels, "--offline", "--device", "cuda")
    print(f"$ gpuenv create {env.name} {' '.join(words)}\n{done.stdout}{done.stderr[-3000:]}", flush=True)
    return done.returncode == 0


def is_named(env: Path, fault: str) -> bool:
    """Make a fault in a copy of an environment, print what verify finds, and return whether it names the fault."""
    make, word = FAULTS[fault]
    copy = env.with_name("copy")
    shutil.rmtree(copy, ignore_errors=True)
    subprocess.run(["cp", "-al", env, copy], check=True)
    environ = make(first_site(copy))
    verdict: dict[str, Any] = json.loads(run("verify", copy, "--json", environ=environ).stdout)
    findings = verdict["findings"]
    first = findings[0] if findings else {"cause": "none", "title": "", "fix": ""}
    failing = next((s for s in verdict["stages"] if s["status"] == "fail"), {"stage": "-", "detail": ""})
    print(f"{fault}: {verdict['verdict']}; stage {failing['stage']}: {failing['detail'][:160]}")
    print(f"    {first['cause']}: {first['title']}\n    fix: {first['fix']}", flush=True)
    return verdict["verdict"] in ("fails", "wrong") and word in json.dumps(first)


def main() -> int:
    """Prove the environments and the faults."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--find-links", type=Path, required=True, metavar="WHEELS")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    alone, beside = options.folder / "alone", options.folder / "beside"
    right = [prove(alone, ["onnxruntime"], options.find_links)]
    right += [prove(beside, ["onnxruntime", "torch"], options.find_links)]
    right += [is_named(alone, fault) for fault in FAULTS]
    print(f"{sum(right)} of {len(right)} as expected")
    return 0 if all(right) else 1


if __name__ == "__main__":
    sys.exit(main())
