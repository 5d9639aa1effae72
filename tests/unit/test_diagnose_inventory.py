"""What commands after an error list as installed, or do not find, decides which libraries are the cause."""

from diagnosed import causes, found
from known import KNOWN
from rows import rows

from provision.diagnose.facts import read_facts
from provision.diagnose.lines import read_commands, read_log


def read(*lines):
    return read_log("log", ["\n".join(lines).encode()])


def facts(*lines):
    return read_facts(read(*lines), KNOWN.gpus)


# --- commands and their outputs -----------------------------------------------------------------


@rows(
    "prompt",
    ["$ ", "ann@box:~/x$ ", "(env) ann@box:~$ ", "[ann@c3 ~]$ ", "(base) [ann@c3 ~]$ ", "root@3f2:/app# ", "C:\\x>",
     "PS C:\\x> ", "(env) C:\\x>", "(env) PS C:\\x> ", "!", "In [3]: !", "(env) $ ", "+ ", "# ", "host$ "],
)  # fmt: skip
def test_a_command_is_read_behind_any_prompt(prompt):
    (command, last) = read_commands(read(f"{prompt}ls /usr/local/lib", "one", "two", f"{prompt}ls /x"))
    assert command.typed == "ls /usr/local/lib"
    assert [line.text for line in command.output] == ["one", "two"]
    assert command.ended
    assert not last.ended


@rows("line", ["# R35 (release), REVISION: 3.1", "> Task :build", "+---+", "100% done", "x > y"])
def test_output_that_looks_like_a_prompt_is_output(line):
    assert read_commands(read(line)) == []


def test_a_search_without_output_is_a_fact_only_if_another_prompt_follows():
    search = "$ find / -name 'libcudnn*' 2>/dev/null"
    assert facts(search).all("absent") == ()
    assert facts(search, "$ echo").all("absent") == ("cudnn",)
    assert facts(search, "/usr/lib/libcudnn.so.8", "$ echo").all("absent") == ()
    assert facts("$ ldconfig -p | grep -c cudnn", "0", "$ echo").all("searched") == ("cudnn",)
    assert facts("$ ldconfig -p | grep -c cudnn", "3", "$ echo").all("searched") == ()


@rows(
    ("command", "output", "version"),
    [
        ("pip list", "nvidia-cudnn-cu12        9.1.0.70", "9.1.0"),
        ("pip freeze | grep nvidia", "nvidia-cudnn-cu11==8.6.0.163", "8.6.0"),
        (
            "conda list cudnn",
            "cudnn                     8.1.0.77             h90431f1_0    conda-forge",
            "8.1.0",
        ),
        (
            "dpkg -l | grep cudnn",
            "ii  libcudnn8  8.2.4.15-1+cuda11.4  amd64  cuDNN runtime libraries",
            "8.2.4",
        ),
        ("ls /opt/cudnn/lib", "libcudnn.so  libcudnn.so.8  libcudnn.so.8.0.5", "8.0.5"),
        ("find / -name 'libcudnn.so*'", "/usr/local/cuda-11.2/lib64/libcudnn.so.8.1.1", "8.1.1"),
    ],
)
def test_the_version_of_an_installed_cudnn_is_read(command, output, version):
    assert version in facts(f"$ {command}", output).all("cudnn_listed")


@rows(
    ("lines", "name", "values"),
    [
        (["jaxlib==0.4.7+cuda11.cudnn86"], "cudnn_built", ("8.6",)),
        (["jaxlib==0.4.7+cuda11.cudnn86"], "cuda_build", ("11",)),
        (["torch==1.2.0+cu92"], "cuda_build", ("9.2",)),
        (["torch: 1.13.1 (cpu)"], "cpu_build", ("yes",)),
        (["jax: 0.4.7 (CUDA 11.8)"], "cuda_build", ("11.8",)),
        (["$ conda list", "cudatoolkit               11.8.0               h37601d7_10"], "cuda", ("11.8",)),
        (["$ conda list", "cudatoolkit               11.8.0               h37601d7_10"], "no_wheels", ()),
        (["$ ldconfig -p | grep -c cudnn; ls /opt", "0", "$ echo"], "searched", ()),
    ],
)  # fmt: skip
def test_what_a_list_or_a_version_says_of_cuda_is_a_fact(lines, name, values):
    assert facts(*lines).all(name) == values


def test_the_header_of_cudnn_has_its_version():
    lines = ("#define CUDNN_MAJOR 8", "#define CUDNN_MINOR 4", "#define CUDNN_PATCHLEVEL 1")
    assert facts(*lines).all("cudnn") == ("8.4.1",)


def test_pip_show_has_the_version_on_another_line():
    assert (
        facts("Name: tensorflow", "Version: 2.15.0", "Summary: a framework").first("tensorflow") == "2.15.0"
    )


# --- which cause --------------------------------------------------------------------------------

OLDER = "Loaded runtime CuDNN library: 8.1.0 but source was compiled with: 8.6.0.  CuDNN library needs to have matching major version and equal or higher minor version."


