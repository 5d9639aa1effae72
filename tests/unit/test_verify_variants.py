"""Verify compares the variants of installed wheels with the driver and the GPUs."""
# ruff: noqa: F811  # fixtures are imported by their names

import pytest
from variants import TRIAL, nvidia, table
from verify_stub import cudnn, env, judge, pristine, record, stage  # noqa: F401


@pytest.fixture
def installed(cudnn):
    """Install a package whose wheel was a variant."""
    site = cudnn.parents[2]

    def install(name, text):
        record(site, name, "1.0", [])
        (site / f"{name}-1.0.dist-info/variant.json").write_text(text)

    return install


@pytest.mark.parametrize(
    ("label", "properties", "told"),
    [
        ("cu130", TRIAL["cu130"], None),
        ("cu126", TRIAL["cu126"], None),
        ("cu126", nvidia("12.6", "70_real", "80_virtual"), None),
        ("cu126", nvidia("12.6", "70_real", "100_real"), "has no kernels for NVIDIA H200 (9.0); built for 7.0 10.0"),
        ("cu140", nvidia("14.0", "90_real"), "is for CUDA 14.0; the driver supports CUDA 13.0"),
        ("null", {}, "is the build without CUDA of a package that has variants for GPUs"),
        ("v3", {"x86_64": {"level": ["v3"]}}, "is the build without CUDA of a package that has variants for GPUs"),
    ],
)  # fmt: skip
def test_a_variant_for_other_gpus_is_a_warning(judge, installed, label, properties, told):
    installed("demo", table({label: properties}))
    found = stage(judge(), "variants")
    if told is None:
        assert (found.status, found.detail) == ("pass", f"for the GPUs of this machine: demo 1.0 {label}")
    else:
        assert (found.status, found.detail) == ("warn", f"demo 1.0 {label} {told}")


def test_properties_that_cannot_be_read_are_named(judge, installed):
    installed("demo", table({"cu130": TRIAL["cu130"]}))
    installed("other", "{}")
    found = stage(judge(), "variants")
    assert (found.status, found.detail) == ("warn", "the properties of other 1.0 cannot be read")


def test_an_environment_without_variants_has_no_such_stage(judge):
    assert "variants" not in [s.stage for s in judge().stages]
