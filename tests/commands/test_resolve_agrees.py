"""`resolve`, `lock`, `create`, `add`, `bundle` and a fleet take the same builds and packages for the same request."""
# ruff: noqa: F811  # fixtures are imported by their names

import json
from importlib import metadata

import pytest
from marked_builds import Marks
from packaging.requirements import Requirement
from test_newest_set import ASK, GPU, HERE, torches, write_rows  # noqa: F401

from driver_stub import H200, build, scenario, spec

SOURCED = {"since": "2.2"}
EXACT = 'package: "kernels", version: "2.0", built_for: "torch==2.13.0", abi: "exact"'
OTHER_CUDA = 'package: "codec", version: "1.0", cuda: "12", cuda_by: "needed", needs: ["libcudart.so.12"]'


@pytest.fixture
def shelf(torches, index, tmp_path):
    """An index with packages of every kind that a request of this file names."""
    (tmp_path / "code").mkdir()
    marks = Marks(tmp_path / "code", torches.env["HOME"])
    index.add("serving", "2.0", requires=("torch==2.14.0",))
    index.add("serving", "1.0", requires=("torch>=2.0",))
    index.add("ranged", "2.0", requires=("torch<2.15",))
    index.add("ranged", "1.0", requires=("torch>=2.0",))
    index.add("brings", "1.0", requires=("serving",))
    index.add("deep", "2.0", requires=("brings", "plain<3"))
    index.add("kernels", "2.0")
    index.add("kernels", "1.0")
    index.add("codec", "1.0")
    index.add("unmet", "2.0", requires=("torch==2.13.0", "absent"))
    index.add("unmet", "1.0", requires=("torch>=2.0",))
    index.add("cuda-eleven", "2.0", requires=("torch", "nvidia-cublas-cu11"))
    index.add("cuda-eleven", "1.0", requires=("torch",))
    index.add("nvidia-cublas-cu11", "11.11.3.6")
    for version in ("3.0", "2.0", "1.0"):
        index.add("plain", version)
    index.add("tomli", "9.0")
    for own in map(Requirement, metadata.requires("gpuenv") or ()):  # a bundle has gpuenv
        if own.marker is None or own.marker.evaluate({"extra": ""}):
            index.add(own.name, metadata.version(own.name))
    marks.stated(index, "sourced", "1.0", ("torch<2.15",), **SOURCED)
    marks.stated(index, "sourced-plain", "1.0", ("plain<3",), **SOURCED)
    marks.stated(index, "sourced-deep", "1.0", ("sourced", "plain"), **SOURCED)
    marks.stated(index, "sourced-exact", "1.0", ("torch==2.13.0",), **SOURCED)
    marks.stated(index, "sourced-mixed", "2.0", ("torch==2.14.0",), **SOURCED)
    index.add("sourced-mixed", "1.0", requires=("torch>=2.0",))
    index.add("wheel-of-sources", "1.0", requires=("sourced-exact",))
    torches.marks, torches.rows = marks, write_rows(torches, EXACT, OTHER_CUDA)
    return torches


REQUESTS = ["torch deep serving", "torch kernels ranged", "torch sourced"]
MORE = [
    "torch serving", "torch unmet", "torch sourced-mixed", "torch", "torch plain<2", "serving torch", "torch ranged serving", "torch cuda-eleven plain",
    "torch sourced-exact plain", "torch wheel-of-sources", "torch==2.14.0", "torch==2.13.0", "torch plain", "torch serving<2", "torch plain serving", "torch ranged",
    "torch brings", "torch deep", "torch kernels", "torch kernels<2", "torch kernels plain", "torch unmet serving",
    "torch cuda-eleven", "torch sourced-plain", "torch sourced-deep", "torch sourced-exact", "torch sourced serving",
]  # fmt: skip
FLEETS = ["torch serving", "torch kernels ranged", "torch sourced"]  # the first is slow


