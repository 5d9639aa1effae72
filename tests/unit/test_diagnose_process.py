"""diagnose: limits of the process, values of variables, and crashes with their stacks."""

import dataclasses

from diagnosed import diagnosis_of, found
from rows import rows

from provision.diagnose import Ran

USERS = 'File "/home/u/proj/train.py", line 3, in <module>'


# --- limits --------------------------------------------------------------------------------------

KILLED = Ran(signal="SIGKILL", oom_kills=1, oom_source="cgroup")


def test_the_kernel_s_count_proves_that_memory_ran_out():
    [finding] = found(ran=KILLED)
    assert (finding.cause, finding.confidence) == ("process_limit_reached", "certain")
    assert finding.evidence[0].source == "cgroup"
    [finding] = found(ran=dataclasses.replace(KILLED, oom_source="/proc/vmstat"))
    assert finding.confidence == "likely", "another program may be the one that was ended"


@rows(
    "lines", [(), ("Killed",), ("exitcode  : -9 (pid: 71)",), ("RuntimeError: DataLoader worker (pid 71) is killed by signal: Killed.",)]
)  # fmt: skip
def test_what_a_person_killed_is_no_failure(lines):
    assert found(*lines, ran=dataclasses.replace(KILLED, oom_kills=0)) == ()


@rows(
    "line", ["Killed", "train.sh: line 4:  4711 Killed                  python train.py", "exitcode  : -9 (pid: 71)"]
)  # fmt: skip
def test_a_text_alone_does_not_say_who_killed(line):
    [finding] = found("epoch 3", line)
    assert (finding.cause, finding.confidence) == ("process_limit_reached", "possible")
    assert "person" in finding.fix


def test_a_killed_program_of_which_nothing_is_known_is_possible():
    [finding] = found(ran=Ran(signal="SIGKILL"))
    assert finding.confidence == "possible"


@rows(
    "line",
    ["Killed 3 stale workers", "RuntimeError: DefaultCPUAllocator: can't allocate memory: you tried to allocate 281474976710656 bytes. Error code 12 (Cannot allocate memory)"],
)  # fmt: skip
def test_messages_that_show_no_limit_have_no_finding(line):
    assert found(USERS, line) == ()


REFUSED = "numpy._core._exceptions._ArrayMemoryError: Unable to allocate 7.45 GiB for an array with shape (1000000000,) and data type float64"


@rows(
    "line", ["MemoryError", REFUSED, "terminate called after throwing an instance of 'std::bad_alloc'",
             "RuntimeError: [enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate 4000 bytes."]
)  # fmt: skip
def test_a_limit_on_address_space_is_named_with_its_size(line):
    finding = found(USERS, line, ran=Ran(address_space=3 << 30))[0]
    assert finding.cause == "process_limit_reached"
    assert "3072 MiB" in finding.title and "ulimit -v unlimited" in finding.fix


def test_more_memory_than_there_is_is_named_with_both_sizes():
    [finding] = found(USERS, REFUSED, ran=Ran(memory=4 << 30))
    assert (finding.cause, finding.confidence) == ("process_limit_reached", "likely")
    assert "7.4 GiB" in finding.title and "has 4.0" in finding.title
    assert found(USERS, REFUSED)[0].confidence == "possible"


def test_the_limit_on_open_files_is_named_with_its_number():
    [finding] = found("OSError: [Errno 24] Too many open files: 'a'", ran=Ran(open_files=64))
    assert "64 files" in finding.title and "ulimit -n" in finding.title


def test_no_memory_for_python_is_only_possible():
    [finding] = found(USERS, "MemoryError")
    assert (finding.cause, finding.confidence) == ("process_limit_reached", "possible")


# --- variables -----------------------------------------------------------------------------------


@rows(
    ("line", "variable"),
    [
        ("ValueError: CachingAllocator option max_split_size_mb too small, must be >= 20", "PYTORCH_CUDA_ALLOC_CONF"),
        ("ValueError: Expected 'True' or 'False' at index 2 in ConfigTokenizer but got 'maybe'", "PYTORCH_CUDA_ALLOC_CONF"),
        ("ValueError: garbage_collect_threshold is invalid, set it in (0.0, 1.0)", "PYTORCH_CUDA_ALLOC_CONF"),
        ("Unknown flag in XLA_FLAGS: --xla_no_such", "XLA_FLAGS"),
        ("ValueError: Invalid log settings: foo, must be a comma separated list of", "TORCH_LOGS"),
    ],
)  # fmt: skip
def test_the_variable_whose_value_is_refused_is_named(line, variable):
    [finding] = found(USERS, line)
    assert finding.cause == "variable_breaks_framework"
    assert variable in finding.title and "unset" in finding.fix


