"""Which files belong to a project."""

import os

import pytest

from provision.errors import UsageError
from provision.requirements import tree


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home" / "clone" / "member").mkdir(parents=True)
    tree.find_root.cache_clear()
    return tmp_path / "home"


def test_a_repository_around_a_folder_is_its_tree(home):
    member = home / "clone" / "member"
    assert tree.find_root(member) == member
    tree.find_root.cache_clear()
    (home / "clone" / ".git").write_text("gitdir: elsewhere\n")  # of a worktree
    assert tree.find_root(member) == home / "clone"


def test_without_a_repository_the_nearest_folder_that_can_be_installed_is_the_tree(home):
    (home / "clone" / "setup.py").touch()
    assert tree.find_root(home / "clone" / "member") == home / "clone"
    tree.find_root.cache_clear()
    (home / "clone" / "member" / "pyproject.toml").touch()
    assert tree.find_root(home / "clone" / "member") == home / "clone" / "member"


@pytest.mark.parametrize("mark", [".git", "setup.py"])
def test_a_home_folder_that_is_a_repository_is_no_tree(home, mark):
    (home / mark).mkdir()
    (home.parent / mark).mkdir()
    assert tree.find_root(home / "clone") == home / "clone"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
@pytest.mark.parametrize("name", ["clone", "clone/.git", "clone/setup.py"])
def test_a_repository_of_another_user_is_no_tree(home, name):
    (home / "clone" / (".git" if name == "clone" else name.partition("/")[2])).mkdir()
    os.chown(home / name, 65534, 65534)
    assert tree.find_root(home / "clone" / "member") == home / "clone" / "member"


def test_hidden_files_of_the_home_folder_belong_to_no_project_in_it(home):
    (home / ".netrc").touch()
    root = tree.find_root(home)
    tree.refuse_outside(home / "base.txt", [root], "r.txt line 1", "name it")
    for place in (home / ".netrc", home / ".cache" / "token", home.parent / "x"):
        with pytest.raises(UsageError, match="line 1"):
            tree.refuse_outside(place, [root], "r.txt line 1", "name it")
