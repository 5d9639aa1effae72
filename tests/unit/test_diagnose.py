"""diagnose: rows by their examples, and judges by tables."""

import dataclasses
import re

import pytest
from diagnosed import causes, findings_of, found
from known import KNOWN
from rows import rows

from provision import profiles
from provision.diagnose import Circumstances
from provision.diagnose.case import Case
from provision.diagnose.context import add_signs
from provision.diagnose.facts import read_facts
from provision.diagnose.lines import read_log
from provision.diagnose.messages import Messages
from provision.diagnose.rules import apply_rules, find_mistakes
from provision.errors import DataError
from provision.model import Evidence
from provision.profiles.tables import dump, read_file
from provision.profiles.wording import fill_text

LABELS = 55


def fires(rule):
    """Whether a rule fires on its own example."""
    lines = read_log("-", [rule.example.encode()])
    known = dataclasses.replace(KNOWN, failures=(rule,))
    facts = read_facts(lines, KNOWN.gpus)
    case = Case(lines=lines, facts=facts, profiles=known, circumstances=Circumstances())
    add_signs(case)
    return bool([*apply_rules(case)])


# --- the rows -----------------------------------------------------------------------------------


@rows("rule", KNOWN.failures, ids=lambda r: r.name)
def test_the_example_of_a_rule_has_its_cause_among_the_first_three(rule):
    findings = found(rule.example)
    names = [f.cause for f in findings]
    assert fires(rule)
    if int(rule.weight) >= 50:
        assert rule.cause in names[: 1 if rule.confidence == "certain" else 3], names
    confidences = [("certain", "likely", "possible").index(f.confidence) for f in findings]
    assert confidences == sorted(confidences)
    for finding in findings:
        assert finding.evidence and finding.title and finding.fix
        assert not re.search(r"\{\w+\}|\[\[|\]\]", finding.title + finding.fix), finding


@rows("message", KNOWN.messages, ids=lambda m: m.name)
def test_the_example_of_a_message_is_one(message):
    messages = Messages(
        read_log("-", [message.example.encode()]), dataclasses.replace(KNOWN, failures=(), catalogue=())
    )
    assert messages.find((f"@{message.name}",))
    assert message.source


def test_the_table_is_whole_and_without_mistakes():
    known_causes = {c.cause for c in KNOWN.causes}
    names = {m.name for m in KNOWN.messages}
    assert len(known_causes) == LABELS
    of_stages = {"cudnn_older_than_compiled", "gpu_peer_copies_fail"}  # of a judge, and of verify
    assert {r.cause for r in KNOWN.failures} | of_stages == known_causes
    assert find_mistakes(KNOWN) == []
    assert len(names) == len(KNOWN.messages)


def test_a_wrong_row_is_named():
    row = KNOWN.failures[0]._replace(
        cause="x", confidence="sure", weight="0", says=("@y", "..."), wants=("z==1",)
    )
    known = dataclasses.replace(KNOWN, failures=(row,))
    with pytest.raises(DataError) as caught:
        findings_of([], known)
    assert len(caught.value.problems) == 4


def test_a_confidence_and_a_weight_are_of_their_range(tmp_path):
    path = tmp_path / "failures.yaml"
    text = (profiles.directory() / "failures.yaml").read_text()
    text = text.replace('confidence: "possible", weight: "50"', 'confidence: "sure", weight: "0"', 1)
    text = text.replace('confidence: "possible", weight: "62"', 'confidence: "possible", weight: "101"', 1)
    path.write_text(text)
    said = [problem.partition(", ")[2] for problem in read_file(path)[1]]
    assert said == [
        "confidence: 'sure' is not a confidence",
        "weight: '0' is not a weight",
        "weight: '101' is not a weight",
    ]


def test_the_file_is_written_as_the_loader_writes_it():
    path = profiles.directory() / "failures.yaml"
    tables, wrong = read_file(path)
    assert wrong == []
    assert dump(tables) == path.read_text()


# --- facts against tables -----------------------------------------------------------------------

NO_KERNEL = "RuntimeError: CUDA error: no kernel image is available for execution on the device"


