"""diagnose: rows by their examples, judges by tables, any text at all, and the command."""

import dataclasses
import json
import random
import re
import subprocess
import sys
import time

import pytest
from hypothesis import given, settings, strategies as st

from driver_stub import H200, build, scenario, spec
from provision import profiles
from provision.commands.diagnose import judged
from provision.diagnose import diagnose, patterns, text
from provision.diagnose.candidates import Case
from provision.diagnose.order import filled
from provision.diagnose.readers import read_facts
from provision.diagnose.rules import by_rules, mistakes
from provision.errors import DataError
from provision.model import Driver, Evidence, Finding, Gpu, Holder, Machine, Target, TargetGpu, Verdict
from provision.profiles.files import dump, read_file

KNOWN = profiles.load()
LABELS = 50


def found(*lines, machine=None, verdict=None):
    """Findings of a text given as lines."""
    return judged([("log", ["\n".join(lines).encode()])], KNOWN, machine, verdict)


def causes(*lines, **kwargs):
    return [f.cause for f in found(*lines, **kwargs)]


def fired(example):
    """The names of the rules that fire on a text."""
    lines = text.read("-", [example.encode()])
    facts, said = read_facts(lines, KNOWN.gpus), patterns.Said(lines, KNOWN.messages, KNOWN.failures)
    case = Case(facts=facts, said=said, profiles=KNOWN, serves=lambda kernels, capability: True)
    return {
        rule.name for rule in KNOWN.failures
        if by_rules(dataclasses.replace(case, profiles=dataclasses.replace(KNOWN, failures=(rule,))))
    }  # fmt: skip


# --- the rows -----------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", KNOWN.failures, ids=lambda r: r.name)
def test_the_example_of_a_rule_has_its_cause_among_the_first_three(rule):
    findings = found(rule.example)
    names = [f.cause for f in findings]
    assert rule.name in fired(rule.example)
    if int(rule.weight) >= 50:
        assert rule.cause in names[: 1 if rule.confidence == "certain" else 3], names
    for finding in findings:
        assert finding.evidence and finding.title and finding.fix
        assert not re.search(r"\{\w+\}|\[\[|\]\]", finding.title + finding.fix), finding


@pytest.mark.parametrize("rule", KNOWN.failures, ids=lambda r: r.name)
def test_what_is_shown_has_no_holes(rule):
    for finding in found(*rule.example.splitlines()):
        assert not re.search(r"\{\w+\}|\[\[|\]\]", f"{finding.title} {finding.fix}")


@pytest.mark.parametrize("message", KNOWN.messages, ids=lambda m: m.name)
def test_the_example_of_a_message_is_one(message):
    said = patterns.Said(text.read("-", [message.example.encode()]), KNOWN.messages, ())
    assert said.group(message.name)
    assert message.source


def test_the_table_is_whole_and_without_mistakes():
    known_causes = {c.cause for c in KNOWN.causes}
    names = {m.name for m in KNOWN.messages}
    assert len(known_causes) == LABELS
    assert {r.cause for r in KNOWN.failures} | {"cudnn_older_than_compiled"} == known_causes
    assert mistakes(KNOWN.failures, KNOWN.causes, KNOWN.messages) == []
    assert len(names) == len(KNOWN.messages)


def test_a_wrong_row_is_named():
    row = dataclasses.replace(
        KNOWN.failures[0], cause="x", confidence="sure", weight="0", says=("@y", "..."), wants=("z==1",)
    )
    known = dataclasses.replace(KNOWN, failures=(row,))
    with pytest.raises(DataError) as caught:
        judged([], known, None)
    assert len(caught.value.problems) == 6


def test_the_file_is_written_as_the_loader_writes_it():
    path = profiles.directory() / "failures.yaml"
    tables, wrong = read_file(path)
    assert wrong == []
    assert dump(tables) == path.read_text()


# --- facts against tables -----------------------------------------------------------------------

NO_KERNEL = "RuntimeError: CUDA error: no kernel image is available for execution on the device"


@pytest.mark.parametrize(
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
    ],
)  # fmt: skip
def test_a_judge_reasons(lines, cause, confidence):
    first = found(*lines)[0]
    assert (first.cause, first.confidence) == (cause, confidence), first


