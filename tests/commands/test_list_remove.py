"""`gpuenv list` and `gpuenv remove`: what was made here is known, and nothing else is ever removed."""

import json
import os
import resource
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest
from environment_facts import HERE, ok
from framework_envs import venv
from made_env import JAX, jax_index
from powerless import shut
from programs import run_program

from provision.environment import place, registry
from provision.errors import BuildError
from provision.show import result as shown

WORKS = '{"verdict": {"env": "a", "python": "b", "verdict": "works"}, "under": {}}'


def pretended(env: Path, version="2.14.1", files=3):
    """An environment as `create` leaves it, without the packages."""
    mark = env / ".gpuenv"
    mark.mkdir(parents=True)
    build = {"framework": "torch", "version": version, "cuda": "12.6", "index": "pypi", "requirements": []}
    plan = {"schema": "gpuenv.plan/1", "builds": [{**build, "cudnn": "9.10.2.21"}], "cudnn": "9.10.2.21",
            "python": "3.12", "manager": "venv", "platform": "linux-x86_64", "device": "cuda",
            "target": {"platform": "linux-x86_64"}}  # fmt: skip
    (mark / "plan.json").write_text(json.dumps(plan))
    site = env / "lib" / "python3.12" / "site-packages" / "torch"
    site.mkdir(parents=True)
    for i in range(files):
        (site / f"{i}.py").write_text("x" * 5000)
    (env / "bin").mkdir()
    (env / "bin" / "python").symlink_to(sys.executable)
    (env / "pyvenv.cfg").write_text(f"home = {Path(sys.executable).parent}\n")
    return env


@pytest.fixture
def data(gpuenv, monkeypatch):
    """The test's own registry, for this process as well as for the command."""
    folder = gpuenv.folder / "data"
    monkeypatch.setenv("XDG_DATA_HOME", str(folder))
    gpuenv.env["XDG_DATA_HOME"] = str(folder)
    return folder / "gpuenv" / "environments"


@pytest.fixture
def made(gpuenv, data):
    """Two environments that are in the registry."""
    envs = [pretended(gpuenv.work / name) for name in (".venv", "other")]
    for env in envs:
        registry.add(env)
    return envs


@pytest.fixture
def jax(gpuenv, index):
    """A real `create` of tiny wheels."""
    jax_index(gpuenv, index)
    return lambda *more: gpuenv("create", *JAX, "--no-verify", *more)


def listed(gpuenv):
    ran = ok(gpuenv("list", "--json"))
    assert set(ran.json) == {"schema", "environments"} and ran.json["schema"] == "gpuenv.list/1"
    return {e["path"]: e for e in ran.json["environments"]}


# --- the registry --------------------------------------------------------------------------------


def test_what_create_makes_is_listed_and_what_remove_takes_is_not(jax, gpuenv, made):
    here = gpuenv.work / "umgebung für Jürgen's GPU/my env"
    assert jax(here).code == 0
    envs = listed(gpuenv)
    assert set(envs) == {*map(str, made), str(here)}
    one = envs[str(here)]
    assert set(one) == {"path", "manager", "frameworks", "cuda", "cudnn", "python", "verdict", "verified", "bytes",
                        "shared_bytes"}  # fmt: skip
    assert one["manager"] == "venv" and one["python"] == HERE and one["verdict"] is one["verified"] is None
    (framework,) = one["frameworks"]
    assert framework["name"] == "jax" and framework["cuda"] is one["cuda"] is one["cudnn"] is None
    ran = ok(gpuenv("remove", here, "--json"))
    (gone,) = ran.json["removed"]
    assert ran.json["schema"] == "gpuenv.remove/1" and gone["path"] == str(here)
    assert 0 < gone["freed_bytes"] < one["bytes"] <= gone["bytes"], (
        "uv's cache holds the wheels' files as well"
    )
    assert not here.exists() and set(listed(gpuenv)) == {*map(str, made)}


def test_creates_at_the_same_time_are_all_listed(jax, gpuenv):
    with ThreadPoolExecutor(4) as pool:
        ran = list(pool.map(lambda i: jax(f"env{i}"), range(4)))
    assert [r.code for r in ran] == [0] * 4, [r.err for r in ran]
    assert set(listed(gpuenv)) == {str(gpuenv.work / f"env{i}") for i in range(4)}


