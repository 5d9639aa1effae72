"""`checks:` of gpuenv.yaml and `--check`: what is a check, and what is said of all else."""

import json
import shlex

import pytest
from framework_envs import venv
from hypothesis import example, given, strategies as st
from rows import rows

from provision.config.edit import add_packages
from provision.config.file import parse_config, read_check
from provision.errors import DataError
from provision.model import Check, ProjectConfig, as_plain, from_plain
from provision.verify import checks, locate_environment

EVERY = """\
checks:
  - import: cv2
  - import: torch.nn
    name: "the network"
  - run: python train.py --help   # as typed, without a shell
    timeout: 60
  - {run: "bash -c 'ls | wc -l'", timeout: "1.5", name: pipes}
  - compile
"""
MEANT = (
    Check(kind="import", subject="cv2"),
    Check(kind="import", subject="torch.nn", name="the network"),
    Check(kind="run", subject="python train.py --help", timeout=60.0),
    Check(kind="run", subject="bash -c 'ls | wc -l'", timeout=1.5, name="pipes"),
    Check(kind="compile", subject="torch"),
)


def parsed(text):
    return parse_config("gpuenv.yaml", text.encode()).checks


def problems(text):
    with pytest.raises(DataError) as caught:
        parsed(text)
    return list(caught.value.problems)


def test_every_kind_of_check_is_read():
    assert parsed(EVERY) == MEANT
    assert parsed("checks:\n  - {compile: torch, timeout: 9}\n")[0].timeout == 9.0
    assert [c.label for c in MEANT] == [
        "import cv2", "the network", "python train.py --help", "pipes", "compile torch",
    ]  # fmt: skip
    assert MEANT[3].command == ("bash", "-c", "ls | wc -l")
    kept = ProjectConfig(checks=MEANT)
    assert from_plain(ProjectConfig, json.loads(json.dumps(as_plain(kept)))) == kept


@rows("text", ["checks:\n", "checks: []\n", "checks: null\n", "frameworks: [jax]\n"])
def test_an_empty_or_missing_list_means_no_checks(text):
    assert parsed(text) == ()


@rows(
    ("text", "says"),
    [
        ("checks: import cv2", "gpuenv.yaml:1: checks: expected a list"),
        ("checks: {import: cv2}", "gpuenv.yaml:1: checks: expected a list"),
        ("checks:\n- import cv2", "gpuenv.yaml:2: checks[0]: write import: cv2"),
        ("checks:\n- python train.py", 'checks[0]: \'python train.py\' is not a built-in check; write run: "python train.py"'),
        ("checks:\n- import: opencv-python", "checks[0].import: 'opencv-python' is not a module"),
        ("checks:\n- import: numpy, cv2", "checks[0].import: 'numpy, cv2' is not a module"),
        ("checks:\n- import: a.b.", "checks[0].import: 'a.b.' is not a module"),
        ("checks:\n- import: class", "checks[0].import: 'class' is not a module"),
        ("checks:\n- import: [a, b]", "checks[0].import: expected one value"),
        ("checks:\n- import:", "checks[0].import: is empty"),
        ("checks:\n- improt: cv2", "checks[0].improt: unknown key. Did you mean import?"),
        ("checks:\n- {import: cv2, run: ls}", "checks[0]: expected one of import, run, compile, found 2"),
        ("checks:\n- name: x", "checks[0]: expected one of import, run, compile, found 0"),
        ("checks:\n- {import: cv2, import: os}", "checks[0].import: duplicate key"),
        ("checks:\n- import: cv2\n- import: cv2", "gpuenv.yaml:3: checks[1]: 'import cv2' is already in line 2"),
        ("checks:\n- {import: a, name: x}\n- {run: ls, name: x}", "checks[1]: 'x' is already in line 2"),
        ("checks:\n- run: ls | wc -l", "checks[0].run: 'ls | wc -l': checks do not run in a shell, so '|' is not supported: write bash -c"),
        ("checks:\n- run: a && b", "checks do not run in a shell, so '&' is not supported"),
        ("checks:\n- run: python a.py > log", "checks do not run in a shell, so '>' is not supported"),
        ("checks:\n- run: python a.py $DATA", "checks do not run in a shell, so '$D' is not supported"),
        ('checks:\n- run: python a.py "$(date)"', "checks do not run in a shell, so '$(' is not supported"),
        ("checks:\n- run: ls *.py", "checks do not run in a shell, so '*' is not supported"),
        ("checks:\n- run: CUDA_VISIBLE_DEVICES=0 python a.py", 'checks do not run in a shell. To set CUDA_VISIBLE_DEVICES, write: "env CUDA'),
        ("checks:\n- run: \"python 'a\"", "cannot be split into words: No closing quotation"),
        ("checks:\n- run: '  '", "checks[0].run: expected a command"),
        ("checks:\n- run: |\n    a\n    b\n", "checks[0].run: "),
        ("checks:\n- compile: jax", "checks[0].compile: 'jax': expected torch"),
        ("checks:\n- {import: cv2, timeout: 0}", "checks[0].timeout: expected seconds, such as 120"),
        ("checks:\n- {import: cv2, timeout: 2m}", "checks[0].timeout: expected seconds, such as 120"),
        ("checks:\n- {import: cv2, timeout: -1}", "checks[0].timeout: expected seconds, such as 120"),
        ("checks:\n- {import: cv2, timeout: .inf}", "checks[0].timeout: expected seconds, such as 120"),
        ("checks:\n- {import: cv2, timeout: [1]}", "checks[0].timeout: expected seconds, such as 120"),
        ("checks:\n- 12", "checks[0]: '12' is not a built-in check"),
        ("checks:\n- [import, cv2]", "checks[0]: expected a table"),
    ],
)  # fmt: skip
def test_a_mistake_says_where_it_is_and_what_to_write(text, says):
    (only,) = problems(text)
    assert says in only


