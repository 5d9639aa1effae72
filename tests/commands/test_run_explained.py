"""`gpuenv run`: failures beside the GPU, with what the environment, the project and the kernel say of them."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from programs import run_program


@pytest.fixture
def site(gpuenv):
    """The site-packages of an environment with the running Python behind its own bin/python."""
    root = gpuenv.work / ".venv"
    site = root / "lib" / f"python3.{sys.version_info[1]}" / "site-packages"
    site.mkdir(parents=True)
    (root / "bin").mkdir()
    (root / "bin" / "python").symlink_to(sys.executable)
    (root / "pyvenv.cfg").write_text(f"home = {Path(sys.executable).parent}\n")
    return site


def findings(gpuenv, *command, limit=""):
    """The findings of a failed program; `limit` is set by the shell that starts gpuenv."""
    if not limit:
        ran = gpuenv("run", "--json", "--", *command)
        assert ran.code != 0, ran.err
        return ran.json["findings"]
    argv = [sys.executable, "-m", "provision", "run", "--json", "--", *command]
    script = f'{limit}; exec "$@"'
    done = subprocess.run(
        ["bash", "-c", script, "bash", *argv], env=gpuenv.env, cwd=gpuenv.work, capture_output=True, timeout=300, check=False
    )  # fmt: skip
    assert done.returncode != 0, done.stderr
    return json.loads(done.stdout)["findings"]


def test_a_missing_package_is_certain_in_the_environment_that_lacks_it(gpuenv, site):
    [finding] = findings(gpuenv, "python", "-c", "import cv2")
    assert (finding["cause"], finding["confidence"]) == ("python_package_missing", "certain")
    assert "pip install opencv-python" in finding["fix"]  # gpuenv did not make this environment


def test_a_module_of_the_project_s_own_is_not_proposed_as_a_package(gpuenv, site):
    (gpuenv.work / "src" / "cv2").mkdir(parents=True)
    (gpuenv.work / "src" / "cv2" / "__init__.py").touch()
    assert findings(gpuenv, "python", "-c", "import cv2") == []
    [finding] = findings(gpuenv, "python", "-c", "import my_models")
    assert finding["confidence"] == "possible" and "gpuenv add" not in finding["fix"]


def test_a_package_that_the_environment_has_is_not_called_missing(gpuenv, site):
    (site / "cv2").mkdir()
    (site / "cv2" / "__init__.py").touch()
    [finding] = findings(gpuenv, "python", "-I", "-S", "-c", "import cv2")
    assert finding["confidence"] == "possible"
    assert "another Python" in finding["title"] and "gpuenv add" not in finding["fix"]


def test_a_folder_of_data_is_not_taken_for_the_missing_module(gpuenv, site):
    (gpuenv.work / "cv2").mkdir()
    (gpuenv.work / "cv2" / "a.jpg").touch()
    code = "import sys; sys.path.remove(''); import cv2"
    assert findings(gpuenv, "python", "-c", code)[0]["cause"] == "python_package_missing"


@pytest.mark.parametrize("import_", ["import torch", "import somelib.part", "from somelib import names"])
def test_an_installed_package_without_its_files_is_damaged(gpuenv, site, import_):
    for name in ("torch", "somelib"):
        info = site / f"{name}-2.1.0.dist-info"
        info.mkdir()
        files = (f"{name}/__init__.py", f"{name}/part/__init__.py", f"{name}/part/_x.so")
        (info / "RECORD").write_text("".join(f"{f},sha256=x,1\n" for f in files))
    (site / "somelib").mkdir()
    [finding] = findings(gpuenv, "python", "-c", f"import sys; sys.path.insert(0, {str(site)!r}); {import_}")
    assert (finding["cause"], finding["confidence"]) == ("package_files_damaged", "certain")
    assert finding["title"].startswith("Files of the module ") and " 2.1.0" in finding["title"]


@pytest.mark.parametrize(
    ("code", "limit", "says"),
    [
        ("files = [open('/dev/null') for _ in range(200)]", "ulimit -n 96", "96 files"),
        ("x = bytearray(1 << 34)", f"ulimit -v {8 << 20}", "8192 MiB"),
    ],
)
def test_the_limit_that_was_reached_is_named(gpuenv, site, code, limit, says):
    [finding] = findings(gpuenv, "python", "-c", code, limit=limit)
    assert finding["cause"] == "process_limit_reached" and says in finding["title"]


@pytest.mark.parametrize("script", ["kill -9 $$", "sh -c 'kill -9 $$'; exit $?"])
def test_a_program_that_a_person_killed_has_nothing_to_be_explained(gpuenv, site, script):
    assert findings(gpuenv, "bash", "-c", script) == []


def test_a_crash_says_where_it_was(gpuenv, site):
    argv = [
        sys.executable,
        "-m",
        "provision",
        "run",
        "--",
        "python",
        "-c",
        "import ctypes; ctypes.string_at(0)",
    ]
    done = run_program(argv, env=gpuenv.env, cwd=gpuenv.work)
    assert "Fatal Python error: Segmentation fault" in done.stderr and "string_at" in done.stderr
    shown = " ".join(done.stderr.split())
    assert re.search(r"note: [^:]*crashed in string_at \(ctypes/\S+, line \d", shown)
    assert "diagnose says" not in done.stderr, "no cause is proved"
    argv.insert(4, "--keep-env")
    done = run_program(argv, env=gpuenv.env, cwd=gpuenv.work)
    assert "Fatal Python error" not in done.stderr
