"""`gpuenv init`: what it finds in a folder, what it writes, and that an existing Makefile goes on working."""

import json
import os
import re
import shutil
import stat
import subprocess
import textwrap
import time

import pytest
from environment_facts import ok, refused
from hypothesis import given, settings, strategies as st
from requirements_folder import KNOWN
from rows import rows

from provision.config.file import read_config
from provision.config.write import extend_makefile, list_targets, write_project_files
from provision.model import Profiles
from provision.requirements import imports, scan

YOLO = "# YOLOv5\nnumpy>=1.23\ntorch>=1.8.0  # see pytorch.org\ntorchvision>=0.9.0\n"


@pytest.fixture
def work(gpuenv):
    return gpuenv.work


def write(folder, files):
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else textwrap.dedent(text).encode())


def make(folder, *args, **variables):
    """A real make, with a `gpuenv` on PATH that says how it was called."""
    tools = folder.parent / "tools"
    tools.mkdir(exist_ok=True)
    tool = tools / "gpuenv"
    tool.write_text('#!/bin/sh\necho "called: gpuenv $*"\n')
    tool.chmod(0o755)
    env = {"PATH": f"{tools}:{os.environ['PATH']}", "LC_ALL": "C", **variables}
    done = subprocess.run(
        ["make", *args],
        cwd=folder,
        env=env,
        capture_output=True,
        check=False,
        timeout=300,
        encoding="utf-8",
        errors="surrogateescape",
    )
    return done.returncode, done.stdout, done.stderr


def contents(folder):
    return {p.name: (p.read_bytes(), p.stat().st_mtime_ns) for p in folder.iterdir() if p.is_file()}


# --- the whole command -------------------------------------------------------------------------


def test_init_writes_gpuenv_yaml_makefile_and_gitignore(gpuenv, work):
    write(work, {"requirements.txt": YOLO, "train.py": "\ufeffimport tensorflow\nimport torch\n"})
    gpuenv.env["COLUMNS"] = "80"
    ran = ok(gpuenv("init"))
    assert ran.out.splitlines()[-1].startswith("gpuenv lock  # commit pylock.toml")
    assert all(len(line) <= 80 for line in ran.out.splitlines())
    found = read_config(work / "gpuenv.yaml")
    assert (found.frameworks, found.requirements, found.project) == (("torch",), ("requirements.txt",), None)
    text = (work / "gpuenv.yaml").read_text()
    assert "# targets: {node: " in text
    assert '"torch"  # requirements.txt line 3' in text
    assert "tensorflow is imported in train.py" in text
    assert (work / ".gitignore").read_text() == ".venv/\n"
    assert make(work, "-s", "env") == (0, "called: gpuenv create\n", "")
    assert make(work, "-s", "verify")[1] == "called: gpuenv verify\n"
    assert len((work / "Makefile").read_text().splitlines()) <= 12
    assert make(work, "-s", "lock")[1] == "called: gpuenv lock\n"
    (work / "env").mkdir()
    assert make(work, "-n", "env")[1] == "gpuenv create\n"  # .PHONY: a folder of its name is no reason
    assert make(work, "-s")[1] == "called: gpuenv create\n"


def test_the_second_run_changes_nothing_and_says_so(gpuenv, work):
    write(work, {"requirements.txt": YOLO, "Makefile": "all: ; true\n", ".gitignore": "*.pyc"})
    assert gpuenv("init").code == 0
    before = contents(work)
    assert before[".gitignore"][0] == b"*.pyc\n.venv/\n"
    ran = ok(gpuenv("init"))
    assert "nothing was changed" in ran.out
    assert contents(work) == before


def test_init_with_json_prints_one_document(gpuenv, work):
    write(work, {"requirements.txt": YOLO})
    document = gpuenv("init", "--json").json
    assert document["schema"] == "gpuenv.init/1"
    assert document["frameworks"] == ["torch"]
    assert [(f["path"], f["done"]) for f in document["files"]] == [
        ("gpuenv.yaml", "written"), ("Makefile", "written"), (".gitignore", "written"),
    ]  # fmt: skip
    document = gpuenv("init", "--json").json
    assert {f["done"] for f in document["files"]} == {"kept"}
    shutil.rmtree(work)
    work.mkdir()
    assert refused(gpuenv("init", "--json"), 2).json["schema"] == "gpuenv.error/1"


