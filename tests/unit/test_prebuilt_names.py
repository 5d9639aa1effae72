"""The rules of file names in profiles/indexes.yaml, with names from public texts (tests/data/wheel_file_names.txt)."""

import functools
import re
from collections import Counter
from pathlib import Path
from urllib.parse import unquote

import pytest
from rows import rows

from provision import profiles
from provision.lock.pages import find_cxx11, find_glibc, read_name, serves
from provision.model import Build, BuiltFor, format_label
from provision.profiles.tables import check_table, read_file
from provision.resolve.satellites import SatelliteRows

DATA = Path(__file__).parents[1] / "data" / "wheel_file_names.txt"
LINES = DATA.read_text(encoding="utf-8").splitlines()
NAMES = [line for line in LINES if line and not line.startswith("#")]
PACKAGES = "flash-attn mamba-ssm causal-conv1d torch-scatter torch-sparse torch-cluster torch-spline-conv pyg-lib natten vllm"


@functools.cache
def known():
    return profiles.load()


@functools.cache
def page_of(package):
    return next(p for p in known().pages if package in p.packages)


def read(file):
    return read_name(page_of(file.split("-")[0].replace("_", "-")), file)


def torch(version, cuda="12.8", platform="linux-x86_64"):
    return Build(
        framework="torch", version=version, cuda=cuda, platform=platform, index="pypi", python=("3.12",)
    )


def test_each_package_has_one_page_with_a_rule_a_source_and_a_date():
    assert Counter(p for page in known().pages for p in page.packages) == Counter(PACKAGES.split())
    tables, problems = read_file(profiles.directory() / "indexes.yaml")
    table = next(t for t in tables if t.head["table"] == "pages")
    assert not problems
    assert all(row["source"].startswith("https://") and row["read"] and row["local"] for row in table.rows)


def test_the_listed_wheels_are_files_of_a_page_for_a_measured_release():
    for row in known().listed_wheels:
        (page,) = [p for p in known().pages if row.package in p.packages]
        for release in row.releases:
            for platform in row.platform:
                url = unquote(row.url.format(release=release, machine=platform.partition("-")[2]))
                assert read_name(page, url.rpartition("/")[2]) == (
                    release,
                    BuiltFor(framework="torch", minor="", cuda="12"),
                )
                rows = SatelliteRows(known(), platform).rows(row.package, release)
                assert [r.built_for for r in rows] and all(r.built_for for r in rows), (release, platform)


def test_there_are_more_than_300_names_of_all_packages():
    assert len(NAMES) == len(set(NAMES)) > 300
    found = Counter(name.split("-")[0].replace("_", "-") for name in NAMES)
    assert found.keys() == set(PACKAGES.split()), found


def test_the_rules_read_every_name_but_those_for_macos():
    unread = [name for name in NAMES if read(name) is None]
    assert unread == [name for name in NAMES if "macosx" in name] and 0 < len(unread) < 10


def test_what_a_rule_reads_is_what_the_name_says():
    """The parts by another route: a pattern for each of the two forms, over the whole name."""
    assets = re.compile(r"\w+-(.+)\+cu(\d\d)\d?torch(\d+\.\d+)cxx11abi(TRUE|FALSE)-cp\d+-cp\d+m?-\w+\.whl")
    builds = re.compile(r"\w+-(.+)\+(?:pt(\d)(\d+)|torch(\d)(\d+)0)(cpu|cu\d+)-cp\d+-cp\d+-\w+\.whl")
    plain = re.compile(r"vllm-(.+)\+cu(\d\d)\d-cp38-abi3-\w+\.whl")
    for name in NAMES:
        if m := assets.fullmatch(name):
            built = BuiltFor(framework="torch", minor=m[3], cuda=m[2], cxx11="1" if m[4] == "TRUE" else "0")
        elif m := builds.fullmatch(name):
            built = BuiltFor(framework="torch", minor=f"{m[2] or m[4]}.{m[3] or m[5]}", label=m[6])
        elif m := plain.fullmatch(name):
            built = BuiltFor(framework="torch", minor="", cuda=m[2])
        else:
            assert "macosx" in name
            continue
        assert read(name) == (m[1], built), name


@rows(
    ("file", "build", "expected"),
    [
        ("flash_attn-2.8.3+cu12torch2.8cxx11abiTRUE-cp312-cp312-linux_x86_64.whl", torch("2.8.0"), True),
        ("flash_attn-2.8.3+cu12torch2.8cxx11abiTRUE-cp312-cp312-linux_x86_64.whl", torch("2.8.1"), True),
        ("flash_attn-2.8.3+cu12torch2.8cxx11abiFALSE-cp312-cp312-linux_x86_64.whl", torch("2.8.0"), False),
        ("flash_attn-2.8.3+cu12torch2.8cxx11abiTRUE-cp312-cp312-linux_x86_64.whl", torch("2.9.0"), False),
        (
            "flash_attn-2.8.3+cu12torch2.8cxx11abiTRUE-cp312-cp312-linux_x86_64.whl",
            torch("2.8.0", "13.0"),
            False,
        ),
        (
            "flash_attn-2.8.3+cu12torch2.8cxx11abiTRUE-cp312-cp312-linux_x86_64.whl",
            torch("2.8.0", None),
            False,
        ),
        ("flash_attn-2.6.3+cu123torch2.4cxx11abiFALSE-cp311-cp311-linux_x86_64.whl", torch("2.4.1"), True),
        (
            "flash_attn-2.7.4.post1+cu12torch2.6cxx11abiFALSE-cp311-cp311-linux_x86_64.whl",
            torch("2.6.0", "12.4"),
            True,
        ),
        (
            "flash_attn-2.7.4.post1+cu12torch2.6cxx11abiFALSE-cp311-cp311-linux_x86_64.whl",
            torch("2.6.0", "12.6"),
            False,
        ),
        (
            "mamba_ssm-2.3.0+cu13torch2.10cxx11abiTRUE-cp312-cp312-linux_x86_64.whl",
            torch("2.10.0", "13.0"),
            True,
        ),
        (
            "mamba_ssm-2.3.0+cu13torch25.10cxx11abiTRUE-cp312-cp312-linux_x86_64.whl",
            torch("2.10.0", "13.0"),
            False,
        ),
        ("torch_scatter-2.1.2+pt28cu128-cp312-cp312-linux_x86_64.whl", torch("2.8.0"), True),
        ("torch_scatter-2.1.2+pt28cu126-cp312-cp312-linux_x86_64.whl", torch("2.8.0"), False),
        ("torch_scatter-2.1.2+pt28cpu-cp312-cp312-linux_x86_64.whl", torch("2.8.0", None), True),
        (
            "torch_scatter-2.1.0+pt113cpu-cp38-cp38-linux_x86_64.whl",
            torch("1.13.1", None),
            True,
        ),
        ("pyg_lib-0.6.0+pt212cu130-cp312-cp312-linux_x86_64.whl", torch("2.12.1", "13.0"), True),
    ],
)
def test_which_builds_a_wheel_serves(file, build, expected):
    _, built_for = read(file)
    assert serves(built_for, build, find_cxx11(known().abis, build, build.platform)) is expected


