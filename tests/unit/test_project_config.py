"""gpuenv.yaml: strict reading, the cache, digests, and packages written in place."""

import dataclasses
import hashlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings, strategies as st

from provision.cli import exit_codes
from provision.errors import DataError, UsageError
from provision.model import Check, ProjectConfig, ProjectTarget, as_plain
from provision.project.config import edit_packages, key_forms, yaml_tree
from provision.project.config.edit_packages import add_packages
from provision.project.config.file_digests import digest_files as digest_of, read_cached_config
from provision.project.config.gpuenv_yaml import read_config
from provision.request import project_options, recorded_options
from provision.request.options import Choices

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "gpuenv-yaml.md"


@pytest.fixture
def path(tmp_path):
    return tmp_path / "gpuenv.yaml"


def read(path, text):
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_config(path)


def problems(path, text):
    with pytest.raises(DataError) as caught:
        read(path, text)
    assert exit_codes.get_error_code(caught.value) == 3 and caught.value.hint
    assert caught.value.problems
    return list(caught.value.problems)


# --- reading -----------------------------------------------------------------------------------


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
    known = {*key_forms.WORDS, *key_forms.LISTS, "indexes", "targets", "checks", *key_forms.PROJECT}
    assert known == {f.name for f in dataclasses.fields(ProjectConfig)}
    target = {*key_forms.TARGET_WORDS, *key_forms.TARGET_LISTS}
    assert target == {f.name for f in dataclasses.fields(ProjectTarget)}
    assert set(key_forms.SAID_BY_FILE) < target


@pytest.mark.parametrize("text", ["", "\n# nothing yet\n", "---\n", "null", "\ufeff"])
def test_a_file_without_a_key_is_a_project_that_asks_for_nothing(path, text):
    assert read(path, text) == ProjectConfig()


def test_an_empty_list_may_be_left_empty(path):
    assert read(path, "packages:\n  # none yet\nframeworks: [jax]\n") == ProjectConfig(frameworks=("jax",))


def test_all_mistakes_come_at_once_with_line_and_key(path):
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
    assert problems(path, text) == [
        "gpuenv.yaml:1: framworks: unknown key. Did you mean frameworks?",
        "gpuenv.yaml:9: manager: duplicate key",
        'gpuenv.yaml:2: python: YAML reads 3.10 as a number (3.1): write "3.10"',
        'gpuenv.yaml:3: cuda: YAML reads 12 as a number: write "12"',
        "gpuenv.yaml:4: packages[3]: 'numpy' is a duplicate",
        next(p for p in problems(path, text) if "numpy>=>1" in p),
        'gpuenv.yaml:4: packages[1]: torch is a framework: write it under frameworks: ["torch"]',
        "gpuenv.yaml:8: manager: 'pip': not one of venv, conda",
        "gpuenv.yaml:6: targets.Node: a target's name: expected a form like node-a",
        "gpuenv.yaml:6: targets.Node.drivers: unknown key. Did you mean driver?",
        "gpuenv.yaml:7: targets.b.gpus: the target's `file` states this too: remove one of them",
    ]


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
        ("python: '3.11'\n---\npython: '3.12'", "second document"),
        ("python: '3.11", "not YAML"),
        ("\tpython: '3.11'", "not YAML"),
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
    assert "deep" in problems(path, opening * 50_000)[0]


def test_an_alias_bomb_and_a_large_file_are_refused(path):
    bomb = "a: &a [x,x]\n" + "".join(
        f"{chr(98 + i)}: &{chr(98 + i)} [*{chr(97 + i)},*{chr(97 + i)}]\n" for i in range(20)
    )
    assert "anchor" in problems(path, bomb)[0]
    assert "bytes" in problems(path, b"#" * (yaml_tree.MAX_BYTES + 1))[0]
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
    | st.dictionaries(st.sampled_from([*key_forms.WORDS, *key_forms.LISTS, "indexes", "targets", "node", "file", "gpus"]), inner, max_size=5),
    max_leaves=12,
)  # fmt: skip


@settings(max_examples=300)
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


@settings(max_examples=300)
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


