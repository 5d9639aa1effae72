"""Environments that are wanted compiled: bytecode is made once for a wheel and linked from then on."""

import json
import os
import py_compile
import sys
import time
from pathlib import Path

import pytest

from provision.build import bytecode, compiling
from provision.model import Package

HERE = f"{sys.version_info[0]}.{sys.version_info[1]}"
GPU = ("--driver", "580.65.06", "--gpu", "9.0")


def compiled(env: Path, module: str) -> Path:
    (site,) = env.glob("lib/python3*/site-packages")
    return site / module / "__pycache__" / f"__init__.{sys.implementation.cache_tag}.pyc"


@pytest.fixture
def create(gpuenv, index):
    args = ("--framework", "torch", "--python", HERE, "--index", "pypi", *GPU)
    index.add_plan(gpuenv("resolve", "--json", *args).json)
    gpuenv.env |= {"PIP_INDEX_URL": index.url, "UV_COMPILE_BYTECODE": "1"}
    return lambda env, *more: gpuenv("create", env, *args, "--no-verify", *more)


def test_the_second_environment_has_the_first_ones_bytecode_where_that_is_for_its_sources(create, gpuenv):
    ran = create("one")
    assert ran.code == 0, ran.err
    assert "compiling" in ran.err
    shelves = list((gpuenv.folder / "cache" / "gpuenv" / "compiled").glob("*/*/index.json"))
    damaged = next(s for s in shelves if "pip/__init__.py" in s.read_text())
    damaged.write_text('{"pip/__init__.py": 3, "../../x.py": [1, 2]}')
    source = compiled(gpuenv.work / "one", "triton").parent.parent / "__init__.py"
    os.utime(source, (1, 1))  # the very file that the installer's cache has
    ran = create("two")
    assert ran.code == 0, ran.err
    assert "compiling 2 modules" in ran.err
    same, pip, other = (
        [compiled(gpuenv.work / e, module).stat().st_ino for e in ("one", "two")]
        for module in ("torch", "pip", "triton")
    )
    assert same[0] == same[1] and pip[0] != pip[1] and other[0] != other[1]
    assert compiled(gpuenv.work / "two", "triton").read_bytes()[8:12] == b"\1\0\0\0"


def test_without_the_wish_nothing_is_compiled(create, gpuenv):
    del gpuenv.env["UV_COMPILE_BYTECODE"]
    assert create("one").code == 0
    assert not compiled(gpuenv.work / "one", "torch").exists()
    assert not (gpuenv.folder / "cache" / "gpuenv" / "compiled").exists()


def fill(packages, folder, emit=lambda _event: None):
    with compiling.Compiling(folder / "env", Path(sys.executable), folder / "cache", emit) as at_work:
        at_work.finish(packages)


def wheel_in(env: Path, record: str) -> list[Package]:
    info = env / "lib/python3.11/site-packages/odd-1.dist-info"
    info.mkdir(parents=True)
    (info / "RECORD").write_text(record)
    return [
        Package(name="odd", version="1", url="https://index.test/odd-1-py3-none-any.whl", sha256="a" * 64)
    ]


def test_what_a_record_lists_outside_is_left_alone_and_what_does_not_compile_is_not_tried_again(tmp_path):
    outside = tmp_path / "outside.py"
    outside.write_text("x = 1\n")
    packages = wheel_in(
        tmp_path / "env",
        f"../../../../outside.py,,\n{outside},,\nodd.py,,\ngood.py,,\nodd-1.dist-info/RECORD,,\n",
    )
    site = tmp_path / "env/lib/python3.11/site-packages"
    (site / "odd.py").write_text("{{ a template }\n")
    (site / "good.py").write_text("y = 2\n")
    said = []
    for _ in range(2):
        fill(packages, tmp_path, said.append)
    assert [e.text for e in said] == ["compiling 2 modules"]
    assert not (tmp_path / "__pycache__").exists()
    assert [p.name for p in (site / "__pycache__").iterdir()] == [f"good.{sys.implementation.cache_tag}.pyc"]


