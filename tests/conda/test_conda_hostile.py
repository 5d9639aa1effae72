"""Conda packages and records that were made to lead out: nothing is linked or removed beside the environment.
Many more of them: tests/faults/hostile_conda.py."""
# ruff: noqa: F811  # fixtures are imported by their names

import json
import os
from pathlib import Path
from types import SimpleNamespace

import conda_channel as cc
import pytest
from conda_channel import CREATE, folder  # noqa: F401
from environment_facts import ok, refused
from rows import rows

from provision.conda.worker import install


@pytest.fixture
def outside(gpuenv):
    """A file of somebody's, two folders above the environment."""
    path = gpuenv.folder / "precious.txt"
    path.write_text("precious")
    return path


def add(folder, name, *rows, members=(), depends=()):
    """A package whose paths.json says something else than what is in it."""
    payload = [cc.Member("payload", data=b"x") for _ in rows]
    for member, row in zip(payload, rows, strict=True):
        member.row = lambda row=row: {"_path": str(row), "path_type": "hardlink"}
    cc.write_package(folder, name, "1.0", "h0_0", depends, [*payload, *members])


def created(gpuenv, folder, *more):
    cc.index(folder)
    return gpuenv(*CREATE, "--channel", folder, *more)


@pytest.mark.parametrize(
    "row", ["../../precious.txt", "../../pkgs/evil-1.0-h0_0/payload", ".gpuenv/building"]
)
def test_a_package_that_lists_files_outside_is_refused(gpuenv, folder, outside, row):
    add(folder, "evil", row)
    before = {p.name for p in gpuenv.folder.iterdir()}
    ran = created(gpuenv, folder, "--with", "evil")
    assert ran.code == 7 and "evil has a file outside" in ran.err and "hint:" in ran.err, ran.err
    assert outside.read_text() == "precious" and not list(gpuenv.work.iterdir())
    assert {p.name for p in gpuenv.folder.iterdir()} - before <= {"cache", "data", "home", "uv-cache"}


def test_a_package_that_goes_through_anothers_link_is_refused(gpuenv, folder, outside):
    add(folder, "evil2", members=[cc.Member("share/out", link=str(outside.parent))])
    add(folder, "evil", members=[cc.Member("share/out/precious.txt", data=b"x")], depends=["evil2"])
    ran = created(gpuenv, folder, "--with", "evil")
    assert ran.code == 7 and "link out of the environment: 'share/out'" in ran.err, ran.err
    assert outside.read_text() == "precious" and not list(gpuenv.work.iterdir())


@pytest.mark.parametrize("command", ["change", "repair"])
def test_what_a_record_lists_outside_is_not_removed(gpuenv, folder, outside, command):
    add(folder, "extra", members=[cc.Member("share/extra", data=b"x")])
    assert created(gpuenv, folder, "--with", "extra").code == 0
    env = gpuenv.work / ".venv"
    (path,) = env.glob("conda-meta/extra-*.json")
    data = json.loads(path.read_text())
    for listed in ("../../precious.txt", str(outside)):
        data["files"].append(listed)
        data["paths_data"]["paths"].append({"_path": listed, "path_type": "hardlink"})
    path.write_text(json.dumps(data))
    (env / "share" / "extra").unlink()
    ran = created(gpuenv, folder) if command == "change" else gpuenv("repair", "--no-verify")
    assert ran.code == 7 and "lists a file outside of the environment" in ran.err, ran.err
    assert outside.exists() and path.exists() and [p.name for p in gpuenv.work.iterdir()] == [".venv"]


# --- what is looked at -----------------------------------------------------------------------------


def lying(pool, name, *paths, links=(), commands=()):
    """A package in the cache, and its record."""
    folder = pool / f"{name}-1.0-h0_0"
    (folder / "info").mkdir(parents=True)
    for place, target in dict(links).items():
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        (folder / place).symlink_to(target)
    rows = [{"_path": p, "path_type": "hardlink"} for p in (*paths, *dict(links))]
    (folder / "info" / "paths.json").write_text(json.dumps({"paths": rows}))
    link = {"noarch": {"type": "python", "entry_points": list(commands)}}
    (folder / "info" / "link.json").write_text(json.dumps(link))
    return SimpleNamespace(name=SimpleNamespace(normalized=name), version="1.0", build="h0_0")


