"""diagnose beside a machine, an environment, the processes on its GPUs, and a notebook's installs."""

import dataclasses

from diagnosed import causes, findings_of, found
from known import KNOWN

from provision.diagnose import Circumstances, Ran, find_causes
from provision.model import (
    Driver,
    Evidence,
    Finding,
    Gpu,
    GpuMemoryHolder,
    Machine,
    Target,
    TargetGpu,
    Verdict,
)

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
    assert findings_of([("log", [log])], KNOWN, machine, ran=Ran())[0].confidence == "certain"
    b200 = dataclasses.replace(machine, target=dataclasses.replace(old, gpus=(TargetGpu(capability="10.0"),)))
    assert causes(NO_KERNEL, "torch==2.5.1", machine=b200)[0] == "arch_not_in_wheel_too_new"
    other = causes(NO_KERNEL, "torch==2.15.0", "driver: 580.65.06", machine=machine)
    assert other == causes(NO_KERNEL, "torch==2.15.0", "driver: 580.65.06"), "another machine's log"


def test_a_log_of_this_machine_is_judged_by_the_findings_of_this_machine():
    guess = dataclasses.replace(STUB, confidence="possible")
    machine = dataclasses.replace(HERE, findings=(guess,))
    status, zlib = (
        b"RuntimeError: cuDNN error: CUDNN_STATUS_NOT_INITIALIZED",
        b"Could not locate zlibwapi.dll",
    )
    assert findings_of([("-", [status])], KNOWN, machine, ran=Ran())[0] == guess
    assert findings_of([("-", [zlib])], KNOWN, machine, ran=Ran())[1] == guess
    assert guess not in findings_of([("-", [status])], KNOWN, machine)


def test_without_a_log_the_machine_speaks():
    assert [f.cause for f in findings_of([], KNOWN, HERE)] == ["cuda_stub_library_loaded"]


FULL = "RuntimeError: CUDA error: CUDA out of memory. Tried to allocate 20.00 MiB"
GPUS = (Gpu(index=0, memory_mib=16000), Gpu(index=1, memory_mib=16000))


def held(*rows, line=FULL, machine=HERE):
    """The first finding where these processes hold memory, and how often it was asked who does."""
    calls = []
    here = dataclasses.replace(machine, findings=(), gpus=GPUS)

    def holders():
        calls.append(1)
        return rows

    log = [("log", [line.encode()])]
    known = Circumstances(machine=here, holders=holders)
    return next(iter(find_causes(log, KNOWN, known).findings), None), len(calls)


def test_who_holds_the_memory_is_named(golden):
    tensorflow = GpuMemoryHolder(pid=4711, gpu=0, memory_mib=15200, name="python3", framework="tensorflow")
    finding, _ = held(tensorflow, GpuMemoryHolder(pid=9, gpu=1, memory_mib=5, name="x"))
    golden("diagnose", finding.fix)
    last = finding.evidence[-1]
    assert last.text.startswith("process 9 (x) holds 5 MiB of GPU 1 ") and last.source == "NVML, measured now"
    unknown, _ = held(GpuMemoryHolder(pid=12, name="train"))
    assert unknown.fix.startswith("End process 12 (train), which has a GPU open")


def test_a_desktop_is_not_asked_to_end():
    finding, _ = held(GpuMemoryHolder(pid=4711, gpu=0, memory_mib=300, name="Xorg"))
    assert "Xorg" not in finding.fix and "Xorg" in finding.evidence[-1].text


def test_nobody_is_asked_for_where_memory_is_not_the_question_or_the_log_is_anothers():
    holder = GpuMemoryHolder(pid=4711, gpu=0, memory_mib=15200, name="python3")
    assert held(holder, line="Could not locate zlibwapi.dll")[1] == 0
    assert held(holder, line=f"driver: 470.57.02\n{FULL}")[1] == 0
    assert held(line=FULL)[1] == 1


def test_a_driver_of_which_only_the_module_is_known_is_this_machine_s():
    holder = GpuMemoryHolder(pid=4711, gpu=0, memory_mib=15200, name="python3")
    machine = dataclasses.replace(HERE, driver=Driver(kernel_module="580.65.06"))
    assert held(holder, machine=machine)[1] == 1


COLAB = (
    "!pip install torch==1.12.1+cu113",
    "    Found existing installation: torch 2.3.1+cu121",
    "Successfully installed torch-1.12.1+cu113 six-1.17",
    "<ipython-input-3-5b1d2b1f0a3c> in <cell line: 4>()",
    "/usr/local/lib/python3.10/dist-packages/torch/nn/modules/conv.py in _conv_forward(self, input, weight, bias)",
    "RuntimeError: cuDNN version incompatibility: PyTorch was compiled  against (8, 3, 2) but found runtime version (8, 2, 1).",
)


def test_packages_that_a_notebook_replaced_in_its_runtime_are_named():
    finding = found(*COLAB)[0]
    assert finding.cause == "cudnn_shadowed_by_other_copy"
    assert finding.title == "PyTorch requires cuDNN 8.3.2, but 8.2.1 is loaded"
    assert finding.evidence[1].line == 3
    assert "(torch 2.3.1+cu121 to 1.12.1+cu113)" in finding.fix and "remove that cell" in finding.fix
    again = found(*COLAB, "WARNING: The following packages were previously imported in this runtime:")[0]
    assert again.fix.startswith("Restart the session first:")


def test_an_install_outside_of_a_notebook_is_only_evidence():
    lines = ("Successfully installed torch-1.12.1", *COLAB[-1:])
    finding = found(*lines)[0]
    assert finding.evidence[1].text == lines[0] and "notebook" not in finding.fix
    uv = found(" - torch==2.3.1", " + torch==2.9.0", *COLAB[-1:])[0]
    assert [e.line for e in uv.evidence] == [3, 2]


def test_an_install_is_no_reason_for_a_missing_driver():
    finding = found(*COLAB[:5], "RuntimeError: Found no NVIDIA driver on your system.")[0]
    assert finding.title == "The notebook's runtime has no GPU"
    assert "Runtime > Change runtime type" in finding.fix


def test_a_likely_finding_of_an_environment_is_certain_where_the_text_proves_it():
    likely = Finding(
        cause="extension_built_for_other_torch_or_cuda", title="fa 1.0 was built for another torch", fix="f",
        evidence=(Evidence(text="fa 1.0: needs the symbol x"),), confidence="likely",
    )  # fmt: skip
    verdict = Verdict(env="e", python="p", verdict="fails", findings=(likely,))
    line = "ImportError: fa.so: undefined symbol: _ZN3c104cuda9SetDeviceEi"
    (first,) = found(line, verdict=verdict)
    assert (first.cause, first.confidence, first.title) == (likely.cause, "certain", likely.title)
    assert [e.text for e in first.evidence] == ["fa 1.0: needs the symbol x", line]
    assert found("Could not locate zlibwapi.dll", verdict=verdict)[0].confidence == "likely"
