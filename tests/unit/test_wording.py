"""Titles and fixes of findings are rows of profiles/failures.yaml."""

import ast
import dataclasses
import functools
import re
from pathlib import Path

import pytest

from provision import profiles
from provision.config import rows
from provision.config.options import Choices
from provision.model import Evidence
from provision.profiles.wording import fill_text, make_finding

PACKAGE = Path(__file__).parents[2] / "provision"
# The builder itself, and the ranking of diagnose, which fills the rows of its candidates.
BUILDERS = {"profiles/wording.py", "diagnose/findings.py"}


@functools.cache
def all_calls():
    return [
        (path.relative_to(PACKAGE).as_posix(), getattr(node.func, "id", getattr(node.func, "attr", "")), node)
        for path in sorted(PACKAGE.rglob("*.py"))
        if re.search("[fF]inding|title=|fix=", text := path.read_text(encoding="utf-8"))
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call)
    ]


def calls(names):
    return [(file, node) for file, name, node in all_calls() if name in names]


def named(nodes):
    """The texts of an expression that can be the name of a finding."""
    return {n.value for n in ast.walk(nodes) if isinstance(n, ast.Constant) and isinstance(n.value, str)}


@pytest.fixture(scope="module")
def texts():
    return {row.finding: row for row in profiles.load().findings}


def test_no_finding_is_built_beside_the_profiles():
    assert {file for file, _ in calls({"Finding"})} == BUILDERS
    literal = [
        f"{file}:{node.lineno}"
        for file, node in calls({"Finding", "replace"})
        for k in node.keywords
        if k.arg in ("title", "fix") and isinstance(k.value, (ast.Constant, ast.JoinedStr))
    ]
    assert literal == []


def test_each_name_in_the_code_is_a_row(texts):
    for file, node in calls({"make_finding"}):
        if file in ("profiles/wording.py", "detect/make_detect_finding.py"):
            continue
        first = node.args[0]
        if isinstance(first, (ast.Constant, ast.IfExp)):
            choices = [first] if isinstance(first, ast.Constant) else [first.body, first.orelse]
            assert {c.value for c in choices} <= set(texts), f"{file}:{node.lineno}"


def test_each_row_is_used(texts):
    code = "\n".join(p.read_text(encoding="utf-8") for p in PACKAGE.rglob("*.py"))
    strings = set(re.findall(r'"(\w+)"', code))
    containers = {f"{kind}_{end}" for kind in ("container", "kubernetes", "podman", "apptainer")
                  for end in ("without_hosts_gpu", "without_gpu")}  # fmt: skip
    assert set(texts) - strings <= containers


def test_a_row_has_texts_of_its_own_or_of_its_cause(texts):
    causes = {cause.cause for cause in profiles.load().causes}
    for row in texts.values():
        assert row.cause in causes or (row.title and row.fix), row.finding
        assert row.confidence in (None, "certain", "possible"), row.finding  # likely is what is not said


def test_facts_are_filled_in_and_unknown_ones_left_out():
    evidence = (Evidence(text="cuInit: 35"),)
    known = make_finding("driver_older_than_cuda", evidence, runtime="13.0", supported="12.4")
    assert known.title.endswith("requires: CUDA runtime 13.0, the driver supports CUDA 12.4")
    assert known.cause == "driver_too_old_for_runtime" and known.evidence == evidence
    assert make_finding("driver_older_than_cuda", runtime=None).title.endswith("runtime requires")


def test_a_row_without_texts_has_those_of_its_cause():
    last = [row for row in profiles.load().fixes if row.cause == "driver_module_not_loaded"][-1]
    step = last.steps[0].removeprefix("host: ")
    assert make_finding("module_not_loaded").fix == f"On the machine: {step}"
    in_container = make_finding("module_not_loaded", in_container=True).fix
    assert in_container.startswith("On the host: `sudo modprobe nvidia`") and "container" in in_container
    assert make_finding("fabric_manager_stopped").title.startswith(
        "The fabric manager of this NVSwitch machine"
    )


def test_the_texts_are_of_the_rows_that_the_run_has_loaded(monkeypatch):
    assert rows.load(Choices()) is profiles.current
    one = profiles.current.findings[0]._replace(title="The user's title")
    monkeypatch.setattr(profiles, "current", dataclasses.replace(profiles.current, findings=(one,)))
    assert make_finding(one.finding).title == "The user's title"


def test_a_fact_is_not_changed_by_the_text_around_it():
    assert fill_text("run  {command}", {"command": "rm 'a  b'"}) == "Run rm 'a  b'"
    assert fill_text("{library} is not found", {"library": "libz.so.1"}) == "libz.so.1 is not found"
    assert fill_text("{x}", {"x": "{y} [[z]]", "y": "no"}) == "{y} [[z]]"
