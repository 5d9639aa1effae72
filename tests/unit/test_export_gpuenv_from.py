"""Where an export installs gpuenv from: its own wheel beside the export, or an address, never an index's name."""

import hashlib
import json
import re
import sys
import zipfile
from pathlib import Path

import export_locks as el
import pytest
from environment_facts import ok, refused
from framework_envs import write_python3
from loopback import wheel_bytes
from programs import run_program

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
    ran = ok(project("export", "--format", form, "-o", FILES[form]))
    (wheel,) = wheels(project.work)
    assert f"{wheel.name}: written to the same folder" in " ".join(ran.err.split())
    text = (project.work / FILES[form]).read_text()
    assert set(re.findall(r"sha256=([0-9a-f]{64})", text)) == {hashlib.sha256(wheel.read_bytes()).hexdigest()}
    assert "provision/__main__.py" in zipfile.ZipFile(wheel).namelist()
    again = project("export", "--format", form)
    assert again.out == text and again.err == "", "the wheel is there already"


@pytest.mark.parametrize("form", export.INSTALL_GPUENV)
def test_all_files_of_an_export_are_in_its_folder(gpuenv, form):
    """The paths in it start from that folder, those of `github` and `devcontainer` from the project's."""
    lock = el.written(gpuenv.folder / "elsewhere.toml", el.of())
    (gpuenv.work / "out").mkdir()
    ok(gpuenv("export", "--lock", lock, "--format", form, "-o", f"out/{FILES[form]}"))
    (wheel,) = wheels(gpuenv.work / "out")
    assert [path.name for path in gpuenv.work.iterdir()] == ["out"]
    assert {path.name for path in (gpuenv.work / "out").iterdir()} == {
        FILES[form],
        wheel.name,
        "elsewhere.toml",
    }
    text = (gpuenv.work / "out" / FILES[form]).read_text()
    start = "out/" if form in ("github", "devcontainer") else ""
    assert f"{start}{wheel.name}" in text and f"{start}elsewhere.toml" in text
    assert (start == "") == ("out/" not in text)


def test_a_lock_inside_the_project_is_named_and_not_copied(project):
    (project.work / ".devcontainer").mkdir()
    assert project("export", "--format", "devcontainer", "-o", ".devcontainer/devcontainer.json").code == 0
    text = (project.work / ".devcontainer" / "devcontainer.json").read_text()
    assert "--lock pylock.toml" in text and not (project.work / ".devcontainer" / "pylock.toml").exists()


def test_a_changed_lock_is_copied_again_and_an_edited_copy_is_kept(project):
    (project.work / "out").mkdir()
    asked = ("export", "--format", "dockerfile", "-o", "out/Dockerfile")
    assert project(*asked).code == 0
    copy = project.work / "out" / "pylock.toml"
    before = copy.read_text()
    el.written(project.work / "pylock.toml", el.of((*el.PACKAGES, el.wheel("more", "2.0"))))
    assert project(*asked).code == 0 and copy.read_text() != before
    copy.write_text(copy.read_text() + "# mine\n")
    assert "--force" in refused(project(*asked), 2).err and copy.read_text().endswith("# mine\n")


def test_on_standard_output_nothing_is_written_and_the_missing_wheel_is_named(project):
    before = sorted(project.work.iterdir())
    ran = project("export", "--format", "dockerfile")
    assert ran.code == 0 and sorted(project.work.iterdir()) == before
    assert re.search(r"gpuenv-\S+\.whl is missing\. .*--output FILE", " ".join(ran.err.split()))


def test_another_wheel_is_kept_unless_forced(project):
    assert project("export", "--format", "dockerfile", "-o", "Dockerfile").code == 0
    (wheel,) = wheels(project.work)
    whole = wheel.read_bytes()
    wheel.write_bytes(b"mine")
    (project.work / "Dockerfile").unlink()
    assert "--force" in refused(project("export", "--format", "dockerfile", "-o", "Dockerfile"), 2).err
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
    done = run_program(argv, timeout=120)
    if changed:
        assert done.returncode != 0 and "DO NOT MATCH THE HASHES" in done.stderr
    else:
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "there" / "provision" / "__main__.py").exists() is not changed


def install_lines(form, text):
    """The commands of an export that make the venv of gpuenv and fill it."""
    if form == "devcontainer":
        text = json.loads(re.sub(r"(?m)^//.*$", "", text))["onCreateCommand"].replace(" && ", "\n")
    rows = [row.strip(" &\\\n") for row in text.splitlines()]
    return [r for r in rows if re.match(r"python3? -m venv|cp .*\.whl|\{ \[ -n|\S+/bin/pip install", r)]


@pytest.mark.parametrize(
    ("form", "changed"),
    [
        ("dockerfile", False),
        ("dockerfile", True),
        *(
            pytest.param(form, False, marks=pytest.mark.slow)
            for form in export.INSTALL_GPUENV
            if form != "dockerfile"
        ),
    ],
)
def test_an_export_installs_what_the_release_lists_by_hash(project, tmp_path, form, changed):
    """The very commands, with folders of this test in the place of those of the image, and one small requirement."""
    assert project("export", "--format", form, "-o", "made").code == 0
    text = (project.work / "made").read_text()
    (wheel,) = wheels(project.work)
    listed = wheel_bytes("needed", "1.0")
    digest = hashlib.sha256(listed).hexdigest()
    links = tmp_path / "links"
    links.mkdir()
    (links / "needed-1.0-py3-none-any.whl").write_bytes(
        wheel_bytes("needed", "1.0", content="evil") if changed else listed
    )
    with zipfile.ZipFile(wheel) as whole:
        few = [n for n in whole.namelist() if "/release/" in n or ".dist-info/" in n]
        texts = {n: whole.read(n) for n in few}  # pip would compile hundreds of modules
    assert b"--hash=sha256:" in texts["provision/release/requirements-conda.txt"]
    texts["provision/release/requirements.txt"] = f"needed==1.0 --hash=sha256:{digest}\n".encode()
    with zipfile.ZipFile(wheel, "w") as small:
        for name, data in texts.items():
            small.writestr(name, data)
    source = f"gpuenv @ {wheel.as_uri()}"
    lines = [
        line.replace("/opt/gpuenv", f"{tmp_path}/tool").replace("{{ GPUENV }}", source)
        for line in install_lines(form, text)
    ]
    assert len(lines) >= 2, text
    for name in ("python", "python3"):
        write_python3(tmp_path / "bin" / name)
    env = {
        "PATH": f"{tmp_path}/bin:{Path(sys.executable).parent}:/usr/bin:/bin", "HOME": str(tmp_path), "RUNNER_TEMP": str(tmp_path),
        "GPUENV": source, "GPUENV_FROM": source, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(links), "PIP_CONFIG_FILE": "/dev/null",
    }  # fmt: skip
    venv = "" if any("-m venv" in line for line in lines) else f"python3 -m venv {tmp_path}/tool\n"
    done = run_program(["sh", "-ec", venv + "\n".join(lines)], env=env, cwd=project.work, timeout=300)
    there = [p.name for p in tmp_path.glob("*gpuenv/lib/python3*/site-packages/needed")]
    there += [p.name for p in tmp_path.glob("tool/lib/python3*/site-packages/needed")]
    if changed:
        assert done.returncode != 0 and "DO NOT MATCH THE HASHES" in done.stderr and not there
    else:
        assert done.returncode == 0 and there == ["needed"], done.stderr
