"""Whose files and programs count: owners, modes, groups, links and folders on the way."""

import grp
import os
import pwd
import re
import shutil
import stat
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import get_args

import pytest
from powerless import shut

from provision.detect import pythons
from provision.system import trust
from provision.system.cache import CacheFolder

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
NOBODY = 65534
STRANGER = trust._name_user(NOBODY)


@pytest.fixture
def notes(monkeypatch):
    said = []
    monkeypatch.setattr(trust._Session, "report", None)
    monkeypatch.setattr(trust._Session, "noted", {})
    trust.listen(said.append)
    return said


@pytest.fixture
def file(tmp_path):
    tmp_path.chmod(0o755)
    path = tmp_path / "gpuenv.yaml"
    path.write_text("device: cpu\n")
    return path


def give(path, uid=NOBODY, gid=-1):
    os.chown(path, uid, gid, follow_symlinks=False)


def test_notes_that_nobody_heard_are_told_to_the_first_listener(notes, monkeypatch):
    monkeypatch.setattr(trust._Session, "report", None)
    trust.note("early")
    trust.listen(notes.append)
    assert notes == ["early"]
    trust.note("early")
    assert notes == ["early"]


# --- files -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("mode", "counts"), [(0o600, True), (0o644, True), (0o646, False), (0o666, False)])
def test_a_file_that_everybody_can_write_does_not_count(file, mode, counts):
    file.chmod(mode)
    if counts:
        assert trust.read_project(file) == b"device: cpu\n"
        return
    with pytest.raises(trust.UntrustedError) as caught:
        trust.read_project(file)
    assert str(file) in caught.value.message and f"(uid {os.geteuid()})" in caught.value.message
    assert "--trust-project" in (caught.value.hint or "")


@root_only
def test_a_file_of_a_project_may_be_its_folders_owners_and_no_others(file):
    give(file)
    with pytest.raises(
        trust.UntrustedError,
        match=rf"uid {NOBODY}\): as root gpuenv does not use it, because another user can",
    ):
        trust.read_project(file)
    give(file.parent)
    assert trust.read_project(file)
    give(file, 12345)
    with pytest.raises(trust.UntrustedError, match="uid 12345"):
        trust.read_project(file)
    give(file)
    file.parent.chmod(0o1777)
    with pytest.raises(trust.UntrustedError):
        trust.read_project(file)


@root_only
def test_a_strangers_file_counts_where_the_user_accepts_it(file):
    give(file)
    trust.accept_project(accepted=True)
    try:
        assert trust.read_project(file)
        with pytest.raises(OSError, match=STRANGER.replace("(", r"\(").replace(")", r"\)")):
            trust.read_cached(file)
    finally:
        trust.accept_project(accepted=False)


@root_only
def test_a_link_of_a_stranger_does_not_count_and_ones_own_leads_to_ones_own(file, tmp_path):
    link = tmp_path / "link.yaml"
    link.symlink_to(file)
    assert trust.read_project(link)
    give(link)
    with pytest.raises(trust.UntrustedError, match=r"link\.yaml belongs to"):
        trust.read_project(link)
    give(link, 0)
    give(file)
    with pytest.raises(trust.UntrustedError):
        trust.read_project(link)


@root_only
def test_where_everybody_can_replace_files_only_ones_own_count(file, tmp_path, monkeypatch):
    give(file)
    tmp_path.chmod(0o777)
    monkeypatch.setattr(os, "geteuid", lambda: NOBODY)
    assert trust.read_project(file)
    give(file, 0)
    with pytest.raises(trust.UntrustedError, match="by every user"):
        trust.read_project(file)
    tmp_path.chmod(0o1777)
    assert trust.read_project(file)


@root_only
def test_the_user_that_stands_for_root_may_be_anybody_where_everybody_can_write(file, tmp_path, monkeypatch):
    give(file)
    tmp_path.chmod(0o1777)
    monkeypatch.setattr(trust, "_find_unmapped_root", lambda: NOBODY)
    with pytest.raises(trust.UntrustedError, match=r"gpuenv\.yaml belongs to"):
        trust.read_project(file)


