"""Hashes are required on every way into an environment, and a lock says where each package comes from."""

import re

import pytest
import tomli
from environment_facts import HERE, ok, refused
from loopback import Index, serving, wheel_bytes
from made_env import PROJECT, jax_env

ASKED = ("--framework", "jax", "--device", "cpu", "--python", HERE, "--index", "pypi")


@pytest.fixture
def stack(gpuenv, index):
    index.add_plan(gpuenv("resolve", "--json", *ASKED).json)
    gpuenv.env["PIP_INDEX_URL"] = index.url
    return gpuenv


def locked(gpuenv):
    return tomli.loads((gpuenv.work / "pylock.toml").read_text())["packages"]


def test_a_lock_names_the_index_or_the_folder_of_every_package(stack, index):
    folder = stack.folder / "wheels"
    folder.mkdir()
    (folder / "at_hand-1.0-py3-none-any.whl").write_bytes(wheel_bytes("at-hand", "1.0"))
    with serving(Index()) as second:
        second.add("Other.Name_here", "2.0")
        stack.env["PIP_EXTRA_INDEX_URL"] = second.url
        ok(stack("lock", *ASKED, "--with", "other-name-here", "--with", "at-hand", "--find-links", folder))
    packages = {p["name"]: p for p in locked(stack)}
    assert packages.pop("other-name-here")["index"] == second.url
    at_hand = packages.pop("at-hand")
    assert at_hand["wheels"][0]["url"] == (folder / "at_hand-1.0-py3-none-any.whl").as_uri()
    assert {p["index"] for p in packages.values()} == {index.url}
    for package in (*packages.values(), at_hand):
        assert re.fullmatch(r"[0-9a-f]{64}", package["wheels"][0]["hashes"]["sha256"])


def without_hash(gpuenv, name):
    path = gpuenv.work / "pylock.toml"
    data = path.read_text()
    start = data.index(f'name = "{name}"')
    end = data.find("[[packages]]", start)
    part = re.sub(r'sha256 = "\w+"', 'md5 = "d41d8cd98f00b204e9800998ecf8427e"', data[start:end])
    path.write_text(data[:start] + part + data[end:])


def with_other_hash(gpuenv, name):
    path = gpuenv.work / "pylock.toml"
    data = path.read_text()
    start = data.index(f'name = "{name}"')
    part = re.sub(r'sha256 = "\w+"', f'sha256 = "{"0" * 64}"', data[start:], count=1)
    path.write_text(data[:start] + part)


def test_a_lock_without_a_hash_or_with_another_is_refused(stack):
    assert stack("lock", *ASKED).code == 0
    with_other_hash(stack, "jaxlib")
    ran = stack("create", "--locked", "--device", "cpu", "--no-verify")
    assert ran.code == 7 and "jaxlib" in ran.err and not (stack.work / ".venv").exists()
    without_hash(stack, "jaxlib")
    ran = stack("create", "--locked", "--device", "cpu", "--no-verify")
    assert ran.code == 6 and "no sha256" in ran.err and not (stack.work / ".venv").exists()
    ran = stack("bundle", "out", "--lock", "pylock.toml")
    assert ran.code == 6 and not (stack.work / "out" / "gpuenv-bundle.json").exists()


def test_repair_and_a_change_in_place_hold_the_files_against_the_lock(stack, index):
    jax_env(stack, index, PROJECT)
    (site,) = (stack.work / ".venv").glob("lib/python3*/site-packages")
    (site / "jaxlib" / "__init__.py").unlink()
    stack.env["UV_CACHE_DIR"] = str(stack.folder / "another-cache")
    index.faults = {"py3-none-any.whl": "tampered"}
    assert "its hash differs" in refused(stack("repair"), 7).err
    assert not (site / "jaxlib" / "__init__.py").exists()
    (stack.work / "gpuenv.yaml").write_text(PROJECT.replace('"kept<2"', '"kept<2", "more"'))
    ran = stack("create", "--no-verify")
    assert ran.code == 7 and "more" in ran.err and "its hash differs" in ran.err
    assert not (site / "more").exists()
