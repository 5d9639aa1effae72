"""Names from outside become paths in one place: locks, index pages, bundle manifests and records."""

import json
import os
import re
import urllib.parse

import pytest
from bundle_site import Site
from environment_facts import ok, refused
from hypothesis import given, strategies as st
from rows import rows

from provision.cli import exit_codes
from provision.index.simple_api import parse_project
from provision.system import untrusted

BAD = {
    "a separator": "a/b", "a backslash": "a\\b", "a parent": "..", "itself": ".", "nothing": "", "absolute": "/etc/passwd",
    "a parent's file": "../x.whl", "encoded": "..%2Fx.whl", "encoded twice": "..%252Fx.whl", "a backslash encoded": "..%5cx.whl",
    "dots encoded": "%2e%2e", "dots encoded twice": "%252e%252e", "a NUL": "a\0b", "a NUL encoded": "a%00b", "a line end": "a\nb",
    "an escape": "a\x1b[31m", "a direction": "a\u202eb", "a drive": "C:x", "a stream": "a.whl:b", "a device": "NUL", "a device with a suffix": "con.whl",
    "a blank at the end": "a ", "a dot at the end": "a.", "hidden": ".bashrc", "long": "a" * 241, "long in bytes": "\u00e9" * 121,
}  # fmt: skip
GOOD = (
    "torch-2.13.0+cpu-cp311-cp311-manylinux_2_28_x86_64.whl", "jax-0.4.tar.gz", "main.zip", "a-1!2.0-0.conda", "100%.whl",
    "_libgcc_mutex-0.1-conda_forge.tar.bz2", "a" * 240, "console.whl",
)  # fmt: skip


@rows("name", BAD.values(), ids=BAD)
def test_a_name_that_leads_elsewhere_is_no_file_name(name):
    with pytest.raises(untrusted.UnsafeNameError, match="cannot be a file name") as told:
        untrusted.check_file_name(name)
    assert told.value.hint and exit_codes.get_error_code(told.value) == 6
    # as the last segment of an address, quoted as an address has it
    quoted = urllib.parse.quote(name, safe="%")
    with pytest.raises(untrusted.UnsafeNameError):
        untrusted.file_name_of_url(f"https://host/files/{quoted}")


@rows("name", GOOD)
def test_names_of_packages_are_file_names(name):
    assert untrusted.check_file_name(name) == name


@rows(
    ("url", "name"),
    [
        ("https://h/a/b-1-py3-none-any.whl?sig=../x#sha256=..", "b-1-py3-none-any.whl"),
        ("https://h/a/b-1%2Bcpu-py3-none-any.whl", "b-1+cpu-py3-none-any.whl"),
        ("file:///d/b.whl", "b.whl"),
    ],
)
def test_a_file_name_is_the_last_segment_of_an_address(url, name):
    assert untrusted.file_name_of_url(url) == name


@given(st.text(max_size=40))
def test_an_accepted_name_stays_inside_the_folder(tmp_path_factory, text):
    folder = tmp_path_factory.getbasetemp()
    try:
        name = untrusted.check_file_name(text)
    except untrusted.UnsafeNameError:
        name = ""
    if name:
        assert os.path.dirname(os.path.realpath(folder / name)) == os.path.realpath(folder)  # noqa: PTH120
    try:
        path = untrusted.join(folder, text)
    except untrusted.UnsafeNameError:
        return
    assert os.path.realpath(path).startswith(os.path.realpath(folder) + os.sep)


def test_relative_paths_may_have_hidden_folders_but_no_way_out():
    assert str(untrusted.check_relative("channel/.c/linux-64/x.conda")) == "channel/.c/linux-64/x.conda"
    for bad in ("", "/x", "a//b", "a/../b", "a/./b", "a/..%2fb", "a/b/", "a\\..\\b", "a/C:"):
        with pytest.raises(untrusted.UnsafeNameError):
            untrusted.check_relative(bad)


# --- index pages ---------------------------------------------------------------------------------


PAGE = "https://h/simple/x/"


