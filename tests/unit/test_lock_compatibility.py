"""Measured rows: which releases a question leaves out, and which packages of an answer do not go with its builds."""

import re
from types import SimpleNamespace

import pytest

from provision.lock.compatibility import Compatibility, stated_bounds
from provision.lock.compile import Answer
from provision.model import (
    AvailableWheels,
    Build,
    FrameworkRequest,
    LockedPackage,
    Profiles,
    Request,
    Satellite,
    Target,
    TargetGpu,
)
from provision.resolve.question import Question

TARGET = Target(
    platform="linux-x86_64", glibc="2.35", driver="580.95.05", driver_os="linux",
    gpus=(TargetGpu(capability="9.0", name="H100"),),
)  # fmt: skip


def build(version, cuda="13.0", **more):
    return Build(framework="torch", version=version, cuda=cuda, platform="linux-x86_64", index="pypi",
                 python=("3.12",), kernels=("9.0",), **more)  # fmt: skip


def row(package, version, **columns):
    return Satellite(package=package, version=version, platform="linux-x86_64", form="wheel", **columns)


def needs_cuda(package, version, cuda):
    return row(package, version, cuda=cuda, cuda_by="needed", needs=(f"libcudart.so.{cuda[:2]}",))


def facts(*rows, named=(), builds=(), requires=(), device="cuda", measured=None):
    known = Profiles(satellites=rows, builds=tuple(builds))
    request = Request(frameworks=(FrameworkRequest(name="torch"),), device=device)
    question = Question(request, TARGET, known, AvailableWheels())
    bounds = stated_bounds(requires, "linux-x86_64", "3.11")
    kept = SimpleNamespace(rows=lambda sha256: (measured or {}).get(sha256, ()))
    return Compatibility(question, frozenset(named), lambda _package: bounds, kept)


def locked(name, version, sha256=None):
    url = f"https://host/{name}-{version}-py3-none-any.whl"
    return LockedPackage(name=name, version=version, url=url, sha256=sha256)


def test_the_release_that_was_asked_for_is_the_one_that_is_named():
    known = facts(needs_cuda("torchao", "0.18.0", "12"), needs_cuda("torchao", "0.16.0", "12"))
    why = known.explain_exclusion("torchao", [build("2.15.0")], "==0.16.0")
    assert why and why.startswith("torchao 0.16.0 needs libcudart.so.12")


def test_a_folder_whose_version_only_its_code_tells_has_none_to_pin():
    answer = Answer(packages=(locked("peft", ""), locked("numpy", "2.0")))
    assert answer.versions == {"numpy": "2.0"}


# --- left out -----------------------------------------------------------------------------------------


def test_measured_releases_that_fit_no_build_are_left_out_and_their_series_if_none_fits():
    known = facts(
        needs_cuda("torchao", "0.18.1", "12"), needs_cuda("torchao", "0.18.0", "13"), needs_cuda("torchao", "0.16.0", "12")
    )  # fmt: skip
    assert known.exclude_releases([[build("2.15.0")]]) == ["torchao!=0.16.*,!=0.18.1"]


def test_the_framework_that_metadata_states_is_not_that_of_the_series():
    """torchvision 0.22.1 is built for torch 2.7.1, and 0.22.0 for 2.7.0. What a document says is of the series."""
    stated = row("vision", "0.22.1", abi="exact", built_for="torch==2.7.1")
    known = facts(stated, stated._replace(package="codec", built_by="document"))
    assert known.exclude_releases([[build("2.7.0")]]) == ["vision!=0.22.1", "codec!=0.22.*"]
    assert known.explain_unfit(locked("vision", "0.22.0"), [build("2.7.0")]) is None


def test_a_release_that_fits_one_of_several_builds_stays():
    known = facts(needs_cuda("torchao", "0.16.0", "12"))
    assert known.exclude_releases([[build("2.15.0")], [build("2.10.0", "12.8")]]) == []


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_a_file_for_one_cuda_release_serves_that_release_only(device):
    """As torchaudio 2.11.0, which does not import beside torch for CUDA 13.2, on a CPU neither."""
    known = facts(needs_cuda("audio", "2.11.0", "13.0"), device=device)
    assert known.explain_unfit(locked("audio", "2.11.0"), [build("2.14.1", "13.0")]) is None
    said = "audio 2.11.0 needs CUDA 13.0; torch has CUDA 13.2"
    assert known.explain_unfit(locked("audio", "2.11.0"), [build("2.15.0", "13.2")]) == said


def test_an_exact_abi_serves_one_framework_and_a_stable_one_serves_later_ones():
    exact = facts(row("audio", "2.11.0", abi="exact", built_for="torch==2.11"))
    stable = facts(row("audio", "2.11.0", abi="stable", built_for="torch>=2.11"))
    assert (
        exact.explain_unfit(locked("audio", "2.11.0"), [build("2.15.0")])
        == "audio 2.11.0 is compiled for torch==2.11"
    )
    assert stable.explain_unfit(locked("audio", "2.11.0"), [build("2.15.0")]) is None


