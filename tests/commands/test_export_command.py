"""`gpuenv export` as users run it: where the lock comes from, where the text goes, and what of it can be run
here: an image is built on a machine without the GPU, so the command that it holds is run on this one."""

import dataclasses
import json
import os
import re
import shlex
import shutil
import sys
from pathlib import Path

import export_locks as el
import pytest
import tomllib
import yaml
from command import Command
from environment_facts import HERE, ok, refused
from loopback import Index, serving
from made_env import copied
from programs import run_program

from provision.actions.export import _read_file_source, lock_text
from provision.config.options import Choices
from provision.model import as_plain
from provision.wheels import pylock, pylock as lock

GPU = ("--driver", "580.65.06", "--gpu", "9.0", "--gpu", "7.5")
SECRETS = ("tok-EN", "pass-WORD", "que-RY", "conda-TOKEN")


@pytest.fixture
def held(gpuenv):
    """./pylock.toml of a lock as a value."""
    return el.written(gpuenv.work / "pylock.toml", el.of())


def lock_torch(gpuenv, index):
    ask = ("--framework", "torch", "--python", HERE, "--index", "pypi", *GPU)
    index.add_plan(gpuenv("resolve", "--json", *ask).json)
    gpuenv.env["PIP_INDEX_URL"] = index.url
    ok(gpuenv("lock", *ask))
    return gpuenv.work / "pylock.toml"


@pytest.fixture
def torch(gpuenv, index):
    """./pylock.toml of torch for two GPUs that are not here, its tiny wheels on the index."""
    return lock_torch(gpuenv, index)


@pytest.fixture(scope="module")
def once_made(tmp_path_factory):
    """A folder with a lock of torch, and the environment that the command of its Dockerfile builds."""
    gpuenv = Command(tmp_path_factory.mktemp("made") / "torch")
    with serving(Index()) as index:
        lock_torch(gpuenv, index)
        words = command(gpuenv("export", "--format", "dockerfile").out, "create")
        assert words[:2] == ["create", "/opt/env"]
        words = [w.replace("/opt/env", ".venv").replace("/opt/lock/", "") for w in words]
        gpuenv.created = ok(gpuenv(*words, "--json"))
        yield gpuenv


@pytest.fixture
def made(once_made, tmp_path):
    """A folder with this lock and its environment."""
    return copied(once_made, tmp_path / "copy")


# --- where the text goes ---------------------------------------------------------------------------


def test_standard_output_holds_the_text_and_nothing_else(gpuenv, held):
    ran = gpuenv("export", "--format", "sbatch")
    assert ran.code == 0 and ran.out.startswith("#!/bin/bash\n") and ran.out.endswith('"$@"\n')
    assert ran.err == ""


def test_export_with_json_prints_one_document(gpuenv, held):
    ran = gpuenv("export", "--format", "dockerfile", "--json")
    made = ran.json
    assert set(made) == {"schema", "format", "path", "text"}
    assert made["schema"] == "gpuenv.export/1" and made["format"] == "dockerfile" and made["path"] is None
    assert made["text"].startswith("# syntax=docker/dockerfile:1\n")


def test_a_file_is_written_whole_and_the_next_step_named(gpuenv, held):
    ran = ok(gpuenv("export", "--format", "dockerfile", "-o", "Dockerfile"))
    assert ran.out.splitlines()[-1] == "docker build -t app -f Dockerfile ."
    assert (gpuenv.work / "Dockerfile").read_text() == gpuenv("export", "--format", "dockerfile").out
    assert [p.name for p in gpuenv.work.iterdir() if p.name.startswith(".")] == []
    assert (
        gpuenv("export", "--format", "dockerfile", "-o", "-").out
        == gpuenv("export", "--format", "dockerfile").out
    )
    made = gpuenv("export", "--format", "dockerfile", "-o", "Dockerfile", "--json").json
    assert made["path"] == "Dockerfile"


@pytest.mark.parametrize("place", ["not/there/Dockerfile", "taken"])
def test_a_place_that_cannot_be_written_is_a_usage_error(gpuenv, held, place):
    (gpuenv.work / "taken").mkdir()
    assert "--output" in refused(gpuenv("export", "--format", "dockerfile", "-o", place), 2).err
    assert list((gpuenv.work / "taken").iterdir()) == []


