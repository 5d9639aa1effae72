"""An environment remembers how it was made: target, device, Python, CUDA, manager, kernel, extras and folders of
wheels. `add`, `repair` and a later `create` without options keep all of it."""

import dataclasses
import hashlib
import json
import re
import shutil
from pathlib import Path

import pytest
import yaml
from command import Command
from environment_facts import GPU, HERE, installed, ok, stack
from loopback import Index, serving, wheel_bytes
from made_env import PROJECT, jax_env

from provision.config.options import Choices
from provision.detect import detect


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    """What jax takes for a GPU with CUDA 13 and 12 and for the CPU, and what else is asked for."""
    gpuenv = Command(tmp_path_factory.mktemp("plans"))
    held = Index()
    other = ("--python", other_python())
    for more in (GPU, ("--device", "cpu", *other), (*GPU, "--cuda", "12", *other), ("--device", "cpu")):
        ran = ok(gpuenv("resolve", "--framework", "jax", "--index", "pypi", "--json", *more))
        held.add_plan(ran.json)
        held.add("jax", ran.json["builds"][0]["version"])  # one wheel for each CUDA, as the real one is
    held.add("ipykernel", "7.4.0")
    for name in ("more", "extra-thing", "listed", "along", "beside"):
        held.add(name, "1.0")
    with serving(held) as running:
        yield running


def other_python() -> str:
    """A Python of this machine that is not the one gpuenv takes by itself; that one where there is no other."""
    minors = {".".join(p.version.split(".")[:2]) for p in detect({"pythons"}).pythons}
    return max(minors & {"3.11", "3.12", "3.13"} - {HERE}, default=HERE)


@pytest.fixture
def empty():
    with serving(Index()) as running:
        yield running


@pytest.fixture
def go(gpuenv, index):
    gpuenv.env["PIP_INDEX_URL"] = index.url
    return gpuenv


# --- ways to make it -------------------------------------------------------------------------------

TARGETS = "targets: {node: {driver: '580.65.06', gpus: [H100]}}\n"


def by_files(go):
    target = go("resolve", "--framework", "jax", *GPU, "--json").json["target"]
    (go.work / "node.json").write_text(json.dumps(target))
    (go.work / "asked.txt").write_text("listed\n")
    return ("--target", "node.json", "-r", "asked.txt")


def by_packages(go):
    links = go.work / "links"
    links.mkdir()
    (links / "away-1.0-py3-none-any.whl").write_bytes(wheel_bytes("away", "1.0"))
    text = '[project]\nname = "p"\nversion = "1"\ndependencies = ["jax"]\n[project.optional-dependencies]\nmore = ["extra-thing"]\n'
    (go.work / "pyproject.toml").write_text(text)
    options = (
        *GPU,
        "--kernel",
        "--with",
        "along",
        "--find-links",
        "links",
        "--with",
        "away",
        "--extra",
        "more",
    )
    file = go.work / "gpuenv.yaml"
    if not file.exists():
        return ("--project", ".", *options)
    file.write_text(file.read_text() + "project: .\n")
    return options


MAKES = {
    "files": by_files,
    "packages": by_packages,
    "cpu-python": lambda _: ("--device", "cpu", "--python", other_python()),
    "cuda-python": lambda _: (*GPU, "--cuda", "12", "--python", other_python()),
}
"""Each has several options: all of them have to be kept."""


WAYS = [
    ("packages", "project"),
    pytest.param("cpu-python", "options", marks=pytest.mark.slow),
    pytest.param("files", "options", marks=pytest.mark.slow),
    pytest.param("cuda-python", "project", marks=pytest.mark.slow),
    pytest.param("files", "project", marks=pytest.mark.slow),
    pytest.param("packages", "options", marks=pytest.mark.slow),
]


@pytest.fixture
def made(request, go):
    """An environment made in one way, in a project or by options alone; what made it, what changes it."""
    if request.param == "project":
        (go.work / "gpuenv.yaml").write_text('frameworks: ["jax"]\nindex: pypi\n' + TARGETS)

    def make(how):
        options = MAKES[how](go)
        named = () if request.param == "project" else ("--framework", "jax", "--index", "pypi")
        first = ("create", *named, *options, "--no-verify")
        ok(go(*first))
        return first

    make.in_project = request.param == "project"
    return make


@pytest.mark.parametrize(("how", "made"), WAYS, indirect=["made"])
def test_each_change_keeps_how_it_was_made(made, go, how):
    first = made(how)
    env = go.work / ".venv"
    before, held = installed(env), stack(env)
    changed = {
        "create": go("create", "--no-verify", "--json"),
        "the same create": go(*first, "--json"),
    }
    for name, ran in changed.items():
        assert ok(ran).json["environment"]["changed"] is False, name
    assert installed(env) == before and stack(env) == held
    ok(go("add", "more", "--no-verify"))
    assert installed(env) == {**before, "more": "1.0"} and stack(env) == held
    shutil.rmtree(next(env.glob("lib/python3*/site-packages/jax")))
    assert [p["name"] for p in ok(go("repair", "--no-verify", "--json")).json["packages"]] == ["jax"]
    assert ok(go("create", "--no-verify", "--json")).json["environment"]["changed"] is False
    assert installed(env) == {**before, "more": "1.0"} and stack(env) == held
    if made.in_project:  # outside of one, this create does not name the package that was added
        assert ok(go(*first, "--json")).json["environment"]["changed"] is False
        file = yaml.safe_load((go.work / "gpuenv.yaml").read_text())
        file["packages"].append("beside")
        (go.work / "gpuenv.yaml").write_text(yaml.safe_dump(file))
        ok(go("create", "--no-verify"))
        before["beside"] = "1.0"
        assert installed(env) == {**before, "more": "1.0"} and stack(env) == held
    ok(go("create", "--no-verify", "--recreate"))
    assert installed(env) == {**before, "more": "1.0"} and stack(env) == held
    if made.in_project:
        go.work = go.folder / "elsewhere"  # where the file of the project does not apply
        go.work.mkdir()
        ok(go("add", "listed", "--env", env, "--no-verify"))
        assert installed(env) == {**before, "more": "1.0", "listed": "1.0"} and stack(env) == held


