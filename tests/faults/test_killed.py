"""What a run that is killed at the worst moment leaves, and what the next one makes of it. Blows at random
moments and at each step of a run: tests/faults/kills.py."""

import contextlib
import errno
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from environment_facts import ok
from made_env import JAX, jax_env
from powerless import shut
from programs import run_program

from provision import __main__
from provision.environment import place, transaction
from provision.errors import BuildError
from provision.system.files import write_file
from provision.system.scratch import _sweep, make_scratch

ASK = (*JAX, "--no-verify")


@pytest.fixture
def jax(gpuenv, index):
    """`gpuenv create` of tiny wheels, with `kept` in two versions. Version 1.0 is in `.venv`."""
    jax_env(gpuenv, index, "", "--with", "kept==1.0")
    (gpuenv.folder / "tmp").mkdir()
    gpuenv.env |= {"TMPDIR": str(gpuenv.folder / "tmp")}

    def create(*more):
        return ok(gpuenv("create", *ASK, *more))

    return create


def version(gpuenv):
    code = "import importlib.metadata as m; print(m.version('kept'))"
    python = gpuenv.work / ".venv" / "bin" / "python"
    return run_program([python, "-c", code], check=True).stdout.strip()


def test_a_change_that_is_killed_leaves_the_old_environment_and_the_next_run_nothing_else(jax, gpuenv, index):
    index.faults["kept-2.0-py3-none-any.whl"] = "stalled"
    argv = [sys.executable, "-m", "provision", "create", *ASK, "--with", "kept==2.0"]
    child = subprocess.Popen(
        argv, env=gpuenv.env, cwd=gpuenv.work, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    assert index.stalled.wait(300)
    child.send_signal(signal.SIGKILL)
    child.wait(30)
    index.released.set()
    index.faults.clear()
    assert version(gpuenv) == "1.0"
    jax("--with", "kept==1.0")
    assert version(gpuenv) == "1.0" and [p.name for p in gpuenv.work.iterdir()] == [".venv"]
    jax("--with", "kept==2.0")
    assert version(gpuenv) == "2.0" and [p.name for p in gpuenv.work.iterdir()] == [".venv"]
    assert not [p for p in (gpuenv.work / ".venv" / ".gpuenv").iterdir() if p.name.startswith(".")]
    assert not [p for p in (gpuenv.folder / "tmp").iterdir() if "gpuenv" in p.name]


FETCH = """
from pathlib import Path
from provision.wheels import pylock as lock
from provision.environment.install import install_packages
from provision.environment.uv_install import UvInstall
from provision.model import PackageSources
env = Path(".venv")
install_packages(
    UvInstall(lock.read_env_lock(env / ".gpuenv"), env, PackageSources(default=INDEX), lambda _event: None, target=Path("fetched"))
)
"""


def test_a_killed_download_leaves_nothing_in_an_existing_environment(jax, gpuenv, index):
    mark = gpuenv.work / ".venv" / ".gpuenv"
    kept = sorted(p.name for p in mark.iterdir())
    index.faults["kept-1.0-py3-none-any.whl"] = "stalled"
    child = subprocess.Popen(
        [sys.executable, "-c", FETCH.replace("INDEX", repr(index.url))],
        env=gpuenv.env, cwd=gpuenv.work, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert index.stalled.wait(300)
    meanwhile = sorted(p.name for p in mark.iterdir())
    child.send_signal(signal.SIGINT)
    err = child.communicate(timeout=300)[1]
    index.released.set()
    assert "KeyboardInterrupt" in err
    assert meanwhile == kept  # a kill at that moment would leave what is there
    assert sorted(p.name for p in mark.iterdir()) == kept
    assert not (gpuenv.work / "requirements.txt").exists()


def test_no_script_names_the_place_where_it_was_made(jax, gpuenv):
    """The rename is the last thing that is done to a new environment: nothing is to be mended after it."""
    env = gpuenv.work / "Jürgen's $HOME env"
    jax(env)
    scripts = [p for p in (env / "bin").iterdir() if p.is_file() and not p.is_symlink()]
    assert scripts and not [p for p in [*scripts, env / "pyvenv.cfg"] if b"gpuenv-new" in p.read_bytes()]
    script = f'. "{str(env).replace("$", chr(92) + "$")}/bin/activate" && echo "$VIRTUAL_ENV"'
    done = run_program(["bash", "-c", script], check=True)
    assert done.stdout.strip() == str(env)


def test_an_interrupt_at_any_moment_ends_with_130(monkeypatch, capsys):
    def interrupted(_argv):
        raise KeyboardInterrupt

    monkeypatch.setattr("provision.cli.run", interrupted)
    before = signal.getsignal(signal.SIGINT)
    try:
        with pytest.raises(SystemExit) as ended:
            __main__.main()
    finally:
        signal.signal(signal.SIGINT, before)
    assert ended.value.code == 130 and "interrupted" in capsys.readouterr().err


def made(path):
    (path / place.MARK).mkdir(parents=True)
    (path / place.MARK / "plan.json").write_text("{}")
    (path / "file").touch()
    return path


def test_a_draft_that_vanishes_under_its_run_is_not_in_the_next_ones_way(tmp_path):
    with place.draft(tmp_path / "env") as draft:
        shutil.rmtree(draft)
        (draft / "lib").mkdir(parents=True)  # an installer that goes on
    assert not list(tmp_path.iterdir())


def test_a_folder_that_another_process_removed_is_reported(tmp_path):
    def build(file):
        with place.draft(tmp_path / "env") as draft:
            shutil.rmtree(draft)
            (draft / file).read_text()

    with pytest.raises(BuildError, match="removed by another process"):
        build("pyvenv.cfg")
    with pytest.raises(FileNotFoundError):
        build(tmp_path / "of something else")


@pytest.mark.parametrize("old", [False, True], ids=["none before", "an old one"])
@pytest.mark.parametrize("ends", [None, BuildError("the engine's own"), KeyboardInterrupt()], ids=["well", "badly", "stopped"])  # fmt: skip
def test_files_made_again_in_a_vanished_conda_environment_are_removed(tmp_path, old, ends):
    """Conda is built in its place: what is left there without a mark would be in every next run's way."""
    env = tmp_path / "env"
    if old:
        made(env)
        (env / "file").write_text("old")

    def build():
        with transaction.build_in_place(env, copied=False):
            shutil.rmtree(env)
            (env / "lib").mkdir(parents=True)
            (env / "lib" / "linked").touch()
            if ends:
                raise ends

    with pytest.raises(KeyboardInterrupt if isinstance(ends, KeyboardInterrupt) else BuildError) as told:
        build()
    assert isinstance(ends, KeyboardInterrupt) or "was removed by another process" in str(told.value)
    assert [p.name for p in tmp_path.iterdir()] == (["env"] if old else [])
    assert not old or (env / "file").read_text() == "old"


def test_a_folder_that_somebody_puts_where_conda_is_built_is_left_alone(tmp_path):
    env, theirs = made(tmp_path / "env"), tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "thesis").write_text("mine")
    time.sleep(0.1)  # a file system's clock ticks every few milliseconds

    def build():
        with transaction.build_in_place(env, copied=False):
            env.rename(tmp_path / "away")
            theirs.rename(env)

    with pytest.raises(BuildError, match="removed by another process") as told:
        build()
    assert {p.name for p in env.iterdir()} == {"thesis"}
    aside = place.get_old_path(env)
    assert (aside / "file").exists() and str(aside) in (told.value.hint or "")
    env.rename(tmp_path / "elsewhere")
    place.recover(env)
    assert (env / "file").exists() and not aside.exists()


def test_recovery_takes_away_what_was_half_made(tmp_path):
    env = made(tmp_path / "env")
    made(place.get_draft_path(env))
    place.recover(env)
    assert [p.name for p in tmp_path.iterdir()] == ["env"]
    place.get_draft_path(env).mkdir()  # killed before it could be marked
    place.get_old_path(env).mkdir()  # killed after its mark was removed
    place.recover(env)
    assert [p.name for p in tmp_path.iterdir()] == ["env"]
    stranger = place.get_draft_path(env)
    stranger.mkdir()
    (stranger / "mine").touch()
    place.recover(env)
    assert (stranger / "mine").exists()


def test_recovery_removes_the_old_environment_where_the_new_one_is_there(tmp_path):
    env = made(tmp_path / "env")
    (made(place.get_old_path(env)) / "file").write_text("old")
    place.recover(env)
    assert [p.name for p in tmp_path.iterdir()] == ["env"] and (env / "file").read_text() == ""


def test_a_draft_that_cannot_be_moved_leaves_the_old_environment(tmp_path):
    env = made(tmp_path / "env")
    with pytest.raises(BuildError, match="removed by another process"):
        place.replace(tmp_path / "no draft", env)
    assert [p.name for p in tmp_path.iterdir()] == ["env"] and (env / "file").exists()


def test_what_gpuenv_did_not_make_or_another_disk_is_never_discarded(tmp_path, monkeypatch):
    env, theirs = made(tmp_path / "env"), tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "thesis").touch()
    with pytest.raises(BuildError, match="was not created by gpuenv"):
        place.discard(theirs)
    monkeypatch.setattr(place, "_read_mounts", lambda: [env / "data"])
    with pytest.raises(BuildError, match=f"another disk is mounted at {env}/data"):
        place.discard(env)
    assert (theirs / "thesis").exists() and (env / "file").exists()


