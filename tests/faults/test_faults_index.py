"""A part of tests/faults/index_faults.py: one fault of each kind, and what an overlay must survive."""

import sys
import time
from pathlib import Path

import pytest
from environment_facts import ok

sys.path.insert(0, str(Path(__file__).resolve().parent))

import index_faults
from ground import ground
from index_faults import Case, tried


@pytest.fixture(scope="module")
def at():
    with ground() as made:
        yield made


@pytest.mark.parametrize(
    "case",
    [
        Case("lock", "page", "html"),
        Case("lock", "page", "refused"),
        Case("lock", "metadata", "stalled"),
        Case("lock", "page", "407"),
        Case("create", "wheel", "404"),
        Case("create", "wheel", "reset"),
        Case("create", "wheel", "longer"),
        Case("update", "page", "html"),
        Case("update", "page", "loop"),
    ],
    ids=str,
)
def test_a_fault_of_the_index_is_reported_with_package_and_index(at, case):
    wrong, told = tried(case, at)
    assert wrong is None, told


@pytest.mark.parametrize("fault", ["stuck", "html"])
def test_a_fault_of_a_channel_is_reported(fault):
    wrong, told = index_faults.tried_channel(Case("conda", "package", fault), patience=1)
    assert wrong is None, told


def test_a_pause_that_the_index_asks_for_is_kept_and_a_long_one_reported(at):
    at.cold()
    index = at.index
    index.add("jax", "99.0", ("jaxlib==99.0",))
    index.requests.clear()
    index.asked_at.clear()
    index.faults, index.retry_after = {"/simple/jax/": "429"}, "1"
    began = time.monotonic()
    ran = at.gpuenv("profiles", "update", "jax", "--index", index.url)
    assert ran.code == 9 and time.monotonic() - began > 3, ran.err
    gaps = [b[0] - a[0] for a, b in zip(index.asked_at, index.asked_at[1:], strict=False)]
    assert len(gaps) == 3 and min(gaps) > 0.9
    index.asked_at.clear()
    index.retry_after = "3600"
    ran = at.gpuenv("profiles", "update", "jax", "--index", index.url)
    assert ran.code == 9 and "3600 s" in ran.err and len(index.asked_at) == 1, ran.err
    index.faults, index.retry_after = {}, None


@pytest.mark.parametrize("fault", ["404", "html"])
def test_an_overlay_survives_an_index_that_does_not_know_the_project(at, fault):
    overlay = at.folder / "config" / "gpuenv" / "profiles" / "jax.yaml"
    overlay.parent.mkdir(parents=True, exist_ok=True)
    row = '{version: "98.0", platform: "linux-x86_64", index: "pypi", python: "3.11", requires: ["jaxlib==98.0"]}'
    text = f'- table: "builds"\n  framework: "jax"\n  kept: "measured"\n  source: "s"\n  read: "2026-01-01"\n  rows:\n  - {row}\n'
    overlay.write_text(text)
    at.index.faults = {"/simple/jax/": fault}
    ran = at.gpuenv("profiles", "update", "jax", "--index", at.index.url)
    at.index.faults = {}
    assert ran.code in (6, 9), ran.err
    assert overlay.read_text() == text
    overlay.unlink()


def test_tables_of_the_users_own_survive_an_update(at):
    overlay = at.folder / "config" / "gpuenv" / "profiles" / "jax.yaml"
    overlay.parent.mkdir(parents=True, exist_ok=True)
    row = '{version: "97.0", platform: "linux-x86_64", index: "pypi", python: "3.11", requires: ["jaxlib==97.0"]}'
    mine = f'- table: "builds"\n  framework: "jax"\n  source: "mine"\n  read: "2026-01-01"\n  kept: "by hand"\n  rows:\n  - {row}\n'
    overlay.write_text(mine)
    at.index.add("jax", "99.0", ("jaxlib==99.0",))
    at.index.add("jaxlib", "99.0")
    (wheel,) = (data for file, data in at.index.wheels["jaxlib"].items() if "99.0" in file)
    at.index.wheels["jaxlib"]["jaxlib-99.0-cp311-cp311-manylinux_2_27_x86_64.whl"] = wheel
    ok(at.gpuenv("profiles", "update", "jax", "--index", at.index.url))
    text = overlay.read_text()
    assert mine in text and '"99.0"' in text
    assert at.gpuenv("profiles", "check").code == 0
    overlay.unlink()
