"""`create --locked` installs the lock where it is what the project asks for, and stops where it is not; `--frozen`
takes it unchecked."""

import pytest
from command import Command
from environment_facts import GPU, installed, ok, refused
from loopback import Index, serving
from made_env import copied

CPU = ("--device", "cpu")


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    gpuenv = Command(tmp_path_factory.mktemp("plans"))
    held = Index()
    for more in (GPU, CPU):
        held.add_plan(ok(gpuenv("resolve", "--framework", "jax", "--index", "pypi", "--json", *more)).json)
    held.add("jax", next(iter(held.wheels["jax"])).split("-")[1])
    held.add("listed", "1.0")
    held.add("more", "1.0")
    with serving(held) as running:
        yield running


def lock(gpuenv, index):
    """A project with a lock for the CPU."""
    gpuenv.env["PIP_INDEX_URL"] = index.url
    (gpuenv.work / "asked.txt").write_text("listed\n")
    (gpuenv.work / "gpuenv.yaml").write_text("frameworks: [jax]\nindex: pypi\nrequirements: [asked.txt]\n")
    ok(gpuenv("lock", *CPU))
    return gpuenv


@pytest.fixture
def go(gpuenv, index):
    return lock(gpuenv, index)


@pytest.fixture(scope="module")
def once_made(tmp_path_factory, index):
    gpuenv = lock(Command(tmp_path_factory.mktemp("made") / "jax"), index)
    ok(gpuenv("create", "--locked", *CPU, "--no-verify"))
    return gpuenv


@pytest.fixture
def made(once_made, tmp_path):
    """The project with the environment of its lock."""
    return copied(once_made, tmp_path / "copy")


@pytest.mark.usefixtures("real_uv")
def test_a_lock_that_is_what_is_asked_for_is_installed_without_a_question_to_an_index(made, index):
    asked = sum(index.requests.values())
    ok(made("create", "new", "--locked", *CPU, "--no-verify"))
    assert sum(index.requests.values()) == asked
    assert installed(made.work / "new").keys() == {"jax", "jaxlib", "pip", "listed"}


def test_locked_and_frozen_stop_without_a_lock(made):
    go = made
    (go.work / "pylock.toml").unlink()
    for option in ("--locked", "--frozen"):
        for env in (".venv", "new"):
            ran = refused(go("create", env, option, *CPU, "--no-verify", "--json"), 6)
            assert "pylock.toml is missing" in ran.json["error"]["message"]
            assert "gpuenv lock" in ran.json["error"]["hint"]
        assert ".venv/.gpuenv/pylock.toml" in go("create", option, *CPU).err
    assert not (go.work / "new").exists()


CHANGES = [
    ("asked.txt", "listed\nmore\n", "more: not locked -> 1.0"),
    ("asked.txt", "", "listed: 1.0 -> not needed"),
    ("asked.txt", "listed>1\n", "cannot be compared"),
    ("gpuenv.yaml", "frameworks: [jax]\npackages: [more]\n", "more: not locked"),
    ("gpuenv.yaml", "frameworks: ['jax<0.5']\n", "cannot be compared"),
]


def test_a_lock_that_is_not_what_is_asked_for_stops_and_frozen_takes_it(made):
    go = made
    before = installed(go.work / ".venv")
    for number, (name, text, said) in enumerate(CHANGES):
        asked = (go.work / name).read_text()
        (go.work / name).write_text(text)
        for more in ((), ("--recreate",))[: 1 + (number == 0)]:
            ran = go("create", "--locked", *CPU, "--no-verify", *more)
            assert ran.code == 6 and said in ran.err, ran.out + ran.err
            assert "--frozen" in ran.err and "gpuenv lock" in ran.err
        assert installed(go.work / ".venv") == before
        if number in (0, 4):
            ok(go("create", "--frozen", *CPU, "--no-verify"))
            assert installed(go.work / ".venv") == before
        (go.work / name).write_text(asked)


def test_locked_accepts_a_changed_file_that_asks_for_the_same(made):
    (made.work / "asked.txt").write_text("# what we use\nlisted>=1\n")
    ran = ok(made("create", "--locked", *CPU, "--no-verify"))
    assert "is for other requirements" in ran.err


