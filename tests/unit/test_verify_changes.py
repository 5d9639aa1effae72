"""A system-wide Python, as Colab's: what its image came with, and what was installed later."""

import json
import os
import shutil
import sys
from pathlib import Path

import pytest
from programs import run_program
from verified import verify

from provision.actions.explain import explain_log
from provision.verify import Options, changes, locate_environment

MADE = 1_790_000_000  # the image's day
LATER = MADE + 9 * 86400


def installed(site, name, version, when, by="pip"):
    """A package's dist-info as an installer leaves it at a time."""
    folder = site / f"{name}-{version}.dist-info"
    folder.mkdir(parents=True)
    (folder / "INSTALLER").write_text(f"{by}\n")
    (folder / "RECORD").write_text("")
    for path in (folder / "RECORD", folder):
        os.utime(path, (when, when))


@pytest.fixture
def image(tmp_path):
    """dist-packages of a runtime: 60 packages of one afternoon, those of the frameworks among them."""
    site = tmp_path / "usr/local/lib/python3.12/dist-packages"
    for n in range(60):
        installed(site, f"package_{n}", "1.0", MADE + 120 * n)
    installed(site, "torch", "2.8.0+cu126", MADE + 500)
    installed(site, "numpy", "2.0.2", MADE + 510)
    return site


def told(site, own=None):
    return [c.text for c in changes.find_later_installs([str(site)], own and str(own))]


def test_what_the_image_came_with_is_no_change(image):
    assert told(image) == []


def test_packages_installed_later_are_listed_with_installer_and_time(image):
    shutil.rmtree(next(image.glob("torch-*")))
    installed(image, "torch", "2.9.0+cu118", LATER)
    installed(image, "nvidia_cudnn_cu11", "9.1.0.70", LATER + 60, by="uv")
    installed(image, "requests", "2.0", LATER)
    assert told(image) == [
        "nvidia-cudnn-cu11 9.1.0.70 (uv, 2026-09-30 14:14 UTC)",
        "torch 2.9.0+cu118 (pip, 2026-09-30 14:13 UTC)",
    ]


def test_packages_in_the_user_folder_count_as_installed_later(image, tmp_path):
    own = tmp_path / "home/.local/lib/python3.12/site-packages"
    installed(own, "jax", "0.7.0", MADE - 5)
    assert told(image, own) == ["jax 0.7.0 (pip, 2026-09-21 14:13 UTC, in the user's site-packages)"]


def test_a_python_that_grew_over_years_reports_no_later_installs(tmp_path):
    for n in range(60):
        installed(tmp_path, f"package_{n}", "1.0", MADE + 86400 * 20 * n)
    installed(tmp_path, "torch", "2.9.0", LATER)
    assert told(tmp_path) == []


@pytest.fixture
def runtime(tmp_path):
    """A Python of its own in a folder, without a venv: a copy of this one's program over its library."""
    if sys.platform != "linux":
        pytest.skip("the layout is Linux'")
    version = "python{}.{}".format(*sys.version_info)
    library = tmp_path / "usr/local/lib" / version
    library.mkdir(parents=True)
    for entry in Path(os.__file__).parent.iterdir():
        if entry.name not in ("site-packages", "dist-packages"):
            (library / entry.name).symlink_to(entry)
    python = tmp_path / "usr/local/bin/python3"
    python.parent.mkdir()
    shutil.copy(Path(sys._base_executable).resolve(), python)
    code = "import json, sys, site; print(json.dumps([sys.prefix, site.getsitepackages()]))"
    done = run_program([python, "-c", code])
    if done.returncode or json.loads(done.stdout)[0] != str(tmp_path / "usr/local"):
        pytest.skip(f"this Python cannot be copied: {done.stderr[-200:] or done.stdout}")
    site = Path(json.loads(done.stdout)[1][0])
    for n in range(40):
        installed(site, f"package_{n}", "1.0", MADE + 60 * n)
    (site / "torch").mkdir()
    (site / "torch/__init__.py").write_text("raise RuntimeError('Torch not compiled with CUDA enabled')\n")
    return python, site


def test_verify_of_a_runtimes_own_python_says_what_its_user_changed(runtime):
    python, site = runtime
    installed(site, "torch", "2.9.0+cpu", LATER)
    events = []
    options = Options(device="cpu", timeout=300)
    verdict = verify(locate_environment(python), options, emit=events.append, diagnose=explain_log)
    change = "torch 2.9.0+cpu (pip, 2026-09-30 14:13 UTC)"
    assert f"installed after this runtime was created: {change}" in [e.text for e in events]
    stage = next(s for s in verdict.stages if s.stage == "framework")
    assert change in [e.text for e in stage.evidence]
    assert change in [e.text for e in verdict.findings[0].evidence]


def test_verify_of_an_unchanged_runtime_says_nothing_of_it(runtime):
    python, site = runtime
    installed(site, "torch", "2.8.0", MADE + 99)
    events = []
    verdict = verify(locate_environment(python), Options(device="cpu", timeout=300), emit=events.append)
    assert not [e for e in events if e.kind == "note"]
    assert "since" not in repr(verdict.stages)