# --- what is asked for by an option ----------------------------------------------------------------


def test_another_device_cuda_or_python_needs_recreate_which_remembers_all_other_options(go):
    (go.work / "asked.txt").write_text("along\n")
    env = go.work / ".venv"

    def refuses(options, said):
        held = stack(env), installed(env)
        ran = go("create", *options, "--json", "--no-verify")
        assert ran.code == 2 and said in ran.json["error"]["message"], ran.out
        assert "--recreate" in ran.json["error"]["hint"] and (stack(env), installed(env)) == held

    named = ("--framework", "jax", "--index", "pypi", "-r", "asked.txt")
    ok(go("create", *named, *GPU, "--no-verify"))
    refuses(("--device", "cpu"), "device: auto, now cpu")
    refuses(("--cuda", "12"), "cuda: none, now 12")
    refuses(("--driver", "570.26", "--gpu", "H100"), "driver: 580.65.06, now 570.26")
    ok(go("create", "--recreate", "--device", "cpu", "--no-verify"))
    assert stack(env)[0] == "cpu" and installed(env).keys() == {"jax", "jaxlib", "pip", "along"}
    refuses(GPU, "has device cpu, but needs cuda")
    refuses(("--python", "3.9"), "python: none, now 3.9")
    refuses(("--manager", "conda"), "manager: venv, now conda")
    above, go.work = go.work, go.work / "below"  # paths are remembered from any folder
    go.work.mkdir()
    ok(go("add", "more", "--env", "../.venv", "--no-verify"))
    assert stack(env)[0] == "cpu" and installed(env).keys() == {"jax", "jaxlib", "pip", "along", "more"}
    go.work = above
    ok(go("create", "--recreate", *GPU, "--no-verify"))
    assert stack(env)[0] == "cuda", "a machine that is named now is judged anew"


# --- made from a lock alone ------------------------------------------------------------------------


def test_an_environment_of_a_lock_keeps_what_the_lock_had(go):
    ok(go("lock", "--framework", "jax", "--index", "pypi", "--with", "along", *GPU))
    ok(go("create", "--locked", "--index", "pypi", *GPU, "--no-verify"))
    (go.work / "pylock.toml").unlink()
    env = go.work / ".venv"
    before, held = installed(env), stack(env)
    assert ok(go("create", "--no-verify", "--json")).json["environment"]["changed"] is False
    ok(go("add", "more", "--no-verify"))
    assert installed(env) == {**before, "more": "1.0"} and stack(env) == held
    assert ok(go("create", "--no-verify", "--json")).json["environment"]["changed"] is False


# --- where it is used ---------------------------------------------------------------------------------


def inputs_of_the_first_release(choices: dict, files: list[Path]) -> str:
    """The digest in a lock, as version 0.1.0 made it."""
    options = (
        "driver", "driver_os", "gpu", "gpus", "platform", "glibc", "python", "framework", "with_", "extra", "group",
        "cuda", "index", "manager", "channel", "device", "pre", "target_name", "indexes", "bundle",
    )  # fmt: skip
    counted = {name: choices[name] for name in options} | {"find_links": []}
    total = hashlib.sha256(f"1 {len(files)}".encode())
    for file in files:
        total.update(f"\0{file.name}\0{hashlib.sha256(file.read_bytes()).hexdigest()}".encode())
    return hashlib.sha256((json.dumps(counted, sort_keys=True) + total.hexdigest()).encode()).hexdigest()


def test_a_lock_of_the_first_release_is_known_again(go):
    file, path = go.work / "gpuenv.yaml", go.work / "pylock.toml"
    file.write_text("frameworks: [jax]\nindex: pypi\n")
    ok(go("lock", "--device", "cpu"))
    choices = dataclasses.asdict(Choices(device="cpu", framework=["jax"], index="pypi"))
    (written,) = re.findall(r'^inputs = "(\w+)"$', path.read_text(), re.MULTILINE)
    path.write_text(path.read_text().replace(written, inputs_of_the_first_release(choices, [file])))
    ok(go("lock", "--check", "--device", "cpu"))
    assert "is for other requirements" not in ok(go("create", "--locked", "--device", "cpu", "--dry-run")).err


def test_a_moved_project_has_nothing_to_install_and_can_be_changed(gpuenv, empty):
    go = gpuenv
    jax_env(go, empty, PROJECT)
    go.work.rename(go.work.with_name("moved"))
    go.work = go.work.with_name("moved")
    ran = ok(go("create", "--no-verify", "--json"))
    assert ran.json["environment"]["changed"] is False and "note: nothing to install" in ran.err
    ok(go("add", "more", "--no-verify"))
    assert installed(go.work / ".venv")["more"] == "1.0"
    assert str(go.work / ".venv") in go("list").out