@pytest.mark.parametrize(
    ("word", "near"),
    [("dockrfile", "dockerfile"), ("slurm", "sbatch"), ("conda", "environment.yml"), ("Requirements", "requirements")],
)  # fmt: skip
def test_an_unknown_format_names_the_nearest(gpuenv, word, near):
    assert f"Did you mean {near}?" in refused(gpuenv("export", "--format", word), 2).err


# --- where the lock comes from ---------------------------------------------------------------------


def test_export_without_a_lock_names_the_command_that_makes_one(gpuenv):
    for words in ((), ("there",)):
        assert "gpuenv lock" in refused(gpuenv("export", *words, "--format", "requirements"), 2).err


def test_a_lock_file_that_an_export_needs_is_named_and_its_command_writes_it(made):
    gpuenv = made
    (gpuenv.work / "pylock.toml").rename(gpuenv.work / "pylock.cluster.toml")
    named = gpuenv("export", "--format", "dockerfile")
    assert 'COPY ["pylock.cluster.toml", ' in named.out and "pylock.cluster.toml is missing" not in named.err
    (gpuenv.work / "pylock.cluster.toml").rename(gpuenv.work / "elsewhere")
    (gpuenv.work / "pylock.other.toml").write_text("not a lock")
    told = " ".join(gpuenv("export", "--format", "github").err.split())
    command = shlex.split(told[told.index("gpuenv export ") :])
    assert gpuenv(*command[1:]).code == 0, told
    assert lock.read(gpuenv.work / "pylock.toml").packages == lock.read(gpuenv.work / "elsewhere").packages
    assert gpuenv("export", "--format", "github", "--gpuenv-from", el.ADDRESS.address).err == ""


def test_an_environment_that_another_tool_made_has_no_lock(gpuenv, held):
    (gpuenv.work / "other" / "bin").mkdir(parents=True)
    assert "not made by gpuenv" in refused(gpuenv("export", "other", "--format", "requirements"), 2).err


def test_the_environments_own_lock_comes_first(made):
    gpuenv, torch = made, made.work / "pylock.toml"
    el.written(torch, el.of())  # the project's lock has moved on
    of_env = gpuenv("export", "--format", "requirements").out
    assert "numpy" not in of_env and f"--index-url {gpuenv.env['PIP_INDEX_URL']}" in of_env
    assert gpuenv("export", ".venv", "--format", "requirements").out == of_env
    assert "numpy==2.3.0" in gpuenv("export", "--format", "requirements", "--lock", torch).out
    assert "/pylock.toml is not the lock of" in gpuenv("export", "--format", "dockerfile").err
    (gpuenv.work / "out").mkdir()
    ask = ("export", "--format", "dockerfile", "-o")
    ok(gpuenv(*ask, "out/A.Dockerfile"))
    ok(gpuenv(*ask, "out/A.Dockerfile", "--lock", torch))  # the lock was renewed
    assert "is another lock" in refused(gpuenv(*ask, "out/B.Dockerfile"), 2).err
    named = gpuenv("export", "--format", "sbatch").out
    assert str(gpuenv.work / ".venv") in named


def test_a_conda_environment_is_exported_from_the_lock_it_carries(gpuenv):
    mark = gpuenv.work / "envs" / "c" / ".gpuenv"
    mark.mkdir(parents=True)
    made = el.of_conda()
    (mark / "lock.json").write_text(json.dumps({"digest": "x", "lock": as_plain(made)}))
    ran = ok(gpuenv("export", "envs/c", "--format", "environment.yml"))
    *conda, _ = yaml.safe_load(ran.out)["dependencies"]
    assert "python=3.12.11=h9e4cc4f_0_cpython" in conda
    ok(gpuenv("export", "envs/c", "--format", "conda-lock", "-o", "conda-lock.yml"))
    again = gpuenv("export", "--lock", "conda-lock.yml", "--format", "environment.yml")
    *plain, _ = yaml.safe_load(again.out)["dependencies"]
    assert plain == conda
    assert "conda-lock.yml" in gpuenv("export", "envs/c", "--format", "dockerfile").out


