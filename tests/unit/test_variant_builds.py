"""Variants as builds: the recorded table of torch 2.8.0, on hosts of several kinds."""

import dataclasses
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from provision import profiles
from provision.errors import LockError, ResolveError
from provision.index.simple_api import File
from provision.index.variants import cuda_of, kernels_of, list_foreign, list_provided, parse_variants
from provision.lock import variants
from provision.lock.variants import VariantRelease, _choose_file, _read_release, _why_not
from provision.model import (
    AvailableWheels,
    FrameworkRequest,
    PackageSources,
    PlannedBuild,
    Request,
    Target,
    TargetGpu,
)
from provision.resolve.choice import sort_builds
from provision.resolve.objections import objections
from provision.resolve.question import Question
from provision.system.wheel_file import parse_wheel

TABLE = Path(__file__).resolve().parents[1] / "data" / "torch-2.8.0-variants.json"
TORCH = FrameworkRequest(name="torch")


@pytest.fixture(scope="module")
def release():
    properties = parse_variants(TABLE.read_bytes())
    names = [f"torch-2.8.0-cp313-cp313-manylinux_2_28_x86_64-{label}.whl" for label in properties]
    wheels = tuple((parse_wheel(n), File(name=n, url=f"https://host/{n}", sha256="0" * 64)) for n in names)
    return VariantRelease("torch", Version("2.8.0"), wheels, properties)


def question(driver, *gpus, platform="linux-x86_64", glibc="2.35"):
    target = Target(
        platform=platform, glibc=glibc, driver=driver, gpus=tuple(TargetGpu(capability=g) for g in gpus)
    )
    request = Request(frameworks=(TORCH,), device="cuda")
    return Question(request, target, profiles.load(), AvailableWheels())


@pytest.mark.parametrize(
    ("driver", "gpus", "label"),
    [
        ("575.57.08", ["7.5"], "cu129"),  # pip of the demonstration takes cu129 too
        ("570.86.10", ["12.0"], "cu128"),
        ("580.65.06", ["12.1"], "cu129"),  # sm_121 needs libraries of CUDA 12.9
        ("550.54.15", ["7.0"], "cu126"),
        ("580.65.06", ["7.0", "9.0"], "cu126"),
        ("570.86.10", ["6.0"], "cu126"),
        ("580.65.06", ["7.0", "12.0"], None),  # no variant has kernels for both
        ("580.65.06", ["3.7"], None),
        ("520.61.05", ["9.0"], None),
    ],
)
def test_the_recorded_table_has_a_build_for_every_gpu(release, driver, gpus, label):
    asked = question(driver, *gpus)
    builds = list(release.builds(asked, "torch"))
    assert [b.variant for b in builds] == ["00000000", "cu126", "cu128", "cu129"]
    fitting = [b.variant for b in sort_builds(asked, builds) if not objections(asked, TORCH, b)]
    assert (fitting or [None])[0] == label
    assert "00000000" not in fitting


def test_kernels_are_those_of_the_variant_that_the_row_measured(release):
    asked = question("580.65.06", "9.0")
    builds = {b.variant: b for b in release.builds(asked, "torch")}
    rows = {
        b.cuda: b
        for b in profiles.load().builds
        if (b.framework, b.version, b.platform) == ("torch", "2.8.0", "linux-x86_64")
    }
    for label in ("cu126", "cu128", "cu129"):
        build = builds[label]
        assert set(build.kernels) <= {*kernels_of(release.properties[label])}
        assert (build.requires, build.cudnn) == (rows[build.cuda].requires, rows[build.cuda].cudnn)
        assert build.python == ("3.13",)


def test_a_variant_of_another_cuda_than_the_plan_does_not_fit(release):
    asked = question("580.65.06", "9.0")
    (build,) = (b for b in release.builds(asked, "torch") if b.variant == "cu126")
    torch = PlannedBuild(framework="torch", version="2.8.0", cuda="12.8", index="pypi", requirements=())
    for wanted, cuda, why in (
        (TORCH, "12.6", None),
        (TORCH, "12.8", "is for CUDA 12.6; the plan has 12.8"),
        (None, "12.8", None),
        (None, "13.0", "is for CUDA 12.6; torch 2.8.0 for 13.0"),
    ):
        plan = SimpleNamespace(builds=(dataclasses.replace(torch, cuda=cuda),))
        assert _why_not(asked, plan, wanted, build, [build]) == why


def test_a_release_without_a_table_has_no_variants_and_a_broken_one_is_named(tmp_path):
    wheel, table = (
        File(name=n, url=f"https://host/{n}") for n in ("a-1-py3-none-any.whl", "a-1-variants.json")
    )
    pages = SimpleNamespace(http=SimpleNamespace(get=lambda _: SimpleNamespace(body=b"[]")))
    assert _read_release(pages, "https://host", "a", Version("1"), [wheel]) is None
    with pytest.raises(LockError, match=r"https://host/a-1-variants\.json cannot be read"):
        _read_release(pages, "https://host", "a", Version("1"), [wheel, table])
    with pytest.raises(LockError, match="states no sha256 of a-1-py3-none-any"):
        _choose_file(pages, wheel, Requirement("a==1"), "https://host", tmp_path)


def test_what_a_variant_needs_that_gpuenv_does_not_know_is_the_reason(tmp_path, monkeypatch):
    made = VariantRelease("demo", Version("1.0"), (), {"v3": {"x86_64": {"level": ("v3",)}}})
    monkeypatch.setattr(variants, "read_releases", lambda *_: [made])
    plan, sources = SimpleNamespace(builds=(), python="3.13"), PackageSources(default="https://host/simple")
    with pytest.raises(ResolveError) as refused:
        variants.choose_variant(
            question("580.65.06", "9.0"),
            plan,
            sources,
            "https://host/simple",
            Requirement("demo==1.0"),
            tmp_path,
        )
    assert re.match(r"no variant of demo 1\.0 fits: v3: .*x86_64 :: level :: v3", refused.value.message)


def test_other_platforms_and_old_systems_have_no_build(release):
    assert list(release.builds(question("580.65.06", "9.0", platform="linux-aarch64"))) == []
    assert list(release.builds(question("580.65.06", "9.0", glibc="2.17"))) == []


def test_properties_are_read_in_the_form_of_rows():
    found = parse_variants(
        '{"variants": {"a": {"nvidia": {"cuda_version_lower_bound": ["13", "12.8"], "sm_arch": ["100f_real", "90a_real", '
        '"120_virtual", "80_real", "x"]}, "x86_64": {"level": ["v3", "v2"]}}}}'
    )["a"]
    assert cuda_of(found) == "12.8"
    assert kernels_of(found) == ("8.0", "9.0a", "10.0f", "12.0+PTX")
    assert list_foreign(found) == ["x86_64 :: level :: v3 or v2"]
    assert cuda_of({}) is None and kernels_of({}) == ()


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"variants": []}', '{"variants": {"a": 1}}', '{"variants": {"a": {"b": []}}}']
)
def test_tables_of_another_form_are_refused(text):
    with pytest.raises(ValueError, match="no table of variants"):
        parse_variants(text)


def test_a_driver_of_another_time_has_no_properties():
    assert not [*list_provided("10.2", ["7.0"])] and not [*list_provided("16.0", ["9.0"])]
    assert "nvidia :: cuda_version_lower_bound :: 15.0" in [*list_provided("15.0", [])]