def checked(pool, *records):
    packages = install.PathGuard(pool, records)
    for record in records:
        packages.check(record.name.normalized)


@rows("path", ["../x", "/x", "a/../../x", "..", ".", "", "a\\..\\..\\x", "C:\\x", "a\0", 7, None])
def test_paths_that_lead_out_are_not_inside(path):
    assert not install.is_inside(path)


def test_an_entry_point_with_a_path_for_its_name_is_refused(tmp_path):
    checked(tmp_path, lying(tmp_path, "good", commands=["x = a:b", "py-thon3.11 = a:b"]))
    for command in ("../x", "/x", "..", "a/b"):
        with pytest.raises(install.UnsafeError, match="entry point"):
            checked(tmp_path / command.replace("/", "_"), lying(tmp_path / command.replace("/", "_"), "evil", commands=[f"{command} = a:b"]))  # fmt: skip


@pytest.mark.parametrize(
    ("links", "path", "inside"),
    [
        ({"lib64": "lib"}, "lib64/x", True),
        ({"a": "."}, "a/x", True),
        ({"a": ".", "b": "a/.."}, "b/x", False),
        ({"a/lib64": "usr/lib64", "a/usr/lib64": "../lib"}, "a/lib64/x", True),
        ({"share/out": "/etc"}, "share/other/x", True),  # a link that nobody goes through harms nobody
        ({"share/out": "/etc"}, "share/out/x", False),
        ({"share/out": "../../x"}, "share/out/x", False),
        ({"a": "b/c", "b/c": "../.."}, "a/x", False),
        ({"a": "b", "b": "a"}, "a/x", False),
        ({"lib": "/etc"}, "lib/python3.11/site-packages/a/x", False),
        ({"site-packages/a": "/etc"}, "lib/python3.11/site-packages/a/x", False),
    ],
)
@pytest.mark.parametrize("links_first", [True, False])
def test_links_are_followed_whoever_brings_them(tmp_path, links, path, inside, links_first):
    both = [lying(tmp_path, "one", links=links), lying(tmp_path, "two", path)]
    if inside:
        checked(tmp_path, *both)
        return
    with pytest.raises(install.UnsafeError, match="through a link"):
        checked(tmp_path, *(both if links_first else reversed(both)))


def test_a_package_with_more_nested_folders_than_an_environment_may_have_is_refused(tmp_path):
    with pytest.raises(install.UnsafeError, match="deep has too many nested folders"):
        checked(tmp_path, lying(tmp_path, "deep", links={"share/" + "d/" * 65 + "link": "file"}))


def test_the_files_of_an_old_package_are_checked_too(tmp_path):
    """Packages before 2016 list their files as text."""
    for path, inside in (("lib/x", True), ("../x", False)):
        folder = tmp_path / path.replace("/", "_")
        record = lying(folder, "old")
        (info,) = folder.rglob("info")
        (info / "paths.json").unlink()
        (info / "files").write_text(f"{path}\n")
        if inside:
            checked(folder, record)
        else:
            with pytest.raises(install.UnsafeError):
                checked(folder, record)


def test_a_package_record_of_another_form_is_refused(tmp_path):
    meta = tmp_path / "conda-meta"
    meta.mkdir()
    (meta / "x-1-0.json").write_text('{"files": ["lib/x"]}')
    assert install.check_records(tmp_path) == [meta / "x-1-0.json"]
    bad: list[Path] = [meta / "y-1-0.json"]
    for text in ("[]", "{", '{"files": 7}', '{"paths_data": {"paths": [7]}}'):
        bad[0].write_text(text)
        with pytest.raises(install.UnsafeError, match="conda cannot read which files"):
            install.check_records(tmp_path)
    bad[0].unlink()
    os.mkfifo(bad[0])
    with pytest.raises(install.UnsafeError, match="conda cannot read which files"):
        install.check_records(tmp_path)


