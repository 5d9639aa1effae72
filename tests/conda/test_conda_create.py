"""Real conda environments on the CPU, from a small channel made on the spot: built, proved, locked,
and rendered by the real conda-lock. `make test` takes a jax that passes the proof at once, `make test-slow` the real one."""

import json
import os
import shutil
import sys
from pathlib import Path

import conda_channel as cc
import pytest
from command import Command
from environment_facts import ok
from framework_envs import LYING_JAX
from programs import run_program

JAX = ("--manager", "conda", "--framework", "jax", "--device", "cpu")
BIN = Path(sys.executable).parent


def command(folder):
    made = Command(folder)
    made.env["RATTLER_CACHE_DIR"] = str(cc.home() / "rattler-cache")  # unpacked once for all tests
    return made


def quick(folder):
    """A channel with a jax that passes the proof in milliseconds."""
    shutil.copytree(cc.bare(), folder, copy_function=os.link)
    cc.pure(folder, "pip", "25.0")
    cc.pure(
        folder,
        "jaxlib",
        "0.8.0",
        [f"python {cc.MINOR}.*", "numpy"],
        build=f"cpu_{cc.TAG}h0_0",
        subdir="linux-64",
    )
    cc.pure(folder, "jax", "0.8.0", ["python", "jaxlib 0.8.0"], code=LYING_JAX)
    cc.index(folder)
    return folder


REAL = pytest.param(True, marks=[pytest.mark.slow, pytest.mark.network], id="real")


@pytest.fixture(scope="module", params=[pytest.param(False, id="quick"), REAL])
def made(request, tmp_path_factory):
    """(gpuenv, JSON of create) of an environment made through a mirror rule, as from conda-forge."""
    gpuenv = command(tmp_path_factory.mktemp("conda für alle"))
    gpuenv.real = request.param
    config = gpuenv.folder / "config" / "rattler" / "config.toml"
    config.parent.mkdir(parents=True)
    channel = cc.channel() if gpuenv.real else quick(gpuenv.folder / "conda-forge")
    with cc.serving(channel) as server:
        config.write_text(f'[mirrors]\n"https://conda.anaconda.org/conda-forge" = ["{server.url}"]\n')
        ran = ok(gpuenv("create", *JAX, "--json"))
        yield gpuenv, ran.json


def test_create_ends_with_a_graded_convolution(made):
    gpuenv, result = made
    verdict = result["verdict"]
    assert verdict["verdict"] == "cpu"
    (mine,) = verdict["frameworks"]
    graded = [c for d in mine["devices"] for c in d["convolutions"]]
    if gpuenv.real:
        assert len(graded) >= 9 and {c["pass"] for c in graded} == {"forward", "grad_input", "grad_weight"}
        assert all(c["max_error"] > 0 for c in graded)
    assert graded and all(c["ok"] and c["max_error"] <= c["tolerance"] for c in graded)
    assert result["environment"]["manager"] == "conda"


def test_the_lock_names_the_public_channel_and_every_hash(made):
    _, result = made
    packages = {p["name"]: p for p in result["lock"]["packages"]}
    assert {"python", "pip", "numpy", "jax", "jaxlib"} <= set(packages)
    assert {p["index"] for p in packages.values()} == {"https://conda.anaconda.org/conda-forge"}
    assert all(len(p["sha256"]) == 64 and len(p["md5"]) == 32 for p in packages.values())
    (build,) = result["plan"]["builds"]
    assert build["framework"] == "jax" and build["cuda"] is None and build["index"] == "conda-forge"
    assert "cpu" in packages["jaxlib"]["url"]


def test_create_again_rebuilds_and_verifies_nothing(made):
    gpuenv, first = made
    ran = gpuenv("create", *JAX, "--json")
    assert ran.code == 0 and ran.json["environment"]["changed"] is False
    assert ran.json["verdict"] == first["verdict"] and "verifying" not in ran.err


