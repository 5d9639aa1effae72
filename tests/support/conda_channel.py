"""A small conda channel made on the spot: a real python package from a movable interpreter, packages
from real wheels, and CUDA variants that are records only. Made once per test run; nothing is committed."""

from __future__ import annotations

import asyncio
import atexit
import functools
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import threading
import zipfile
from collections import Counter
from contextlib import contextmanager
from importlib.metadata import Distribution, PathDistribution
from pathlib import Path

import pytest
from loopback import Faulty, running
from once import once
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

MINOR = f"{sys.version_info[0]}.{sys.version_info[1]}"
BIN = Path(sys.executable).parent
TAG = f"py{sys.version_info[0]}{sys.version_info[1]}"
_LEFT_OUT = re.compile(
    r"test|tests|idlelib|turtledemo|tkinter|ensurepip|lib2to3|site-packages|__pycache__|config-.*"
)


class Member:
    """A file of a package: where it goes, its bytes or its source, and whether it names the prefix."""

    def __init__(self, path, *, data=None, source=None, mode=0o644, placeholder=None, link=None):
        self.path, self.mode, self.placeholder, self.link = path, mode, placeholder, link
        self.data = source.read_bytes() if data is None and link is None else (data or b"")

    def row(self):
        if self.link:
            return {"_path": self.path, "path_type": "softlink"}
        found = {
            "_path": self.path, "path_type": "hardlink", "sha256": hashlib.sha256(self.data).hexdigest(),
            "size_in_bytes": len(self.data),
        }  # fmt: skip
        if self.placeholder:
            found |= {"file_mode": "text", "prefix_placeholder": self.placeholder}
        return found


def _tar_zst(members):
    import zstandard

    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as tar:
        for m in members:
            info = tarfile.TarInfo(m.path)
            info.mode = m.mode
            if m.link:
                info.type, info.linkname = tarfile.SYMTYPE, str(m.link)
                tar.addfile(info)
            else:
                info.size = len(m.data)
                tar.addfile(info, io.BytesIO(m.data))
    return zstandard.ZstdCompressor(level=-5).compress(raw.getvalue())


def write_package(folder, name, version, build, depends=(), members=(), constrains=(), number=0, noarch=None):
    """A .conda file under folder/<subdir>; returns its path."""
    subdir = "noarch" if noarch else "linux-64"
    index = {
        "name": name, "version": version, "build": build, "build_number": number, "depends": list(depends),
        "constrains": list(constrains), "subdir": subdir, "arch": None if noarch else "x86_64",
        "platform": None if noarch else "linux", "license": "test", "timestamp": 1700000000000,
    }  # fmt: skip
    index |= {"noarch": noarch} if noarch else {}
    paths = {"paths": [m.row() for m in members], "paths_version": 1}
    info = [
        Member("info/index.json", data=json.dumps(index).encode()),
        Member("info/paths.json", data=json.dumps(paths).encode()),
        Member("info/files", data="".join(f"{m.path}\n" for m in members).encode()),
        Member("info/about.json", data=b"{}"),
    ]
    if noarch == "python":
        link = {"noarch": {"type": "python", "entry_points": []}, "package_metadata_version": 1}
        info.append(Member("info/link.json", data=json.dumps(link).encode()))
    stem = f"{name}-{version}-{build}"
    path = folder / subdir / f"{stem}.conda"
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("metadata.json", json.dumps({"conda_pkg_format_version": 2}))
        archive.writestr(f"pkg-{stem}.tar.zst", _tar_zst(members))
        archive.writestr(f"info-{stem}.tar.zst", _tar_zst(info))
    return path


def index(folder):
    """repodata.json of both subdirs, as the channel's own tool writes it."""
    import rattler

    (folder / "noarch").mkdir(parents=True, exist_ok=True)
    (folder / "linux-64").mkdir(parents=True, exist_ok=True)
    asyncio.run(rattler.index.index_fs(folder, write_zst=False, write_shards=False, force=True))


# --- python ------------------------------------------------------------------------------------


