"""Environments that are wanted compiled: bytecode is made once for a wheel and copied from then on."""

import importlib.util
import json
import marshal
import os
import py_compile
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rows import rows

from provision.model import LockedPackage
from provision.verify.drift import changed_bytecode
from provision.wheels import bytecode_cache, compile_bytecode

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
    one, two = (compiled(gpuenv.work / e, "torch") for e in ("one", "two"))
    assert one.read_bytes() == two.read_bytes() and not one.samefile(two)
    assert compiled(gpuenv.work / "two", "triton").read_bytes()[8:12] == b"\1\0\0\0"


def test_nothing_is_compiled_without_uv_compile_bytecode(create, gpuenv):
    del gpuenv.env["UV_COMPILE_BYTECODE"]
    assert create("one").code == 0
    assert not compiled(gpuenv.work / "one", "torch").exists()
    assert not (gpuenv.folder / "cache" / "gpuenv" / "compiled").exists()


def fill(packages, folder, emit=lambda _event: None):
    with compile_bytecode.EnvironmentCompiler(
        folder / "env", Path(sys.executable), folder / "cache", emit
    ) as at_work:
        at_work.finish(packages)


def wheel_in(env: Path, record: str) -> list[LockedPackage]:
    info = env / "lib/python3.11/site-packages/odd-1.dist-info"
    info.mkdir(parents=True)
    (info / "RECORD").write_text(record)
    return [
        LockedPackage(
            name="odd", version="1", url="https://index.test/odd-1-py3-none-any.whl", sha256="a" * 64
        )
    ]


def test_files_outside_are_left_alone_and_a_failure_is_not_tried_again(tmp_path):
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


def test_changed_modules_are_compiled_again_beside_one_that_does_not_compile(tmp_path):
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


def test_compiling_that_is_finished_at_any_moment_is_complete(tmp_path):
    for n in range(12):
        bytecode_cache._tag_of.cache_clear()
        packages = wheel_in(tmp_path / f"{n}/env", "good.py,,\n")
        source = tmp_path / f"{n}/env/lib/python3.11/site-packages/good.py"
        source.write_text("y = 2\n")
        with compile_bytecode.EnvironmentCompiler(
            tmp_path / f"{n}/env", Path(sys.executable), tmp_path / f"{n}/cache", lambda _event: None
        ) as at_work:
            at_work.begin(packages)
            time.sleep(n / 100)
            at_work.finish(packages)
        (made,) = (source.parent / "__pycache__").iterdir()
        (kept,) = (tmp_path / f"{n}/cache").rglob("*.pyc")
        assert made.read_bytes() == kept.read_bytes() and not made.samefile(kept)


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


def test_modules_are_compiled_with_a_note_where_the_cache_cannot_be_written(tmp_path):
    packages = wheel_in(tmp_path / "env", "good.py,,\n")
    source = tmp_path / "env/lib/python3.11/site-packages/good.py"
    source.write_text("y = 2\n")
    (tmp_path / "cache").write_text("no folder\n")
    said = []
    fill(packages, tmp_path, said.append)
    assert [(e.kind, e.text.partition(":")[0]) for e in said] == [
        ("start", "compiling 1 modules"),
        ("note", "the compiled modules are not cached for the next environment"),
    ]
    assert (source.parent / "__pycache__").exists() and (tmp_path / "cache").read_text() == "no folder\n"


def test_bytecode_that_was_unused_for_long_is_removed_from_the_cache(tmp_path):
    packages = wheel_in(tmp_path / "env", "good.py,,\n")
    (tmp_path / "env/lib/python3.11/site-packages/good.py").write_text("y = 2\n")
    old = tmp_path / "cache/compiled/cpython-39/older/index.json"
    old.parent.mkdir(parents=True)
    old.write_text("{}")
    os.utime(old, (1, 1))
    fill(packages, tmp_path)
    assert not old.parent.exists()