def test_locked_compares_a_lock_that_was_edited_by_hand(go):
    path = go.work / "pylock.toml"
    parts = path.read_text().split("[[packages]]\n")
    path.write_text("[[packages]]\n".join(p for p in parts if 'name = "listed"' not in p))
    assert "listed: not locked -> 1.0" in refused(go("create", "--locked", *CPU, "--no-verify"), 6).err


def test_the_machine_is_no_part_of_what_is_asked_for(go):
    """A lock made for a named driver serves a newer one; the same lock for the CPU does not fit a GPU asked for."""
    ok(go("lock", *GPU))
    ran = ok(go("create", "--locked", "--driver", "580.95.05", "--gpu", "H100", "--dry-run", "--json"))
    assert "is for other requirements" not in ran.err and ran.json["device"] == "cuda"
    assert "nvidia" in refused(go("create", "new", "--locked", "--device", "cpu", "--no-verify"), 6).err


def test_locked_says_offline_that_it_cannot_compare(go):
    (go.work / "asked.txt").write_text("listed\nmore\n")
    ran = go("create", "--locked", "--offline", "--cache-dir", "empty", *CPU, "--no-verify")
    assert ran.code == 6 and "cannot be compared" in ran.err and "--frozen" in ran.err


def test_locked_and_frozen_exclude_each_other(go):
    assert "cannot be used together" in refused(go("create", "--locked", "--frozen"), 2).err


MARKERS = "<<<<<<< HEAD\n{0}=======\n{0}>>>>>>> theirs\n"


def test_verify_locked_compares_with_the_lock_of_the_project(made):
    """The jax of this index cannot be imported, so the verdict is always `fails`."""
    go = made

    def compared():
        ran = go("verify", "--locked", "--json")
        return next(s for s in ran.json["stages"] if s["stage"] == "lock")

    assert compared()["status"] == "pass"
    (go.work / "asked.txt").write_text("listed\nmore\n")
    ok(go("lock", *CPU))
    assert compared()["status"] == "fail" and "more" in compared()["detail"]
    fixes = [f["fix"] for f in go("verify", "--locked", "--json").json["findings"]]
    assert any("gpuenv sync" in fix for fix in fixes), fixes
    assert not any("gpuenv repair" in fix for fix in fixes), "it restores the environment's own lock"
    go.work.rename(go.work.with_name("moved"))
    go.work = go.work.with_name("moved")
    assert compared()["status"] == "fail" and "more" in compared()["detail"]
    (go.work / "pylock.toml").unlink()
    assert compared()["status"] == "pass", "without one, with the environment's own"


def test_merge_markers_in_a_lock_are_named_with_the_command_that_ends_them(made):
    go = made
    (go.work / "gpuenv.yaml").write_text("frameworks: [jax]\nindex: pypi\npackages: [listed]\n")
    ok(go("lock", *CPU))
    ok(go("create", *CPU, "--no-verify"))
    lock = go.work / "pylock.toml"
    marked = MARKERS.format(lock.read_text())
    lock.write_text(marked)
    for argv in (
        ("verify", "--locked"), ("create", *CPU), ("create", "--locked", *CPU), ("lock", "--check", *CPU), ("add", "more"),
        ("drop", "listed"),
    ):  # fmt: skip
        ran = go(*argv, "--json")
        told = ran.json["error"]
        assert ran.code == 6 and "pylock.toml has merge conflict markers (line 1)" in told["message"], argv
        assert "gpuenv lock" in told["hint"] and lock.read_text() == marked, argv
    ran = ok(go("lock", *CPU))  # without --force
    assert "<<<" not in lock.read_text()
    assert "pylock.toml has merge conflict markers (line 1); its versions are not kept" in " ".join(
        ran.err.split()
    )
    ok(go("create", "--locked", *CPU, "--no-verify"))


def test_merge_markers_in_the_projects_file_are_named(made):
    go = made
    (go.work / "gpuenv.yaml").unlink()
    files = {
        "gpuenv.yaml": "frameworks: [jax]\n",
        "pyproject.toml": '[tool.gpuenv]\nframeworks = ["jax"]\n',
    }
    for name, text in files.items():
        (go.work / name).write_text(MARKERS.format(text))
        for argv in (("create",), ("lock",), ("resolve",), ("add", "more")):
            ran = go(*argv)
            assert ran.code == 3, (name, argv)
            assert "merge conflict markers: " in ran.err, (name, argv)
        (go.work / name).unlink()