def test_many_processes_write_one_list_and_lose_no_entry(gpuenv, data):
    """Processes that add, list and forget at the same time: what was added and not forgotten is there."""
    code = (
        "import sys; from pathlib import Path; from provision.environment import registry; n = sys.argv[1]\n"
        "for i in range(20):\n"
        "    env = Path(sys.argv[2], f'{n}-{i}'); (env / '.gpuenv').mkdir(parents=True); registry.add(env)\n"
        "    registry.list_environments()\n"
        "    if i % 2: registry.forget(env)\n"
    )
    children = [
        subprocess.Popen([sys.executable, "-c", code, str(n), str(gpuenv.work)], env=gpuenv.env)
        for n in range(4)
    ]
    assert [c.wait(60) for c in children] == [0] * 4
    assert registry.list_environments() == sorted(
        gpuenv.work / f"{n}-{i}" for n in range(4) for i in range(0, 20, 2)
    )
    assert len(list(data.iterdir())) == 40, "nothing but entries is left"


def test_create_uses_a_temporary_folder_where_home_cannot_be_written(jax, gpuenv):
    """Nowhere for the cache and the list: a folder among the temporary ones, with a note, and it is built."""
    for name in ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "UV_CACHE_DIR"):
        del gpuenv.env[name]
    temporary = gpuenv.folder / "tmp"
    temporary.mkdir()
    gpuenv.env |= {"HOME": "/proc", "TMPDIR": str(temporary)}
    ran = jax("--json")
    assert ran.code == 0 and ran.json["environment"]["changed"], ran.err
    own = temporary / f"gpuenv-{os.getuid()}"
    assert f"/proc/.cache cannot be written. Using {own}/.cache, " in ran.err
    assert own.stat().st_mode & 0o777 == 0o700
    assert {p.name for p in (own / ".cache").iterdir()} >= {"gpuenv", "uv"}
    assert jax().code == 0 and gpuenv("remove", ".venv").code == 0
    # a list that is to be elsewhere and cannot be written there costs the entry alone
    gpuenv.env["XDG_DATA_HOME"] = "/proc/nowhere"
    ran = jax("--json")
    assert ran.code == 0 and ran.json["environment"]["changed"]
    assert "/proc/nowhere" in ran.err and "list of environments" in ran.err
    assert listed(gpuenv) == {}
    assert gpuenv("repair", "--no-verify").code == 2, "no list vouches for its record"
    ran = gpuenv("remove", ".venv", "--json")
    assert ran.code == 0 and not (gpuenv.work / ".venv").exists()


def test_a_temporary_folder_of_somebody_else_is_not_taken(gpuenv):
    """Whoever can write there could put packages into the cache."""
    temporary = gpuenv.folder / "tmp"
    theirs = temporary / f"gpuenv-{os.getuid()}"
    theirs.mkdir(parents=True)
    theirs.chmod(0o777)
    del gpuenv.env["XDG_CACHE_HOME"]
    gpuenv.env |= {"HOME": "/proc/nowhere", "TMPDIR": str(temporary)}
    ran = gpuenv("resolve", "--framework", "torch", "--gpu", "9.0", "--python", "3.12", "-q")
    assert ran.code == 0 and list(theirs.iterdir()) == []
    assert len(list(temporary.glob("gpuenv-*"))) == 2


def test_a_user_that_nobody_knows_gets_a_home(gpuenv):
    """As in containers: no HOME, and the user database has no answer. Only root can become such a user."""
    if os.getuid() != 0:
        pytest.skip("needs root, to become a user that nobody knows")
    code = (
        "import os, tempfile, platformdirs; from provision.system import trust; from provision.environment import registry\n"
        "os.environ.pop('HOME'); os.setuid(54321)\n"
        "try: registry.folder()\n"
        "except Exception as error: print(type(error).__name__)\n"
        "print(trust.choose_home(), registry.folder(), sep='\\n')"
    )
    env = {k: v for k, v in gpuenv.env.items() if not k.startswith("XDG")}
    gpuenv.folder.chmod(0o777)
    env["TMPDIR"] = "/tmp"
    done = run_program([sys.executable, "-c", code], env=env, check=True)
    failed, note, folder = done.stdout.splitlines()
    assert failed == "BuildError" and "no home folder" in note and "Using /tmp/gpuenv-54321," in note
    assert folder == "/tmp/gpuenv-54321/.local/share/gpuenv/environments"
    Path("/tmp/gpuenv-54321").rmdir()