@rows(
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
    assert bytecode_cache.wanted(environ) is yes


MARKED = "import pathlib; pathlib.Path('RAN').touch()\n"


def forge(env: Path, module: str, ran: Path) -> Path:
    """Write other code into a compiled module where it lies, with the head that fits its source."""
    path = compiled(env, module)
    mine = marshal.dumps(compile(MARKED.replace("RAN", str(ran)), "x", "exec"))
    with path.open("r+b") as file:
        file.seek(16)
        file.write(mine)
        file.truncate()
    return path


def imports(env: Path, module: str) -> None:
    done = subprocess.run(
        [env / "bin" / "python", "-c", f"import {module}"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def verified(gpuenv, env):
    ran = gpuenv("verify", env, "--locked", "--quick", "--json")
    return ran.code, {c["name"]: c for c in ran.json["drift"]}


def test_a_write_into_one_environments_bytecode_changes_no_other_is_named_and_repaired(
    create, gpuenv, tmp_path
):
    ran = tmp_path / "ran"
    assert create("one").code == create("two").code == 0
    forge(gpuenv.work / "one", "triton", ran)
    imports(gpuenv.work / "one", "triton")
    assert ran.exists()  # it is what Python runs
    ran.unlink()
    assert create("three").code == create("two", "--recreate").code == 0
    for name in ("two", "three"):
        imports(gpuenv.work / name, "triton")
    assert not ran.exists()
    _, drift = verified(gpuenv, "two")
    assert "triton" not in drift
    code, drift = verified(gpuenv, "one")
    assert code == 8
    assert (
        "1 file of triton 3.9.0 was not compiled from its source (triton/__pycache__/__init__."
        in drift["triton"]["text"]
    )
    repaired = gpuenv("repair", "one", "--no-verify")
    assert repaired.code == 0, repaired.err
    imports(gpuenv.work / "one", "triton")
    assert not ran.exists()
    assert "triton" not in verified(gpuenv, "one")[1]


def test_a_recreated_environment_does_not_run_what_was_written_into_the_old_one(create, gpuenv, tmp_path):
    assert create("one").code == 0
    forge(gpuenv.work / "one", "triton", tmp_path / "ran")
    assert create("one", "--recreate").code == 0
    imports(gpuenv.work / "one", "triton")
    assert not (tmp_path / "ran").exists()


def test_an_entry_that_was_written_to_is_not_used(create, gpuenv, tmp_path):
    """As an entry of an earlier gpuenv, whose files environments had as links."""
    assert create("one").code == 0
    name = f"triton/__pycache__/__init__.{sys.implementation.cache_tag}.pyc"
    (kept,) = (gpuenv.folder / "cache" / "gpuenv" / "compiled").glob(f"*/*/{name}")
    code = marshal.dumps(compile(MARKED.replace("RAN", str(tmp_path / "ran")), "x", "exec"))
    kept.write_bytes(kept.read_bytes()[:16] + code)
    ran = create("two")
    assert "compiling 1 modules" in ran.err
    imports(gpuenv.work / "two", "triton")
    assert not (tmp_path / "ran").exists()


def noted(tmp_path, text="def f(x):\n    return {x, 'a', 2.5}\n"):
    """An environment with one compiled module that was noted, and the paths of source and module."""
    env = tmp_path / "env"
    packages = wheel_in(env, "good.py,,\n")
    source = env / "lib/python3.11/site-packages/good.py"
    source.write_text(text)
    (env / ".gpuenv").mkdir()
    (env / "bin").mkdir()
    (env / "bin" / "python").symlink_to(sys.executable)
    fill(packages, tmp_path)
    (module,) = (source.parent / "__pycache__").iterdir()
    assert changed_bytecode.find_changed(env, ["odd"]) == {}
    return env, source, module


def changed(env, module):
    return changed_bytecode.find_changed(env, ["odd"]) == {"odd": {str(module): "bytecode"}}


def code_of(text):
    return marshal.dumps(compile(text, "elsewhere.py", "exec"))


def test_what_python_itself_writes_is_no_change(tmp_path):
    env, source, module = noted(tmp_path)
    noted_bytes = module.read_bytes()
    module.unlink()
    assert not changed_bytecode.find_changed(env, ["odd"])
    os.utime(source, (5, 5))
    py_compile.compile(str(source), dfile="another/folder/good.py")
    assert module.read_bytes() != noted_bytes and not changed_bytecode.find_changed(env, ["odd"])


def test_what_python_would_not_run_is_no_change(tmp_path):
    env, source, module = noted(tmp_path)
    head = module.read_bytes()[:16]
    module.write_bytes(head[:8] + struct.pack("<I", 1) + head[12:] + code_of("x = 1"))
    assert not changed_bytecode.find_changed(env, ["odd"])  # for a source of another time
    module.write_bytes(b"abcd" + head[4:] + code_of("x = 1"))
    assert not changed_bytecode.find_changed(env, ["odd"])  # for another Python
    source.unlink()
    module.write_bytes(head + code_of("x = 1"))
    assert not changed_bytecode.find_changed(env, ["odd"])  # without its source


@pytest.mark.parametrize("how", ["code", "unchecked", "checked", "cut short"])
def test_what_python_would_run_is_a_change(how, tmp_path):
    env, source, module = noted(tmp_path)
    head, rest = module.read_bytes()[:16], module.read_bytes()[16:]
    digest = importlib.util.source_hash(source.read_bytes())
    module.write_bytes(
        {
            "code": head + code_of("x = 1"),
            "unchecked": head[:4] + struct.pack("<I", 1) + b"12345678" + code_of("x = 1"),
            "checked": head[:4] + struct.pack("<I", 3) + digest + code_of("x = 1"),
            "cut short": head + rest[:-5],
        }[how]
    )
    assert changed(env, module)


def test_all_bytecode_counts_as_changed_where_python_does_not_answer(tmp_path):
    env, _, module = noted(tmp_path)
    module.write_bytes(module.read_bytes() + b"x")
    (env / "bin" / "python").unlink()
    assert changed(env, module)


@pytest.mark.parametrize(
    "text", ["", "[]", '{"modules": 1}', '{"modules": {"odd": {"/etc/x.pyc": "a", "../y.pyc": "b"}}}']
)
def test_a_damaged_note_names_no_file_outside(text, tmp_path):
    env, _, _ = noted(tmp_path)
    (env / ".gpuenv" / "bytecode.json").write_text(text)
    assert changed_bytecode.find_changed(env, ["odd"]) == {}
