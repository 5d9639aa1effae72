"""The CUDA libraries and the nvidia-smi that detect finds."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pynvml
import pytest
from detect_files import DATA, program
from hypothesis import given, strategies as st
from powerless import shut
from programs import run_program

from provision.detect import query
from provision.detect.files import exists, find_files, list_folder_libraries, read_libraries, read_platform
from provision.detect.query import ask_libcuda, ask_smi
from provision.model import Gpu
from provision.system.elf import loader_cache, parse_loader_cache


def libraries_of(folder, *names):
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        soname, _, real = name.partition("=")
        (folder / (real or soname)).write_text("")
        if real:
            (folder / soname).symlink_to(real)


def test_libraries_are_listed_in_the_order_of_the_loader(tmp_path):
    libraries_of(tmp_path / "mine", "libcudnn.so.9=libcudnn.so.9.14.0", "libcudnn_ops.so.9", "libz.so.1")
    libraries_of(
        tmp_path / "usr/local/cuda-12.8/lib64", "libcudart.so.12=libcudart.so.12.8.90", "libcudart_static.a"
    )
    environ = {"LD_LIBRARY_PATH": f"{tmp_path / 'mine'}:relative:"}
    found = read_libraries(tmp_path, environ, "x86_64")
    assert [(item.soname, item.version) for item in found] == [
        ("libcudnn.so.9", "9.14.0"),
        ("libcudnn_ops.so.9", None),
        ("libcudart.so.12", "12.8.90"),
    ]
    assert found[0].path == str(tmp_path / "mine" / "libcudnn.so.9")


def test_a_dangling_link_is_no_library(tmp_path):
    (tmp_path / "libcudnn.so.9").symlink_to("libcudnn.so.9.1.0")
    assert list_folder_libraries(tmp_path, ["libcudnn.so.9"]) == ()


def test_names_of_one_file_are_one_library(tmp_path):
    libraries_of(tmp_path, "libcudart.so.11.0=libcudart.so.11.8.89")
    (tmp_path / "libcudart.so").symlink_to("libcudart.so.11.0")
    (library,) = list_folder_libraries(tmp_path, [path.name for path in tmp_path.iterdir()])
    assert (library.soname, library.version) == ("libcudart.so.11.0", "11.8.89")


LDCONFIG = shutil.which("ldconfig", path="/sbin:/usr/sbin")


@pytest.mark.skipif(not LDCONFIG, reason="this system has no ldconfig")
def test_a_cache_that_ldconfig_wrote_is_read(tmp_path):
    folder = tmp_path / "lib"
    folder.mkdir()
    (tmp_path / "empty.c").write_text("int stands_for_cudnn;\n")
    file = folder / "libcudnn.so.9.9.0"
    subprocess.run(
        ["gcc", "-shared", "-fPIC", "-Wl,-soname,libcudnn.so.9", "-o", file, tmp_path / "empty.c"], check=True
    )
    (tmp_path / "etc").mkdir()
    (tmp_path / "ld.conf").write_text(f"{folder}\n")
    command = [LDCONFIG, "-C", tmp_path / "etc/ld.so.cache", "-f", tmp_path / "ld.conf"]
    subprocess.run(command, check=True, capture_output=True)
    machine = read_platform()[0].split("-")[1]
    found = read_libraries(tmp_path, {}, machine)
    mine = [item for item in found if item.path.startswith(str(folder))]
    assert [(item.soname, item.version) for item in mine] == [("libcudnn.so.9", "9.9.0")]
    assert find_files(("libcudnn.so.9",), tmp_path, {}, machine) == {"libcudnn.so.9": str(file)}


@pytest.mark.skipif(not LDCONFIG, reason="this system has no ldconfig")
def test_the_loaders_cache_is_read_as_ldconfig_reads_it():
    machine = read_platform()[0].split("-")[1]
    told = run_program([LDCONFIG, "-p"], check=True).stdout
    flavour = {"x86_64": "x86-64", "aarch64": "AArch64"}[machine]
    rows = re.findall(r"^[ \t]+(\S+) \(([^)\n]*)\) => (/.*)$", told, re.MULTILINE)
    assert loader_cache(Path("/"), machine) == tuple((n, path) for n, kind, path in rows if flavour in kind)


@given(st.binary(max_size=200), st.integers(0, 2**32 - 1))
def test_a_damaged_loaders_cache_is_no_failure(data, count):
    head = b"glibc-ld.so.cache1.1" + count.to_bytes(4, sys.byteorder)
    assert parse_loader_cache(data, None) == ()
    assert parse_loader_cache(head + data, None) == () or count < 10


def test_a_loaders_cache_that_cannot_be_read_has_no_libraries(tmp_path):
    header = b"glibc-ld.so.cache1.1" + (9).to_bytes(4, sys.byteorder) + bytes(24)
    assert parse_loader_cache(header + bytes(24 * 8), None) == ()
    assert len(parse_loader_cache(header + bytes(24 * 9), None)) == 9
    (tmp_path / "etc" / "ld.so.cache").mkdir(parents=True)
    assert loader_cache(tmp_path, "x86_64") == ()
    with shut(tmp_path / "etc"):
        assert not exists(tmp_path / "etc" / "ld.so.cache")


SMI = """#!/bin/sh
case "$1" in
  *compute_cap*) {first} ;;
  --query-gpu=*) {second} ;;
  *) echo "+---- header ----+" ; exit 1 ;;