def test_a_folder_nested_too_deeply_names_the_command_that_removes_it(tmp_path, monkeypatch):
    env = made(tmp_path / "env")

    def fail(_path):
        raise RecursionError  # as until Python 3.12

    monkeypatch.setattr(shutil, "rmtree", fail)
    with pytest.raises(BuildError, match="nested too deeply") as caught:
        place.discard(env)
    assert caught.value.hint == f"rm -rf {env}"


def test_a_write_protected_environment_is_neither_replaced_nor_removed(tmp_path, monkeypatch):
    env = made(tmp_path / "env")
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(BuildError, match="is write-protected: it belongs to user"), place.draft(env):
        pass
    env.chmod(0o555)
    for check in (transaction._check_nobody_needs, transaction.check_writable):
        with pytest.raises(BuildError, match=r"is write-protected$") as caught:
            check(env)
        assert caught.value.hint == f"chmod -R u+w {env}"


def test_an_interrupted_run_is_not_rolled_back_while_another_works_there(tmp_path):
    env, events = made(tmp_path / "env"), []
    (env / place.MARK / place.UNFINISHED).touch()
    with place.lock_place(env):
        place.roll_back_interrupted(events.append, env)
    assert [(e.kind, "another gpuenv process is using" in e.text) for e in events] == [("note", True)]
    assert (env / "file").exists()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES])
