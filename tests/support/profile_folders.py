"""The shipped profiles, and folders of profiles for tests."""

import shutil

import pytest

from provision import profiles

SHIPPED = profiles.directory()


@pytest.fixture(scope="module")
def known():
    return profiles.load()


@pytest.fixture
def folder(tmp_path):
    """A copy of the shipped profiles that a test may spoil."""
    return shutil.copytree(SHIPPED, tmp_path / "profiles")


@pytest.fixture
def ours(folder, monkeypatch):
    """The copy, standing for the profiles that came with gpuenv."""
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