def test_a_home_that_is_only_named_is_not_made(gpuenv):
    """Users like `nobody` have one that is not there: /nonexistent."""
    missing, temporary = gpuenv.folder / "nowhere", gpuenv.folder / "tmp"
    temporary.mkdir()
    del gpuenv.env["XDG_CACHE_HOME"]
    gpuenv.env |= {"HOME": str(missing), "TMPDIR": str(temporary)}
    ran = gpuenv("resolve", "--framework", "torch", "--gpu", "9.0", "--python", "3.12")
    assert ran.code == 0 and f"the home folder {missing} does not exist" in " ".join(ran.err.split())
    assert not missing.exists()


def test_what_was_deleted_by_hand_leaves_the_list_and_the_registry(gpuenv, made, data):
    subprocess.run(["rm", "-r", made[0]], check=True)
    subprocess.run(["rm", "-r", made[1] / ".gpuenv"], check=True)
    assert listed(gpuenv) == {}
    assert len(list(data.iterdir())) == 2, "they may have been moved"
    for entry in data.iterdir():
        os.utime(entry, (0, 0))
    assert listed(gpuenv) == {}
    assert list(data.iterdir()) == []


def test_a_moved_environment_is_known_after_a_list(made, gpuenv):
    record = frozenset({"lock.json abc"})
    registry.add(made[0], record=record)
    moved = made[0].rename(made[0].with_name("moved"))
    assert str(moved) not in listed(gpuenv)
    assert registry.move_entry(moved, record)
    assert str(moved) in listed(gpuenv)


def test_an_environment_that_is_being_swapped_is_not_forgotten(gpuenv, made, data):
    made[0].rename(place.get_old_path(made[0]))
    assert set(listed(gpuenv)) == {str(made[1])}
    place.get_old_path(made[0]).rename(made[0])
    assert set(listed(gpuenv)) == {str(e) for e in made}


@pytest.mark.parametrize("text", ["", "{", "[]", '{"path": 5}', '{"path": "relative"}', "\x00\xff"])
def test_an_entry_that_cannot_be_read_is_dropped(gpuenv, made, data, text):
    (data / "x.json").write_bytes(text.encode("latin-1"))
    assert set(listed(gpuenv)) == {str(e) for e in made}
    assert not (data / "x.json").exists()


def test_a_disk_that_cannot_be_read_is_not_taken_for_a_removed_environment(made, data, monkeypatch):
    env = made[0]
    with shut(env.parent):
        assert not registry._is_there(env) and not registry._is_gone(env)
        assert registry.list_environments() == [] and list(registry._scan_folder(str(env))) == []
    assert registry.list_environments() == sorted(made)
    assert not registry._is_old(data / "removed by another run")
    here = registry.measure(env)
    device = env.stat().st_dev
    monkeypatch.setattr(os, "lstat", lambda _: SimpleNamespace(st_dev=device + 1))
    assert here.bytes and registry.measure(env).bytes == 0  # files of another file system are not its own


def test_an_entry_that_cannot_be_removed_is_an_error_and_no_home_means_no_list(made, data, monkeypatch):
    entry = registry._get_entry(made[0])
    entry.unlink()
    entry.mkdir()
    with pytest.raises(BuildError, match="cannot be written"):
        registry.forget(made[0])
    monkeypatch.setattr("platformdirs.user_data_dir", lambda _: "~")
    assert registry.list_environments() == []


def test_a_damaged_environment_is_listed_with_what_is_known(gpuenv, made):
    (made[1] / ".gpuenv" / "verdict.json").write_text(WORKS)
    for plan, verdict in (
        ('{"builds": [{}]}', '{"verdict": 5}'),
        ('{"builds": 5, "python": [1]}', "[]"),
        ("{", "{"),
    ):
        (made[0] / ".gpuenv" / "plan.json").write_text(plan)
        (made[0] / ".gpuenv" / "verdict.json").write_text(verdict)
        assert listed(gpuenv)[str(made[0])]["verdict"] is None
    size = made[0] / ".gpuenv" / "size.json"
    size.write_text(json.dumps({**json.loads(size.read_text()), "bytes": "many"}))
    envs = listed(gpuenv)
    assert envs[str(made[0])]["frameworks"] == [] and envs[str(made[0])]["bytes"] > 0
    assert envs[str(made[1])]["verdict"] == "works" and envs[str(made[1])]["verified"].endswith("+00:00")