def test_an_entry_is_made_anew_beside_what_does_not_compile(tmp_path):
    packages = wheel_in(tmp_path / "env", "odd.py,,\ngood.py,,\nsame.py,,\n")
    site = tmp_path / "env/lib/python3.11/site-packages"
    (site / "odd.py").write_text("{{ a template }\n")
    for name in ("good", "same"):
        (site / f"{name}.py").write_text("y = 2\n")
    said = []
    fill(packages, tmp_path, said.append)
    os.utime(site / "good.py", (1, 1))
    fill(packages, tmp_path, said.append)
    assert [e.text for e in said] == ["compiling 3 modules", "compiling 1 modules"]
    (index,) = (tmp_path / "cache").rglob("index.json")
    assert {k: v and v[0] == 1 for k, v in json.loads(index.read_text()).items()} == {
        "odd.py": None, "good.py": True, "same.py": False,
    }  # fmt: skip
    assert len([*index.parent.rglob("*.pyc")]) == 2


def test_what_is_ended_at_any_moment_is_done_in_the_end(tmp_path):
    for n in range(12):
        bytecode._asked.cache_clear()
        packages = wheel_in(tmp_path / f"{n}/env", "good.py,,\n")
        source = tmp_path / f"{n}/env/lib/python3.11/site-packages/good.py"
        source.write_text("y = 2\n")
        with compiling.Compiling(
            tmp_path / f"{n}/env", Path(sys.executable), tmp_path / f"{n}/cache", lambda _event: None
        ) as at_work:
            at_work.begin(packages)
            time.sleep(n / 100)
            at_work.finish(packages)
        (made,) = (source.parent / "__pycache__").iterdir()
        (kept,) = (tmp_path / f"{n}/cache").rglob("*.pyc")
        assert made.samefile(kept)


def test_bytecode_that_lies_there_already_is_not_handed_on(tmp_path):
    packages = wheel_in(tmp_path / "env", "good.py,,\n")
    source = tmp_path / "env/lib/python3.11/site-packages/good.py"
    source.write_text("y = 3\n")
    planted = Path(py_compile.compile(str(source)))
    fits = planted.read_bytes()
    source.write_text("y = 2\n")
    mine = Path(py_compile.compile(str(source))).read_bytes()
    planted.write_bytes(mine[:16] + fits[16:])  # the head is for this source, the code is another's
    fill(packages, tmp_path)
    (kept,) = (tmp_path / "cache").rglob("*.pyc")
    assert kept.read_bytes() == mine


def test_what_cannot_be_kept_is_compiled_all_the_same_and_told(tmp_path):
    packages = wheel_in(tmp_path / "env", "good.py,,\n")
    source = tmp_path / "env/lib/python3.11/site-packages/good.py"
    source.write_text("y = 2\n")
    (tmp_path / "cache").write_text("no folder\n")
    said = []
    fill(packages, tmp_path, said.append)
    assert [(e.kind, e.text.partition(":")[0]) for e in said] == [
        ("start", "compiling 1 modules"),
        ("note", "the compiled modules are not kept for the next environment"),
    ]
    assert (source.parent / "__pycache__").exists() and (tmp_path / "cache").read_text() == "no folder\n"


def test_what_no_environment_asked_for_in_a_long_time_goes(tmp_path):
    packages = wheel_in(tmp_path / "env", "good.py,,\n")
    (tmp_path / "env/lib/python3.11/site-packages/good.py").write_text("y = 2\n")
    old = tmp_path / "cache/compiled/cpython-39/older/index.json"
    old.parent.mkdir(parents=True)
    old.write_text("{}")
    os.utime(old, (1, 1))
    fill(packages, tmp_path)
    assert not old.parent.exists()


@pytest.mark.parametrize(
    ("environ", "yes"),
    [
        ({}, False),
        ({"UV_COMPILE_BYTECODE": "0"}, False),
        ({"UV_COMPILE_BYTECODE": "true"}, True),
        ({"UV_COMPILE_BYTECODE": "1", "PYC_INVALIDATION_MODE": "CHECKED_HASH"}, False),
        ({"UV_COMPILE_BYTECODE": "1", "SOURCE_DATE_EPOCH": "1"}, False),
    ],
)
def test_only_the_usual_kind_of_bytecode_is_shared(environ, yes):
    assert bytecode.wanted(environ) is yes
