"""Environments that are wanted compiled: uv compiles them, and a module that is written over is noticed."""

import importlib.util
import json
import marshal
import os
import py_compile
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from rows import rows

from provision.environment import install
from provision.model import LockedPackage
from provision.system import process
from provision.verify import drift

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


def test_nothing_is_compiled_without_uv_compile_bytecode(create, gpuenv):
    del gpuenv.env["UV_COMPILE_BYTECODE"]
    assert create("one").code == 0
    assert not compiled(gpuenv.work / "one", "torch").exists()
    assert not (gpuenv.work / "one/.gpuenv/bytecode.json").exists()


def fill(packages, folder):
    """What an install leaves that compiles: modules beside their sources, and the note on them."""
    env = folder / "env"
    (env / ".gpuenv").mkdir(exist_ok=True)
    for source in env.glob("lib/python3.11/site-packages/*.py"):
        py_compile.compile(str(source))
    install.note_compiled(env, packages)


def wheel_in(env: Path, record: str) -> list[LockedPackage]:
    info = env / "lib/python3.11/site-packages/odd-1.dist-info"
    info.mkdir(parents=True)
    (info / "RECORD").write_text(record)
    return [
        LockedPackage(
            name="odd", version="1", url="https://index.test/odd-1-py3-none-any.whl", sha256="a" * 64
        )
    ]


def test_files_outside_are_not_noted(tmp_path):
    outside = tmp_path / "env/lib/python3.11/outside.py"
    packages = wheel_in(tmp_path / "env", "../outside.py,,\ngood.py,,\nmissing.py,,\n")
    outside.write_text("x = 1\n")
    py_compile.compile(str(outside))
    (outside.parent / "site-packages" / "good.py").write_text("x = 1\n")
    fill(packages, tmp_path)
    noted = json.loads((tmp_path / "env/.gpuenv/bytecode.json").read_text())["modules"]["odd"]
    assert [Path(name).name for name in noted] == [f"good.{sys.implementation.cache_tag}.pyc"]


@rows(
    ("environ", "yes"),
    [({}, False), ({"UV_COMPILE_BYTECODE": "0"}, False), ({"UV_COMPILE_BYTECODE": "true"}, True)],
)
def test_uvs_variable_asks_for_bytecode(environ, yes, monkeypatch):
    monkeypatch.setattr(process, "environ", lambda: environ)
    assert install.is_compiling() is yes


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


def noted(tmp_path, text="def f(x):\n    return {x, 'a', 2.5}\n"):
    """An environment with one compiled module that was noted, and the paths of source and module."""
    env = tmp_path / "env"
    packages = wheel_in(env, "good.py,,\n")
    source = env / "lib/python3.11/site-packages/good.py"
    source.write_text(text)
    (env / "bin").mkdir()
    (env / "bin" / "python").symlink_to(sys.executable)
    fill(packages, tmp_path)
    (module,) = (source.parent / "__pycache__").iterdir()
    assert drift.find_changed_bytecode(env, ["odd"]) == {}
    return env, source, module


def changed(env, module):
    return drift.find_changed_bytecode(env, ["odd"]) == {"odd": {str(module): "bytecode"}}


def code_of(text):
    return marshal.dumps(compile(text, "elsewhere.py", "exec"))


def test_what_python_itself_writes_is_no_change(tmp_path):
    env, source, module = noted(tmp_path)
    noted_bytes = module.read_bytes()
    module.unlink()
    assert not drift.find_changed_bytecode(env, ["odd"])
    os.utime(source, (5, 5))
    py_compile.compile(str(source), dfile="another/folder/good.py")
    assert module.read_bytes() != noted_bytes and not drift.find_changed_bytecode(env, ["odd"])


def test_what_python_would_not_run_is_no_change(tmp_path):
    env, source, module = noted(tmp_path)
    head = module.read_bytes()[:16]
    module.write_bytes(head[:8] + struct.pack("<I", 1) + head[12:] + code_of("x = 1"))
    assert not drift.find_changed_bytecode(env, ["odd"])  # for a source of another time
    module.write_bytes(b"abcd" + head[4:] + code_of("x = 1"))
    assert not drift.find_changed_bytecode(env, ["odd"])  # for another Python
    source.unlink()
    module.write_bytes(head + code_of("x = 1"))
    assert not drift.find_changed_bytecode(env, ["odd"])  # without its source


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
    assert drift.find_changed_bytecode(env, ["odd"]) == {}