@pytest.mark.parametrize(
    ("line", "cause", "fix"),
    [
        ("ImportError: libGL.so.1: cannot open shared object file: No such file or directory", "system_library_missing", "apt-get install libgl1"),
        ("ModuleNotFoundError: No module named 'pkg_resources'", "python_package_missing", "gpuenv add 'setuptools<81'"),
        ("OSError: /e/lib/libtorch_cuda.so: file too short", "package_files_damaged", "gpuenv repair"),
        ("OSError: /e/lib/libcudnn_ops.so.9: invalid ELF header", "package_files_damaged", "gpuenv repair"),
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


def test_the_lower_layer_wins():
    assert causes(
        "undefined symbol: __nvJitLinkAddData_12_1, version libnvJitLink.so.12",
        "Failed to initialize NVML: Driver/library version mismatch",
    )[0] == "driver_library_mismatch"  # fmt: skip


def test_the_fix_names_versions_for_the_driver_and_gpu_of_the_text():
    first = found(NO_KERNEL, "gpu: RTX 5090", "torch: 2.6.0+cu124", "driver: 575.57.08")[0]
    assert "Driver 575.57.08 with a GeForce RTX 5090 (12.0) runs torch" in first.fix
    assert re.search(r"`gpuenv create --framework 'torch==2\.\d+\.\*'`", first.fix)
    first = found("CUDA available: False", "torch: 2.11.0+cu130", "driver: 535.129.03")[0]
    assert "Upgrade the driver to 580.65.06 or newer" in first.fix
    assert re.search(r"Driver 535\.129\.03 runs torch 2\.\d+\.\d for CUDA 12\.\d", first.fix)


def test_the_variable_to_unset_is_named_with_its_value():
    first = found(
        "RuntimeError: cuDNN version incompatibility: PyTorch was compiled against (8, 7, 0) but found runtime version (8, 5, 0).",
        "LD_LIBRARY_PATH=/opt/cudnn/lib64",
    )[0]
    assert first.title == "PyTorch brings cuDNN 8.7.0, but 8.5.0 is loaded in its place"
    assert first.fix.startswith("LD_LIBRARY_PATH is /opt/cudnn/lib64: `unset LD_LIBRARY_PATH`")


def test_evidence_has_its_line():
    log = ["start", "", "RuntimeError: CUDA error: invalid device ordinal"]
    assert found(*log)[0].evidence[0] == Evidence(text=log[2], source="log", line=3)


@pytest.mark.parametrize(
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


# --- this machine and an environment -----------------------------------------------------------

STUB = Finding(cause="cuda_stub_library_loaded", title="t", fix="f", confidence="certain")
HERE = Machine(
    target=Target(platform="linux-x86_64", driver="580.65.06"),
    driver=Driver(library="580.65.06"),
    findings=(STUB,),
)


def test_a_proof_comes_before_words():
    verdict = Verdict(env="e", python="p", verdict="fails", findings=(STUB,))
    assert causes("Could not locate zlibwapi.dll", verdict=verdict) == [
        "cuda_stub_library_loaded",
        "windows_zlib_missing",
    ]
    assert causes("Could not locate zlibwapi.dll", machine=HERE)[0] == "cuda_stub_library_loaded"


def test_a_log_of_another_machine_is_not_judged_by_this_one():
    assert causes("Could not locate zlibwapi.dll", "driver: 470.57.02", machine=HERE) == [
        "windows_zlib_missing"
    ]


NO_KERNEL = "RuntimeError: CUDA error: no kernel image is available for execution on the device"


def test_the_machine_s_gpu_is_held_against_the_build_where_the_text_names_none():
    v100 = TargetGpu(capability="7.0", name="Tesla V100")
    old = Target(platform="linux-x86_64", driver="470.82.01", gpus=(v100,))
    machine = dataclasses.replace(HERE, target=old, findings=())
    first, *_ = found(NO_KERNEL, "torch==2.15.0", machine=machine)
    assert (first.cause, first.confidence) == ("arch_dropped_too_old", "likely")
    assert "470.82.01" in first.fix and "CUDA 11.8" in first.fix and "7.5 8.0" in first.title
    log = f"{NO_KERNEL}\ntorch==2.15.0".encode()
    assert judged([("log", [log])], KNOWN, machine, here=True)[0].confidence == "certain"
    b200 = dataclasses.replace(machine, target=dataclasses.replace(old, gpus=(TargetGpu(capability="10.0"),)))
    assert causes(NO_KERNEL, "torch==2.5.1", machine=b200)[0] == "arch_not_in_wheel_too_new"
    other = causes(NO_KERNEL, "torch==2.15.0", "driver: 580.65.06", machine=machine)
    assert other == causes(NO_KERNEL, "torch==2.15.0", "driver: 580.65.06"), "another machine's log"


def test_what_ran_here_is_judged_by_what_is_here():
    guess = dataclasses.replace(STUB, confidence="possible")
    machine = dataclasses.replace(HERE, findings=(guess,))
    status, zlib = (
        b"RuntimeError: cuDNN error: CUDNN_STATUS_NOT_INITIALIZED",
        b"Could not locate zlibwapi.dll",
    )
    assert judged([("-", [status])], KNOWN, machine, here=True)[0] == guess
    assert judged([("-", [zlib])], KNOWN, machine, here=True)[1] == guess
    assert guess not in judged([("-", [status])], KNOWN, machine)


def test_without_a_log_the_machine_speaks():
    assert [f.cause for f in judged([], KNOWN, HERE)] == ["cuda_stub_library_loaded"]


FULL = "RuntimeError: CUDA error: CUDA out of memory. Tried to allocate 20.00 MiB"
GPUS = (Gpu(index=0, memory_mib=16000), Gpu(index=1, memory_mib=16000))


def held(*rows, line=FULL, machine=None):
    """The first finding where these processes hold memory, and how often it was asked who does."""
    asked = []
    here = dataclasses.replace(machine or HERE, findings=(), gpus=GPUS)

    def holders():
        asked.append(1)
        return rows

    log = [("log", [line.encode()])]
    how = {"profiles": KNOWN, "serves": lambda kernels, capability: True}
    return next(iter(diagnose(log, machine=here, holders=holders, **how)), None), len(asked)


def test_who_holds_the_memory_is_named():
    tensorflow = Holder(pid=4711, gpu=0, memory_mib=15200, name="python3", framework="tensorflow")
    finding, _ = held(tensorflow, Holder(pid=9, gpu=1, memory_mib=5, name="x"))
    assert finding.fix.startswith(
        "End process 4711 (python3), which holds 15200 MiB of GPU 0 on this machine, "
        "or start it with TF_FORCE_GPU_ALLOW_GROWTH=true."
    )
    assert finding.evidence[-1] == Evidence(
        text="process 9 (x) holds 5 MiB of GPU 1 on this machine", source="NVML, now"
    )
    unknown, _ = held(Holder(pid=12, name="train"))
    assert unknown.fix.startswith("End process 12 (train), which has a GPU open on this machine.")


def test_a_desktop_is_not_asked_to_end():
    finding, _ = held(Holder(pid=4711, gpu=0, memory_mib=300, name="Xorg"))
    assert "Xorg" not in finding.fix and "Xorg" in finding.evidence[-1].text


def test_nobody_is_asked_for_where_memory_is_not_the_question_or_the_log_is_anothers():
    holder = Holder(pid=4711, gpu=0, memory_mib=15200, name="python3")
    assert held(holder, line="Could not locate zlibwapi.dll")[1] == 0
    assert held(holder, line=f"driver: 470.57.02\n{FULL}")[1] == 0
    assert held(line=FULL)[1] == 1


COLAB = (
    "!pip install torch==1.12.1+cu113",
    "    Found existing installation: torch 2.3.1+cu121",
    "Successfully installed torch-1.12.1+cu113 six-1.17",
    "<ipython-input-3-5b1d2b1f0a3c> in <cell line: 4>()",
    "/usr/local/lib/python3.10/dist-packages/torch/nn/modules/conv.py in _conv_forward(self, input, weight, bias)",
    "RuntimeError: cuDNN version incompatibility: PyTorch was compiled  against (8, 3, 2) but found runtime version (8, 2, 1).",
)


def test_what_a_notebook_installed_over_its_runtime_is_told():
    finding = found(*COLAB)[0]
    assert finding.cause == "cudnn_shadowed_by_other_copy"
    assert finding.title == "PyTorch brings cuDNN 8.3.2, but 8.2.1 is loaded in its place"
    assert finding.evidence[1].line == 3
    assert finding.fix.startswith(
        "This notebook changed its runtime (torch 2.3.1+cu121 to 1.12.1+cu113): without that cell,"
    )
    again = found(*COLAB, "WARNING: The following packages were previously imported in this runtime:")[0]
    assert again.fix.startswith("Restart the session first:")


def test_elsewhere_an_install_is_evidence_only():
    lines = ("Successfully installed torch-1.12.1", *COLAB[-1:])
    finding = found(*lines)[0]
    assert finding.evidence[1].text == lines[0] and "notebook" not in finding.fix
    uv = found(" - torch==2.3.1", " + torch==2.9.0", *COLAB[-1:])[0]
    assert [e.line for e in uv.evidence] == [3, 2]


def test_an_install_is_no_reason_for_a_missing_driver():
    finding = found(*COLAB[:5], "RuntimeError: Found no NVIDIA driver on your system.")[0]
    assert finding.title == "The notebook's runtime has no GPU"
    assert finding.fix.startswith("Runtime, Change runtime type")


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


@pytest.mark.parametrize(("lines", "wanted"), SEEDS.values(), ids=SEEDS)
def test_the_failures_that_people_search_for(lines, wanted):
    assert wanted <= set(causes(*lines))


# --- any text at all ---------------------------------------------------------------------------

OMP = "OMP: Error #15: Initializing libiomp5md.dll, but found libiomp5md.dll already initialized."


@pytest.mark.parametrize(
    "data",
    [
        OMP.encode("utf-16"),
        OMP.encode("utf-16-le"),
        OMP.encode("utf-16-be"),
        b"\xef\xbb\xbf" + OMP.encode(),
        OMP.replace(" ", "\x1b[31m \x1b[0m").encode(),
        b"\r\n".join([b"a", OMP.encode(), b"b"]),
        b"1%\r2%\r3%\r" + OMP.encode() + b"\r100%\n",
        bytes(range(256)) * 40 + b"\n" + OMP.encode() + b"\n" + bytes(range(256)) * 40,
        b"[rank1]: Traceback\n[rank0]: " + OMP.encode() + b"\n[rank1]: KeyError",
        b"x" * 5000 + b"\n" + OMP.encode(),
        b"started\n" * 3 + f"{OMP}\r\n".encode("utf-16-le") + b"ended\n",
        random.Random(2).randbytes(300_000)
        + b"\n"
        + f"{OMP}\r\n".encode()
        + random.Random(5).randbytes(300_000),
    ],
)
def test_a_message_is_found_in_any_kind_of_log(data):
    assert [f.cause for f in judged([("-", [data])], KNOWN, None)] == ["duplicate_openmp_runtime"]
    pieces = [data[i : i + 7] for i in range(0, len(data), 7)]
    assert [f.cause for f in judged([("-", pieces)], KNOWN, None)][:1] == ["duplicate_openmp_runtime"]


def test_a_message_broken_over_two_lines():
    assert causes("A module that was compiled using", "NumPy 1.x cannot be run in NumPy 2.0.0") == [
        "numpy_abi"
    ]


def test_lines_between_junk_are_found_where_they_are():
    """A log into which a checkpoint was printed: the lines before, in and after it, with their numbers."""
    said = b"\nRuntimeError: CUDA error: invalid device ordinal\n"
    junk = random.Random(4).randbytes(3 << 20)
    data = junk[: 1 << 20] + said + junk[1 << 20 :] + b"\n" * 3
    lines = text.read("-", [data[i : i + 70_001] for i in range(0, len(data), 70_001)])
    [line] = [x for x in lines if "ordinal" in x.text]
    assert line.number == data[: data.index(b"ordinal")].count(b"\n") + 1
    assert line.text == said.decode().strip()


@pytest.mark.parametrize("words", ["ошибка: CUDA error: device-side assert", "错误: CUDA error 内存不足" * 3])
def test_words_of_any_script_are_no_junk(words):
    """Most bytes of such a log are not ASCII; its lines are kept as they are."""
    data = (
        "обучение, шаг: потери уменьшаются 训练步骤\n" * 40_000 + f"{words}\n" + "шаг 训练\n" * 40_000
    ).encode()
    assert words in [x.text for x in text.read("-", [data])]


@pytest.mark.parametrize("place", [0.0, 0.5, 1.0])
def test_a_message_anywhere_in_a_long_log_with_its_line(place):
    rows = [f"step {i} gpu mem 3.1G loss 0.{i}" for i in range(120_000)]
    at = int(place * len(rows))
    rows.insert(at, "RuntimeError: CUDA error: invalid device ordinal")
    data = "\n".join(rows).encode()
    finding = judged([("-", [data[i : i + 65536] for i in range(0, len(data), 65536)])], KNOWN, None)[0]
    assert (finding.cause, finding.evidence[0].line) == ("visible_devices_invalid", at + 1)


WORST = [
    b"CUDA capability sm_80 " * 40_000,
    b"sm_80, " * 100_000,
    b"driver version: " * 50_000,
    b"could not load libcudnn" * 40_000,
    b"\x1b[0" * 200_000,
    b"\x1b]" * 200_000,
    b"libcudart.so.1.1.1.1.1.1" * 30_000,
    b"/a/a" * 200_000 + b"/libcudnn.so",
    b"torch" + b" " * 800_000 + b"1.8",
    b"jax 1.1.1.1 " * 60_000,
    b"GPU\r" * 200_000,
    (b"a" * 60 + b"key: " + b"v" * 300 + b"\n") * 2_000,
    b"CUDA_VISIBLE_DEVICES=" * 40_000,
    b"undefined symbol: " * 40_000,
    (b"rtx gtx tesla quadro titan rtx " * 20 + b"\n") * 1_200,
]


@pytest.mark.parametrize("data", WORST, ids=lambda d: repr(d[:20]))
def test_no_input_is_slow(data):
    judged([("-", [b"x"])], KNOWN, None)  # patterns are compiled once
    started = time.process_time()
    judged([("-", [data])], KNOWN, None)
    assert (
        time.process_time() - started < 10
    )  # a tenth of a second; a square of the length would take an hour


PIECES = st.sampled_from(
    [
        *sorted({w for m in KNOWN.messages for s in m.says for w in re.split(r"\W+", s) if w}),
        "CUDA",
        "sm_80",
        "driver: 535.54.03",
        "torch==2.1.0+cu121",
        "gpu: RTX 3090",
        "libcudnn.so.8",
        "\n",
        "\r",
        "\x1b[1m",
        "\x00",
        ":",
        "[[",
    ]
)


@settings(max_examples=150)
@given(st.lists(PIECES, max_size=60).map(" ".join) | st.text(max_size=300))
def test_no_text_is_too_much(words):
    for finding in judged([("-", [words.encode("utf-8", "replace")])], KNOWN, None):
        assert finding.evidence and finding.fix


@settings(max_examples=100)
@given(st.binary(max_size=4000), st.integers(1, 50))
def test_no_bytes_are_too_much(data, size):
    judged([("-", [data[i : i + size] for i in range(0, len(data), size)])], KNOWN, None)


def test_memory_and_lines_kept_are_bounded():
    generator = random.Random(1)
    block = b"".join(b"cuda error %x gpu cannot open\n" % generator.getrandbits(200) for _ in range(15_000))
    assert len(text.read("-", [block] * 30)) <= 2 * text.LINES + text.BETWEEN


def _rows(make, count=20_000):
    return b"".join(make(i) for i in range(count))


BIG = {
    "progress": lambda: _rows(
        lambda i: b"Epoch %d/100 step %d loss: 0.%04d [==>...] - ETA: 12s\n" % (i % 100, i, i % 9999)
    ),
    "junk": lambda: random.Random(3).randbytes(3_000_000),
    "junk and lines": lambda: _rows(
        lambda i: random.Random(i).randbytes(40_000) + b"\nWARNING: CUDA %d\n" % i, 75
    ),
    "bars": lambda: _rows(lambda i: b"\r%3d%%|####    | %d/20000 [00:10<00:20, 99.1it/s]" % (i % 100, i)),
    "colours": lambda: _rows(lambda i: b"\x1b[32mINFO\x1b[0m step %d \x1b[33mloss\x1b[0m 0.%d\n" % (i, i)),
    "one line": lambda: b"TWFuIGlzIGRpc3Rpbmd1aXNoZWQ" * 40_000,
    "utf-16": lambda: _rows(lambda i: f"step {i} loss 0.{i}\r\n".encode("utf-16-le")),
}


@pytest.mark.parametrize(
    "kind", [k if k in ("progress", "junk") else pytest.param(k, marks=pytest.mark.slow) for k in BIG]
)
def test_a_hundred_megabytes_in_twenty_times_wc_and_a_second(gpuenv, kind):
    path = gpuenv.work / "big.log"
    rows = BIG[kind]()
    last = "\nRuntimeError: CUDA error: invalid device ordinal\n"
    path.write_bytes(
        rows * (100_000_000 // len(rows)) + last.encode("utf-16-le" if kind == "utf-16" else "ascii")
    )
    allowed = 20 * cost(["wc", "-l", str(path)], gpuenv)[0] + 1
    argv = [sys.executable, "-m", "provision", "diagnose", str(path), "--no-machine"]
    taken, kilobytes = cost(argv, gpuenv)
    assert kilobytes < 150_000
    assert taken < allowed


def cost(argv, gpuenv):
    """Seconds of processor and kilobytes of memory that a program takes, the best of two: other work on the
    machine is nobody's fault here."""
    measure = "import resource, subprocess, sys\nsubprocess.check_call(sys.argv[1:], stdout=subprocess.DEVNULL)\nused = resource.getrusage(resource.RUSAGE_CHILDREN)\nprint(used.ru_utime + used.ru_stime, used.ru_maxrss)"
    runs = []
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", measure, *argv],
            env=gpuenv.env, cwd=gpuenv.work, capture_output=True, text=True, check=True,
        )  # fmt: skip
        runs.append(tuple(map(float, done.stdout.split())))
    return min(runs)


def test_parts_of_a_template_go_with_their_facts():
    assert filled("a[[ {x}]] b[[ {y}]]", {"x": "1"}) == "A 1 b"


# --- the command -------------------------------------------------------------------------------


def test_the_command_reads_files_and_answers_in_json(gpuenv):
    (gpuenv.work / "a.log").write_text("nothing\n")
    (gpuenv.work / "b.log").write_text(f"x\n{OMP}\n")
    done = gpuenv("diagnose", "a.log", "b.log", "--no-machine", "--json")
    assert done.code == 0, done.err
    assert done.json["schema"] == "gpuenv.findings/1"
    [finding] = done.json["findings"]
    assert finding["cause"] == "duplicate_openmp_runtime" and finding["confidence"] == "certain"
    assert finding["evidence"][0] == {"text": OMP, "source": "b.log", "line": 2}


def test_the_command_has_nothing_to_say_about_what_it_does_not_know(gpuenv):
    (gpuenv.work / "a.log").write_text("KeyError: 'x'\n")
    done = gpuenv("diagnose", "a.log", "--no-machine")
    assert (done.code, done.out) == (0, "nothing here that gpuenv knows\n")


def test_people_get_one_screen(gpuenv):
    (gpuenv.work / "a.log").write_text("RuntimeError: cuDNN error: CUDNN_STATUS_NOT_INITIALIZED\n")
    done = gpuenv("diagnose", "a.log", "--no-machine")
    assert done.code == 0 and "or, less likely:" in done.out
    assert len(done.out.splitlines()) <= 40


def test_the_process_that_holds_the_memory_of_this_machine(gpuenv, tmp_path):
    """NVML is a stub that names a real process."""
    libraries = build(tmp_path / "driver")
    (gpuenv.work / "a.log").write_text(FULL)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as holder:
        gpu = f"{H200}|free_mib=200|holder={holder.pid}"
        gpuenv.env |= scenario(libraries, spec(driver="580.159.04", cuda=13000, gpus=[gpu]))
        done = gpuenv("diagnose", "a.log", "--json")
        silent = gpuenv("diagnose", "a.log", "--no-machine", "--json")
        holder.communicate(b"\n")
    first = done.json["findings"][0]
    assert re.match(
        rf"End process {holder.pid} \(python[\d.]*\), which holds 1\d+ MiB of GPU 0", first["fix"]
    )
    assert str(holder.pid) not in silent.out


def test_a_machine_from_a_file(gpuenv):
    machine = {"schema": "gpuenv.machine/1", "target": {"platform": "linux-x86_64", "driver": "535.129.03"}}
    (gpuenv.work / "m.json").write_text(json.dumps(machine))
    (gpuenv.work / "a.log").write_text("AssertionError: Torch not compiled with CUDA enabled\n")
    done = gpuenv("diagnose", "a.log", "--machine", "m.json", "--json")
    assert done.code == 0, done.err
    assert "Driver 535.129.03 runs torch" in done.json["findings"][0]["fix"]


@pytest.mark.parametrize(
    "words",
    [
        ("missing.log",),
        ("--no-machine",),
        ("x", "--machine", "missing.json"),
        ("--machine", "bad.json"),
        ("-", "--no-machine", "--machine", "m"),
    ],
)
def test_what_cannot_be_read_is_a_usage_error(gpuenv, words):
    (gpuenv.work / "bad.json").write_text('{"x": 1}')
    (gpuenv.work / "x").write_text("")
    done = gpuenv("diagnose", *words)
    assert done.code == 2 and done.err.startswith("error")