@settings(max_examples=100)
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
    rows = [
        {c.kind: c.subject, "name": c.name, "timeout": c.timeout and str(c.timeout)} for c in meant.checks
    ]
    plain["checks"] = [slim(row) for row in rows]
    text = yaml.dump(plain, default_style='"', allow_unicode=True)
    assert read(path, text) == meant


# --- cache and digest --------------------------------------------------------------------------


def test_the_second_read_needs_no_yaml(path, tmp_path):
    path.write_text('frameworks: [torch]\ntargets: {a: {driver: "550", gpus: ["9.0"]}}\n')
    cache = tmp_path / "cache"
    first = read_cached_config(path, cache)
    code = (
        "import sys; from pathlib import Path; from provision.project.config.file_digests import read_cached_config\n"
        f"found = read_cached_config(Path({str(path)!r}), Path({str(cache)!r}))\n"
        "print(found.targets['a'].gpus, 'yaml' in sys.modules, 'packaging' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "('9.0',) False False\n"
    assert read_cached_config(path, None) == first
    for kept in cache.iterdir():
        kept.write_text('{"frameworks": 3')
    assert read_cached_config(path, cache) == first
    path.write_text("frameworks: [jax]\n")
    assert read_cached_config(path, cache).frameworks == ("jax",)
    path.write_text("python: 3.10\n")
    with pytest.raises(DataError, match="1 mistake"):
        read_cached_config(path, cache)


def test_a_cache_that_cannot_be_written_is_no_failure(path, tmp_path):
    path.write_text("frameworks: [torch]\n")
    (tmp_path / "file").touch()
    assert read_cached_config(path, tmp_path / "file").frameworks == ("torch",)


def test_comments_and_checks_do_not_change_what_is_asked_for(path):
    """A lock stays what the project asks for. Digests that counted every byte are known still."""
    files, choices = [str(path)], Choices(framework=["torch"])
    path.write_text("frameworks: [torch]\n")
    before, exact = digest_of(files), digest_of(files, exact=True)
    held = project_options.digest_inputs(choices, files)
    path.write_text("# why\nframeworks:\n  - torch\nchecks:\n  - import: cv2\n")
    assert digest_of(files) == before and digest_of(files, exact=True) != exact
    assert project_options.is_same_inputs(held, choices, files)
    path.write_text("frameworks: [torch]\npackages: [numpy]\n")
    assert digest_of(files) != before and not project_options.is_same_inputs(held, choices, files)
    path.write_text("frameworks: [torch]\nchecks: [oh]\n")
    assert digest_of(files) == digest_of(files, exact=True)  # which is invalid
    path.write_text("frameworks: [torch]\n")
    named = {"choices": {}, "lock": None, "files": {"names": files, "digest": before}}
    for digest, expected in ((before, True), (exact, True), ("0" * 64, False)):
        assert (
            recorded_options.is_same({**named, "files": {"names": files, "digest": digest}}, named)
            is expected
        )
    counted = hashlib.sha256((_counted(choices) + exact).encode()).hexdigest()
    assert counted != held and project_options.is_same_inputs(counted, choices, files)


def _counted(choices):
    """The options that a lock's digest counts, as an earlier version wrote them."""
    of_the_run = ("cache_dir", "offline", "no_build", "config", "requirement", "project", "profiles", "target",
                  "exclude_newer", "exclude_newer_except")  # fmt: skip
    of_the_plan = ("driver", "driver_os", "gpu", "gpus", "platform", "glibc", "target_name", "device", "python",
                   "python_bounds", "cuda", "only_binary", "dependencies_only", "allow_old")  # fmt: skip
    plain = project_options.as_plain_options(choices)
    kept = {k: v for k, v in plain.items() if k not in (*of_the_run, *of_the_plan)} | {"find_links": []}
    return json.dumps(kept, sort_keys=True)


def test_the_digest_is_of_names_and_bytes_wherever_the_checkout_lies(tmp_path):
    for place in ("a", "b/c"):
        (tmp_path / place / "sub").mkdir(parents=True)
        (tmp_path / place / "r.txt").write_text("numpy\n")
        (tmp_path / place / "sub" / "s.txt").write_text("six\n")

    def digest(place, *names):
        return digest_of([str(tmp_path / place / n) for n in names])

    first = digest("a", "r.txt", "sub/s.txt")
    assert re.fullmatch("[0-9a-f]{64}", first)
    assert digest("b/c", "r.txt", "sub/s.txt") == first
    assert digest("a", "sub/s.txt", "r.txt") != first
    assert digest("a", "r.txt") != first
    missing = digest("a", "r.txt", "sub/gone.txt")
    assert missing not in (first, digest("a", "r.txt", "sub/lost.txt"))
    (tmp_path / "a" / "sub" / "s.txt").write_text("six\n\n")
    assert digest("a", "r.txt", "sub/s.txt") != first
    assert digest("a", "sub") and digest_of([])


# --- writing packages -------------------------------------------------------------------------

_STYLES = {
    "absent": ("frameworks: [torch]  # mine\n", 'frameworks: [torch]  # mine\npackages:\n  - "six"\n'),
    "no final newline": ("python: '3.11'", "python: '3.11'\npackages:\n  - \"six\"\n"),
    "empty file": ("", 'packages:\n  - "six"\n'),
    "comments only": ("# hello\n", '# hello\npackages:\n  - "six"\n'),
    "nothing": (
        "packages:  # add writes here\npython: '3.11'\n",
        "packages:  # add writes here\n  - \"six\"\npython: '3.11'\n",
    ),
    "null": ("packages: ~ # x\n", 'packages: ["six"] # x\n'),
    "empty flow": ("packages: []  # x\n", 'packages: ["six"]  # x\n'),
    "flow": ("packages: [numpy, 'tqdm']\n", "packages: [numpy, 'tqdm', \"six\"]\n"),
    "flow, trailing comma": ("packages: [\n  numpy,\n]\n", 'packages: [\n  numpy, "six",\n]\n'),
    "block": (
        "packages:\n- numpy # why\n# end of it\n\npython: '3.11'\n",
        "packages:\n- numpy # why\n- \"six\"\n# end of it\n\npython: '3.11'\n",
    ),
    "block, indented": (
        "packages:\n    - 'numpy'\n    - tqdm",
        "packages:\n    - 'numpy'\n    - tqdm\n    - \"six\"\n",
    ),
    "crlf": ("packages:\r\n  - numpy\r\npython: '3.11'\r\n", "packages:\r\n  - numpy\r\n  - \"six\"\r\npython: '3.11'\r\n"),
    "wide characters": ("# \u00e9\U0001f600\npackages: [numpy] # \u00e9\n", '# \u00e9\U0001f600\npackages: [numpy, "six"] # \u00e9\n'),
    "bom": ("\ufeffpackages: [numpy]\n", '\ufeffpackages: [numpy, "six"]\n'),
}  # fmt: skip


@pytest.mark.parametrize("style", _STYLES)
def test_a_package_is_added_in_the_files_own_style(path, style):
    before, after = _STYLES[style]
    path.write_bytes(before.encode())
    path.chmod(0o640)
    found = add_packages(path, ["six"])
    assert path.read_bytes().decode() == after
    assert found == read_config(path) and found.packages[-1] == "six"
    assert path.stat().st_mode & 0o777 == 0o640
    assert [p.name for p in path.parent.iterdir()] == ["gpuenv.yaml"]
    stamp = path.stat().st_mtime_ns, path.stat().st_ino
    assert add_packages(path, ["six"]) == found
    assert (path.stat().st_mtime_ns, path.stat().st_ino) == stamp  # nothing to do: not even written


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("packages:\n  - numpy>=1 # a\n  - six\n", 'packages:\n  - "Numpy==2.0" # a\n  - six\n  - "tqdm"\n'),
        ("packages: ['numpy[x]', six]\n", 'packages: ["Numpy==2.0", six, "tqdm"]\n'),
    ],
)
def test_an_entry_of_the_same_name_is_replaced(path, before, after):
    path.write_text(before)
    add_packages(path, ["Numpy==2.0", "tqdm"])
    assert path.read_text() == after


