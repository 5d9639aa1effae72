"""The import rules of the design: who may know whom, and what is imported where."""

import ast
import functools
import importlib
import re
import sys
from pathlib import Path

from programs import run_program
from rows import rows

ROOT = Path(__file__).resolve().parents[2] / "provision"
STAGES = {"detect", "resolve", "verify", "diagnose"}
EVERYONE = {"model", "errors", "system"}
"""What any package may import, but `system` and what is below it."""
BELOW = {"environment", "index", "profiles"}
MAY = {
    "cli": {"show", "actions", "config", "environment"},
    "commands": {"config"},  # and the modules of `actions`, imported by name
    "actions": {
        "lock", "config", "conda", "fleet", "bundle", "export", "report", *STAGES, "requirements", "wheels", *BELOW,
    },
    "bundle": {"lock", "config", "conda", "fleet", "detect", "templates", "wheels", *BELOW},
    "lock": {"resolve", "detect", "verify", "config", "conda", "fleet", "wheels", "requirements", *BELOW},
    "config": {"requirements", "templates", "profiles", "detect", "resolve", "index", "environment"},
    "conda": {"resolve", "templates", "wheels", "environment", "index"},
    **dict.fromkeys(STAGES, BELOW),
    **{name: {"resolve", "wheels", *BELOW} for name in ("fleet", "report")},
    "export": {"bundle", "templates", "environment", "profiles", "index"},
    "templates": set(),
    "wheels": {"index"},
    "profiles": {"requirements", "index"},
    "requirements": set(),
    "environment": {"wheels", "index"},
    "index": set(),
    "show": {"index"},
    "system": set(),
    "errors": set(),
    "model": set(),
}  # fmt: skip
"""Who may import whom, beside EVERYONE. No name stands above one that imports it."""
ONLY_IN = {
    "typer": {"cli"},
    "subprocess": {"system"},
    "urllib.request": {"index"},
    "http.client": {"index"},
    "urllib3": {"index"},
    "yaml": {"requirements", "config", "conda", "export"},
}


def modules():
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        if parts[0] not in ("probes", "__init__", "__main__"):
            yield path, parts


@functools.cache
def nodes(path):
    """The nodes of a module, of the kinds that these tests ask for."""
    kinds = (ast.Import, ast.ImportFrom, ast.Attribute, ast.Call, ast.Compare)
    return [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, kinds)]


def imported(path, parts):
    """(top-level module of ours or None, full foreign name or None) of every import."""
    package = ["provision", *parts[:-1]]
    for node in nodes(path):
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


def test_a_module_imports_only_what_it_may_know():
    offenders = []
    for path, parts in modules():
        mine = parts[0]
        below = {"model", "errors"} if mine in ("system", "model", "errors") else EVERYONE
        may = {*MAY[mine], *below, mine, "__version__", None}
        for name in imported(path, parts):
            homes = [places for foreign, places in ONLY_IN.items() if f"{name}.".startswith(f"{foreign}.")]
            if ours(name) not in may or any(mine not in places for places in homes):
                offenders.append(f"{'/'.join(parts)} imports {name}")
    assert offenders == []


def test_frozen_values_are_those_of_the_model():
    """Each class of the standard library costs every command that imports it half a millisecond."""
    texts = [path.read_text() for path, parts in modules() if parts[1:] != ("values",)]
    assert sum(len(re.findall(r"(?m)^class \w+\(Value\b", text)) for text in texts) > 50
    assert not [text for text in texts if "dataclass(frozen=True" in text]


def test_the_environment_and_printing_have_one_door_each():
    offenders = []
    for path, parts in modules():
        reads = parts[:2] in (("system", "process"), ("system", "trust"))
        for node in nodes(path):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                if not reads and node.value.id == "os" and node.attr in ("environ", "getenv", "putenv"):
                    offenders.append(f"{'/'.join(parts)}:{node.lineno} reads os.{node.attr}")
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print":
                offenders.append(f"{'/'.join(parts)}:{node.lineno} prints")
    assert offenders == []


@functools.cache
def graph():
    """Who imports whom, for every module: imports inside functions and for type checkers included."""
    found = {}
    for path in ROOT.rglob("*.py"):
        parts = path.relative_to(ROOT).with_suffix("").parts
        package = parts[-1] == "__init__"
        found[".".join(("provision", *(parts[:-1] if package else parts)))] = set(imported(path, parts))
    return {name: {home(n, found) for n in names} - {name, None} for name, names in found.items()}


def home(name, modules):
    """The module that an imported name is, or is in; None for what is not ours."""
    while name and name not in modules:
        name = name.rpartition(".")[0]
    return name or None


def cycles(edges):
    """The strongly connected components of more than one module (Tarjan's algorithm)."""
    index, low, stack, found = {}, {}, [], []

    def visit(name):
        index[name] = low[name] = len(index)
        stack.append(name)
        for other in edges[name]:
            if other not in index:
                visit(other)
            if other in stack:
                low[name] = min(low[name], low[other])
        if low[name] == index[name]:
            at = stack.index(name)
            if len(stack) - at > 1:
                found.append(set(stack[at:]))
            del stack[at:]

    for name in sorted(edges):
        if name not in index:
            visit(name)
    return found


