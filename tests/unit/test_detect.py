"""What detect reads of texts and files: drivers, platforms, containers, boards."""

import json
import os
import sys

import pytest
from detect_files import DATA, program, tree
from hypothesis import given, strategies as st
from programs import run_program
from rows import rows

from provision import detect as package
from provision.detect import PARTS, detect
from provision.detect.files import (
    list_device_files,
    name_platform,
    parse_file_version,
    parse_library_version,
    parse_proc_version,
    parse_smi_rows,
    read_environment,
    read_glibc,
    read_platform,
)
from provision.detect.host import (
    find_container_kind,
    is_wsl,
    judge_hardware,
    judge_platform,
    make_pci_device,
    parse_jetson_model,
    read_context,
    read_hardware,
)
from provision.detect.pythons import (
    read_stated_version,
)
from provision.detect.query import parse_answer
from provision.model import HardwareDevice, format_cuda
from provision.system import trust
from provision.system.redaction import redact_variable


def sample(name):
    return (DATA / name).read_text()


@rows(
    ("file", "version"),
    [
        ("proc_version_open.txt", "580.95.05"),
        ("proc_version_proprietary.txt", "515.76"),
        ("proc_version_615.txt", "615.71.09"),
    ],
)
def test_the_kernel_module_version_is_read_from_proc(file, version):
    assert parse_proc_version(sample(file)) == version


def test_other_text_has_no_kernel_module_version():
    assert parse_proc_version("GCC version:  gcc version 11.4.0") is None
    assert parse_proc_version("") is None


def test_gpus_and_driver_are_read_from_nvidia_smi():
    gpus, driver = parse_smi_rows(sample("smi_two_gpus.csv"))
    assert driver == "535.129.03"
    assert [(g.index, g.name, g.capability, g.memory_mib) for g in gpus] == [
        (0, "Tesla V100-SXM2-16GB", "7.0", 16384),
        (1, "Tesla T4", "7.5", 15360),
    ]


def test_unified_memory_in_nvidia_smi_is_unknown():
    gpus, _ = parse_smi_rows(sample("smi_unified_memory.csv"))
    assert gpus[0].memory_mib is None
    assert gpus[0].capability == "12.1"


def test_a_failed_nvidia_smi_gives_no_rows():
    assert parse_smi_rows(sample("smi_failed.txt")) == ((), None)


@given(st.text())
def test_no_text_breaks_the_parsers(text):
    for parse in (parse_proc_version, parse_library_version):
        assert parse(text) is None or text
    assert parse_answer(text.encode()).gpus == ()
    gpus, driver = parse_smi_rows(f"\u00b2,{text}\n0,{text},,,,\n")
    assert driver is None
    assert len(gpus) <= 1


@rows(("number", "version"), [(13000, "13.0"), (12020, "12.2"), (11040, "11.4"), (0, None)])
def test_a_cuda_number_becomes_a_version(number, version):
    assert format_cuda(number) == version


