"""Every reader of files that gpuenv did not write itself: a name, a function of bytes, and sound examples.

A reader may refuse with a GpuenvError. Anything else that it raises, and more than five seconds, is a fault.
"""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import functools
import json
import shutil
import signal
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from provision import bundle, profiles
from provision.actions.diagnose import read_machine
from provision.conda import locks as conda_locks
from provision.config import target
from provision.config.file import read_config
from provision.diagnose import Circumstances, find_causes
from provision.environment import distributions, drift, record, registry
from provision.errors import GpuenvError
from provision.index.config import pip_settings
from provision.index.simple_api import parse_project
from provision.model import (
    Lock,
    LockedPackage,
    Machine,
    Plan,
    PlannedBuild,
    Target,
    TargetGpu,
    Verdict,
    as_document,
    as_plain,
)
from provision.requirements.sort import read_project_requirements
from provision.verify import frameworks, libraries
from provision.wheels import pylock
from provision.wheels.pylock import read_env_lock

LONGEST = 5.0  # seconds of processor time for a megabyte
FOLDER = Path(tempfile.mkdtemp(prefix="gpuenv-fuzz-"))
atexit.register(shutil.rmtree, FOLDER, ignore_errors=True)


@dataclass(frozen=True)
class Reader:
    """What reads a file, and files that it takes."""

    name: str
    read: Callable[[bytes], object]
    sound: tuple[bytes, ...]
    kind: str  # json, toml, yaml or text: how a sound example is taken apart


# --- sound examples --------------------------------------------------------------------------------

TARGET = Target(
    platform="linux-x86_64",
    glibc="2.35",
    driver="580.65.06",
    driver_os="linux",
    gpus=(TargetGpu(capability="9.0"),),
)
BUILD = PlannedBuild(
    framework="jax",
    version="0.10.2",
    cuda="12.9",
    cudnn="9.10.2.21",
    index="pypi",
    requirements=("jax===0.10.2",),
)
PLAN = Plan(
    builds=(BUILD,), manager="venv", python="3.11", platform="linux-x86_64", device="cuda", target=TARGET
)
WHEEL = LockedPackage(
    name="jax", version="0.10.2", url="https://host/files/jax-0.10.2-py3-none-any.whl", sha256="a" * 64,
    index="https://host/simple", size=12,
)  # fmt: skip
LOCK = Lock(manager="venv", target=TARGET, plan=PLAN, packages=(WHEEL,))
EXPLICIT = (
    f"@EXPLICIT\nhttps://host/conda-forge/linux-64/python-3.11.0-h0_0_cpython.conda#{'a' * 64}\n".encode()
)
PROFILE = (
    b'- table: "builds"\n  framework: "jax"\n  source: "mine"\n  read: "2026-01-01"\n  kept: "by hand"\n  rows:\n'
    b'  - {version: "97.0", platform: "linux-x86_64", index: "pypi", python: "3.11", requires: ["jaxlib==97.0"]}\n'
)
RECORD = b"jax/__init__.py,sha256=47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU,0\n../../../bin/jax,sha256=x,12\njax.dist-info/RECORD,,\n"
LIBRARIES = b"nvidia/cudnn/lib/libcudnn.so.9,sha256=47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU,12\n"
META = json.dumps({
    "name": "cudnn", "version": "9.1.0", "build": "h0_0", "paths_data": {"paths": [
        {"_path": "lib/libcudnn.so.9", "size_in_bytes": 3, "sha256": "a" * 64, "path_type": "hardlink"},
        {"_path": "bin/a", "prefix_placeholder": "/opt", "sha256_in_prefix": "b" * 64}]},
}).encode()  # fmt: skip
INSTALLED = b'{"schema": "gpuenv.installed/1", "packages": [{"name": "jax", "version": "1", "record": "aa"}]}'
LOG = (
    b"Traceback (most recent call last):\nRuntimeError: cuDNN error: CUDNN_STATUS_NOT_INITIALIZED\n"
    b"Loaded runtime CuDNN library: 8.0.5 but source was compiled with: 8.4.1\n"
    b"NVIDIA GeForce RTX 3090 with CUDA capability sm_86 is not compatible with the current PyTorch installation.\n"
    b"| NVIDIA-SMI 535.129.03   Driver Version: 535.129.03   CUDA Version: 12.2 |\n"
)
PROJECT = (
    b'frameworks: ["torch>=2.6"]\nmanager: "venv"\npython: "3.11"\nindexes:\n  pypi: "https://host/simple"\n'
)
PYPROJECT = (
    b'[project]\nname = "mine"\nversion = "1"\nrequires-python = ">=3.10"\ndependencies = ["torch>=2", "numpy"]\n'
    b'[project.optional-dependencies]\nall = ["mine[x]"]\n[dependency-groups]\ndev = [{include-group = "a"}]\na = []\n'
    b'[tool.uv.sources]\ntorch = {index = "pytorch"}\n[[tool.uv.index]]\nname = "pytorch"\nurl = "https://host/whl"\n'
)
REQUIREMENTS = (
    b"--index-url https://host/simple\n-c c.txt\ntorch>=2,<3 ; python_version > '3'\nnumpy --hash=sha256:"
    + b"a" * 64
    + b"\n"
)
SETUP_PY = (
    b"from setuptools import setup\nsetup(name='mine', install_requires=['torch'], python_requires='>=3.8')\n"
)
SETUP_CFG = b"[metadata]\nname = mine\n[options]\ninstall_requires =\n    torch>=2\n    numpy\n"
BUNDLE = {
    "schema": "gpuenv.bundle/1", "gpuenv": "0.1.0", "complete": True, "manager": "venv", "device": "cuda", "frameworks": [], "asked": "a", "lock": "pylock.toml", "python": "3.11",
    "target": as_plain(TARGET), "files": [{"path": "wheels/a.whl", "size": 1, "sha256": "a" * 64}],
}  # fmt: skip
PAGE = (
    b'<html><body><a href="../../files/a-1.0-py3-none-any.whl#sha256=aa" data-yanked="x">a</a></body></html>'
)
API = b'{"meta":{"api-version":"1.1"},"name":"a","files":[{"filename":"a-1.0-py3-none-any.whl","url":"a.whl","hashes":{}}]}'
PIP_CONF = b"[global]\nindex-url = https://host/simple\nextra-index-url =\n    https://a\n    https://b\ntimeout = 5\n"


