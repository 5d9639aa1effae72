"""resolve for several frameworks in one environment, companions, and wheels at hand."""

import re

from known import KNOWN
from packaging.requirements import Requirement
from resolve_questions import R580, V100, ask
from rows import rows

from provision.model import (
    AvailableWheel,
    AvailableWheels,
    Build,
    CudnnRelease,
    FrameworkRequest,
    Profiles,
    Request,
    Target,
    TargetGpu,
    VersionBound,
)
from provision.resolve.available import serving_releases
from provision.resolve.choice import choose_compatible, find_objection
from provision.resolve.objections import objections
from provision.resolve.question import Question

# --- several frameworks -------------------------------------------------------------------------


@rows(
    ("frameworks", "index", "versions"),
    [
        (("torch", "jax"), "pypi", ("2.15.0", "0.12.0.1")),
        (("torch", "tensorflow"), "pypi", ("2.10.0", "2.20.0")),
        (("tensorflow", "torch"), "pypi", ("2.20.0", "2.10.0")),
        (("torch", "jax", "tensorflow"), "pypi", ("2.10.0", "0.12.0.1", "2.20.0")),
        (("jax", "tensorflow"), "auto", ("0.12.0.1", "2.21.0")),
    ],
)
@rows("gpu", ["H200", "V100"])
def test_frameworks_together_share_one_cuda_and_one_cudnn(frameworks, index, versions, gpu):
    plan = ask(*frameworks, **R580, gpus=[gpu], index=index)
    if gpu == "H200":
        assert tuple(b.version for b in plan.builds) == versions
    assert tuple(b.framework for b in plan.builds) == frameworks
    assert len({b.cuda.split(".")[0] for b in plan.builds}) == 1
    assert {b.cudnn for b in plan.builds} == {plan.cudnn}
    needs = [Requirement(p) for b in plan.builds for p in b.requirements]
    exact = {n.name: s.version for n in needs for s in n.specifier if s.operator in ("==", "===")}
    for need in needs:
        if need.name in exact and "*" not in exact[need.name]:
            assert exact[need.name].split("+")[0] in need.specifier, need


def test_frameworks_that_clash_are_proposed_in_two_environments_with_the_reason():
    plan = ask("torch==2.10.0", "tensorflow==2.21.0", **R580, gpus=["H200"], index="pypi")
    assert not plan.builds
    clash = "tensorflow 2.21.0 needs nvidia-nccl-cu12<3.0,>=2.27.7; torch 2.10.0 needs ==2.27.5"
    assert plan.hint.startswith(f"create two environments ({clash}): ")
    assert re.search("--framework 'torch==2.10.0' .*--framework 'tensorflow==2.21.0'", plan.hint)
    told = [x for r in plan.rejected for x in r.reasons if x.code == "library_conflict"]
    assert any("nvidia-nccl-cu12" in x.text for x in told)
    assert ask("torch==2.10.0", **R580, gpus=["H200"], index="pypi").builds
    assert ask("tensorflow==2.21.0", **R580, gpus=["H200"], index="pypi").builds


def test_a_release_of_torch_has_one_nccl_on_both_indexes():
    """torch 2.10.0+cu126 pins the NCCL that its build on the default index pins: no way around a clash."""
    plan = ask("tensorflow==2.21.0", "torch==2.10.0", **R580, gpus=["H200"], index="auto")
    assert not plan.builds and "nvidia-nccl-cu12" in plan.hint
    for version in ("2.7.1", "2.8.0", "2.9.1", "2.10.0"):
        plan = ask(f"torch=={version}", "tensorflow==2.20.0", "jax", **R580, gpus=["H200"], index="auto")
        assert [b.version for b in plan.builds][:2] == [version, "2.20.0"]