@rows(
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
    assert parse_library_version(path) == version


@rows(
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
    assert parse_file_version(soname, real) == version


@rows(
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
    assert name_platform(system, machine, glibc) == name


@rows("name", ["linux-x86_64-musl", "macos-arm64", "linux-ppc64le"])
def test_a_platform_without_builds_is_one_sentence(name):
    (finding,) = judge_platform(name)
    assert finding.cause == "no_gpu_build_for_platform"
    assert "`" in finding.fix or name == "linux-ppc64le"
    assert finding.evidence[0].text == f"platform {name}"


def test_platforms_with_builds_say_nothing():
    assert judge_platform("linux-x86_64") == judge_platform("windows-x86_64") == ()


@rows(
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
    assert find_container_kind(environ, **{**nothing, **marks}) == kind


def test_wsl_is_recognised():
    assert is_wsl("5.15.167.4-microsoft-standard-WSL2", driver_folder=False)
    assert is_wsl("6.6.1-mine", driver_folder=True)
    assert not is_wsl("6.8.0-45-generic", driver_folder=False)


@rows(
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
    found = make_pci_device("0000:01:00.0", vendor, "0x2335", kind)
    assert (found.vendor if found else None) == maker


def test_a_jetson_model_is_recognised():
    assert parse_jetson_model(sample("nv_tegra_release.txt"), None) == "NVIDIA Jetson"
    assert (
        parse_jetson_model(None, "NVIDIA Jetson AGX Orin Developer Kit")
        == "NVIDIA Jetson AGX Orin Developer Kit"
    )
    assert parse_jetson_model(None, "Raspberry Pi 5 Model B Rev 1.0") is None


@rows(
    ("source", "names", "told"),
    [
        ("pyenv", ["3.11.7"], ("3.11.7", False)),
        ("pyenv", ["3.13.0t"], ("3.13.0", True)),
        ("pyenv", ["pypy3.10-7.3.15"], None),
        ("pyenv", ["3.14.0rc1"], None),
        ("pyenv", ["my-env"], None),
        ("uv", ["cpython-3.12.8-linux-x86_64-gnu"], ("3.12.8", False)),
        ("uv", ["cpython-3.13.1+freethreaded-linux-x86_64-gnu"], ("3.13.1", True)),
        ("uv", ["pypy-3.10.16-linux-x86_64-gnu"], None),
        ("uv", ["cpython-3.12-linux-x86_64-gnu"], None),  # a link to the newest of its minor
        ("conda", ["numpy-1.0.json", "python-3.11.7-hab00c5b_1_cpython.json"], ("3.11.7", False)),
        ("conda", ["python-3.13.1-h9a34b6e_105_cp313t.json"], ("3.13.1", True)),
        ("conda", ["python-dateutil-2.9.0-py_0.json", "history"], None),
    ],
)
def test_a_folder_and_the_records_of_conda_name_the_version(source, names, told):
    assert read_stated_version(source, names) == told


def test_credentials_in_values_are_hidden():
    url = "https://user:pa@ss@mirror.example/simple https://mirror.example/x"
    assert redact_variable("PYTORCH_INDEX", url) == "https://mirror.example/simple https://mirror.example/x"
    assert redact_variable("TORCH_API_TOKEN", "abc") == "***"


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
    assert [str(path) for path in trust.list_absolute_entries(value)] == ["/usr/bin"]


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
    (tmp_path / "dev/nvidia1").symlink_to("gone")
    files = {node.path: (node.allowed, node.mode) for node in list_device_files(tmp_path)}
    assert [*files] == ["/dev/nvidia0", "/dev/nvidia1", "/dev/nvidiactl"]
    assert files["/dev/nvidia1"] == (False, "unknown")


@rows(("vendor", "name"), [("amd", "AMD"), ("intel", "Intel")])
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
            "/etc/slurm/slurm.conf": "NodeName=n[1-4] Gres=gpu:8\n",
            "/.dockerenv": "",
        },
    )
    context = read_context(tmp_path, {})
    assert (context.container, context.wsl, context.colab, context.slurm) == ("docker", True, True, "login")


CLUSTER = "ClusterName=c\nSlurmctldHost=head\nNodeName=n[1-4] Gres=gpu:8 CPUs=64\n"


@pytest.mark.parametrize(
    ("files", "variables", "role"),
    [
        ({}, {}, None),  # sinfo alone, as a distribution installs it
        ({"/etc/slurm/slurm.conf": "# an example\n#NodeName=n1\n"}, {}, None),
        ({"/etc/slurm/slurm.conf": CLUSTER}, {}, "login"),
        ({"/run/slurm/conf/slurm.conf": CLUSTER}, {}, "login"),
        ({"/shared/slurm.conf": "Include nodes.conf\n"}, {"SLURM_CONF": "/shared/slurm.conf"}, "login"),
        ({"/etc/slurm/slurm.conf": CLUSTER}, {"SLURM_CONF": "/missing"}, None),
        ({"/etc/slurm/slurm.conf": CLUSTER, "/proc/77/comm": "slurmd\n"}, {}, None),
        ({"/etc/slurm/slurm.conf": CLUSTER, "/proc/77/comm": "slurmctld\n"}, {}, "login"),
        ({}, {"SLURM_JOB_ID": "7"}, "job"),
    ],
)
def test_a_login_node_has_nodes_in_its_slurm_conf_and_no_slurmd(tmp_path, files, variables, role):
    program(tmp_path / "bin" / "sinfo", "#!/bin/sh\n")
    environ = {"PATH": str(tmp_path / "bin"), **variables}
    assert read_context(tree(tmp_path, files), environ).slurm == role


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
    done = run_program([sys.executable, "-c", text], check=True)
    assert done.stdout.strip() == "False"


def test_an_unknown_part_is_refused():
    with pytest.raises(ValueError, match="unknown part of a machine: colour"):
        detect(("driver", "colour"))


def test_this_machine_makes_a_valid_document():
    from provision.model import Machine, as_document, from_plain

    document = json.loads(json.dumps(as_document(detect(tuple(p for p in PARTS if p != "driver")))))
    assert document["schema"] == "gpuenv.machine/1"
    assert isinstance(from_plain(Machine, document), Machine)
    assert any(python["version"].startswith("3.") for python in document["pythons"])
    assert set(package.__all__) == {
        "MACHINE",
        "PARTS",
        "WITH_CUDA",
        "detect",
        "explain_idle_gpu",
        "find_python",
        "judge_device",
        "list_pythons",
        "machine_for_verdict",
        "read_holders",
    }


def test_a_system_without_glibc_has_no_version_of_it(monkeypatch):
    for answer in (ValueError("unrecognized configuration name"), None, "musl 1.2"):

        def confstr(_name, answer=answer):
            if isinstance(answer, Exception):
                raise answer
            return answer

        monkeypatch.setattr(os, "confstr", confstr)
        assert read_glibc() is None
