"""diagnose: modules that are missing, and files of packages that are damaged."""

import re

from diagnosed import findings_of, found
from known import KNOWN
from rows import rows

from provision.diagnose import Ran
from provision.diagnose.libraries import find_cuda_of
from provision.model import Finding, Machine, Target

USERS = 'File "/home/u/proj/train.py", line 3, in <module>'


def missing(name):
    return f"ModuleNotFoundError: No module named '{name}'"


@rows(
    ("module", "package"),
    [
        ("cv2", "opencv-python"),
        ("PIL", "pillow"),
        ("sklearn", "scikit-learn"),
        ("yaml", "PyYAML"),
        ("skimage", "scikit-image"),
        ("einops", "einops"),
    ],
)
def test_a_missing_module_is_named_by_its_package(module, package):
    [finding] = found("Traceback (most recent call last):", USERS, "    import x", missing(module))
    assert (finding.cause, finding.confidence) == ("python_package_missing", "likely")
    assert f"pip install {package.lower()}" in finding.fix.lower()
    assert finding.evidence[0].line == 4


@rows(
    "line",
    [
        missing("models.yolo"),
        missing("utils"),
        missing("yaml.representer"),
        "ModuleNotFoundError: No module named 'yaml.foo'; 'yaml' is not a package",
        "ModuleNotFoundError: No module named '__main__.models'; '__main__' is not a package",
        "ImportError: attempted relative import with no known parent package",
        missing("tensorflow.keras"),
    ],
)
def test_a_module_that_may_be_the_program_s_own_is_no_package(line):
    assert found("Traceback (most recent call last):", USERS, line) == ()


@rows(
    ("lines", "fix"),
    [
        ((USERS, missing("my_dataset")), "of the program itself"),
        ((missing("cupy"), "CUDA Version: 12.4"), 'pip install "cupy-cuda12x"'),
        (("No module named 'sageattention'",), "pip install sageattention --no-build-isolation"),
        (("uv run train.py", missing("einops")), "uv add einops"),
    ],
)
def test_an_unknown_module_is_possible_with_the_command_of_its_project(lines, fix):
    finding = found(*lines)[0]
    assert finding.cause == "python_package_missing" and fix in finding.fix


@rows("name", ["torch", "tensorflow", "jax"])
def test_a_missing_framework_gets_an_answer(name, tmp_path):
    [finding] = found("Traceback (most recent call last):", USERS, missing(name))
    assert (finding.cause, finding.confidence) == ("python_package_missing", "possible")
    assert f"the environment that has {name}" in finding.fix and f"--framework {name}" in finding.fix
    site = tmp_path / name / "lib" / "python3.12" / "site-packages"
    site.mkdir(parents=True)
    (site / f"{name}.py").touch()
    there = found(USERS, missing(name), ran=Ran(env=tmp_path / name))[0]
    assert "another Python" in there.title
    assert found(USERS, missing(name), ran=Ran(folders=[site])) == ()


def test_a_module_that_the_program_goes_on_without_is_no_failure():
    assert found(missing("cv2"), USERS, "KeyError: 'learning_rate'") == ()
    assert found(missing("cv2"), "epoch 1", USERS, "ValueError: x must be positive") == ()


def test_in_the_environment_that_it_ran_in_it_is_certain():
    ran = Ran(made_by_gpuenv=True)
    [finding] = found(USERS, missing("cv2"), ran=ran)
    assert finding.confidence == "certain" and "pip install" not in finding.fix


def test_a_module_that_lies_in_the_project_is_the_project_s(tmp_path):
    (tmp_path / "src" / "datasets").mkdir(parents=True)
    (tmp_path / "src" / "datasets" / "load.py").touch()
    assert found(USERS, missing("datasets"), ran=Ran(folders=[tmp_path])) == ()


def test_a_module_of_an_installed_package_is_damaged(tmp_path):
    info = tmp_path / "lib" / "python3.12" / "site-packages" / "numpy-2.1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Name: numpy\nVersion: 2.1.0\n")
    (info / "RECORD").write_text("numpy/__init__.py,sha256=x,1\n")
    [finding] = found(USERS, missing("numpy"), ran=Ran(env=tmp_path))
    assert (finding.cause, finding.confidence) == ("package_files_damaged", "certain")
    assert "numpy 2.1.0" in finding.title and "reinstall numpy" in finding.fix


@rows(
    "says",
    [
        "file too short",
        "invalid ELF header",
        "ELF load command address/offset not properly aligned",
        "ELF load command past end of file",
    ],
)
def test_a_damaged_library_is_named_with_its_package(says):
    path = "/e/lib/python3.11/site-packages/torch/lib/libtorch_cpu.so"
    [finding] = found(USERS, f"ImportError: {path}: {says}")
    assert finding.cause == "package_files_damaged"
    assert re.search(r"libtorch_cpu\.so .*package torch ", finding.title)