esac
"""


def test_nvidia_smi_is_found_in_the_folder_of_the_driver(tmp_path):
    answer = f"cat {DATA / 'smi_two_gpus.csv'}"
    path = program(tmp_path / "usr/bin/nvidia-smi", SMI.format(first=answer, second="exit 9"))
    told = ask_smi(tmp_path, {"PATH": "/usr/bin:/bin"}, 20)
    assert told.ok
    assert (told.path, told.driver, len(told.gpus)) == (str(path), "535.129.03", 2)


def test_smi_of_an_old_driver_does_not_know_compute_cap(tmp_path):
    refuse = """echo 'Field "compute_cap" is not a valid field to query.'; exit 2"""
    row = "echo '0, Tesla K80, GPU-0d6f0b1a-3f5e-4b57-9a0c-1f2e3d4c5b6a, 11441, 470.256.02'"
    program(tmp_path / "bin/nvidia-smi", SMI.format(first=refuse, second=row))
    told = ask_smi(tmp_path / "empty", {"PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin"}, 20)
    assert told.gpus == (
        Gpu(index=0, name="Tesla K80", uuid="GPU-0d6f0b1a-3f5e-4b57-9a0c-1f2e3d4c5b6a", memory_mib=11441),
    )


def test_smi_that_fails_says_so(tmp_path):
    program(tmp_path / "usr/bin/nvidia-smi", f"#!/bin/sh\ncat {DATA / 'smi_failed.txt'}; exit 9\n")
    told = ask_smi(tmp_path, {"PATH": "/usr/bin:/bin"}, 20)
    assert not told.ok
    assert told.code == 9
    assert "couldn't communicate" in told.error


def test_a_program_that_cannot_be_started_is_an_answer(tmp_path, monkeypatch):
    path = program(tmp_path / "usr/bin/nvidia-smi", "no program")
    told = ask_smi(tmp_path, {"PATH": "/usr/bin:/bin"}, 20)
    assert (told.ok, told.path) == (False, str(path)) and "Exec format error" in told.error
    monkeypatch.setattr(sys, "executable", str(path))
    told = ask_libcuda({}, 20)
    assert not told.ok and told.error.startswith(f"{path} could not be started")


def test_a_driver_that_is_lost_while_it_is_asked_is_an_answer_and_is_left(monkeypatch):
    ended = []

    def lost(_nvml):
        raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)

    monkeypatch.setattr(query.ctypes, "CDLL", lambda *_: None)
    monkeypatch.setattr(pynvml, "nvmlInitWithFlags", lambda _: None)
    monkeypatch.setattr(pynvml, "nvmlShutdown", lambda: ended.append(True))
    monkeypatch.setattr(query, "_read", lost)
    told = query.ask_nvml()
    assert (told.ok, told.code, ended) == (False, pynvml.NVML_ERROR_GPU_IS_LOST, [True])
    assert told.error.startswith("NVML: ")


def test_a_machine_without_nvidia_smi_gives_none(tmp_path):
    assert ask_smi(tmp_path, {"PATH": "relative"}, 20) is None


@pytest.mark.skipif(os.name == "nt" or os.geteuid() != 0, reason="only root can give a file away")
def test_smi_of_another_user_is_not_run(tmp_path):
    path = program(tmp_path / "bin/nvidia-smi", SMI.format(first="exit 9", second="exit 9"))
    os.chown(path, 12345, 12345)
    assert ask_smi(tmp_path / "empty", {"PATH": str(tmp_path / "bin")}, 20) is None
