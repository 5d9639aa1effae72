"""gpuenv.yaml: strict reading, the cache, digests, and packages written in place."""
# ruff: noqa: F811  # fixtures are imported by their names

import dataclasses
import json
import re
from pathlib import Path

import pytest
import yaml
from hypothesis import given, strategies as st
from project_config import path, read  # noqa: F401  # fixtures

from provision.cli import exit_codes
from provision.config import file
from provision.config.file import read_config
from provision.errors import DataError
from provision.model import Check, ProjectConfig, ProjectTarget, as_plain
from provision.requirements import nodes

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "gpuenv-yaml.md"


def problems(path, text):
    with pytest.raises(DataError) as caught:
        read(path, text)
    assert exit_codes.get_error_code(caught.value) == 3 and caught.value.hint
    assert caught.value.problems
    return list(caught.value.problems)


def test_every_key_is_read(path):
    text = """\
frameworks: ["torch>=2.6,<2.9", torchvision]
packages: [numpy>=1.26, "tqdm; sys_platform == 'linux'", "x @ git+https://host/x@v1"]
requirements: [requirements.txt, "deps/b.txt"]
project: .
extras: [dev]
groups:
- test
python: "3.10"
manager: venv
device: cuda
cuda: "12.6"
index: https://user:pw@host/simple
indexes: {pypi: "https://host/simple", pytorch: "https://host/whl"}
find_links: [wheels, "https://host/links.html"]
channels: [conda-forge, ./channel]
targets:
  node-a: {driver: "550.54.15", driver_os: linux, gpus: ["9.0", A100], platform: linux-x86_64, glibc: "2.28"}
  b.file: {file: node.json, python: "3.11", cuda: "12", device: cpu, manager: conda}
checks: [{import: cv2}, {run: python train.py --help, timeout: 60, name: train}, compile]
"""
    found = read(path, text)
    assert found == ProjectConfig(
        frameworks=("torch>=2.6,<2.9", "torchvision"),
        packages=("numpy>=1.26", "tqdm; sys_platform == 'linux'", "x @ git+https://host/x@v1"),
        requirements=("requirements.txt", "deps/b.txt"),
        project=".",
        extras=("dev",),
        groups=("test",),
        python="3.10",
        manager="venv",
        device="cuda",
        cuda="12.6",
        index="https://user:pw@host/simple",
        indexes={"pypi": "https://host/simple", "pytorch": "https://host/whl"},
        find_links=("wheels", "https://host/links.html"),
        channels=("conda-forge", "./channel"),
        targets={
            "node-a": ProjectTarget(
                driver="550.54.15", driver_os="linux", gpus=("9.0", "A100"), platform="linux-x86_64",
                glibc="2.28",
            ),
            "b.file": ProjectTarget(file="node.json", python="3.11", cuda="12", device="cpu", manager="conda"),
        },
        checks=(
            Check(kind="import", subject="cv2"),
            Check(kind="run", subject="python train.py --help", name="train", timeout=60.0),
            Check(kind="compile", subject="torch"),
        ),
    )  # fmt: skip


def test_the_readers_keys_are_the_fields_of_the_values():
    known = {*file.WORDS, *file.LISTS, "indexes", "targets", "checks", "guard", *file.PROJECT}
    assert known == {f.name for f in dataclasses.fields(ProjectConfig)}
    target = {*file.TARGET_WORDS, *file.TARGET_LISTS}
    assert target == {f.name for f in dataclasses.fields(ProjectTarget)}
    assert set(file.SAID_BY_FILE) < target


@pytest.mark.parametrize("text", ["", "\n# nothing yet\n", "---\n", "null", "\ufeff"])
def test_a_file_without_a_key_is_a_project_that_asks_for_nothing(path, text):
    assert read(path, text) == ProjectConfig()