@rows(
    ("listed", "cause"),
    [
        (("$ find / -name 'libcudnn.so*' 2>/dev/null", "/usr/local/cuda/lib64/libcudnn.so.8.1.0"), "cudnn_older_than_compiled"),
        (("$ dpkg -l | grep cudnn", "ii  libcudnn8  8.1.0.77-1+cuda11.2  amd64  cuDNN runtime libraries"), "cudnn_older_than_compiled"),
        (("$ conda list | grep cudnn", "cudnn  8.1.0.77  h90431f1_0  conda-forge", "$ ls -d /usr/local/cuda"), "cudnn_older_than_compiled"),
        (("$ pip list | grep nvidia", "nvidia-cudnn-cu11  8.6.0.163", "$ ls -d /usr/local/cuda"), "cudnn_shadowed_by_other_copy"),
        (("$ find / -name 'libcudnn.so*'", "/usr/lib/libcudnn.so.8.1.0", "/env/lib/libcudnn.so.8.9.2"), "cudnn_shadowed_by_other_copy"),
        (("$ conda list | grep cudnn", "cudnn  9.1.0.70  h1_0  nvidia", "$ ls -d /usr/local/cuda"), "cudnn_older_than_compiled"),
    ],
)  # fmt: skip
def test_an_older_cudnn_is_shadowing_only_if_a_suitable_copy_is_listed(listed, cause):
    assert causes(OLDER, *listed)[0] == cause


TF = "Could not load dynamic library '{0}'; dlerror: {0}: cannot open shared object file: No such file or directory"
STACK = [TF.format(n) for n in ("libcudart.so.11.0", "libcublas.so.11", "libcudnn.so.8")]
STACK += [
    "Cannot dlopen some GPU libraries. Please make sure the missing libraries mentioned above are installed properly"
]
SMI = "| NVIDIA-SMI 535.104.05    Driver Version: 535.104.05    CUDA Version: 12.2 |"


@rows(
    ("listed", "cause"),
    [
        (("$ locate libcudart libcudnn", "$ echo"), "nvidia_libs_not_installed"),
        (("$ find / -name 'libcudart*' 2>/dev/null", "$ echo"), "nvidia_libs_not_installed"),
        (("$ ls $CONDA_PREFIX/lib | grep cudart", "libcudart.so  libcudart.so.11.0"), "nvidia_libs_not_on_loader_path"),
        (("$ find / -name 'libcublas*'", "/usr/local/cuda/lib64/libcublas.so.11"), "nvidia_libs_not_on_loader_path"),
        (("$ pip list", "nvidia-cublas-cu11  11.10.3.66", "nvidia-cudnn-cu11  8.6.0.163"), "nvidia_libs_not_on_loader_path"),
        (("$ ls /usr/local/cuda-12.2/lib64", "libcudart.so.12", "libcublas.so.12"), "cuda_major_mismatch"),
    ],
)  # fmt: skip
def test_the_whole_stack_is_missing_misplaced_or_of_another_cuda(listed, cause):
    assert causes(*STACK, SMI, *listed)[0] == cause


@rows(
    "message",
    [
        "RuntimeError: Library libcublas.so.12 is not found or cannot be loaded",  # CTranslate2
        "ImportError: libcublas.so.12: cannot open shared object file: No such file or directory",  # CuPy
        "OSError: libcublas.so.12: cannot open shared object file: No such file or directory",  # MXNet, by ctypes
        "./bin/llama-cli: error while loading shared libraries: libcublas.so.12: cannot open shared object file: No such file or directory",
        "ImportError: libcudart.so.12: cannot open shared object file: No such file or directory",  # Paddle, DGL
    ],
)
def test_a_library_that_a_listing_shows_is_not_on_the_path(message):
    name = "libcudart.so.12" if "cudart" in message else "libcublas.so.12"
    for listed in (("$ ls -l v/nvidia/x/lib", f"-rw-r--r-- 1 a a 9 Nov 1 10:00 {name}"),
                   ("$ pip show -f nvidia-x-cu12", f"  nvidia/x/lib/{name}"),
                   ("$ pip list", "nvidia-cublas-cu12  12.6.4.1", "nvidia-cuda-runtime-cu12  12.6.77")):  # fmt: skip
        assert causes(message, *listed)[0] == "nvidia_libs_not_on_loader_path", listed


@rows(
    ("message", "listed"),
    [
        (
            "ImportError: libcudnn.so.8: cannot open shared object file: No such file or directory",
            "libcudnn.so.9",
        ),
        (TF.format("libcudnn.so.7"), "libcudnn_ops_infer.so.8  libcudnn.so.8"),
        (
            "Unable to load any of {libcudnn_ops.so.9.1.0, libcudnn_ops.so.9.1, libcudnn_ops.so.9, libcudnn_ops.so}",
            "libcudnn.so.8",
        ),
    ],
)
def test_a_cudnn_of_another_major_that_a_listing_shows_is_the_mismatch(message, listed):
    assert causes(message, "$ ls /opt/cudnn/lib64", listed)[0] == "cudnn_major_mismatch"


SILENT = "W0000 00:00:173 gpu_device.cc:2344] Cannot dlopen some GPU libraries. Please make sure the missing libraries mentioned above are installed properly"


@rows(
    ("listed", "cause"),
    [
        (("$ pip list | grep -E 'nvidia|tensorflow'", "tensorflow  2.18.0", "$ find / -name 'libcudart*'", "$ echo"), "nvidia_libs_not_installed"),
        (("$ pip list | grep -E 'nvidia|tensorflow'", "tensorflow  2.18.0"), "nvidia_libs_not_installed"),
        (("$ pip list | grep -E 'nvidia|tensorflow'", "nvidia-cublas-cu12  12.5.3.2", "tensorflow  2.18.0"), "nvidia_libs_not_on_loader_path"),
    ],
)  # fmt: skip
def test_libraries_that_are_not_named_are_judged_by_the_lists(listed, cause):
    first = found(SILENT, SMI, *listed)[0]
    assert first.cause == cause
    assert any(listed[0] in e.text or "nvidia-" in e.text for e in first.evidence)
