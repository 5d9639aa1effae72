"""detect's readers: parsers on recorded text, and a made machine under a root of its own."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from provision import detect as package
from provision.detect import PARTS, detect
from provision.detect.host_context import (
    container_kind,
    is_wsl,
    jetson_model,
    judge_hardware,
    pci_device,
    read_context,
    read_hardware,
    slurm_role,
)
from provision.detect.kernel_files import (
    absolute_entries,
    cuda_version,
    device_nodes,
    library_version,
    proc_version,
    smi_rows,
)
from provision.detect.libcuda import parse_answer
from provision.detect.nvml_and_smi import ask_smi
from provision.detect.platform_and_libc import (
    glibc_version,
    judge_platform,
    platform_name,
    read_environment,
    read_platform,
    redacted,
)
from provision.detect.pythons import (
    PythonCache,
    ask_python,
    conda_version,
    pyenv_version,
    read_pythons,
    uv_version,
)
from provision.detect.system_libraries import (
    file_version,
    find_files,
    folder_libraries,
    read_libraries,
)
from provision.model import Gpu, HardwareDevice
from provision.system.loader_cache import FLAVOURS, loader_cache, parse_ldconfig, parse_loader_cache

DATA = Path(__file__).parents[1] / "data" / "detect"


def sample(name):
    return (DATA / name).read_text()


def tree(root, files):
    for path, text in files.items():
        file = root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return root


def program(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


# --- parsers -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("file", "version"),
    [
        ("proc_version_open.txt", "580.95.05"),
        ("proc_version_proprietary.txt", "515.76"),
        ("proc_version_615.txt", "615.71.09"),
    ],
)
def test_the_kernel_module_version_is_read_from_proc(file, version):
    assert proc_version(sample(file)) == version


def test_other_text_has_no_kernel_module_version():
    assert proc_version("GCC version:  gcc version 11.4.0") is None
    assert proc_version("") is None


def test_gpus_and_driver_are_read_from_nvidia_smi():
    gpus, driver = smi_rows(sample("smi_two_gpus.csv"))
    assert driver == "535.129.03"
    assert [(g.index, g.name, g.capability, g.memory_mib) for g in gpus] == [
        (0, "Tesla V100-SXM2-16GB", "7.0", 16384),
        (1, "Tesla T4", "7.5", 15360),
    ]


def test_unified_memory_in_nvidia_smi_is_unknown():
    gpus, _ = smi_rows(sample("smi_unified_memory.csv"))
    assert gpus[0].memory_mib is None
    assert gpus[0].capability == "12.1"


def test_a_failed_nvidia_smi_gives_no_rows():
    assert smi_rows(sample("smi_failed.txt")) == ((), None)


@given(st.text())
def test_no_text_breaks_the_parsers(text):
    for parse in (proc_version, library_version, uv_version, pyenv_version):
        assert parse(text) is None or text
    assert parse_ldconfig(text, None) == () or "=>" in text
    assert parse_answer(text).gpus == ()
    gpus, driver = smi_rows(f"\u00b2,{text}\n0,{text},,,,\n")
    assert driver is None
    assert len(gpus) <= 1


@pytest.mark.parametrize(
    ("number", "version"), [(13000, "13.0"), (12020, "12.2"), (11040, "11.4"), (0, None)]
)
def test_a_cuda_number_becomes_a_version(number, version):
    assert cuda_version(number) == version


@pytest.mark.parametrize(
    ("path", "version"),
    [
        ("/usr/lib/x86_64-linux-gnu/libcuda.so.580.159.04", "580.159.04"),
        ("/usr/lib/libcuda.so.470.57", "470.57"),
        ("/usr/local/cuda/lib64/stubs/libcuda.so.1", None),
        ("/usr/lib/aarch64-linux-gnu/tegra/libcuda.so.1.1", None),
        (None, None),
    ],
)
def test_the_driver_version_is_read_from_a_file_name(path, version):
    assert library_version(path) == version


def test_ldconfig_rows_leave_other_machines_out():
    rows = parse_ldconfig(sample("ldconfig.txt"), FLAVOURS["x86_64"])
    assert ("libcuda.so.1", "/lib/x86_64-linux-gnu/libcuda.so.1") in rows
    assert ("libcuda.so.1", "/lib/i386-linux-gnu/libcuda.so.1") not in rows
    assert parse_ldconfig(sample("ldconfig.txt"), FLAVOURS["aarch64"]) == ()


@pytest.mark.parametrize(
    ("soname", "real", "version"),
    [
        ("libcudnn.so.9", "libcudnn.so.9.14.0", "9.14.0"),
        ("libcudnn.so.9", "libcudnn.so.9", None),
        ("libcudart.so.11.0", "libcudart.so.11.8.89", "11.8.89"),
        ("libcuda.so.1", "libcuda.so.580.159.04", "580.159.04"),
        ("libnvrtc-builtins.so.12.8", "libnvrtc-builtins.so.12.8.93", "12.8.93"),
        ("libcudnn.so.9", "something-else", None),
    ],
)
def test_a_library_version_is_read_from_its_file_name(soname, real, version):
    assert file_version(soname, real) == version


@pytest.mark.parametrize(
    ("system", "machine", "glibc", "name"),
    [
        ("Linux", "x86_64", "2.36", "linux-x86_64"),
        ("Linux", "aarch64", "2.35", "linux-aarch64"),
        ("Linux", "arm64", "2.35", "linux-aarch64"),
        ("Linux", "x86_64", None, "linux-x86_64-musl"),
        ("Windows", "AMD64", None, "windows-x86_64"),
        ("Darwin", "arm64", None, "macos-arm64"),
    ],
)
def test_system_machine_and_libc_make_the_platform_name(system, machine, glibc, name):
    assert platform_name(system, machine, glibc) == name


def test_the_glibc_version_is_read_from_its_text():
    assert glibc_version("glibc 2.36") == "2.36"
    assert glibc_version(None) is None
    assert glibc_version("") is None


@pytest.mark.parametrize("name", ["linux-x86_64-musl", "macos-arm64", "linux-ppc64le"])
def test_a_platform_without_builds_is_one_sentence(name):
    (finding,) = judge_platform(name)
    assert finding.cause == "no_gpu_build_for_platform"
    assert "`" in finding.fix or name == "linux-ppc64le"
    assert finding.evidence[0].text == f"platform {name}"


def test_platforms_with_builds_say_nothing():
    assert judge_platform("linux-x86_64") == judge_platform("windows-x86_64") == ()


@pytest.mark.parametrize(
    ("environ", "marks", "kind"),
    [
        ({}, {}, None),
        ({}, {"dockerenv": True}, "docker"),
        ({}, {"cgroup": "12:devices:/docker/0123abc"}, "docker"),
        ({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, {"dockerenv": True}, "kubernetes"),
        ({}, {"cgroup": "11:devices:/kubepods/besteffort/pod1/abc"}, "kubernetes"),
        ({"container": "podman"}, {"containerenv": True}, "podman"),
        ({"APPTAINER_CONTAINER": "/img.sif"}, {}, "apptainer"),
        ({"SINGULARITY_CONTAINER": "/img.sif"}, {}, "apptainer"),
        ({"container": "lxc"}, {}, "other"),
        ({}, {"init": "wsl"}, None),
        ({}, {"cgroup": "0::/init.scope"}, None),
    ],
)
def test_the_kind_of_container_is_recognised(environ, marks, kind):
    nothing = {"dockerenv": False, "containerenv": False, "cgroup": "", "init": ""}
    assert container_kind(environ, **{**nothing, **marks}) == kind


def test_wsl_is_recognised():
    assert is_wsl("5.15.167.4-microsoft-standard-WSL2", driver_folder=False)
    assert is_wsl("6.6.1-mine", driver_folder=True)
    assert not is_wsl("6.8.0-45-generic", driver_folder=False)


def test_a_slurm_job_is_told_from_a_login_node():
    assert slurm_role({"SLURM_JOB_ID": "7"}, installed=True) == "job"
    assert slurm_role({}, installed=True) == "login"
    assert slurm_role({}, installed=False) is None


@pytest.mark.parametrize(
    ("vendor", "kind", "maker"),
    [
        ("0x10de", "0x030200", "nvidia"),
        ("0x10de", "0x030000", "nvidia"),
        ("0x10de", "0x040300", None),  # the sound of a display card
        ("0x10de", "0x068000", None),  # NVSwitch
        ("0x1002", "0x120000", "amd"),
        ("0x8086", "0x030000", "intel"),
        ("0x1a03", "0x030000", None),  # a server's management console
    ],
)
def test_a_pci_display_device_has_its_maker(vendor, kind, maker):
    found = pci_device("0000:01:00.0", vendor, "0x2335", kind)
    assert (found.vendor if found else None) == maker


def test_a_jetson_model_is_recognised():
    assert jetson_model(sample("nv_tegra_release.txt"), None) == "NVIDIA Jetson"
    assert (
        jetson_model(None, "NVIDIA Jetson AGX Orin Developer Kit") == "NVIDIA Jetson AGX Orin Developer Kit"
    )
    assert jetson_model(None, "Raspberry Pi 5 Model B Rev 1.0") is None


@pytest.mark.parametrize(
    ("folder", "told"),
    [
        ("3.11.7", ("3.11.7", False)),
        ("3.13.0t", ("3.13.0", True)),
        ("pypy3.10-7.3.15", None),
        ("3.14.0rc1", None),
        ("my-env", None),
    ],
)
def test_a_pyenv_folder_names_its_version(folder, told):
    assert pyenv_version(folder) == told


def test_a_uv_folder_names_its_version():
    assert uv_version("cpython-3.12.8-linux-x86_64-gnu") == ("3.12.8", False)
    assert uv_version("cpython-3.13.1+freethreaded-linux-x86_64-gnu") == ("3.13.1", True)
    assert uv_version("pypy-3.10.16-linux-x86_64-gnu") is None
    assert uv_version("cpython-3.12-linux-x86_64-gnu") is None  # a link to the newest of its minor


def test_the_conda_records_name_the_python_version():
    assert conda_version(["numpy-1.0.json", "python-3.11.7-hab00c5b_1_cpython.json"]) == ("3.11.7", False)
    assert conda_version(["python-3.13.1-h9a34b6e_105_cp313t.json"]) == ("3.13.1", True)
    assert conda_version(["python-dateutil-2.9.0-py_0.json", "history"]) is None


def test_credentials_in_values_are_hidden():
    url = "https://user:pa@ss@mirror.example/simple https://mirror.example/x"
    assert redacted("PYTORCH_INDEX", url) == "https://***@mirror.example/simple https://mirror.example/x"
    assert redacted("TORCH_API_TOKEN", "abc") == "***"


def test_only_variables_that_matter_are_read():
    environ = {
        "TF_X": "1",
        "TF_VAR_secret": "2",
        "HOME": "/h",
        "CUDNN_LOGLEVEL_DBG": "3",
        "LD_LIBRARY_PATH": "/a:/b",
    }
    assert read_environment(environ) == {"CUDNN_LOGLEVEL_DBG": "3", "LD_LIBRARY_PATH": "/a:/b", "TF_X": "1"}


def test_relative_path_entries_are_left_out():
    value = os.pathsep.join(["", ".", "bin", "/usr/bin"])
    assert [str(path) for path in absolute_entries(value)] == ["/usr/bin"]


# --- a made machine ------------------------------------------------------------------------


def test_pci_boards_and_device_files_are_read(tmp_path):
    pci = "/sys/bus/pci/devices"
    tree(
        tmp_path,
        {
            f"{pci}/0000:01:00.0/vendor": "0x10de\n",
            f"{pci}/0000:01:00.0/device": "0x2335\n",
            f"{pci}/0000:01:00.0/class": "0x030200\n",
            f"{pci}/0000:01:00.1/vendor": "0x10de\n",
            f"{pci}/0000:01:00.1/class": "0x040300\n",
            "/dev/nvidiactl": "",
            "/dev/nvidia0": "",
            "/dev/nvidia-caps/nvidia-cap1": "",
            "/usr/lib/wsl/lib/libcuda.so.1": "",
        },
    )
    assert read_hardware(tmp_path) == (
        HardwareDevice(vendor="nvidia", address="0000:01:00.0", device="0x2335"),
        HardwareDevice(vendor="nvidia", address="/dev/nvidia0"),
        HardwareDevice(vendor="nvidia", address="/dev/nvidiactl"),
        HardwareDevice(vendor="nvidia", address="/usr/lib/wsl/lib/libcuda.so.1"),
    )
    assert [node.path for node in device_nodes(tmp_path)] == ["/dev/nvidia0", "/dev/nvidiactl"]


@pytest.mark.parametrize(("vendor", "name"), [("amd", "AMD"), ("intel", "Intel")])
def test_other_makers_are_one_honest_sentence(vendor, name):
    (finding,) = judge_hardware((HardwareDevice(vendor=vendor, address="0000:03:00.0", device="0x74a1"),))
    assert finding.cause == "no_gpu_build_for_platform"
    assert name in finding.title
    assert finding.evidence[0].source == "/sys/bus/pci/devices/0000:03:00.0"


def test_an_intel_display_beside_an_nvidia_board_is_no_finding():
    boards = (
        HardwareDevice(vendor="intel", address="0000:00:02.0"),
        HardwareDevice(vendor="nvidia", address="0000:01:00.0"),
    )
    assert judge_hardware(boards) == ()


def test_jetson_is_one_honest_sentence(tmp_path):
    tree(tmp_path, {"/etc/nv_tegra_release": sample("nv_tegra_release.txt")})
    (finding,) = judge_hardware(read_hardware(tmp_path))
    assert "Jetson" in finding.title


def test_container_wsl_colab_and_slurm_are_read(tmp_path):
    tree(
        tmp_path,
        {
            "/proc/sys/kernel/osrelease": "5.15.167.4-microsoft-standard-WSL2\n",
            "/content/x": "",
            "/usr/local/lib/python3.12/dist-packages/google/colab/__init__.py": "",
            "/etc/slurm/slurm.conf": "",
            "/.dockerenv": "",
        },
    )
    context = read_context(tmp_path, {})
    assert (context.container, context.wsl, context.colab, context.slurm) == ("docker", True, True, "login")


def test_sinfo_on_path_is_slurm(tmp_path):
    program(tmp_path / "bin" / "sinfo", "#!/bin/sh\n")
    assert read_context(tmp_path, {"PATH": str(tmp_path / "bin")}).slurm == "login"
    assert read_context(tmp_path, {}).slurm is None


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
    assert folder_libraries(tmp_path, ["libcudnn.so.9"]) == ()


def test_names_of_one_file_are_one_library(tmp_path):
    libraries_of(tmp_path, "libcudart.so.11.0=libcudart.so.11.8.89")
    (tmp_path / "libcudart.so").symlink_to("libcudart.so.11.0")
    (library,) = folder_libraries(tmp_path, [path.name for path in tmp_path.iterdir()])
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
    told = subprocess.run([LDCONFIG, "-p"], capture_output=True, text=True, check=True).stdout
    assert loader_cache(Path("/"), machine) == parse_ldconfig(told, FLAVOURS[machine])


@given(st.binary(max_size=200), st.integers(0, 2**32 - 1))
def test_a_damaged_loaders_cache_is_no_failure(data, count):
    head = b"glibc-ld.so.cache1.1" + count.to_bytes(4, sys.byteorder)
    assert parse_loader_cache(data, None) is None
    assert parse_loader_cache(head + data, None) is None or count < 10


# --- Pythons -------------------------------------------------------------------------------

REPORTING = """#!/bin/sh
echo '["cpython", "{version}", "{level}", {base}, {free}]'
"""


def interpreter(path, version, *, level="final", base="true", free="false"):
    return program(path, REPORTING.format(version=version, level=level, base=base, free=free))


def test_this_python_states_its_version():
    base = Path(sys.base_prefix) / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}"
    assert ask_python(base.resolve()) == (".".join(map(str, sys.version_info[:3])), False)


def test_pythons_are_found_in_all_usual_places(tmp_path):
    home = tmp_path / "home"
    interpreter(home / ".pyenv/versions/3.10.13/bin/python3", "not started")
    interpreter(home / ".pyenv/versions/2.7.18/bin/python", "2.7.18")
    interpreter(home / ".pyenv/shims/python3", "3.9.1")
    interpreter(home / ".local/share/uv/python/cpython-3.12.8-linux-x86_64-gnu/bin/python3", "not started")
    interpreter(home / "miniforge3/bin/python3", "not started")
    tree(home, {"miniforge3/conda-meta/python-3.11.9-h955ad1f_0_cpython.json": "{}"})
    interpreter(tmp_path / "other/bin/python", "not started")
    tree(tmp_path, {"other/conda-meta/python-3.13.1-h9a_0_cpython.json": "{}"})
    tree(home, {".conda/environments.txt": f"{tmp_path / 'other'}\n/gone\n"})
    interpreter(tmp_path / "usr/bin/python3.9", "3.9.2")
    interpreter(tmp_path / "opt/tools/bin/python3", "3.8.18")
    interpreter(tmp_path / "usr/local/bin/python3.7", "3.7.9")
    environ = {"HOME": str(home), "PATH": f"{home / '.pyenv/shims'}:{home / '.pyenv/versions/3.10.13/bin'}:."}
    found = read_pythons(tmp_path, environ)
    assert [(p.version, p.source) for p in found] == [
        ("3.10.13", "pyenv"),
        ("3.12.8", "uv"),
        ("3.11.9", "conda"),
        ("3.13.1", "conda"),
        ("3.8.18", "system"),
        ("3.9.2", "system"),
    ]
    assert all(Path(p.path).is_absolute() for p in found)


def test_links_to_one_python_are_one(tmp_path):
    interpreter(tmp_path / "bin/python3.11", "3.11.4")
    (tmp_path / "bin/python3").symlink_to("python3.11")
    (tmp_path / "bin/python").symlink_to("python3")
    (python,) = read_pythons(
        tmp_path / "empty", {"PATH": str(tmp_path / "bin"), "HOME": str(tmp_path / "none")}
    )
    assert python.path == str((tmp_path / "bin/python3.11").resolve())
    assert python.source == "path"


@pytest.mark.parametrize(
    "bad",
    [
        {"version": "3.11.4", "level": "candidate"},
        {"version": "3.11.4", "base": "false"},
        {"version": "3.6.15"},
    ],
)
def test_unsuitable_pythons_are_left_out(tmp_path, bad):
    interpreter(tmp_path / "bin/python3", **bad)
    assert read_pythons(tmp_path / "empty", {"PATH": str(tmp_path / "bin"), "HOME": str(tmp_path)}) == ()


def test_the_python_of_a_virtualenv_is_left_out(tmp_path):
    interpreter(tmp_path / "venv/bin/python", "3.11.4")
    (tmp_path / "venv/pyvenv.cfg").write_text("home = /usr/bin\n")
    assert read_pythons(tmp_path / "empty", {"PATH": str(tmp_path / "venv/bin"), "HOME": str(tmp_path)}) == ()


def test_a_free_threaded_python_is_listed_only_where_it_is_the_only_one(tmp_path):
    interpreter(tmp_path / "a/python3", "3.13.1", free="true")
    environ = {"PATH": str(tmp_path / "a"), "HOME": str(tmp_path)}
    assert [p.version for p in read_pythons(tmp_path / "empty", environ)] == ["3.13.1"]
    interpreter(tmp_path / "b/python3", "3.12.1")
    environ["PATH"] += f":{tmp_path / 'b'}"
    assert [p.version for p in read_pythons(tmp_path / "empty", environ)] == ["3.12.1"]


def test_a_python_is_asked_once_as_long_as_its_file_is_the_same(tmp_path, monkeypatch):
    python = tmp_path / "python3"
    shutil.copy2(Path(sys.base_prefix, "bin", f"python{sys.version_info[0]}.{sys.version_info[1]}"), python)
    told = [("3.11.4", False), ("3.11.5", False), ("3.11.6", False)]
    monkeypatch.setattr("provision.detect.pythons.ask_python", lambda _path: told.pop(0))

    def answer():
        answers = PythonCache(tmp_path / "cache")
        found = answers.of(python)
        answers.keep()
        return found

    assert answer() == answer() == ("3.11.4", False)
    os.utime(python, (1, 1))
    assert answer() == answer() == ("3.11.5", False)
    kept = tmp_path / "cache" / "pythons.json"
    kept.write_text(kept.read_text().replace("3.11.5", "3.x"))
    assert answer() == ("3.11.6", False), "a damaged answer is no answer"


def test_a_script_before_a_python_is_always_asked(tmp_path):
    python = interpreter(tmp_path / "python3", "3.11.4")
    assert PythonCache(tmp_path / "cache").of(python) == ("3.11.4", False)
    changed, state = python.read_text().replace("3.11.4", "3.11.5"), python.stat()
    python.write_text(changed)
    os.utime(python, ns=(state.st_atime_ns, state.st_mtime_ns))
    assert PythonCache(tmp_path / "cache").of(python) == ("3.11.5", False)


def test_a_python_that_fails_or_hangs_or_is_missing_gives_none(tmp_path):
    assert ask_python(program(tmp_path / "python3", "#!/bin/sh\nexit 3\n")) is None
    assert ask_python(tmp_path / "absent") is None
    assert ask_python(program(tmp_path / "python", "#!/bin/sh\nsleep 60\n"), seconds=0.2) is None


# --- nvidia-smi ----------------------------------------------------------------------------

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


def test_a_machine_without_nvidia_smi_gives_none(tmp_path):
    assert ask_smi(tmp_path, {"PATH": "relative"}, 20) is None


@pytest.mark.skipif(os.name == "nt" or os.geteuid() != 0, reason="only root can give a file away")
def test_smi_of_another_user_is_not_run(tmp_path):
    path = program(tmp_path / "bin/nvidia-smi", SMI.format(first="exit 9", second="exit 9"))
    os.chown(path, 12345, 12345)
    assert ask_smi(tmp_path / "empty", {"PATH": str(tmp_path / "bin")}, 20) is None


# --- the whole -----------------------------------------------------------------------------


def test_only_what_is_asked_is_read(tmp_path):
    marker = tmp_path / "started"
    program(tmp_path / "bin/python3", f"#!/bin/sh\ntouch {marker}\n")
    machine = detect(("environment",), root=tmp_path, environ={"PATH": str(tmp_path / "bin"), "TF_X": "1"})
    assert machine.environment == {"TF_X": "1"}
    assert machine.pythons == machine.libraries == machine.gpus == machine.hardware == ()
    assert machine.target.platform == read_platform()[0]
    assert machine.target.driver is machine.driver.problem is None
    assert not marker.exists()


def test_pynvml_is_imported_for_the_driver_only():
    text = "import sys; from provision.detect import detect; detect(('context', 'hardware')); print('pynvml' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_an_unknown_part_is_refused():
    with pytest.raises(ValueError, match="unknown part of a machine: colour"):
        detect(("driver", "colour"))


def test_this_machine_makes_a_valid_document():
    from provision.model import Machine, as_document, from_plain

    document = json.loads(
        json.dumps(as_document(detect(tuple(p for p in PARTS if p not in ("driver", "gpus")))))
    )
    assert document["schema"] == "gpuenv.machine/1"
    assert isinstance(from_plain(Machine, document), Machine)
    assert any(python["version"].startswith("3.") for python in document["pythons"])
    assert set(package.__all__) == {"PARTS", "WITH_CUDA", "detect", "judge_device", "read_holders"}