# --- in an answer -------------------------------------------------------------------------------------


NEWEST = (build("2.15.0"),)


def conflicts(known, *packages, required_by=None, builds=NEWEST):
    by = {p.name: () for p in packages} | (required_by or {})
    answer = Answer(packages=packages, annotations=lambda: ({}, by))
    return [c.sentence for c in known.conflicts(builds, answer)]


def test_a_named_package_that_does_not_fit_is_a_conflict():
    known = facts(needs_cuda("codec", "1.0", "12"), named=["codec"])
    assert conflicts(known, locked("codec", "1.0")) == ["codec 1.0 needs libcudart.so.12; torch has CUDA 13"]
    assert conflicts(known, locked("codec", "1.0"), builds=[build("2.10.0", "12.8")]) == []


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_an_unnamed_package_is_judged_too_and_who_brings_it_is_named(device):
    """On the CPU as well: the import compares the releases of CUDA, or fails for want of a symbol."""
    known = facts(needs_cuda("codec", "1.0", "12"), named=["media"], device=device)
    found = conflicts(known, locked("media", "3"), locked("codec", "1.0"), required_by={"codec": ("media",)})
    assert len(found) == 1
    assert re.fullmatch(r"media brings codec 1\.0, .*libcudart\.so\.12; .*CUDA 13", found[0])


def test_a_row_of_the_series_is_silent_where_the_metadata_bounds_a_framework():
    exact = row("codec", "1.0.0", abi="exact", built_for="torch==2.11", built_by="document")
    silent = facts(exact, named=["codec"])
    assert conflicts(silent, locked("codec", "1.0.1")) == ["codec 1.0.0 is compiled for torch==2.11"]
    stating = facts(exact, named=["codec"], requires=["torch==2.15.0"])
    assert conflicts(stating, locked("codec", "1.0.1")) == []
    assert conflicts(stating, locked("codec", "1.0.0")), "its own row counts whatever it states"


def test_a_row_measured_on_this_machine_counts_for_an_unnamed_package_whatever_it_states():
    exact = row("codec", "1.0", abi="exact", built_for="torch==2.11")
    known = facts(named=["media"], requires=["torch>=2"], measured={"a" * 64: (exact,)})
    packages = locked("media", "3"), locked("codec", "1.0", "a" * 64)
    found = conflicts(known, *packages, required_by={"codec": ("media",)})
    assert len(found) == 1 and re.fullmatch(r"media brings codec 1\.0, .*compiled for torch==2\.11", found[0])


def test_a_companion_without_a_row_goes_with_the_build_that_names_it():
    old = build("2.5.1", companions=("audio==2.5.1",))
    known = facts(named=["audio"], builds=[build("2.15.0"), old])
    assert conflicts(known, locked("audio", "2.5.1")) == ["audio 2.5.1 is compiled for torch 2.5.1"]
    assert conflicts(known, locked("audio", "2.5.1"), builds=[old]) == []


def test_kernels_that_no_release_has_are_a_note_and_no_conflict():
    rows = [row("quants", v, cuda="13", cuda_by="needed", kernels=("10.0",)) for v in ("2.0", "1.0")]
    known = facts(*rows, named=["quants"])
    assert conflicts(known, locked("quants", "2.0")) == []
    (note,) = known.kernel_notes([locked("quants", "2.0")], [build("2.15.0")])
    assert re.match(r"quants 2\.0 .*kernels for H100 \(9\.0\); .*10\.0; no other release", note)
    served = facts(
        *rows[:1], row("quants", "1.0", cuda="13", cuda_by="needed", kernels=("9.0",)), named=["quants"]
    )
    assert conflicts(served, locked("quants", "2.0")), "another release has them"


def test_stated_bounds_are_read_without_those_of_extras():
    found = stated_bounds(
        ["torch>=2.4", "Torch<3", "jax>=1; extra == 'jax'", "numpy", "not a requirement!"],
        "linux-x86_64", "3.11",
    )  # fmt: skip
    assert found == {"torch": ">=2.4,<3", "numpy": ""}


def test_bounds_of_another_platform_or_python_do_not_count():
    stated = ["torch<2.3; sys_platform == 'darwin'", "torch>=2.1; sys_platform != 'darwin'"]
    stated.append("jax<0.5; python_version < '3.11'")
    assert stated_bounds(stated, "linux-x86_64", "3.11") == {"torch": ">=2.1"}
    assert stated_bounds(stated, "linux-x86_64", "3.10") == {"torch": ">=2.1", "jax": "<0.5"}
