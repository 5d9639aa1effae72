"""The one parser of wheel names, with and without the label of a variant."""

from pathlib import Path

import pytest
from packaging.utils import InvalidWheelFilename

from provision.index.simple_api import parse_project
from provision.model import LockedPackage
from provision.system.versions import meets
from provision.system.wheel_file import parse_wheel, plain_name
from provision.wheels.pylock import file_name

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("file", "parts"),
    [
        ("demo-1.0-py3-none-any.whl", ("demo", "1.0", (), None)),
        ("demo-1.0-py3-none-any-null.whl", ("demo", "1.0", (), "null")),
        ("demo-1.0-1-py3-none-any.whl", ("demo", "1.0", (1, ""), None)),
        ("demo-1.0-2b-py3-none-any-cu126.whl", ("demo", "1.0", (2, "b"), "cu126")),
        ("My_Pack-1.0+cu12-cp312-cp312-linux_x86_64-x86_64_v3.whl", ("my-pack", "1.0+cu12", (), "x86_64_v3")),
        ("torch-2.8.0-cp313-cp313t-manylinux_2_28_x86_64-cu129.whl", ("torch", "2.8.0", (), "cu129")),
        ("demo-1.0-py2.py3-none-any-1.2_3.whl", ("demo", "1.0", (), "1.2_3")),
    ],
)
def test_a_name_has_the_parts_of_pep_825(file, parts):
    wheel = parse_wheel(file)
    assert (wheel.name, str(wheel.version), wheel.build, wheel.label) == parts
    plain = parse_wheel(plain_name(file))
    assert plain == wheel._replace(label=None)
    assert plain_name(file) == (file if wheel.label is None else file.replace(f"-{wheel.label}.whl", ".whl"))


@pytest.mark.parametrize(
    "file",
    ["demo-1.0-py3-none-any-CU126.whl", "demo-1.0-py3-none-any-a-b.whl", "demo-1.0-py3-none.whl",
     "demo-1.0-py3-none-any-.whl", "demo-x-py3-none-any-cu126.whl", "demo-1.0-py3-none-any-cu126.tar.gz"],
)  # fmt: skip
def test_other_names_are_refused(file):
    with pytest.raises(InvalidWheelFilename):
        parse_wheel(file)


@pytest.mark.parametrize(
    ("version", "bounds", "within"),
    [("2.0rc1", ">=1", True), ("2", "<2", False), ("", "", True), ("git", ">=0", False), ("1", ">=x", False)],
)
def test_a_version_without_an_order_is_within_no_bounds(version, bounds, within):
    assert meets(version, bounds) == within


def test_nothing_else_parses_names_of_wheels():
    sources = [p for folder in ("provision", "scripts", "gpuenv") for p in (ROOT / folder).rglob("*.py")]
    callers = [p.name for p in sources if "parse_wheel_filename" in p.read_text()]
    assert callers == ["wheel_file.py"]


def test_a_page_lists_the_properties_of_its_variants():
    page = '<a href="demo-1.0-py3-none-any-cu126.whl#sha256=aa">x</a><a href="demo-1.0-variants.json">y</a><a href="a.json">z</a>'
    files = parse_project("https://host/demo/", page.encode())
    assert [f.name for f in files] == ["demo-1.0-py3-none-any-cu126.whl", "demo-1.0-variants.json"]


def test_a_locked_variant_has_its_plain_name():
    url = "https://host/demo-1.0-py3-none-any-cu126.whl"
    assert (
        file_name(LockedPackage(name="demo", version="1.0", url=url, sha256="0" * 64))
        == "demo-1.0-py3-none-any.whl"
    )
