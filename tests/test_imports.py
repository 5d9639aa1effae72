"""The import rules of the design: who may know whom, and what is imported where."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent / "provision"
STAGES = {"detect", "resolve", "lock", "build", "verify", "diagnose"}
DOORS = {"process", "index", "references", "foreign", "writing", "path_names", "safe_write", "output_file"}
MAY = {
    "model": set(),
    "process": set(),
    "foreign": set(),
    "writing": set(),
    "path_names": {"errors"},
    "redaction": {"references"},
    "references": {"errors"},
    "standard_streams": set(),
    "safe_write": set(),
    "output_file": {"errors", "foreign", "safe_write"},
    "errors": {"model"},
    "index": {
        "model",
        "errors",
        "process",
        "foreign",
        "references",
        "writing",
        "path_names",
        "safe_write",
        "output_file",
    },
    "profiles": {"model", "errors", "foreign"},
    "show": {"model", "errors"},
    "export": {"model", "errors"},
    "project": {"model", "errors", "foreign", "path_names", "references", "safe_write"},
    "registry": {"process", "model", "errors", "foreign", "safe_write"},
    "bundle": {
        "model",
        "errors",
        "process",
        "index",
        "foreign",
        "writing",
        "path_names",
        "safe_write",
        "output_file",
    },
    "kernel": {"model", "errors", "process", "foreign", "safe_write"},
    "report": {"model", "errors"},
    **dict.fromkeys(STAGES, {"model", "errors"} | DOORS),
}
ONLY_IN = {
    "rich": {"show"},
    "typer": {"cli"},
    "subprocess": {"process"},
    "urllib.request": {"index"},
    "http.client": {"index"},
    "yaml": {"profiles", "project", "conda", "export"},
}


def modules():
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        if parts[0] != "probes" and parts[0] not in ("__init__", "__main__"):
            yield path, parts


def imported(path, parts):
    """(top-level module of ours or None, full foreign name or None) of every import."""
    package = ["provision", *parts[:-1]]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            for name in node.names:
                yield name.name
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            stem = ".".join([*base, *([node.module] if node.module else [])])
            for name in node.names:
                yield f"{stem}.{name.name}"


def ours(name):
    parts = name.split(".")
    return parts[1] if parts[0] == "provision" and len(parts) > 1 else None


@pytest.mark.parametrize(("path", "parts"), list(modules()), ids=lambda v: str(v).replace(str(ROOT), ""))
def test_a_module_imports_only_what_it_may_know(path, parts):
    mine = parts[0]
    for name in imported(path, parts):
        other = ours(name)
        if other and other not in (mine, "__version__", "redaction") and mine != "cli":
            assert other in MAY[mine], f"{path.name} imports {name}"
        for foreign, places in ONLY_IN.items():
            if name == foreign or name.startswith(foreign + "."):
                # conda's files lie in several stages: lock/conda_file.py is "conda" as well
                assert {mine, parts[-1].partition("_")[0]} & places, f"{path.name} imports {name}"


@pytest.mark.parametrize(("path", "parts"), list(modules()), ids=lambda v: str(v).replace(str(ROOT), ""))
def test_the_environment_and_printing_have_one_door_each(path, parts):
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if node.value.id == "os" and node.attr in ("environ", "getenv", "putenv"):
                assert parts[0] == "process", f"{path.name}:{node.lineno} reads os.{node.attr}"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print":
            raise AssertionError(f"{path.name}:{node.lineno} prints")


def test_probes_import_nothing_of_ours_and_are_never_imported():
    for path in sorted((ROOT / "probes").glob("*.py")):
        names = imported(path, ("probes", path.stem))
        assert not [n for n in names if n.startswith("provision")], path.name
    for path, parts in modules():
        assert not [n for n in imported(path, parts) if ours(n) == "probes"], path.name


def test_every_module_of_the_table_exists():
    """A rule for a module that is gone would check nothing."""
    tops = {parts[0] for _, parts in modules()}
    assert {"model", "process", "errors", "index", "profiles", "show", "cli"} <= tops
    assert tops & STAGES >= {"detect", "resolve", "lock", "build", "verify"}


HEAVY = ("virtualenv", "conda_lock", "rattler", "uv", "rich", "yaml", "pynvml", "urllib.request")


@pytest.mark.parametrize(
    ("line", "absent"),
    [
        ("import provision.__main__", ("typer", "packaging", "provision.model", *HEAVY)),
        ("import provision.cli", HEAVY),
        (
            "import provision.cli.planning",
            ("provision.lock", "provision.build", "provision.verify", *HEAVY[:-2]),
        ),
        ("import provision.cli.creating", ("virtualenv", "rich", "conda_lock", "rattler")),
    ],
)
def test_heavy_libraries_wait_until_they_are_needed(line, absent):
    code = f"{line}\nimport sys\nprint(*sorted(set({absent!r}) & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
