"""Everything from outside is bounded: time, bytes, numbers in headers, members of archives."""

import base64
import bz2
import contextlib
import gzip
import hashlib
import http.server
import io
import os
import struct
import tarfile
import threading
import time
import zipfile

import pytest
from loopback import running
from rows import rows

from provision.bundle.wheels import build_requires
from provision.errors import BuildError, LockError
from provision.index import archives, downloads
from provision.index.archives import RangeFile, metadata
from provision.index.downloads import Download, add_credentials, part_path
from provision.index.http import Http
from provision.index.simple_api import File


@contextlib.contextmanager
def answering(respond):
    """A server whose answers `respond(handler)` writes, byte by byte where it likes."""

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_args):
            return

        def do_GET(self):
            seen.append((self.path, dict(self.headers)))
            self.close_connection = True
            with contextlib.suppress(ConnectionError):
                respond(self)

        do_HEAD = do_GET  # noqa: N815  # the name is http.server's

    seen = []
    with running(Handler) as address:
        yield f"http://{address}", seen


def head(handler, *lines, status="200 OK"):
    handler.wfile.write("\r\n".join([f"HTTP/1.1 {status}", *lines, "", ""]).encode("latin-1"))
    handler.wfile.flush()


def trickle(handler, piece=b"x", seconds=20.0):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        handler.wfile.write(piece)
        handler.wfile.flush()
        time.sleep(0.02)


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch):
    real = time.sleep
    monkeypatch.setattr("provision.index.http.time.sleep", lambda s: real(min(s, 0.02)))


def wanted(tmp_path, url, size=None, body=None):
    hashes = {"sha256": hashlib.sha256(body).hexdigest()} if body is not None else {"sha256": "0" * 64}
    return Download(path=tmp_path / "f", urls=(url,), shown="the file", hashes=hashes, size=size)


# --- time ------------------------------------------------------------------------------------------


def test_a_body_that_trickles_ends_at_the_deadline(monkeypatch):
    monkeypatch.setattr("provision.index.http.LONGEST", 0.3)

    def respond(handler):
        head(handler, "Content-Length: 1000000")
        trickle(handler)

    with (
        answering(respond) as (url, seen),
        pytest.raises(LockError, match="the response was not complete after"),
    ):
        Http(timeout=5).get(f"{url}/simple/")
    assert len(seen) == 1, "a server that trickles is not asked again"


def test_a_head_that_trickles_ends_at_the_deadline():
    def respond(handler):
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nX: ")
        trickle(handler)

    with (
        answering(respond) as (url, _),
        pytest.raises(LockError, match="the response headers were not complete in time"),
    ):
        Http(timeout=2, tries=1).get(f"{url}/simple/")


def test_a_download_that_trickles_is_given_up(tmp_path):
    def respond(handler):
        head(handler, "Content-Length: 1000000")
        trickle(handler)

    with answering(respond) as (url, seen), pytest.raises(LockError, match="bytes arrived in"):
        wanted(tmp_path, url, 1000000).fetch(Http(timeout=0.15), lambda _: None)
    assert len(seen) == downloads.TRIES
    assert part_path(tmp_path / "f").stat().st_size > 0, "the part stays"


# --- bytes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("told", [True, False])
def test_a_download_stops_at_the_expected_size(tmp_path, told):
    sent = []

    def respond(handler):
        head(handler, "Content-Length: 50000000" if told else "Connection: close")
        for _ in range(800):
            handler.wfile.write(b"\0" * 65536)
            sent.append(65536)

    with answering(respond) as (url, _), pytest.raises(BuildError, match="its size and hash differs"):
        wanted(tmp_path, url, 1000).fetch(Http(timeout=5), lambda _: None)
    assert not part_path(tmp_path / "f").exists()
    assert sum(sent) < 20_000_000, "the connection is closed, not drained"


def test_a_file_of_another_size_needs_no_folder(tmp_path):
    """The folder is made for the first byte, and the answer is refused before that."""

    def respond(handler):
        head(handler, "Content-Length: 2000")
        handler.wfile.write(b"\0" * 2000)

    with answering(respond) as (url, _), pytest.raises(BuildError, match="its size and hash differs"):
        wanted(tmp_path / "new", url, 1000).fetch(Http(timeout=5), lambda _: None)
    assert not (tmp_path / "new").exists()


