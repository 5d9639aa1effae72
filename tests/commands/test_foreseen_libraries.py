"""`lock`, `create` and `bundle` warn of libraries that the wheels need and this system lacks, before building."""

import re

import pytest
from bundle_site import add_own
from elf_files import library, module
from loopback import Index, serving, wheel_bytes

CPU = ("--framework", "jax", "--device", "cpu", "--index", "pypi")
NEED = "drawn 1.0 needs libgpuenv_gone.so.1, which this system does not have"
ROWS = """
- table: "system_libraries"
  source: "a test"
  read: "2026-11-22"
  kept: "by hand"
  rows:
  - {soname: "libgpuenv_gone.so.1", deb: "gpuenv-gone", rpm: "gpuenv-gone"}
"""


@pytest.fixture
def go(gpuenv, tmp_path):
    """gpuenv and an index with a wheel whose module needs a library that is nowhere."""
    gone = library(tmp_path / "build" / "libgpuenv_gone.so.1")
    built = module(tmp_path / "build" / "drawn.abi3.so", needs=[gone])
    (tmp_path / "build" / "libgpuenv_gone.so.1").unlink()
    (gpuenv.work / "rows").mkdir()
    (gpuenv.work / "rows" / "system_libraries.yaml").write_text(ROWS)
    index = Index()
    with serving(index):
        gpuenv.env["PIP_INDEX_URL"] = index.url
        index.add_plan(gpuenv("resolve", *CPU, "--json").json)
        add_own(index)
        files = {"drawn.abi3.so": built.read_bytes(), "pencil.py": b"x = 1\n"}
        content = wheel_bytes("drawn", "1.0", (), "", files)
        index.wheels["drawn"] = {"drawn-1.0-cp38-abi3-manylinux_2_17_x86_64.whl": content}
        gpuenv.env["UV_PYTHON_INSTALL_MIRROR"] = "file:///nowhere"
        yield lambda *argv: gpuenv(*argv, "--profiles", gpuenv.work / "rows")


def warned(ran):
    assert ran.code == 0, ran.err
    return NEED in " ".join(ran.err.split())


def test_a_wheel_that_is_known_is_foreseen_by_lock_and_create(go, gpuenv):
    ask = (*CPU, "--with", "drawn")
    assert not warned(go("lock", *ask)), "nothing of it is here yet"
    assert warned(go("create", *ask, "--no-verify"))
    ran = go("lock", *ask)
    assert warned(ran) and "gpuenv-gone" in ran.err
    ran = go("create", "again", *ask, "--no-verify")
    assert warned(ran)
    assert ran.err.index("needs libgpuenv_gone") < ran.err.index("build: installing")


def test_a_wheel_is_read_as_soon_as_it_is_fetched(go, gpuenv):
    """Nothing is known of it before: the warning comes with the download."""
    ran = go("create", *CPU, "--with", "drawn", "--no-verify")
    assert warned(ran) and "gpuenv-gone" in ran.err
    assert re.search(r"^build: downloading \d+ [kM]B \(\d+ packages\)$", ran.err, re.MULTILINE), ran.err
    assert ran.err.index("build: downloading ") < ran.err.index("needs libgpuenv_gone"), ran.err
    assert ran.err.count("needs libgpuenv_gone") == 1
    ran = go("create", "again", *CPU, "--with", "drawn", "--no-verify")
    assert ran.err.count("needs libgpuenv_gone") == 1, "it is known before, and said once"


def test_a_package_that_is_added_to_an_environment_is_read_too(go, gpuenv):
    assert not warned(go("create", *CPU, "--no-verify"))
    ran = go("create", *CPU, "--with", "drawn", "--no-verify")
    assert warned(ran)
    assert ran.err.index("in place") < ran.err.index("needs libgpuenv_gone")


def test_a_lock_for_another_machine_warns_of_no_library(go):
    ask = (*CPU, "--with", "drawn")
    assert warned(go("create", *ask, "--no-verify"))
    assert not warned(go("lock", *ask, "--glibc", "2.31"))


def test_a_bundle_is_read_as_its_files_come(go):
    assert warned(go("bundle", "stick", *CPU, "--with", "drawn"))