@rows(
    ("lines", "cause", "confidence"),
    [
        ((NO_KERNEL, "gpu: RTX 5090", "torch: 2.6.0+cu124"), "arch_not_in_wheel_too_new", "certain"),
        ((NO_KERNEL, "gpu: Tesla P100-PCIE-16GB", "torch: 2.9.0+cu130"), "arch_dropped_too_old", "certain"),
        ((NO_KERNEL, "gpu: RTX 3090", "torch: 1.5.0+cu101"), "arch_not_in_wheel_too_new", "certain"),
        ((NO_KERNEL, "gpu: Tesla K80"), "arch_dropped_too_old", "likely"),
        ((NO_KERNEL, "gpu: RTX 3090", "torch: 2.6.0+cu124"), "extension_built_for_other_torch_or_cuda", "likely"),
        (("Tesla V100 with CUDA capability sm_70 is not compatible with the current PyTorch installation.",
          "The current PyTorch install supports CUDA capabilities sm_75 sm_80 sm_86 sm_90."),
         "arch_dropped_too_old", "certain"),
        (("CUDA available: False", "torch: 2.11.0+cu130", "driver: 550.54.14"), "driver_too_old_for_runtime", "certain"),
        (("CUDA available: False", "torch: 1.3.0 (CUDA 10.1)", "driver: 410.48"), "driver_too_old_for_runtime", "certain"),
        (("Num GPUs Available: 0", "tensorflow: 2.15.0", "os: Windows 11"), "no_gpu_build_for_platform", "certain"),
        (("Num GPUs Available: 0", "tensorflow: 2.1.0", "cuda: 10.2"), "cuda_major_mismatch", "likely"),
        (("ImportError: libcudnn.so.8: cannot open shared object file: No such file or directory", "cudnn: 9.1.0"),
         "cudnn_major_mismatch", "likely"),
        (("ImportError: libcudnn.so.8: cannot open shared object file: No such file or directory",),
         "cudnn_not_found", "likely"),
        (("ImportError: libcudart.so.11.0: cannot open shared object file", "cuda: 12.1"), "cuda_major_mismatch", "likely"),
        (("ImportError: libcublas.so.12: cannot open shared object file",
          "/usr/local/cuda-12.4/lib64/libcublas.so.12"), "nvidia_libs_not_on_loader_path", "likely"),
        (("Could not load dynamic library 'cudart64_110.dll'; dlerror: cudart64_110.dll not found", "cuda: 10.2"),
         "cuda_major_mismatch", "likely"),
        (("Loaded runtime CuDNN library: 8.9.4 but source was compiled with: 9.1.0.",), "cudnn_major_mismatch", "certain"),
        (("Loaded runtime CuDNN library: 8.2.1 but source was compiled with: 8.6.0.",), "cudnn_older_than_compiled", "likely"),
        (("Loaded runtime CuDNN library: 8.2.1 but source was compiled with: 8.6.0.", "cudnn: 8.6.0 installed, 8.2.1 loaded"),
         "cudnn_shadowed_by_other_copy", "likely"),
        (("E cuda_dnn.cc:439] Could not create cudnn handle: CUDNN_STATUS_INTERNAL_ERROR",
          "E cuda_dnn.cc:443] Memory usage: 8000000 bytes free, 12000000000 bytes total."),
         "preallocation_leaves_no_memory", "likely"),
        (("E cuda_dnn.cc:439] Could not create cudnn handle: CUDNN_STATUS_INTERNAL_ERROR",
          "E cuda_dnn.cc:443] Memory usage: 9000000000 bytes free, 12000000000 bytes total."),
         "cudnn_major_mismatch", "possible"),
        (("'cuModuleLoadData(&module, data)' failed with 'CUDA_ERROR_INVALID_PTX'", "tensorflow: 2.20.0", "gpu: RTX 5080"),
         "arch_not_in_wheel_too_new", "likely"),
        (("Outdated cuDNN installation found.", "Version JAX was built against: 8907", "Minimum supported: 9100",
          "Installed version: 8907"), "cudnn_major_mismatch", "certain"),
        (("Outdated cuDNN installation found.", "Version JAX was built against: 91001", "Minimum supported: 90800",
          "Installed version: 90100"), "cudnn_older_than_compiled", "likely"),
        (("RuntimeError: cudnn >= 9.1 is required, cudnn 8.9.7 is installed",), "cudnn_major_mismatch", "certain"),
        (("### TensorFlow version", "", "2.18.0", "### OS platform and distribution", "Windows 11 24h2",
          "### Current behavior?", "[PhysicalDevice(name='/physical_device:CPU:0', device_type='CPU')]"),
         "no_gpu_build_for_platform", "certain"),
    ],
)  # fmt: skip
def test_facts_in_the_log_decide_the_first_cause(lines, cause, confidence):
    first = found(*lines)[0]
    assert (first.cause, first.confidence) == (cause, confidence), first


