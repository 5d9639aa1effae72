"""The door to indexes: real servers on loopback, real zips, pip's real files, and the measuring script."""

import hashlib
import http.server
import io
import random
import socket
import struct
import subprocess
import sys
import threading
import zipfile
from pathlib import Path

import pytest

from provision.cli import exit_codes
from provision.errors import LockError
from provision.index import connect_to_hosts, pip_config, scan_library_stream
from provision.index.http import Http
from provision.index.pip_config import PipConfig, default_index, pip_configuration, pip_files
from provision.index.remote_wheels import member, metadata, open_wheel, read_local_metadata
from provision.index.simple_api import File, project_files
from provision.index.wheel_folders import find_links
from provision.profiles.measure import jax_builds, torch_builds, wheel_reader, wheel_requirements
from provision.profiles.measure.cudnn_and_toolkit_wheels import cudnn_rows
from provision.profiles.measure.torch_builds import torch_rows
from provision.profiles.measure.wheel_reader import Reader
from provision.profiles.tables import Table
from provision.profiles.yaml_files import dump, read_file
from provision.system.redaction import redact

ROOT = Path(__file__).resolve().parents[2]


class Handler(http.server.BaseHTTPRequestHandler):
    """Serves `server.pages` (path -> status, headers, body), whole or in ranges; counts requests."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.server.seen.append((self.command, self.path, dict(self.headers)))
        page = self.server.pages.get(self.path.partition("?")[0], (404, {}, b"no"))
        status, headers, body = (
            page.pop(0)
            if isinstance(page, list) and len(page) > 1
            else (page[0] if isinstance(page, list) else page)
        )
        wanted = self.headers.get("Range")
        if wanted and status == 200 and self.server.ranges:
            first, last = wanted.removeprefix("bytes=").split("-")
            start = len(body) - int(last) if not first else int(first)
            start = max(0, start)
            end = len(body) if not first else min(len(body), int(last) + 1)
            headers = headers | {"Content-Range": f"bytes {start}-{end - 1}/{len(body)}"}
            status, body = 206, body[start:end]
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_HEAD = do_GET  # noqa: N815  # the name is http.server's

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    made = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made.daemon_threads = True
    made.pages, made.seen, made.ranges = {}, [], True
    made.url = f"http://127.0.0.1:{made.server_port}"
    thread = threading.Thread(target=made.serve_forever, args=(0.02,))
    thread.start()
    yield made
    made.shutdown()
    made.server_close()
    thread.join()


@pytest.fixture
def web(monkeypatch):
    monkeypatch.setattr("provision.index.http.time.sleep", lambda _: None)
    return Http()


def zipped(files, *, force_zip64=False):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            with archive.open(name, "w", force_zip64=force_zip64) as member:
                member.write(data.encode() if isinstance(data, str) else data)
    return buffer.getvalue()


def wheel(name="demo", version="1.0", requires=(), python=None, files=()):
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    lines += [f"Requires-Python: {python}"] if python else []
    lines += [f"Requires-Dist: {r}" for r in requires]
    return zipped({f"{name}-{version}.dist-info/METADATA": "\n".join(lines) + "\n", **dict(files)})


# --- requests ------------------------------------------------------------------------------


def test_a_busy_server_is_asked_again_and_no_more_than_it_should(server, web):
    server.pages["/a"] = [(503, {}, b""), (200, {}, b"ok")]
    assert web.get(f"{server.url}/a").body == b"ok"
    server.pages["/b"] = (503, {}, b"")
    with pytest.raises(LockError, match=r"cannot serve the file now \(HTTP 503"):
        web.get(f"{server.url}/b")
    assert [path for _, path, _ in server.seen] == ["/a", "/a", "/b", "/b", "/b", "/b"]


def test_a_missing_page_is_none_or_an_error(server, web):
    assert web.get(f"{server.url}/none", missing_ok=True) is None
    with pytest.raises(LockError, match=r"does not have the file \(HTTP 404") as caught:
        web.get(f"{server.url}/none")
    assert caught.value.unreachable == f"{server.url}/none"
    assert len(server.seen) == 2


def test_credentials_are_sent_and_never_shown(server, web):
    server.pages["/a"] = (200, {}, b"ok")
    secret = server.url.replace("//", "//bob:s%20cret@")
    web.get(f"{secret}/a")
    assert server.seen[0][2]["Authorization"] == "Basic Ym9iOnMgY3JldA=="
    with pytest.raises(LockError) as caught:
        web.get(f"{secret}/none?token=hidden")
    told = f"{caught.value} {caught.value.unreachable}"
    assert "cret" not in told
    assert "hidden" not in told


def test_a_host_that_refuses_is_unreachable(web):
    with pytest.raises(LockError, match="the server refuses the connection") as caught:
        web.get("http://u:secret@127.0.0.1:9/simple/")
    assert caught.value.unreachable == "http://127.0.0.1:9/simple/"
    assert exit_codes.get_error_code(caught.value) == 6


def test_a_redirect_is_followed_but_not_to_a_file_and_not_with_credentials(server, web):
    server.pages["/a"] = (302, {"Location": f"http://localhost:{server.server_port}/b"}, b"")
    server.pages["/b"] = (200, {}, b"ok")
    server.pages["/file"] = (302, {"Location": "file:///etc/passwd"}, b"")
    assert web.get(server.url.replace("//", "//bob:x@") + "/a").body == b"ok"
    assert "Authorization" in server.seen[0][2]
    assert "Authorization" not in server.seen[1][2]
    with pytest.raises(LockError):
        web.get(f"{server.url}/file")


def test_an_address_of_another_scheme_is_refused(web):
    with pytest.raises(LockError, match="is not an http, https or file URL"):
        web.get("ftp://host/simple/")


def test_sizes_are_asked_by_head(server, web):
    server.pages["/a"] = (200, {}, b"12345")
    told = web.sizes([f"{server.url}/a", f"{server.url}/none", f"{server.url}/a"])
    assert told == {f"{server.url}/a": 5, f"{server.url}/none": None}
    assert sorted(path for method, path, _ in server.seen if method == "HEAD") == ["/a", "/none"]


def test_the_addresses_of_a_host_are_looked_up_once(server, web, monkeypatch):
    asked, real = [], socket.getaddrinfo

    def counting(host, *args, **options):
        asked.append(host)
        return real(host, *args, **options)

    monkeypatch.setattr(socket, "getaddrinfo", counting)
    server.pages["/a"] = (200, {}, b"12345")
    url = server.url.replace("127.0.0.1", "localhost")
    web.sizes([f"{url}/a?{i}" for i in range(12)])
    assert asked.count("localhost") == 1
    assert len([1 for method, *_ in server.seen if method == "HEAD"]) == 12


def test_a_host_that_refuses_is_looked_up_again(web):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    for _ in range(2):
        with pytest.raises(LockError, match="the server refuses the connection"):
            web.get(f"http://localhost:{port}/simple/")
    assert connect_to_hosts._hosts["localhost", port].until == 0.0


def test_the_size_of_a_local_file_is_read_without_its_bytes(tmp_path, web):
    path = tmp_path / "a.whl"
    path.write_bytes(b"12345")
    answer = web.get(path.as_uri(), head=True)
    assert (answer.headers["content-length"], answer.body) == ("5", b"")
    assert web.sizes([path.as_uri()]) == {path.as_uri(): 5}


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://u:p@host:8443/simple/?t=1#sha256=ab", "https://host:8443/simple/#sha256=ab"),
        ("https://token@host/simple", "https://host/simple"),
        ("https://host/simple", "https://host/simple"),
        ("file:///srv/simple", "file:///srv/simple"),
        ("/srv/wheels", "/srv/wheels"),
    ],
)
def test_credentials_are_removed_from_an_address(url, shown):
    assert redact(url) == shown


# --- simple indexes -------------------------------------------------------------------------

HTML = """<!DOCTYPE html><html><body><h1>Links</h1>
<a href="../../files/demo-1.0-py3-none-any.whl#sha256=aa" data-requires-python="&gt;=3.8">demo-1.0-py3-none-any.whl</a>
<a href="https://elsewhere/demo-2.0%2Bcpu-py3-none-any.whl" data-yanked="broken &amp; gone">x</a>
<a href="demo-3.0.tar.gz" data-yanked>demo-3.0.tar.gz</a>
<a href="/about">about</a></body></html>"""


def test_an_html_index_is_read(server, web):
    server.pages["/simple/a-demo/"] = (200, {"Content-Type": "text/html"}, HTML.encode())
    one, two, three = project_files(web, f"{server.url}/simple/", "A.demo")
    assert (one.name, one.url) == (
        "demo-1.0-py3-none-any.whl",
        f"{server.url}/files/demo-1.0-py3-none-any.whl",
    )
    assert (one.sha256, one.requires_python, one.yanked) == ("aa", ">=3.8", None)
    assert (two.name, two.yanked) == ("demo-2.0+cpu-py3-none-any.whl", "broken & gone")
    assert (three.name, three.yanked, three.sha256) == ("demo-3.0.tar.gz", "", None)


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


# --- wheels in parts ------------------------------------------------------------------------


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


def test_a_server_without_range_requests_is_named(server, web):
    server.ranges = False
    server.pages["/w.whl"] = (200, {}, wheel())
    with pytest.raises(LockError, match="does not support range requests"):
        open_wheel(web, f"{server.url}/w.whl")


def test_a_file_that_is_no_wheel_is_refused(server, web):
    server.pages["/w.whl"] = (200, {}, b"x" * 100_000)
    with pytest.raises(LockError, match="is not a wheel"):
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


def test_metadata_of_a_local_wheel_is_read(tmp_path):
    path = tmp_path / "demo-1.0-py3-none-any.whl"
    path.write_bytes(wheel(requires=["numpy"]))
    assert "Requires-Dist: numpy" in read_local_metadata(path)
    path.write_bytes(b"half")
    with pytest.raises(LockError, match="is not a readable wheel"):
        read_local_metadata(path)


# --- pip's configuration -----------------------------------------------------------------------


@pytest.fixture
def home(tmp_path):
    """An environment whose every pip.conf lies under tmp_path (but /etc/pip.conf, which is named last)."""
    return {
        "HOME": str(tmp_path / "home"),
        "XDG_CONFIG_DIRS": str(tmp_path / "xdg"),
        "VIRTUAL_ENV": str(tmp_path / "venv"),
    }


def conf(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_pip_files_are_read_in_pips_order(tmp_path, home):
    places = [
        "xdg/pip/pip.conf",
        "home/.pip/pip.conf",
        "home/.config/pip/pip.conf",
        "venv/pip.conf",
        "named.conf",
    ]
    for n, place in enumerate(places):
        conf(tmp_path / place, f"[global]\nindex-url = https://{n}/simple\ntimeout = 3\n")
        assert pip_configuration(home).index_url == f"https://{min(n, 3)}/simple"
    named = home | {"PIP_CONFIG_FILE": str(tmp_path / "named.conf")}
    assert pip_configuration(named).index_url == "https://4/simple"
    assert pip_configuration(named | {"PIP_INDEX_URL": "https://env/"}).index_url == "https://env/"
    files = pip_files(named)
    assert tmp_path / "home/.config/pip/pip.conf" not in files  # PIP_CONFIG_FILE stands for the user's
    assert pip_files(home | {"PIP_CONFIG_FILE": "/dev/null"}) == []


def test_all_keys_of_a_pip_conf_are_read(tmp_path, home):
    conf(
        tmp_path / "venv/pip.conf",
        "[global]\nextra_index_url =\n    https://a/simple\n    https://u:p%w@b/simple\nfind-links = /w1 /w2\n"
        "trusted-host = a b:80\ncert = /ca.pem\nproxy = http://p:3128\nno-index = false\n[install]\nno-index = YES\n",
    )
    assert pip_configuration(home | {"PIP_TRUSTED_HOST": "c"}) == PipConfig(
        index_url=pip_configuration({**home, "VIRTUAL_ENV": ""}).index_url,
        extra_index_urls=("https://a/simple", "https://u:p%w@b/simple"),
        find_links=("/w1", "/w2"),
        trusted_hosts=("c",),
        cert="/ca.pem",
        proxy="http://p:3128",
        no_index=True,
    )


def test_a_broken_pip_conf_is_named(tmp_path, home):
    conf(tmp_path / "venv/pip.conf", "index-url = no section\n")
    with pytest.raises(LockError, match=r"venv/pip.conf is not a valid configuration of pip"):
        pip_configuration(home)


def test_the_default_index_is_what_is_configured(home):
    assert default_index(home | {"PIP_INDEX_URL": "https://mirror/simple/"}) == "https://mirror/simple"
    assert (
        default_index(home | {"UV_DEFAULT_INDEX": "https://u/s", "PIP_INDEX_URL": "https://p"})
        == "https://u/s"
    )


def test_where_nothing_is_configured_uv_is_asked_once(server, tmp_path, home, monkeypatch):
    body = wheel("packaging", "24.0")
    link = '<a href="/f/packaging-24.0-py3-none-any.whl">packaging-24.0-py3-none-any.whl</a>'
    server.pages["/simple/packaging/"] = (200, {"Content-Type": "text/html"}, link.encode())
    server.pages["/f/packaging-24.0-py3-none-any.whl"] = (200, {}, body)
    conf(tmp_path / "config/uv/uv.toml", f'index-url = "{server.url}/simple"\n')
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv"))
    for name in ("UV_INDEX_URL", "UV_DEFAULT_INDEX", "UV_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    pip_config._ask_uv.cache_clear()
    try:
        assert default_index(home, cache_dir=tmp_path / "cache") == f"{server.url}/simple"
        asked = len(server.seen)
        pip_config._ask_uv.cache_clear()
        assert default_index(home, cache_dir=tmp_path / "cache") == f"{server.url}/simple"
        assert len(server.seen) == asked
        (kept,) = (tmp_path / "cache").glob("default-index-*")
        kept.write_bytes(b"\xff no address\n")  # damaged: asked again, and written anew
        pip_config._ask_uv.cache_clear()
        assert default_index(home, cache_dir=tmp_path / "cache") == f"{server.url}/simple"
        assert kept.read_text() == f"{server.url}/simple\n"
    finally:
        pip_config._ask_uv.cache_clear()


def test_the_kept_default_index_belongs_to_all_that_decided_it(tmp_path, monkeypatch):
    program = tmp_path / "uv"
    program.write_bytes(b"one")
    monkeypatch.setattr("provision.index.uv.program", lambda: str(program))
    settings = {"UV_INDEX": "https://a/simple"}
    keys = [pip_config._key(s) for s in ({}, settings, {"UV_INDEX": "https://b/simple"})]
    program.write_bytes(b"another uv")
    keys.append(pip_config._key(settings))
    assert len(set(keys)) == len(keys) and keys[-1] == pip_config._key(dict(settings))


# --- GPU code -----------------------------------------------------------------------------------


def fatbin(*entries):
    """A fat binary of (kind, architecture) entries, each with a payload that holds no magic."""
    body = b""
    for kind, arch in entries:
        payload = bytes(40)
        header = struct.pack("<HHIQ", kind, 0x101, 64, len(payload)) + bytes(12) + struct.pack("<I", arch)
        body += header + bytes(64 - len(header)) + payload
    return scan_library_stream.MAGIC + struct.pack("<HHQ", 1, 16, len(body)) + body


def test_kernels_are_read_from_fat_binaries():
    library = bytes(1000) + fatbin((2, 70), (2, 90), (1, 90)) + bytes(77) + fatbin((2, 120))
    found = scan_library_stream.read_fatbins(io.BytesIO(library), enough=9, budget=1 << 20)
    assert scan_library_stream.from_binaries(found) == "7.0 9.0+PTX 12.0"
    assert found.fatbins == 2
    first = scan_library_stream.read_fatbins(io.BytesIO(library), enough=1, budget=1 << 20)
    assert scan_library_stream.from_binaries(first) == "7.0 9.0+PTX"


def test_the_magic_alone_is_no_fat_binary():
    for junk in (
        scan_library_stream.MAGIC,
        scan_library_stream.MAGIC + bytes(100),
        scan_library_stream.MAGIC + struct.pack("<HHQ", 1, 16, 1000) + b"\xff" * 80,
    ):
        assert (
            scan_library_stream.read_fatbins(io.BytesIO(junk), enough=1, budget=1 << 20).kinds == frozenset()
        )
    half = fatbin((2, 80))[:50]
    assert scan_library_stream.read_fatbins(io.BytesIO(half), enough=1, budget=1 << 20).fatbins == 0


def test_the_magic_across_two_reads_is_seen():
    library = bytes(scan_library_stream.CHUNK - 2) + fatbin((2, 86))
    assert (
        scan_library_stream.from_binaries(
            scan_library_stream.read_fatbins(io.BytesIO(library), enough=1, budget=1 << 20)
        )
        == "8.6"
    )


def test_reading_ends_with_the_budget():
    library = bytes(3 * scan_library_stream.CHUNK) + fatbin((2, 86))
    found = scan_library_stream.read_fatbins(io.BytesIO(library), enough=1, budget=scan_library_stream.CHUNK)
    assert (found.fatbins, found.read) == (0, scan_library_stream.CHUNK)


def test_kernels_are_read_from_architecture_names():
    assert scan_library_stream.from_words(["sm_90a", "sm_120", "sm_75", "compute_120"]) == "7.5 9.0a 12.0+PTX"


def test_the_cuda_of_a_build_is_read_from_its_machine_code():
    x86 = b"\x7fELF" + bytes(14) + b"\x3e\x00" + bytes(44)
    assert jax_builds.cuda_in_code(
        x86 + b"\xbf" + struct.pack("<I", 12090) + struct.pack("<I", 12080), 12
    ) == {"12.9"}
    assert jax_builds.cudnn_numbers(
        x86 + b"\xb8" + struct.pack("<I", 91002) + b"\xbe" + struct.pack("<I", 7)
    ) == [91002]
    arm = b"\x7fELF" + bytes(14) + b"\xb7\x00" + bytes(44)
    assert jax_builds.cuda_in_code(arm + struct.pack("<I", 0x52800000 | 13000 << 5), 13) == {"13.0"}
    assert jax_builds.cuda_in_code(arm + b"\x00" + struct.pack("<I", 0x52800000 | 13000 << 5), 13) == set()


# --- measuring ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tag", "told"),
    [
        ("manylinux1_x86_64", ("linux-x86_64", "2.5")),
        ("manylinux2014_aarch64", ("linux-aarch64", "2.17")),
        ("manylinux_2_28_x86_64", ("linux-x86_64", "2.28")),
        ("linux_aarch64", ("linux-aarch64", None)),
        ("win_amd64", ("windows-x86_64", None)),
        ("any", ("any", None)),
        ("macosx_11_0_arm64", None),
        ("win_arm64", None),
    ],
)
def test_a_platform_tag_gives_platform_and_glibc(tag, told):
    assert wheel_reader.platform_of(tag) == told


def test_requirements_of_a_platform_keep_a_marker_only_for_some_pythons():
    lines = [
        'triton==3.1.0; platform_system == "Linux" and python_version < "3.13"',
        'nvidia-x (>=1,<2) ; extra == "and-cuda"',
        'nvidia-w; platform_system == "Windows"',
        'nvidia-new; python_version >= "3.12"',
        "numpy",
    ]
    minors = ("3.11", "3.12", "3.13")
    held = wheel_requirements.required(lines, "linux-x86_64", minors, ("and-cuda",))
    assert [
        wheel_requirements.written(r, w, minors)
        for r, w in held
        if wheel_requirements.GPU_NAMES.fullmatch(r.name)
    ] == [
        'triton==3.1.0; python_version < "3.13"',
        "nvidia-x<2,>=1",
        'nvidia-new; python_version >= "3.12"',
    ]


def test_a_companion_that_names_no_torch_goes_with_its_own_minor_only():
    from packaging.specifiers import SpecifierSet
    from packaging.version import Version

    known = [(Version("2.11.0"), None), (Version("2.10.0"), SpecifierSet("==2.10.0"))]
    assert str(torch_builds.companion_for(Version("2.11.1"), known)) == "2.11.0"
    assert str(torch_builds.companion_for(Version("2.10.0"), known)) == "2.10.0"
    assert torch_builds.companion_for(Version("2.12.0"), known) is None
    assert torch_builds.companion_for(Version("1.12.0"), known) is None


@pytest.fixture
def small_index(tmp_path):
    """A file index with one torch release for three platforms, its companions and one cuDNN."""
    files = {}

    def add(project, filename, body):
        files.setdefault(project, []).append(filename)
        (tmp_path / "files").mkdir(exist_ok=True)
        (tmp_path / "files" / filename).write_bytes(body)

    arches = b"\0sm_75 compute_80\0GLIBC_2.14\0GLIBC_2.17\0"
    pins = [
        'nvidia-cudnn-cu12==9.1.0.70; platform_system == "Linux" and platform_machine == "x86_64"',
        "numpy",
    ]
    for python in ("cp311-cp311", "cp312-cp312", "cp313-cp313t"):
        inside = {
            "torch/version.py": "__version__ = '2.6.0+cu124'\ncuda = '12.4'\n",
            "torch/lib/libtorch_python.so": arches,
            "torch/lib/libtorch_cuda.so": bytes(9) + fatbin((2, 75)),
        }
        add(
            "torch",
            f"torch-2.6.0-{python}-manylinux1_x86_64.whl",
            wheel("torch", "2.6.0", pins, files=inside.items()),
        )
    inside = {"torch/version.py": "cuda: Optional[str] = None\n"}
    add("torch", "torch-2.6.0-cp312-cp312-win_amd64.whl", wheel("torch", "2.6.0", pins, files=inside.items()))
    add("torch", "torch-2.6.0-cp312-cp312-manylinux_2_28_aarch64.whl", wheel("torch", "2.6.0", pins))
    add(
        "torchvision",
        "torchvision-0.21.0-cp312-cp312-win_amd64.whl",
        wheel("torchvision", "0.21.0", ["torch==2.6.0"]),
    )
    ops = {
        "nvidia/cudnn/lib/libcudnn.so.9": "",
        "nvidia/cudnn/lib/libcudnn_ops.so.9": bytes(100) + fatbin((2, 75), (1, 90)),
    }
    name = "nvidia_cudnn_cu12-9.1.0.70-py3-none-manylinux2014_x86_64.whl"
    add("nvidia-cudnn-cu12", name, wheel("nvidia_cudnn_cu12", "9.1.0.70", files=ops.items()))
    for project, names in files.items():
        (tmp_path / "simple" / project).mkdir(parents=True)
        hashes = {n: hashlib.sha256(n.encode()).hexdigest() for n in names}
        links = [f'<a href="../../files/{n}#sha256={digest}">{n}</a>' for n, digest in hashes.items()]
        (tmp_path / "simple" / project / "index.html").write_text("\n".join(links))
    return tmp_path


def test_rows_are_measured_and_unreadable_wheels_are_reported(small_index, web):
    made = Reader(web, (small_index / "simple").as_uri(), None)
    linux, windows = torch_rows(made, {})
    assert linux["cuda"] == "12.4"
    assert linux["kernels"] == "7.5"  # PTX without machine code of its own is not claimed
    assert linux["glibc"] == "2.17"  # the tag says 2.5, the symbols say more
    assert linux["python"] == "3.11 3.12"
    assert linux["requires"] == ["nvidia-cudnn-cu12==9.1.0.70"]
    assert linux["cudnn"] == "==9.1.0.70"
    assert linux["companions"] == ["torchvision==0.21.0"]
    assert "cuda" not in windows
    assert "requires" not in windows
    (problem,) = made.problems
    assert problem.startswith("torch-2.6.0-cp312-cp312-manylinux_2_28_aarch64.whl: ")
    (cudnn,) = cudnn_rows(
        made, {"floors": [{"cuda": "12", "driver_linux": "525.60.13", "driver_windows": "1"}]}
    )
    assert (cudnn["kernels"], cudnn["libraries"]) == ("7.5", ["libcudnn.so.9", "libcudnn_ops.so.9"])
    assert cudnn["driver_linux"] == "525.60.13"


def test_architectures_without_code_behind_them_are_no_row(small_index, web):
    for path in (small_index / "files").glob("torch-2.6.0-*-manylinux1_x86_64.whl"):
        with zipfile.ZipFile(path) as old:
            files = {n: old.read(n) for n in old.namelist()} | {"torch/lib/libtorch_cuda.so": fatbin((2, 80))}
        path.write_bytes(zipped(files))
    made = Reader(web, (small_index / "simple").as_uri(), None)
    assert [r["platform"] for r in torch_rows(made, {})] == ["windows-x86_64"]
    assert any("torch names sm_75, but" in p for p in made.problems)


def test_a_second_run_reads_no_wheel_again(small_index, web):
    url, cache = (small_index / "simple").as_uri(), small_index / "cache"
    first = Reader(web, url, cache)
    rows = torch_rows(first, {})
    assert first.read_count == 3  # two of torch, one of torchvision
    next(cache.iterdir()).write_text("{")  # as a killed run leaves it
    second = Reader(web, url, cache)
    assert torch_rows(second, {}) == rows
    assert second.read_count == 1


def script(folder, *arguments):
    argv = [sys.executable, str(ROOT / "scripts/update_profiles.py"), "--profiles", str(folder / "profiles")]
    argv += ["--index", (folder / "simple").as_uri(), "--cache", str(folder / "cache"), *arguments]
    return subprocess.run(argv, capture_output=True, text=True, timeout=300, check=False)


def test_the_script_shows_a_difference_and_writes_only_when_asked(small_index):
    path = small_index / "profiles/torch.yaml"
    path.parent.mkdir()
    head = {
        "table": "builds",
        "framework": "torch",
        "source": "by hand",
        "read": "2026-11-20",
        "kept": "by hand",
    }
    row = {"version": "1.0", "platform": "linux-x86_64", "index": "pytorch", "python": "3.8"}
    path.write_text(dump([Table(head=head, rows=(row,))]))
    before = path.read_text()
    shown = script(small_index, "torch")
    assert shown.returncode == 0, shown.stderr
    assert '+  - {version: "2.6.0", cuda: "12.4"' in shown.stdout
    assert "left out: torch-2.6.0-cp312-cp312-manylinux_2_28_aarch64.whl" in shown.stderr
    assert path.read_text() == before
    script(small_index, "torch", "--write")
    tables, problems = read_file(path)
    assert problems == []
    assert [t.head["kept"] for t in tables] == ["measured", "by hand"]
    assert tables[1].rows == (row,)
    again = script(small_index, "torch")
    assert again.stdout == ""
    assert "0 files differ" in again.stderr


def test_the_script_reads_random_rows_again(small_index):
    path = small_index / "profiles/torch.yaml"
    path.parent.mkdir()
    script(small_index, "torch", "--write")
    assert script(small_index, "--sample", "2").returncode == 0
    path.write_text(
        path.read_text()
        .replace('kernels: "7.5"', 'kernels: "7.0"')
        .replace('python: "3.12"', 'python: "3.9"')
    )
    spoiled = script(small_index, "--sample", "2")
    assert spoiled.returncode == 1
    assert "DIFFERS: torch 2.6.0" in spoiled.stdout


def test_the_script_stops_when_the_index_does(tmp_path):
    argv = [
        sys.executable,
        str(ROOT / "scripts/update_profiles.py"),
        "cudnn",
        "--index",
        "http://127.0.0.1:9/simple",
    ]
    done = subprocess.run(
        [*argv, "--profiles", str(tmp_path), "--cache", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 6
    assert "refuses the connection" in done.stderr
    assert list(tmp_path.iterdir()) == []
