"""diagnose: modules that are missing, and files of packages that are damaged."""

import pytest

from provision import profiles
from provision.commands.diagnose import judged
from provision.diagnose import Ran

KNOWN = profiles.load()
USERS = 'File "/home/u/proj/train.py", line 3, in <module>'


def found(*lines, ran=None):
    return judged([("log", ["\n".join(lines).encode()])], KNOWN, None, ran=ran)


def missing(name):
    return f"ModuleNotFoundError: No module named '{name}'"


@pytest.mark.parametrize(
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
    assert f"gpuenv add {package.lower()}" in finding.fix.lower()
    assert finding.evidence[0].line == 4


def test_a_machine_without_a_display_has_another_opencv():
    assert "opencv-python-headless" in found(missing("cv2"))[0].fix


@pytest.mark.parametrize(
    "line",
    [
        missing("models.yolo"),
        missing("utils"),
        missing("my_dataset"),
        missing("yaml.representer"),
        "ModuleNotFoundError: No module named 'yaml.foo'; 'yaml' is not a package",
        "ModuleNotFoundError: No module named '__main__.models'; '__main__' is not a package",
        "ImportError: attempted relative import with no known parent package",
        missing("torch"),
        missing("jaxlib"),
        missing("tensorflow.keras"),
        missing("cupy"),
    ],
)
def test_a_module_that_may_be_the_program_s_own_is_no_package(line):
    assert found("Traceback (most recent call last):", USERS, line) == ()


def test_a_name_that_programs_use_too_is_only_possible():
    [finding] = found("Traceback (most recent call last):", USERS, missing("datasets"))
    assert (finding.cause, finding.confidence) == ("python_package_missing", "possible")
    assert "run from its parent folder" in finding.fix


def test_a_module_that_the_program_goes_on_without_is_no_failure():
    assert found(missing("cv2"), USERS, "KeyError: 'learning_rate'") == ()
    assert found(missing("cv2"), "epoch 1", USERS, "ValueError: x must be positive") == ()


def test_an_import_error_because_of_a_missing_module_is_about_the_module():
    lines = (
        USERS,
        missing("soundfile"),
        "During handling of the above exception, another exception occurred:",
        "ImportError: audio support is unavailable, install soundfile",
    )
    assert "soundfile" in found(*lines)[0].title


def test_what_an_installed_package_wants_is_not_guessed():
    site = 'File "/e/lib/python3.12/site-packages/somelib/core.py", line 1, in <module>'
    [finding] = found("Traceback (most recent call last):", USERS, site, missing("strangename"))
    assert (finding.cause, finding.confidence) == ("python_package_missing", "possible")
    assert "somelib" in finding.title and "gpuenv add strangename" not in finding.fix


def test_in_the_environment_that_it_ran_in_it_is_certain():
    ran = Ran(made_by_gpuenv=True)
    [finding] = found(USERS, missing("cv2"), ran=ran)
    assert finding.confidence == "certain" and "pip install" not in finding.fix


def test_a_module_that_lies_in_the_project_is_the_project_s():
    ran = Ran(own_module=lambda name: "src/datasets" if name == "datasets" else None)
    assert found(USERS, missing("datasets"), ran=ran) == ()


def test_a_module_of_an_installed_package_is_damaged():
    ran = Ran(files_of=lambda name: "numpy 2.1.0" if name == "numpy" else None)
    [finding] = found(USERS, missing("numpy"), ran=ran)
    assert (finding.cause, finding.confidence) == ("package_files_damaged", "certain")
    assert "numpy 2.1.0" in finding.title and "gpuenv repair" in finding.fix


@pytest.mark.parametrize(
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
    assert finding.title == "The file libtorch_cpu.so of the installed package torch is damaged"