@rows(
    ("line", "package"),
    [
        ("ImportError: Missing optional dependency 'openpyxl'.  Use pip or conda to install openpyxl.", "openpyxl"),
        ("ImportError: This modeling file requires the following packages that were not found in your environment: einops. Run `pip install einops`", "einops"),
        ("ImportError: Using `load_in_8bit=True` requires Accelerate: `pip install accelerate`", "accelerate"),
        ("ImportError: No module named cv2", "opencv-python"),
    ],
)  # fmt: skip
def test_a_package_that_an_import_error_asks_for_is_named(line, package):
    [finding] = found(USERS, line)
    assert finding.cause == "python_package_missing" and f"pip install {package}" in finding.fix


def test_what_an_import_error_says_of_torch_or_of_strangers_is_no_package():
    assert found(USERS, "ImportError: please reinstall: pip install torch") == ()
    assert found(USERS, "ImportError: pip install somebodys-package") == ()
    assert found(USERS, "ValueError: try pip install einops") == ()


# --- libraries of the system ---------------------------------------------------------------------

CV2 = 'File "/e/lib/python3.12/site-packages/cv2/__init__.py", line 181, in <module>'


def unopened(name):
    return f"ImportError: {name}: cannot open shared object file: No such file or directory"


BEGIN = "Traceback (most recent call last):"
SOMELIB = 'File "/e/lib/python3.12/site-packages/somelib/core.py", line 1, in <module>'


@rows(
    ("lines", "cause", "confidence", "title", "fix"),
    [
        # a machine without a display has another OpenCV
        ((missing("cv2"),), "python_package_missing", "likely", "", "opencv-python-headless"),
        # a build in isolation lacks the framework
        (("  Getting requirements to build wheel did not run successfully.", USERS, missing("torch")),
         "build_toolkit_missing_or_mismatched", "possible", "", "--no-build-isolation"),
        # a name that programs use too
        ((BEGIN, USERS, missing("datasets")), "python_package_missing", "possible", "", "run from its parent folder"),
        # an import error because of a missing module is about the module
        ((USERS, missing("soundfile"), "During handling of the above exception, another exception occurred:",
          "ImportError: audio support is unavailable, install soundfile"), "python_package_missing", "likely", "soundfile", ""),
        # what an installed package wants is not guessed
        ((BEGIN, USERS, SOMELIB, missing("strangename")), "python_package_missing", "possible", "somelib", ""),
        # the package that needs a library, and what replaces it
        ((BEGIN, USERS, CV2, unopened("libGL.so.1")), "system_library_missing", "certain",
         "libGL.so.1, required by cv2,", "opencv-python-headless instead of opencv-python"),
        # a library that no row names
        ((USERS, unopened("libstrange.so.3")), "system_library_missing", "possible", "", "apt-file search libstrange.so.3"),
        # what follows an exception's first line belongs to it
        ((USERS, "RuntimeError: Could not load libtorchcodec. Likely causes:",
          "FFmpeg version 7: " + unopened("libavutil.so.59")), "system_library_missing", "likely", "", ""),
    ],
)  # fmt: skip
def test_what_is_missing_is_named_with_its_fix(lines, cause, confidence, title, fix):
    [finding] = found(*lines)
    assert (finding.cause, finding.confidence) == (cause, confidence)
    assert title in finding.title and fix in finding.fix and "gpuenv add strangename" not in finding.fix


@rows(
    ("soname", "deb", "rpm"),
    [
        ("libGL.so.1", "libgl1", "mesa-libGL"),
        ("libgthread-2.0.so.0", "libglib2.0-0", "glib2"),
        ("libSM.so.6", "libsm6", "libSM"),
        ("libsndfile.so.1", "libsndfile1", "libsndfile"),
    ],
)
def test_a_missing_library_of_the_system_comes_with_its_package(soname, deb, rpm):
    [finding] = found("Traceback (most recent call last):", USERS, unopened(soname))
    assert (finding.cause, finding.confidence) == ("system_library_missing", "certain")
    assert f"apt-get install {deb}`" in finding.fix and f"dnf install {rpm}`" in finding.fix
    assert soname in finding.title


@rows("name", ["libcudart.so.12", "libcudnn.so.9", "libcuda.so.1", "libtorch_cuda.so", "libnvinfer.so.8"])
def test_a_library_of_a_package_is_none_of_the_system_s(name):
    assert "system_library_missing" not in [f.cause for f in found(USERS, unopened(name))]