def python_members():
    """The interpreter that runs the tests, without its tests and packages, made to find its library and
    its prefix wherever it is linked. Skips where it cannot be moved."""
    base = Path(sys.base_prefix)
    binary = base / "bin" / f"python{MINOR}"
    if sys.platform != "linux" or not binary.exists() or base == Path("/usr"):
        pytest.skip("the interpreter that runs the tests cannot be moved into a package")
    yield Member(f"bin/python{MINOR}", data=_moved(binary.read_bytes(), base, "$ORIGIN/../lib"), mode=0o755)
    yield Member("bin/python3", link=f"python{MINOR}")
    yield Member("bin/python", link=f"python{MINOR}")
    for path in sorted(base.glob("lib/libpython*.so*")):
        inside = path.relative_to(base).as_posix()
        if path.is_symlink():
            yield Member(inside, link=path.readlink())
        else:
            yield Member(inside, data=_moved(path.read_bytes(), base, "$ORIGIN"), mode=0o755)
    for folder, folders, names in os.walk(base / "lib" / f"python{MINOR}"):
        folders[:] = sorted(name for name in folders if not _LEFT_OUT.fullmatch(name))
        for path in (Path(folder, name) for name in sorted(names) if not _LEFT_OUT.fullmatch(name)):
            inside = path.relative_to(base).as_posix()
            if path.is_symlink():
                continue
            if path.suffix == ".so":
                yield Member(inside, data=_moved(path.read_bytes(), base, "$ORIGIN/../.."), mode=0o755)
            else:
                named = path.suffix == ".py" and str(base).encode() in path.read_bytes()
                yield Member(inside, source=path, placeholder=str(base) if named else None)


def _moved(data, base, runpath):
    """An ELF file whose absolute run path is replaced in place by a relative one."""
    old = f"{base}/lib".encode() + b"\0"
    new = runpath.encode().ljust(len(old), b"\0")
    return data.replace(old, new) if len(new) == len(old) else data


# --- packages from wheels ------------------------------------------------------------------------


def installed(wanted, folder):
    """Wheels unpacked by uv into a folder, as distributions."""
    command = [sys.executable, "-m", "uv", "pip", "install", "-q", "--python", sys.executable,
               "--target", folder, *wanted]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [PathDistribution(p) for p in sorted(Path(folder).glob("*.dist-info"))]


def depends_of(distribution: Distribution):
    """The requirements that hold here, as conda specs."""
    found = [f"python {MINOR}.*"]
    for text in distribution.requires or ():
        need = Requirement(text)
        if need.marker is None or need.marker.evaluate({"extra": ""}):
            found.append(f"{canonicalize_name(need.name)} {need.specifier or '*'}")
    return found


def wheel_package(folder, distribution, build=f"{TAG}_0", number=0, depends=None, name=None):
    """A conda package of an installed distribution, with INSTALLER saying conda."""
    site = f"lib/python{MINOR}/site-packages"
    members = []
    for file in distribution.files:
        source = Path(distribution.locate_file(file))
        if not source.is_file() or "__pycache__" in file.parts or file.parts[0] in ("..", "bin"):
            continue
        data = b"conda\n" if file.name == "INSTALLER" else None
        members.append(Member(f"{site}/{file}", data=data, source=source))
    name = name or canonicalize_name(distribution.metadata["Name"])
    return write_package(
        folder, name, distribution.version, build, depends or depends_of(distribution), members, number=number
    )


# --- the channel -------------------------------------------------------------------------------