def pylock_text() -> bytes:
    path = FOLDER / "sound.toml"
    pylock.write(path, LOCK)
    return path.read_bytes()


def conda_lock() -> bytes:
    package = LockedPackage(
        name="python", version="3.11.0", url="https://host/c/linux-64/python-3.11.0-h0_0_cpython.conda",
        sha256="a" * 64, md5="b" * 32, index="https://host/c", size=3,
    )  # fmt: skip
    plan = dataclasses.replace(PLAN, manager="conda")
    path = FOLDER / "conda-lock.yml"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # conda-lock's own libraries
        conda_locks.write(path, Lock(manager="conda", target=TARGET, plan=plan, packages=(package,)))
    return path.read_bytes()


# --- readers -----------------------------------------------------------------------------------------


def file(name: str, data: bytes) -> Path:
    path = FOLDER / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


@functools.cache
def known() -> object:
    return profiles.load()


def wheel_record(data: bytes) -> None:
    folder = file("env/lib/python3.11/site-packages/jax-1.0.dist-info/RECORD", data).parent
    one = distributions.Distribution("jax", "1.0", folder)
    for row in one.rows[:64]:
        distributions.compare_file(row, None)
    drift.make_change(one, {r.path: "missing" for r in one.rows[:64]})


def libraries_listed(data: bytes) -> None:
    site = FOLDER / "env/lib/python3.11/site-packages"
    folder = file("env/lib/python3.11/site-packages/nvidia_cudnn_cu12-9.1.0.dist-info/RECORD", data).parent
    found = list(libraries.read_wheels(str(site)))
    libraries.check_files([f for d in found for f in d.files][:64], True)
    list(frameworks.list_modules(distributions.Distribution("nvidia-cudnn-cu12", "9.1.0", folder)))


