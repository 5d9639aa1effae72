"""Package indexes and wheels in them: real servers on loopback, and real zips."""
# ruff: noqa: F811  # fixtures are imported by their names

import random

import pytest
from index_server import server, web, wheel, zipped  # noqa: F401  # fixtures
from rows import rows

from provision.errors import LockError
from provision.index import archives
from provision.index.archives import member, metadata, open_wheel
from provision.index.simple_api import File, allows_python, project_files
from provision.index.wheel_names import find_links
from provision.model import PackageSources
from provision.wheels.releases import IndexMetadata

HTML = """<!DOCTYPE html><html><body><h1>Links</h1>
<a href="../../files/demo-1.0-py3-none-any.whl#sha256=aa" data-requires-python="&gt;=3.8">demo-1.0-py3-none-any.whl</a>
<a href="https://elsewhere/demo-2.0%2Bcpu-py3-none-any.whl" data-yanked="broken &amp; gone">x</a>
<a href="demo-3.0.tar.gz" data-yanked>demo-3.0.tar.gz</a>
<a href="/about">about</a>
<base href="https://files/"><a href="demo-4.0.tar.gz">demo-4.0.tar.gz</a></body></html>"""


def test_an_html_index_is_read(server, web):
    server.pages["/simple/a-demo/"] = (200, {"Content-Type": "text/html"}, HTML.encode())
    one, two, three, four = project_files(web, f"{server.url}/simple/", "A.demo")
    assert (one.name, one.url) == (
        "demo-1.0-py3-none-any.whl",
        f"{server.url}/files/demo-1.0-py3-none-any.whl",
    )
    assert (one.sha256, one.requires_python, one.yanked) == ("aa", ">=3.8", None)
    assert (two.name, two.yanked) == ("demo-2.0+cpu-py3-none-any.whl", "broken & gone")
    assert (three.name, three.yanked, three.sha256) == ("demo-3.0.tar.gz", "", None)
    assert four.url == "https://files/demo-4.0.tar.gz"


def test_a_json_index_is_read(server, web):
    body = (
        b'{"files": [{"filename": "demo-1.0-py3-none-any.whl", "url": "../f/demo-1.0-py3-none-any.whl", "size": 7,'
        b' "hashes": {"sha256": "aa"}, "requires-python": ">=3.8", "yanked": "why"},'
        b' {"filename": "demo-2.0.tar.gz", "url": "https://e/demo-2.0.tar.gz", "hashes": {}, "yanked": false}]}'
    )
    server.pages["/simple/demo/"] = (200, {"Content-Type": "application/vnd.pypi.simple.v1+json"}, body)
    one, two = project_files(web, f"{server.url}/simple", "demo")
    assert one == File(
        name="demo-1.0-py3-none-any.whl",
        url=f"{server.url}/simple/f/demo-1.0-py3-none-any.whl",
        sha256="aa",
        size=7,
        requires_python=">=3.8",
        yanked="why",
    )
    assert (two.sha256, two.size, two.yanked) == (None, None, None)
    assert "application/vnd.pypi.simple.v1+json" in server.seen[0][2]["Accept"]


def test_a_json_answer_that_is_no_index_is_refused(server, web):
    server.pages["/simple/demo/"] = (200, {"Content-Type": "application/json"}, b'{"message": "hello"}')
    with pytest.raises(LockError, match="is not a simple index"):
        project_files(web, f"{server.url}/simple", "demo")


def test_an_unknown_project_has_no_files(server, web):
    assert project_files(web, f"{server.url}/simple", "demo") == []


def test_an_index_in_local_files_is_read(tmp_path, web):
    (tmp_path / "simple/demo").mkdir(parents=True)
    (tmp_path / "simple/demo/index.html").write_text('<a href="../../demo-1.0-py3-none-any.whl">demo</a>')
    (tmp_path / "demo-1.0-py3-none-any.whl").write_bytes(wheel(requires=["a>1"]))
    (file,) = project_files(web, (tmp_path / "simple").as_uri(), "demo")
    assert "Requires-Dist: a>1" in metadata(web, file)
    assert project_files(web, (tmp_path / "simple").as_uri(), "other") == []
    (tmp_path / "text").write_text("0123456789")
    for span, part in (((0, 3), b"012"), ((4, 2), b"45"), ((-3, 3), b"789"), ((-99, 99), b"0123456789")):
        assert web.get((tmp_path / "text").as_uri(), span=span).body == part
    with pytest.raises(LockError, match="Is a directory"):
        web.get(tmp_path.as_uri())


NOISE = random.Random(1).randbytes(4_000_000)


def noise(size):
    return NOISE[:size]


