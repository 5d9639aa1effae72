"""Wheels on pages outside of the index: chosen for the plan's build, counted by the search, locked with their hash."""

import hashlib
import re
from pathlib import Path
from urllib.parse import unquote

import pytest
from bundle_site import add_own
from environment_facts import ok
from packaging.requirements import Requirement
from project_packages import about, sdist
from wheel_pages import serving_pages

from provision.config.options import Choices
from provision.lock.builds import FittingBuilds
from provision.lock.named import read_named_packages
from provision.lock.pages import Pages
from provision.lock.request import make_request
from provision.model import LockedPackage, drop_event
from provision.resolve import plan_request

HERE = "3.11"
GPU = ("--driver", "580.95.05", "--gpu", "H100", "--glibc", "2.35", "--platform", "linux-x86_64")
ASK = ("--framework", "torch", "--index", "pypi", "--python", HERE, *GPU)


@pytest.fixture
def pages():
    with serving_pages() as served:
        yield served


@pytest.fixture
def torches(gpuenv, index, pages):
    """`gpuenv` with an index of torch 2.15.0 and 2.14.1, the sources of flash-attn and torch-scatter, and pages."""
    pages.write_rows(gpuenv.work / "rows")
    gpuenv.env |= {"PIP_INDEX_URL": index.url, "GPUENV_PROFILES": str(gpuenv.work / "rows")}
    for version in ("2.15.0", "2.14.1"):
        wanted = ("--framework", f"torch=={version}", *ASK[2:])
        index.add_plan(gpuenv("resolve", "--json", *wanted).json)
    index.add("einops", "0.8")
    index.uploaded = "2026-10-01T00:00:00Z"
    for version in ("2.8.3", "2.8.2"):
        add_source(index, "flash-attn", version, "torch", "einops")
    return gpuenv


def add_source(index, name, version, *requires):
    """A source archive whose setup.py compiles CUDA code."""
    setup = "from torch.utils.cpp_extension import CUDAExtension\nCUDAExtension('x', ['x.cu'])\n"
    files = {"PKG-INFO": about(name, version, *requires, since="2.2"), "setup.py": setup, "x.cu": ""}
    file, data = sdist(name.replace("-", "_"), version, files)
    index.wheels.setdefault(name, {})[file] = data


def locked(ran, name):
    return next(p for p in ok(ran).json["packages"] if p["name"] == name)


def said(ran):
    return " ".join((ran.out + ran.err).split())


@pytest.mark.usefixtures("real_uv")
def test_the_wheel_for_the_plans_build_is_locked_with_its_hash(torches, index, pages):
    torch = torches("resolve", "--json", *ASK).json["builds"][0]
    major = torch["cuda"].split(".")[0]
    other = {"12": "13", "13": "12"}[major]
    wanted = pages.add_asset("flash-attn", "2.8.3", f"cu{major}torch2.15cxx11abiTRUE", requires=("einops",))
    for local in (
        f"cu{major}torch2.15cxx11abiFALSE",
        f"cu{other}torch2.15cxx11abiTRUE",
        f"cu{major}torch2.14cxx11abiTRUE",
    ):
        pages.add_asset("flash-attn", "2.8.3", local)
    pages.add_asset("flash-attn", "2.8.3", f"cu{major}torch2.15cxx11abiTRUE", python="cp312")
    ran = torches("lock", "--json", "--with", "flash-attn", *ASK)
    package = locked(ran, "flash-attn")
    data = next(d for path, d in pages.files.items() if path.endswith(wanted))
    assert package["url"].endswith(wanted.replace("+", "%2B")) and package["index"] is None
    assert package["sha256"] == hashlib.sha256(data).hexdigest()
    assert [p["version"] for p in ran.json["packages"] if p["name"] in ("torch", "einops")] == [
        "0.8",
        "2.15.0",
    ]
    fetched = [p for p in pages.requests if p.endswith(".whl")]
    assert len(fetched) == 1, "one wheel is fetched for its hash, not those of other builds"
    assert not [p for p in index.requests if "flash_attn-2.8.2" in p]


