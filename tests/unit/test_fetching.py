"""Whole files from an index: resumed, held against their hash, and looked for where they may lie today."""

import hashlib
import http.server
import os
from pathlib import Path

import pytest
from loopback import started

from provision.errors import BuildError, LockError
from provision.index import downloads
from provision.index.downloads import Addresses, Download, part_path
from provision.index.http import Http
from provision.model import LockedPackage

SIZE = 3 << 20
BODY = os.urandom(SIZE)
SHA = {"sha256": hashlib.sha256(BODY).hexdigest()}


class Handler(http.server.BaseHTTPRequestHandler):
    """Serves `files`, in parts where `ranges`; `break_after` ends answers early, as many as it has numbers."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        server = self.server
        server.seen.append((self.path, self.headers.get("Range"), self.headers.get("Authorization")))
        body = server.files.get(self.path)
        if body is None:
            return self.send_error(404)
        start, total, status = 0, len(body), 200
        wanted = self.headers.get("Range")
        if wanted and server.ranges:
            start = int(wanted.removeprefix("bytes=").rstrip("-"))
            if start >= total:
                return self.send_error(416)
            status, body = 206, body[start:]
        self.send_response(status)
        if status == 206:
            self.send_header("Content-Range", f"bytes {start}-{total - 1}/{total}")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if server.break_after:
            self.wfile.write(body[: server.break_after.pop(0)])
            self.close_connection = True
            return None
        return self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    with started(Handler) as made:
        made.files, made.seen, made.ranges, made.break_after = {"/f": BODY}, [], True, []
        made.url = f"http://127.0.0.1:{made.server_port}"
        yield made


@pytest.fixture
def fetch(server, tmp_path, monkeypatch):
    """Fetch the file; returns the bytes that were told."""
    monkeypatch.setattr(downloads.time, "sleep", lambda _: None)

    def run(*urls, hashes=SHA, size=SIZE):
        told = []
        wanted = Download(
            path=tmp_path / "f", urls=urls or (f"{server.url}/f",), shown="the file", hashes=hashes, size=size
        )
        wanted.fetch(Http(), told.append)
        assert (tmp_path / "f").read_bytes() == BODY and not part_path(tmp_path / "f").exists()
        return sum(told)

    run.part = part_path(tmp_path / "f")
    return run


def test_a_file_is_fetched_whole(server, fetch):
    assert fetch() == len(BODY) and len(server.seen) == 1


def test_a_connection_that_breaks_is_gone_on_with(server, fetch):
    server.break_after = [1 << 20, 100_000, 0, 0, 0]
    assert fetch() == len(BODY)
    starts = [r for _, r, _ in server.seen]
    assert starts == [None, "bytes=1048576-", *["bytes=1148576-"] * 4]


def test_a_dead_line_is_given_up_and_the_part_stays(server, fetch):
    server.break_after = [1000] + [0] * 50
    with pytest.raises(LockError, match=r"cannot read the file: .*ended after 1000 of 3145728") as caught:
        fetch()
    assert caught.value.unreachable and fetch.part.stat().st_size == 1000
    assert len(server.seen) == 1 + downloads.TRIES


@pytest.mark.parametrize("ranges", [True, False])
def test_what_a_killed_run_left_counts(server, fetch, ranges):
    fetch.part.write_bytes(BODY[:2_000_000])
    server.ranges = ranges
    assert fetch() == len(BODY), "the bytes told are those that are there"
    assert [r for _, r, _ in server.seen] == ["bytes=2000000-"]


def test_a_part_that_is_whole_is_not_fetched_again(server, fetch):
    fetch.part.write_bytes(BODY)
    assert fetch() == len(BODY) and not server.seen


@pytest.mark.parametrize("size", [len(BODY), None])
def test_a_part_that_is_too_long_is_thrown_away(server, fetch, size):
    fetch.part.write_bytes(BODY + b"more")
    assert fetch(size=size) == len(BODY)


def test_a_part_of_another_file_is_fetched_anew(server, fetch):
    fetch.part.write_bytes(b"x" * 1000)
    assert fetch() == len(BODY)
    assert [r for _, r, _ in server.seen] == ["bytes=1000-", None]


def test_a_wrong_file_is_refused_and_thrown_away(server, fetch):
    server.files["/f"] = BODY[:-1] + bytes([BODY[-1] ^ 1])
    with pytest.raises(BuildError, match=r"the file .*hash differs"):
        fetch()
    assert not fetch.part.exists()


def test_the_next_address_is_tried(server, fetch, tmp_path):
    server.files["/wrong"] = BODY[::-1]
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (folder / "f").write_bytes(BODY)
    fetch(f"{server.url}/gone", f"{server.url}/wrong", (folder / "none").as_uri(), (folder / "f").as_uri())
    assert [p for p, _, _ in server.seen] == ["/gone", "/wrong"]


def test_a_file_that_has_only_an_md5_hash_is_fetched(fetch):
    fetch(hashes={"md5": hashlib.md5(BODY, usedforsecurity=False).hexdigest()})


def test_a_full_disk_is_no_network_error(server, tmp_path):
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full")
    half = part_path(tmp_path / "f")
    half.symlink_to("/dev/full")
    wanted = Download(
        path=tmp_path / "f", root=Path("/"), urls=(f"{server.url}/f",), shown="the file", hashes=SHA
    )
    with pytest.raises(BuildError, match="is full"):
        wanted.fetch(Http(), lambda _: None)
    assert len(server.seen) == 1


def test_an_interrupt_ends_the_download_and_keeps_the_part(server, tmp_path):
    wanted = Download(path=tmp_path / "f", urls=(f"{server.url}/f",), shown="the file", hashes=SHA)

    def told(count):
        if count:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        wanted.fetch(Http(), told)
    assert part_path(tmp_path / "f").stat().st_size > 0 and len(server.seen) == 1


# --- where a file may lie ------------------------------------------------------------------------


def locked(url, at=None):
    return LockedPackage(name="demo", version="1.0", url=url, sha256=SHA["sha256"], index=at)


def page(server, path, sha=SHA["sha256"], href="/mirror/demo-1.0-py3-none-any.whl"):
    server.files[path] = f'<a href="{href}#sha256={sha}">demo-1.0-py3-none-any.whl</a>'.encode()


def test_a_file_of_a_configured_index_is_asked_for_at_its_own_address(server):
    mine = f"{server.url}/simple"
    found = Addresses(Http(), []).find(locked(f"{server.url}/files/demo-1.0-py3-none-any.whl", mine), [mine])
    assert next(found) == f"{server.url}/files/demo-1.0-py3-none-any.whl"
    assert not server.seen, "no page is read before it is needed"


def test_a_lock_of_another_network_is_looked_up_by_hash_on_the_indexes_of_this_one(server):
    page(server, "/a/demo/", sha="0" * 64)
    page(server, "/b/demo/")
    package = locked("http://127.0.0.1:9/demo-1.0-py3-none-any.whl", "http://127.0.0.1:9/simple")
    found = list(Addresses(Http(), []).find(package, [f"{server.url}/a", f"{server.url}/b"]))
    assert found == [f"{server.url}/mirror/demo-1.0-py3-none-any.whl", package.url]


def test_an_index_that_is_silent_is_asked_once(monkeypatch):
    places = Addresses(Http(tries=1), [])
    nowhere = "http://127.0.0.1:9/simple"
    package = locked("http://127.0.0.1:9/demo-1.0-py3-none-any.whl", "http://127.0.0.1:9/other")
    assert list(places.find(package, [nowhere])) == [package.url]
    assert places._silent == {nowhere}
    monkeypatch.setattr(downloads, "project_files", None)  # it would be called
    assert list(places.find(package, [nowhere])) == [package.url]


def test_folders_come_first_and_offline_nothing_else_does(server, tmp_path):
    (tmp_path / "demo-1.0-py3-none-any.whl").write_bytes(BODY)
    package = locked(f"{server.url}/files/demo-1.0-py3-none-any.whl", f"{server.url}/simple")
    here = (tmp_path / "demo-1.0-py3-none-any.whl").as_uri()
    assert list(Addresses(Http(), [tmp_path], offline=True).find(package, [])) == [here]
    assert list(Addresses(Http(), [], offline=True).find(package, [])) == []
    assert next(Addresses(Http(), [tmp_path]).find(package, [])) == here


def test_a_damaged_netrc_has_no_passwords(tmp_path, monkeypatch):
    netrc = tmp_path / "netrc"
    monkeypatch.setenv("NETRC", str(netrc))
    for text, sent in (("machine host login me password word\n", "me:word@"), ("machine\nhost me", "")):
        netrc.write_text(text)
        netrc.chmod(0o600)
        downloads._read_netrc.cache_clear()
        assert downloads.add_credentials("https://host/f", []) == f"https://{sent}host/f"
    downloads._read_netrc.cache_clear()


def test_the_password_of_an_index_goes_to_its_host_alone(server, fetch):
    secret = server.url.replace("//", "//me:hunter2@") + "/simple"
    package = locked(f"{server.url}/f", f"{server.url}/simple")
    fetch(*Addresses(Http(), []).find(package, [secret]))
    assert server.seen[0][2] == "Basic bWU6aHVudGVyMg=="
    elsewhere = locked("http://127.0.0.2/f", f"{server.url}/simple")
    assert "hunter2" not in next(Addresses(Http(), []).find(elsewhere, [secret]))
