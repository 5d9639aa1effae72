"""Measure the peak memory of each command, without its children."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from .ground import JAX, Ground
from .growth import log
from .measuring import PEAK, Row

_LIMIT = 150.0  # MiB


def memory(ground: Ground) -> Iterator[Row]:
    """Measure each command once, in a project with a lock and an environment."""
    folder, big = ground.jax_env.parent, ground.folder / "logs" / "100.log"
    if not big.exists():
        log(ground, 100)
    (folder / "requirements.txt").write_text("einops\n", encoding="utf-8")
    torch, env = ground.torch_env, ground.at_index()
    commands: list[tuple[list[str], Path]] = [
        (["--version"], folder),
        (["--help"], folder),
        (["detect", "--json"], folder),
        (["resolve", "-f", "torch", "-f", "jax", "--gpu", "9.0", "--explain", "--json"], folder),
        (["lock", *JAX], folder),
        (["lock", "--check", *JAX], folder),
        (["create", "env", *JAX], folder),
        (["create", "torch-again", "--lock", str(ground.project / "pylock.toml"), "--gpu", "9.0", "--no-verify"], folder),
        (["verify", "env", "--device", "cpu"], folder),
        (["verify", str(torch), "--device", "cpu", "--deep"], folder),
        (["verify", str(torch), "--device", "cpu", "--locked", "--report", "page.html"], folder),
        (["repair", "torch-again"], folder),
        (["remove", "torch-again"], folder),
        (["diagnose", str(big), "--json"], folder),
        (["run", "env", "--", "true"], folder),
        (["init", "--framework", "jax"], ground.empty("memory-init")),
        (["create", "added", *JAX, "--no-verify"], folder),
        (["list", "--json"], folder),
        (["report", "env"], folder),
        *((["export", "env", "--format", f], folder) for f in ("requirements", "pylock", "environment.yml", "dockerfile", "sbatch")),
        (["bundle", "stick", "--lock", str(ground.project / "pylock.toml")], folder),
        (["profiles", "list"], folder),
        (["profiles", "show", "torch"], folder),
        (["profiles", "check"], folder),
    ]  # fmt: skip
    for args, where in commands:
        yield _peak(ground, args, where, env if "torch" in " ".join(args) else ground.env)
    ground.empty("jax/stick")


def _peak(ground: Ground, args: list[str], folder: Path, env: dict[str, str]) -> Row:
    out = ground.folder / "peak"
    out.unlink(missing_ok=True)
    argv = [sys.executable, "-c", PEAK, str(out), *args]
    done = subprocess.run(argv, cwd=folder, env=env, capture_output=True, text=True, check=False)
    # 6 is `lock --check` of a lock for other words, 8 a verdict without a GPU: both have done their work.
    if done.returncode not in (0, 6, 8) or not out.exists():
        sys.exit(
            f"gpuenv {' '.join(args)}\n{done.stdout[-2000:]}{done.stderr[-2000:]}\nexit {done.returncode}"
        )
    words = [a.rpartition("/")[2] for a in args if not a.startswith("/") or a.endswith(".log")]
    name = " ".join(words)[:34]
    return Row("memory", name, "", int(out.read_text(encoding="utf-8")) / 1024, _LIMIT, unit="MiB")
