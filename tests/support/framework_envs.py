"""Real environments with a framework for the CPU, made once per test run by uv."""

import configparser
import functools
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pip
import pytest
from once import once

LYING_JAX = """
import sys, types, __main__
numpy = sys.modules["numpy"] = types.SimpleNamespace(float32=1, float16=1, bfloat16=1, zeros=None)
devices = lambda kind=None: [] if kind else ["CpuDevice"]
__main__.sweep = lambda *_: __main__.tell(
    "convolution", device=-1, case="conv2d", dtype="float32", which="forward", ok=True, error=0.0, tolerance=1.0, reason="")
"""
"""A framework that passes the proof, so that what follows it runs."""


def write_jax(site):
    """Write a JAX into a site-packages folder that passes the proof in milliseconds, where a real one takes seconds."""
    for name, text in (("jax", LYING_JAX), ("jaxlib", "")):
        (site / name).mkdir()
        (site / name / "__init__.py").write_text(f"__version__ = '0.11.0'\n{text}")


WANTED = {"jax": "jax", "tensorflow": "tensorflow-cpu", "torch": "torch", "onnxruntime": "onnxruntime"}


def venv(path, *, pip=False):
    """An empty venv, and its site-packages: a copy of one that `python -m venv` made, but for the names in `activate`."""
    shutil.copytree(_seeded_venv() if pip else _bare_venv(), path, symlinks=True, dirs_exist_ok=True)
    for script in Path(path).glob("bin/pip*"):
        script.write_text(script.read_text().replace(str(_seeded_venv()), str(path)))
    return Path(path), next(Path(path).glob("lib/python*/site-packages"))


def write_python3(path):
    """A `python3` whose `-m venv` copies a venv with pip that is there, which saves the seconds of ensurepip."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        f"""#!/bin/sh
if [ "$1 $2" = "-m venv" ]; then
    for folder; do :; done
    mkdir -p "$folder" && cp -a "{_seeded_venv()}/." "$folder" && cd "$folder" && exec sed -i "1s|.*|#!$PWD/bin/python|" bin/pip*
fi
exec "{sys.executable}" "$@"
"""
    )
    path.chmod(0o755)


@functools.cache
def _bare_venv():
    return once(
        "bare", lambda path: subprocess.run([sys.executable, "-m", "venv", "--without-pip", path], check=True)
    )


@functools.cache
def _seeded_venv():
    return once("seeded", _seed)


def only_pip():
    """A folder for PYTHONPATH with pip and nothing else."""
    return next(_seeded_venv().glob("lib/python*/site-packages"))


def _seed(path):
    """Make a venv with the pip of this Python, which takes a second in place of the seconds of ensurepip."""
    _, site = venv(path)
    mine = Path(pip.__file__).parent
    for folder in (mine, next(mine.parent.glob("pip-*.dist-info"))):
        shutil.copytree(folder, site / folder.name)
    for name in ("pip", "pip3"):
        program = path / "bin" / name
        program.write_text(
            f"#!{path}/bin/python\nimport sys\nfrom pip._internal.cli.main import main\nsys.exit(main())\n"
        )
        program.chmod(0o755)


def find_links():
    """The folders that pip is told to look for wheels in."""
    files = [
        Path("/etc/pip.conf"),
        *(Path(p).expanduser() for p in ("~/.pip/pip.conf", "~/.config/pip/pip.conf")),
    ]
    files += [Path(os.environ["PIP_CONFIG_FILE"])] if "PIP_CONFIG_FILE" in os.environ else []
    folders = os.environ.get("PIP_FIND_LINKS", "").split()
    for file in files:
        config = configparser.ConfigParser(interpolation=None)
        config.read(file)
        folders += config.get("global", "find-links", fallback="").split()
    return [f for f in dict.fromkeys(folders) if Path(f).is_dir()]


@functools.cache
def framework_env(name):
    """A venv with one framework, in a path with a space and an umlaut. torch comes from a CPU wheel in
    pip's find-links: the index has gigabytes instead."""
    wanted = WANTED[name]
    if name == "torch":
        tag = f"-cp{sys.version_info[0]}{sys.version_info[1]}-"
        wheels = [w for f in find_links() for w in Path(f).glob("torch-*+cpu*.whl") if tag in w.name]
        if not wheels:
            pytest.skip("pip's find-links hold no CPU wheel of torch for this Python")
        wanted = str(max(wheels))
    return once(f"{name} für alle", lambda path: _install(wanted, path))


def _install(wanted, path):
    venv(path)
    argv = [sys.executable, "-m", "uv", "pip", "install", "-q", "--python", path / "bin" / "python", wanted]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
