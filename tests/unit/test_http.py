"""Requests of indexes against a real server on loopback."""
# ruff: noqa: F811  # fixtures are imported by their names

import pytest
from index_server import answering, server, web  # noqa: F401  # fixtures
from loopback import authority, proxying
from rows import rows

from provision.cli import exit_codes
from provision.errors import LockError
from provision.index.config import PipConfig
from provision.index.http import Http, find_connection_error
from provision.system.redaction import redact


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
    assert exit_codes.get_error_code(caught.value) == 9


def test_a_redirect_is_followed_but_not_to_a_file_and_not_with_credentials(server, web):
    server.pages["/a"] = (302, {"Location": f"http://localhost:{server.server_port}/b"}, b"")
    server.pages["/b"] = (200, {}, b"ok")
    server.pages["/file"] = (302, {"Location": "file:///etc/passwd"}, b"")
    assert web.get(server.url.replace("//", "//bob:x@") + "/a").body == b"ok"
    assert "Authorization" in server.seen[0][2]
    assert "Authorization" not in server.seen[1][2]
    with pytest.raises(LockError, match="redirected to file:///etc/passwd, which is not followed"):
        web.get(f"{server.url}/file")
    server.pages["/loop"] = (302, {"Location": "/loop"}, b"")
    with pytest.raises(LockError, match="redirects endlessly"):
        web.get(f"{server.url}/loop")
    assert [path for _, path, _ in server.seen].count("/loop") == 11


def test_the_address_of_a_redirect_is_encoded_and_has_no_password(server, web):
    own = server.url.replace("//", "//bob:secret@")
    server.pages["/a"] = (302, {"Location": f"{own}/%C3%A4/ü?b=1".encode().decode("latin-1")}, b"")
    server.pages["/%C3%A4/%C3%BC"] = (200, {}, b"ok")
    answer = web.get(f"{server.url}/a")
    assert (answer.body, answer.url) == (b"ok", f"{server.url}/%C3%A4/%C3%BC?b=1")
    assert "Authorization" not in server.seen[1][2]


def test_an_address_of_another_scheme_is_refused(web):
    proxied = Http(PipConfig(proxy="socks5://p:1"))
    for client, url in ((web, "ftp://host/"), (web, "http://[::1/"), (proxied, "http://host/")):
        with pytest.raises(LockError, match=r"(ftp|http|socks5)://.* is not an http, https or file URL"):
            client.get(url)


def test_one_connection_serves_requests_in_a_row(server, web):
    server.pages = {"/a": (200, {}, b"12345"), "/none": (404, {}, b"")}
    for _ in range(2):
        assert web.get(f"{server.url}/a").body == b"12345"
        assert web.get(f"{server.url}/a", span=(1, 2)).body == b"23"
        assert web.get(f"{server.url}/a", head=True).headers["Content-Length"] == "5"
        assert web.get(f"{server.url}/none", missing_ok=True) is None
    server.ranges = False
    assert web.get(f"{server.url}/a", span=(1, 2)).status == 200
    assert len(server.connections) == 1
    web.get(f"{server.url}/a")
    assert len(server.connections) == 2, "a body that nobody reads ends its connection"


def test_certificates_are_those_of_pip_and_of_the_environment(tmp_path, monkeypatch):
    ca, context = authority(tmp_path)
    untrusted = r"the server has a certificate that is not trusted"
    with answering(context) as secure, answering() as plain:
        secure.pages = {
            "/a": (200, {}, b"ok"),
            "/name": (302, {"Location": f"https://localhost:{secure.server_port}/a"}, b""),
            "/http": (302, {"Location": f"{plain.url}/a"}, b""),
        }
        missing = PipConfig(trusted_hosts=("127.0.0.1",), cert="/missing")
        assert Http(missing).get(f"{secure.url}/a").body == b"ok"
        for config in (PipConfig(cert=str(ca)), PipConfig(trusted_hosts=("127.0.0.1",))):
            web = Http(config)
            assert web.get(f"{secure.url}/a").body == b"ok"
            with pytest.raises(LockError, match=untrusted):  # the certificate is not one for this name
                web.get(f"{secure.url}/name")
            with pytest.raises(LockError, match=r"redirected to http://.*, which is not followed"):
                web.get(f"{secure.url}/http")
        with proxying(needs="Basic bWU6dyBk") as proxy:
            tunnel = PipConfig(cert=str(ca), proxy=f"http://me:w%20d@{proxy}")
            assert Http(tunnel).get(f"{secure.url}/a").body == b"ok"
            with pytest.raises(LockError, match="407 Proxy Authentication Required"):
                Http(PipConfig(cert=str(ca), proxy=proxy), tries=1).get(f"{secure.url}/a")
        assert not [headers for _, _, headers in secure.seen if "Proxy-Authorization" in headers]
        with pytest.raises(LockError, match=untrusted):
            Http(PipConfig()).get(f"{secure.url}/a")
        monkeypatch.setenv("PIP_CERT", str(ca))
        assert Http().get(f"{secure.url}/a").body == b"ok", "without a configuration it is pip's"
        monkeypatch.setenv("SSL_CERT_FILE", str(ca))
        assert Http(PipConfig()).get(f"{secure.url}/a").body == b"ok"
        assert not plain.seen