@root_only
def test_a_group_counts_as_others_unless_it_is_private(file, monkeypatch):
    file.chmod(0o664)
    give(file, 0, 0)
    assert trust.read_project(file)
    user, (other, *_) = pwd.getpwuid(NOBODY), (u for u in pwd.getpwall() if u.pw_uid not in (0, NOBODY))
    mates = []
    names = {777001: user.pw_name, 777002: other.pw_name, 777003: "users"}

    def primary(number):
        return pwd.struct_passwd((user.pw_name, "x", NOBODY, number, "", "/", "/bin/sh"))

    monkeypatch.setattr(grp, "getgrgid", lambda gid: grp.struct_group((names[gid], "x", gid, mates)))
    for number, private in ((777001, True), (777002, False), (777003, False)):
        trust._is_shared.cache_clear()
        monkeypatch.setattr(pwd, "getpwuid", lambda uid, n=number: primary(n))
        give(file, 0, number)
        give(file.parent, NOBODY)
        give(file, NOBODY, number)
        if private:
            assert trust.read_project(file)
            mates.append("mate")
            trust._is_shared.cache_clear()
        with pytest.raises(trust.UntrustedError, match=f"gid {number}"):
            trust.read_project(file)
        mates.clear()
    trust._is_shared.cache_clear()


@root_only
def test_a_configuration_of_a_stranger_is_skipped_with_one_note_and_refused_where_it_is_named(file, notes):
    assert trust.read_configuration(file) == b"device: cpu\n"
    give(file)
    assert trust.read_configuration(file) is None and trust.read_configuration(file) is None
    assert len(notes) == 1 and str(file) in notes[0] and STRANGER in notes[0]
    with pytest.raises(trust.UntrustedError):
        trust.read_configuration(file, named=True)
    assert trust.read_configuration(file.with_name("missing"), named=True) is None


def test_a_configuration_that_cannot_be_read_is_skipped_unless_it_is_named(file):
    with shut(file.parent):
        assert trust.read_configuration(file) is None
        with pytest.raises(PermissionError):
            trust.read_configuration(file, named=True)


def test_a_group_without_a_name_has_its_number():
    assert trust._name_group(0).endswith("(gid 0)") and trust._name_group(777009) == "gid 777009"


# --- caches ----------------------------------------------------------------------------------------


def test_a_cache_is_made_private_and_entries_too(tmp_path):
    before = os.umask(0)
    try:
        cache = trust.secure_cache(tmp_path / "new" / "cache")
        trust.write_cached(cache / "pages" / "a.json", "1")
    finally:
        os.umask(before)
    assert stat.S_IMODE(cache.stat().st_mode) == 0o700
    assert trust.read_cached(cache / "pages" / "a.json") == b"1"
    (cache / "pages" / "a.json").chmod(0o666)
    with pytest.raises(OSError, match="by every user"):
        trust.read_cached(cache / "pages" / "a.json")
    trust.write_cached(cache / "pages" / "a.json", "2")
    assert trust.read_cached(cache / "pages" / "a.json") == b"2"


@root_only
@pytest.mark.parametrize("fault", ["owner", "mode", "none"])
def test_a_cache_that_was_open_to_others_is_emptied_where_they_can_have_written(tmp_path, fault, notes):
    module = tmp_path / "uv" / "archive-v0" / "x" / "m.py"
    module.parent.mkdir(parents=True)
    module.write_text("")
    (tmp_path / "uv" / "CACHEDIR.TAG").write_text("")
    (tmp_path / "uv").chmod(0o777)
    if fault == "owner":
        give(module)
    elif fault == "mode":
        module.chmod(0o666)
    trust.secure_cache(tmp_path / "uv")
    assert stat.S_IMODE((tmp_path / "uv").stat().st_mode) == 0o700
    assert module.exists() == (not notes) == (fault == "none")
    assert fault == "none" or list((tmp_path / "uv").iterdir()) == []