LOCK = """version: 1
metadata:
  content_hash: {{linux-64: a}}
  channels: [{{url: "http://127.0.0.1:9/c", used_env_vars: []}}]
  platforms: [linux-64]
  sources: []
package:
- {{name: python, version: 3.11.0, manager: conda, platform: linux-64, dependencies: {{}}, category: main, optional: false,
   url: "http://127.0.0.1:9/c/linux-64/python-3.11.0-h0_0_cpython.conda", hash: {{md5: {md5}, sha256: {sha256}}}}}
- {{name: x, version: "1.0", manager: {manager}, platform: linux-64, dependencies: {{}}, category: main, optional: false,
   url: "http://127.0.0.1:9/c/{file}", hash: {{md5: {md5}, sha256: {sha256}}}}}
"""


@pytest.mark.parametrize(
    ("manager", "file"),
    [
        ("conda", "linux-64/..%2F..%2F..%2Fhome%2Fx-1.0-h0.conda"),
        ("conda", "..%2F../x-1.0-h0.conda"),
        ("conda", "linux-64/..%5Cx-1.0-h0.tar.bz2"),
        ("pip", "x/..%2F..%2F..%2Fhome%2F.bashrc"),
    ],
)
@pytest.mark.parametrize("command", ["create", "bundle", "export"])
def test_a_conda_lock_that_names_a_file_elsewhere_is_refused_by_name(gpuenv, command, manager, file):
    path = gpuenv.work / "conda-lock.yml"
    path.write_text(LOCK.format(md5="b" * 32, sha256="a" * 64, manager=manager, file=file))
    argv = {
        "create": ("create", "env", "--lock", path, "--no-verify"), "bundle": ("bundle", "out", "--lock", path),
        "export": ("export", "--format", "environment.yml", "--lock", path),
    }[command]  # fmt: skip
    ran = gpuenv(*argv)
    assert ran.code == 6 and "x 1.0: '.." in ran.err and "cannot be a file name" in ran.err, ran.err
    assert {p.name for p in gpuenv.work.iterdir()} <= {"conda-lock.yml"} | (
        {"out"} if command == "bundle" else set()
    )
    assert not list((gpuenv.work / "out").glob("*"))


@pytest.mark.parametrize(
    "argv", [("bundle", "out"), pytest.param(("bundle", "out", "--lock", "conda-lock.yml"), marks=pytest.mark.slow), ("export", "--format", "conda-lock"),
             ("export", "--format", "environment.yml", "--lock", "conda-lock.yml")]
)  # fmt: skip
def test_a_conda_lock_with_md5_alone_is_taken_only_when_asked_for(gpuenv, index, argv):
    text = LOCK.format(md5="b" * 32, sha256="a" * 64, manager="conda", file="linux-64/x-1.0-h0_0.conda")
    text = text.replace("http://127.0.0.1:9", index.url)  # it has none of them, and says so at once
    (gpuenv.work / "conda-lock.yml").write_text(text.replace(f", sha256: {'a' * 64}", ""))
    argv = (*argv, "--manager", "conda") if argv == ("bundle", "out") else argv
    ran = gpuenv(*argv)
    assert ran.code == 6 and "has no sha256 for 2 of 2 packages (python, x)" in ran.err, ran.err
    assert "hint: accept md5 with --allow-md5" in ran.err and not list((gpuenv.work / "out").glob("*"))
    ran = gpuenv(*argv, "--allow-md5")
    assert "has no sha256" not in ran.err and (ran.code == 0 or argv[0] == "bundle"), ran.err


def test_a_package_in_the_cache_never_stands_for_one_with_another_hash(gpuenv, folder, index):
    """The engine notes the lock's hash before it fetches: a fetch that fails must not make the package that lies
    there the lock's own for the next run."""
    ok(created(gpuenv, folder))
    packages = json.loads((gpuenv.work / ".venv" / ".gpuenv" / "lock.json").read_text())
    python = next(p for p in packages.get("lock", packages)["packages"] if p["name"] == "python")
    file = python["url"].rpartition("/")[2]
    (gpuenv.work / "explicit.txt").write_text(f"@EXPLICIT\n{index.url}/c/linux-64/{file}#{'a' * 64}\n")
    for _ in range(2):
        refused(gpuenv("create", "other", "--lock", "explicit.txt", "--no-verify"), 7)
        assert not (gpuenv.work / "other").exists()
    assert created(gpuenv, folder, "--recreate").code == 0
