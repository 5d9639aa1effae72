"""The Pythons that detect finds."""

import os
import shutil
import sys
from pathlib import Path

import pytest
from detect_files import program, tree

from provision.detect import pythons
from provision.detect.pythons import (
    PythonCache,
    ask_python,
    read_pythons,
)

REPORTING = """#!/bin/sh
echo '["cpython", "{version}", "{level}", {base}, {free}]'
"""


def interpreter(path, version, *, level="final", base="true", free="false"):
    return program(path, REPORTING.format(version=version, level=level, base=base, free=free))


def test_this_python_states_its_version():
    base = Path(sys.base_prefix) / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}"
    assert ask_python(base.resolve()) == (".".join(map(str, sys.version_info[:3])), False)


def test_pythons_are_found_in_all_usual_places(tmp_path):
    home = tmp_path / "home"
    interpreter(home / ".pyenv/versions/3.10.13/bin/python3", "not started")
    interpreter(home / ".pyenv/versions/2.7.18/bin/python", "2.7.18")
    interpreter(home / ".pyenv/shims/python3", "3.9.1")
    interpreter(home / ".local/share/uv/python/cpython-3.12.8-linux-x86_64-gnu/bin/python3", "not started")
    interpreter(home / "miniforge3/bin/python3", "not started")
    tree(home, {"miniforge3/conda-meta/python-3.11.9-h955ad1f_0_cpython.json": "{}"})
    interpreter(tmp_path / "other/bin/python", "not started")
    tree(tmp_path, {"other/conda-meta/python-3.13.1-h9a_0_cpython.json": "{}"})
    tree(home, {".conda/environments.txt": f"{tmp_path / 'other'}\n/gone\n"})
    interpreter(tmp_path / "usr/bin/python3.9", "3.9.2")
    interpreter(tmp_path / "opt/tools/bin/python3", "3.8.18")
    interpreter(tmp_path / "usr/local/bin/python3.7", "3.7.9")
    environ = {"HOME": str(home), "PATH": f"{home / '.pyenv/shims'}:{home / '.pyenv/versions/3.10.13/bin'}:."}
    found = read_pythons(tmp_path, environ)
    assert [(p.version, p.source) for p in found] == [
        ("3.10.13", "pyenv"),
        ("3.12.8", "uv"),
        ("3.11.9", "conda"),
        ("3.13.1", "conda"),
        ("3.8.18", "system"),
        ("3.9.2", "system"),
    ]
    assert all(Path(p.path).is_absolute() for p in found)


def test_links_to_one_python_are_one(tmp_path):
    interpreter(tmp_path / "bin/python3.11", "3.11.4")
    (tmp_path / "bin/python3").symlink_to("python3.11")
    (tmp_path / "bin/python").symlink_to("python3")
    (python,) = read_pythons(
        tmp_path / "empty", {"PATH": str(tmp_path / "bin"), "HOME": str(tmp_path / "none")}
    )
    assert python.path == str((tmp_path / "bin/python3.11").resolve())
    assert python.source == "path"


@pytest.mark.parametrize(
    "bad",
    [
        {"version": "3.11.4", "level": "candidate"},
        {"version": "3.11.4", "base": "false"},
        {"version": "3.6.15"},
    ],
)
def test_unsuitable_pythons_and_that_of_a_virtualenv_are_left_out(tmp_path, bad):
    interpreter(tmp_path / "bin/python3", **bad)
    interpreter(tmp_path / "venv/bin/python", "3.11.4")
    (tmp_path / "venv/pyvenv.cfg").write_text("home = /usr/bin\n")
    environ = {"PATH": f"{tmp_path / 'bin'}:{tmp_path / 'venv/bin'}", "HOME": str(tmp_path)}
    assert read_pythons(tmp_path / "empty", environ) == ()


def test_a_free_threaded_python_is_listed_only_where_it_is_the_only_one(tmp_path):
    interpreter(tmp_path / "a/python3", "3.13.1", free="true")
    environ = {"PATH": str(tmp_path / "a"), "HOME": str(tmp_path)}
    assert [p.version for p in read_pythons(tmp_path / "empty", environ)] == ["3.13.1"]
    interpreter(tmp_path / "b/python3", "3.12.1")
    environ["PATH"] += f":{tmp_path / 'b'}"
    assert [p.version for p in read_pythons(tmp_path / "empty", environ)] == ["3.12.1"]


def test_a_python_is_asked_once_as_long_as_its_file_is_the_same(tmp_path, monkeypatch):
    python = tmp_path / "python3"
    shutil.copy2(Path(sys.base_prefix, "bin", f"python{sys.version_info[0]}.{sys.version_info[1]}"), python)
    told = [("3.11.4", False), ("3.11.5", False), ("3.11.6", False)]
    monkeypatch.setattr("provision.detect.pythons.ask_python", lambda _path: told.pop(0))

    def answer():
        answers = PythonCache(tmp_path / "cache")
        found = answers.ask(python)
        answers.write()
        return found

    assert answer() == answer() == ("3.11.4", False)
    os.utime(python, (1, 1))
    assert answer() == answer() == ("3.11.5", False)
    kept = tmp_path / "cache" / "pythons.json"
    kept.write_text(kept.read_text().replace("3.11.5", "3.x"))
    assert answer() == ("3.11.6", False), "a damaged answer is no answer"


def test_a_program_that_is_no_python_is_not_kept(tmp_path, monkeypatch):
    answers = PythonCache(tmp_path / "cache")
    shutil.copy2("/bin/true", tmp_path / "python3")
    assert answers.ask(tmp_path / "python3") is None is answers.ask(tmp_path / "absent")
    answers.write()
    assert not (tmp_path / "cache" / "pythons.json").exists()


def test_a_script_before_a_python_is_always_asked(tmp_path):
    python = interpreter(tmp_path / "python3", "3.11.4")
    assert PythonCache(tmp_path / "cache").ask(python) == ("3.11.4", False)
    changed, state = python.read_text().replace("3.11.4", "3.11.5"), python.stat()
    python.write_text(changed)
    os.utime(python, ns=(state.st_atime_ns, state.st_mtime_ns))
    assert PythonCache(tmp_path / "cache").ask(python) == ("3.11.5", False)


def test_a_python_that_fails_or_hangs_or_is_missing_gives_none(tmp_path, monkeypatch):
    monkeypatch.setattr(pythons, "_SECONDS", 0.2)
    assert ask_python(program(tmp_path / "python3", "#!/bin/sh\nexit 3\n")) is None
    assert ask_python(tmp_path / "absent") is None
    assert ask_python(program(tmp_path / "python", "#!/bin/sh\nsleep 60\n")) is None
