"""The reason of a build backend, read from what uv printed."""

import dataclasses
import re
import sys
import textwrap

import pytest
from programs import run_program
from rows import rows

from provision.environment.install import uninstall
from provision.environment.uv_install import (
    UvInstall,
    check_disk,
    explain_failed_build,
    explain_install_failure,
    explain_unbuilt,
    read_failure,
    requirements_text,
)
from provision.environment.venv import make_venv
from provision.errors import BuildError
from provision.index.uv import environment, program
from provision.lock.uv_errors import explain_unbuilt_need
from provision.model import (
    PROJECT_FOLDER,
    Lock,
    LockedPackage,
    PackageSources,
    Plan,
    RequirementLine,
    Target,
    drop_event,
)
from provision.system.process import Finished
from provision.wheels.releases import SourceArchives

_BACKEND = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
_PROJECT = '[project]\nname = "Detector"\nversion = "7"\n'
_SEVERAL = "error: Multiple top-level packages discovered in a flat-layout: ['data', 'models']."


def said(tmp_path, backend, *, named=True, form="-e {}"):
    """What uv prints that installs a folder with this backend."""
    (tmp_path / "pyproject.toml").write_text(_BACKEND + (_PROJECT if named else ""))
    (tmp_path / "backend.py").write_text(textwrap.dedent(backend))
    own = {"PATH": "/usr/bin:/bin", "UV_CACHE_DIR": str(tmp_path / "cache"), "HOME": str(tmp_path)}
    env = environment(PackageSources(uv={"UV_CACHE_DIR": own["UV_CACHE_DIR"]}), own)
    command = [program(), "pip", "install", "--no-config", "--offline", "--python", sys.executable]
    words = [*command, "--target", str(tmp_path / "to"), *form.format(tmp_path).split(" ")]
    done = run_program(words, env=env)
    assert done.returncode != 0
    return done.stderr


@rows(
    ("backend", "reason"),
    [
        (
            (f"import sys\nprint('running egg_info')\nprint({_SEVERAL!r}, file=sys.stderr)\n"
            "print('\\nTo avoid accidental inclusion, this is refused.', file=sys.stderr)\nsys.exit(1)\n"),
            _SEVERAL.removeprefix("error: "),
        ),
        ("import no_such_thing\n", "ModuleNotFoundError: No module named 'no_such_thing'"),
        ("raise RuntimeError('CUDA_HOME is not set.\\nSet it first.')\n", "RuntimeError: CUDA_HOME is not set."),
        (
            ("class NotFoundError(Exception): pass\ntry:\n    1 / 0\nexcept ZeroDivisionError:\n"
            "    raise NotFoundError('No file/folder found for package x')\n"),
            "NotFoundError: No file/folder found for package x",
        ),
        ("import sys\nsys.exit('this project needs a GPU to be built')\n", "this project needs a GPU to be built"),
        (
            ("import sys\nprint('x.c:1:10: fatal error: cuda.h: No such file or directory', file=sys.stderr)\n"
            "print('x.c:9:1: error: expected a declaration', file=sys.stderr)\n"
            "print(\"error: Command '['gcc']' returned non-zero exit status 1.\", file=sys.stderr)\nsys.exit(1)\n"),
            "x.c:1:10: fatal error: cuda.h: No such file or directory",
        ),
        (f"raise ValueError('{'one line of words ' * 9}end')\n", f"ValueError: {'one line of words ' * 9}end"),
        ("raise ValueError('x' * 5000)\n", "ValueError: " + "x" * 288),
        ("raise ValueError('https://me:secret@host/x is gone')\n", "ValueError: https://host/x is gone"),
    ],
)  # fmt: skip
def test_the_reason_is_the_first_line_of_the_error_of_the_backend(tmp_path, backend, reason):
    named = len(backend) % 2 == 0  # of every other row uv knows the name
    failure = read_failure(said(tmp_path, backend, named=named))
    assert failure is not None and failure.reason == reason
    assert failure.name == ("detector" if named else "")


def test_an_error_of_another_kind_is_no_failed_build(tmp_path):
    for form in ("no-such-package==1", "./nowhere"):
        assert read_failure(said(tmp_path, "", form=form)) is None


def test_missing_build_requirements_are_the_reason(tmp_path):
    log = said(tmp_path, "", form="-e {}")  # a backend without its functions
    assert "has no attribute" in read_failure(log).reason
    (tmp_path / "two").mkdir()
    (tmp_path / "two/pyproject.toml").write_text(
        _PROJECT + '[build-system]\nrequires = ["no-such-package-at-all"]\nbuild-backend = "x"\n'
    )
    failure = read_failure(said(tmp_path, "", form=f"-e {tmp_path / 'two'}"))
    assert failure.reason.startswith("its build requirements are not available: ")
    assert "no-such-package-at-all" in failure.reason


