"""The command in a verdict's fix can be typed as it stands."""

import json

import pytest

from provision.commands.prove import add_rebuild_commands
from provision.model import Environment, Finding, Lock, Plan, PlannedBuild, StageResult, Target, Verdict

FIX = "Make the environment for the GPU: gpuenv create --recreate --device cuda; or verify with --device cpu."
EXTENSION = "`gpuenv create --recreate --framework torch --with torchvision`."


def verdict(*fixes):
    stages = (
        StageResult(stage="libraries", status="fail", detail="x"),
        StageResult(stage="framework", status="skip", detail="x", framework="jax"),
    )
    found = tuple(Finding(cause="cpu_only_build", title="x", fix=f, confidence="certain") for f in fixes)
    return Verdict(env="e", python="p", verdict="fails", stages=stages, findings=found, hint=fixes[0])


def environment(path, *, ours):
    return Environment(path=str(path), manager="venv", python=f"{path}/bin/python", made_by_gpuenv=ours)


@pytest.fixture
def lock():
    build = PlannedBuild(framework="torch", version="2.9.1", cuda="12.8", index="pypi", requirements=())
    target = Target(platform="linux-x86_64")
    plan = Plan(builds=(build,), python="3.12", platform="linux-x86_64", manager="venv", device="cuda", target=target)  # fmt: skip
    return Lock(manager="venv", target=target, plan=plan, packages=())


def test_an_environment_of_others_is_not_to_be_recreated(tmp_path):
    told = add_rebuild_commands(verdict(FIX), environment(tmp_path, ours=False), None)
    assert told.findings[0].fix == told.hint == FIX.replace("--recreate", "NEW --framework jax")


def test_the_command_names_our_environment_and_its_frameworks(tmp_path, lock):
    env = environment(tmp_path / "my env", ours=True)
    told = add_rebuild_commands(verdict(FIX, EXTENSION), env, lock)
    place = f"'{env.path}' --recreate"
    assert told.findings[0].fix == FIX.replace("--recreate", f"{place} --framework torch")
    assert told.findings[1].fix == EXTENSION.replace("--recreate", place)


def test_the_command_for_a_project_names_no_frameworks(tmp_path, lock):
    (tmp_path / ".gpuenv").mkdir()
    (tmp_path / ".gpuenv" / "request.json").write_text(json.dumps({"choices": {"config": "gpuenv.yaml"}}))
    told = add_rebuild_commands(verdict(FIX), environment(tmp_path, ours=True), lock)
    assert told.hint == FIX.replace("--recreate", f"{tmp_path} --recreate")


def test_a_verdict_without_a_command_is_unchanged(tmp_path):
    one = verdict("Free the GPU's memory.")
    assert add_rebuild_commands(one, environment(tmp_path, ours=True), None) is one