def test_a_path_that_is_not_utf_8_is_listed(gpuenv, data):
    env = pretended(Path(os.fsdecode(os.fsencode(gpuenv.work) + b"/caf\xe9")))
    registry.add(env)
    (path,) = listed(gpuenv)
    assert path.endswith("caf\\udce9")
    assert gpuenv("list").code == 0


# --- the table and the sizes -----------------------------------------------------------------------


def test_the_table_fits_80_columns_and_loses_nothing(gpuenv, made, data):
    gpuenv.env["COLUMNS"] = "80"
    deep = pretended(
        gpuenv.work / ("a-folder-with-a-name-that-is-far-too-long-for-one-row" * 2) / "b" / "env"
    )
    registry.add(deep)
    (deep / ".gpuenv" / "verdict.json").write_text(WORKS.replace("works", "wrong"))
    ran = gpuenv("list")
    rows = ran.out.splitlines()
    assert ran.code == 0 and max(map(len, rows)) <= 80, ran.out
    column = rows[0].index("MADE FOR")
    joined = "".join(r[:column].strip() for r in rows[1:])
    assert all(str(env) in joined for env in (*made, deep)), joined
    for word in ("torch 2.14.1", "CUDA 12.6", "cuDNN", "9.10.2.21", "3.12", "wrong", "ENVIRONMENT"):
        assert word in ran.out


def test_the_home_folder_is_listed_as_a_tilde(gpuenv, data):
    registry.add(pretended(gpuenv.folder / "home" / "p"))
    assert gpuenv("list").out.splitlines()[1].startswith("~/p ")


def test_an_empty_list_says_so(gpuenv):
    assert ok(gpuenv("list")).out == "no environments of gpuenv on this machine\n"


def test_sizes_are_those_of_du(gpuenv, made, data):
    env = made[0]
    (env / "twice").write_bytes(b"y" * 100_000)
    os.link(env / "twice", env / "again")
    (env / "cached").write_bytes(b"z" * 50_000)
    os.link(env / "cached", gpuenv.folder / "cache-of-uv")
    (env / "away").symlink_to("/usr")
    told = run_program(["du", "-s", "--block-size=1", env], check=True)
    size = registry.measure(env)
    root = env.lstat().st_blocks * 512
    assert size.bytes + root == int(told.stdout.split()[0])
    assert size.shared == (env / "cached").stat().st_blocks * 512
    assert registry.measure(env, 0.0) is None
    assert registry.measure(gpuenv.work / "nothing").bytes == 0


def test_a_measured_size_is_kept_until_packages_change(gpuenv, made):
    first = listed(gpuenv)[str(made[0])]["bytes"]
    (made[0] / "more").write_bytes(b"y" * 100_000)
    assert listed(gpuenv)[str(made[0])]["bytes"] == first, "within some minutes it is taken as it was"
    info = made[0] / "lib/python3.12/site-packages/x-1.dist-info"
    info.mkdir()
    (info / "RECORD").write_text("")
    assert listed(gpuenv)[str(made[0])]["bytes"] > first + 99_000


def test_fifty_environments_are_listed_in_a_moment(gpuenv, data):
    """With sizes that are known, in no more than three times what an empty list costs."""
    gpuenv.servers = None  # what is measured is a child of this process

    def cost(count):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert len(listed(gpuenv)) == count
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    empty = min(cost(0) for _ in range(2))
    for i in range(50):
        registry.add(pretended(gpuenv.work / f"env{i:02}", files=100))
    cost(50)
    assert min(cost(50) for _ in range(2)) < 3 * empty


def test_sizes_are_shown_with_decimal_units():
    assert [shown.format_bytes(n) for n in (0, 999, 1000, 12_345, 999_499, 999_600, 2_440_000_000)] == [
        "0 B", "999 B", "1 kB", "12 kB", "999 kB", "1 MB", "2.4 GB",
    ]  # fmt: skip


