"""Exit codes of results: each is found by the name of its class."""

from types import SimpleNamespace

from rows import rows

from provision.cli.exit_codes import get_exit_code
from provision.model import (
    Bundle,
    CreateResult,
    Environment,
    Fleet,
    FleetLocks,
    NodeVerdict,
    Plan,
    PlannedBuild,
    RepairResult,
    RunResult,
    StageResult,
    StepFailure,
    Target,
    UnservedHosts,
    Verdict,
)

LINUX = Target(platform="linux-x86_64")
BUILD = PlannedBuild(framework="torch", version="2.9.0", cuda="12.8", index="pypi", requirements=())
UNSERVED = (UnservedHosts(hosts=1, reason="old"),)
ENV = Environment(path="/e", manager="venv", python="/e/bin/python")
NO_KERNEL = StepFailure(name="build", message="full")


def plan(*builds, device="cuda"):
    return Plan(
        builds=builds, python="3.12", platform="linux-x86_64", manager="venv", device=device, target=LINUX
    )


def verdict(outcome, made_for="cuda", status="pass"):
    stage = StageResult(stage="driver", status=status, detail="")
    return Verdict(env="/e", python="/e/bin/python", verdict=outcome, stages=(stage,), made_for=made_for)


def bundle(unserved=()):
    return Bundle(
        gpuenv="1", manager="venv", lock="pylock.toml", target=LINUX, device="cuda", frameworks=(), python="3.12",
        asked="", unserved=unserved,
    )  # fmt: skip


def created(outcome, env=ENV, **more):
    return CreateResult(plan=plan(BUILD), environment=env, verdict=outcome and verdict(outcome), **more)


def fleet(unserved=()):
    return Fleet(classes=(), plans=(), unserved=unserved)


@rows(
    "value, options, code",
    [
        (None, {}, 0),
        (RunResult(env="/e", command=("x",), code=7), {}, 7),
        (plan(BUILD), {}, 0),
        (plan(), {}, 5),
        (plan(), {"takes_lock": True}, 0),
        (bundle(), {}, 0),
        (bundle(UNSERVED), {}, 5),
        (fleet(), {}, 0),
        (fleet(UNSERVED), {}, 5),
        (FleetLocks(fleet=fleet(), locks=()), {}, 0),
        (FleetLocks(fleet=fleet(UNSERVED), locks=()), {}, 5),
        (created("works"), {}, 0),
        (created(None), {}, 0),
        (created("cpu"), {}, 8),
        (created("fails", env=None), {}, 8),
        (created("works", kernel_error=NO_KERNEL), {}, 7),
        (CreateResult(plan=plan()), {}, 5),
        (CreateResult(), {}, 5),
        (verdict("works"), {}, 0),
        (verdict("works", status="warn"), {}, 0),
        (verdict("works", status="warn"), {"strict": True}, 8),
        (verdict("cpu"), {}, 8),
        (verdict("cpu"), {"device": "cpu"}, 0),
        (verdict("cpu", made_for="cpu"), {}, 0),
        (verdict("unproven"), {}, 8),
        (NodeVerdict(fault=False, text=""), {}, 0),
        (NodeVerdict(fault=True, text=""), {}, 8),
        (NodeVerdict(fault=True, text="", hung=True), {}, 10),
        (RepairResult(), {}, 0),
        (RepairResult(verdict=verdict("works")), {}, 0),
        (RepairResult(verdict=verdict("cpu")), {}, 8),
    ],
)
def test_a_result_has_the_code_of_its_class(value, options, code):
    assert get_exit_code(value, SimpleNamespace(**{"strict": False, "device": None} | options)) == code