def test_a_server_that_keeps_the_line_open_behind_the_file_is_not_waited_for(tmp_path):
    body = os.urandom(5000)
    done = threading.Event()

    def respond(handler):
        head(handler, "Connection: keep-alive")
        handler.wfile.write(body)
        handler.wfile.flush()
        done.wait(600)

    with answering(respond) as (url, _):
        began = time.monotonic()
        wanted(tmp_path, url, len(body), body).fetch(Http(timeout=600), lambda _: None)
        assert time.monotonic() - began < 300
        done.set()


def test_a_part_larger_than_asked_for_is_refused():
    def respond(handler):
        head(handler, "Content-Range: bytes 0-9/10", "Connection: close", status="206 Partial Content")
        for _ in range(800):
            handler.wfile.write(b"\0" * 65536)

    with (
        answering(respond) as (url, _),
        pytest.raises(LockError, match="the response has more than 100 bytes"),
    ):
        Http(timeout=5).get(url, span=(0, 100))


@rows(
    ("sent", "told"),
    [
        (b"", "closed the connection"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab", "ended the response too early"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab", "response ended after 2 of 5 bytes"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", "response ended after 0 of 5 bytes"),
    ],
)
def test_a_response_that_breaks_off_is_requested_again(sent, told):
    with answering(lambda handler: handler.wfile.write(sent)) as (url, seen):
        with pytest.raises(LockError, match=told):
            Http(timeout=5).get(url)
        assert len(seen) == 4


def test_a_kept_connection_that_ends_when_it_is_used_again_costs_no_try():
    served = set()

    def respond(handler):
        handler.close_connection = handler.client_address in served
        if not handler.close_connection:
            served.add(handler.client_address)
            head(handler, "Content-Length: 2")
            handler.wfile.write(b"ok")

    with answering(respond) as (url, seen):
        web = Http(timeout=5, tries=1)
        for _ in range(3):
            assert web.get(url).body == b"ok"
        assert (len(seen), len(served)) == (5, 3)


def test_a_missing_file_is_missing_before_its_page_arrives():
    done = threading.Event()

    def respond(handler):
        head(handler, "Content-Length: 100", status="404 Not Found")
        done.wait(60)

    with answering(respond) as (url, seen):
        assert Http(timeout=600).get(url, missing_ok=True) is None
        done.set()
    assert len(seen) == 1


# --- numbers in headers ----------------------------------------------------------------------------

NONSENSE = ["\xb2", "-5", "1_000", "ten", "9" * 5000, "1e3", "0x10", "1" * 16]


@pytest.mark.parametrize("number", NONSENSE)
def test_nonsense_as_content_length_is_the_servers_error(tmp_path, number):
    def respond(handler):
        head(handler, f"Content-Length: {number}")
        handler.wfile.write(b"body")

    with answering(respond) as (url, seen):
        with pytest.raises(
            LockError, match="the Content-Length header of the response is not a size"
        ) as caught:
            Http(timeout=5).get(f"{url}/simple/")
        assert caught.value.unreachable and len(caught.value.message) < 200 and len(seen) == 1
        with pytest.raises(LockError, match="the Content-Length header of the response is not a size"):
            wanted(tmp_path, url).fetch(Http(timeout=5), lambda _: None)
        with pytest.raises(LockError, match="is not a size"):
            Http(timeout=5).sizes([url])


@rows("said", [*NONSENSE[:4], *NONSENSE[5:7], "Mon, 01 Jan 99999999999999999999 00:00:00 GMT",
                                  "Mon, 32 Foo 2026 00:00:00 -9999", "x" * 500])  # fmt: skip
def test_nonsense_as_retry_after_is_the_servers_error(said):
    def respond(handler):
        head(handler, f"Retry-After: {said}", "Content-Length: 0", status="503 Busy")

    refused = pytest.raises(
        LockError, match=r"cannot serve the file now \(HTTP 503 Busy; its Retry-After is neither"
    )
    with answering(respond) as (url, seen), refused as caught:
        Http(timeout=5).get(url)
    assert len(seen) == 4 and len(caught.value.message) < 250


def test_a_retry_after_of_centuries_is_no_time_to_wait():
    def respond(handler):
        head(handler, f"Retry-After: {'9' * 4000}", "Content-Length: 0", status="429 Busy")

    with (
        answering(respond) as (url, seen),
        pytest.raises(LockError, match=r"rate-limited the request for the file \(HTTP 429"),
    ):
        Http(timeout=5).get(url)
    assert len(seen) == 1


@pytest.mark.parametrize(
    "told", ["bytes x-y/z", f"bytes 0-1/{'9' * 5000}", "bytes 5-6/7", "bytes 0-1/1", "", "bytes 0-1/*"]
)
def test_nonsense_as_content_range_is_the_servers_error(tmp_path, told):
    def respond(handler):
        head(handler, f"Content-Range: {told}", "Content-Length: 2", status="206 Partial Content")
        handler.wfile.write(b"ab")

    part_path(tmp_path / "f").write_bytes(b"a")
    with answering(respond) as (url, _):
        with pytest.raises(LockError):
            RangeFile(Http(timeout=5), url).read()
        with contextlib.suppress(LockError, BuildError):
            wanted(tmp_path, url, 100).fetch(Http(timeout=5, tries=1), lambda _: None)


@pytest.mark.parametrize(
    "place", ["http://[::1", "http://" + "a" * 70 + ".example/", "http://127.0.0.1:x/", "//\0/"]
)
def test_a_redirect_to_no_address_is_the_servers_error(tmp_path, place):
    def respond(handler):
        head(handler, f"Location: {place}", "Content-Length: 0", status="302 Found")

    with answering(respond) as (url, _):
        with pytest.raises(LockError):
            Http(timeout=5, tries=1).get(url)
        with pytest.raises(LockError):
            wanted(tmp_path, url).fetch(Http(timeout=5), lambda _: None)


# --- credentials -----------------------------------------------------------------------------------

BASIC = "Basic " + base64.b64encode(b"me:word").decode()


@rows("change", ["port", "host", "nothing"])
def test_credentials_follow_a_redirect_to_the_same_origin_only(change):
    def other(handler):
        head(handler, "Content-Length: 2")
        handler.wfile.write(b"ok")

    with answering(other) as (elsewhere, seen_there):

        def respond(handler):
            if handler.path == "/b":
                return other(handler)
            own = f"http://{handler.headers['Host']}"
            to = {"port": elsewhere, "host": own.replace("127.0.0.1", "localhost"), "nothing": own}[change]
            return head(handler, f"Location: {to}/b", "Content-Length: 0", status="302 Found")

        with answering(respond) as (url, seen):
            assert Http(timeout=5).get(url.replace("//", "//me:word@") + "/a").body == b"ok"
    requests = [*seen, *seen_there]
    assert requests[0][1]["Authorization"] == BASIC and len(requests) == 2
    assert requests[1][1].get("Authorization") == (BASIC if change == "nothing" else None)


@rows(
    ("url", "sent"),
    [
        ("https://host/f", True),
        ("https://host:443/f", True),
        ("https://HOST/f", True),
        ("http://host/f", False),
        ("http://host:443/f", False),
        ("https://host:8443/f", False),
        ("https://host.example/f", False),
        ("https://host:x/f", False),
        ("https://[::1/f", False),
        ("https://you:other@host/f", False),
        ("file://host/f", False),
    ],
)
def test_credentials_of_an_index_belong_to_its_scheme_host_and_port(url, sent):
    assert ("me:word@" in add_credentials(url, ["https://me:word@host/simple"])) is sent


# --- archives --------------------------------------------------------------------------------------


def bomb(size, method=zipfile.ZIP_DEFLATED, claims=None):
    """A wheel whose METADATA unpacks to `size` bytes and says that it has `claims`."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        archive.writestr("demo-1.0.dist-info/METADATA", b"\0" * size)
    data = bytearray(buffer.getvalue())
    if claims is not None:
        struct.pack_into("<I", data, data.rfind(b"PK\1\2") + 24, claims)
    return bytes(data)


@pytest.mark.parametrize(
    ("kind", "match"),
    [
        ((archives.MOST_TEXT + 1,), "bytes unpacked, expected at most"),
        ((archives.MOST_TEXT * 8, zipfile.ZIP_DEFLATED, 100), "cannot be decompressed"),
        ((1000, zipfile.ZIP_BZIP2), "expected deflate"),
        ((1000, zipfile.ZIP_LZMA), "expected deflate"),
    ],
)
def test_metadata_of_a_wheel_is_limited_before_it_is_decompressed(tmp_path, kind, match):
    path = tmp_path / "demo-1.0-py3-none-any.whl"
    path.write_bytes(bomb(*kind))
    with pytest.raises(LockError, match=match):
        metadata(Http(), File(name=path.name, url=path.as_uri()))


def sdist(tmp_path, suffix, members):
    path = tmp_path / f"demo-1.0{suffix}"
    if suffix == ".zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, data in members.items():
                archive.writestr(name, data)
        return path
    with tarfile.open(path, f"w:{suffix.rpartition('.')[2].removeprefix('tar')}") as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path


@pytest.mark.parametrize("suffix", [".tar.gz", ".tar.bz2", ".tar.xz", ".tar", ".zip"])
def test_build_requirements_are_read_from_a_source_archive(tmp_path, suffix):
    text = b'[build-system]\nrequires = ["hatchling>=1"]\n'
    members = {
        "demo-1.0/a.py": b"x" * 200_000,
        "demo-1.0/sub/pyproject.toml": b"",
        "demo-1.0/pyproject.toml": text,
    }
    assert build_requires(sdist(tmp_path, suffix, members)) == ("hatchling>=1",)
    assert build_requires(sdist(tmp_path, suffix, {"demo-1.0/setup.py": b""})) == ("setuptools", "wheel")


@pytest.mark.parametrize("suffix", [".tar.gz", ".zip"])
def test_a_pyproject_of_gigabytes_is_refused(tmp_path, suffix):
    path = sdist(tmp_path, suffix, {"demo-1.0/pyproject.toml": b"\n" * (archives.MOST_TEXT + 1)})
    with pytest.raises(LockError, match=r"pyproject\.toml has \d+ bytes unpacked"):
        build_requires(path)


def test_an_archive_that_unpacks_to_gigabytes_is_not_read_to_its_end(tmp_path, monkeypatch):
    monkeypatch.setattr(archives, "MOST_UNPACKED", 1 << 20)
    monkeypatch.setattr(archives, "_MOST_MEMBERS", 60)
    path = sdist(tmp_path, ".tar.gz", {"demo-1.0/a": b"\0" * (4 << 20), "demo-1.0/pyproject.toml": b""})
    with pytest.raises(LockError, match="its content has"):
        build_requires(path)
    path = sdist(
        tmp_path, ".tar", {f"demo-1.0/{'x' * 60000}{i}": b"" for i in range(50)}
    )  # long headers, no content
    with pytest.raises(LockError, match="its content has"):
        build_requires(path)
    path = sdist(tmp_path, ".tar", {f"demo-1.0/{i}": b"" for i in range(62)})
    with pytest.raises(LockError, match="more than 60 members"):
        build_requires(path)


@pytest.mark.parametrize("opener", [gzip.open, bz2.open])
def test_a_header_that_claims_gigabytes_is_not_read(tmp_path, opener):
    info = tarfile.TarInfo("././@PaxHeader")
    info.type, info.size = tarfile.XHDTYPE, 3 << 30
    path = tmp_path / f"demo-1.0.tar.{'gz' if opener is gzip.open else 'bz2'}"
    with opener(path, "wb") as file:
        file.write(info.tobuf() + b"\0" * (20 << 20))
    with pytest.raises(LockError, match="a header has"):
        build_requires(path)


@pytest.mark.parametrize("suffix", [".tar.gz", ".tar.bz2", ".tar.xz", ".zip"])
def test_a_damaged_source_archive_is_no_bug(tmp_path, suffix):
    path = sdist(
        tmp_path, suffix, {"demo-1.0/pyproject.toml": b"[build-system]\nrequires=['a']\n" + os.urandom(9000)}
    )
    data = path.read_bytes()
    for cut in (0, 5, 40, 600, len(data) // 2, len(data) - 3):
        path.write_bytes(data[:cut])
        assert build_requires(path) == ("setuptools", "wheel")