@pytest.mark.parametrize("named", [True, False])
def test_the_project_gets_the_key_and_others_their_line(tmp_path, named, monkeypatch):
    monkeypatch.chdir(tmp_path)
    log = said(tmp_path, f"import sys\nsys.exit({_SEVERAL!r})\n", named=named)
    name = "Detector" if named else None
    shown = name or tmp_path.name
    mine = RequirementLine(
        text=tmp_path.as_uri(), origin=PROJECT_FOLDER, name=name, local=str(tmp_path), editable=True
    )
    error = explain_unbuilt_need(
        log, [RequirementLine(text="plain", origin="r.txt line 1", name="plain"), mine]
    )
    assert error.message == f"{shown} could not be built: {_SEVERAL.removeprefix('error: ')}"
    assert "project: {path: ., install: false} into gpuenv.yaml" in error.hint
    other = RequirementLine(
        text=tmp_path.as_uri(), origin="r.txt line 2", name=name, local=str(tmp_path), editable=True
    )
    error = explain_unbuilt_need(log, [other])
    assert re.search(r"\(r\.txt line 2\) .*: Multiple top-level", error.message)
    assert error.hint.endswith("remove it from r.txt")
    package = LockedPackage(name="detector", version="7", url=tmp_path.as_uri(), unhashed=True, editable=True)
    error = explain_unbuilt(log, [package])
    assert error.message == f"detector could not be built: {_SEVERAL.removeprefix('error: ')}"
    assert error.folder == str(tmp_path)


def test_the_reason_of_a_build_during_the_installation_is_in_its_error(tmp_path):
    log = said(tmp_path, "raise RuntimeError('only versions >=3.6,<3.10 are supported')\n")
    done = Finished(returncode=1, stdout="", stderr=log, timed_out=False, signal=None, report=b"")
    package = LockedPackage(name="llvmlite", version="0.36.0", url="https://h/llvmlite-0.36.0.tar.gz")
    target = Target(platform="linux-x86_64")
    plan = Plan(builds=(), python="3.12", platform="linux-x86_64", manager="venv", device="cpu", target=target,
                packages=("numba<0.57",))  # fmt: skip
    for name in (
        "llvmlite-0.36.0-cp38-cp38",
        "llvmlite-0.36.0-cp39-cp39",
        "numba-0.59.0-cp312-cp312",
        "numba-0.60.0-cp312-cp312",
    ):
        (tmp_path / f"{name}-manylinux2014_x86_64.whl").touch()
    archives = SourceArchives(PackageSources(no_index=True, find_links=(str(tmp_path),)))
    error = explain_failed_build(package, done, plan, archives)
    assert error.message.endswith(": RuntimeError: only versions >=3.6,<3.10 are supported")
    assert re.match(r"request numba>=0\.59\.0 .*numba<0\.57: .*3\.12", error.hint)
    error = explain_failed_build(package, done, dataclasses.replace(plan, packages=()), archives)
    assert re.search(r"--python 3\.9, .*llvmlite 0\.36\.0", error.hint)


TARGET = Target(platform="linux-x86_64")
PLAN = Plan(builds=(), python="3.12", platform="linux-x86_64", manager="venv", device="cpu", target=TARGET)


def locked(**more):
    return LockedPackage(name="demo", version="1.0", url="https://h/demo-1.0-py3-none-any.whl", **more)


@rows(
    ("log", "message"),
    [
        ("", "packages could not be installed"),
        ("TIMED OUT", "took longer than 4 hours"),
        ("error: Failed to read file `/c/archive-v0/x/RECORD`\n  cause: gone", "uv's cache is damaged"),
        (
            "  cause: Because demo was not found in the package registry",
            "no index has the locked demo .*from pypi",
        ),
        (
            "error: Failed to build `demo`\n  cause: Expected a Python module at: src/demo",
            "Expected a Python module",
        ),
    ],
)
def test_a_failed_installation_names_its_cause(log, message):
    done = Finished(
        returncode=1, stdout="", stderr=log, timed_out=log == "TIMED OUT", signal=None, report=b""
    )
    lock = Lock(manager="venv", target=TARGET, plan=PLAN, packages=(locked(index="pypi"),))
    error = explain_install_failure(done, lock)
    assert re.search(message, error.message) and error.hint and error.log == log


def test_nothing_is_installed_without_a_hash_or_without_space_for_it(tmp_path):
    lock = Lock(manager="venv", target=TARGET, plan=PLAN, packages=(locked(),))
    with pytest.raises(BuildError, match=r"no hash for demo 1.0"):
        requirements_text(lock, ())
    with pytest.raises(BuildError, match="needs about"):
        check_disk(tmp_path / "cache", 1 << 60)


def test_an_address_that_cannot_be_redacted_is_an_error(tmp_path):
    """uv wrote it with the values of variables."""
    info = tmp_path / "demo-1.0.dist-info"
    info.mkdir()
    (info / "direct_url.json").write_text('{"url": "https://me:word@h/demo')
    lock = Lock(manager="venv", target=TARGET, plan=PLAN, packages=(locked(),))
    with pytest.raises(BuildError, match="may contain credentials"):
        UvInstall(lock, tmp_path, PackageSources(), drop_event, target=tmp_path)._redact_installed()


def test_a_failure_of_uv_is_an_error_with_its_output(tmp_path):
    for fail in (
        lambda: make_venv(tmp_path / "env", "/nonexistent/python", PackageSources(), prompt="env"),
        lambda: uninstall(tmp_path, ["demo"]),
    ):
        with pytest.raises(BuildError) as caught:
            fail()
        assert caught.value.log and caught.value.hint