def test_a_conda_lock_file_keeps_its_other_platforms(gpuenv):
    from provision.conda import locks as conda_file

    path = gpuenv.work / "conda-lock.yml"
    conda_file.write(path, el.of_conda())
    other = dataclasses.replace(el.TARGET, platform="linux-aarch64")
    packages = [
        dataclasses.replace(p, url=p.url.replace("linux-64", "linux-aarch64")) for p in el.CONDA_PACKAGES
    ]
    conda_file.write(path, el.of_conda(packages, target=other))
    ran = ok(gpuenv("export", "--format", "conda-lock", "--platform", "linux-x86_64"))
    assert set(yaml.safe_load(ran.out)["metadata"]["platforms"]) == {"linux-64", "linux-aarch64"}
    theirs = gpuenv("export", "--format", "pixi", "--platform", "linux-aarch64", "--lock", path)
    (platform,) = tomllib.loads(theirs.out)["workspace"]["platforms"]
    assert platform["platform"] == "linux-aarch64"


def test_the_lock_is_named_from_the_exports_folder(gpuenv):
    (gpuenv.work / "locks").mkdir()
    el.written(gpuenv.work / "locks" / "pylock.cluster.toml", el.of())
    ran = gpuenv("export", "--lock", "locks/pylock.cluster.toml", "--format", "dockerfile")
    assert 'COPY ["locks/pylock.cluster.toml", "/opt/lock/pylock.cluster.toml"]' in ran.out
    (gpuenv.work / ".devcontainer").mkdir()
    ask = ("export", "--format", "dockerfile", "--lock")
    ok(gpuenv(*ask, "locks/pylock.cluster.toml", "-o", "locks/Dockerfile"))
    assert 'COPY ["pylock.cluster.toml", ' in (gpuenv.work / "locks" / "Dockerfile").read_text()
    # A path that leads out of the folder is no path in it.
    aside = gpuenv.folder / "aside"
    aside.mkdir()
    (gpuenv.work / "locks" / "pylock.cluster.toml").rename(aside / "pylock.toml")
    told = gpuenv(*ask, os.path.relpath(aside / "pylock.toml", gpuenv.work)).err
    assert gpuenv(*shlex.split(told[told.index("gpuenv export ") :])[1:]).code == 0, (
        "its lock is written here"
    )
    (gpuenv.work / "pylock.toml").unlink()
    ok(gpuenv(*ask, os.path.relpath(aside / "pylock.toml", gpuenv.work), "-o", "locks/../Dockerfile"))
    assert 'COPY ["pylock.toml", ' in (gpuenv.work / "Dockerfile").read_text()
    assert (gpuenv.work / "pylock.toml").exists()


def test_a_workflow_runs_in_the_projects_folder_wherever_it_lies_itself(gpuenv):
    for folder in ("locks", ".github/workflows"):
        (gpuenv.work / folder).mkdir(parents=True)
    (gpuenv.work / "gpuenv.yaml").write_text("frameworks: [torch]\ntargets: {ci: {device: cpu}}\n")
    el.written(gpuenv.work / "locks" / "pylock.ci.toml", el.of())
    ask = ("export", "--lock", "locks/pylock.ci.toml", "--format", "github")
    assert gpuenv(*ask, "-o", ".github/workflows/environment.yml").code == 0
    written = (gpuenv.work / ".github/workflows/environment.yml").read_text()
    assert "--lock locks/pylock.ci.toml " in written and "lock --check --target ci" in written
    assert [*(gpuenv.work / ".github/workflows").glob("gpuenv-*.whl")]
    rows = [[x for x in text.splitlines() if "gpuenv-" not in x] for text in (written, gpuenv(*ask).out)]
    assert rows[0] == rows[1], "all but the place of the wheel, and the digest"


def test_an_exported_pylock_is_read_back_as_the_same_lock(gpuenv):
    made = el.of(el.MIXED, notes=("a note",))
    path = el.written(gpuenv.work / "pylock.toml", made)
    ok(gpuenv("export", "--format", "pylock", "-o", "pylock.again.toml"))
    assert lock.read(gpuenv.work / "pylock.again.toml") == lock.read(path)
    there = ("--driver", "580.159.04", "--gpu", "H200")
    ok(gpuenv("create", "--lock", "pylock.again.toml", "--dry-run", *there))


