"""Which Pythons a package has wheels for: on the index that alone has it, else on all that are configured."""

import pytest
from loopback import Index, serving
from packaging.requirements import Requirement

from provision.model import PackageSources, Plan, Target
from provision.wheels.pythons_with_wheels import find_pythons_with_wheel

TARGET = Target(platform="linux-x86_64", glibc="2.35", driver="580.95.05", driver_os="linux", gpus=())
PLAN = Plan(
    builds=(), python="3.13", platform="linux-x86_64", manager="venv", device="cuda", target=TARGET
)  # fmt: skip
MINORS = ("3.13", "3.12", "3.11")


def wheel(version, python):
    return f"special-{version}-cp3{python}-cp3{python}-manylinux_2_17_x86_64.whl"


@pytest.fixture
def indexes(monkeypatch):
    """The default index, with wheels for 3.12, and another one, with wheels for 3.11 and of an older release."""
    for name in ("PIP_EXTRA_INDEX_URL", "UV_INDEX", "UV_EXTRA_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("UV_NO_CONFIG", "1")
    with serving(Index()) as default, serving(Index()) as own:
        default.wheels["special"] = {wheel("2.0", 12): b"wheel"}
        own.wheels["special"] = {wheel("2.0", 11): b"wheel", wheel("1.0", 13): b"wheel"}
        yield default, own


def found(tmp_path, indexes, text="special>=2", *, extra=False, index=None):
    default, own = indexes
    sources = PackageSources(
        default=default.url, extra=(own.url,) if extra else (), cache_dir=str(tmp_path / "cache")
    )
    return find_pythons_with_wheel(Requirement(text), PLAN, sources, MINORS, index=index)


def test_a_package_that_one_index_alone_has_is_asked_of_that_index(tmp_path, indexes):
    default, own = indexes
    assert found(tmp_path, indexes, index=own.url) == ("3.11",)
    assert not default.requests, "the name is not shown to another index"
    assert found(tmp_path, indexes, "special", index=own.url) == ("3.13", "3.11")


def test_the_default_index_and_the_extra_ones_are_asked_together(tmp_path, indexes):
    assert found(tmp_path, indexes) == ("3.12",)
    assert found(tmp_path, indexes, extra=True) == ("3.12", "3.11")
