"""gpuenv profiles list|show|check|update, and what a version that is not known is answered."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from programs import run_program
from rows import sampled

ROOT = Path(__file__).resolve().parents[2]


def test_list_counts_the_rows_of_every_file(gpuenv):
    tables = gpuenv("profiles", "list", "--json").json["tables"]
    files = {Path(t["file"]).name for t in tables}
    assert files == {p.name for p in (ROOT / "profiles").glob("*.yaml")}
    rows = [line.split() for line in gpuenv("profiles", "list").out.splitlines()[2:]]
    counts = {
        f.stem: sum(t["count"] for t in tables if Path(t["file"]) == f)
        for f in {Path(t["file"]) for t in tables}
    }
    assert {row[0]: int(row[1].replace(",", "")) for row in rows} == counts
    assert all(t["count"] > 0 and t["source"] and t["read"] and t["rows"] == [] for t in tables)


def test_show_prints_the_rows_of_a_table(gpuenv):
    (table,) = gpuenv("profiles", "show", "gpus", "--json").json["tables"]
    assert {r["capability"] for r in table["rows"]} >= {"3.7", "7.0", "9.0", "12.0"}
    assert "Tesla V100" in gpuenv("profiles", "show", "gpus").out.replace("\n", " ")


def test_an_unknown_name_is_answered_with_those_there_are(gpuenv):
    ran = gpuenv("profiles", "show", "torhc", "--json")
    assert ran.code == 2 and "torch" in ran.json["error"]["message"]
    assert ran.json["error"]["hint"] == "Did you mean torch?"


def test_check_names_file_row_and_key_of_every_mistake(gpuenv):
    assert gpuenv("profiles", "check").code == 0
    folder = gpuenv.folder / "mine"
    folder.mkdir()
    head = '- table: "gpus"\n  source: "s"\n  read: "2026-01-01"\n  kept: "by hand"\n  rows:\n'
    rows = '  - {capability: 9.9, generation: "X"}\n  - {capability: "9.8", generation: "X", colour: "red"}\n'
    (folder / "gpus.yaml").write_text(head + rows)
    (folder / "torch.yaml").write_text("- {a: 1}\n")
    (folder / "gpu.yaml").write_text("")
    ran = gpuenv("profiles", "check", folder, "--json")
    assert ran.code == 3
    told = "\n".join(ran.json["error"]["problems"])
    assert re.search(r"gpus.yaml.*capability", told) and re.search(r"gpus.yaml.*colour", told)
    assert "torch.yaml" in told and "gpu.yaml: unknown file" in told
    assert f"{len(ran.json['error']['problems'])} mistakes" in ran.json["error"]["message"]
    ran = gpuenv("profiles", "check", "--profiles", folder, "--json")
    assert ran.code == 3 and "\n".join(ran.json["error"]["problems"]) == told
    head = '- table: "fixes"\n  source: "s"\n  read: "2026-01-01"\n  rows:\n'
    overlay = gpuenv.folder / "rules"
    overlay.mkdir()
    (overlay / "failures.yaml").write_text(f'{head}  - {{name: "x", cause: "nothing", steps: ["Do it."]}}\n')
    for told in (("--profiles", overlay), (overlay,)):
        ran = gpuenv("profiles", "check", *told, "--json")
        assert ran.code == 3 and "nothing is not in the table of causes" in ran.json["error"]["problems"][0]


@pytest.fixture
def older(gpuenv):
    """gpuenv with its three newest torch releases taken out of the profiles, in a copy of the package."""
    import shutil

    copy = gpuenv.folder / "older"
    shutil.copytree(ROOT / "provision", copy / "provision", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "profiles", copy / "provision" / "profiles_data")
    return copy


def newest(path, count, framework):
    from packaging.version import Version

    rows = [
        x for x in path.read_text().splitlines() if x.startswith("  - {version:") and 'index: "pypi"' in x
    ]
    versions = {re.search(r'version: "([^"]+)"', x)[1] for x in rows}
    return sorted(versions, key=Version, reverse=True)[:count]


@pytest.mark.network
@pytest.mark.parametrize("framework", sampled(["torch", "jax", "tensorflow"], 3))
def test_update_brings_back_releases_that_are_missing(gpuenv, older, framework, tmp_path_factory):
    """The real index is read; the rows come back as they were measured for the shipped profiles."""
    path = older / "provision" / "profiles_data" / f"{framework}.yaml"
    gone = newest(path, 3, framework)
    lines = path.read_text().splitlines(keepends=True)
    away = [x for x in lines if any(f'version: "{v}"' in x for v in gone) and 'index: "pypi"' in x]
    path.write_text("".join(x for x in lines if x not in away))
    env = {k: v for k, v in os.environ.items() if k != "VIRTUAL_ENV"}
    env |= {"XDG_CONFIG_HOME": gpuenv.env["XDG_CONFIG_HOME"], "PYTHONPATH": str(older)}
    done = run_program(
        [sys.executable, "-m", "provision", "profiles", "update", framework, "--json"],
        env=env,
        cwd=older,
        stdin=subprocess.DEVNULL,
        check=True,
    )
    overlay = Path(gpuenv.env["XDG_CONFIG_HOME"]) / "gpuenv" / "profiles" / f"{framework}.yaml"
    back = [x for x in overlay.read_text().splitlines(keepends=True) if x.startswith("  - {version:")]
    steady = lambda rows: sorted(re.sub(r', bytes: "\d+"', "", x) for x in rows)  # noqa: E731  # how much a read took may differ
    assert steady(back) == steady(away)
    assert json.loads(done.stdout)["tables"][0]["framework"] == framework


def test_an_unknown_newer_version_is_told_that_update_would_help(gpuenv):
    ran = gpuenv("resolve", "--framework", "torch==99.0", "--gpu", "9.0", "--python", "3.12", "--json")
    assert ran.code == 5 and "gpuenv profiles update" in ran.json["hint"]


@pytest.mark.network
@pytest.mark.slow
def test_three_random_measured_rows_read_again_are_the_same():
    """With no cache, out of the wheels on the index: a profile that drifts from them fails here."""
    argv = [sys.executable, str(ROOT / "scripts" / "update_profiles.py"), "--sample", "3"]
    done = run_program(argv, stdin=subprocess.DEVNULL, check=True)
    assert done.stdout.count("as before") == 3