def test_without_a_sign_of_a_framework_nothing_is_written(gpuenv, work):
    write(work, {"requirements.txt": "numpy\n", "a.py": "import os, torchlike\nfrom .torch import x\n"})
    assert "--framework" in refused(gpuenv("init"), 2).err
    assert sorted(p.name for p in work.iterdir()) == ["a.py", "requirements.txt"]
    ok(gpuenv("init", "--framework", "jax>=0.5", "--framework", "torchvision"))
    found = read_config(work / "gpuenv.yaml")
    assert found.frameworks == ("jax>=0.5", "torchvision")
    assert found.requirements == ("requirements.txt",)


def test_a_named_framework_keeps_the_bounds_of_files_that_cannot_be_listed(gpuenv, work):
    write(work, {"environment.yml": "name: x\ndependencies:\n- pytorch<2.5\n"})
    for named, listed in (("torch", "torch<2.5"), ("torch>=2.1", "torch>=2.1")):
        assert gpuenv("init", "--framework", named).code == 0
        assert read_config(work / "gpuenv.yaml").frameworks == (listed,)
        (work / "gpuenv.yaml").unlink()


@pytest.mark.parametrize("word", ["pytorch", "numpy", "torch==2.5+cu124", "torch @ https://h/x", ">=2"])
def test_a_wrong_framework_is_refused(gpuenv, work, word):
    assert "--framework" in refused(gpuenv("init", "--framework", word), 2).err
    assert list(work.iterdir()) == []
    assert gpuenv("init", "--framework", "torch", "--framework", "torch>2").code == 2


def test_an_existing_gpuenv_yaml_is_kept(gpuenv, work):
    write(work, {"gpuenv.yaml": "frameworks: [jax]\n", "requirements.txt": YOLO})
    ran = ok(gpuenv("init", "--framework", "torch"))
    assert "kept" in ran.out and "add the frameworks to it by hand" in " ".join(ran.out.split())
    assert (work / "gpuenv.yaml").read_text() == "frameworks: [jax]\n"
    assert (work / "Makefile").exists()
    (work / "Makefile").unlink()
    write(work, {"gpuenv.yaml": "framework: [jax]\n"})
    assert "Did you mean frameworks?" in refused(gpuenv("init"), 3).err
    assert not (work / "Makefile").exists()


def test_init_writes_all_files_or_none(gpuenv, work):
    write(work, {"requirements.txt": YOLO})
    (work / ".gitignore").mkdir()
    assert ".gitignore" in refused(gpuenv("init"), 2).err
    assert sorted(p.name for p in work.iterdir()) == [".gitignore", "requirements.txt"]


@pytest.mark.parametrize(
    ("file", "text", "error"),
    [
        ("requirements.txt", "torch>=2.2\nnumpy=1.26\n",
         "error: requirements.txt line 2: 'numpy=1.26': a single = is conda syntax hint: write numpy==1.26.*. Or name a framework:"),
        ("pyproject.toml", "[project]\nname = 'x\n",
         "error: pyproject.toml is not TOML: at the end of the file: the closing quote is missing hint: correct that line. Or name"),
    ],
)  # fmt: skip
def test_a_mistake_in_the_file_that_may_name_a_framework_is_the_error(gpuenv, work, file, text, error):
    write(work, {file: text})
    assert error in " ".join(refused(gpuenv("init"), 2).err.split())


# --- what is found -------------------------------------------------------------------------------


def found(folder):
    write_project_files(folder, known=KNOWN, environ={})
    return read_config(folder / "gpuenv.yaml"), (folder / "gpuenv.yaml").read_text()


def test_requirements_files_that_pyproject_does_not_read_are_listed_too(tmp_path):
    write(
        tmp_path,
        {
            "pyproject.toml": """\
                [project]
                name = "x"
                dynamic = ["dependencies"]
                [tool.setuptools.dynamic]
                dependencies = {file = ["requirements.txt"]}
                """,
            "requirements.txt": "jax\n",
            "requirements-dev.txt": "pytest\n",
        },
    )
    config, text = found(tmp_path)
    assert (config.frameworks, config.project, config.requirements) == (("jax",), ".", ())
    assert "requirements-dev.txt is not listed" in text