# --- remove ----------------------------------------------------------------------------------------


def left(folder: Path):
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*"))


def refused(gpuenv, *words, code=2):
    before = left(gpuenv.work)
    ran = gpuenv("remove", *words, "--json")
    assert ran.code == code, ran.out
    assert left(gpuenv.work) == before, "something was touched"
    return ran.json["error"]["message"]


def test_remove_takes_several_environments_at_once(gpuenv, made):
    gpuenv.env["COLUMNS"] = "200"
    ran = gpuenv("remove", ".venv", "other", ".venv")
    assert ran.code == 0 and ran.out.count("removed") == 2 and "freed" in ran.out, ran.err
    assert left(gpuenv.work) == [] and listed(gpuenv) == {}


def test_nothing_goes_when_one_of_them_is_refused(gpuenv, made):
    assert "does not exist" in refused(gpuenv, ".venv", "nowhere", "other")


def test_remove_refuses_a_folder_that_gpuenv_did_not_make(gpuenv, made):
    (gpuenv.work / "thesis").mkdir()
    (gpuenv.work / "thesis" / "pyvenv.cfg").write_text("")
    assert "did not make" in refused(gpuenv, "thesis")
    (gpuenv.work / "thesis" / ".gpuenv").mkdir()
    assert "but is not an environment" in refused(gpuenv, "thesis")
    (gpuenv.work / "thesis" / ".gpuenv").rmdir()
    (gpuenv.work / "thesis" / ".gpuenv").symlink_to(made[0] / ".gpuenv")
    assert "did not make" in refused(gpuenv, "thesis")


def test_remove_refuses_a_file_and_an_empty_list(gpuenv):
    (gpuenv.work / "file").write_text("")
    assert "is a file" in refused(gpuenv, "file")
    assert gpuenv("remove").code == 2


def test_a_link_is_never_followed(gpuenv, made):
    (gpuenv.work / "link").symlink_to(made[0])
    assert "symbolic link" in refused(gpuenv, "link")
    assert "symbolic link" in refused(gpuenv, "link/")
    (gpuenv.work / "folder").mkdir()
    (gpuenv.work / "folder" / "precious").write_text("mine")
    (made[0] / "lib" / "link").symlink_to(gpuenv.work / "folder")
    (made[1] / "bin" / "file").symlink_to(gpuenv.work / "folder" / "precious")
    assert gpuenv("remove", *made).code == 0
    assert (gpuenv.work / "folder" / "precious").read_text() == "mine"


def test_remove_refuses_the_folder_that_the_user_is_inside(gpuenv, made):
    gpuenv.work = made[0] / "lib"
    assert "you are inside" in refused(gpuenv, "..")
    assert (made[0] / "bin" / "python").exists()
    gpuenv.env["HOME"] = str(made[1] / "lib")
    assert "your home folder" in refused(gpuenv, made[1])


def test_remove_refuses_the_environment_that_gpuenv_runs_from(gpuenv):
    """A venv that has gpuenv in it and that bears the mark."""
    env = gpuenv.work / "tool"
    venv(env)
    pretended(gpuenv.work / "x")
    (gpuenv.work / "x" / ".gpuenv").rename(env / ".gpuenv")
    site = next(env.glob("lib/python*/site-packages"))
    (site / "dev.pth").write_text("\n".join(p for p in sys.path if p) + "\n")
    done = run_program(
        [env / "bin" / "python", "-m", "provision", "remove", env], env=gpuenv.env, cwd=gpuenv.work
    )
    assert done.returncode == 2 and "this gpuenv runs from" in done.stderr, done.stderr
    assert (env / "bin" / "python").exists()


def test_remove_refuses_an_environment_that_another_gpuenv_holds(gpuenv, made):
    with place.lock_place(made[0]):
        assert "another gpuenv" in refused(gpuenv, ".venv", code=7)
    assert gpuenv("remove", ".venv").code == 0


def test_remove_refuses_an_environment_with_a_mounted_disk_inside(gpuenv, made):
    inside = made[0] / "lib" / "my data"
    inside.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "none", inside], capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip(f"needs the right to mount: {mounted.stderr.decode().strip()}")
    try:
        (inside / "precious").write_text("mine")
        assert "mounted" in refused(gpuenv, ".venv")
    finally:
        subprocess.run(["umount", inside], check=True)


