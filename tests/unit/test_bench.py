"""The benchmark's own parts, and what it watches for: fast commands start nothing and ask no network."""

import hashlib
import json
import re
import sys
import urllib.request
import xml.etree.ElementTree as ET
from contextlib import ExitStack
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
from benches import fleets, growth, plot, serving, tables, tiny, watched  # noqa: E402  # scripts/ is no package
from benches.ground import Ground  # noqa: E402
from benches.measuring import PEAK, Row, interleaved  # noqa: E402

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


def test_the_index_serves_pages_metadata_and_parts(tmp_path):
    tiny.wheel(tmp_path, "some-name", "1.0", requires=("other",), weight=5000)
    (file,) = tmp_path.glob("*.whl")
    with serving.serving(tmp_path) as address:
        page = urllib.request.urlopen(f"{address}/some-name/").read().decode()
        url, told = re.search(r'href="([^"#]+)#sha256=(\w+)"', page).groups()
        root = address.removesuffix("/simple")
        asking = urllib.request.Request(
            f"{address}/some-name/", headers={"Accept": f"{serving.JSON}, text/html;q=0.1"}
        )
        (row,) = json.loads(urllib.request.urlopen(asking).read())["files"]
        assert (row["url"], row["hashes"]["sha256"], row["size"]) == (url, told, file.stat().st_size)
        data = urllib.request.urlopen(root + url).read()
        assert data == file.read_bytes() and hashlib.sha256(data).hexdigest() == told
        assert b"Requires-Dist: other" in urllib.request.urlopen(f"{root}{url}.metadata").read()
        for part, want in (("bytes=5-9", data[5:10]), ("bytes=-7", data[-7:]), ("bytes=10-", data[10:])):
            request = urllib.request.Request(root + url, headers={"Range": part})
            with urllib.request.urlopen(request) as answer:
                assert (answer.status, answer.read()) == (206, want)
        with pytest.raises(urllib.error.HTTPError):
            urllib.request.urlopen(f"{root}/files/../{file.name}x")


def test_medians_are_of_interleaved_rounds():
    order = []
    taken = {"a": iter([9.0, 1.0, 3.0, 2.0]), "b": iter([9.0, 5.0, 4.0, 6.0])}
    sides = [lambda n=n: (order.append(n), next(taken[n]))[1] for n in "ab"]
    assert interleaved(sides, 3) == [2.0, 5.0]
    assert order == [*"ab", *"ab", *"ba", *"ab"], "another is first in each round that counts"


def test_the_plot_is_an_svg_for_light_and_dark():
    curves = [plot.Curve("a < b", (1, 10, 100), (0.1, 0.2, 8.0)), plot.Curve("falls", (1, 50), (2.0, 1.0))]
    root = ET.fromstring(plot.svg(curves))  # our own
    texts = [e.text for e in root.iter() if e.tag.endswith("text")]
    assert {"a < b", "falls", "80x", "100"} <= set(texts)
    assert "prefers-color-scheme: dark" in ET.tostring(root, encoding="unicode")


def test_growth_that_is_worse_than_linear_fails():
    row, _ = growth._grown("x", "of it", (1, 10, 100), (0.1, 0.5, 12.0))
    assert round(row.found) == 120 and not row.ok
    row, _ = growth._grown("x", "of it", (50, 500), (0.1, 0.99))
    assert row.ok


def test_the_table_goes_between_the_marks_of_the_page(tmp_path):
    rows = [
        Row("warm", "create, no lock", "uv venv + uv pip install", 0.5, 1.1, 1.0, 2.0, runs=3),
        Row("start", "--version", "network, child or heavy import", 0, 0, unit=""),
        Row("memory", "list", "", 40.2, 150, unit="MiB"),
        Row("fleet", "resolve, 1,000 hosts", "", 1.26, 2, unit="seconds"),
        Row("memory", "lock", "", 90.2, 150, unit="MiB"),
    ]
    file = tmp_path / "benchmarks.md"
    file.write_text("before\n<!-- bench -->\nold\n<!-- /bench -->\nafter\n")
    tables.write(file, rows, "2 cores")
    text = file.read_text()
    assert text.startswith("before\n<!-- bench -->\n") and text.endswith("<!-- /bench -->\nafter\n")
    assert "| warm cache: `create`, no lock | `uv venv + uv pip install` | 0.50 | 1.10 |" in text
    assert "| resolve, 1,000 hosts | (seconds) | 1.26 | 2 |" in text
    assert "peak memory of 2 commands, children apart | (`lock`) | 90 MiB | 150 MiB" in text
    assert "old" not in text and "network" not in text


def test_a_simulated_fleet_is_resolved_and_timed(gpuenv, tmp_path):
    with ExitStack() as stack:
        ground = Ground(tmp_path / "bench", 1, stack)
        ground.place("fleets")
        assert fleets.resolved(ground, 40) > 0
        lines = fleets.simulated(ground, 40).read_text().splitlines()
        peak = tmp_path / "peak"
        fleets.resolved(ground, 40, [sys.executable, "-c", PEAK, str(peak)])
    assert len({json.loads(line)["host"] for line in lines}) == 40
    assert 10_000 < int(peak.read_text()) < 500_000
