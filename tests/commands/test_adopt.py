"""`create --adopt`: a venv of another tool becomes one of gpuenv, with the packages that it has."""

import pytest
from command import Command
from environment_facts import HERE, installed, ok, refused
from framework_envs import venv
from loopback import Index, serving
from made_env import copied, jax_index
from programs import run_program
from rows import rows
from uv import find_uv_bin


@pytest.fixture(scope="module")
def theirs(tmp_path_factory):
    """`gpuenv` where `.venv` of another tool has jax, which cannot be imported, and an old release of a package."""
    gpuenv = Command(tmp_path_factory.mktemp("theirs") / "jax")
    with serving(Index()) as index:
        jax_index(gpuenv, index)
        index.add("six", "1.0")
        index.add("needs-more", "1.0", requires=("more",))
        venv(gpuenv.work / ".venv")
        uv(gpuenv, "pip", "install", "jax", "kept==1.0")
        yield gpuenv


@pytest.fixture
def go(theirs, tmp_path):
    return copied(theirs, tmp_path / "copy")


def uv(gpuenv, *args):
    env = {**gpuenv.env, "UV_DEFAULT_INDEX": gpuenv.env["PIP_INDEX_URL"]}
    run_program([find_uv_bin(), *args], cwd=gpuenv.work, env=env, check=True)


def test_an_adopted_environment_keeps_what_it_has(go):
    env = go.work / ".venv"
    before = installed(env)
    ran = ok(go("create", "--adopt", "--no-verify", "--json"))
    assert ran.json["environment"]["made_by_gpuenv"] and installed(env) == before
    assert {p["name"]: p["version"] for p in ran.json["lock"]["packages"]} == before
    assert str(env) in go("list").out
    ok(go("repair", "--no-verify"))
    assert ok(go("create", "--no-verify", "--json")).json["environment"]["changed"] is False
    ok(go("add", "more", "--no-verify"))
    assert installed(env) == {**before, "more": "1.0"}
    assert "is one of gpuenv already" in refused(go("create", "--adopt"), 2).err


def test_in_a_project_create_then_adds_what_is_missing(go):
    (go.work / "gpuenv.yaml").write_text(
        "frameworks: [jax]\ndevice: cpu\nindex: pypi\npackages: [kept, six]\n"
    )
    ok(go("create", "--adopt", "--no-verify"))
    ok(go("create", "--no-verify"))
    assert installed(go.work / ".venv").items() >= {"kept": "1.0", "six": "1.0"}.items()


def test_an_environment_whose_proof_fails_or_whose_python_is_free_threaded_is_not_adopted(go):
    ran = go("create", "--adopt", "--json")
    assert ran.code == 8 and ran.json["environment"] is None and "was not adopted" in ran.err
    assert not (go.work / ".venv/.gpuenv").exists()
    (go.work / f".venv/lib/python{HERE}t").mkdir()  # where such a Python has its packages
    ran = go("create", "--adopt", "--no-verify")
    assert ran.code == 2 and "has a free-threaded Python" in " ".join(ran.err.split())


def test_what_cannot_be_locked_is_named_and_nothing_is_written(go):
    uv(go, "pip", "install", "--no-deps", "needs-more")
    ran = go("create", "--adopt", "--no-verify", "--json")
    assert ran.code == 6 and "more: not locked -> 1.0" in ran.json["error"]["log"]
    uv(go, "pip", "install", "more")
    folder = go.work / "mine"
    folder.mkdir()
    (folder / "pyproject.toml").write_text('[project]\nname = "mine"\nversion = "1"\n')
    uv(go, "pip", "install", "six")
    info = next((go.work / ".venv").glob("lib/python3*/site-packages/six-*.dist-info"))
    (info / "direct_url.json").write_text(f'{{"url": "{folder.as_uri()}", "dir_info": {{"editable": true}}}}')
    ran = go("create", "--adopt", "--no-verify", "--json")
    assert ran.code == 2 and f"six 1.0 was installed from the folder {folder}" in ran.json["error"]["message"]
    assert not (go.work / ".venv/.gpuenv").exists()


@rows(
    ("argv", "says"),
    [
        (("none",), "no venv is there"),
        (("plain",), "has none of torch"),
        (("--framework", "jax"), "--adopt takes the packages that are there"),
        (("--locked",), "--adopt takes the packages that are there"),
    ],
)
def test_what_is_no_environment_to_adopt_is_refused(go, argv, says):
    if not (go.work / "plain").exists():
        venv(go.work / "plain")
    assert says in refused(go("create", "--adopt", *argv), 2).err
