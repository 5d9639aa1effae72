"""How often a lock runs uv: once where the address of each file shows its index, once more from uv's cache where not."""

import re

import pytest
from environment_facts import ok
from loopback import Index, serving
from test_newest_set import ASK, versions


@pytest.fixture
def torches(gpuenv, index):
    """`gpuenv` with an index that has torch 2.15.0 and all that it requires."""
    index.add_plan(gpuenv("resolve", "--json", "--framework", "torch==2.15.0", *ASK[2:]).json)
    gpuenv.env["PIP_INDEX_URL"] = index.url
    index.uploaded = "2026-10-01T00:00:00Z"
    index.add("plain", "1.0")
    return gpuenv


def runs(ran) -> list[int]:
    """How often uv ran in each solve, as -v prints it with the seconds."""
    lines = re.findall(r"uv took ((?:\d+\.\d\d s(?:, )?)+)$", ran.err, re.MULTILINE)
    return [len(line.split(", ")) for line in lines]


def test_a_lock_runs_uv_once(torches, index):
    ran = ok(torches("lock", "--json", "-v", "--with", "plain", *ASK))
    assert runs(ran) == [1]
    assert {p["index"] for p in ran.json["packages"]} == {index.url}


@pytest.mark.usefixtures("real_uv")
def test_two_indexes_are_told_apart_by_a_run_that_asks_none(torches, index):
    with serving(Index()) as other:
        torches.env["PIP_EXTRA_INDEX_URL"] = other.url
        other.add("beside", "1.0", requires=("needed",))
        other.add("needed", "1.0")
        ran = ok(torches("lock", "--json", "-v", "--with", "plain", "--with", "beside", *ASK))
        places = {p["name"]: p["index"] for p in ran.json["packages"]}
        pages = [other.requests["/simple/needed/"], index.requests["/simple/pip/"]]
    assert runs(ran) == [1]
    assert (places["plain"], places["beside"], places["needed"]) == (index.url, other.url, other.url)
    assert pages == [1, 1], "the second run reads uv's cache"


def test_who_requires_what_is_asked_where_it_matters(torches, index):
    """A wheel of another CUDA major: the line names the package that brings it, two levels up."""
    index.add("nvidia-cublas-cu11", "11.11.3.6")
    index.add("kernels", "1.0", requires=("nvidia-cublas-cu11",))
    index.add("serving", "1.0", requires=("kernels",))
    ran = torches("lock", "--json", "--with", "serving", *ASK)
    assert versions(ran)["serving"] == "1.0"
    assert "serving brings nvidia-cublas-cu11 11.11.3.6" in " ".join(ran.err.split())
