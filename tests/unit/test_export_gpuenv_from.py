"""Where an export installs gpuenv from: its own wheel beside the export, or an address, never an index's name."""

import hashlib
import re
import subprocess
import sys
import zipfile

import export_locks as el
import pytest

from provision import export

FILES = {"dockerfile": "Dockerfile", "apptainer": "app.def", "github": "ci.yml", "devcontainer": "dev.json"}


@pytest.fixture
def project(gpuenv):
    """A folder with a lock."""
    el.written(gpuenv.work / "pylock.toml", el.of())
    return gpuenv


def wheels(folder):
    return sorted(folder.glob("gpuenv-*.whl"))


@pytest.mark.parametrize("form", export.INSTALL_GPUENV)
def test_the_wheel_is_written_beside_the_export_with_its_hash(project, form):
    ran = project("export", "--format", form, "-o", FILES[form])
    assert ran.code == 0, ran.err
    (wheel,) = wheels(project.work)
    assert f"{wheel.name}: written to the same folder" in " ".join(ran.err.split())
    text = (project.work / FILES[form]).read_text()
    assert set(re.findall(r"sha256=([0-9a-f]{64})", text)) == {hashlib.sha256(wheel.read_bytes()).hexdigest()}
    assert "provision/__main__.py" in zipfile.ZipFile(wheel).namelist()
    again = project("export", "--format", form)
    assert again.out == text and again.err == "", "the wheel is there already"


def test_on_standard_output_nothing_is_written_and_the_missing_wheel_is_named(project):
    before = sorted(project.work.iterdir())
    ran = project("export", "--format", "dockerfile")
    assert ran.code == 0 and sorted(project.work.iterdir()) == before
    assert re.search(
        r"gpuenv-\S+\.whl is missing. It must be in the same folder as the exported file. Use --output FILE to write both files",
        " ".join(ran.err.split()),
    )


def test_another_wheel_is_kept_unless_forced(project):
    assert project("export", "--format", "dockerfile", "-o", "Dockerfile").code == 0
    (wheel,) = wheels(project.work)
    whole = wheel.read_bytes()
    wheel.write_bytes(b"mine")
    (project.work / "Dockerfile").unlink()
    ran = project("export", "--format", "dockerfile", "-o", "Dockerfile")
    assert ran.code == 2 and "--force" in ran.err
    assert wheel.read_bytes() == b"mine" and not (project.work / "Dockerfile").exists()
    assert "has another hash" in " ".join(project("export", "--format", "dockerfile").err.split())
    assert project("export", "--format", "dockerfile", "-o", "Dockerfile", "--force").code == 0
    assert wheel.read_bytes() == whole


def test_with_an_address_no_wheel_is_written(project):
    ran = project("export", "--format", "github", "-o", "ci.yml", "--gpuenv-from", el.ADDRESS.address)
    assert ran.code == 0 and wheels(project.work) == []
    assert f"gpuenv @ {el.ADDRESS.address}" in (project.work / "ci.yml").read_text()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("gpuenv", "expected a URL"),
        ("gpuenv==0.1.0", "expected a URL"),
        ("./gpuenv-0.1.0-py3-none-any.whl", "expected a URL"),
        ("git+https://git.example/gpuenv\nRUN evil", "expected a URL"),
        ("https://h.example/$(id).whl", "expected a URL"),
        ("git+https://me:tok-EN@git.example/gpuenv", "credentials"),
    ],
)
def test_what_is_no_plain_address_is_refused(project, text, words):
    ran = project("export", "--format", "dockerfile", "--gpuenv-from", text)
    assert ran.code == 2 and words in " ".join(ran.err.split()) and "tok-EN" not in ran.err and ran.out == ""


def test_a_format_that_installs_no_gpuenv_refuses_the_option(project):
    ran = project("export", "--format", "requirements", "--gpuenv-from", el.ADDRESS.address)
    assert ran.code == 2 and "requirements does not install gpuenv" in ran.err


@pytest.mark.parametrize("changed", [False, True])
def test_pip_takes_the_wheel_of_that_hash_and_no_other(project, tmp_path, changed):
    """The requirement of a Dockerfile, with the folder in the place of the build context."""
    assert project("export", "--format", "dockerfile", "-o", "Dockerfile").code == 0
    (wheel,) = wheels(project.work)
    if changed:
        with zipfile.ZipFile(wheel, "a") as file:
            file.writestr("provision/more.py", "print('evil')\n")
    text = (project.work / "Dockerfile").read_text()
    (need,) = re.findall(r'^ARG GPUENV="(.*)"$', text, re.MULTILINE)
    argv = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--no-index",
            "--target", tmp_path / "there", need.replace("file:///context/", f"{project.work.as_uri()}/")]  # fmt: skip
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=120)
    if changed:
        assert done.returncode != 0 and "DO NOT MATCH THE HASHES" in done.stderr
    else:
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "there" / "provision" / "__main__.py").exists() is not changed