def test_an_index_page_offers_no_file_whose_name_leads_elsewhere():
    html = '<a href="x-1-py3-none-any.whl">a</a><a href="..%2F..%2Fx-2-py3-none-any.whl">b</a>'
    assert [f.name for f in parse_project(PAGE, html.encode())] == ["x-1-py3-none-any.whl"]
    rows = [
        {"filename": "x-1-py3-none-any.whl", "url": "x-1-py3-none-any.whl"},
        {"filename": "../x-2-py3-none-any.whl", "url": "x-2-py3-none-any.whl"},
        {"filename": "x-3-py3-none-any.whl", "url": "..%2Fx-3-py3-none-any.whl"},
    ]
    found = parse_project(PAGE, json.dumps({"files": rows}).encode())
    assert [f.name for f in found] == ["x-1-py3-none-any.whl"]


# --- locks ---------------------------------------------------------------------------------------


@pytest.fixture
def site(tmp_path, index):
    site = Site(tmp_path, index)
    home = tmp_path / "home"
    home.mkdir(exist_ok=True)
    site.precious = home / ".bashrc"
    site.precious.write_text("precious\n")
    return site


LEADS_OUT = "..%2F..%2F..%2Fhome%2F.bashrc"


def bent(path):
    """A lock, one address of which ends in a name that leads to the home folder."""
    text = path.read_text()
    last = re.search(r"(?<=/)[^/\s\"]+\.whl(?=\")", text)[0]
    path.write_text(text.replace(f"/{last}", f"/{LEADS_OUT}", 1))


@pytest.mark.parametrize("command", ["named", "project", "create", "export"])
def test_a_lock_that_names_a_file_elsewhere_is_refused_by_name(site, command):
    lock = site.lock()
    bent(lock)
    argv = {
        "named": ("bundle", "out", "--lock", lock), "project": ("bundle", "out"),
        "create": ("create", "env", "--lock", lock, "--no-verify"), "export": ("export", "--format", "dockerfile", "--lock", lock),
    }[command]  # fmt: skip
    ran = refused(site.gpuenv(*argv), 6)
    assert "'../../../home/.bashrc' cannot be a file name" in ran.err and "hint:" in ran.err
    assert site.precious.read_text() == "precious\n"
    assert not (site.out / "wheels").exists() and not (site.gpuenv.work / "env").exists()


def test_a_bundle_whose_manifest_names_files_elsewhere_is_refused(site):
    site.lock()
    ok(site.make(ask=()))
    manifest = site.out / "gpuenv-bundle.json"
    sound = json.loads(manifest.read_text())
    python = {"key": "cpython-3.12.16-linux-x86_64-gnu", "version": "3.12.16", "path": "python/x.tar.gz"}
    for change in (
        {"lock": "..%2Fx"}, {"files": [*sound["files"], {"path": "wheels/../../x", "size": 1, "sha256": None}]},
        {"archive": {**python, "path": "/etc/x"}}, {"archive": {**python, "key": "../../x"}},
        {"archive": {**python, "key": "cpython-3.12.16-linux-../../../x-gnu"}}, {"archive": {**python, "version": "3"}},
    ):  # fmt: skip
        manifest.write_text(json.dumps(sound | change))
        assert "is damaged" in refused(site.gpuenv("create", "env", "--bundle", "out", "--no-verify"), 6).err


def test_a_wheel_of_a_folder_takes_no_file_that_a_record_names_elsewhere(tmp_path, monkeypatch):
    import importlib.metadata

    from provision.bundle import wheels

    info = tmp_path / "t" / "evil-1.0.dist-info"
    info.mkdir(parents=True)
    (tmp_path / "secret").write_text("secret")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: evil\nVersion: 1.0\n")
    (info / "WHEEL").write_text("Wheel-Version: 1.0\nTag: py3-none-any\n")
    (info / "RECORD").write_text("evil-1.0.dist-info/METADATA,,\nevil/../../secret,,\n")
    dist = importlib.metadata.PathDistribution(info)
    with pytest.raises(untrusted.UnsafeNameError):
        wheels._rebuild_wheel(dist, tmp_path / "wheels")
    assert not (tmp_path / "wheels").exists()