def test_a_build_with_a_wheel_is_preferred_to_a_newer_one_that_compiles(torches, pages):
    major = torches("resolve", "--json", "--framework", "torch==2.14.0", *ASK[2:]).json["builds"][0]["cuda"][
        :2
    ]
    file = pages.add_asset("flash-attn", "2.8.3", f"cu{major}torch2.14cxx11abiTRUE")
    ran = torches("resolve", "--json", "--with", "flash-attn", *ASK)
    assert ran.json["builds"][0]["version"] == "2.14.1"
    assert any(note.startswith(f"flash-attn 2.8.3 is the wheel {file}.") for note in ran.json["notes"])
    held = ran.json["held_back"]
    assert [(h["package"], h["newest"]) for h in held] == [("torch", "2.15.0")]
    assert held[0]["because"].startswith("flash-attn 2.8.3 has no wheel")
    assert held[0]["alternative"] == "torch 2.15.0 would require compiling flash-attn 2.8.3"
    assert not [p for p in pages.requests if p.endswith(".whl")], "a plan reads pages only"
    forced = torches("resolve", "--with", "flash-attn", "--framework", "torch==2.15.0", *ASK[2:])
    assert "built from source. Wheels exist for torch 2.14" in said(forced)
    folded = torches("resolve", "--with", "flash-attn", *ASK)
    assert said(folded).count("has no wheel") == 1


def test_an_older_release_with_a_wheel_is_found_where_the_newest_has_none(torches, pages):
    major = torches("resolve", "--json", *ASK).json["builds"][0]["cuda"][:2]
    pages.add_asset("flash-attn", "2.8.2", f"cu{major}torch2.15cxx11abiTRUE")
    ran = torches("resolve", "--json", "--with", "flash-attn", *ASK)
    assert ran.json["builds"][0]["version"] == "2.15.0"
    (held,) = ran.json["held_back"]
    assert (held["package"], held["locked"], held["newest"]) == ("flash-attn", "2.8.2", "2.8.3")
    assert "has no wheel for torch 2.15.0" in held["because"]


def test_a_wheel_of_the_index_comes_before_those_of_a_page(torches, index, pages):
    major = torches("resolve", "--json", *ASK).json["builds"][0]["cuda"][:2]
    pages.add_asset("flash-attn", "2.8.3", f"cu{major}torch2.15cxx11abiTRUE")
    index.add("flash-attn", "2.8.3")
    ran = torches("lock", "--json", "--with", "flash-attn", *ASK)
    assert locked(ran, "flash-attn")["url"].endswith("flash_attn-2.8.3-py3-none-any.whl")
    assert "is the wheel" not in " ".join(ran.json["plan"]["notes"])


def test_a_file_can_be_named_by_its_local_version(torches, pages):
    major = torches("resolve", "--json", *ASK).json["builds"][0]["cuda"][:2]
    file = pages.add_asset("flash-attn", "2.8.2", f"cu{major}torch2.15cxx11abiTRUE")
    pages.add_asset("flash-attn", "2.8.3", f"cu{major}torch2.15cxx11abiTRUE")
    ran = torches("lock", "--json", "--with", f"flash-attn=={file.split('-')[1]}", *ASK)
    assert locked(ran, "flash-attn")["url"].endswith(file.replace("+", "%2B"))


def test_a_wheel_that_needs_a_newer_glibc_is_not_taken_and_said(torches, pages):
    major = torches("resolve", "--json", *ASK).json["builds"][0]["cuda"][:2]
    pages.add_asset("flash-attn", "2.8.3", f"cu{major}torch2.15cxx11abiTRUE")
    older = ["2.31" if word == "2.35" else word for word in ASK]
    ran = torches("resolve", "--with", "flash-attn", *older)
    assert ran.code == 0 and "require glibc 2.32, and the target has 2.31" in said(ran)
    assert "is the wheel" not in said(ran)
    assert said(ran).count("require glibc") == 1
    enough = ["2.32" if word == "2.35" else word for word in ASK]
    assert "is the wheel" in said(torches("resolve", "--with", "flash-attn", *enough))