@pytest.mark.parametrize(("text", "shown"), [("3.10", " (3.1)"), ("3.12", ""), (".inf", ""), ("1:30.5", "")])
def test_a_number_in_the_place_of_a_text_is_shown_as_yaml_reads_it(path, text, shown):
    (problem,) = problems(path, f"python: {text}\n")
    assert f"reads {text} as a number{shown}: write" in problem


def test_an_empty_list_may_be_left_empty(path):
    assert read(path, "packages:\n  # none yet\nframeworks: [jax]\n") == ProjectConfig(frameworks=("jax",))


def test_all_mistakes_come_at_once_with_line_and_key(path, golden):
    text = """\
framworks: [torch]
python: 3.10
cuda: 12
packages: [numpy>=>1, torch, numpy, numpy]
targets:
  Node: {drivers: "550"}
  b: {file: x.json, gpus: ["9.0"]}
manager: pip
manager: venv
"""
    found = problems(path, text)
    places = [p.split(": ")[0].partition(":")[2] + " " + p.split(": ")[1] for p in found]
    assert places == [
        "1 framworks", "9 manager", "2 python", "3 cuda", "4 packages[3]", "4 packages[0]", "4 packages[1]", "8 manager",
        "6 targets.Node", "6 targets.Node.drivers", "7 targets.b.gpus",
    ]  # fmt: skip
    # What packaging says is its own.
    golden("project-file", "\n".join(p.partition(": Expected ")[0] for p in found))


@pytest.mark.parametrize(
    ("text", "path_and_install"),
    [
        ("project: .", (".", True)),
        ("project: {path: .}", (".", True)),
        ("project: {path: app, install: false}", ("app", False)),
        ("project:\n  install: true\n  path: app\n", ("app", True)),
        ('project: {path: ".", install: "false"}', (".", False)),
        ("python: '3.11'", (None, True)),
    ],
)
def test_the_project_is_a_path_or_a_table(path, text, path_and_install):
    found = read(path, text)
    assert (found.project, found.install) == path_and_install


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("python: 3.11", 'write "3.11"'),
        ('python: ">=3.x"', "3.11"),
        ('python: "3.11 or newer"', "3.11"),
        ("python: on", "yes or no"),
        ("python:", "empty"),
        ("python: [a]", "not a list"),
        ("python: {a: b}", "not a table"),
        ("cuda: 12.8", 'write "12.8"'),
        ("glibc: '2.28'", "unknown key"),
        ("index: pip", "auto, pypi, pytorch"),
        ("index: https://", "auto, pypi, pytorch"),
        ("frameworks: torch", 'write ["torch"]'),
        ("frameworks: [[torch]]", "frameworks[0]"),
        ("frameworks: [pytorch]", "Did you mean torch?"),
        ("frameworks: [tensorflow-gpu]", "Did you mean tensorflow?"),
        ("frameworks: [keras]", "unknown framework 'keras'; expected one of torch,"),
        ("frameworks: [torch, Torch]", "already in line 1"),
        ("frameworks: ['torch==2.5.1+cu124']", 'Write "torch==2.5.1"'),
        ("frameworks: ['torch @ https://h/t.whl']", "a name with bounds"),
        ("frameworks: [torch@2.6]", 'write "torch==2.6.*"'),
        ("packages: ['numpy=1.26.4']", 'write "numpy==1.26.4"'),
        ("packages: ['jax[cuda13]']", "jax is a framework"),
        ("packages: [tensorflow]", "tensorflow is a framework"),
        (
            "packages: [./folder]",
            'write "./folder" in a requirements file, and list that file under requirements:',
        ),
        ("packages: ['-e .']", 'for this folder, write project: "."'),
        (
            "packages: ['-e ./library']",
            'write "-e ./library" in a requirements file, and list that file under requirements:',
        ),
        ("packages: [folder/]", "a requirements file may name paths"),
        ("packages: [a, a>2]", "already in line 1"),
        ("extras: [dev]", "requires a project"),
        ("project: {install: false}", 'write {path: ".", install: false}'),
        ("project: {path: ., install: no}", "project.install: expected true or false"),
        ("project: {path: ., install: [false]}", "project.install: expected true or false"),
        ("project: {path: ., instal: false}", "Did you mean install?"),
        ("project: {path: 3.10}", 'project.path: YAML reads 3.10 as a number (3.1): write "3.10"'),
        ("project: [.]", "project: expected one value, such as a/path, not a list"),
        ("indexes: {pytroch: 'https://x/y'}", "Did you mean pytorch?"),
        ("indexes: [a]", "expected a table"),
        ("indexes: {pypi: x}", "https://host/simple"),
        ("targets: {a: }", "expected a table"),
        ("targets: {a: {}}", "is empty"),
        ("targets: {a: {gpus: [9.0]}}", 'write "9.0"'),
        ("targets: {a: {driver: 550}}", 'write "550"'),
        ("targets: {1: {driver: '550'}, 1: {driver: '560'}}", "duplicate key"),
        ("targets: {[a]: {driver: '550'}}", "one word"),
        ("targets: {../x: {driver: '550'}}", "expected a form like node-a"),
        ("- torch", "expected a table"),
        ("just words", "expected a table"),
        ("python: !!str 3.11", "tag"),
        ("a: !!python/object/apply:os.system ['true']", "tag"),
        ("a: &x [1]\nb: *x", "anchor"),
        ("b: *x", "alias"),
        ("python: '3.11'\n---\npython: '3.12'", "second document"),
        ("python: '3.11", "not YAML"),
        ("\tpython: '3.11'", "not YAML: a tab"),
        ("requirements: ['a\\0b']", None),
        ('requirements: ["a\\0b"]', "expected a form like"),
    ],
)
def test_a_mistake_says_what_to_write(path, line, says):
    if says is None:
        assert read(path, line)
        return
    found = problems(path, line)
    assert says in "\n".join(found)
    assert all(p.startswith("gpuenv.yaml:") for p in found)


