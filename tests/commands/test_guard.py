"""The guard: a later install by pip or uv cannot replace the framework, and hinders nothing else."""

import io
import shutil
import tarfile

import pytest
from command import Command
from environment_facts import HERE, ok
from framework_envs import only_pip, venv
from loopback import Index, serving
from made_env import copied
from programs import run_program
from uv import find_uv_bin

from provision.environment import guard, place
from provision.wheels import pylock

GPU = ("--driver", "580.65.06", "--gpu", "9.0")
BACKEND = """\
import os, zipfile
def build_wheel(folder, settings=None, metadata=None):
    import torch
    name = "built-1.0-py3-none-any.whl"
    with zipfile.ZipFile(os.path.join(folder, name), "w") as z:
        z.writestr("built-1.0.dist-info/METADATA", "Metadata-Version: 2.1\\nName: built\\nVersion: 1.0\\n")
        z.writestr("built-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        z.writestr("built-1.0.dist-info/RECORD", "")
    return name
"""


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    """An environment with tiny wheels of torch in a folder with blanks, and packages that want another torch."""
    gpuenv = Command(tmp_path_factory.mktemp("guarded") / "torch")
    gpuenv.work = gpuenv.work / "my project & %20"
    gpuenv.work.mkdir()
    with serving(Index()) as index:
        for wanted in ("torch", "torch<2.9"):
            ask = ("--framework", wanted, "--python", HERE, "--index", "pypi", *GPU)
            index.add_plan(gpuenv("resolve", "--json", *ask).json)
        gpuenv.env["PIP_INDEX_URL"] = index.url
        index.add("plain", "1.0")
        index.add("hungry", "1.0", requires=("torch<2.9",))
        (gpuenv.work / "gpuenv.yaml").write_text("frameworks: [torch]\nindex: pypi\n")
        ran = ok(create(gpuenv))
        assert "later installs keep torch" in " ".join(ran.err.split())
        yield gpuenv


@pytest.fixture
def made(guarded, tmp_path):
    return copied(guarded, tmp_path / "copy")


def create(gpuenv, *more):
    return gpuenv("create", "--python", HERE, *GPU, "--no-verify", *more)


def pip(gpuenv, *words):
    """pip as in the environment, from a folder that has only pip: it reads the environment's pip.conf."""
    python = gpuenv.work / ".venv" / "bin" / "python"
    return run(gpuenv, [str(python), "-m", "pip", *words], PYTHONPATH=str(only_pip()))


def run(gpuenv, argv, **variables):
    env = {**gpuenv.env, "PIP_DISABLE_PIP_VERSION_CHECK": "1", **variables}
    env.pop("PIP_CONFIG_FILE", None)  # os.devnull of the tests would switch all pip.conf off
    return run_program(argv, env=env, cwd=gpuenv.work)


def torch_of(gpuenv):
    (info,) = (gpuenv.work / ".venv").glob("lib/python*/site-packages/torch-*.dist-info")
    return info.name