def conda_meta(data: bytes) -> None:
    prefix = file("conda/conda-meta/cudnn-9.1.0-h0_0.json", data).parent.parent
    found = list(libraries.read_conda(prefix))
    libraries.check_files([f for d in found for f in d.files][:64], True)
    (one,) = distributions.list_conda_records(prefix)
    drift.make_change(one, {r.path: "missing" for r in one.rows[:64]})
    distributions.list_conda_infos(prefix)


def metadata(data: bytes) -> None:
    folder = file("env/lib/python3.11/site-packages/jax-1.0.dist-info/METADATA", data).parent
    assert isinstance(distributions.Distribution("jax", "1.0", folder).requires, tuple)


def diagnosed(data: bytes) -> None:
    find_causes([("log", [data[i : i + 4096] for i in range(0, len(data), 4096)])], known(), Circumstances())


def demanded(name: str, data: bytes) -> None:
    folder = file(f"project/{name}", data).parent
    file("project/c.txt", b"numpy<3\n")
    for other in ("pyproject.toml", "setup.py", "setup.cfg", "requirements.txt"):
        if other != name:
            (folder / other).unlink(missing_ok=True)
    is_list = name == "requirements.txt"
    markers = {"python_version": "3.11", "sys_platform": "linux"}
    files = {"requirements": [folder / name]} if is_list else {"folder": folder}
    read_project_requirements({}, markers, **files)


def built(name: str, data: bytes) -> None:
    env = file(f"made/.gpuenv/{name}", data).parent.parent
    if name == "plan.json":
        record.read_plan(env)
    elif name == "verdict.json":
        record.read_verdict(env)
        record.find_valid_verdict(env, {})
    else:
        record.read(env, name)
    if name == "lock.json":
        read_env_lock(env / ".gpuenv")


def entries(data: bytes) -> None:
    """The list of environments, in a data folder of its own."""
    import os

    os.environ["XDG_DATA_HOME"] = str(FOLDER / "data")
    file("data/gpuenv/environments/0.json", data)
    registry.list_environments(prune=False)


def page(data: bytes) -> None:
    with contextlib.suppress(GpuenvError):
        parse_project("https://host/simple/a/", data)


def pip_conf(data: bytes) -> None:
    path = file("pip.conf", data)
    pip_settings({"PIP_CONFIG_FILE": str(path), "HOME": str(FOLDER), "XDG_CONFIG_DIRS": str(FOLDER)})


def plain(value: object) -> bytes:
    return json.dumps(as_document(value)).encode()


VERDICT = json.dumps(
    {"verdict": as_document(Verdict(env="/e", python="/e/bin/python", verdict="works")), "under": {}}
).encode()
LOCK_JSON = json.dumps({"digest": "a", "lock": as_plain(LOCK)}).encode()