def test_a_proxy_shows_its_certificate_before_it_gets_the_password(tmp_path):
    """`trusted-host` is said of the index, not of the proxy."""
    ca, context = authority(tmp_path)
    with answering(context) as secure, answering() as plain:
        for host in ("http://far.example", "https://far.example"):
            for proxy, said, hint in (
                (secure, "the proxy {} has a certificate that is not trusted", "set the path of your CA"),
                (plain, "the TLS connection to the proxy {} failed", "write it as http:// if"),
            ):
                address = f"https://127.0.0.1:{proxy.server_port}"
                config = PipConfig(
                    trusted_hosts=("far.example",), proxy=address.replace("//", "//me:secret@")
                )
                with pytest.raises(LockError) as caught:
                    Http(config).get(f"{host}/a")
                assert caught.value.message.startswith(f"cannot read {host}/a: {said.format(address)}")
                assert caught.value.hint.startswith(hint) and caught.value.unreachable == f"{host}/a"
        assert not secure.seen
        secure.pages["http://far.example/a"] = (200, {}, b"ok")
        assert Http(PipConfig(cert=str(ca), proxy=secure.url)).get("http://far.example/a").body == b"ok"


@pytest.mark.parametrize(
    ("host", "place"),
    [
        ("https://far.example", "HTTPS_PROXY"),
        ("http://far.example", "HTTP_PROXY"),
        ("https://far.example", "PIP_PROXY"),
        ("http://far.example", "pip.conf"),
    ],
)
def test_a_proxy_that_refuses_the_connection_is_named_with_its_setting(tmp_path, monkeypatch, host, place):
    proxy, file = "http://me:secret@127.0.0.1:9", tmp_path / "pip.conf"
    monkeypatch.setenv("PIP_CONFIG_FILE", str(file))
    file.write_text(f"[global]\nproxy = {proxy}\n" if place == "pip.conf" else "")
    if place != "pip.conf":
        monkeypatch.setenv(place, proxy)
    with pytest.raises(LockError) as caught:
        Http(tries=1).get(f"{host}/a")
    shown = str(file) if place == "pip.conf" else place
    said = f"cannot read {host}/a: the proxy http://127.0.0.1:9 ({shown}) refuses the connection"
    assert caught.value.message == said and caught.value.unreachable == f"{host}/a"


@pytest.mark.parametrize("place", ["PIP_CERT", "pip.conf"])
def test_a_missing_file_of_certificates_is_named_with_its_setting(tmp_path, monkeypatch, place):
    file, missing = tmp_path / "pip.conf", tmp_path / "ca.pem"
    monkeypatch.setenv("PIP_CONFIG_FILE", str(file))
    monkeypatch.delenv("PIP_CERT", raising=False)
    file.write_text(f"[install]\ncert = {missing}\n" if place == "pip.conf" else "")
    if place == "PIP_CERT":
        monkeypatch.setenv(place, str(missing))
    with pytest.raises(LockError) as caught:
        Http().get("https://127.0.0.1:9/a")
    shown = str(file) if place == "pip.conf" else place
    assert f"the CA certificates {missing} ({shown}) cannot be read: No such file" in caught.value.message
    assert "PIP_CERT" in caught.value.hint


@pytest.mark.parametrize("place", ["http_proxy", "ALL_PROXY", "pip"])
def test_a_proxy_gets_its_own_credentials_and_hosts_without_a_proxy_do_not(server, monkeypatch, place):
    proxy = f"me:w%20d@127.0.0.1:{server.server_port}"
    if place != "pip":
        monkeypatch.setenv(place, proxy)
    monkeypatch.setenv("no_proxy", "localhost")
    server.pages = {
        "http://far.example/a": (302, {"Location": f"http://localhost:{server.server_port}/b"}, b""),
        "/b": (200, {}, b"ok"),
    }
    config = PipConfig(proxy=f"http://{proxy}" if place == "pip" else None)
    assert Http(config).get("http://you:x@far.example/a").body == b"ok"
    through, direct = (headers for _, _, headers in server.seen)
    assert through["Proxy-Authorization"] == "Basic bWU6dyBk" and through["Authorization"] == "Basic eW91Ong="
    assert not {"Proxy-Authorization", "Authorization"} & {*direct}


def test_a_file_needs_no_connection():
    assert find_connection_error("file:///srv/simple", "http://127.0.0.1:9") is None
    assert (
        find_connection_error("http://host/simple", "http://127.0.0.1:9")
        == "is behind the proxy http://127.0.0.1:9, which refuses the connection"
    )


def test_sizes_are_asked_by_head(server, web):
    server.pages["/a"] = (200, {}, b"12345")
    told = web.sizes([f"{server.url}/a", f"{server.url}/none", f"{server.url}/a"])
    assert told == {f"{server.url}/a": 5, f"{server.url}/none": None}
    assert sorted(path for method, path, _ in server.seen if method == "HEAD") == ["/a", "/none"]


def test_the_size_of_a_local_file_is_read_without_its_bytes(tmp_path, web):
    path = tmp_path / "a.whl"
    path.write_bytes(b"12345")
    answer = web.get(path.as_uri(), head=True)
    assert (answer.headers["content-length"], answer.body) == ("5", b"")
    assert web.sizes([path.as_uri()]) == {path.as_uri(): 5}


@rows(
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