@pytest.mark.parametrize("opening", ["[", "{a: ", "- ", "? "])
def test_deep_nesting_is_refused_at_once(path, opening):
    problem = problems(path, opening * 50_000)[0]
    assert "deep" in problem or "nesting depth" in problem


def test_a_number_of_thousands_of_digits_is_no_yaml_without_libyaml_too(path, monkeypatch):
    monkeypatch.delattr(yaml, "CSafeLoader", raising=False)
    assert "not YAML" in problems(path, f"%YAML 1.{'1' * 5000}\n---\npython: 3.12\n")[0]


def test_an_alias_bomb_and_a_large_file_are_refused(path):
    bomb = "a: &a [x,x]\n" + "".join(
        f"{chr(98 + i)}: &{chr(98 + i)} [*{chr(97 + i)},*{chr(97 + i)}]\n" for i in range(20)
    )
    assert "anchor" in problems(path, bomb)[0]
    assert "bytes" in problems(path, b"#" * (nodes.MAX_BYTES + 1))[0]
    assert "UTF-8" in problems(path, b"python: \xff")[0]
    assert len(problems(path, "a" * 100_000 + ": b")[0]) < 400


def test_a_missing_file_gets_the_hint_to_init(path):
    with pytest.raises(DataError, match="cannot be read") as caught:
        read_config(path)
    assert "init" in caught.value.hint


def test_messages_show_no_secrets(path):
    text = "index: https://user:hunter2@host/simple with space\npackages: ['x @ https://u:hunter2@h/x y']\n"
    assert "hunter2" not in "".join(problems(path, text))


_SCALARS = st.text(max_size=8) | st.integers() | st.floats() | st.booleans() | st.none()


_TREES = st.recursive(
    _SCALARS | st.sampled_from(["torch", "numpy>=1", "3.11", "12.6", "https://h/x", "venv", "cuda"]),
    lambda inner: st.lists(inner, max_size=4)
    | st.dictionaries(st.sampled_from([*file.WORDS, *file.LISTS, "indexes", "targets", "node", "file", "gpus"]), inner, max_size=5),
    max_leaves=12,
)  # fmt: skip


