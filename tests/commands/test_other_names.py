"""Commands under the names that other tools have for them, and the cache."""

import errno
import os
import re
import shutil
import time
from pathlib import Path
from typing import get_args

import pytest
from environment_facts import ok, refused
from made_env import jax_index

import provision
from provision import __version__
from provision.errors import BuildError
from provision.system.cache import CacheFolder, cache_folder, remove_entries

PROVISION = Path(provision.__file__).parent


@pytest.mark.parametrize(
    ("other", "own"),
    [
        (("ls",), ("list",)),
        (("rm", "--help"), ("remove", "--help")),
        (("help",), ("--help",)),
        (("help", "create"), ("create", "--help")),
        (("help", "profiles", "list"), ("profiles", "list", "--help")),
        (("-v", "profiles", "list"), ("profiles", "list", "-v")),
        (("--json", "list"), ("list", "--json")),
    ],
)
def test_each_alias_does_the_same_as_its_command(gpuenv, other, own):
    first, second = gpuenv(*other), gpuenv(*own)
    assert (first.code, first.out) == (second.code, second.out) and first.code == 0 and first.out


def test_the_version_has_three_names(gpuenv):
    for word in ("version", "--version", "-V"):
        assert gpuenv(word).out == f"gpuenv {__version__}\n"


def test_remove_by_its_other_name_refuses_the_same(gpuenv):
    assert "missing does not exist" in refused(gpuenv("rm", "missing"), 2).err


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("install", "gpuenv add PKG"),
        ("uninstall", "gpuenv drop PKG"),
        ("upgrade", "gpuenv lock --upgrade"),
        ("info", "gpuenv detect"),
    ],
)
def test_a_command_of_another_tool_is_answered(gpuenv, word, hint):
    assert hint in " ".join(refused(gpuenv(word, "numpy"), 2).err.split())


def test_sync_needs_a_project_and_does_what_create_does(gpuenv, index):
    jax_index(gpuenv, index)
    ran = gpuenv("sync", "--dry-run")
    assert ran.code == 2 and "no project here" in ran.err and "gpuenv init" in ran.err
    (gpuenv.work / "gpuenv.yaml").write_text("frameworks: [jax]\ndevice: cpu\n")
    synced, created = gpuenv("sync", "--dry-run"), gpuenv("create", "--dry-run")
    assert synced.code == 0 and synced.out == created.out != ""


# --- the cache -------------------------------------------------------------------------------------------


@pytest.fixture
def cache(gpuenv):
    """A cache as runs leave it, and beside it what is none of gpuenv's."""
    folder = Path(gpuenv.env["XDG_CACHE_HOME"]) / "gpuenv"
    for place in (folder / "measured", folder / "mine"):
        place.mkdir(parents=True)
        (place / "x.json").write_bytes(b"12345")
    for name in ("profiles-a.json", "project-b.json", "pythons.json", "notes.txt"):
        (folder / name).write_text("{}")
    return folder


def names(folder):
    return sorted(p.name for p in folder.iterdir())


def test_cache_dir_prints_the_cache_folder_in_one_line(gpuenv, cache):
    assert gpuenv("cache", "dir").out == f"{cache}\n"
    assert gpuenv("cache", "dir", "--cache-dir", "sub/../other").out == f"{gpuenv.work / 'other'}\n"
    assert gpuenv("cache", "dir", "--json").json["path"] == str(cache)


def test_clean_removes_what_is_gpuenvs_and_nothing_else(gpuenv, cache):
    ran = gpuenv("cache", "clean", "--json")
    assert ran.code == 0 and ran.json["removed_files"] >= 4 and ran.json["freed_bytes"] >= 5 + 6
    assert names(cache) == ["mine", "notes.txt"] and (cache / "mine" / "x.json").exists()
    assert "uv cache clean" in ran.err
    assert "0 files removed, 0 B freed" in ok(gpuenv("cache", "clean")).out


@pytest.mark.parametrize("name", get_args(CacheFolder))
def test_clean_removes_each_folder_of_the_cache(gpuenv, cache, name):
    cache_folder(cache, name).mkdir(exist_ok=True)
    assert gpuenv("cache", "clean").code == 0
    assert names(cache) == ["mine", "notes.txt"]


def test_every_folder_of_the_cache_is_opened_by_its_listed_name():
    joined = re.compile(r"(own_cache|get_cache_dir)\([^()]*\) /")
    assert [p.name for p in PROVISION.rglob("*.py") if joined.search(p.read_text())] == []


def test_what_cannot_be_removed_is_named(tmp_path):
    with pytest.raises(BuildError, match="/proc/self/status cannot be removed"):
        remove_entries([Path("/proc/self/status")])
    assert remove_entries([tmp_path / "removed by another run"]) == (1, 0)


def test_the_file_in_a_folder_that_cannot_be_removed_is_named(tmp_path, monkeypatch):
    def refuse(path):
        raise PermissionError(errno.EACCES, "Permission denied", str(path / "inner"))

    monkeypatch.setattr("shutil.rmtree", refuse)
    with pytest.raises(BuildError, match=f"^{re.escape(str(tmp_path / 'inner'))} cannot be removed"):
        remove_entries([tmp_path])


def test_two_runs_can_empty_one_cache(tmp_path, monkeypatch):
    (tmp_path / "folder").mkdir()
    remove = shutil.rmtree
    monkeypatch.setattr("shutil.rmtree", lambda path: (remove(path), remove(path)))
    assert remove_entries([tmp_path / "folder", tmp_path / "gone"]) == (1, 0)


def test_clean_follows_no_link(gpuenv, cache):
    target = gpuenv.folder / "target"
    target.mkdir()
    (target / "thesis").write_text("x")
    (cache / "pages").symlink_to(target)
    (cache / "measured" / "link").symlink_to(target)
    (cache / "project-link").symlink_to(target / "thesis")
    assert gpuenv("cache", "clean").code == 0
    assert (target / "thesis").read_text() == "x"
    assert not (cache / "project-link").is_symlink()


def test_clean_of_a_named_folder_leaves_the_rest_of_it(gpuenv):
    folder = gpuenv.work / "home"
    (folder / "uv").mkdir(parents=True)
    (folder / "uv" / "wheel").write_text("x")
    (folder / "thesis").write_text("x")
    ran = gpuenv("cache", "clean", "--cache-dir", "home")
    assert ran.code == 0 and names(folder) == ["thesis"] and "uv cache clean" not in ran.err


def test_prune_removes_what_is_old(gpuenv, cache):
    old = time.time() - 40 * 86400
    os.utime(cache / "profiles-a.json", (old, old))
    os.utime(cache / "measured" / "x.json", (old, old))
    os.utime(cache / "project-b.json", (time.time(), old))  # read today
    os.utime(cache / "notes.txt", (old, old))
    assert ok(gpuenv("cache", "prune", "--json")).json["removed_files"] == 2
    assert {"project-b.json", "pythons.json", "notes.txt", "mine"} <= set(names(cache))
    assert "profiles-a.json" not in names(cache)