@rows(
    ("line", "cause", "fix"),
    [
        ("ImportError: libGL.so.1: cannot open shared object file: No such file or directory", "system_library_missing", "apt-get install libgl1"),
        ("ModuleNotFoundError: No module named 'pkg_resources'", "python_package_missing", 'pip install "setuptools<81"'),
        ("Processing /me\nGetting requirements to build wheel did not run\nModuleNotFoundError: No module named 'pkg_resources'", "python_package_missing", "under [build-system]"),
        ("OSError: /e/lib/libtorch_cuda.so: file too short", "package_files_damaged", "reinstall the package"),
        ("OSError: /e/lib/libcudnn_ops.so.9: invalid ELF header", "package_files_damaged", "reinstall the package"),
        ("OSError: [Errno 24] Too many open files: 'a.jpg'", "process_limit_reached", "ulimit -n 65536"),
        ("RuntimeError: DataLoader worker (pid 71) is killed by signal: Killed.", "process_limit_reached", "memory"),
        ("RuntimeError: can't start new thread", "process_limit_reached", "ulimit -u"),
        ("F0000 parse_flags_from_env.cc:234] Unknown flags in XLA_FLAGS: --xla_gpu_x", "variable_breaks_framework", "unset XLA_FLAGS"),
        ("ValueError: Unrecognized CachingAllocator option: foo", "variable_breaks_framework", "unset PYTORCH_CUDA_ALLOC_CONF"),
    ],
)  # fmt: skip
def test_a_failure_beside_the_gpu_has_its_cause_and_fix(line, cause, fix):
    findings = found('File "train.py", line 3, in <module>', line)
    assert [f.cause for f in findings] == [cause]
    assert fix in (findings[0].fix or "")


def test_several_missing_libraries_are_none_installed_among_the_first_three():
    lines = (
        "Could not load dynamic library 'libcudnn.so.8'",
        "Could not load dynamic library 'libcusolver.so.10'",
    )
    assert "nvidia_libs_not_installed" in causes(*lines)[:3]


def test_a_damaged_file_of_the_driver_is_no_damaged_package():
    assert causes("ImportError: /usr/lib/libcuda.so.1: file too short") == []


def test_a_driver_that_is_new_enough_is_ruled_out():
    status = "RuntimeError: cuDNN error: CUDNN_STATUS_NOT_INITIALIZED"
    assert "driver_too_old_for_runtime" in causes(status)
    assert "driver_too_old_for_runtime" not in causes(status, "driver: 580.65.06", "torch: 2.6.0+cu124")


def test_candidates_come_in_order_each_with_what_would_decide():
    findings = found("RuntimeError: cuDNN error: CUDNN_STATUS_NOT_INITIALIZED")
    assert findings[0].cause == "gpu_memory_exhausted" and len(findings) >= 3
    for finding in findings:
        assert finding.confidence == "possible"
        assert any(e.source == "to check" and "`" in e.text for e in finding.evidence), finding


def test_the_cause_in_the_lower_layer_comes_first():
    assert causes(
        "undefined symbol: __nvJitLinkAddData_12_1, version libnvJitLink.so.12",
        "Failed to initialize NVML: Driver/library version mismatch",
    )[0] == "driver_library_mismatch"  # fmt: skip


def test_the_fix_names_versions_for_the_driver_and_gpu_of_the_text():
    first = found(NO_KERNEL, "gpu: RTX 5090", "torch: 2.6.0+cu124", "driver: 575.57.08", "(venv)")[0]
    assert " runs on driver 575.57.08 with a GeForce RTX 5090 (12.0)" in first.fix
    assert re.search(r"`gpuenv create --framework 'torch==2\.\d+\.\*'`", first.fix)
    first = found("CUDA available: False", "torch: 2.11.0+cu130", "driver: 535.129.03")[0]
    assert "upgrade the driver to 580.65.06 or newer" in first.fix
    assert re.search(r"torch 2\.\d+\.\d for CUDA 12\.\d runs on driver 535\.129\.03", first.fix)


