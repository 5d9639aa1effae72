"""A compiled wheel without a row is measured when it is fetched, and remembered by its sha256 for later plans."""

import hashlib
import json

import pytest
from elf_files import library, module
from environment_facts import ok
from loopback import wheel_bytes

GPU = ("--driver", "580.95.05", "--gpu", "H100", "--glibc", "2.35", "--platform", "linux-x86_64")
ASK = ("--framework", "torch==2.15.0", "--index", "pypi", "--python", "3.11", *GPU)
UNMEASURED = "drawn 2.0 contains compiled code whose requirements are unknown"


@pytest.fixture
def torches(gpuenv, index, tmp_path):
    """`gpuenv` and an index with torch 2.15.0 for CUDA 13 and drawn 2.0, whose library is linked to CUDA 12."""
    index.add_plan(gpuenv("resolve", "--json", *ASK).json)
    gpuenv.env |= {"PIP_INDEX_URL": index.url}
    index.uploaded = "2026-10-01T00:00:00Z"
    gone = library(tmp_path / "build" / "libcudart.so.12")
    built = module(tmp_path / "build" / "drawn.abi3.so", needs=[gone])
    content = wheel_bytes("drawn", "2.0", ("torch",), "", {"drawn.abi3.so": built.read_bytes()})
    index.wheels["drawn"] = {"drawn-2.0-cp38-abi3-manylinux_2_17_x86_64.whl": content}
    gpuenv.digest = hashlib.sha256(content).hexdigest()
    gpuenv.cache = tmp_path / "kept"
    return lambda *argv: gpuenv(*argv, "--cache-dir", gpuenv.cache)


def plan_of(ran):
    assert ran.code == 0, ran.err
    return ran.json["plan"]


def test_a_wheel_is_measured_once_when_it_is_fetched_and_decides_in_the_next_plan(
    torches, gpuenv, index, tmp_path
):
    plain = module(tmp_path / "build" / "plain.abi3.so")
    content = wheel_bytes("plain", "1.0", (), "", {"plain.abi3.so": plain.read_bytes()})
    index.wheels["plain"] = {"plain-1.0-cp38-abi3-manylinux_2_17_x86_64.whl": content}
    before = torches("lock", "--json", "--with", "drawn", *ASK)
    assert plan_of(before)["notes"].count(UNMEASURED) == 1
    ask = ("--with", "drawn", "--with", "plain", "--no-verify", *ASK)
    made = ok(torches("create", "env", *ask))
    assert made.err.count("measuring which libraries") == 1
    assert "measuring which libraries drawn 2.0 needs" in made.err
    assert "measuring which libraries" not in torches("create", "again", *ask).err
    measured = {p.stem: json.loads(p.read_text()) for p in (gpuenv.cache / "satellites").iterdir()}
    (row,) = measured.pop(gpuenv.digest)
    assert list(measured.values()) == [
        []
    ]  # "plain" is not linked to CUDA, and its libraries are not read again
    assert (row["package"], row["cuda"], row["needs"]) == ("drawn", "12", ["libcudart.so.12"])
    assert row["built_for"] == "torch"
    kept = gpuenv.cache / "satellites" / f"{gpuenv.digest}.json"
    lock = ("lock", "--json", "--with", "drawn", "-o", "other.toml", "--upgrade", *ASK)
    for text in ("{", "[1]", '[{"package": "drawn"}]'):  # what cannot be read is none
        kept.write_text(text)
        assert UNMEASURED in plan_of(torches(*lock))["notes"]
    kept.write_text(json.dumps([row | {"index": "pypi"}]))  # a column of an earlier version

    index.add("drawn", "1.0", requires=("torch",))
    after = ok(torches(*lock))
    assert {p["name"]: p["version"] for p in after.json["packages"]}["drawn"] == "1.0"
    (held,) = after.json["held_back"]
    assert held["because"] == "drawn 2.0 needs libcudart.so.12; torch has CUDA 13"
    assert UNMEASURED not in plan_of(after)["notes"]
    name = "drawn-2.0-cp38-abi3-manylinux_2_17_x86_64.whl"  # a row of another file is none
    index.wheels["drawn"] = {name: wheel_bytes("drawn", "2.0", ("torch",), "", {"drawn.py": b"x = 1\n"})}
    assert UNMEASURED in plan_of(torches(*lock))["notes"]
