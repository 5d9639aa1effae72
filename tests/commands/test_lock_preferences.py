"""A lock that is there prefers its versions. Another index can have wheels of them with other requirements."""
# ruff: noqa: F811  # fixtures are imported by their names

import pytest
import tomllib
from environment_facts import ok
from loopback import Index, serving
from test_project_create import requirements, stack  # noqa: F401


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

    ok(lock())
    assert locked_versions(gpuenv)["helper"] == "1.0"
    return lock


@pytest.fixture
def other(gpuenv, held):
    """Another index, asked before the first one."""
    with serving(Index()) as running:
        gpuenv.env["PIP_EXTRA_INDEX_URL"] = running.url
        yield running


@pytest.mark.parametrize(
    ("wanted", "says"),
    [
        ("middle", "make room for the requirements"),
        ("tensorflow", "tensorflow shares no CUDA with torch {}, "),
    ],
)
def test_a_locked_wheel_that_contradicts_another_or_brings_a_framework_is_replaced(
    stack, gpuenv, index, held, other, wanted, says
):
    other.add("helper", "1.0", (f"{wanted}==2.0",))
    (index if wanted == "tensorflow" else other).add(wanted, "2.0")
    ran = ok(held())
    found = locked_versions(gpuenv)
    assert (found["torch"], found["helper"], found[wanted]) == (stack.newest, "1.0", "2.0")
    assert says.format(stack.newest) in ran.err


def test_a_framework_that_another_index_has_with_other_pins_leaves_the_lock(stack, gpuenv, held, other):
    """A torch that contradicts the plan's pins does so with any lock."""
    other.add("torch", stack.newest, ("nvidia-cudnn-cu13==1.1",))
    other.add("nvidia-cudnn-cu13", "1.1")
    before = (gpuenv.work / "pylock.toml").read_text()
    ran = held()
    told = " ".join(ran.err.split())
    assert ran.code == 6 and "depends on nvidia-cudnn-cu13==1.1" in told, ran.err
    assert (gpuenv.work / "pylock.toml").read_text() == before