def test_a_release_that_no_page_has_is_compiled_as_before(torches, pages):
    ran = torches("lock", "--json", "--with", "flash-attn", *ASK)
    assert locked(ran, "flash-attn")["url"].endswith("flash_attn-2.8.3.tar.gz")
    assert "has no wheel for torch 2.15.0" in " ".join(ran.json["plan"]["notes"])


def test_other_bytes_under_the_same_name_are_refused(torches, pages):
    major = torches("resolve", "--json", *ASK).json["builds"][0]["cuda"][:2]
    file = pages.add_asset("flash-attn", "2.8.3", f"cu{major}torch2.15cxx11abiTRUE")
    first = locked(torches("lock", "--json", "--with", "flash-attn", *ASK), "flash-attn")
    pages.replace_bytes(file)
    torches.env["UV_CACHE_DIR"] = str(torches.work / "another-cache")
    again = torches("lock", "--json", "--with", "flash-attn", "--with", "einops", *ASK)
    assert locked(again, "flash-attn")["sha256"] == first["sha256"], "a locked hash stays"
    refused = torches("create", "--locked", "--with", "flash-attn", "--with", "einops", *ASK)
    assert refused.code == 7 and "flash" in said(refused) and first["sha256"] in said(refused)
    assert not (torches.work / ".venv").exists()
    ok(torches("lock", "--check", "--with", "flash-attn", "--with", "einops", *ASK))
    lines = torches("export", "--format", "requirements").out.splitlines()
    (line,) = [x for x in lines if x.startswith("flash-attn")]
    assert line.startswith("flash-attn @ http") and file.replace("+", "%2B") in line
    upgrade = ("lock", "--json", "--upgrade", "flash-attn", "--with", "flash-attn", "--with", "einops", *ASK)
    assert locked(torches(*upgrade), "flash-attn")["sha256"] != first["sha256"]
    ok(torches("create", "--locked", "--with", "flash-attn", "--with", "einops", *ASK))
    drifted = torches("verify", "--locked", "--quick", "--json", ".venv").json["findings"]
    assert not [f for f in drifted if "flash" in str(f)], drifted


def test_a_page_that_does_not_answer_is_said_and_the_locked_wheel_stays(torches, index, pages):
    major = torches("resolve", "--json", *ASK).json["builds"][0]["cuda"][:2]
    pages.add_asset("flash-attn", "2.8.3", f"cu{major}torch2.15cxx11abiTRUE")
    before = locked(torches("lock", "--json", "--with", "flash-attn", *ASK), "flash-attn")
    pages.fault = 500
    again = torches("lock", "--json", "--with", "flash-attn", "--with", "einops", *ASK)
    assert locked(again, "flash-attn") == before
    (torches.work / "pylock.toml").unlink()
    ran = torches("resolve", "--with", "flash-attn", *ASK)
    assert ran.code == 0 and re.search("prebuilt wheel of flash-attn .*cannot read", said(ran))
    assert "Repeat the command when the page answers" in said(ran)
    add_source(index, "torch-scatter", "2.1.2")
    ran = torches("lock", "--json", "--with", "torch-scatter", *ASK)
    assert locked(ran, "torch-scatter")["url"].endswith(".tar.gz")
    assert ran.err.count("prebuilt wheel of torch-scatter") == 1


