"""What the benchmark watches for: fast commands start nothing and ask no network, and growth stays linear."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
from benches import growth, watched  # noqa: E402  # scripts/ is no package

RESOLVE = ("resolve", "-f", "torch", "--driver", "550.54.15", "--gpu", "8.0")


def test_version_and_resolve_start_nothing_and_ask_no_network(gpuenv):
    assert gpuenv(*RESOLVE).code == 0  # Pythons that do not tell their version by their place are asked once
    for args in (["--version"], RESOLVE):
        found, _ = watched.watched(args, gpuenv.work, gpuenv.env)
        assert found == [], args


def test_a_heavy_import_is_noticed(gpuenv, monkeypatch):
    monkeypatch.setattr(watched, "HEAVY", ("typer",))
    found, _ = watched.watched(["profiles", "check"], gpuenv.work, gpuenv.env)
    assert found == ["import typer"]


def test_a_started_program_is_noticed(gpuenv):
    (gpuenv.work / "bin").mkdir()
    (gpuenv.work / "bin" / "python3").write_text("#!/bin/sh\nexit 3\n")
    (gpuenv.work / "bin" / "python3").chmod(0o755)
    env = {**gpuenv.env, "PATH": f"{gpuenv.work / 'bin'}:{gpuenv.env['PATH']}"}
    found, _ = watched.watched(RESOLVE, gpuenv.work, env)
    assert "subprocess.Popen" in found


def test_growth_that_is_worse_than_linear_fails():
    row, _ = growth._grown("x", "of it", (1, 10, 100), (0.1, 0.5, 12.0))
    assert round(row.found) == 120 and not row.ok
    row, _ = growth._grown("x", "of it", (50, 500), (0.1, 0.99))
    assert row.ok