def test_a_cycle_is_found():
    """The search itself: two cycles that share a module are one component; a chain is none."""
    assert cycles({"a": {"b"}, "b": {"c", "a"}, "c": {"d", "b"}, "d": set()}) == [{"a", "b", "c"}]
    assert cycles({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []


STARTS = {
    "detect.query": "the Python that runs gpuenv, and nvidia-smi",
    "detect.pythons": "Pythons of the machine that are no environments",
    "environment.interpreter": "the Python of an environment",
    "index.uv": "uv",
    "conda.activation": "activate.d scripts of a conda environment",
    "conda.engine": "the Python that runs gpuenv",
    "verify.checks": "checks of the project",
}
"""The modules that start a program and return, and which."""
OF_ENVIRONMENT = {"environment.interpreter", "verify.checks"}
READING = ("cache", "detect", "export", "init", "list", "profiles", "remove", "report", "resolve")


def reached(edges, start):
    """The modules that a module imports, itself or through others."""
    seen, todo = set(), [start]
    while todo:
        name = todo.pop()
        if name not in seen:
            seen.add(name)
            todo += edges[name]
    return seen


def test_programs_are_started_where_the_table_says():
    found = {
        ".".join(parts)
        for path, parts in modules()
        if parts[0] != "system" and "process.run(" in path.read_text()
    }
    assert found == set(STARTS)


def test_a_command_that_reads_does_not_reach_what_starts_an_environment():
    """docs/explanation/security.md says which commands these are; a type in an annotation counts as an import too."""
    starting = {f"provision.{name}" for name in OF_ENVIRONMENT}
    found = {c: starting & reached(graph(), f"provision.actions.{c}") for c in READING}
    assert not any(found.values()), found


def test_a_command_that_verifies_reaches_it():
    assert "provision.environment.interpreter" in reached(graph(), "provision.actions.verify")


def test_no_module_imports_itself_through_others():
    found = [sorted(n.removeprefix("provision.") for n in cycle) for cycle in cycles(graph())]
    assert not found


def test_probes_import_nothing_of_ours_and_are_never_imported():
    for path in sorted((ROOT / "probes").glob("*.py")):
        names = imported(path, ("probes", path.stem))
        assert not [n for n in names if n.startswith("provision")], path.name
    for path, parts in modules():
        assert not [n for n in imported(path, parts) if ours(n) == "probes"], path.name


def test_every_module_of_the_table_exists():
    """A rule for a module that is gone would check nothing."""
    assert {parts[0] for _, parts in modules()} == set(MAY)


HEAVY = ("conda_lock", "rattler", "uv", "rich", "yaml", "pynvml", "urllib3")


@rows(
    ("line", "absent"),
    [
        ("import provision.__main__", ("typer", "packaging", "provision.model", *HEAVY)),
        ("import provision.cli", HEAVY),
        (
            "import provision.actions.resolve",
            ("provision.conda", "provision.verify", *HEAVY[:-2]),
        ),
        (
            "import provision.commands",
            ("provision.actions", "provision.environment", "provision.index", *HEAVY),
        ),
        ("import provision.actions.build", ("rich", "conda_lock", "rattler")),
    ],
)
def test_heavy_libraries_wait_until_they_are_needed(line, absent):
    code = f"{line}\nimport sys\nprint(*sorted(set({absent!r}) & set(sys.modules)))"
    done = run_program([sys.executable, "-c", code], check=True)
    assert done.stdout.split() == []


FORMATS = {"conda", "model", "export", "bundle", "show", "verify", "lock", "resolve"}
"""Those that choose by a manager's name: the managers, the search of each in `lock`, the extras of wheels in `resolve`,
and what reads or writes formats of one of them."""


def names_a_manager(compared):
    """Whether a comparison is of something called `manager` with the name of one."""
    sides = [compared.left, *compared.comparators]
    named = any(getattr(s, "attr", getattr(s, "id", "")) in ("manager", "manager_name") for s in sides)
    words = {n.value for s in sides for n in ast.walk(s) if isinstance(n, ast.Constant)}
    return named and bool(words & {"venv", "conda"})


def test_no_command_branches_on_the_name_of_a_manager():
    """It asks `environment/__init__.py` and `lock/formats.py`."""
    offenders = [
        f"{'/'.join(parts)}:{node.lineno}"
        for path, parts in modules() if parts[0] not in FORMATS
        for node in nodes(path) if isinstance(node, ast.Compare) and names_a_manager(node)
    ]  # fmt: skip
    assert offenders == []


def test_a_branch_on_the_name_of_a_manager_is_found():
    lines = (
        'c.manager == "conda"',
        '"venv" != manager',
        'lock.manager in ("conda",)',
        "a.manager == b.manager",
    )
    assert [names_a_manager(ast.parse(line).body[0].value) for line in lines] == [True, True, True, False]


def test_each_name_that_a_package_states_exists():
    offenders = []
    for path in ROOT.rglob("__init__.py"):
        if not {"worker", "probes"} & set(path.parts):
            module = importlib.import_module(".".join(path.relative_to(ROOT.parent).parent.parts))
            stated = {*dir(module), *getattr(module, "__all__", ())}
            offenders += [f"{module.__name__}.{name}" for name in stated if not hasattr(module, name)]
    assert offenders == []
