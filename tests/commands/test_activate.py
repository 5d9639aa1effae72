"""The activate scripts, in every shell that is there: in, Python found, out, everything as before."""

import os
import shutil
import sys
from pathlib import Path

import pytest
from command import Command
from debian import need_programs
from environment_facts import HERE, ok
from loopback import Index, serving
from programs import run_program

from provision.conda import activation as conda_scripts
from provision.environment import activate as shells
from provision.errors import BuildError

ODD = 'Jürgen\'s "GPU" & co $HOME'
FLAGS = {
    "bash": ("--noprofile", "--norc"),
    "zsh": ("-f",),
    "fish": ("--no-config",),
    "tcsh": ("-f",),
    "csh": ("-f",),
}
# Enter by LINE, tell where we are, leave, tell again, in words that all shells share. `~` stands where a
# variable is not set.
SCRIPT = """\
LINE
which python
printenv VARIABLE || echo '~'
printenv LD_LIBRARY_PATH || echo '~'
printenv PYTHONHOME || echo '~'
python -c 'import sys; print(sys.prefix)'
printenv GREETING || echo '~'
deactivate
printenv VARIABLE || echo '~'
printenv PATH
printenv LD_LIBRARY_PATH || echo '~'
printenv GREETING || echo '~'
"""
SHELLS = ("bash", "dash", "zsh", "ksh", "fish", "tcsh", "csh")


@pytest.fixture(scope="module")
def venv(tmp_path_factory):
    """A venv by `create`, of tiny wheels, in a folder that every shell would take apart."""
    gpuenv = Command(tmp_path_factory.mktemp("activate"))
    gpuenv.env["LANG"] = "C.UTF-8"
    gpuenv.work = gpuenv.folder / ODD
    gpuenv.work.mkdir()
    with serving(Index()) as index:
        ask = ("--framework", "jax", "--python", HERE, "--index", "pypi", "--device", "cpu")
        index.add_plan(gpuenv("resolve", "--json", *ask).json)
        gpuenv.env["PIP_INDEX_URL"] = index.url
        ok(gpuenv("create", *ask, "--no-verify"))
        gpuenv.again = ("create", *ask, "--no-verify", "--offline")
        yield gpuenv


def shell_called(name):
    need_programs(name, packages=name)
    return [shutil.which(name), *FLAGS.get(name, ())]


def told(argv, script, env, cwd):
    file = Path(env["HOME"]) / "script"
    file.write_text(script, encoding="utf-8")
    done = run_program([*argv, file], env=env, cwd=cwd, check=True)
    return done.stdout.splitlines()


@pytest.mark.parametrize("name", SHELLS)
def test_the_last_line_of_create_activates_the_environment(venv, name):
    """Asked inside the shell, pasted into it."""
    argv = shell_called(name)
    command = " ".join(f"'{w}'" for w in (sys.executable, "-m", "provision", *venv.again))
    env = {**venv.env, "SHELL": argv[0], "LD_LIBRARY_PATH": "/opt/mine"}
    *_, line = told(argv, f"{command} || exit 9\ntrue\n", env, venv.work)
    if name in ("bash", "zsh", "fish"):
        assert line == "source .venv/bin/activate" + (".fish" if name == "fish" else "")
    script = SCRIPT.replace("LINE", line).replace("VARIABLE", "VIRTUAL_ENV")
    root = venv.work / ".venv"
    seen = told(argv, script, env, venv.work)
    assert seen[:3] == [str(root / "bin" / "python"), str(root), "/opt/mine"]
    assert seen[4:6] == [str(root), "~"]
    assert seen[6:] == ["~", env["PATH"], "/opt/mine", "~"]


@pytest.mark.parametrize("name", ["bash", "zsh", "fish"])
def test_a_copied_and_a_moved_environment_activate_themselves(venv, name, tmp_path):
    """Never the original, which a copy's user would change without knowing."""
    argv = shell_called(name)
    copy = tmp_path / "a copy's folder"
    shutil.copytree(venv.work, copy, symlinks=True)
    moved = copy.rename(tmp_path / "moved")
    shutil.copytree(venv.work, copy, symlinks=True)
    for project in (copy, moved):
        root = project / ".venv"
        script = SCRIPT.replace("LINE", f"source .venv/bin/activate{'.fish' if name == 'fish' else ''}")
        seen = told(argv, script.replace("VARIABLE", "VIRTUAL_ENV"), venv.env, project)
        assert seen[:2] == [str(root / "bin" / "python"), str(root)] and seen[4] == str(root)