def taken(plan):
    return [(b["framework"], b["version"], b["cuda"], b["index"]) for b in plan["builds"]]


def packages(lock):
    return {p["name"]: p["version"] for p in lock["packages"]}


def added(shelf, request):
    """The lock of a project to which `add` adds the packages of a request, on this machine with a GPU."""
    framework, *others = sorted(request.split(), key=lambda text: not text.startswith("torch"))
    file = shelf.work / "gpuenv.yaml"
    file.write_text(f"frameworks: [{framework}]\nindex: pypi\npython: '{HERE}'\n")
    (shelf.work / "pylock.toml").unlink(missing_ok=True)  # a project stays near to its lock
    before = shelf.env
    shelf.env = before | scenario(shelf.folder / "driver", spec(driver="580.95.05", cuda=13000, gpus=[H200]))
    ran = shelf("add", *others, "--json", *shelf.rows)
    shelf.env = before
    file.unlink()
    assert ran.code == 0, request + ran.out + ran.err
    return ran.json


@pytest.mark.usefixtures("real_uv")
@pytest.mark.parametrize("requests", [REQUESTS, pytest.param(MORE, marks=pytest.mark.slow)])
def test_the_builds_and_packages_are_the_same(shelf, requests):
    for number, request in enumerate(requests):
        (shelf.work / f"{number}.txt").write_text("\n".join(request.split()) + "\n")
    asked = [("--json", "-r", f"{number}.txt", *shelf.rows, *ASK[2:]) for number in range(len(requests))]
    planned = [shelf("resolve", *ask) for ask in asked]
    assert shelf.marks.left() == [], "resolve runs no build code"
    build(shelf.folder / "driver", "580.95.05")
    (shelf.work / "hosts").mkdir()
    for name in ("a", "b"):
        (shelf.work / "hosts" / f"{name}.json").write_text(json.dumps(planned[0].json["target"]))
    for number, (request, plan) in enumerate(zip(requests, planned, strict=True)):
        locked = shelf("lock", "-o", f"pylock.{number}.toml", *asked[number])
        created = shelf("create", "--dry-run", *asked[number])
        assert plan.code == locked.code == created.code == 0, request + plan.out + locked.out + created.out
        assert taken(plan.json) == taken(locked.json["plan"]), request
        if "sourced" not in request:  # only a build could say what else an archive requires
            assert plan.json["held_back"] == created.json["held_back"] == locked.json["held_back"], request
        assert plan.json["python"] == locked.json["plan"]["python"], request
        assert taken(created.json) == taken(locked.json["plan"]), request
        if " " in request:  # `add` adds a package
            lock = added(shelf, request)
            assert taken(lock["plan"]) == taken(locked.json["plan"]), request
            assert packages(lock) == packages(locked.json), request
        if request in FLEETS:
            for old in shelf.work.glob("pylock.*.toml"):
                old.unlink()  # a fleet stays near to its locks
            hosts = (*asked[number][: -len(GPU)], "--target", "hosts")
            fleet, bundle = shelf("lock", *hosts), shelf("bundle", "--dry-run", f"{number}", *hosts)
            assert fleet.code == bundle.code == 0, request + fleet.out + bundle.out
            (one,) = fleet.json["locks"]
            assert taken(one["lock"]["plan"]) == taken(locked.json["plan"]), request
            assert packages(one["lock"]) == packages(locked.json), request
            files = {p["url"].rpartition("/")[2] for p in locked.json["packages"]}
            assert files <= {w.rpartition("/")[2] for w in bundle.json["writes"]}, request


@pytest.mark.parametrize("command", ["resolve", "lock"])
def test_a_row_that_forbids_the_request_is_named_alike(shelf, command):
    ran = shelf(command, "--json", "--with", "codec", *shelf.rows, *ASK)
    assert ran.code == 5
    assert ran.json["error"]["message"].startswith("codec 1.0 needs libcudart.so.12; torch has CUDA 13")