def test_the_variable_to_unset_is_named_with_its_value():
    first = found(
        "RuntimeError: cuDNN version incompatibility: PyTorch was compiled against (8, 7, 0) but found runtime version (8, 5, 0).",
        "LD_LIBRARY_PATH=/opt/cudnn/lib64",
    )[0]
    assert first.title == "PyTorch requires cuDNN 8.7.0, but 8.5.0 is loaded"
    assert "/opt/cudnn/lib64: `unset LD_LIBRARY_PATH`" in first.fix


def test_evidence_has_its_line_number():
    log = ["start", "", "RuntimeError: CUDA error: invalid device ordinal"]
    assert found(*log)[0].evidence[0] == Evidence(text=log[2], source="log", line=3)


@rows(
    "lines",
    [
        ("RuntimeError: mat1 and mat2 shapes cannot be multiplied (32x100 and 128x64)",),
        ("RuntimeError: [enforce fail at alloc_cpu.cpp:75] DefaultCPUAllocator: can't allocate memory",),
        ("OOM when allocating tensor with shape[1] on /device:CPU:0 by allocator cpu",),
        ("KeyError: 'names'", "torch-2.1.0+cu118 CUDA:0 (Tesla T4, 15102MiB)"),
        ("torch: 2.3.0+cpu", "AssertionError: expected 3 channels"),
        ("Using cuda device Tesla V100", "Training finished, accuracy 0.98"),
        ("Unable to register cuDNN factory: Attempting to register factory for plugin cuDNN when one has already been registered",),
        ("UserWarning: torch.cuda.amp.GradScaler is enabled, but CUDA is not available.  Disabling.",),
        ("2.11.0+cu130 13.0 91900", "gpu: NVIDIA H200", "driver: 580.159.04"),
        ("$ docker run --gpus all nvidia/cuda nvidia-smi", "NVIDIA-SMI 535.129.03  Driver Version: 535.129.03  CUDA Version: 12.2"),
        (),
    ],
)  # fmt: skip
def test_what_is_no_such_failure_is_left_alone(lines):
    assert found(*lines) == ()


SEEDS = {
    "cudnn-torch": (
        ('File "train.py", line 41, in <module>', "RuntimeError: cuDNN error: CUDNN_STATUS_NOT_INITIALIZED"),
        {"gpu_memory_exhausted", "driver_too_old_for_runtime", "cudnn_shadowed_by_other_copy"},
    ),
    "tensorflow-cnn": (
        (
            "E tensorflow/stream_executor/cuda/cuda_dnn.cc:328] Could not create cudnn handle: CUDNN_STATUS_INTERNAL_ERROR",
            "UnknownError: Failed to get convolution algorithm. This is probably because cuDNN failed to initialize",
        ),
        {"preallocation_leaves_no_memory", "gpu_memory_exhausted"},
    ),
    "loaded-runtime": (
        (
            "Loaded runtime CuDNN library: 8.4.1 but source was compiled with: 8.6.0.",
            "DNN library is not found.",
        ),
        {"cudnn_older_than_compiled", "cudnn_shadowed_by_other_copy"},
    ),
    "yolov5": (
        (
            "YOLOv5 v6.2-181-g8a19437 Python-3.9.13 torch-1.10.1+cu102 CUDA:0 (NVIDIA GeForce RTX 3080, 10018MiB)",
            "hyperparameters: lr0=0.01, lrf=0.01, momentum=0.937, weight_decay=0.0005",
            "RuntimeError: CUDA error: no kernel image is available for execution on the device",
        ),
        {"arch_not_in_wheel_too_new"},
    ),
}


@rows(("lines", "wanted"), SEEDS.values(), ids=SEEDS)
def test_common_failures_have_their_causes(lines, wanted):
    assert wanted <= set(causes(*lines))


def test_parts_of_a_template_go_with_their_facts():
    assert fill_text("a[[ {x}]] b[[ {y}]]", {"x": "1"}) == "A 1 b"