def test_a_pyproject_of_settings_only_is_no_project(tmp_path):
    write(tmp_path, {"pyproject.toml": "[tool.ruff]\n", "requirements.txt": "tensorflow\n"})
    config, _ = found(tmp_path)
    assert config.project is None and config.frameworks == ("tensorflow",)


def test_a_setup_py_that_computes_is_named_and_never_run(tmp_path):
    write(
        tmp_path,
        {
            "setup.py": "open('ran', 'w')\nfrom setuptools import setup\nsetup(install_requires=open('r').readlines())\n",
            "model.py": "import torch.nn as nn\n",
        },
    )
    config, text = found(tmp_path)
    assert config.frameworks == ("torch",) and config.project == "."
    assert "setup.py line 3 computes its requirements" in text
    assert not (tmp_path / "ran").exists()


def test_imports_of_programs_and_notebooks_are_counted(tmp_path, golden):
    cells = [
        {"cell_type": "markdown", "source": ["import jax"]},
        {"cell_type": "code", "source": ["%pip install x\n", "!ls\n", "import torchvision\n"]},
    ]
    write(
        tmp_path,
        {
            "d.ipynb": json.dumps({"cells": [{"cell_type": "code", "source": "import tensorflow as tf"}]}),
            "src/deep/b.py": "def f():\n    from torch import nn\n",
            "c.ipynb": json.dumps({"cells": cells}),
            "latin.py": "# coding: latin-1\nx = '\u00e9'\n".encode("latin-1"),
            ".venv/lib/d.py": "import jax\n",
            "myenv/pyvenv.cfg": "",
            "myenv/lib/e.py": "import jax\n",
            "node_modules/f.py": "import jax\n",
        },
    )
    config, text = found(tmp_path)
    assert config.frameworks == ("torch",)
    assert "# imported in c.ipynb and 1 more" in text
    golden("init", text)
    assert "jax" not in text


def test_init_reads_a_bounded_number_of_files_and_bytes(tmp_path, monkeypatch):
    monkeypatch.setattr(imports, "MOST_FILES", 20)
    monkeypatch.setattr(imports, "MOST_FOLDERS", 10)
    for i in range(30):
        write(tmp_path, {f"d{i:02}/p.py": "import torch\n", f"f{i:02}.py": "import torch\n"})
    assert len(list(imports.list_programs(tmp_path))) == 20
    monkeypatch.setattr(scan, "_MOST_FOLDERS", 2)
    write(tmp_path, {f"d{i:02}/requirements.txt": "" for i in range(4)})
    assert scan._find_lists(tmp_path) == ["d00/requirements.txt", "d01/requirements.txt"]
    monkeypatch.setattr(imports, "MOST_FILES", 200)
    (tmp_path / "d00" / "loop").symlink_to(tmp_path)
    for i in range(30):
        (tmp_path / f"f{i:02}.py").unlink()
    assert len(list(imports.list_programs(tmp_path))) == 9
    big = tmp_path / "big.py"
    big.write_bytes(b"import torch\n" + b"#" * imports.MOST_BYTES)
    os.mkfifo(tmp_path / "pipe.py")
    (tmp_path / "itself.py").symlink_to("itself.py")
    assert not list(imports.list_programs(tmp_path / "nowhere"))
    write(tmp_path, {"docs/a.ipynb": "{"})
    assert not list(imports.read_notebooks(tmp_path / "docs"))
    assert not {"big.py", "pipe.py", "itself.py"} & {name for name, _ in imports.list_programs(tmp_path)}
    write(tmp_path, {"deep.py": "x = " + "(" * 5000 + ")" * 5000, "nul.py": b"import torch\0\n"})
    hostile = {"from.py": "from a import (\n" * 12_000, "block.py": '"""' + "\\x" * 90_000 + "\\"}
    write(
        tmp_path,
        {
            **hostile,
            "chain.py": "import torch\na" + ".b" * 90_000,
            "quotes.py": "'" * 90_001 + '\\"' * 40_000 + "\n(" * 9,
        },
    )
    start = time.monotonic()
    assert imports.find_imports(tmp_path)["torch"].files[0] == "chain.py"
    assert time.monotonic() - start < 5