def test_a_cache_is_emptied_without_the_caches_of_installers_or_not_used(tmp_path, notes, monkeypatch):
    """They settle themselves, and hold gigabytes."""

    def fill():
        for name in ("uv", "pages"):
            (tmp_path / name).mkdir(exist_ok=True)
            (tmp_path / name / "entry").write_text("")
        (tmp_path / "pages" / "entry").chmod(0o666)
        tmp_path.chmod(0o777)
        trust.secure_cache.cache_clear()

    fill()
    trust.secure_cache(tmp_path)
    assert [str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*")] == ["uv", "uv/entry"]
    assert len(notes) == 1
    fill()
    monkeypatch.setattr(shutil, "rmtree", Path.rmdir)
    with pytest.raises(
        trust.UntrustedError, match=f"{tmp_path}/pages cannot be removed: Directory not empty"
    ):
        trust.secure_cache(tmp_path)
    assert stat.S_IMODE(tmp_path.stat().st_mode) != 0o700  # the next run tries again


def test_a_cache_that_uv_made_is_kept(tmp_path, notes):
    """uv lets every user open its lock files, and reads nothing in them."""
    cache, uv = tmp_path / "uv", Path(sys.prefix) / "bin" / "uv"
    words = f"pip install -q --dry-run --offline --cache-dir {cache} --python {sys.executable} uv"
    subprocess.run([uv, *words.split()], check=True, umask=0o022)
    assert stat.S_IMODE((cache / ".lock").stat().st_mode) == 0o666
    (cache / "wheels-v8").mkdir(mode=0o755)
    (cache / "wheels-v8" / "x-1-py3-none-any.lock").touch(mode=0o600)
    (cache / "wheels-v8" / "x-1-py3-none-any.lock").chmod(0o666)
    cache.chmod(0o755)
    trust.secure_cache(cache)
    assert not notes
    assert (cache / "wheels-v8").exists()
    assert stat.S_IMODE(cache.stat().st_mode) == 0o700


def test_a_folder_that_is_more_than_a_cache_is_not_touched(tmp_path):
    (tmp_path / "thesis.tex").write_text("")
    (tmp_path / "thesis.tex").chmod(0o666)
    tmp_path.chmod(0o755)
    trust.secure_cache(tmp_path)
    tmp_path.chmod(0o777)
    trust.secure_cache.cache_clear()
    with pytest.raises(trust.UntrustedError, match="more than a cache"):
        trust.secure_cache(tmp_path)
    assert (tmp_path / "thesis.tex").exists() and tmp_path.stat().st_mode & 0o777 == 0o777


@root_only
def test_a_cache_of_a_stranger_is_refused(tmp_path):
    give(tmp_path)
    with pytest.raises(trust.UntrustedError, match=f"uid {NOBODY}"):
        trust.secure_cache(tmp_path)


def test_every_folder_of_gpuenvs_cache_is_known():
    assert all(re.fullmatch(trust._CACHE_ENTRY, name) for name in get_args(CacheFolder))


# --- programs and homes ----------------------------------------------------------------------------


@pytest.fixture
def tool(tmp_path):
    tmp_path.chmod(0o755)
    (tmp_path / "bin").mkdir(mode=0o755)
    program = tmp_path / "bin" / "tool"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    return program


@pytest.mark.parametrize("what", ["the program", "its folder", "a folder above it"])
def test_a_program_that_everybody_can_write_is_not_found(tool, what, notes):
    path = f"relative{os.pathsep}{tool.parent}"
    assert trust.find_program("tool", path) == tool
    {"the program": tool, "its folder": tool.parent, "a folder above it": tool.parent.parent}[what].chmod(
        0o777
    )
    assert trust.find_program("tool", path) is None and len(notes) == 1


def test_folders_that_everybody_can_write_leave_the_path(tool):
    path = f"bin{os.pathsep}{tool.parent}{os.pathsep}/missing"
    assert trust.filter_path(path) == str(tool.parent)
    tool.parent.chmod(0o777)
    assert trust.filter_path(path) == ""


@root_only
def test_a_named_program_of_a_stranger_starts_for_users_and_not_for_root(tool, monkeypatch):
    give(tool)
    with pytest.raises(trust.UntrustedError):
        trust.may_start(tool, named=True)
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    trust.may_start(tool, named=True)
    with pytest.raises(trust.UntrustedError):
        trust.may_start(tool)


@root_only
def test_a_python_of_a_stranger_is_not_asked_and_noted(tmp_path, notes):
    tmp_path.chmod(0o755)
    mark, folder = tmp_path / "mark", tmp_path / "bin"
    folder.mkdir(mode=0o755)
    python = folder / "python3.14"
    python.write_text(f"#!/bin/sh\ntouch {mark}\n")
    python.chmod(0o755)
    environ = {"PATH": str(folder), "HOME": str(tmp_path)}
    pythons.read_pythons(tmp_path, environ)
    assert mark.exists()
    mark.unlink()
    give(python)
    pythons.read_pythons(tmp_path, environ)
    assert not mark.exists() and len(notes) == 1 and str(python) in notes[0]


def test_the_python_that_runs_gpuenv_may_start_and_a_link_to_it_may_not(tool, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "executable", str(tool))
    tool.chmod(0o777)
    trust.may_start(tool)
    link = tmp_path / "python"
    link.symlink_to(tool)
    with pytest.raises(trust.UntrustedError):
        trust.may_start(link)


@root_only
def test_root_leaves_the_folders_of_another_user(tmp_path, monkeypatch):
    tmp_path.chmod(0o755)
    home = tmp_path / "home"
    home.mkdir()
    give(home, 12345)
    for name in ("XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / ".config"))
    monkeypatch.setenv("HOME", str(home))
    said = trust.choose_home()
    assert "uid 12345" in (said or "") and "XDG_CONFIG_HOME" in (said or "")
    assert os.environ["HOME"] == pwd.getpwuid(0).pw_dir and "XDG_CONFIG_HOME" not in os.environ
    assert "XDG_DATA_HOME" in os.environ and list(home.iterdir()) == []


@root_only
def test_another_folder_replaces_a_cache_of_a_stranger(tmp_path, monkeypatch):
    (tmp_path / "cache" / "uv").mkdir(parents=True)
    give(tmp_path / "cache" / "uv")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    assert STRANGER in (trust.choose_home() or "")
    assert Path(os.environ["XDG_CACHE_HOME"]).is_relative_to(tmp_path / "gpuenv-0")


def test_a_folder_of_the_user_that_cannot_be_entered_is_replaced(tmp_path, monkeypatch):
    (tmp_path / "home" / "config").mkdir(parents=True)
    with tempfile.TemporaryDirectory() as free:
        Path(free).chmod(0o777)
        monkeypatch.setattr("tempfile.tempdir", free)
        for name, place, shown in (
            ("XDG_CONFIG_HOME", "home/config", "home/config cannot be read"),
            ("HOME", "home", "home folder .*/home cannot be read"),
        ):
            monkeypatch.setenv("HOME", "/")
            monkeypatch.setenv(name, str(tmp_path / place))
            with shut(tmp_path / "home"):
                assert re.search(shown, trust.choose_home(cache=False) or "")
            assert os.environ[name].startswith(free)


# --- whole folders, for the node check --------------------------------------------------------------


@pytest.fixture
def tree(tmp_path):
    (tmp_path / "env" / "bin").mkdir(parents=True)
    (tmp_path / "env" / "bin" / "python").write_text("")
    (tmp_path / "env").chmod(0o755)
    return tmp_path / "env"


def changeable(path):
    with pytest.raises(trust.UntrustedError) as caught:
        trust.assert_unchangeable([path])
    return caught.value.reason


def test_files_of_the_same_user_pass(tree):
    (tree / "lib64").symlink_to("bin")
    (tree / "gone").symlink_to("nowhere")
    trust.assert_unchangeable([tree, tree / "bin" / "python"])


@pytest.mark.parametrize("mode", [0o757, 0o777])
def test_a_folder_that_others_can_write_to_is_named(tree, mode):
    (tree / "bin").chmod(mode)
    assert changeable(tree).startswith(f"{tree}/bin ") and "by every user" in changeable(tree)


@root_only
def test_a_file_or_folder_of_another_user_is_named(tree):
    os.chown(tree / "bin" / "python", 65534, 0)
    assert changeable(tree) == f"{tree}/bin/python belongs to {STRANGER}"
    os.chown(tree / "bin" / "python", 0, 0)
    os.chown(tree.parent, 65534, 0)
    assert changeable(tree) == f"{tree.parent} belongs to {STRANGER}"
    os.chown(tree.parent, 0, 0)
    (tree / "bin").chmod(0o775)
    trust.assert_unchangeable([tree])
    os.chown(tree / "bin", 0, 65534)
    assert changeable(tree).startswith(f"{tree}/bin ") and "gid 65534" in changeable(tree)


@root_only
def test_links_are_followed_through_every_folder_on_their_way(tree, tmp_path):
    for name in ("theirs", "ours"):
        (tmp_path / name).mkdir(mode=0o755)
    (tmp_path / "ours" / "python").write_text("")
    (tmp_path / "theirs" / "python").symlink_to("../ours/python")
    (tree / "bin" / "python").unlink()
    (tree / "bin" / "python").symlink_to(tmp_path / "theirs" / "python")
    trust.assert_unchangeable([tree])
    os.chown(tmp_path / "theirs", 65534, 65534)
    assert changeable(tree) == f"{tmp_path}/theirs belongs to {STRANGER}"
    os.chown(tmp_path / "theirs", 0, 0)
    os.chown(tmp_path / "theirs" / "python", 65534, 65534, follow_symlinks=False)
    assert changeable(tree) == f"{tmp_path}/theirs/python belongs to {STRANGER}"


@root_only
def test_the_contents_of_a_folder_behind_a_link_count(tree, tmp_path):
    shutil.copytree(tree, tmp_path / "packages")
    (tree / "site-packages").symlink_to(tmp_path / "packages")
    trust.assert_unchangeable([tree])
    os.chown(tmp_path / "packages" / "bin" / "python", 65534, 0)
    assert changeable(tree) == f"{tmp_path}/packages/bin/python belongs to {STRANGER}"


def test_links_in_a_circle_are_an_error_and_end(tree):
    (tree / "a").symlink_to("b")
    (tree / "b").symlink_to("a")
    with pytest.raises(OSError, match="symbolic links"):
        trust.assert_unchangeable([tree / "a"])
    trust.assert_unchangeable([tree])
