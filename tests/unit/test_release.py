"""What a release is made of: locked, in every row by hash; its bill of materials; the same bytes from two builds."""

import json
import re
import sys
import zipfile
from pathlib import Path

import pytest
import tomli
from packaging.requirements import Requirement
from programs import run_program
from rows import rows

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import sbom  # noqa: E402

import release  # noqa: E402  # scripts/ is no package

PROJECT = tomli.loads((ROOT / "pyproject.toml").read_text())


@rows("name", ["requirements.txt", "requirements-conda.txt", "build.txt"])
def test_every_row_is_pinned_and_hashed_and_names_no_host(name):
    text = (ROOT / "release" / name).read_text()
    rows = [b for b in re.split(r"^(?=\S)", text, flags=re.MULTILINE) if b.strip()]
    assert rows and all(re.match(r"[a-z0-9._-]+==\S+", b) and "--hash=sha256:" in b for b in rows)
    assert "://" not in text


@rows(
    ("name", "wanted"),
    [
        ("requirements.txt", PROJECT["project"]["dependencies"]),
        ("requirements-conda.txt", PROJECT["project"]["optional-dependencies"]["conda"]),
        ("build.txt", PROJECT["build-system"]["requires"]),
    ],
)
def test_the_locks_hold_what_pyproject_asks_for(name, wanted):
    found = list(sbom.pins((ROOT / "release" / name).read_text()))
    for need in map(Requirement, wanted):
        mine = [p for p in found if p.name == need.name]
        assert mine and all(need.specifier.contains(p.version) for p in mine), f"{need}: release.py --lock"


def test_the_bill_of_materials_is_of_the_lock_and_always_the_same():
    assert sbom.WRITTEN.read_text() == sbom.bill() == sbom.bill(), "scripts/sbom.py --write"
    bill = json.loads(sbom.bill())
    assert bill["bomFormat"] == "CycloneDX" and "serialNumber" not in bill
    names = {c["name"] for c in bill["components"]}
    assert {Requirement(r).name for r in PROJECT["project"]["dependencies"]} <= names
    edges = {d["ref"]: d.get("dependsOn", []) for d in bill["dependencies"]}
    assert any(r.startswith("typer@") for r in edges["gpuenv"])
    assert any(
        r.startswith("markdown-it-py@") for ref in edges if ref.startswith("rich@") for r in edges[ref]
    )


def test_builds_that_differ_are_refused_by_name():
    same = {"a.whl": b"1", "a.tar.gz": b"2", "a.whl of the archive": b"1"}
    assert release.compare_builds(same, dict(same)) == {"a.whl": b"1", "a.tar.gz": b"2"}
    with pytest.raises(SystemExit, match=r"differ in a\.tar\.gz"):
        release.compare_builds(same, {**same, "a.tar.gz": b"3"})
    odd = {**same, "a.whl of the archive": b"9"}
    with pytest.raises(SystemExit, match="source archive differs"):
        release.compare_builds(odd, dict(odd))


@pytest.mark.slow  # `make release` does it as well
def test_two_builds_from_two_clones_are_the_same_bytes(tmp_path):
    one, two = (
        release.built(tmp_path / name, "1750000000", mask, zone)
        for name, mask, zone in (("a", 0o022, "UTC"), ("a longer name", 0o077, "Asia/Kathmandu"))
    )
    files = release.compare_builds(one, two)
    (wheel,) = (n for n in files if n.endswith(".whl"))
    (tmp_path / wheel).write_bytes(files[wheel])
    with zipfile.ZipFile(tmp_path / wheel) as archive:
        bills = [n for n in archive.namelist() if ".dist-info/sboms/" in n]
        assert len(bills) == 1 and json.loads(archive.read(bills[0]))["bomFormat"] == "CycloneDX"


@pytest.mark.slow  # pip itself compares; the test of the rows is above
def test_make_env_installs_nothing_but_what_is_hashed(tmp_path, index, gpuenv):
    """An index that has every name and version, and other bytes."""
    for name in ("requirements.txt", "build.txt"):
        for found in re.finditer(
            r"^([a-z0-9._-]+)==(\S+)", (ROOT / "release" / name).read_text(), re.MULTILINE
        ):
            index.add(*found.groups())
    env = {**gpuenv.env, "PIP_INDEX_URL": index.url, "PIP_NO_CACHE_DIR": "1", "PIP_FIND_LINKS": ""}
    argv = [sys.executable, str(ROOT / "scripts" / "private_venv.py"), str(tmp_path / "tool")]
    done = run_program(argv, env=env)
    assert done.returncode == 1 and "DO NOT MATCH THE HASHES" in done.stderr, done.stderr
    assert not (tmp_path / "tool" / "bin" / "uv").exists()