def test_a_disk_error_in_a_conda_environment_restores_the_old_one(tmp_path, number):
    env = made(tmp_path / "env")
    with (
        pytest.raises(BuildError, match="is full" if number == errno.ENOSPC else "cannot write in"),
        transaction.build_in_place(env, copied=False),
    ):
        raise OSError(number, os.strerror(number), str(env / "file"))
    assert [p.name for p in tmp_path.iterdir()] == ["env"] and (env / "file").exists()


@pytest.mark.parametrize("empty", [True, False])
def test_conda_is_built_in_an_empty_folder_and_in_no_other(tmp_path, empty):
    env = tmp_path / "env"
    env.mkdir()
    if not empty:
        (env / "thesis").touch()
    with pytest.raises(BuildError) if not empty else contextlib.nullcontext():  # noqa: SIM117  # one error
        with transaction.build_in_place(env, copied=False):
            (env / "new").touch()
    assert [p.name for p in tmp_path.iterdir()] == ["env"]
    assert (env / ("new" if empty else "thesis")).exists()


def test_a_file_is_copied_where_it_cannot_be_linked(tmp_path, monkeypatch):
    def refuse(_self, _target):
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(Path, "hardlink_to", refuse)
    (tmp_path / "old").write_text("text")
    transaction._link_file(tmp_path / "old", tmp_path / "new")
    assert (tmp_path / "new").read_text() == "text" and (tmp_path / "new").stat().st_nlink == 1


def test_a_folder_that_cannot_be_searched_for_links_is_an_error(tmp_path):
    env = made(tmp_path / "env")
    with shut(env), pytest.raises(BuildError, match="cannot be searched"):
        transaction.check_links(env)


def test_a_user_without_a_home_is_not_in_it(monkeypatch):
    monkeypatch.delenv("HOME")
    monkeypatch.setattr(os, "getuid", lambda: 987654)
    assert place.find_home_folder() is None


@pytest.mark.parametrize("build", [transaction.build_in_draft, transaction.build_in_place])
def test_a_change_from_inside_the_environment_stays_there(tmp_path, monkeypatch, build):
    env = made(tmp_path / "env")
    monkeypatch.chdir(env)
    with place.lock_place(env), transaction.keep_current_folder(env), build(env, copied=True):
        pass
    assert Path.cwd() == env


def test_a_removal_that_fails_says_how_to_end_it(tmp_path):
    env = made(tmp_path / "env")
    with pytest.raises(BuildError) as caught, transaction.removal(env):
        raise PermissionError(errno.EACCES, "Permission denied")
    assert str(env) in (caught.value.hint or "") and "remove" in (caught.value.hint or "")


