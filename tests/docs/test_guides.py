"""The tutorial and the how-to pages: bash runs every line of their ```bash blocks, in a folder, home and configuration
of its own. What this machine has not is a small program on PATH that does what the real one is
documented to do, and says so here: Slurm's `srun` and `sbatch`, with a driver made of C on the "node"; Colab's `pip`.

Pages that end with a verdict take jax for the CPU from where pip and uv are configured to look; the page whose
framework is gigabytes takes tiny wheels from 127.0.0.1, with stubs of NVIDIA's libraries in them. For `make test` the
quick start has a jax there that passes the proof at once; with the real one it is slow, as the other pages of this kind.
"""

import functools
import importlib.metadata
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import tomllib
import yaml
from command import Command, Ran
from doc_pages import ROOT, texts
from environment_facts import HERE, ok, refused
from framework_envs import LYING_JAX, venv
from loopback import version_for, wheel_bytes
from nvidia_stub_wheels import add_nvidia_stubs
from packaging.requirements import Requirement
from programs import run_program
from uv import find_uv_bin

import provision
from driver_stub import build, gpu, scenario, spec
from provision.bundle import wheels

WORKS_ON_CPU = re.compile(r"verdict: .* works on the CPU \(")
MODEL = "import jax.numpy as jnp\nfrom einops import rearrange\nprint(rearrange(jnp.arange(6.0), '(a b) -> b a', a=2).sum())\n"


class Reader(Command):
    """A reader who types the commands of a page. `gpuenv` is this checkout's, unless a page installs another."""

    def __init__(self, folder):
        super().__init__(folder)
        self.bin = folder / "bin"
        self.bin.mkdir()
        self.env["PATH"] = f"{self.bin}:{self.env['PATH']}"
        self.program("gpuenv", f'exec {shlex.quote(sys.executable)} -m provision "$@"')

    def program(self, name, body):
        (self.bin / name).write_text(f"#!/bin/bash\n{body}\n")
        (self.bin / name).chmod(0o755)

    def types(self, block, **codes):
        """Each line of a block, in the folder that the one before it left; `codes` are exit codes other than 0, by
        the gpuenv command that ends with it."""
        done = [self.line(line) for line in block.splitlines() if line.strip()]
        for ran in done:
            command = re.search(r"gpuenv (\w+)", ran.line)
            wanted = codes.get(command[1], 0) if command else 0
            assert ran.code == wanted, f"{ran.line}\n{ran.out}\n{ran.err}"
        return done

    def line(self, line):
        after = self.folder / "pwd"
        script = f"{line}\nstatus=$?\npwd > {shlex.quote(str(after))}\nexit $status"
        done = run_program(
            ["bash", "-c", script], env=self.env, cwd=self.work, stdin=subprocess.DEVNULL, timeout=300
        )
        self.work = Path(after.read_text().strip())
        ran = Ran(done)
        ran.line, ran.words = line, " ".join((ran.out + ran.err).split())
        return ran


@pytest.fixture
def reader(tmp_path):
    return Reader(tmp_path)


@functools.cache
def configured():
    """Where packages come from on this machine, and uv's cache, for a reader with a home of their own."""
    kept = {
        k: v for k, v in os.environ.items() if k.startswith(("PIP_", "UV_")) or k.lower().endswith("_proxy")
    }
    for variable, file in (
        ("PIP_CONFIG_FILE", "~/.config/pip/pip.conf"),
        ("UV_CONFIG_FILE", "~/.config/uv/uv.toml"),
    ):
        if variable not in kept and Path(file).expanduser().is_file():
            kept[variable] = str(Path(file).expanduser())
    cache = run_program([sys.executable, "-m", "uv", "cache", "dir"], check=True).stdout.strip()
    return {**kept, "UV_CACHE_DIR": cache}


@pytest.fixture(scope="module")
def here_is_no_gpu(tmp_path_factory):
    plan = Command(tmp_path_factory.mktemp("asked"))("resolve", "--framework", "jax", "--json")
    if plan.code or plan.json["device"] != "cpu":
        pytest.skip("this machine has a GPU: the pages would take the gigabytes of CUDA builds")


@pytest.fixture
def online(reader, here_is_no_gpu):
    """A reader whose packages are real ones, on a machine for which CPU builds are planned."""
    del reader.env["PIP_CONFIG_FILE"]
    reader.env |= configured()
    return reader