@given(data=_TREES)
def test_no_yaml_tree_causes_an_internal_error(path, data):
    text = yaml.safe_dump(data, allow_unicode=True)
    try:
        read(path, text)
    except DataError as error:
        raised = error
    else:
        return
    assert all(p.startswith("gpuenv.yaml") and "\n" not in p for p in raised.problems)


@given(
    data=st.binary(max_size=80)
    | st.text(alphabet="pythonframewks:[]{}&*!|>-'\"\n #,?%@3.1", max_size=80).map(str.encode)
)
def test_no_bytes_cause_an_internal_error(path, data):
    try:
        read(path, data)
    except DataError as error:
        raised = error
    else:
        return
    assert raised.problems


_TEXTS = st.sampled_from(
    ["numpy>=1.26", "tqdm", "a-b[c]", 'x ; sys_platform == "linux"', "z @ https://h/z.whl"]
)


_CHECKS = st.builds(
    Check, kind=st.just("import"), subject=st.sampled_from(["cv2", "torch.nn"]), name=st.none() | st.just("a: b"),
    timeout=st.none() | st.sampled_from([1.0, 2.5]),
) | st.builds(
    Check, kind=st.just("run"), subject=st.sampled_from(["ls -l", "python -c 'print(1)'", "#x", "'a\"b'"]),
)  # fmt: skip


@given(
    meant=st.builds(
        ProjectConfig,
        frameworks=st.lists(st.sampled_from(["torch>=2", "jax", "torchvision"]), unique=True).map(tuple),
        packages=st.lists(_TEXTS, unique=True).map(tuple),
        requirements=st.lists(st.sampled_from(["r.txt", "a b.txt", "\u00e9.txt", "#x"]), unique=True).map(tuple),
        python=st.none() | st.sampled_from(["3.10", "3.12.1"]),
        cuda=st.none() | st.sampled_from(["12", "12.10"]),
        index=st.none() | st.sampled_from(["auto", "https://h/s"]),
        indexes=st.dictionaries(st.sampled_from(["pypi", "pytorch"]), st.just("https://h/x")),
        project=st.sampled_from([".", "app"]),
        install=st.booleans(),
        guard=st.booleans(),
        targets=st.dictionaries(
            st.sampled_from(["a", "b-1"]),
            st.builds(ProjectTarget, driver=st.just("550"), gpus=st.just(("9.0", "T4")), glibc=st.none() | st.just("2.28")),
        ),
        checks=st.lists(_CHECKS, unique_by=lambda c: c.label).map(tuple),
    )
)  # fmt: skip
def test_a_written_config_reads_back_the_same(path, meant):
    def slim(value):
        if isinstance(value, dict):
            return {k: slim(v) for k, v in value.items() if v not in (None, [], {})}
        return value

    plain = slim(as_plain(meant))
    plain["project"] = {"path": meant.project, "install": str(plain.pop("install")).lower()}
    plain["guard"] = str(plain["guard"]).lower()
    rows = [
        {c.kind: c.subject, "name": c.name, "timeout": c.timeout and str(c.timeout)} for c in meant.checks
    ]
    plain["checks"] = [slim(row) for row in rows]
    text = yaml.dump(plain, default_style='"', allow_unicode=True)
    assert read(path, text) == meant


def test_the_example_of_the_reference_has_every_key_and_reads(path):
    text = re.search(r"```yaml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)[1]
    found = read(path, text)
    for field in dataclasses.fields(ProjectConfig):
        assert re.search(rf"(?m)^{field.name}:|[{{ ]{field.name}:", text), (
            f"{field.name} is not in the example"
        )
        assert getattr(found, field.name)
    for field in dataclasses.fields(ProjectTarget):
        assert any(getattr(t, field.name) for t in found.targets.values()), field.name
    assert json.dumps(as_plain(found))