@rows(
    ("built_for", "expected"),
    [
        ({"minor": "2.8"}, True),
        ({"framework": "jax", "minor": "2.8"}, False),
        ({"minor": "", "bounds": ">=2.6,<2.9"}, True),
        ({"minor": "", "bounds": ">=2.9"}, False),
        ({"minor": "", "bounds": None}, False),
    ],
)
def test_a_wheel_of_bounds_serves_the_builds_within_them(built_for, expected):
    assert serves(BuiltFor(**{"framework": "torch", **built_for}), torch("2.8.0"), None) is expected


def test_the_string_abi_of_a_build():
    asked = [("2.8.0", "12.8"), ("2.6.0", "12.4"), ("2.6.0", "12.6"), ("2.5.1", "12.4")]
    assert [find_cxx11(known().abis, torch(*a), "linux-x86_64") for a in asked] == ["1", "0", "1", "0"]
    assert find_cxx11(known().abis, torch("2.6.0", None), "linux-aarch64") == "1"


@rows(
    "file",
    [
        "flash_attn-2.8.3-cp312-cp312-linux_x86_64.whl",
        "flash_attn-2.8.3+cu12torch2.8-cp312-cp312-linux_x86_64.whl",
        "flash_attn-2.8.3+rocm6torch2.8cxx11abiTRUE-cp312-cp312-linux_x86_64.whl",
        "other-2.8.3+cu12torch2.8cxx11abiTRUE-cp312-cp312-linux_x86_64.whl",
        "flash_attn-2.8.3.tar.gz",
        "..whl",
    ],
)
def test_another_form_is_no_name_of_the_page(file):
    assert read_name(page_of("flash-attn"), file) is None


def test_the_glibc_of_a_release():
    asked = [("flash-attn", "2.8.3.post2"), ("flash-attn", "2.7.4.post1"), ("mamba-ssm", "2.2.5")]
    found = [find_glibc(known().wheel_glibc, *a) for a in (*asked, ("torch-scatter", "2.1.2"))]
    assert found == ["2.32", None, "2.32", None]


def test_the_label_of_a_build():
    assert [format_label(c) for c in ("12.8", "13.0", None)] == ["cu128", "cu130", "cpu"]


def test_the_row_of_the_how_to_page_replaces_one(tmp_path):
    text = (Path(__file__).parents[2] / "docs/how-to/flash-attn.md").read_text(encoding="utf-8")
    (tmp_path / "indexes.yaml").write_text(text.partition("```text\n")[2].partition("```")[0])
    found = [p for p in profiles.load((tmp_path,)).pages if "flash-attn" in p.packages]
    assert [p.url for p in found] == ["https://mirror.example/flash-attn/v{release}.html"]
    assert found[0].local == page_of("flash-attn").local


@pytest.mark.parametrize(
    ("url", "local", "mistake"),
    [
        (
            "https://host/v{tag}.html",
            "pt{digits}",
            "url: {tag} is not one of {version}, {label} and {release}",
        ),
        ("https://host/v{release}-{label}.html", "pt{digits}", "not of both"),
        ("https://host/v{release}.html", None, "local: missing"),
        (None, "pt{digits}", "url: missing"),
        ("https://host/v{release.html", "pt{digits}", "url: "),
        ("https://host/v{release}.html", "abi{abi}", "local: expected {minor} or {digits}"),
        ("https://host/v{release}.html", "cu{cuda}torch{torch}", "is not a local"),
        ("https://name@host/v{release}.html", "pt{digits}", "without user and password"),
    ],
)
def test_a_mistake_in_a_rule_is_found(tmp_path, url, local, mistake):
    keys = {"packages": "flash-attn", "url": url, "local": local}
    row = ", ".join(f'{key}: "{text}"' for key, text in keys.items() if text)
    head = '- table: "pages"\n  framework: "torch"\n  source: "x"\n  read: "2026-11-23"\n  rows:\n'
    (tmp_path / "indexes.yaml").write_text(f"{head}  - {{{row}}}\n")
    tables, problems = read_file(tmp_path / "indexes.yaml")
    problems += [p for t in tables for p in check_table("indexes.yaml", t)]
    assert any(mistake in p for p in problems), problems