@pytest.fixture(params=["quick", pytest.param("real", marks=pytest.mark.slow)])
def starting(request, reader, index, here_is_no_gpu):
    """A reader of the quick start, with a jax that passes the proof in milliseconds or the real one."""
    if request.param == "real":
        return request.getfixturevalue("online")
    plan = reader("resolve", "--json", "--framework", "jax").json
    version = plan["builds"][0]["version"]
    index.add_plan(plan)
    index.add("jax", version, (f"jaxlib=={version}",), LYING_JAX)
    reader.env |= {"PIP_INDEX_URL": index.url}
    return reader


def locked(path):
    return {p["name"]: p["version"] for p in tomllib.loads(path.read_text())["packages"]}


# --- the pages ------------------------------------------------------------------------------------------


def test_the_quick_start_runs_as_written(starting):
    (block,) = texts("README.md", "test_the_quick_start_runs_as_written")
    created, verified, run, started, _locked, made = starting.types(block)
    assert WORKS_ON_CPU.search(created.words) and "no GPU was tested" in verified.words
    assert "CpuDevice" in run.out
    assert "Makefile" in started.words and (starting.work / "gpuenv.yaml").is_file()
    assert "gpuenv create" in made.words


@pytest.mark.network
@pytest.mark.slow
def test_installing_and_upgrading_from_a_checkout_works(online):
    """In a clone, with uv's folders of tools and programs below the reader's own."""
    online.env |= {"UV_TOOL_DIR": str(online.folder / "tools"), "UV_TOOL_BIN_DIR": str(online.bin)}
    online.env["PATH"] = f"{online.bin}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    (online.bin / "gpuenv").unlink()
    assert online.line(f"git clone --quiet {shlex.quote(str(ROOT))} checkout && cd checkout").code == 0
    (block,) = texts("README.md", "test_installing_and_upgrading_from_a_checkout_works")
    _, shown = online.types(block)
    assert (online.bin / "gpuenv").exists() and provision.__version__ in shown.out
    (block,) = texts("docs/how-to/upgrade.md", "test_installing_and_upgrading_from_a_checkout_works")
    _, shown = online.types(block)
    assert provision.__version__ in shown.out


@pytest.mark.slow
def test_the_tutorial_makes_a_new_project(online):
    (block,) = texts("docs/tutorial.md", "test_the_tutorial_makes_a_new_project")
    *_, created, lock, added, run = online.types(block)
    demo = online.work
    assert demo.name == "demo"
    assert re.search(r"verdict: .* works on the CPU \(\d+ checks\); no GPU", created.words)
    assert created.out.splitlines()[-1].endswith("source .venv/bin/activate")
    assert "gpuenv create --locked" in lock.out.splitlines()[-1]
    assert "+einops" in added.words and WORKS_ON_CPU.search(added.words)
    assert "CpuDevice" in run.out
    assert {"jax", "einops"} <= set(locked(demo / "pylock.toml"))
    assert yaml.safe_load((demo / "gpuenv.yaml").read_text())["packages"] == ["einops"]
    assert ".venv/" in (demo / ".gitignore").read_text().split()

    clone = online.folder / "clone"
    clone.mkdir()
    for name in ("gpuenv.yaml", "pylock.toml", "Makefile", ".gitignore"):
        shutil.copy(demo / name, clone)
    before = locked(clone / "pylock.toml")
    online.work = clone
    assert online.line("make --dry-run env").out.strip() == "gpuenv create"
    made = online.line("gpuenv create .venv --no-verify && gpuenv export --format pylock -o built.toml")
    assert made.code == 0 and "solving" not in made.words, made.words
    assert locked(clone / "built.toml") == before


