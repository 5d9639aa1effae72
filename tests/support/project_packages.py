"""Packages that are no wheels: folders, git repositories and source archives, built without a network by a
small backend that each brings along."""

import contextlib
import gzip
import io
import os
import subprocess
import tarfile
import zipfile
from pathlib import Path

_PYPROJECT = """[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
[project]
name = "{name}"
version = "{version}"
dependencies = {requires}
"""
_BACKEND = """
import base64, hashlib, os, zipfile
NAME, VERSION, REQUIRES = {name!r}, {version!r}, {requires!r}
INFO = f"{{NAME}}-{{VERSION}}.dist-info"

def _wheel(folder, files):
    about = "Metadata-Version: 2.1\\nName: " + NAME + "\\nVersion: " + VERSION + "\\n"
    files[INFO + "/METADATA"] = about + "".join("Requires-Dist: " + r + "\\n" for r in REQUIRES)
    files[INFO + "/WHEEL"] = "Wheel-Version: 1.0\\nGenerator: t\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n"
    rows = []
    for path, text in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        rows.append(f"{{path}},sha256={{digest}},{{len(text.encode())}}")
    files[INFO + "/RECORD"] = "\\n".join([*rows, INFO + "/RECORD,,", ""])
    file = f"{{NAME}}-{{VERSION}}-py3-none-any.whl"
    with zipfile.ZipFile(os.path.join(folder, file), "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
    return file

def build_wheel(folder, config_settings=None, metadata_directory=None):
    return _wheel(folder, {{NAME + "/__init__.py": open(NAME + "/__init__.py").read()}})

def build_editable(folder, config_settings=None, metadata_directory=None):
    return _wheel(folder, {{NAME + ".pth": os.getcwd() + "\\n"}})

def get_requires_for_build_wheel(config_settings=None):
    return []

get_requires_for_build_editable = get_requires_for_build_wheel
"""


def folder(path: Path, name: str, version: str, requires: tuple[str, ...] = ()) -> Path:
    """A project's folder that can be built and installed, also in place."""
    (path / name).mkdir(parents=True)
    (path / name / "__init__.py").write_text(f"__version__ = {version!r}\n")
    (path / "pyproject.toml").write_text(
        _PYPROJECT.format(name=name, version=version, requires=str(list(requires)).replace("'", '"'))
    )
    (path / "backend.py").write_text(_BACKEND.format(name=name, version=version, requires=list(requires)))
    return path


def repository(path: Path, name: str, version: str) -> tuple[Path, str]:
    """A git repository of such a folder, and its commit."""
    folder(path, name, version)
    committed(path)
    done = subprocess.run(["git", "rev-parse", "HEAD"], cwd=path, capture_output=True, text=True, check=True)
    return path, done.stdout.strip()


def committed(path: Path) -> Path:
    """The folder as a git repository with one commit."""
    env = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    who = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    for command in (["init", "-q"], ["add", "."], [*who, "commit", "-qm", "x"]):
        subprocess.run(["git", *command], cwd=path, env=env, check=True)
    return path


def archive(scratch: Path, name: str, version: str) -> tuple[str, bytes]:
    """The file name and the bytes of its source archive."""
    return packed(folder(scratch / f"{name}-{version}", name, version), name, version)


def packed(where: Path, name: str, version: str) -> tuple[str, bytes]:
    """A folder as a source archive, with metadata that states no requirements."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        about = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n".encode()
        info = tarfile.TarInfo(f"{name}-{version}/PKG-INFO")
        info.size = len(about)
        tar.addfile(info, io.BytesIO(about))
        tar.add(where, arcname=f"{name}-{version}")
    return f"{name}-{version}.tar.gz", buffer.getvalue()


@contextlib.contextmanager
def _tar_gz(buffer):
    """A tar whose bytes are the same whenever it is made."""
    with (
        gzip.GzipFile(fileobj=buffer, mode="wb", mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w") as tar,
    ):
        yield tar


def sdist(
    name: str, version: str, files: dict[str, str | bytes], *, form: str = "tar.gz"
) -> tuple[str, bytes]:
    """A source archive with exactly these files below its top folder: its file name and its bytes."""
    buffer = io.BytesIO()
    top = f"{name}-{version}"
    if form == "zip":
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
            for path, text in files.items():
                archive.writestr(f"{top}/{path}", text)
    else:
        with _tar_gz(buffer) as tar:
            for path, text in files.items():
                data = text if isinstance(text, bytes) else text.encode()
                info = tarfile.TarInfo(f"{top}/{path}")
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
    return f"{top}.{form}", buffer.getvalue()


def about(name: str, version: str, *requires: str, since: str = "2.1", dynamic: tuple[str, ...] = ()) -> str:
    """A PKG-INFO."""
    rows = [f"Metadata-Version: {since}", f"Name: {name}", f"Version: {version}"]
    rows += [f"Requires-Dist: {r}" for r in requires] + [f"Dynamic: {d}" for d in dynamic]
    return "\n".join(rows) + "\n"