def test_pip_refuses_what_would_replace_the_framework(made, tmp_path):
    before = torch_of(made)
    refused = pip(made, "install", "hungry")
    assert refused.returncode == 1
    assert "The user requested (constraint) torch==" in refused.stdout + refused.stderr
    assert pip(made, "install", "-U", "plain", "torch").returncode == 0
    assert torch_of(made) == before
    archive = tmp_path / "built-1.0.tar.gz"
    project = '[build-system]\nrequires = ["torch"]\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    with tarfile.open(archive, "w:gz") as tar:
        for name, text in (
            ("pyproject.toml", project + '[project]\nname = "built"\nversion = "1.0"\n'),
            ("backend.py", BACKEND),
        ):
            info = tarfile.TarInfo(f"built-1.0/{name}")
            info.size = len(text)
            tar.addfile(info, io.BytesIO(text.encode()))
    done = pip(made, "install", str(archive))
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("target", "refused"),
    [(GPU, "onnxruntime<0"), pytest.param(("--device", "cpu"), "onnxruntime==", marks=pytest.mark.slow)],
)
def test_onnxruntime_is_kept_and_no_other_build_is_put_over_it(gpuenv, index, target, refused):
    ask = ("--framework", "onnxruntime", "--python", HERE, *target)
    index.add_plan(gpuenv("resolve", "--json", *ask).json)
    gpuenv.env["PIP_INDEX_URL"] = index.url
    index.add("onnxruntime", "1.2")
    index.add("hungry", "1.0", requires=("onnxruntime<1.5",))
    ok(gpuenv("lock", *ask))
    env, _ = venv(gpuenv.work / ".venv")
    (env / place.MARK).mkdir()
    note = guard.write(env, pylock.read(gpuenv.work / "pylock.toml"), on=True)
    assert note.startswith("later installs keep onnxruntime")
    said = pip(gpuenv, "install", "hungry")
    assert said.returncode == 1 and refused in said.stdout + said.stderr, said.stdout + said.stderr


def test_uv_refuses_it_in_run_and_after_activation(made):
    before = torch_of(made)
    refused = made(
        "run", "--", find_uv_bin(), "pip", "install", "--index-url", made.env["PIP_INDEX_URL"], "hungry"
    )
    assert refused.code == 1 and "torch==" in refused.err, refused.err
    scripts = {
        "sh": ". .venv/bin/activate",
        "bash": "source .venv/bin/activate",
        "fish": "source .venv/bin/activate.fish",
    }
    for shell, line in scripts.items():
        if path := shutil.which(shell):
            seen = run(
                made,
                [
                    path,
                    "-c",
                    f"cd '{made.work}'; {line}; printenv UV_CONSTRAINT; deactivate; printenv UV_CONSTRAINT",
                ],
            )
            assert [row.rpartition("/")[2] for row in seen.stdout.splitlines()] == ["constraints.txt"], (
                shell,
                seen,
            )
            assert "%2520" in seen.stdout and " " not in seen.stdout
    assert torch_of(made) == before


def test_gpuenv_itself_is_not_hindered(made):
    made.env["UV_CONSTRAINT"] = (made.work / ".venv/.gpuenv/constraints.txt").as_uri()
    (made.work / "gpuenv.yaml").write_text("frameworks: [torch<2.9]\nindex: pypi\n")
    ok(made("lock", "--python", HERE, *GPU))


def test_create_renews_the_guard_after_a_move_and_removes_it(made):
    conf = made.work / ".venv" / "pip.conf"
    made.work = made.work.rename(made.work.with_name("moved away"))
    assert pip(made, "install", "plain").returncode == 1
    assert create(made).code == 0
    assert "moved%20away" in (made.work / ".venv" / "pip.conf").read_text()
    assert pip(made, "install", "plain").returncode == 0
    assert pip(made, "install", "hungry").returncode == 1
    (made.work / "gpuenv.yaml").write_text("frameworks: [torch]\nindex: pypi\nguard: false\n")
    ran = create(made)
    assert ran.code == 0 and not (made.work / ".venv" / "pip.conf").exists(), ran.err
    assert not list((made.work / ".venv" / ".gpuenv").glob("[cg]*[ds]*.txt"))
    assert pip(made, "install", "hungry").returncode == 0
    conf = made.work / ".venv" / "pip.conf"
    assert ok(made("repair", "--no-verify")) and not conf.exists()
    conf.write_text("[global]\ntimeout = 9\n")
    (made.work / "gpuenv.yaml").write_text("frameworks: [torch]\nindex: pypi\nguard: maybe\n")
    assert "guard: expected true or false" in create(made).err
    (made.work / "gpuenv.yaml").write_text("frameworks: [torch]\nindex: pypi\n")
    assert create(made).code == 0 and conf.read_text() == "[global]\ntimeout = 9\n"