@pytest.mark.usefixtures("real_uv")
def test_pages_of_builds_are_asked_for_the_builds_that_they_list(torches, index, pages):
    plan = torches("resolve", "--json", "--framework", "torch==2.14.0", *ASK[2:]).json["builds"][0]
    label = f"cu{plan['cuda'].replace('.', '')}"
    file = pages.add_for_build("torch-scatter", "2.1.2", "2.14.0", label)
    pages.add_for_build("torch-scatter", "2.1.2", "2.14.0", "cpu")
    library = pages.add_for_build("pyg-lib", "0.6.0", "2.14.0", label)
    add_source(index, "torch-scatter", "2.1.2")
    ran = torches("lock", "--json", "--with", "torch-scatter", "--with", "pyg-lib", *ASK)
    assert locked(ran, "torch")["version"] == "2.14.1"
    for name, wheel in (("torch-scatter", file), ("pyg-lib", library)):
        assert locked(ran, name)["url"].endswith(wheel.replace("+", "%2B")) and locked(ran, name)["sha256"]
    assert [h["package"] for h in ran.json["held_back"]] == ["torch"]
    read = [p for p in pages.requests if p.startswith("/whl/") and p.endswith(".html")]
    assert read == ["/whl/index.html", f"/whl/torch-2.14.0+{label}.html"]


@pytest.mark.usefixtures("real_uv")
def test_a_bundle_brings_the_wheel_to_a_machine_without_a_network(torches, pages, index):
    major = torches("resolve", "--json", *ASK).json["builds"][0]["cuda"][:2]
    file = pages.add_asset("flash-attn", "2.8.3", f"cu{major}torch2.15cxx11abiTRUE")
    add_own(index)
    made = torches("bundle", "bundle", "--with", "flash-attn", *ASK)
    assert made.code == 0 and list((torches.work / "bundle").rglob(file)), made.err
    pages.requests.clear()
    torches.env["UV_CACHE_DIR"] = str(torches.work / "another-cache")
    ok(torches("create", "--bundle", "bundle", "--offline", *GPU))
    assert not pages.requests
    assert list((torches.work / ".venv").glob("lib/*/site-packages/flash_attn"))


@pytest.mark.parametrize(
    ("package", "python", "torch", "cuda", "file"),
    [
        pytest.param(
            "flash-attn", "3.12", "2.9.1", "12.8", "flash_attn-2.8.3+cu12torch2.9cxx11abiTRUE-cp312-cp312-linux_x86_64.whl",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "flash-attn", "3.11", "2.8.0", "12.9", "flash_attn-2.8.3+cu12torch2.8cxx11abiTRUE-cp311-cp311-linux_x86_64.whl",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "mamba-ssm", "3.12", "2.10.0", "13.0", "mamba_ssm-2.3.1+cu13torch2.10cxx11abiTRUE-cp312-cp312-linux_x86_64.whl",
            marks=pytest.mark.slow,
        ),
        ("torch-scatter", "3.11", "2.8.0", "12.8", "torch_scatter-2.1.2+pt28cu128-cp311-cp311-linux_x86_64.whl"),
    ],
)  # fmt: skip
def test_the_real_names_give_the_newest_torch_that_has_a_wheel(
    index, pages, tmp_path, monkeypatch, package, python, torch, cuda, file
):
    """The pages have the names of tests/data/wheel_file_names.txt, and the profiles are those of gpuenv."""
    version = file.split("-")[1].partition("+")[0]
    lines = (Path(__file__).parents[1] / "data" / "wheel_file_names.txt").read_text().splitlines()
    for name in lines:
        if name.startswith(f"{package.replace('-', '_')}-{version}+"):
            pages.add_named(package, version, name)
    pages.write_rows(tmp_path)
    add_source(index, package, version, "torch")
    monkeypatch.setenv("PIP_INDEX_URL", index.url)
    choices = Choices(
        framework=["torch"], with_=[package], driver="580.95.05", gpu=["H100"], glibc="2.35",
        platform="linux-x86_64", python=python, profiles=[tmp_path],
    )  # fmt: skip
    context = make_request(choices, drop_event, no_code=True)
    known = Pages(FittingBuilds(context), read_named_packages(context), drop_event)
    (build,) = known.builds(python)
    assert (build.version, build.cuda) == (torch, cuda)
    wheel = known.choose(Requirement(package), (build,), python)
    assert unquote(wheel.url.rpartition("/")[2]) == file
    if "+pt" in file:
        return  # pages of builds are read for the builds in question only
    source = LockedPackage(name=package, version=version, url=f"{package}-{version}.tar.gz")
    (note,) = known.notes([source], plan_request(context))
    assert f"Wheels exist for torch {torch.rpartition('.')[0]}" in note, (
        "a name for another string ABI is no wheel"
    )