def test_verify_and_run_work_on_it(made):
    gpuenv, _ = made
    assert ok(gpuenv("verify", "--json")).json["verdict"] == "cpu"
    ran = gpuenv("run", "--", "python", "-c", "import sys, os; print(sys.prefix, os.environ['CONDA_PREFIX'])")
    assert ran.code == 0 and ran.out.split("\n")[0].count(str(gpuenv.work / ".venv")) == 2


def test_conda_tools_find_what_they_look_for(made):
    gpuenv, _ = made
    env = gpuenv.work / ".venv"
    listed = (gpuenv.folder / "home" / ".conda" / "environments.txt").read_text().splitlines()
    assert listed == [str(env)]
    records = {
        r["name"]: r for r in map(json.loads, (p.read_text() for p in (env / "conda-meta").glob("*.json")))
    }
    assert any(d.startswith("jaxlib ") for d in records["jax"]["depends"])
    place = "linux-64" if gpuenv.real else "noarch"
    assert records["jax"]["url"].startswith(f"https://conda.anaconda.org/conda-forge/{place}/jax-")
    history = (env / "conda-meta" / "history").read_text()
    assert "\njaxlib ==" in (env / "conda-meta" / "pinned").read_text()
    assert "+conda-forge/linux-64::python-" in history and "# update specs: ['jaxlib ==" in history


def test_the_environment_is_exported_as_environment_yml(made):
    import yaml

    gpuenv, result = made
    ran = ok(gpuenv("export", "--format", "environment.yml"))
    found = yaml.safe_load(ran.out)
    assert found["channels"][0] == "https://conda.anaconda.org/conda-forge"
    pins = {tuple(x.split("=")[:2]) for x in found["dependencies"] if isinstance(x, str)}
    locked = {(p["name"], p["version"]) for p in result["lock"]["packages"] if p["url"].endswith(".conda")}
    assert pins == locked and "python" in dict(pins)


def test_the_printed_line_activates_the_environment_without_conda(made):
    gpuenv, _ = made
    line = gpuenv("create", *JAX).out.strip().splitlines()[-1]
    assert line == "source .venv/bin/activate"
    script = (
        f"set -u; before=$PATH; {line.replace('source .', '. ./.')}; python -c 'import sys; print(sys.executable)'; echo $CONDA_PREFIX; deactivate; "
        'test "$PATH" = "$before" && test -z "${CONDA_PREFIX:-}" && echo left'
    )
    for shell in filter(shutil.which, ("bash", "dash", "zsh", "ksh")):
        done = run_program([shell, "-c", script], cwd=gpuenv.work, env=gpuenv.env)
        env = str(gpuenv.work / ".venv")
        assert done.stdout.split("\n")[:3] == [f"{env}/bin/python", env, "left"], (shell, done.stderr)


@pytest.mark.slow
@pytest.mark.network
def test_torch_works_in_a_conda_environment(tmp_path):
    from framework_envs import find_links

    tag = f"-cp{cc.TAG[2:]}-"
    wheels = [w for f in find_links() for w in Path(f).glob("torch-*+cpu*.whl") if tag in w.name]
    if not wheels:
        pytest.skip("pip's find-links hold no CPU wheel of torch for this Python")
    folder = tmp_path / "conda-forge"
    shutil.copytree(cc.channel(), folder, copy_function=os.link)
    for one in cc.installed([str(max(wheels))], tmp_path / "wheels"):
        if one.metadata["Name"] == "torch":
            cc.wheel_package(folder, one, f"cpu_{cc.TAG}h0_0", name="pytorch")
        else:
            cc.wheel_package(folder, one)
    cc.index(folder)
    gpuenv = command(tmp_path)
    ran = ok(gpuenv("create", "--manager", "conda", "--framework", "torch", "--device", "cpu", "--channel", folder,
                 "--json", timeout=600))  # fmt: skip
    assert ran.json["verdict"]["verdict"] == "cpu"