# --- crashes -------------------------------------------------------------------------------------

SITE = "/e/lib/python3.11/site-packages"
HEAD = (
    "Fatal Python error: Segmentation fault",
    "",
    "Current thread 0x00007fe5543d0b80 (most recent call first):",
)
CONV = f'  File "{SITE}/torch/nn/modules/conv.py", line 549 in _conv_forward'
OWN = '  File "/home/u/proj/train.py", line 5 in <module>'


LOADING = (
    '  File "<frozen importlib._bootstrap>", line 241 in _call_with_frames_removed',
    '  File "<frozen importlib._bootstrap_external>", line 1233 in create_module',
)


def modules(*names):
    return f"Extension modules: {', '.join(names)} (total: {len(names)})"


@rows(
    ("lines", "cause", "confidence", "title", "shown"),
    [
        # two frameworks in a crashed process
        ((*HEAD, CONV, OWN, "", modules("numpy._core._multiarray_umath", "torch._C", "tensorflow.python.framework.fast_tensor_util")),
         "conflicting_frameworks_in_one_env", "likely", "torch/nn/modules/conv.py, line 549, _conv_forward", "loaded: numpy, torch, tensorflow"),
        # a crash while an extension loads beside torch
        ((*HEAD, *LOADING, f'  File "{SITE}/flash_attn/__init__.py", line 3 in <module>', OWN, modules("torch._C")),
         "extension_built_for_other_torch_or_cuda", "likely", "flash_attn", None),
        # SIGBUS while a library is loaded
        (("Fatal Python error: Bus error", "Current thread 0x00007fc08f7d1b80 (most recent call first):", *LOADING,
          f'  File "{SITE}/torch/__init__.py", line 445 in <module>', '  File "<string>", line 1 in <module>'),
         "package_files_damaged", "likely", "torch", None),
        # a crash inside torch alone
        ((*HEAD, CONV, OWN, modules("torch._C")), "framework_bug_upgrade", "possible", "", None),
        # a native stack inside torch
        (("[node:1] *** Process received signal ***",
          "[node:1] [ 0] /lib/x86_64-linux-gnu/libc.so.6(+0x42520)[0x7f1122334400]",
          f"[node:1] [ 1] {SITE}/torch/lib/libtorch_cpu.so(_ZN2at6native+0x12)[0x7f1122334455]"),
         "framework_bug_upgrade", "possible", "The program crashed in libtorch_cpu.so", None),
        # a native stack with two copies of one library
        (("*** SIGSEGV received ***", "/usr/lib/libcudnn_ops.so.9(+0x1a2b) [0x7f1122334455]",
          f"{SITE}/nvidia/cudnn/lib/libcudnn.so.9(cudnnCreate+0x12) [0x7f1122334466]"),
         "cudnn_shadowed_by_other_copy", "likely", "libcudnn_ops.so.9", None),
    ],
)  # fmt: skip
def test_a_stack_says_what_crashed_and_its_cause(lines, cause, confidence, title, shown):
    [finding] = found(*lines)
    assert (finding.cause, finding.confidence) == (cause, confidence)
    assert finding.title == title if title.startswith("The program") else title in finding.title
    assert shown is None or shown in [e.text for e in finding.evidence]


@rows(
    "lines",
    [
        ("exit 139", "Segmentation fault"),
        (*HEAD, '  File "/usr/lib/python3.11/ctypes/__init__.py", line 519 in string_at', OWN, modules("torch._C")),
        ("kernel: gnome-shell[71]: segfault at 0 ip 00007f01 sp 00007ffd error 4 in libmutter-10.so.0[7f00+1000]",),
        ("Program received signal SIGSEGV, Segmentation fault.", "#0  0x00007ffff7a1 in draw () from /usr/lib/libgtk-3.so.0"),
        ("terminate called", "/opt/x/libtorch_cpu.so(+0x12) [0x7f1122334455]"),
    ],
)  # fmt: skip
def test_a_crash_without_a_framework_in_it_is_left_alone(lines):
    assert found(*lines) == ()