SATELLITES = """- table: "satellites"
  source: "here"
  read: "2026-11-26"
  kept: "measured"
  rows:
  - {package: "vllm", version: "9.1.0", platform: "linux-x86_64", form: "wheel", pythons: "3.10+", cuda: "13", cuda_by: "needed", needs: ["libcudart.so.13"], built_for: "torch==2.15.0", abi: "exact"}
  - {package: "vllm", version: "9.0.0", platform: "linux-x86_64", form: "wheel", pythons: "3.10+", cuda: "13", cuda_by: "needed", needs: ["libcudart.so.13"], built_for: "torch==2.10.0", abi: "exact"}
"""
OLD_DRIVER = ["550.54.15" if word == "580.95.05" else word for word in ASK]


@pytest.fixture
def vllms(torches, index, pages):
    """`torches` with a vllm whose wheels on the index are for CUDA 13, and its page with one for CUDA 12."""
    (torches.work / "rows" / "satellites.yaml").write_text(SATELLITES)
    index.add_plan(torches("resolve", "--json", "--framework", "torch==2.10.0", *OLD_DRIVER[2:]).json)
    for version, torch in (("9.1.0", "2.15.0"), ("9.0.0", "2.10.0")):
        index.add("vllm", version, (f"torch=={torch}",))
    pages.add_asset("vllm", "9.0.0", "cu129", requires=("torch==2.10.0",))
    return torches


@pytest.mark.parametrize("listed", [False, True])
def test_a_build_for_an_old_driver_outside_of_the_index_is_named_and_locked(vllms, pages, listed):
    """vllm's wheels for CUDA 12 are on GitHub alone. A page that cannot be read can have rows."""
    if listed:
        pages.fault = 503
        url = f"{pages.address}/vllm/releases/download/v{{release}}/vllm-{{release}}%2Bcu129-cp311-cp311-linux_{{machine}}.whl"
        table = '- table: "listed_wheels"\n  source: "here"\n  read: "2026-11-26"\n  rows:\n'
        row = f'  - {{package: "vllm", releases: "9.0.0", url: "{url}", platform: "linux-x86_64", oldest_gpu: "7.5", source: "here", read: "2026-11-26"}}\n'
        with (vllms.work / "rows" / "indexes.yaml").open("a") as rows:
            rows.write(table + row)
    file = "vllm-9.0.0+cu129-cp311-cp311-linux_x86_64.whl"
    ran = ok(vllms("resolve", "--json", "--with", "vllm", *OLD_DRIVER))
    assert ran.json["builds"][0]["version"] == "2.10.0"
    assert any(note.startswith(f"vllm 9.0.0 is the wheel {file}.") for note in ran.json["notes"])
    assert ("no wheel of vllm newer than 9.0.0" in ran.err) == listed
    older = vllms("resolve", "--json", "--with", "vllm", *["V100" if w == "H100" else w for w in OLD_DRIVER])
    assert (file in said(older)) != listed, "a row names the oldest GPU"
    package = locked(vllms("lock", "--json", "--with", "vllm", *OLD_DRIVER), "vllm")
    (data,) = (d for path, d in pages.files.items() if path.endswith(file))
    assert unquote(package["url"]).endswith(file) and package["sha256"] == hashlib.sha256(data).hexdigest()


def test_the_index_has_the_build_for_a_new_driver(vllms):
    package = locked(vllms("lock", "--json", "--with", "vllm", *ASK), "vllm")
    assert (package["version"], package["url"].endswith("vllm-9.1.0-py3-none-any.whl")) == ("9.1.0", True)