@pytest.mark.slow
def test_the_page_of_an_existing_project_runs_as_written(online):
    (online.work / "requirements.txt").write_text("jax\neinops\nnvidia-cublas-cu12==12.1.3.1\n")
    (online.work / "Makefile").write_text("verify:\n\techo mine\n")
    (online.work / "train.py").write_text(MODEL)
    (online.work / "train.log").write_text(
        "epoch 1\nRuntimeError: cuDNN error: CUDNN_STATUS_NOT_INITIALIZED\n"
    )
    (block,) = texts(
        "docs/how-to/existing-project.md", "test_the_page_of_an_existing_project_runs_as_written"
    )
    diagnosed, started, resolved, created, _, run, tried = online.types(block)
    assert "CUDNN_STATUS_NOT_INITIALIZED" in diagnosed.words and "fix:" in diagnosed.words
    assert "make gpuenv-verify" in started.words
    assert (online.work / "Makefile").read_text().startswith("verify:\n\techo mine\n")
    assert "nvidia-cublas-cu12==12.1.3.1" in resolved.words
    assert WORKS_ON_CPU.search(created.words)
    have = locked(online.work / "pylock.toml")
    assert {"jax", "einops"} <= set(have) and not [n for n in have if n.startswith("nvidia")]
    assert run.out.split()[0] == "15.0"
    assert "2 passed: import einops, python train.py --help" in tried.words

    (checks,) = texts(
        "docs/how-to/existing-project.md", "test_the_page_of_an_existing_project_runs_as_written", "yaml"
    )
    config = online.work / "gpuenv.yaml"
    config.write_text(config.read_text() + checks)
    assert "pass checks 2 passed: import einops" in ok(online.line("gpuenv verify")).words
    (online.work / "train.py").write_text("raise SystemExit(3)\n")
    assert "1 of 2 failed: python train.py --help: exit 3" in refused(online.line("gpuenv verify"), 8).words
    config.write_text(config.read_text().removesuffix(checks))

    (online.work / "requirements.txt").write_text(f"jax\neinops<{have['einops']}\n")
    assert "in place: einops" in ok(online.line("gpuenv create --no-verify && gpuenv lock")).words
    assert locked(online.work / "pylock.toml")["einops"] != have["einops"]


# --- a cluster --------------------------------------------------------------------------------------------

A100 = gpu("NVIDIA A100-SXM4-80GB", "8.0", 81920, "GPU-4f0e1d2c-5a6b-4c7d-8e9f-0a1b2c3d4e5f")
NODE = spec(driver="550.54.15", cuda=12040, gpus=[A100], cudart=12080, cudnn=91002)


@pytest.fixture
def cluster(reader, index, tmp_path):
    """A login node: slurm.conf names a node, and no slurmd runs here. `srun` runs a command on the "node", which is this machine with the
    driver made of C and an A100; `sbatch` runs a script there, which is what Slurm does sooner or later."""
    plan = reader("resolve", "--json", "--framework", "torch", "--index", "pypi", "--python", HERE,
                  "--driver", "550.54.15", "--gpu", "8.0").json  # fmt: skip
    index.add_plan(plan)
    add_nvidia_stubs(index, plan, tmp_path / "libraries")
    reader.env |= {
        "PIP_INDEX_URL": index.url,
        "GPUENV_INDEX_PYTORCH": "http://127.0.0.1:9/whl",
    }
    (tmp_path / "slurm.conf").write_text("ClusterName=c\nNodeName=n1 Gres=gpu:a100:1\n")
    reader.env |= {"SLURM_CONF": str(tmp_path / "slurm.conf")}
    node = {"SLURM_JOB_ID": "1", **scenario(build(tmp_path / "driver", "550.54.15"), NODE)}
    exported = "\n".join(f"export {k}={shlex.quote(v)}" for k, v in node.items())
    reader.program("srun", f'{exported}\nwhile [[ $1 == -* ]]; do shift; done\nexec "$@"')
    reader.program("sbatch", f'{exported}\nexec bash "$@"')
    reader.version = plan["builds"][0]["version"]
    return reader


def test_a_cluster_login_node_creates_for_the_compute_node(cluster):
    """The wheels are tiny: what `verify` proves on the node is the driver, the runtime and cuDNN, in stubs. It then
    finds that this torch is none, which is its exit code 8."""
    (cluster.work / "train.py").write_text("import torch; print('trained with', torch.__version__)\n")
    assert "--target node.json" in refused(cluster.line("gpuenv create --framework torch"), 4).words
    (block,) = texts("docs/how-to/slurm.md", "test_a_cluster_login_node_creates_for_the_compute_node")
    _, created, proof, _, job = cluster.types(block, verify=8)
    node = json.loads((cluster.work / "node.json").read_text())
    assert node["target"]["driver"] == "550.54.15" and node["context"]["slurm"] == "job"
    assert [g["capability"] for g in node["target"]["gpus"]] == ["8.0"]
    assert f"torch {cluster.version} CUDA 12" in created.words
    assert "unproven. To verify, run `gpuenv verify" in created.words
    passed = re.findall(r"^  (pass|fail|skip|warn)  (\w+(?: torch)?) ", proof.out, re.MULTILINE)
    assert [s for status, s in passed if status == "pass"] == ["driver", "runtime", "libraries", "cudnn"]
    assert ("fail", "framework torch") in passed and ("warn", "packages") in passed
    assert "ptxas" in proof.out, "this triton is none either"
    assert "#SBATCH --gres=gpu:1" in (cluster.work / "train.sbatch").read_text()
    assert "verdict: works" in job.words and f"trained with {cluster.version}" in job.out


