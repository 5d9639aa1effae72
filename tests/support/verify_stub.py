"""An environment with NVIDIA's libraries as stubs, under a driver that answers as told: what tests of verify share."""

import base64
import hashlib
import shutil
import sys
from pathlib import Path

import pytest
from framework_envs import venv
from verified import verify

from driver_stub import H200, build, build_runtime, scenario, spec
from provision.actions.explain import explain_log
from provision.model import Environment
from provision.verify import Options, locate_environment
from provision.verify.libraries import InstalledLibraries, PythonPaths
from provision.verify.state import State

LIBRARIES = ("libcudnn.so.9", "libcudnn_ops.so.9", "libcudnn_graph.so.9")
ALL_LIBRARIES = (
    *LIBRARIES, "libcudnn_adv.so.9", "libcudnn_cnn.so.9", "libcudnn_engines_precompiled.so.9",
    "libcudnn_engines_runtime_compiled.so.9", "libcudnn_heuristic.so.9",
)  # fmt: skip
"""What the profiles say that this release of cuDNN has."""
QUICK = Options(quick=True, timeout=300)


def healthy(**codes):
    return spec(driver="580.159.04", cuda=13000, gpus=[H200], **codes)


def record(site, name, version, files, requires=()):
    """A dist-info for files that lie in a site-packages folder, as an installer writes it."""
    folder = site / f"{name}-{version}.dist-info"
    folder.mkdir()
    rows = []
    for file in files:
        data = file.read_bytes()
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        rows.append(f"{file.relative_to(site)},sha256={digest},{len(data)}")
    (folder / "RECORD").write_text("\n".join(rows) + "\n")
    needs = "".join(f"Requires-Dist: {r}\n" for r in requires)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}\n")


@pytest.fixture(scope="module")
def pristine(tmp_path_factory):
    """A venv with the stub's libcudart and libcudnn in it, laid out and recorded as NVIDIA's wheels are."""
    return make_environment(tmp_path_factory.mktemp("pristine") / "env")


def make_environment(env, libraries=LIBRARIES):
    """A venv with the stubs of an environment's libraries."""
    _, site = venv(env)
    cudart = build_runtime(site / "nvidia" / "cuda_runtime" / "lib", "libcudart.so.12")
    cudnn = build_runtime(site / "nvidia" / "cudnn" / "lib", "libcudnn.so.9")
    for name in libraries[1:]:
        shutil.copy(cudnn, cudnn.with_name(name))
    record(site, "nvidia_cuda_runtime_cu12", "12.8.90", [cudart])
    record(site, "nvidia_cudnn_cu12", "9.14.0.64", [cudnn.with_name(n) for n in libraries])
    return env


def tamper(root, old, new):
    """Make the environment's Python one that changes a text in what it is told to run."""
    python = root / "bin" / "python"
    real = root / "bin" / "python-real"
    real.symlink_to(python.readlink())
    python.unlink()
    python.write_text(
        f"#!{sys.executable}\nimport os, sys\nargs = sys.argv[1:]\nif '-c' in args:\n"
        f"    at = args.index('-c') + 1\n    args[at] = args[at].replace({old!r}, {new!r})\n"
        f"os.execv({str(real)!r}, [{str(real)!r}, *args])\n"
    )
    python.chmod(0o755)


@pytest.fixture
def env(pristine, tmp_path):
    return Path(shutil.copytree(pristine, tmp_path / "env", symlinks=True))


@pytest.fixture
def cudnn(env):
    return next(env.glob("lib/python*/site-packages/nvidia/cudnn/lib"))


@pytest.fixture
def judge(env, tmp_path, monkeypatch):
    """The verdict on `env` under a driver that answers as a spec says."""
    libraries = build(tmp_path / "driver")
    for name in ("CUDA_VISIBLE_DEVICES", "LD_PRELOAD"):
        monkeypatch.delenv(name, raising=False)

    def run(what="580-h200", options=QUICK, before=(), **more):
        for key, value in scenario(libraries, what).items():
            folders = [*map(str, before), value] if key == "LD_LIBRARY_PATH" else [value]
            monkeypatch.setenv(key, ":".join(folders))
        return verify(locate_environment(env), options, emit=lambda _: None, diagnose=explain_log, **more)

    return run


def fresh_state(device="cuda", files=(), **more):
    """A proof of /env that has not asked anything yet; `files` are the environment's libraries."""
    paths = PythonPaths(prefix="/env", version="3.12.0", sites=(), roots=("/env",))
    return State(
        early=None, env=Environment(path="/env", manager=None, python="/env/bin/python"), options=Options(),
        emit=lambda _: None, device=device, ordinal=None, environ={},
        installed=InstalledLibraries(paths=paths, files=files), diagnose=explain_log, **more,
    )  # fmt: skip


def stage(verdict, name):
    return next(s for s in verdict.stages if s.stage == name)


def failing(verdict):
    """The one stage that failed; every later one must be skipped and say so."""
    names = [s.stage for s in verdict.stages if s.status == "fail"]
    assert len(names) == 1, verdict.stages
    later = list(verdict.stages[[s.stage for s in verdict.stages].index(names[0]) + 1 :])
    assert all(s.status == "skip" and names[0] in s.detail for s in later), later
    return names[0]


def hanging(where, judged, until=lambda: True):
    """The verdict and the deadline of the first run that got as far as to hang where it is meant to: how long a
    Python takes to start is not known beforehand."""
    for seconds in (1.5, 6.0, 24.0, 96.0):
        verdict = judged(seconds)
        if where in str(verdict.stages) and until():
            break
    return verdict, seconds