@pytest.mark.parametrize("name", SHELLS)
def test_activation_works_from_another_folder_and_can_be_left(venv, name, monkeypatch, tmp_path):
    """The line with a whole path, whose every letter must survive."""
    argv = shell_called(name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(shells, "_detect_shell", lambda: name)
    root = venv.work / ".venv"
    line = shells.activate_line(root, {})
    seen = told(argv, SCRIPT.replace("LINE", line).replace("VARIABLE", "VIRTUAL_ENV"),
                {**venv.env, "LD_LIBRARY_PATH": "/x"}, tmp_path)  # fmt: skip
    assert seen[:2] == [str(root / "bin" / "python"), str(root)] and seen[-4:-2] == ["~", venv.env["PATH"]]


@pytest.mark.parametrize("name", ["bash", "dash", "zsh"])
def test_pythonhome_is_unset_while_active_and_restored_afterwards(venv, name):
    argv = shell_called(name)
    env = {**venv.env, "PYTHONHOME": "/nowhere"}
    script = '. .venv/bin/activate\necho "${PYTHONHOME-~}"\ndeactivate\necho "$PYTHONHOME"\n'
    assert told(argv, script, env, venv.work) == ["~", "/nowhere"]


@pytest.mark.parametrize("name", SHELLS)
def test_a_conda_environment_is_activated_and_left_by_our_scripts(tmp_path, name, monkeypatch):
    """Our own scripts, with what conda packages bring in activate.d."""
    argv = shell_called(name)
    prefix = tmp_path / ODD / "env"
    for folder in ("bin", "conda-meta", "etc/conda/activate.d", "etc/conda/deactivate.d"):
        (prefix / folder).mkdir(parents=True)
    (prefix / "bin" / "python").write_text(f'#!/bin/sh\necho "{"$"}(dirname "{"$"}(dirname "$0")")"\n')
    (prefix / "bin" / "python").chmod(0o755)
    for kind, sh, fish in (("activate", "export GREETING=hello", "set -gx GREETING hello"),
                           ("deactivate", "unset GREETING", "set -e GREETING")):  # fmt: skip
        (prefix / "etc" / "conda" / f"{kind}.d" / "a b.sh").write_text(sh + "\n")
        (prefix / "etc" / "conda" / f"{kind}.d" / "a b.fish").write_text(fish + "\n")
        csh = sh.replace("export GREETING=", "setenv GREETING ").replace("unset ", "unsetenv ")
        (prefix / "etc" / "conda" / f"{kind}.d" / "a b.csh").write_text(csh + "\n")
    conda_scripts.write_scripts(prefix, [], [])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(shells, "_detect_shell", lambda: name)
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "LANG": "C.UTF-8",
        "LD_LIBRARY_PATH": "/opt/mine",
    }
    line = shells.activate_line(prefix, {})
    seen = told(argv, SCRIPT.replace("LINE", line).replace("VARIABLE", "CONDA_PREFIX"), env, tmp_path)
    assert seen == [
        str(prefix / "bin" / "python"), str(prefix), "/opt/mine", "~", str(prefix), "hello", "~", env["PATH"],
        "/opt/mine", "~",
    ]  # fmt: skip


