"""Values to plain data and back."""

import ast
import copy
import dataclasses
import json
import pickle
from pathlib import Path

import pytest
from rows import rows

from provision import model
from provision.model import (
    GradedResult,
    Machine,
    Plan,
    PlannedBuild,
    RejectedBuild,
    RejectionReason,
    Target,
    TargetGpu,
    VersionCount,
    as_document,
    as_plain,
    from_plain,
)
from provision.model.values import Value

PLAN = Plan(
    builds=(PlannedBuild(framework="torch", version="2.10.0", cuda="12.8", index="pypi", requirements=("torch===2.10.0",)),),
    python="3.11",
    platform="linux-x86_64",
    manager="venv",
    device="cuda",
    target=Target(platform="linux-x86_64", driver="550.54.15", gpus=(TargetGpu(capability="7.5"),)),
    rejected=(RejectedBuild(framework="torch", version="2.11.0", cuda="13.0", index="pypi", reasons=(RejectionReason(code="driver_too_old", text="x"),)),),
)  # fmt: skip


def test_a_plan_survives_json():
    document = json.loads(json.dumps(as_document(PLAN)))
    assert document["schema"] == "gpuenv.plan/1"
    assert from_plain(Plan, document) == PLAN


def test_lists_are_never_null_and_unknown_is_null():
    document = as_document(Machine(target=Target(platform="linux-x86_64")))
    assert document["gpus"] == [] and document["findings"] == [] and document["environment"] == {}
    assert document["target"]["driver"] is None


def test_pass_is_written_without_its_underscore():
    one = GradedResult(
        case="conv2d", dtype="float32", pass_="forward", max_error=0.0, tolerance=1e-5, ok=True
    )
    assert as_plain(one)["pass"] == "forward"
    assert from_plain(GradedResult, as_plain(one)) == one


@rows(
    ("change", "message"),
    [
        ({"index_urls": []}, r"index_urls: unknown key"),
        ({"extra": 1}, r"extra: unknown key \(known are .*builds, "),
        ({"builds": "torch"}, "builds: expected a list"),
        ({"device": "gpu"}, "device: 'gpu' is not one of"),
        (
            {"target": {"gpus": [{"capability": 9}], "platform": "x"}},
            r"target.gpus\[0\].capability: expected str",
        ),
        ({"schema": "gpuenv.plan/2"}, "gpuenv.plan/2"),
        ({"target": None}, "target: expected a table"),
    ],
)
def test_an_error_names_the_key_path(change, message):
    with pytest.raises(ValueError, match=message):
        from_plain(Plan, {**as_document(PLAN), **change})


def test_a_table_of_values_is_no_list():
    with pytest.raises(ValueError, match="versions: expected a table, got list"):
        from_plain(VersionCount, {"versions": ["torch"], "hosts": 1})


def test_each_class_of_the_model_is_defined_in_its_listed_module():
    without_values = (
        "__init__",
        "declare",
    )  # declare.py declares options of the command line; it has no values
    homes = {p.stem: p for p in Path(model.__file__).parent.glob("*.py") if p.stem not in without_values}
    defined = {}
    for home, path in homes.items():
        for node in ast.parse(path.read_text()).body:
            names = (
                [t.id for t in node.targets] if isinstance(node, ast.Assign) else [getattr(node, "name", "_")]
            )
            defined.update({n: home for n in names if not n.startswith("_") and n != "T"})
    assert defined == model._MODULE_OF
    for noun, home in defined.items():
        assert getattr(model, noun) is vars(__import__(f"provision.model.{home}", fromlist=[home]))[noun]
    with pytest.raises(ImportError, match="Plam"):
        from provision.model import Plam  # noqa: F401


def test_all_model_classes_are_public_frozen_and_keyword_only():
    nouns = [
        v
        for v in (getattr(model, name) for name in model.__all__)
        if isinstance(v, type) and dataclasses.is_dataclass(v)
    ]
    assert {"Plan", "Lock", "Verdict", "Machine", "Target"} <= {n.__name__ for n in nouns}
    assert set(model.__all__) <= set(dir(model))
    for noun in nouns:
        for name in (dataclasses.fields(noun)[0].name, "another"):
            with pytest.raises(dataclasses.FrozenInstanceError):
                setattr(object.__new__(noun), name, None)
        if noun not in (
            model.Evidence,
            model.Event,
            model.RejectionReason,
        ):  # a few texts, written a hundred times
            assert all(field.kw_only for field in dataclasses.fields(noun)), noun


class Sized(Value):
    name: str
    size: int = 1
    parts: list[str] = dataclasses.field(default_factory=list)
    seen: int = dataclasses.field(default=0, compare=False)


class Placed(Sized, kw_only=False):
    where: str = "here"


def test_a_frozen_value_does_what_a_dataclass_does():
    """`provision.model.values` makes classes in its own way."""
    one = Sized(name="a", size=2)
    assert repr(one) == "Sized(name='a', size=2, parts=[], seen=0)"
    assert one == Sized(size=2, name="a", seen=7) and one != Sized(name="a") and one != "a"
    assert one.parts is not Sized(name="a").parts
    assert dataclasses.replace(one, size=3) == Sized(name="a", size=3)
    assert hash(Sized(name="a", parts=())) == hash(Sized(parts=(), name="a", seen=1))
    assert pickle.loads(pickle.dumps(one)) == copy.deepcopy(one) == one
    assert Placed("there", name="a") == Placed(name="a", where="there") != one
    for change in (lambda: setattr(one, "size", 3), lambda: delattr(one, "size")):
        with pytest.raises(dataclasses.FrozenInstanceError):
            change()
    for words, names in (((), {}), ((), {"name": "a", "colour": 1}), (("a", "b"), {"name": "c"})):
        with pytest.raises((TypeError, ValueError)):
            Placed(*words, **names)