def test_a_library_that_the_program_goes_on_without_is_no_failure():
    assert found(unopened("libstrange.so.3"), "epoch 1", USERS, "KeyError: 'x'") == ()
    full = "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"
    causes = [(f.cause, f.confidence) for f in found(unopened("libGL.so.1"), "epoch 1", USERS, full)]
    assert causes == [("gpu_memory_exhausted", "certain"), ("system_library_missing", "likely")]


@rows(
    ("name", "cuda"),
    [("libcudart.so.12", "12"), ("libcudart.so.10.1", "10.1"), ("cudart64_110.dll", "11"), ("cudart64_101.dll", "10.1"),
     ("cudart64_12.dll", "12"), ("cudart64_90.dll", "9.0"), ("libGL.so.1", None)],
)  # fmt: skip
def test_the_cuda_of_a_library_is_in_its_name(name, cuda):
    assert find_cuda_of(name) == cuda


def test_a_guess_about_the_machine_does_not_lead_a_cause_beside_the_gpu():
    guess = Finding(cause="container_without_gpu", title="t", fix="f", confidence="possible")
    machine = Machine(target=Target(platform="linux-x86_64"), findings=(guess,))
    text = [("log", [unopened("libstrange.so.3").encode()])]
    assert [f.cause for f in findings_of(text, KNOWN, machine, ran=Ran())] == ["system_library_missing"]


@rows(
    "reason",
    [
        "there is no version of torchaudio==99 and your project depends on torchaudio==99, we can conclude",
        "torchvision==0.29.2 depends on torch==2.15.0 and you require torch==2.10.0, we can conclude",
    ],
)
def test_a_conflict_of_the_solver_is_no_missing_gpu_build(reason):
    lines = (
        "error: No solution found when resolving dependencies",
        f"  cause: Because {reason} that your requirements are unsatisfiable.",
    )
    assert found(*lines) == ()


NO_EXECUTOR = "RuntimeError: Unable to initialize backend 'cuda': INTERNAL: no supported devices found for platform CUDA"


def test_a_plugin_of_another_release_than_jaxlib_did_not_start_for_that_reason():
    for release, first in (("0.4.29", "jax_plugin_version_mismatch"), ("0.4.30", "gpu_memory_exhausted")):
        findings = found(f"jax-cuda12-plugin {release}", "jaxlib 0.4.30", NO_EXECUTOR)
        assert findings[0].cause == first


def test_a_gpu_that_jax_cannot_begin_to_use_has_two_possible_causes_until_the_log_names_one():
    """The texts of jax 0.11.2 on a GPU whose memory another process holds; the first line is not always kept."""
    first, second = found(NO_EXECUTOR)
    assert (first.cause, second.cause) == ("gpu_memory_exhausted", "arch_dropped_too_old")
    assert {first.confidence, second.confidence} == {"possible"}
    assert "smaller batch" not in first.fix and "nvidia-smi" in first.fix
    refused = "E1127 04:55:37.217287     949 platform_util.cc:279] Failed to create stream executor for device CUDA:0: : CUDA_ERROR_OUT_OF_MEMORY: out of memory"
    findings = found(refused, NO_EXECUTOR)
    assert [(f.cause, f.confidence) for f in findings] == [("gpu_memory_exhausted", "likely")]
    assert "another process holds" in findings[0].fix


# What jax 0.11.2 prints where the driver gives it no GPU.
NO_VISIBLE_GPU = (
    "Jax plugin configuration error: Exception when calling jax_plugins.xla_cuda13.initialize()",
    "Traceback (most recent call last):",
    "RuntimeError: jaxlib/cuda/versions_helpers.cc:135: operation cuInit(0) failed: CUDA_ERROR_NO_DEVICE",
)


@rows(
    "says",
    [
        "An NVIDIA GPU may be present on this machine, but a CUDA-enabled jaxlib is not installed. Falling back to cpu.",
        "RuntimeError: Unable to initialize backend 'cuda': Backend 'cuda' is not in the list of known backends: ['cpu', 'tpu'].",
    ],
)
def test_a_hidden_gpu_is_no_jax_for_the_cpu(says):
    """Its plugin found no GPU, so it is installed. The variable makes the cause likely."""
    for shown, confidence in (
        ((), "possible"),
        (("CUDA_VISIBLE_DEVICES=7",), "likely"),
        (("$ CUDA_VISIBLE_DEVICES= python train.py",), "likely"),
    ):
        findings = found(*shown, *NO_VISIBLE_GPU, says)
        assert (findings[0].cause, findings[0].confidence) == ("visible_devices_invalid", confidence)
        assert not {"cpu_only_build", "jax_plugin_version_mismatch"} & {f.cause for f in findings}


def test_an_empty_variable_before_a_command_has_no_value():
    (first, *_) = found("$ CUDA_VISIBLE_DEVICES= python train.py", "RuntimeError: No CUDA GPUs are available")
    assert first.cause == "visible_devices_invalid" and "python" not in first.fix