@rows(
    ("lines", "cause", "title"),
    [
        ((*HEAD, f'  File "{SITE}/cv2/__init__.py", line 9 in f', OWN, modules("cv2")),
         "framework_bug_upgrade", "The program crashed in cv2 (cv2/__init__.py, line 9, f)"),
        ((*HEAD, *LOADING, f'  File "{SITE}/cv2/__init__.py", line 9 in <module>', OWN),
         "package_files_damaged", "The program crashed in cv2 (cv2/__init__.py, line 9, <module>) while it loaded a library"),
        ((*HEAD, *LOADING, f'  File "{SITE}/torch/__init__.py", line 9 in <module>', OWN, modules("torch._C")),
         "package_files_damaged", "The program crashed in torch (torch/__init__.py, line 9, <module>) while a library was loaded"),
        (("tensorflow 2.15.0", *HEAD, *LOADING, f'  File "{SITE}/torch/__init__.py", line 9 in <module>', OWN, modules("numpy")),
         "conflicting_frameworks_in_one_env",
         "The program crashed in torch (torch/__init__.py, line 9, <module>) while a library was loaded, in a process with tensorflow"),
        (("python[7]: segfault at 0 ip 00007f01 sp 00007ffd error 4 in libtorch_cuda.so[7f00+1000]",),
         "framework_bug_upgrade", "The program crashed in libtorch_cuda.so, a library of torch"),
        (("SIGSEGV received", "/usr/lib/libcudnn_ops.so.9(+0x1a2b) [0x7f1122334455]"),
         "cudnn_shadowed_by_other_copy", "The program crashed in libcudnn_ops.so.9; two cuDNN builds may be mixed"),
        (("Segmentation fault", "#0  0x00007ffff7a1 in gemm () from /usr/local/cuda/lib64/libcublasLt.so.12"),
         "nvidia_lib_symbol_mismatch", "The program crashed in libcublasLt.so.12; two CUDA releases may be mixed"),
    ],
)  # fmt: skip
def test_the_top_of_a_stack_is_named_with_what_is_possible(lines, cause, title):
    [finding] = found(*lines)
    assert (finding.cause, finding.confidence, finding.title) == (cause, "possible", title)
    assert finding.evidence[-1].text.startswith("to confirm: ")


def test_a_mix_of_builds_gets_no_cause_where_the_library_is_of_another_program():
    """A stack is judged by its top: a library further down did not crash."""
    lines = ("Segmentation fault", "#0  0x00007ffff7a1 in f () from /opt/lib/libmine.so",
             "#1  0x00007ffff7a2 in g () from /opt/lib/libcudnn.so.9")  # fmt: skip
    assert found(*lines) == ()


@rows(
    ("lines", "says"),
    [
        (("loading",), "the program crashed (SIGSEGV), and its output does not say where: `gpuenv run -- gdb -batch"),
        (
            (*HEAD, '  File "/usr/lib/python3.11/ctypes/__init__.py", line 519 in string_at', OWN),
            "the program crashed in string_at (ctypes/__init__.py, line 519), called at /home/u/proj/train.py, line 5, outside of known packages: `gpuenv run -- gdb -batch -ex run -ex bt --args python /home/u/proj/train.py`",
        ),
    ],
)  # fmt: skip
def test_a_crash_that_proves_no_cause_is_a_note_where_gpuenv_ran_the_program(lines, says):
    text = [("log", ["\n".join(lines).encode()])]
    for signal, said in (("SIGSEGV", says), ("SIGABRT", "")):
        diagnosis = diagnosis_of(text, ran=Ran(signal=signal))
        assert diagnosis.findings == ()
        assert [note.startswith(said) for note in diagnosis.notes] == [True] * bool(said)


def test_a_program_that_only_imports_two_modules_and_crashes_is_a_conflict_of_both():
    command = "$ python -c 'import torch; import scipy.misc'"
    finding = found(
        command, "Segmentation fault (core dumped)", "$ python -c 'import scipy.misc; import torch'"
    )[0]
    assert (finding.cause, finding.confidence) == ("conflicting_frameworks_in_one_env", "likely")
    assert found(command, "KeyError: 'x'") == ()


def test_shared_memory_that_lacks_descriptors_is_a_limit_and_no_small_shm():
    line = "RuntimeError: unable to open shared memory object </torch_1_2> in read-write mode: Too many open files (24)"
    assert [f.cause for f in found(USERS, line)] == ["process_limit_reached"]