@functools.cache
def home():
    folder = tempfile.mkdtemp(prefix="gpuenv-channel-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def add_python(folder):
    """A real python in a channel. To pack its files takes seconds."""
    version = ".".join(map(str, sys.version_info[:3]))
    made = once(
        "conda-python",
        lambda target: write_package(target, "python", version, "h0_0_cpython", (), list(python_members())),
    )
    shutil.copytree(made, folder, copy_function=os.link)


def channel():
    """A folder named conda-forge with python, pip, numpy, jax and jaxlib for the CPU that can be
    installed, and with a CUDA jaxlib and a pytorch that are records only."""
    return once("conda-forge", _channel)


def _channel(folder):
    add_python(folder)
    for distribution in installed(["jax", "pip"], home() / "wheels"):
        if distribution.metadata["Name"] == "jaxlib":
            wheel_package(folder, distribution, f"cpu_{TAG}h0_0")
            records_only(folder, distribution.version, depends_of(distribution))
        else:
            wheel_package(folder, distribution)
    index(folder)
    shutil.rmtree(home() / "wheels")


def records_only(folder, version, depends):
    """Variants of jaxlib for CUDA, as conda-forge builds them, without files; 12.9 and 12.2."""
    for cuda in ("12.2", "12.9"):
        short = cuda.replace(".", "")
        more = [*depends, "__cuda", f"cuda-version >={cuda},<13", "cudnn >=9.8,<10.0a0"]
        write_package(folder, "jaxlib", version, f"cuda{short}_{TAG}h0_20{short[-1]}", more, number=200)
        write_package(folder, "cuda-version", cuda, "h0_3", (), constrains=["__cuda >=12"], noarch="generic")
    write_package(folder, "cudnn", "9.10.2.21", "h0_0", ["cuda-version >=12,<13.0a0"])


def small():
    """A channel of tiny packages only: a python that is a shell script, for what need not run."""
    return once("conda-small", _small)


def _small(folder):
    script = Member("bin/python", data=b"#!/bin/sh\necho gpuenv 3.11.0 cpython\n", mode=0o755)
    write_package(folder, "python", "3.11.0", "h0_0_cpython", (), [script])
    site = "lib/python3.11/site-packages/jaxlib/__init__.py"
    write_package(folder, "jaxlib", "0.7.0", "cpu_py311h0_0", ["python 3.11.*"], [Member(site, data=b"")])
    write_package(folder, "jax", "0.7.0", "pyh0_0", ["jaxlib 0.7.0"], noarch="generic")
    index(folder)


CREATE = ("create", "--manager", "conda", "--framework", "jax", "--device", "cpu", "--no-verify")
"""What makes an environment of the small channel."""


@pytest.fixture
def folder(tmp_path):
    """A small channel of one test's own."""
    return shutil.copytree(small(), tmp_path / "chan" / "conda-forge")


def pure(folder, name, version, depends=("python",), code="", build="pyh0_0", subdir="noarch"):
    """A tiny package of Python code with its dist-info; noarch, or of a platform for one Python."""
    module = name.replace("-", "_")
    info = f"{module}-{version}.dist-info"
    files = {
        f"{module}/__init__.py": f"__version__ = {version!r}\n{code}",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/INSTALLER": "conda\n",
        f"{info}/RECORD": f"{module}/__init__.py,,\n{info}/METADATA,,\n{info}/INSTALLER,,\n{info}/RECORD,,\n",
    }
    site = "site-packages" if subdir == "noarch" else f"lib/python{MINOR}/site-packages"
    members = [Member(f"{site}/{path}", data=text.encode()) for path, text in files.items()]
    return write_package(
        folder, name, version, build, depends, members, noarch="python" if subdir == "noarch" else None
    )


def bare():
    """A real python, and packages that only look like jax and numpy: for locks, wheels on top, changes."""
    return once("conda-bare", _bare)


def _bare(folder):
    add_python(folder)
    for number in ("0.6.0", "0.7.0"):
        jaxlib = [f"python {MINOR}.*", "numpy"]
        pure(folder, "jaxlib", number, jaxlib, build=f"cpu_{TAG}h0_0", subdir="linux-64")
        pure(folder, "jax", number, ["python", f"jaxlib {number}"])
    for number in ("1.26.4", "2.1.0"):
        pure(folder, "numpy", number)
    pure(folder, "einops", "0.8.0")
    records_only(folder, "0.7.0", [f"python {MINOR}.*", "numpy"])
    index(folder)


# --- serving -----------------------------------------------------------------------------------


class Server:
    """A channel served on 127.0.0.1. `faults` maps the end of a path to what goes wrong with it (see
    loopback.py); `needs` is the Authorization header without which it answers 401, `token` what must stand
    in /t/TOKEN/ before the channel."""

    def __init__(self, folder):
        self.folder, self.faults, self.needs, self.requests = folder, {}, None, Counter()
        self.token = None
        self.url, self.retry_after = "", None
        self.stalled, self.released = threading.Event(), threading.Event()


@contextmanager
def serving(folder, tls=None):
    server = Server(folder)

    class Handler(Faulty):
        state = server

        def answer(self, body):
            path = self.path.partition("?")[0]
            server.requests[path] += body
            fault = next((f for end, f in server.faults.items() if path.endswith(end)), None)
            if server.needs and self.headers.get("Authorization") != server.needs:
                fault = "401"
            if server.token:
                fault = fault if path.startswith(f"/t/{server.token}/") else "401"
                path = path.removeprefix(f"/t/{server.token}")
            file = server.folder / path.strip("/").partition("/")[2]
            if self.refuse(fault, body):
                return
            if not file.is_file():
                self.reply(404, b"", body)
                return
            data = file.read_bytes()
            self.reply(200, spoiled(data) if fault == "tampered" else data, body, fault=fault)

    with running(Handler, tls) as address:
        server.url = f"http{'s' if tls else ''}://{address}/conda-forge"
        try:
            yield server
        finally:
            server.released.set()


def spoiled(data):
    """The same file with other bytes in the middle."""
    half = len(data) // 2
    return data[:half] + bytes(b ^ 0xFF for b in data[half : half + 16]) + data[half + 16 :]