@pytest.mark.parametrize("force_zip64", [False, True])
def test_a_member_is_read_without_the_wheel(server, web, force_zip64):
    body = zipped(
        {"a/big.bin": noise(3_000_000), "a/b.py": "x = 1\n", "a/c.py": "y"}, force_zip64=force_zip64
    )
    server.pages["/w.whl"] = (200, {}, body)
    opened, counter = open_wheel(web, f"{server.url}/w.whl")
    assert opened.read("a/b.py") == b"x = 1\n"
    assert member(opened, r".*/c\.py") == "a/c.py"
    assert member(opened, r"c\.py") is None
    assert counter.fetched < 200_000 < counter.size
    with opened.open("a/big.bin") as big:
        assert big.read(100_000) == noise(100_000)
    assert counter.fetched < 500_000
    assert opened.read("a/big.bin") == noise(3_000_000)


def test_steps_double_while_reading_on(server, web):
    server.pages["/w.whl"] = (200, {}, zipped({"big": noise(4_000_000)}))
    opened, _ = open_wheel(web, f"{server.url}/w.whl")
    opened.read("big")
    assert len(server.seen) < 12


def test_one_read_is_bounded(server, web, monkeypatch):
    server.pages["/a"] = (200, {}, noise(5000))
    monkeypatch.setattr(archives, "LONGEST", 4000)
    file = archives.RangeFile(web, f"{server.url}/a")
    assert len(file.read(4000)) == 4000 and len(file.read()) == 1000
    file.seek(0)
    with pytest.raises(LockError, match="5000 bytes would be read at once"):
        file.read()


@rows(
    ("bounds", "allowed"),
    [(None, True), (">=3.11", True), (">=3.12", False), (">=3.11.5", True), ("about 3", True)],
)
def test_bounds_on_python_are_those_of_its_newest_release(bounds, allowed):
    assert allows_python(bounds, "3.11") is allowed


@rows(
    ("ranges", "data", "says"),
    [(False, wheel(), "does not support range requests"), (True, b"x" * 100_000, "is not a wheel")],
)
def test_a_server_without_range_requests_or_without_a_wheel_is_named(server, web, ranges, data, says):
    server.ranges, server.pages["/w.whl"] = ranges, (200, {}, data)
    with pytest.raises(LockError, match=says):
        open_wheel(web, f"{server.url}/w.whl")


def test_metadata_beside_the_wheel_comes_first(server, web):
    server.pages["/demo-1.0-py3-none-any.whl.metadata"] = (200, {}, b"Metadata-Version: 2.1\nName: beside\n")
    file = File(name="demo-1.0-py3-none-any.whl", url=f"{server.url}/demo-1.0-py3-none-any.whl")
    assert "beside" in metadata(web, file)
    assert len(server.seen) == 1


def test_metadata_comes_from_the_wheel_where_the_file_beside_it_is_useless(server, web):
    server.pages["/demo-1.0-py3-none-any.whl.metadata"] = (200, {}, b"<html>welcome</html>")
    server.pages["/demo-1.0-py3-none-any.whl"] = (200, {}, wheel())
    file = File(name="demo-1.0-py3-none-any.whl", url=f"{server.url}/demo-1.0-py3-none-any.whl")
    assert "Name: demo" in metadata(web, file)


def test_find_links_lists_wheels_and_passes_by_the_rest(tmp_path):
    for name in (
        "torch-2.13.0+cpu-cp311-cp311-manylinux_2_28_x86_64.whl",
        "b-1.0-py2.py3-none-any.whl",
        "not.whl",
        "b-1.0-py3-none-any-cu126.whl",  # uv takes no variant from a folder
    ):
        (tmp_path / name).write_bytes(b"")
    (tmp_path / "c-1.0.tar.gz").write_bytes(b"")
    b, torch = find_links([tmp_path])
    assert (b.name, b.version, b.tags) == ("b", "1.0", ("py2-none-any", "py3-none-any"))
    assert (torch.version, torch.tags) == ("2.13.0+cpu", ("cp311-cp311-manylinux_2_28_x86_64",))
    assert torch.url.startswith("file://")
    assert find_links([tmp_path.as_uri()]) == (b, torch)
    with pytest.raises(LockError, match=r"the folder of wheels .* does not exist"):
        find_links([tmp_path / "none"])


def test_requirements_of_a_local_wheel_are_read_and_a_damaged_one_is_refused(tmp_path):
    path = tmp_path / "demo-1.0-py3-none-any.whl"
    local = File(name=path.name, url=path.as_uri())
    path.write_bytes(wheel(requires=["numpy"]))
    assert IndexMetadata(PackageSources()).requirements(local) == ("numpy",)
    for damaged, reason in ((b"half", "is not a wheel: File is not a zip file"), (b"", "it is empty")):
        path.write_bytes(damaged)
        with pytest.raises(LockError, match=reason) as refused:
            IndexMetadata(PackageSources()).requirements(local)
        assert local.url in refused.value.message and "copy it again" in (refused.value.hint or "")
