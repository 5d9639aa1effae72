"""Extras that a satellite needs for its CUDA libraries, and which of them are missing."""

from known import KNOWN
from rows import rows

from provision.model import Profiles, Satellite
from provision.resolve.satellites import SatelliteRows, group_needs, missing_extras

LINUX = "linux-x86_64"


def row(version, cuda="13", extras=("cuda", "cudnn"), package="sat", platform=LINUX):
    return Satellite(
        package=package,
        version=version,
        platform=platform,
        form="wheel",
        cuda=cuda,
        extras=extras,
    )


MADE = (
    row("3.0.1"), row("2.1.0"), row("2.0.4", extras=()), row("1.9.2", cuda="12"), row("1.8.0", cuda="12", extras=()),
    row("4.0.0", platform="linux-aarch64"), row("5.0", package="other", extras=()),
)  # fmt: skip


def missing(*texts, cuda="13", constraints=(), rows=MADE):
    ((name, needs),) = group_needs(texts, constraints).items()
    return missing_extras(name, needs, SatelliteRows(Profiles(satellites=tuple(rows)), LINUX), cuda)


@rows(
    ("texts", "cuda", "extras"),
    [
        (["sat"], "13", ("cuda", "cudnn")),
        (["Sat>=2"], "13", ("cuda", "cudnn")),
        (["sat[cuda]"], "13", ("cudnn",)),
        (["sat[cuda]", "sat[cudnn]"], "13", ()),
        (["sat==2.1.7"], "13", ("cuda", "cudnn")),  # of the series of 2.1.0
        (["sat==2.0.4"], "13", ()),
        (["sat==2.0.1"], "13", ()),
        (["sat<2"], "12", ("cuda", "cudnn")),
        (["sat<1.9"], "12", ()),
        (["sat<2"], "13", ()),  # the newest within the bounds is for CUDA 12
        (["sat"], "12", ()),  # 3.0.1 is for CUDA 13
        (["sat"], None, ()),
        (["sat==7"], "13", ()),
        (["other"], "13", ()),
        (["unknown"], "13", ()),
    ],
)
def test_the_newest_release_within_the_bounds_decides(texts, cuda, extras):
    assert missing(*texts, cuda=cuda) == extras


def test_constraints_bound_and_addresses_are_left_alone():
    assert missing("sat", constraints=["sat<2"], cuda="12") == ("cuda", "cudnn")
    assert missing("sat", constraints=["sat<2"], cuda="13") == ()
    assert group_needs(["sat @ https://host/sat-3.0-py3-none-any.whl"]) == {}


@rows(
    ("text", "cuda", "extras"),
    [
        ("onnxruntime-gpu", "13", ("cuda", "cudnn")),
        ("onnxruntime-gpu<1.27", "12", ("cuda", "cudnn")),
        ("onnxruntime-gpu==1.27.0", "13", ()),  # its extra names a placeholder
        ("onnxruntime-gpu==1.20.1", "12", ()),
        ("cupy-cuda13x", "13", ("ctk",)),
        ("cupy-cuda12x<14", "12", ()),
        ("cupy-cuda12x", "12", ("ctk",)),
        ("bitsandbytes", "13", ()),
    ],
)
def test_the_shipped_rows_name_the_needed_extras(text, cuda, extras):
    assert missing(text, cuda=cuda, rows=KNOWN.satellites) == extras