def test_a_linked_file_is_written_where_it_lies(path, tmp_path):
    (tmp_path / "real").mkdir()
    real = tmp_path / "real" / "shared.yaml"
    real.write_text("packages: []\n")
    path.symlink_to(real)
    add_packages(path, ["six"])
    assert path.is_symlink() and "six" in real.read_text()


@pytest.mark.parametrize(
    ("requirement", "says"),
    [
        ("torch", "frameworks"), ("tensorflow-gpu==2.10", "frameworks"), ("jaxlib", "frameworks"),
        ("num py", "not a requirement"), ("six\n", "not a requirement"), ("./x", "not a requirement"),
    ],
)  # fmt: skip
def test_what_is_no_package_is_refused(path, requirement, says):
    path.write_text("packages: []\n")
    with pytest.raises(UsageError) as caught:
        add_packages(path, ["tqdm", requirement])
    assert says in caught.value.message + str(caught.value.hint)
    assert path.read_text() == "packages: []\n"


@pytest.mark.parametrize(
    "text",
    [
        "{frameworks: [torch]}\n",
        "packages: ['a; python_version < \"3.11\"', 'six ; os_name == \"x\"', 'six; os_name != \"x\"']\n",
        "frameworks: [torch]\n...\n",
        "python: 3.10\n",
    ],
)
def test_a_file_that_cannot_be_edited_stays_as_it_is(path, text):
    path.write_text(text)
    with pytest.raises(DataError):
        add_packages(path, ["six"])
    assert path.read_text() == text
    assert [p.name for p in path.parent.iterdir()] == ["gpuenv.yaml"]


