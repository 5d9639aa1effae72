"""`add` and `drop` that fail leave the project's files as they were, and never drop a bound of the project."""

import pytest
from environment_facts import HERE, installed, ok
from loopback import wheel_bytes
from made_env import PROJECT, jax_env, jax_index


@pytest.fixture
def made(gpuenv, index):
    """A project with the environment that it asks for."""
    jax_env(gpuenv, index, PROJECT)
    return gpuenv


@pytest.fixture
def go(gpuenv, index):
    jax_index(gpuenv, index)
    (gpuenv.work / "gpuenv.yaml").write_text(PROJECT)
    return gpuenv


def files(go):
    return {p.name: p.read_text() for p in go.work.iterdir() if p.is_file()}


@pytest.mark.parametrize("locked", [True, False])
def test_a_failed_download_restores_the_projects_files(made, index, locked):
    if locked:
        ok(made("lock"))
    before, packages = files(made), installed(made.work / ".venv")
    index.faults["more-1.0-py3-none-any.whl"] = "500"
    ran = made("add", "more", "--no-verify")
    assert ran.code not in (0, 2) and files(made) == before and installed(made.work / ".venv") == packages
    assert "restored, because the change failed" in ran.err and "/.venv is as it was before" in ran.err


def test_a_failed_proof_restores_the_projects_files(made):
    """The jax of this index cannot be imported."""
    before = files(made)
    ran = made("drop", "kept")
    assert ran.code == 8 and "Its previous packages were restored" in ran.err, ran.err
    assert "gpuenv.yaml and pylock.toml: restored" in ran.err and files(made) == before


def test_add_keeps_a_bound_that_the_project_states(made):
    ran = ok(made("add", "kept", "more", "--no-verify"))
    assert '["kept<2", "more"]' in (made.work / "gpuenv.yaml").read_text(), ran.err
    assert installed(made.work / ".venv")["kept"] == "1.0"
    assert "replaces" not in ran.err
    assert made("add", "x @ ./no").err.startswith("error: packages: 'x @ ./no': no such path\n")
    ran = ok(made("add", "kept<1.5", "--no-verify"))
    assert "kept<1.5 replaces kept<2 in gpuenv.yaml" in ran.err
    (made.work / "asked.txt").write_text("kept<2\n")
    (made.work / "gpuenv.yaml").write_text(
        PROJECT.replace('packages: ["kept<2"]', "requirements: [asked.txt]")
    )
    ok(made("add", "kept", "--no-verify"))
    assert installed(made.work / ".venv")["kept"] == "1.0"


def test_add_never_replaces_cpu_builds_by_those_of_cuda(go, index):
    """The PyTorch index does not respond, and torchvision of the default index is compiled for its CUDA build."""
    go.env["GPUENV_INDEX_PYTORCH"] = "http://127.0.0.1:9/whl"
    plan = go(
        "resolve", "--framework", "torch", "--index", "pypi", "--device", "cpu", "--python", HERE, "--json"
    )
    index.add_plan(plan.json)
    index.add("torchvision", "0.28.0")
    index.add("needs-vision", "1.0", requires=("torchvision>=0.9",))
    wheels = go.work / "wheels"
    wheels.mkdir()
    tag = f"cp{HERE.replace('.', '')}"
    file = f"torch-2.13.0+cpu-{tag}-{tag}-manylinux_2_28_x86_64.whl"
    (wheels / file).write_bytes(wheel_bytes("torch", "2.13.0+cpu"))
    text = f'frameworks: [torch]\ndevice: cpu\nfind_links: [wheels]\npython: "{HERE}"\n'
    (go.work / "gpuenv.yaml").write_text(text)
    ok(go("lock"))
    before = files(go)
    ran = go("add", "needs-vision", "--json")
    assert ran.code == 9 and files(go) == before, ran.out
    assert "the PyTorch index, which has the CPU" in ran.json["error"]["message"]
    (go.work / "gpuenv.yaml").write_text(text + "index: pypi\n")
    before = files(go)
    for more in ((), ("--dry-run",)):
        ran = go("add", "needs-vision", "--json", *more)
        assert ran.code == 5 and files(go) == before, ran.out
        assert "with needs-vision only the CUDA" in ran.json["error"]["message"]
        assert "GPUENV_INDEX_PYTORCH" in ran.json["error"]["hint"]


def test_a_lock_that_is_not_in_the_cache_is_not_available_offline(made):
    """No index was asked, so none lacks the package."""
    (made.work / "gpuenv.yaml").write_text(PROJECT.replace("kept<2", "more"))
    ok(made("lock"))
    ran = made("create", "--locked", "--offline", "--no-verify", "--cache-dir", made.work / "empty")
    assert ran.code == 7 and "is not available offline" in ran.err and "without --offline" in ran.err
    assert "no index has" not in ran.err
