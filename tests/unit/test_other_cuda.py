"""Packages of another CUDA than the builds': by name, by version, and who brings them."""

from types import SimpleNamespace

from rows import rows

from provision.lock.compatibility import Compatibility, cuda_of_part
from provision.lock.compile import Answer, parse_annotations
from provision.model import (
    AvailableWheels,
    Build,
    FrameworkRequest,
    LockedPackage,
    Profiles,
    Request,
    Satellite,
    Target,
    ToolkitRelease,
)
from provision.resolve.question import Question

TOOLKITS = (
    ToolkitRelease(version="14.0.0", parts=("cufft nvidia-cufft==13.0.1.* nvidia-nvjitlink<15,>=14",)),
    ToolkitRelease(version="13.0.3", parts=("cufft nvidia-cufft==12.0.0.61.*", "npp nvidia-npp==13.0.1.*")),
    ToolkitRelease(version="12.8.1", parts=("cufft nvidia-cufft-cu12==11.3.3.83.*",)),
)
TARGET = Target(platform="linux-x86_64", glibc="2.35", driver="580.95.05", driver_os="linux", gpus=())


def package(name, version="1.0"):
    return LockedPackage(name=name, version=version, url=f"https://host/{name}-{version}-py3-none-any.whl")


@rows(
    ("name", "version", "cuda"),
    [
        ("nvidia-cufft", "12.0.0.61", "13"),
        ("nvidia-cufft", "13.0.1.5", "14"),
        ("nvidia-cufft", "12.7.0.1", None),
        ("nvidia-npp", "13.9", "13"),
        ("nvidia-cufftx", "12.0.0.61", None),
        ("nvidia-dali", "2.0", None),
    ],
)
def test_the_version_of_a_part_states_its_cuda(name, version, cuda):
    assert cuda_of_part(package(name, version), TOOLKITS) == cuda


def strangers(required_by, *, cuda="13.0", named=("serving",), rows=(), device="cuda", **versions):
    """What does not go with torch 2.14.0 of a CUDA; `required_by` has the packages of the lock."""
    build = Build(framework="torch", version="2.14.0", cuda=cuda, platform="linux-x86_64", index="pypi",
                  python=("3.12",))  # fmt: skip
    known = Profiles(builds=(build,), satellites=tuple(rows), toolkits=TOOLKITS)
    asked = Request(frameworks=(FrameworkRequest(name="torch"),), device=device)
    packages = [package(n, versions.get(n.replace("-", "_"), "1.0")) for n in required_by]
    question = Question(asked, TARGET, known, AvailableWheels())
    facts = Compatibility(question, frozenset(named), lambda _: {}, SimpleNamespace(rows=lambda _: ()))
    answer = Answer(packages=tuple(packages), annotations=lambda: ({}, required_by))
    return [one.sentence for one in facts.conflicts((build,), answer)]


def cudas(required_by, **more):
    """The CUDA of each package that does not go with the builds."""
    return [sentence.partition("is from CUDA ")[2][:2] for sentence in strangers(required_by, **more)]


def test_a_cuda_package_without_a_major_in_its_name_is_found_too():
    lock = {"serving": (), "core": ("serving",), "nvidia-cufft": ("core",)}
    said = "serving brings nvidia-cufft 12.0.0.61, which is from CUDA 13, but torch uses CUDA 12"
    assert strangers(lock, cuda="12.8", nvidia_cufft="12.0.0.61") == [said]
    assert strangers(lock, cuda="13.2", nvidia_cufft="12.0.0.61") == []
    assert strangers(lock, cuda="12.8", nvidia_cufft="12.0.0.61", device="cpu") == []


def test_a_measured_package_that_came_along_has_its_own_sentence():
    row = Satellite(
        package="kernels", version="1.0", platform="linux-x86_64", form="wheel",
        cuda="12", cuda_by="needed", needs=("libcudart.so.12",),
    )  # fmt: skip
    found = strangers({"serving": (), "kernels": ("serving",)}, rows=[row])
    said = "serving brings kernels 1.0, and kernels 1.0 needs libcudart.so.12; torch has CUDA 13"
    assert found == [said]


def test_a_package_with_its_own_cuda_may_bring_wheels_of_it():
    row = Satellite(
        package="decoder", version="1.0", platform="linux-x86_64", form="wheel",
        cuda="12", cuda_by="name",
    )  # fmt: skip
    lock = {"serving": (), "decoder": ("serving",), "nvidia-nvjpeg2k-cu12": ("decoder",)}
    assert strangers(lock, rows=[row]) == []
    assert cudas(lock) == ["12"]


def test_another_cuda_is_accepted_only_where_the_user_named_the_package():
    lock = {"serving": (), "decoder-cuda120": ("serving",), "nvidia-nvjpeg2k-cu12": ("decoder-cuda120",)}
    assert cudas(lock) == ["12"]
    assert strangers(lock, named=("serving", "decoder-cuda120")) == []


def test_requirements_in_a_circle_are_followed_to_an_end():
    lock = {"serving": (), "nvidia-a-cu11": ("nvidia-b-cu11",), "nvidia-b-cu11": ("nvidia-a-cu11", "serving")}
    assert cudas(lock) == ["11", "11"]


def test_requirers_are_read_from_the_comments_of_the_solver():
    text = """\
certifi==2026.10.18
    # via
    #   gpuenv-plan (pyproject.toml)
    #   -r needs.in
    #   httpcore
    #   Requests
    # from https://host/simple
httpcore[http2]==1.0.9 ; python_version < "4"
    # via requests
requests @ git+https://host/requests@abc
    # via -r needs.in
"""
    assert parse_annotations(text)[1] == {
        "certifi": ("httpcore", "requests"), "httpcore": ("requests",), "requests": (),
    }  # fmt: skip