def test_export_warns_of_packages_that_others_cannot_install(gpuenv):
    el.written(gpuenv.work / "pylock.toml", el.of(el.MIXED))
    told = gpuenv("export", "--format", "requirements").err
    assert "mine, thing" in told and "local" not in told.partition("hash")[0]
    assert "1 wheel comes from folders of this machine" in gpuenv("export", "--format", "dockerfile").err


# --- nothing secret -------------------------------------------------------------------------------------


def every_text(path, forms):
    """What `gpuenv export --lock PATH` would print in each format; one of them is printed by the command."""
    source = _read_file_source(path, Path(".venv"), Choices(platform="linux-x86_64"))
    for form in forms:
        held = lock_text(source) if form in ("pylock", "conda-lock") else ""
        yield form, el.text(form, source.lock, lock_text=held)


def test_no_credentials_of_a_lock_reach_an_export(gpuenv, monkeypatch):
    user, token, query, _ = SECRETS
    packages = [
        dataclasses.replace(p, url=p.url.replace("://", f"://me:{token}@") + f"?sig={query}",
                            index=p.index.replace("://", f"://me:{token}@")) for p in el.PACKAGES
    ] + [
        dataclasses.replace(el.COMMITTED, url=el.COMMITTED.url.replace("://", f"://{user}:{token}@")),
        dataclasses.replace(el.COMMITTED, name="other", url=f"git+ssh://git:{token}@git.example/o@{el.COMMIT}"),
    ]  # fmt: skip
    with monkeypatch.context() as patched:  # gpuenv writes none; another tool, or a person, may
        patched.setattr(pylock, "redact", lambda url: url)
        path = el.written(gpuenv.work / "pylock.toml", el.of(packages))
    assert token in path.read_text()
    for form, text in every_text(path, el.VENV_FORMS):
        assert not [s for s in SECRETS if s in text], form
        if form in ("requirements", "environment.yml"):
            # The user of ssh is needed, and no secret.
            assert f"git+ssh://git@git.example/o@{el.COMMIT}" in text
    ran = ok(gpuenv("export", "--format", "requirements", "--json"))
    assert not [s for s in SECRETS if s in ran.out + ran.err]


def test_no_credentials_of_a_conda_lock_reach_an_export(gpuenv):
    from provision.conda import locks as conda_file

    channel = f"https://me:{SECRETS[0]}@conda.example/t/{SECRETS[3]}/conda-forge"
    packages = [
        dataclasses.replace(
            p, url=p.url.replace(el.CONDA, channel), index=(p.index or "").replace(el.CONDA, channel)
        )
        for p in el.CONDA_PACKAGES
    ]
    path = gpuenv.work / "conda-lock.yml"
    conda_file.write(path, el.of_conda(packages))
    assert SECRETS[3] in path.read_text()
    for form, text in every_text(path, el.CONDA_FORMS):
        assert not [s for s in SECRETS if s in text], form
    ran = ok(gpuenv("export", "--format", "conda-lock", "--json"))
    assert not [s for s in SECRETS if s in ran.out + ran.err]


# --- what can be run here ---------------------------------------------------------------------------------


def command(text, verb):
    """The gpuenv command of an export, as words."""
    row = next(x for x in text.splitlines() if f"gpuenv {verb} " in x and not x.startswith("#"))
    return shlex.split(row[row.index(f"gpuenv {verb} ") :].replace('\\"', '"').rstrip('"\\ '))[1:]


def test_the_dockerfiles_command_builds_the_gpu_environment_without_a_gpu(once_made):
    gpuenv, made = once_made, once_made.created.json
    assert made["environment"]["changed"] and made["verdict"] is None
    assert made["lock"]["packages"] == [as_plain(p) for p in lock.read(gpuenv.work / "pylock.toml").packages]
    text = gpuenv("export", "--format", "dockerfile").out
    entry = next(json.loads(x.partition(" ")[2]) for x in text.splitlines() if x.startswith("ENTRYPOINT "))
    words = [w.replace("/opt/env", ".venv") for w in entry[1:]]
    ran = gpuenv(*words, "python", "-c", "import sys; print(sys.prefix)")
    assert ran.out.split() == [str(gpuenv.work / ".venv")], ran.err
    # The build's next step is `verify --device cpu`; these wheels hold nothing that could be verified.
    assert (gpuenv.work / ".venv/bin/python").exists()


def test_a_gpu_lock_is_refused_here_without_its_target(gpuenv, torch):
    assert gpuenv("create", "--locked", "--no-verify").code == 6


