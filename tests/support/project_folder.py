"""A project's folder, and what its files ask for."""

import textwrap

import pytest

from provision.requirements.sort import read_project_requirements


@pytest.fixture
def folder(tmp_path):
    place = tmp_path / "proj"
    place.mkdir()
    return place


def asked(folder, pyproject=None, extras=(), groups=(), requirements=(), install=True, **files):
    if pyproject is not None:
        (folder / "pyproject.toml").write_text(textwrap.dedent(pyproject), encoding="utf-8")
    for name, text in files.items():
        (folder / name.replace("_", ".", 1)).write_text(textwrap.dedent(text), encoding="utf-8")
    return read_project_requirements(
        {},
        {},
        requirements=list(requirements),
        folder=folder,
        extras=extras,
        groups=groups,
        install=install,
    )