def test_several_gpu_models_get_one_plan(reader):
    (block,) = texts("docs/how-to/slurm.md", "test_several_gpu_models_get_one_plan")
    (planned,) = reader.types(block)
    assert "torch 2." in planned.words and "535.129.03" in planned.words


def test_a_job_on_a_broken_node_ends_at_once_with_the_cause(cluster, tmp_path):
    *_, create, _, export, submit = texts(
        "docs/how-to/slurm.md", "test_a_cluster_login_node_creates_for_the_compute_node"
    )[0].splitlines()
    cluster.line("srun gpuenv detect --json > node.json")
    for line in (create, export):
        assert cluster.line(line).code == 0
    (cluster.work / "train.py").write_text("print('trained')\n")
    broken = scenario(build(tmp_path / "broken", "550.54.15"), NODE + "cu_init 999\n")
    exported = "\n".join(f"export {k}={shlex.quote(v)}" for k, v in broken.items())
    cluster.program("sbatch", f'{exported}\nexec bash "$@"')
    job = cluster.line(submit)
    assert job.code == 8 and "verdict: fails" in job.words and "trained" not in job.out


# --- no network ---------------------------------------------------------------------------------------------


def test_a_bundle_is_made_for_a_machine_without_a_network(reader, index):
    """The first block of the page: its options as they stand, its gigabytes as tiny wheels."""
    (here,) = texts("docs/how-to/air-gapped.md", "test_a_bundle_is_made_for_a_machine_without_a_network")
    words = shlex.split(here, comments=True)
    asked = words[words.index("--framework") :]
    reader.env |= {"PIP_INDEX_URL": index.url, "GPUENV_INDEX_PYTORCH": "http://127.0.0.1:9/whl",
                   "UV_PYTHON_INSTALL_MIRROR": "http://127.0.0.1:9/pythons"}  # fmt: skip
    plan = reader("resolve", "--json", "--index", "pypi", *asked).json
    index.add_plan(plan)
    for text in wheels.own_requirements():
        index.add(Requirement(text).name, version_for(Requirement(text)))
    uv = importlib.metadata.version("uv")
    index.wheels["uv"] = {f"uv-{uv}-py3-none-manylinux_2_17_x86_64.whl": wheel_bytes("uv", uv)}
    reader.types(here)
    stick = reader.work / "stick"
    held = json.loads((stick / "gpuenv-bundle.json").read_text())
    assert held["complete"] and held["python"] == "3.11"
    assert held["target"]["driver"] == "550.54.15"
    assert [g["capability"] for g in held["target"]["gpus"]] == ["8.0"]
    assert list(stick.glob("wheels/torch-*")) and list(stick.glob("gpuenv/gpuenv-*"))
    (there,) = texts("docs/how-to/air-gapped.md", "test_a_machine_without_a_network_installs_the_bundle")
    assert "--no-index --find-links gpuenv gpuenv" in (stick / "README.txt").read_text()
    assert "--no-index --find-links gpuenv gpuenv" in there


