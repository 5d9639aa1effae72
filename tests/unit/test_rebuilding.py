"""The command in a verdict's fix can be typed as it stands."""

import json
from types import SimpleNamespace

import pytest

from provision.model import Environment, Lock, Plan, PlannedBuild, StageResult, Target
from provision.profiles.wording import make_finding
from provision.verify import Options, make_verdict

FOR_GPU = "framework_for_cpu"
EXTENSION = "extension_does_not_load"


@pytest.fixture
def lock():
    build = PlannedBuild(framework="torch", version="2.9.1", cuda="12.8", index="pypi", requirements=())
    target = Target(platform="linux-x86_64")
    plan = Plan(builds=(build,), python="3.12", platform="linux-x86_64", manager="venv", device="cuda", target=target)  # fmt: skip
    return Lock(manager="venv", target=target, plan=plan, packages=())


def fixes(path, row, lock=None, *, ours=True):
    """The fix of a finding and the hint, in the verdict of a verification that ended."""
    stages = [
        StageResult(stage="libraries", status="fail", detail="x"),
        StageResult(stage="framework", status="skip", detail="x", framework="jax"),
    ]
    env = Environment(path=str(path), manager="venv", python=f"{path}/bin/python", made_by_gpuenv=ours)
    run = SimpleNamespace(
        env=env, lock=lock, stages=stages, failed=stages[0], device="cuda", options=Options(), wrong=False, verdicts=[], drift=(),
        findings=[make_finding(row, framework="torch", name="torch", package="torchvision")], low_memory=None,
    )  # fmt: skip
    told = make_verdict(run)
    assert told.hint == told.findings[0].fix
    return told.hint


def test_an_environment_of_others_is_not_to_be_recreated(tmp_path):
    assert "`gpuenv create NEW --framework jax --device cuda`" in fixes(tmp_path, FOR_GPU, ours=False)


def test_the_command_names_our_environment_and_its_frameworks(tmp_path, lock):
    place = f"'{tmp_path / 'my env'}' --recreate"
    assert f"`gpuenv create {place} --framework torch --device cuda`" in fixes(
        tmp_path / "my env", FOR_GPU, lock
    )
    wanted = f"`gpuenv create {place} --framework torch --with torchvision`"
    assert wanted in fixes(tmp_path / "my env", EXTENSION, lock)


def test_the_command_for_a_project_names_no_frameworks(tmp_path, lock):
    (tmp_path / ".gpuenv").mkdir()
    (tmp_path / ".gpuenv" / "request.json").write_text(
        json.dumps({"choices": {"config": "/project/gpuenv.yaml"}})
    )
    assert f"`gpuenv create {tmp_path} --recreate --device cuda`" in fixes(tmp_path, FOR_GPU, lock)
