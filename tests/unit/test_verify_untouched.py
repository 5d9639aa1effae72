"""verify of an environment that it may not write to: read-only, or another user's. Nothing in it changes."""

import contextlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from framework_envs import venv, write_jax
from programs import run_program

NOBODY = 65534


def digest(folder):
    """Every entry of a tree with what a write would change."""
    seen = {}
    for path in sorted(Path(folder).rglob("*")):
        stat = path.lstat()
        # Not the time of change: it moves when another environment links the same file out of uv's cache.
        seen[str(path)] = (stat.st_mode, stat.st_uid, stat.st_size, stat.st_mtime_ns, stat.st_ino)
    return seen


@pytest.fixture
def jax(tmp_path):
    """An environment whose packages have no bytecode: Python would write it beside them."""
    env, site = venv(tmp_path / "jax")
    write_jax(site)
    before = digest(env)
    yield env
    after = digest(env)
    assert after == before


def as_nobody(*argv):
    return ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", *map(str, argv)]


@pytest.fixture
def others_python():
    """A Python that another user may run, of this one's version: gpuenv's dependencies are taken to it."""
    if os.getuid() or not shutil.which("setpriv"):
        pytest.skip("only root can become another user (with setpriv)")
    wanted = "{}.{}".format(*sys.version_info)
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    names = [sys._base_executable, *(f"{f}/python{wanted}" for f in os.get_exec_path())]
    for name in names:
        asked = as_nobody("/bin/sh", "-c", f'"{name}" -c "{code}"')
        if run_program(asked).stdout.strip() == wanted:
            return name
    pytest.skip(f"no Python {wanted} here that another user may run")


def test_an_environment_of_another_user_is_verified_and_unchanged(jax, others_python, gpuenv, tmp_path):
    """Made and owned by root, without write permission for anyone; verified by nobody."""
    env = tmp_path / "öther's env"
    site = env / "lib" / "python{}.{}".format(*sys.version_info) / "site-packages"
    site.mkdir(parents=True)
    (env / "bin").mkdir()
    (env / "bin" / "python").symlink_to(others_python)
    (env / "pyvenv.cfg").write_text(f"home = {Path(others_python).parent}\n")
    (site / "jax.pth").write_text(f"{next(jax.glob('lib/python*/site-packages'))}\n")
    subprocess.run(["chmod", "-R", "a-w", env], check=True)
    before = digest(env)
    mine = {k: gpuenv.env[k] for k in ("PATH",)}
    mine |= {"HOME": str(tmp_path / "home of nobody"), "PYTHONDONTWRITEBYTECODE": "1"}
    # a path of ours that nobody may search would make this a test of that
    # (nor may what conda-lock, once imported here, puts onto sys.path: an old packaging)
    known = [str(Path(__file__).parents[2]), *(p for p in sys.path if p and "_vendor" not in p)]
    mine["PYTHONPATH"] = os.pathsep.join(known)
    Path(mine["HOME"]).mkdir()
    os.chown(mine["HOME"], NOBODY, NOBODY)
    with opened_for_all(tmp_path, jax):
        argv = [others_python, "-m", "provision", "verify", env, "--device", "cpu"]
        done = run_program(as_nobody(*argv), env=mine, cwd=mine["HOME"])
    assert done.returncode == 0, done.stdout + done.stderr
    assert "convolutions correct" in done.stdout
    assert digest(env) == before


@contextlib.contextmanager
def opened_for_all(*paths):
    """The folders above some paths searchable by every user, as a shared disk has them."""
    closed = [p for path in paths for p in (path, *path.parents) if not p.stat().st_mode & 0o001]
    modes = {p: p.stat().st_mode for p in closed}
    for path, mode in modes.items():
        path.chmod(mode | 0o011)
    try:
        yield
    finally:
        for path, mode in modes.items():
            path.chmod(mode)


def test_an_environment_on_a_read_only_disk_is_verified(jax, gpuenv):
    """As in a container or on a cluster's shared software: a mount that only this process sees."""
    unshare = ["unshare", "-m"] if os.getuid() == 0 else ["unshare", "-r", "-m"]
    mount = 'mount --bind "$1" "$1" && mount -o remount,ro,bind "$1"'
    refused = 'touch "$1/probe" 2>/dev/null && exit 77; '
    tried = run_program([*unshare, "sh", "-c", mount, "sh", jax])
    if tried.returncode:
        pytest.skip(f"no mount of one's own here: {tried.stderr.strip()}")
    verify = f'"{sys.executable}" -m provision verify "$1" --device cpu'
    done = run_program(
        [*unshare, "sh", "-c", f"{mount}; {refused}{verify}", "sh", jax], env=gpuenv.env, cwd=gpuenv.work
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "convolutions correct" in done.stdout
