"""How often a lock runs uv: once where the address of each file shows its index, once more from uv's cache where not."""

import json
import re
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from loopback import Index, serving, wheel_bytes
from test_newest_set import ASK, versions


@pytest.fixture
def torches(gpuenv, index):
    """`gpuenv` with an index that has torch 2.15.0 and all that it requires."""
    gpuenv.env["PIP_INDEX_URL"] = index.url
    index.add_plan(gpuenv("resolve", "--json", "--framework", "torch==2.15.0", *ASK[2:]).json)
    index.tells_sizes, index.uploaded = True, "2026-10-01T00:00:00Z"
    index.add("plain", "1.0")
    return gpuenv


def runs(ran) -> list[int]:
    """How often uv ran in each solve, as -v prints it with the seconds."""
    lines = re.findall(r"uv took ((?:\d+\.\d\d s(?:, )?)+)$", ran.err, re.MULTILINE)
    return [len(line.split(", ")) for line in lines]


def test_a_lock_runs_uv_once(torches, index):
    ran = torches("lock", "--json", "-v", "--with", "plain", *ASK)
    assert ran.code == 0, ran.err
    assert runs(ran) == [1]
    assert {p["index"] for p in ran.json["packages"]} == {index.url}


def test_two_indexes_are_told_apart_by_a_run_that_asks_none(torches, index):
    with serving(Index()) as other:
        torches.env["PIP_EXTRA_INDEX_URL"] = other.url
        other.add("beside", "1.0", requires=("needed",))
        other.add("needed", "1.0")
        ran = torches("lock", "--json", "-v", "--with", "plain", "--with", "beside", *ASK)
        assert ran.code == 0, ran.err
        places = {p["name"]: p["index"] for p in ran.json["packages"]}
        pages = [other.requests["/simple/needed/"], index.requests["/simple/pip/"]]
    assert runs(ran) == [2]
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


@pytest.fixture
def again(torches, index):
    """`gpuenv lock` of one request, each time without a lock that is there."""
    index.add("beside", "1.0", requires=("needed",))
    index.add("needed", "1.0")

    def lock(*more):
        (torches.work / "pylock.toml").unlink(missing_ok=True)
        return torches("lock", "--json", "-v", "--with", "beside", "--with", "plain", *more, *ASK)

    assert runs(lock()) == [1]
    return lock


def test_the_last_question_is_asked_before_the_releases_are_read(again, torches, index):
    """The page of one package does not come until the solver has asked for what another one requires."""
    first = (torches.work / "pylock.toml").read_text()
    before = index.requests["/simple/needed/"]
    index.faults["/simple/plain/"] = "stalled"
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(again)
        until = time.monotonic() + 30
        while index.requests["/simple/needed/"] == before and time.monotonic() < until:
            time.sleep(0.01)
        asked = index.requests["/simple/needed/"] - before
        index.faults.clear()
        index.released.set()
        ran = running.result()
    assert asked == 1, "by the solver alone, and before all pages are read"
    assert runs(ran) == [1] and (torches.work / "pylock.toml").read_text() == first
    assert index.requests["/simple/needed/"] - before == 1, "its answer is taken"


def test_the_last_question_does_not_count_where_the_index_has_something_newer(again, torches, index):
    index.add("plain", "2.0")
    ran = again()
    assert versions(ran)["plain"] == "2.0" and runs(ran) == [1]
    del index.wheels["plain"]["plain-2.0-py3-none-any.whl"]
    assert versions(again())["plain"] == "1.0"


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"words": 1, "files": 2}', "[" * 100_000],
)  # fmt: skip
def test_a_damaged_question_is_passed_over(again, torches, text):
    (kept,) = torches.work.parent.rglob("last-questions/*.json")
    first = (torches.work / "pylock.toml").read_text()
    kept.write_text(text)
    assert runs(again()) == [1] and (torches.work / "pylock.toml").read_text() == first