@pytest.mark.network
@pytest.mark.slow
def test_a_machine_without_a_network_installs_the_bundle(online):
    """The second block, of a bundle for this machine's CPU, with every way out turned to a port that nobody has."""
    online.env["UV_PYTHON_INSTALL_MIRROR"] = "http://127.0.0.1:9/pythons"  # this machine has the Python
    ok(online.line(f"gpuenv bundle stick --framework jax --python {HERE}"))
    (online.folder / "there").mkdir()
    there = Reader(online.folder / "there")
    there.work.rmdir()
    (online.work / "stick").rename(there.work)
    (there.folder / "home/train.py").write_text("import jax; print(jax.devices())\n")
    nowhere = "http://127.0.0.1:9"
    there.env |= {"http_proxy": nowhere, "https_proxy": nowhere, "PIP_INDEX_URL": f"{nowhere}/simple"}
    there.env["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    (block,) = texts("docs/how-to/air-gapped.md", "test_a_machine_without_a_network_installs_the_bundle")
    installed, created, run = there.types(block)
    assert "Successfully installed" in installed.out
    assert WORKS_ON_CPU.search(created.words)
    assert "CpuDevice" in run.out
    home = Path(there.env["HOME"])
    assert (home / "env/bin/python").exists() and (home / "gpuenv/bin/gpuenv").exists()


@pytest.mark.slow
def test_an_environment_of_another_tool_is_adopted_as_written(online):
    online.program("uv", f'exec {shlex.quote(find_uv_bin())} "$@"')
    (block,) = texts(
        "docs/how-to/existing-project.md", "test_an_environment_of_another_tool_is_adopted_as_written"
    )
    _, _, adopted, added = online.types(block)
    assert WORKS_ON_CPU.search(adopted.words) and "+tqdm" in added.words


# --- a notebook ------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_cells_for_colab_run_as_written(online):
    """A line of a cell is what follows its `!`. The runtime's Python is a venv with jax; its `pip` is uv's, which
    takes a wheel to the same place, faster."""
    runtime, _ = venv(online.folder / "runtime")
    uv = f"{shlex.quote(sys.executable)} -m uv pip install --quiet --python {shlex.quote(str(runtime))}"
    assert online.line(f"{uv} jax").code == 0
    (online.bin / "gpuenv").unlink()
    online.program("pip", f'[ "$1 $2" = "install -q" ] && shift 2 && exec {uv} "$@"')
    online.env["PATH"] = f"{online.bin}:{runtime / 'bin'}:/usr/bin:/bin"
    online.env["COLAB_RELEASE_TAG"] = "release-colab_20261101"
    wheels.own_wheel(online.work)
    (online.work / "train.py").write_text("import jax, sys; print(jax.devices(), sys.prefix)\n")
    (block,) = texts("docs/how-to/colab.md", "test_the_cells_for_colab_run_as_written")
    assert all(line.startswith("!") for line in block.splitlines())
    _, judged, created, run = online.types(re.sub("^!", "", block, flags=re.MULTILINE))
    assert (runtime / "bin" / "gpuenv").exists()
    assert WORKS_ON_CPU.search(judged.words) and "Runtime > Change runtime type" in judged.words
    assert WORKS_ON_CPU.search(created.words) and "Change runtime type" in created.words
    assert "CpuDevice" in run.out and str(online.work / "env") in run.out


# --- CI ------------------------------------------------------------------------------------------------------------


@pytest.mark.network
@pytest.mark.slow
def test_the_page_of_continuous_integration_runs_as_written(online):
    """The workflow's own steps are run as well, but for GitHub's actions and the installation of gpuenv."""
    (said,) = texts("docs/how-to/ci.md", "test_the_page_of_continuous_integration_runs_as_written", "yaml")
    (online.work / "gpuenv.yaml").write_text(said)
    (online.work / "test_it.py").write_text("def test_it():\n    import jax\n    assert jax.devices()\n")
    once, always = texts("docs/how-to/ci.md", "test_the_page_of_continuous_integration_runs_as_written")
    online.types(once)
    assert {"jax", "pytest"} <= set(locked(online.work / "pylock.ci.toml"))
    _, created, tested = online.types(always)
    assert WORKS_ON_CPU.search(created.words) and "1 passed" in tested.out

    workflow = yaml.safe_load((online.work / ".github/workflows/environment.yml").read_text())
    steps = [s["run"] for s in workflow["jobs"]["environment"]["steps"] if "run" in s]
    shutil.rmtree(online.work / ".venv")
    wheels = [
        p["wheels"][0]["url"] for p in tomllib.loads((online.work / "pylock.ci.toml").read_text())["packages"]
    ]
    (online.work / "wheels").mkdir()
    for url in (u for u in wheels if u.startswith("file:")):  # as the export's own comment asks
        shutil.copy(url.removeprefix("file://"), online.work / "wheels")
    install, check, create, verify, run = steps
    assert (
        "pip install" in install and verify == "gpuenv verify .venv --device cpu"
    )  # which `create` did above
    assert check.startswith("gpuenv lock --check --target ci")
    done = [online.line(s) for s in (check, create, run)]
    assert [r.code for r in done] == [0, 0, 0], "\n".join(r.words for r in done)

    (online.work / "gpuenv.yaml").write_text(said.replace("pytest", "pytest, einops"))
    assert online.line(always.splitlines()[0]).code == 6