def test_several_files_are_written_or_none(tmp_path):
    first, second = tmp_path / "a", tmp_path / "b"
    first.write_bytes(b"old")
    for contents in (
        {first: b"new", tmp_path / "no" / "x": b""},
        {first: b"new", second: b"", tmp_path: b""},
    ):
        with pytest.raises(OSError):
            edit_packages.write_files(contents)
        assert first.read_bytes() == b"old"
        assert [p.name for p in tmp_path.iterdir()] == ["a"]
    edit_packages.write_files({first: b"new", second: b"also"})
    assert (first.read_bytes(), second.read_bytes()) == (b"new", b"also")
    assert second.stat().st_mode & 0o777 == 0o666 & ~umask()


def umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask


@settings(max_examples=150)
@given(
    entries=st.lists(st.sampled_from(["numpy", "six>=1", "a.b", "tqdm[x]==4", "q ; os_name == 'x'"]), unique=True),
    added=st.lists(st.sampled_from(["numpy==2", "zlib-ng", "A_B", "q", "w[y] ; os_name=='z'"]), min_size=1, unique=True),
    style=st.sampled_from(["block", "flow", "lines"]),
    quote=st.sampled_from(["", "'", '"']),
    tail=st.sampled_from(["", "\n", "\n# end", "\npython: '3.11'\n", "\n\n\ncuda: '12'"]),
)  # fmt: skip
def test_any_style_is_edited_or_left_alone(path, entries, added, style, quote, tail):
    def row(text):
        mark = quote or ('"' if set(text) & set("'[") else "")
        return f'"{text}"' if mark == "'" and "'" in text else f"{mark}{text}{mark}"

    listed = [row(e) for e in entries]
    body = {
        "block": "".join(f"\n  - {e} # {i}" for i, e in enumerate(listed)),
        "flow": f" [{', '.join(listed)}]",
        "lines": " [\n" + "".join(f"   {e},\n" for e in listed) + "  ]",
    }[style]
    text = f"frameworks: [torch]\npackages:{body}{tail}"
    before = read(path, text)
    found = add_packages(path, added)
    after = path.read_text()
    assert read_config(path) == found
    assert set(added) <= set(found.packages)
    assert dataclasses.replace(found, packages=()) == dataclasses.replace(before, packages=())
    assert re.findall(r"#.*", text) == re.findall(r"#.*", after)


# --- documentation ----------------------------------------------------------------------------


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