def test_what_a_listed_file_cannot_bring_is_named_or_copied(tmp_path):
    write(tmp_path, {
        "requirements.txt": "-r missing.txt\ntorch>=2\nsix\n./lib\n", "lib/setup.py": "", "docs/a.ipynb": "{",
        "README.md": b"pip install tqdm\n" + b"#" * scan._MOST_BYTES, "INSTALL.md": "pip install 'idna\n",
    })  # fmt: skip
    config, text = found(tmp_path)
    assert (config.frameworks, config.packages, config.requirements) == (("torch>=2",), ("six",), ())
    assert re.search(r"missing\.txt, .*requirements\.txt line 1, .*not exist", text)
    assert "\n#   file:///" in text, "a folder cannot be listed under packages"


def test_what_an_environment_file_names_is_listed_or_named(tmp_path):
    lines = ["-r a.txt", "-r a.txt", "-r b.txt", "-e ."]
    write(tmp_path, {
        "environment.yml": "dependencies:\n- pip:\n  - torch\n" + "".join(f"  - {line}\n" for line in lines),
        "a.txt": "six\n", "b.txt": "numpy>>1\n", "pyproject.toml": "[tool.black]\n",
    })  # fmt: skip
    config, text = found(tmp_path)
    assert (config.frameworks, config.requirements, config.project) == (("torch",), ("a.txt",), ".")
    assert "b.txt (environment.yml) is not listed" in text


@rows(
    ("environment", "said"),
    [
        ("a: [", "environment.yml cannot be read: "),
        ("dependencies:\n- pip:\n  - torch @ git+https://host/torch\n", "environment.yml is ignored: "),
    ],
)
def test_an_environment_file_with_a_mistake_is_named(tmp_path, environment, said):
    write(tmp_path, {"environment.yml": environment, "train.py": "import torch\n"})
    config, text = found(tmp_path)
    (tmp_path / "gpuenv.yaml").unlink()
    assert config.frameworks == ("torch",) and said in text


# --- Makefiles -----------------------------------------------------------------------------------

_MAKEFILES = {
    "plain": "all: out\n\nout:\n\techo made > out\n\nclean:\n\trm -f out\n",
    "no final newline": "all:\n\techo all",
    "backslash at the end": "all:\n\techo a \\\n\tb \\",
    "backslash and newline at the end": "FLAGS = a \\\n",
    "crlf": "all: one\r\n\r\none:\r\n\techo one\r\n",
    "crlf without an end": "all:\r\n\techo one",
    "variables only": "X := 1\n",
    "define": "define HELP\nenv: not a target\nendef\nall: ; echo $(words $(HELP))\n",
    "conditional": "ifdef X\nall: ; echo x\nelse\nall: ; echo y\nendif\n",
    "recipe prefix": ".RECIPEPREFIX = >\nall:\n> echo prefixed\n",
    "bytes": "# caf\u00e9\nall: ; echo \u00e9\n",
    "pattern": "%.o: %.c ; echo $@\nall: ; echo all\n",
    "default": ".DEFAULT_GOAL := b\na: ; echo a\nb: ; echo b\n",
}


@pytest.mark.parametrize("kind", _MAKEFILES)
def test_an_existing_makefile_does_what_it_did(tmp_path, kind):
    work = tmp_path / "work"
    work.mkdir()
    before = _MAKEFILES[kind].encode("latin-1" if kind == "bytes" else "utf-8")
    write(work, {"Makefile": before, "a.py": "import jax\n"})
    said = make(work, "-n")
    found(work)
    after = (work / "Makefile").read_bytes()
    assert after.startswith(before)
    if said[0] == 0 or "No targets" not in said[2]:
        assert make(work, "-n") == said
    assert make(work, "-s", "env") == (0, "called: gpuenv create\n", "")
    assert make(work, "-s", "verify", "lock")[1] == "called: gpuenv verify\ncalled: gpuenv lock\n"
    if b"\r\n" in before:
        assert b"\n" not in after.replace(b"\r\n", b"")
    made = write_project_files(work, known=Profiles(), environ={})
    assert {f.done for f in made.files} == {"kept"}
    assert made.frameworks == ("jax",)


