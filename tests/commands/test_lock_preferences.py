"""A lock that is there prefers its versions. Another index can have wheels of them with other requirements."""
# ruff: noqa: F811  # fixtures are imported by their names

import pytest
import tomllib
from loopback import Index, serving
from test_project_create import requirements, stack  # noqa: F401

SOLVE = "lock: solving the packages"
WITHOUT = "have no compatible solution. Solving without them"


def locked_versions(gpuenv) -> dict[str, str]:
    lock = tomllib.loads((gpuenv.work / "pylock.toml").read_text())
    return {p["name"]: p["version"] for p in lock["packages"]}


@pytest.fixture
def held(stack, gpuenv, index):
    """`gpuenv lock` where the lock has helper 1.0 and middle 1.0."""
    index.add("middle", "1.0")
    index.add("helper", "1.0", ("middle==1.0",))
    requirements(gpuenv, "torch", "helper")

    def lock():
        return stack("lock", "-r", "requirements.txt")

    ran = lock()
    assert ran.code == 0, ran.err
    assert locked_versions(gpuenv)["helper"] == "1.0"
    return lock


@pytest.fixture
def other(gpuenv, held):
    """Another index, asked before the first one."""
    with serving(Index()) as running:
        gpuenv.env["PIP_EXTRA_INDEX_URL"] = running.url
        yield running


def test_a_locked_wheel_that_contradicts_another_is_replaced(stack, gpuenv, held, other):
    other.add("helper", "1.0", ("middle==2.0",))
    other.add("middle", "2.0")
    ran = held()
    assert ran.code == 0, ran.err
    found = locked_versions(gpuenv)
    assert (found["torch"], found["helper"], found["middle"]) == (stack.newest, "1.0", "2.0")
    assert ran.err.count(SOLVE) == 1


def test_a_locked_wheel_that_brings_a_framework_is_not_preferred(stack, gpuenv, index, held, other):
    """The plan would get TensorFlow, and torch would be walked down to one that goes with it."""
    other.add("helper", "1.0", ("tensorflow==2.0",))
    other.add("helper", "1.1", ("middle==1.0",))
    index.add("tensorflow", "2.0")
    ran = held()
    assert ran.code == 0, ran.err
    found = locked_versions(gpuenv)
    assert (found["torch"], found["helper"], found["middle"]) == (stack.newest, "1.1", "1.0")
    assert "tensorflow" not in found
    assert ran.err.count(SOLVE) == 2, "one solve with the lock's versions, one without"


def test_a_contradiction_without_the_lock_is_tried_without_it_only_once(stack, gpuenv, held, other):
    """A torch that contradicts the plan's pins does so with any lock. The lock's other versions stay."""
    other.add("torch", stack.newest, ("nvidia-cudnn-cu13==1.1",))
    other.add("torch", "2.8.0")
    other.add("nvidia-cudnn-cu13", "1.1")
    other.add("middle", "1.0")
    other.add("middle", "2.0")
    requirements(gpuenv, "torch", "middle")
    ran = held()
    assert ran.code == 0, ran.err
    found = locked_versions(gpuenv)
    assert (found["torch"], found["middle"]) == ("2.8.0", "1.0")
    near, _, free = ran.err.partition("without the locked versions of the frameworks")
    assert near.count(WITHOUT) == 1 and WITHOUT not in free, "each note is said once"
    assert ran.err.count(SOLVE) == 6, "two for the locked frameworks, then four"