@pytest.mark.parametrize(
    ("target", "words"), [(("--driver", "450.80.02"), "driver"), (("--gpu", "3.5"), "3.5")]
)
def test_a_lock_that_does_not_fit_the_given_target_is_refused(gpuenv, torch, target, words):
    ran = gpuenv("create", "--locked", "--no-verify", *target)
    assert ran.code == 6 and "does not fit" in ran.err and words in ran.err


def test_a_conda_lock_is_compared_with_the_given_target(gpuenv):
    from provision.conda import locks as conda_file

    here = f"file://{gpuenv.work}/channel"  # an empty one: what is accepted fails where it is fetched
    packages = [
        dataclasses.replace(p, url=p.url.replace(el.CONDA, here), index=here) for p in el.CONDA_PACKAGES[:-1]
    ]
    target = dataclasses.replace(el.TARGET, glibc=None)
    conda_file.write(gpuenv.work / "conda-lock.yml", el.of_conda(packages, target=target))
    words = command(gpuenv("export", "--format", "dockerfile").out, "create")
    words = [w.replace("/opt/env", "env").replace("/opt/lock/", "") for w in words]
    assert gpuenv(*words).code == 6, "no GPU is here"
    assert gpuenv(*words, "--driver", "450.80.02").code == 6, "which speaks CUDA 11"
    assert gpuenv(*words, "--driver", "575.57.08", "--gpu", "7.5").code == 7
    gpuenv.env["CONDA_OVERRIDE_CUDA"] = "12.9"
    assert gpuenv(*words).code == 7
    assert not (gpuenv.work / "env").exists()


def test_the_commands_of_the_workflow_run_and_detect_a_changed_lock(made):
    gpuenv, torch = made, made.work / "pylock.toml"
    steps = yaml.safe_load(gpuenv("export", "--format", "github").out)["jobs"]["environment"]["steps"]
    runs = [shlex.split(s["run"])[1:] for s in steps if s.get("run", "").startswith("gpuenv ")]
    check, create = runs[0], runs[1]
    ok(gpuenv(*check))
    assert gpuenv(*create).code == 0
    text = torch.read_text()
    version = re.search(r'name = "nvidia-nccl-cu13"\nversion = "([^"]+)"', text)[1]
    torch.write_text(text.replace(version, "0.1"))
    assert gpuenv(*check).code == 6, "drift is what the step is for"


def test_the_batch_script_stops_where_the_environment_fails(made, tmp_path):
    """The real gpuenv on an environment whose framework is a stand-in: verify says no, and nothing runs."""
    import os

    gpuenv = made
    bin_ = tmp_path / "bin"
    bin_.mkdir()
    for name, code in (
        ("gpuenv", f'exec "{sys.executable}" -m provision "$@"'),
        ("srun", f'touch "{tmp_path}/ran"; exec "$@"'),
    ):
        (bin_ / name).write_text(f"#!/bin/sh\n{code}\n")
        (bin_ / name).chmod(0o755)
    assert gpuenv("export", "--format", "sbatch", "-o", "job").code == 0
    env = {**gpuenv.env, "PATH": f"{bin_}{os.pathsep}{gpuenv.env['PATH']}"}
    done = run_program(["bash", "job"], cwd=gpuenv.work, env=env)
    assert done.returncode == 8, done.stderr
    assert not (tmp_path / "ran").exists()


def test_the_help_names_every_format(gpuenv):
    said = " ".join(gpuenv("export", "--help").out.replace("│", " ").split())
    assert not [f for f in el.FORMS if f not in said.replace("- ", "-")]


def test_profiles_of_the_user_can_name_another_base_image(gpuenv, held):
    folder = gpuenv.work / "mine"
    folder.mkdir()
    (folder / "images.yaml").write_text(
        '- table: "images"\n  source: "our registry"\n  read: "2026-11-20"\n  rows:\n'
        '  - {use: "container", image: "registry.example/python:3.12", platform: "linux-x86_64", glibc: "2.28", python: "3.12"}\n'
    )
    ran = gpuenv("export", "--format", "dockerfile", "--profiles", "mine")
    assert "FROM registry.example/python:3.12" in ran.out, ran.err
    shutil.rmtree(folder)
    assert Path(held).exists()
