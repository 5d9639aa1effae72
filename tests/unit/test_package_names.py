"""Names of packages: one normal form, one list of other names, one list of the stack."""

from __future__ import annotations

import re
from pathlib import Path

from packaging.utils import canonicalize_name
from rows import rows

from provision import profiles
from provision.model import (
    FRAMEWORK_ALIASES,
    PROJECT_FRAMEWORKS,
    TORCH_COMPANIONS,
    WHEEL_NAMES,
    is_build_package,
    is_stack_package,
    normalize_name,
)

PROVISION = Path(__file__).parents[2] / "provision"


@rows("name", ["Torch", "nvidia_cudnn.cu12", "a--b__c..d", "ruamel.yaml", "PyYAML", "jax-cuda12-plugin", ""])
def test_the_normal_form_is_that_of_packaging(name: str) -> None:
    assert normalize_name(name) == canonicalize_name(name)


def test_no_other_module_has_its_own_normal_form_or_list_of_other_names() -> None:
    own_form = re.compile(r"""re\.sub\(r?["']\[[-_.\\]+\]\+["'], ["']-["']""")
    own_list = re.compile(r"""["']pytorch["']: ["']torch["']""")
    files = [p for p in PROVISION.rglob("*.py") if p.name != "words.py" and "probes" not in p.parts]
    assert len(files) > 100
    assert [str(p) for p in files if own_form.search(text := p.read_text()) or own_list.search(text)] == []


def test_other_names_mean_frameworks() -> None:
    assert set(FRAMEWORK_ALIASES.values()) == {"torch", "tensorflow", "jax"}
    assert not FRAMEWORK_ALIASES.keys() & set(PROJECT_FRAMEWORKS)


def test_wheel_names_agree_with_the_profiles() -> None:
    rows = {row.conda: row.package for row in profiles.load().conda_names}
    assert {conda: rows[conda] for conda in WHEEL_NAMES} == WHEEL_NAMES


def test_the_stack_covers_frameworks_companions_and_what_builds_bring() -> None:
    brought = ["nvidia-cudnn-cu12", "nvidia-cublas", "triton", "pytorch-triton", "jax-cuda13-plugin"]
    names = [*PROJECT_FRAMEWORKS, *FRAMEWORK_ALIASES, *TORCH_COMPANIONS, *brought]
    assert [name for name in names if not is_stack_package(name)] == []
    assert not is_stack_package("numpy")
    assert not is_stack_package("torch-geometric")


def test_only_packages_of_one_build_are_build_packages() -> None:
    assert is_build_package("nvidia-cudnn-cu12")
    assert not is_build_package("nvidia-dali")
    assert not is_build_package("torchvision")