@pytest.mark.parametrize(
    "text",
    [
        "env:\n\techo mine\n",
        "env lint: x\n\techo mine\nx:\n",
        "lint \\\n  env:\n\techo mine\n",
        "env:: ; echo mine\n",
        "all: ; true\ninclude more.mk\n",
        "all: ; true\n-include nothing.mk more.mk $(WILD)\n",
        ".PHONY: env\nenv: ; @echo mine\n",
        "all: env\n%: ; @echo mine\n",
    ],
)
def test_a_target_that_is_there_keeps_its_name(tmp_path, text):
    work = tmp_path / "work"
    work.mkdir()
    write(work, {"Makefile": text, "more.mk": "env: ; @echo mine\n", "a.py": "import jax\n"})
    said = make(work, "-n", "env")
    made = write_project_files(work, known=Profiles(), environ={})
    assert any("gpuenv's target is gpuenv-env" in note for note in made.notes)
    assert make(work, "-n", "env") == said
    assert make(work, "-s", "gpuenv-env") == (0, "called: gpuenv create\n", "")
    assert make(work, "-s", "verify")[0] == 0


@pytest.mark.parametrize("names", [["GNUmakefile", "Makefile"], ["makefile", "Makefile"], ["makefile"]])
def test_the_file_that_make_reads_is_the_one_that_is_changed(tmp_path, names):
    work = tmp_path / "work"
    work.mkdir()
    write(work, {"a.py": "import jax\n", **dict.fromkeys(names, "all: ; true\n")})
    found(work)
    assert b"gpuenv" in (work / names[0]).read_bytes()
    assert all((work / n).read_bytes() == b"all: ; true\n" for n in names[1:])
    assert make(work, "-s", "env")[0] == 0


def test_permissions_and_links_of_the_makefile_stay(tmp_path):
    write(tmp_path, {"a.py": "import jax\n", "real/Makefile": "all: ; true\n"})
    (tmp_path / "real" / "Makefile").chmod(0o750)
    (tmp_path / "Makefile").symlink_to("real/Makefile")
    found(tmp_path)
    assert (tmp_path / "Makefile").is_symlink()
    assert stat.S_IMODE((tmp_path / "real" / "Makefile").stat().st_mode) == 0o750
    assert b"$(GPUENV) create" in (tmp_path / "real" / "Makefile").read_bytes()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"", b".venv/\n"),
        (b"a\r\nb", b"a\r\nb\r\n.venv/\r\n"),
        (b"/.venv\n", None),
        (b"# x\n.venv/  \n", None),
        (b"# .venv\n", b"# .venv\n.venv/\n"),
    ],
)
def test_gitignore_gets_its_line_once_in_its_own_line_ends(tmp_path, before, after):
    write(tmp_path, {"a.py": "import jax\n", ".gitignore": before})
    found(tmp_path)
    assert (tmp_path / ".gitignore").read_bytes() == (before if after is None else after)


_LINES = st.sampled_from(
    ["all: ; @true", "env:", "\techo x", "env = 1", "ENV := y", "a b env : c", "include x.mk", "ifdef A", "endif",
     "define D", "endef", "# env:", "verify: all", "lock:: all", "x \\", "", "é:", "$(X): y", "%: ; @:", "a=b:c",
     ".PHONY: env lock", "override ENV=1", "\t", "env: ENV = z", "all: env", "-include y.mk", "a:=b"]
)  # fmt: skip


@settings(max_examples=40)
@given(lines=st.lists(_LINES, max_size=7), end=st.sampled_from(["", "\n"]), crlf=st.booleans())
def test_any_makefile_that_works_goes_on_working(tmp_path, lines, end, crlf):
    work = tmp_path / "work"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    before = (("\r\n" if crlf else "\n").join(lines) + end).encode()
    (work / "Makefile").write_bytes(before)
    goals = ("all", "env", "verify", "lock")
    targets = list_targets(before.decode())
    mine = [goal for goal in goals if goal in targets]
    said = make(work, "-n", *mine) if mine else None
    data, said_of_it = extend_makefile("", [], work / "Makefile", before)
    (work / "Makefile").write_bytes(data)
    if said and said[0] == 0:
        assert make(work, "-n", *mine) == said
        assert make(work, "-s", said_of_it.split(", ")[0].split()[1])[1] == "called: gpuenv create\n"