def test_a_newer_build_passed_by_for_the_other_framework_says_what_clashes():
    plan = ask("torch", "tensorflow", **R580, gpus=["H200"], index="pypi")
    why = {(r.framework, r.version): r.reasons[-1] for r in plan.rejected if not r.cuda or r.index == "pypi"}
    assert why["torch", "2.15.0"].code == "cuda_conflict"
    assert why["tensorflow", "2.21.0"].code == "library_conflict"
    assert "nvidia-nccl-cu12" in why["tensorflow", "2.21.0"].text


def test_companions_come_in_the_version_that_matches():
    plan = ask("torch==2.10.0", **R580, gpus=["H200"], packages=("torchvision", "torchaudio", "numpy>=2"))
    assert plan.packages == ("torchvision==0.25.0", "torchaudio==2.10.0", "numpy>=2")
    plan = ask("torch", **R580, gpus=["H200"], packages=("torchvision", "torchaudio"))
    assert plan.packages == ("torchvision==0.29.2",)
    assert any("torchaudio" in n and "torch==2.11.0" in n for n in plan.notes)


# --- wheels at hand -------------------------------------------------------------------------------


def wheels(build, python="cp312"):
    """A wheel for each thing that a build requires, and the build's own."""
    own = f"{build.version}+{build.local}" if build.local else build.version
    have = [
        AvailableWheel(
            name=build.framework,
            version=own,
            url="file:own",
            tags=(f"{python}-{python}-manylinux_2_28_x86_64",),
        )
    ]
    for need in map(Requirement, build.requires):
        text = next(
            (s.version.removesuffix(".*") for s in need.specifier if s.operator in ("==", "~=", ">=")), "1"
        )
        have.append(AvailableWheel(name=need.name, version=text, url="file:x", tags=("py3-none-any",)))
    return have


def build_of(version, framework="torch", cuda=None):
    return next(
        b for b in KNOWN.builds
        if b.framework == framework and b.version == version and b.index == "pypi" and b.platform == "linux-x86_64"
        and (b.cuda or "").startswith(cuda or "")
    )  # fmt: skip


def test_offline_only_the_wheels_are_candidates():
    machine = R580 | {"gpus": ["H200"]}
    available = AvailableWheels(wheels=tuple(wheels(build_of("2.9.1"))), only_wheels=True)
    plan = ask("torch", **machine, available=available)
    assert [(b.version, b.index) for b in plan.builds] == [("2.9.1", "find-links")]
    refused = {r.version: {x.code for x in r.reasons} for r in plan.rejected}
    assert "not_available" in refused["2.15.0"]


@rows("lacking", ["nvidia-cudnn-cu12", "nvidia-nccl-cu12", "triton", "torch"])
def test_offline_a_missing_wheel_is_named(lacking):
    have = tuple(w for w in wheels(build_of("2.9.1")) if w.name != lacking)
    plan = ask(
        "torch==2.9.1", **R580, gpus=["H200"], available=AvailableWheels(wheels=have, only_wheels=True)
    )
    assert not plan.builds
    assert plan.hint.startswith("run without --offline")
    reasons = [
        x for r in plan.rejected if r.version == "2.9.1" for x in r.reasons if x.code == "not_available"
    ]
    assert reasons and (lacking in reasons[0].text or "a wheel of it" in reasons[0].text)


def test_offline_wheels_of_another_python_do_not_serve():
    available = AvailableWheels(wheels=tuple(wheels(build_of("2.9.1"), "cp311")), only_wheels=True)
    assert not ask("torch", **R580, gpus=["H200"], available=available).builds
    assert ask("torch", **R580, gpus=["H200"], available=available, python="3.11").builds


def test_an_index_that_does_not_answer_is_left_out():
    plan = ask("torch", **V100, available=AvailableWheels(unreachable=("pytorch",)))
    assert [(b.version, b.index) for b in plan.builds] == [("2.10.0", "pypi")]


# --- the rules by builds that are made up ---------------------------------------------------------

A100 = Target(
    platform="linux-x86_64", glibc="2.35", driver="580.95.05", driver_os="linux", gpus=(TargetGpu(capability="8.0"),)
)  # fmt: skip