def test_all_mistakes_come_at_once():
    found = problems("checks:\n- import: a-b\n- run: a|b\n- {import: c, timeout: x}\n- sleep\n")
    assert [p.split(": ")[0] for p in found] == [f"gpuenv.yaml:{n}" for n in (2, 3, 4, 5)]


@rows(
    ("text", "kind", "subject"),
    [
        ("import cv2", "import", "cv2"),
        ("  import   torch.nn ", "import", "torch.nn"),
        ("compile", "compile", "torch"),
        ("python train.py --help", "run", "python train.py --help"),
        ("python -c 'import cv2; print(1)'", "run", "python -c 'import cv2; print(1)'"),
        ("imports.sh", "run", "imports.sh"),
    ],
)
def test_a_check_on_the_command_line_is_read(text, kind, subject):
    assert read_check(text) == Check(kind=kind, subject=subject)


@rows("text", ["", " ", "import", "import a, b", "import a-b", "import a as b", "a | b", "'"])
def test_a_text_that_is_no_check_is_refused(text):
    with pytest.raises(ValueError, match=r"expected|is not a module|do not run in a shell|cannot be split"):
        read_check(text)


@given(words=st.lists(st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1), min_size=1))
@example(words=["'", "`"])
def test_quoted_words_reach_the_command_as_they_are(words):
    assert read_check("run-it " + shlex.join(words)).command == ("run-it", *words)


def test_a_package_is_added_and_checks_stay_byte_for_byte(tmp_path):
    path = tmp_path / "gpuenv.yaml"
    path.write_text("frameworks: [torch]\n# what must work\n" + EVERY + "# the end\n")
    before = path.read_text()
    assert add_packages(path, ["einops"]).checks == MEANT
    assert path.read_text() == before + 'packages:\n  - "einops"\n'


TORCH = """
import types
class Tensor:
    __sub__ = __add__ = __mul__ = lambda self, other: self
    __getattr__ = lambda self, name: lambda *_, **__: self
    __float__ = lambda self: float({error!r})
linspace, compile = lambda *_: Tensor(), lambda function: function
nn = types.SimpleNamespace(functional=types.SimpleNamespace(gelu=lambda x: x))
"""


@pytest.mark.parametrize(
    ("error", "outcome"), [("0.0005", ("pass", "passed")), ("0.5", ("fail", "the results are off by 0.5"))]
)
def test_the_check_compile_compares_what_was_compiled(tmp_path, error, outcome):
    root, site = venv(tmp_path / "env")
    (site / "torch.py").write_text(TORCH.format(error=error))
    placed = [checks.PlacedCheck(check=Check(kind="compile", subject="torch"), folder=None)]
    (ended,) = checks.run_checks(
        locate_environment(root), placed, {"PATH": ""}, lambda _: None, timeout=300, device="cpu"
    )
    assert (ended.result.status, ended.result.detail) == outcome
    assert checks._make_hint("/e", ended.result).endswith("gpuenv verify /e --check compile -v")