def test_a_removal_that_ends_early_can_be_ended(tmp_path):
    """The lists forget an environment while there is something that the next removal finds."""
    env = made(tmp_path / "env")
    with pytest.raises(KeyboardInterrupt), transaction.removal(env):
        raise KeyboardInterrupt
    assert not env.exists() and list(transaction.list_leftovers(env))
    transaction.check_removal(env)
    with transaction.removal(env):
        pass
    assert not list(tmp_path.iterdir())


def test_what_a_killed_build_left_goes_before_the_environment_is_looked_at_or_run(gpuenv):
    """conda builds in the place itself: the old environment waits aside."""
    env = made(gpuenv.work / ".venv")
    (env / place.MARK / place.UNFINISHED).touch()
    old = made(place.get_old_path(env))
    (old / "bin").mkdir()
    (old / "bin" / "python").symlink_to(sys.executable)
    (old / "pyvenv.cfg").touch()
    ran = gpuenv("run", "--", "python", "-c", "print('old')")
    assert ran.code == 0 and ran.out == "old\n" and "was interrupted; the environment is restored" in ran.err
    assert [p.name for p in gpuenv.work.iterdir()] == [".venv"]
    (env / place.MARK / place.UNFINISHED).touch()
    ran = gpuenv("verify", "--json")
    assert ran.code == 2 and "does not exist" in ran.json["error"]["message"]
    assert "was interrupted; its files are removed" in ran.err and not list(gpuenv.work.iterdir())


# --- files and folders ---------------------------------------------------------------------------


def test_a_draft_that_was_left_is_written_over(tmp_path):
    file, draft = tmp_path / "lock", tmp_path / ".lock.gpuenv-new"
    draft.write_text("half of something long")
    write_file(file, "new")
    assert file.read_text() == "new" and [p.name for p in tmp_path.iterdir()] == ["lock"]
    assert file.stat().st_mode & 0o777 == 0o644


def test_a_draft_is_never_written_through_a_link_or_a_second_name(tmp_path):
    mine = tmp_path / "mine"
    mine.write_text("mine")
    draft = tmp_path / ".lock.gpuenv-new"
    for put in (lambda: draft.symlink_to(mine), lambda: draft.hardlink_to(mine)):
        put()
        write_file(tmp_path / "lock", "new")
        assert mine.read_text() == "mine" and (tmp_path / "lock").read_text() == "new"
        assert not os.path.lexists(draft)


def test_a_file_that_cannot_be_written_leaves_no_draft(tmp_path):
    (tmp_path / "lock").mkdir()
    with pytest.raises(OSError):
        write_file(tmp_path / "lock", "new")
    assert [p.name for p in tmp_path.iterdir()] == ["lock"]


def test_many_writers_leave_one_whole_file(tmp_path):
    code = "import sys; from pathlib import Path; from provision.system import files\n"
    code += "for i in range(40): files.write_file(Path(sys.argv[1]), sys.argv[2] * 5000)"
    children = [subprocess.Popen([sys.executable, "-c", code, tmp_path / "file", x]) for x in "abc"]
    assert [c.wait(60) for c in children] == [0, 0, 0]
    text = (tmp_path / "file").read_text()
    assert len(text) == 5000 and len(set(text)) == 1 and len(list(tmp_path.iterdir())) == 1


def test_scratch_folders_of_killed_runs_are_swept_and_those_at_work_are_not(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    code = "import os, signal; from provision.system import scratch\nwith scratch.make_scratch('x'): os.kill(os.getpid(), 9)"
    subprocess.run([sys.executable, "-c", code], env={**os.environ, "TMPDIR": str(tmp_path)}, check=False)
    assert len(list(tmp_path.iterdir())) == 1
    begun, old = tmp_path / ".gpuenv-scratch-begun", tmp_path / ".gpuenv-scratch-old"
    for path in (begun, old):  # killed before they had their names
        path.mkdir()
    os.utime(old, (0, 0))
    with make_scratch("y") as one:
        (one / "file").touch()
        with make_scratch("z") as other:
            assert set(tmp_path.iterdir()) == {one, other, begun}
    assert list(tmp_path.iterdir()) == [begun]


def test_an_unreadable_temporary_folder_is_not_swept(tmp_path):
    with shut(tmp_path):
        _sweep.__wrapped__(tmp_path)