@pytest.mark.parametrize("name", SHELLS)
def test_a_second_conda_environment_replaces_the_active_one(tmp_path, name, monkeypatch):
    """The second takes the place of the first, and leaving brings back what an outer conda had set. Scripts
    for other shells alone (zsh stops at a pattern that fits nothing) are none."""
    argv = shell_called(name)
    lines = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(shells, "_detect_shell", lambda: name)
    for word in ("first", "second"):
        prefix = tmp_path / f"the {word}"
        for folder in ("bin", "conda-meta", "etc/conda/activate.d", "etc/conda/deactivate.d"):
            (prefix / folder).mkdir(parents=True)
        (prefix / "etc" / "conda" / "activate.d" / "x.ps1").write_text("no shell of ours\n")
        (prefix / "etc" / "conda" / "activate.d" / "x.csh").write_text(f"setenv GREETING {word}\n")
        (prefix / "etc" / "conda" / "deactivate.d" / "x.csh").write_text("unsetenv GREETING\n")
        conda_scripts.write_scripts(prefix, [], [])
        lines.append(shells.activate_line(prefix, {}))
    told_here = "printenv CONDA_PREFIX || echo '~'\nprintenv PATH\nprintenv GREETING || echo '~'\n"
    script = f"{lines[0]}\n{lines[1]}\n{told_here}deactivate\n{told_here}"
    outer = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "CONDA_PREFIX": "/opt/conda",
        "CONDA_DEFAULT_ENV": "base",
    }
    second, greeting = tmp_path / "the second", "second" if name in ("tcsh", "csh") else "~"
    assert told(argv, script, outer, tmp_path) == [
        str(second), f"{second}/bin:{outer['PATH']}", greeting, "/opt/conda", outer["PATH"], "~",
    ]  # fmt: skip


def test_a_program_gets_what_activation_would_set(tmp_path):
    """`gpuenv run` as `conda run`: the packages' scripts have a say, what they print does not get through."""
    before = {"PATH": os.environ["PATH"], "PWD": "/elsewhere"}
    assert conda_scripts.activate(tmp_path, before) == before
    folder = tmp_path / "etc" / "conda" / "activate.d"
    folder.mkdir(parents=True)
    (folder / "a b.sh").write_text('echo noise\nexport TWO="one\ntwo" PREFIX="$CONDA_PREFIX"\n')
    found = conda_scripts.activate(tmp_path, {**before, "CONDA_PREFIX": "/x"})
    assert found == {**before, "CONDA_PREFIX": "/x", "TWO": "one\ntwo", "PREFIX": "/x"}
    (folder / "c.sh").write_text("exit 3\n")
    with pytest.raises(BuildError, match=r"a script in .*activate\.d fails"):
        conda_scripts.activate(tmp_path, before)


def test_powershell_and_nushell_get_lines_quoted_by_their_rules(tmp_path, monkeypatch):
    """By their documentation: a string alone is no command to PowerShell, & calls it, '' is an apostrophe;
    in Nushell only double quotes know escapes. Neither shell is here to try it."""
    monkeypatch.chdir(tmp_path)
    for name, env, line in (
        ("pwsh", ".venv", ".venv/bin/activate.ps1"),
        ("pwsh", "Jürgen's env", "& 'Jürgen''s env/bin/activate.ps1'"),
        ("nu", "my env", 'overlay use "my env/bin/activate.nu"'),
        ("nu", 'a"b', 'overlay use "a\\"b/bin/activate.nu"'),
    ):
        monkeypatch.setattr(shells, "_detect_shell", lambda name=name: name)
        assert shells.activate_line(tmp_path / env, {}) == line
    (tmp_path / "my env" / "conda-meta").mkdir(parents=True)  # conda has no scripts for these shells
    assert shells.activate_line(tmp_path / "my env", {}) == "gpuenv run 'my env' -- nu"


def test_pyvenv_cfg_is_what_editors_read(venv):
    """VS Code takes `.venv` in the opened folder for the project's; it reads lines of `key = value`, `home` and
    `version` among them (site.py's own rule, PEP 405), and bin/python."""
    rows = (venv.work / ".venv" / "pyvenv.cfg").read_text().splitlines()
    assert rows and all(row.count(" = ") >= 1 and row == row.strip() for row in rows)
    config = dict(row.split(" = ", 1) for row in rows)
    assert len(config) == len(rows)
    assert (Path(config["home"]) / f"python{HERE}").exists()
    version = config.get("version") or config["version_info"]
    assert version.startswith(f"{HERE}.") and config["include-system-site-packages"] == "false"
    assert os.access(venv.work / ".venv" / "bin" / "python", os.X_OK)