READERS = {
    r.name: r
    for r in (
        Reader("pylock.toml", lambda d: pylock.read(file("pylock.toml", d)), (pylock_text(),), "toml"),
        Reader("@EXPLICIT", lambda d: conda_locks.read(file("e.txt", b"@EXPLICIT\n" + d), "linux-x86_64", known().conda), (EXPLICIT,), "text"),
        Reader("conda-lock.yml", lambda d: conda_locks.read(file("conda-lock.yml", d), "linux-x86_64", known().conda), (conda_lock(),), "yaml"),
        Reader("target", lambda d: target.read_target(file("t.json", d)), (plain(TARGET), plain(Machine(target=TARGET))), "json"),
        Reader("machine", lambda d: read_machine(file("m.json", d)), (plain(Machine(target=TARGET)),), "json"),
        Reader("profiles", lambda d: profiles.load([file("profiles/jax.yaml", d).parent]), (PROFILE,), "yaml"),
        Reader("RECORD", wheel_record, (RECORD,), "text"),
        Reader("METADATA", metadata, (b"Metadata-Version: 2.1\nName: a\nRequires-Dist: b; extra == 'c'\n\n",), "text"),
        Reader("RECORD of cuDNN", libraries_listed, (LIBRARIES,), "text"),
        Reader("conda-meta", conda_meta, (META,), "json"),
        Reader("installed.json", lambda d: drift._read_installed(file("made/.gpuenv/installed.json", d).parent.parent), (INSTALLED,), "json"),
        Reader("log", diagnosed, (LOG,), "text"),
        Reader("gpuenv.yaml", lambda d: read_config(file("gpuenv.yaml", d)), (PROJECT,), "yaml"),
        Reader("requirements.txt", lambda d: demanded("requirements.txt", d), (REQUIREMENTS,), "text"),
        Reader("pyproject.toml", lambda d: demanded("pyproject.toml", d), (PYPROJECT,), "toml"),
        Reader("setup.py", lambda d: demanded("setup.py", d), (SETUP_PY,), "text"),
        Reader("setup.cfg", lambda d: demanded("setup.cfg", d), (SETUP_CFG,), "text"),
        Reader("plan.json", lambda d: built("plan.json", d), (plain(PLAN),), "json"),
        Reader("verdict.json", lambda d: built("verdict.json", d), (VERDICT,), "json"),
        Reader("lock.json", lambda d: built("lock.json", d), (LOCK_JSON,), "json"),
        Reader("bundle", lambda d: bundle.read(file("bundle/gpuenv-bundle.json", d).parent), (json.dumps(BUNDLE).encode(),), "json"),
        Reader("list", entries, (b'{"path": "/nowhere"}',), "json"),
        Reader("index page", page, (PAGE, API), "json"),
        Reader("pip.conf", pip_conf, (PIP_CONF,), "text"),
    )
}  # fmt: skip


class SlowError(Exception):
    """A reader took longer than it may."""


@contextlib.contextmanager
def limited(seconds: float = LONGEST) -> Iterator[None]:
    """Raise SlowError after that many seconds of processor time, whatever else the machine does; or after a
    minute for each, which only a reader that waits for something reaches."""

    def late(*_: object) -> None:
        raise SlowError(f"more than {seconds:g} s of processor time")

    timers = (
        (signal.SIGPROF, signal.ITIMER_PROF, seconds),
        (signal.SIGALRM, signal.ITIMER_REAL, 60 * seconds),
    )
    before = [signal.signal(number, late) for number, _, _ in timers]
    for _, timer, most in timers:
        signal.setitimer(timer, most)
    try:
        yield
    finally:
        for (number, timer, _), handler in zip(timers, before, strict=True):
            signal.setitimer(timer, 0)
            signal.signal(number, handler)


def bears(reader: Reader, data: bytes) -> None:
    """Read; whatever is no GpuenvError comes out."""
    with limited(LONGEST * (1 + len(data) / 1_000_000)), contextlib.suppress(GpuenvError):
        reader.read(data)


EXTREMES = {
    "empty": b"",
    "zeros": b"\0" * 64,
    "no UTF-8": b"\xff\xfe\xfa" * 40,
    "UTF-16": "a: b".encode("utf-16"),
    "deep lists": b"[" * 200_000,
    "deep tables": b'{"a":' * 200_000,
    "deep TOML": b"a = " + b"[" * 200_000,
    "deep dashes": b"- " * 50_000,
    "deep indents": b"".join(b" " * i + b"a:\n" for i in range(2_000)),
    "a bomb": b'a: &a ["x","x","x","x","x","x","x","x","x"]\n'
    + b"".join(b"%c: &%c [%s]\n" % (98 + i, 98 + i, b",".join([b"*%c" % (97 + i)] * 9)) for i in range(9)),
    "a tag": b'!!python/object/apply:os.system ["touch /tmp/gpuenv-was-here"]\n',
    "a tag in a row": b'- table: !!python/object/apply:os.system ["touch /tmp/gpuenv-was-here"]\n',
    "a long line": b"a" * 20_000_000,
    "many lines": b"a,b,c\n" * 1_000_000,
    "a long number": b'{"schema": ' + b"9" * 10_000 + b"}",
    "escapes": b"\x1b]0;title\x07\x1b[2J\x1b[31mred\x9b31m",
    "quotes": b'"' * 300_001,
    "commas": b"," * 1_000_000,
}
"""What no example leads to, for every reader."""