def build(framework, version="1.0", *pythons, cuda="12.8", **more):
    return Build(
        framework=framework, version=version, cuda=cuda, platform="linux-x86_64", index="pypi",
        python=pythons or ("3.12",), **{"kernels": ("8.0",), **more},
    )  # fmt: skip


def asked(known=KNOWN, available=None, **request):
    wanted = Request(frameworks=(FrameworkRequest(name="torch"),), device="cuda", **request)
    return Question(wanted, A100, known, available or AvailableWheels())


def test_each_two_of_three_builds_may_share_a_python_that_all_three_do_not():
    torch, jax = build("torch", "1.0", "3.10", "3.11"), build("jax", "1.0", "3.11", "3.12")
    tensorflow = build("tensorflow", "1.0", "3.10", "3.12")
    older = build("tensorflow", "0.9", "3.11")
    question = asked()
    assert not any(
        find_objection(question, [a], b) for a, b in ((torch, jax), (torch, tensorflow), (jax, tensorflow))
    )
    assert choose_compatible(question, [], [[torch], [jax], [tensorflow]]) == ([], None)
    assert choose_compatible(question, [], [[torch], [jax], [tensorflow, older]]) == (
        [torch, jax, older],
        "3.11",
    )


def test_builds_whose_bounds_share_no_cudnn_conflict():
    known = Profiles(
        cudnn=tuple(
            CudnnRelease(
                package="nvidia-cudnn-cu12", version=v, cuda="12", platform="linux-x86_64", kernels=("8.0",)
            )
            for v in ("9.10.0.1", "9.12.0.1")
        )
    )
    old, new = build("torch", cudnn="<9.11"), build("jax", cudnn=">=9.11")
    question = asked(known)
    assert (serving_releases(question, old), serving_releases(question, build("jax"))) == (
        {"9.10.0.1"},
        frozenset(),
    )
    refused = find_objection(question, [old], new)
    assert refused.code == "library_conflict"
    assert "requires cuDNN >=9.11, and torch 1.0 requires <9.11" in refused.text
    assert find_objection(question, [old], build("jax", cudnn="<9.12")) is None


@rows(
    ("change", "available", "code", "text"),
    [
        ({}, (), None, ""),
        ({"cuda": "99.1"}, (), "driver_too_old", "no driver is known to run CUDA 99.1"),
        ({"kernels": ()}, (), "gpu_too_new", "its kernels are unknown"),
        ({"local": "cu128"}, ("cp312-cp312-win_amd64",), "not_available", "does not fit this platform"),
        ({"local": "cu128"}, ("cp312-cp312-manylinux_2_28_x86_64",), None, ""),
    ],
)
def test_a_build_of_which_a_fact_is_missing_is_rejected(change, available, code, text):
    wheel = AvailableWheel(name="torch", version="1.0+cu128", url="file:///w/torch.whl", tags=available)
    one = build("torch", **{"requires": (), **change})._replace(index="find-links" if available else "pypi")
    question = asked(available=AvailableWheels(wheels=(wheel,) if available else ()))
    found = [r for r in objections(question, question.request.frameworks[0], one) if r.code != "cudnn"]
    assert [r.code for r in found] == ([code] if code else [])
    assert all(text in r.text for r in found)


def test_a_bound_for_some_pythons_leaves_the_others_to_a_build():
    bound = VersionBound(name="torch", specifier="<2", origin="a.txt line 1", pythons=("3.12",))
    question = asked(bounds=(bound,))
    old, new = build("torch", "1.0", "3.11", "3.12"), build("torch", "2.0", "3.11", "3.12")
    assert {*question.pythons(old)} == {"3.11", "3.12"} and question.pythons(new) == ("3.11",)


def test_without_bounds_is_the_hint_where_no_change_of_one_framework_helps():
    plan = ask("torch<1.10", "jax<0.4.20", gpus=["8.0"], **R580)
    assert not plan.builds
    assert plan.hint.startswith("use --framework torch --framework jax: without bounds")