@pytest.mark.parametrize(
    "damage",
    [
        {"words": ["pip", "compile", "nothing"]}, {"words": 7}, {"files": {"../../outside": "text"}}, {"files": ["text"]},
        {"bound": 3}, {"sources": None}, {"python": "/no/python"}, {"timeout": "soon"}, {"only_wheels": True},
    ],
)  # fmt: skip
def test_a_changed_question_is_not_the_one_of_the_search(again, torches, damage):
    (kept,) = torches.work.parent.rglob("last-questions/*.json")
    first = (torches.work / "pylock.toml").read_text()
    kept.write_text(json.dumps(json.loads(kept.read_text()) | damage))
    ran = again()
    assert ran.code == 0 and runs(ran) == [1], ran.err
    assert (torches.work / "pylock.toml").read_text() == first
    assert not list(torches.work.parent.rglob("outside")), "nothing is written elsewhere"


def test_an_index_that_is_no_longer_configured_is_not_asked(again, torches, index):
    with serving(Index()) as other:
        other.wheels, other.uploaded = index.wheels, index.uploaded
        torches.env["PIP_INDEX_URL"] = other.url
        before = sum(index.requests.values())
        ran = again()
    assert ran.code == 0, ran.err
    assert sum(index.requests.values()) == before


def test_no_question_with_credentials_is_kept(torches, index):
    torches.env["PIP_INDEX_URL"] = index.url.replace("://", "://me:secret-word@")
    assert torches("lock", "--with", "plain", *ASK).code == 0
    assert not list(torches.work.parent.rglob("last-questions/*.json"))


# --- refusals ----------------------------------------------------------------------------------------


@pytest.fixture
def refused(torches, index):
    """`gpuenv lock` of a request whose newest sets are refused: "many" 3.0 for want of "gone" 2."""
    index.add("gone", "1.0")
    index.add("many", "3.0", requires=("gone>=2",))
    index.add("many", "2.0", requires=("other<2",))
    index.add("other", "2.0")
    index.add("other", "1.0")

    def lock(*more):
        (torches.work / "pylock.toml").unlink(missing_ok=True)
        ran = torches("lock", "--json", "-v", "--with", "many", "--with", "other", *more, *ASK)
        assert ran.code == 0, ran.err
        return ran

    return lock


def kept_refusals(gpuenv):
    return sorted(gpuenv.work.parent.rglob("refused-questions/*.json"))


def test_a_refused_question_is_not_asked_twice(refused, torches):
    first = refused()
    assert len(runs(first)) > 1 and versions(first)["many"] == "2.0"
    text = (torches.work / "pylock.toml").read_text()
    second = refused()
    assert runs(second) == [1], "only the question with an answer"
    assert (torches.work / "pylock.toml").read_text() == text
    assert second.json["held_back"] == first.json["held_back"]


def test_a_refusal_counts_as_long_as_the_packages_that_it_names_have_the_same_files(refused, index):
    refused()
    index.add("bystander", "1.0")
    assert runs(refused()) == [1]
    index.add("gone", "2.0")
    assert versions(refused())["many"] == "3.0"
    del index.wheels["gone"]["gone-2.0-py3-none-any.whl"]
    index.yanked["other-1.0-py3-none-any.whl"] = "broken"
    index.add("other", "1.5")
    assert (versions(found := refused())["many"], versions(found)["other"]) == ("2.0", "1.5")


def test_a_damaged_refusal_is_passed_over(refused, torches):
    refused()
    text = (torches.work / "pylock.toml").read_text()
    for damaged in ("{", "[]", '{"log": 1, "pages": 2}', "[" * 100_000):
        assert kept_refusals(torches)
        for kept in kept_refusals(torches):
            kept.write_text(damaged)
        refused()
        assert (torches.work / "pylock.toml").read_text() == text


def test_a_wheel_in_a_folder_makes_another_question(refused, tmp_path):
    (tmp_path / "wheels").mkdir()
    links = ("--find-links", str(tmp_path / "wheels"))
    assert versions(refused(*links))["many"] == "2.0"
    (tmp_path / "wheels" / "gone-2.0-py3-none-any.whl").write_bytes(wheel_bytes("gone", "2.0"))
    assert versions(refused(*links))["many"] == "3.0"


def test_no_credentials_are_kept_with_a_refusal(refused, torches, index):
    torches.env["PIP_INDEX_URL"] = index.url.replace("://", "://me:secret-word@")
    refused()
    assert kept_refusals(torches)
    assert not any("secret-word" in kept.read_text() + kept.name for kept in kept_refusals(torches))
