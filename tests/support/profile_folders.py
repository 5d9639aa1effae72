"""The shipped profiles, and folders of profiles for tests."""

import shutil

import pytest

from provision import profiles
from provision.profiles.tables import FILES, Table, dump, read_file

SHIPPED = profiles.directory()


@pytest.fixture(scope="module")
def known():
    return profiles.load()


@pytest.fixture(scope="session")
def few(tmp_path_factory):
    """The shipped profiles with a dozen rows of each table, which are parsed in a tenth of the time."""
    folder = tmp_path_factory.mktemp("profiles")
    for name in FILES:
        tables = [
            Table(head=t.head, rows=t.rows[:: len(t.rows) // 12 + 1]) for t in read_file(SHIPPED / name)[0]
        ]
        (folder / name).write_text(dump(tables), encoding="utf-8")
    return folder


@pytest.fixture
def ours(few, tmp_path, monkeypatch):
    """A copy of them that a test may spoil, standing for the profiles that came with gpuenv."""
    folder = shutil.copytree(few, tmp_path / "profiles")
    monkeypatch.setattr(profiles, "directory", lambda: folder)
    return folder


@pytest.fixture
def package(tmp_path, ours, monkeypatch):
    """A copy of what a build parses with."""
    whole = tmp_path / "provision"
    for part in ("profiles", "model"):
        shutil.copytree(profiles._PACKAGE / part, whole / part)
    monkeypatch.setattr(profiles, "_PACKAGE", whole)
    return whole
