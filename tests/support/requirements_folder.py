"""A folder with requirements files, and how to read them."""

import textwrap
from pathlib import Path

import pytest

from provision.cli import exit_codes
from provision.errors import UsageError
from provision.model import Build, Profiles
from provision.requirements.sort import read_project_requirements

LINUX = {
    "sys_platform": "linux",
    "platform_system": "Linux",
    "os_name": "posix",
    "platform_machine": "x86_64",
}


STACK = frozenset({"cuda-toolkit", "nvidia-cublas", "cuda-bindings", "tensorrt"})


KNOWN = Profiles(
    builds=(
        Build("torch", "2.9.0", None, "linux-x86_64", "pypi", (), requires=tuple(STACK),
              companions=("torchvision==0.24.0", "torchaudio==2.9.0")),
    )
)  # fmt: skip


SHA = "sha256:" + "0f" * 32


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """Relative names start at the file, so the tests run from another folder."""
    place = tmp_path / "elsewhere"
    place.mkdir()
    monkeypatch.chdir(place)


@pytest.fixture
def folder(tmp_path):
    place = tmp_path / "work"
    place.mkdir()
    return place


def write(folder, **files):
    for name, text in files.items():
        path = folder / name.replace("__", "/")
        path = path if path.suffix else path.with_suffix(".txt")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text), encoding="utf-8")


def asked(folder, text=None, *, name="requirements.txt", environ=None, markers=LINUX, **more):
    if text is not None:
        (folder / name).write_text(textwrap.dedent(text), encoding="utf-8")
    return read_project_requirements(
        environ or {},
        markers,
        requirements=[folder / name],
        known=KNOWN,
        **more,
    )


def texts(found):
    return [need.text for need in found.lines]


def refusal(folder, text, **more):
    with pytest.raises(UsageError) as caught:
        asked(folder, text, **more)
    assert exit_codes.get_error_code(caught.value) == 2
    return caught.value


def package(folder, name, **files):
    place = folder / name
    place.mkdir(parents=True)
    files = files or {"pyproject": f'[project]\nname = "{Path(name).name}"\nversion = "1"\n'}
    for file, text in files.items():
        (place / (file + {"pyproject": ".toml", "setup": ".py", "cfg": ""}[file])).write_text(text)
    return place