def test_what_interrupted_runs_left_goes_too(gpuenv, made):
    for path in (place.get_draft_path(made[0]), place.get_old_path(made[0])):
        pretended(path)
    mine = gpuenv.work / "..venv.gpuenv-mine"
    mine.mkdir()
    assert gpuenv("remove", ".venv").code == 0
    assert left(gpuenv.work)[0] == mine.name and not list(gpuenv.work.glob(".venv*"))


INTERRUPTED = """
import os, sys
from provision.__main__ import main

removed = 0

def count(event, _arguments):
    global removed
    removed += event == "os.remove"
    if event == "os.remove" and removed == 1000:
        os.kill(os.getpid(), SIGNAL)

sys.addaudithook(count)
main()
"""
"""gpuenv that is sent a signal when it removes its thousandth file."""


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGINT])
def test_an_interrupted_removal_is_finished_by_the_next(gpuenv, made, sent):
    env = made[0]
    for i in range(120):
        folder = env / "lib" / f"package{i}"
        folder.mkdir()
        for j in range(25):
            (folder / f"{j}.py").touch()
    argv = [sys.executable, "-c", INTERRUPTED.replace("SIGNAL", str(int(sent))), "remove", ".venv"]
    child = subprocess.run(
        argv, env=gpuenv.env, cwd=gpuenv.work, capture_output=True, check=False, timeout=300
    )
    err = child.stderr
    assert child.returncode != 0 and not env.exists()
    assert place.made_by_gpuenv(place.get_draft_path(env)), "what is left is not known as ours"
    if sent == signal.SIGINT:
        assert child.returncode == 130 and b"interrupted\nhint: run the same command again" in err
    assert set(listed(gpuenv)) == {str(made[1])}
    assert gpuenv("remove", ".venv").code == 0
    assert [p.name for p in gpuenv.work.iterdir()] == ["other"]


def test_remove_takes_an_environment_of_which_only_the_mark_is_left(gpuenv, made):
    subprocess.run(["find", made[0], "-mindepth", "1", "!", "-path", "*/.gpuenv", "-delete"], check=True)
    assert left(made[0]) == [".gpuenv"]
    assert gpuenv("remove", ".venv").code == 0 and not made[0].exists()


def test_remove_says_that_an_environment_deleted_by_hand_does_not_exist(gpuenv, made):
    subprocess.run(["rm", "-r", made[0]], check=True)
    assert "does not exist" in refused(gpuenv, ".venv")
    assert gpuenv("remove", "other").code == 0


def test_a_conda_environment_leaves_condas_list(gpuenv, made):
    known = gpuenv.folder / "home" / ".conda" / "environments.txt"
    known.parent.mkdir()
    known.write_text(f"/opt/conda\n{made[0]}\n")
    assert gpuenv("remove", ".venv").code == 0
    assert known.read_text() == "/opt/conda\n"


def test_remove_of_the_active_environment_says_how_to_leave_it(gpuenv, made):
    gpuenv.env["VIRTUAL_ENV"] = str(made[0])
    assert "deactivate" in ok(gpuenv("remove", ".venv")).err


def test_a_real_conda_environment_is_listed_and_removed(gpuenv):
    import conda_channel as cc

    gpuenv.env["RATTLER_CACHE_DIR"] = str(cc.home() / "rattler-cache")
    ask = ("--manager", "conda", "--framework", "jax", "--device", "cpu", "--channel", cc.small())
    ok(gpuenv("create", "env", *ask, "--no-verify", "--json"))
    (one,) = listed(gpuenv).values()
    assert one["manager"] == "conda" and one["frameworks"][0]["name"] == "jax" and one["shared_bytes"] > 0
    known = gpuenv.folder / "home" / ".conda" / "environments.txt"
    assert known.read_text() == f"{gpuenv.work / 'env'}\n"
    ran = gpuenv("remove", "env", "--json")
    (gone,) = ran.json["removed"]
    assert ran.code == 0 and gone["freed_bytes"] < gone["bytes"]
    assert known.read_text() == "" and listed(gpuenv) == {} and not list(gpuenv.work.iterdir())
