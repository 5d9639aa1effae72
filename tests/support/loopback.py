"""A package index on 127.0.0.1, made of tiny wheels, that counts what is asked of it.

It holds a wheel of every name and version that a plan pins, so that lock and build run for real
without the gigabytes. `faults` maps a path ending to what goes wrong with it:

    404, 500, ...  that status (429 and 503 with `Retry-After: retry_after`, where it is set)
    stalled        no answer before `released` is set
    stuck          half the body, then nothing more
    reset          half the body, then a reset of the connection
    truncated      half the body, then the end of the connection
    short          half the body, told as if it were all
    longer         more bytes than the file has
    tampered       another wheel of the same name
    html           a page that asks for a login, as a captive portal or a proxy answers with
    garbage        bytes that are nothing
    loop           a redirect to itself
"""

from __future__ import annotations

import _thread
import base64
import contextlib
import datetime as dt
import functools
import hashlib
import http.server
import io
import ipaddress
import json
import select
import socket
import ssl
import struct
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
import zipfile
from collections import Counter

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

_JSON = "application/vnd.pypi.simple.v1+json"
LOGIN = b"<!DOCTYPE html><html><head><title>Sign in</title></head><body><form>Password</form></body></html>"


def wheel_bytes(
    name: str, version: str, requires: tuple[str, ...] = (), content: str = "", also: dict | None = None
) -> bytes:
    """A pure wheel: one module named after the distribution, and the files of `also` (path: text or bytes)."""
    module = name.replace("-", "_")
    info = f"{module}-{version}.dist-info"
    files = {
        f"{module}/__init__.py": f"__version__ = {version!r}\n{content}",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        + "".join(f"Requires-Dist: {r}\n" for r in requires),
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        **(also or {}),
    }
    rows = []
    for path, text in files.items():
        data = text if isinstance(text, bytes) else text.encode()
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        rows.append(f"{path},sha256={digest},{len(data)}")
    files[f"{info}/RECORD"] = "\n".join([*rows, f"{info}/RECORD,,", ""])
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for path, text in files.items():
            archive.writestr(zipfile.ZipInfo(path), text)  # the same bytes whenever they are made
    return buffer.getvalue()


_plain_wheel = functools.cache(wheel_bytes)


def version_for(requirement: Requirement) -> str:
    """A version that meets a requirement: the one it pins, else the lowest it names."""
    for kind in ("===", "==", "~=", ">="):
        for spec in requirement.specifier:
            if spec.operator == kind:
                return spec.version.removesuffix(".*")
    return "1.0"


LIVE: dict[str, Index] = {}
"""The servers whose content decides what uv answers, by host and port: these, and pages of wheels (`wheel_pages.py`)."""


class Index:
    """What the server holds and what happened to it."""

    def __init__(self) -> None:
        self.wheels: dict[str, dict[str, bytes]] = {}
        self._requests: Counter[str] = Counter()
        self.answered = False  # a recorded answer of uv stood for this index
        self.faults: dict[str, str] = {}
        self.url = ""
        self.prefix = "/simple"
        self.root = ""  # what every path begins with, as an index does that has its token there
        self.retry_after: str | None = None
        self.needs: str | None = None  # the Authorization header without which it answers 401
        self.held: str | None = None  # Cache-Control of its answers (the public index: max-age=600)
        self.heads = 0
        self.uploaded: str | None = None  # when files were uploaded, as pages in JSON tell (PEP 700)
        self.uploads: dict[str, str] = {}  # the same of some files
        self.yanked: dict[str, str] = {}  # withdrawn files, and why (PEP 592)
        self.stalled, self.released = threading.Event(), threading.Event()
        self.asked_at: list[tuple[float, str]] = []

    def add(
        self,
        name: str,
        version: str,
        requires: tuple[str, ...] = (),
        content: str = "",
        also: dict | None = None,
    ) -> None:
        name = canonicalize_name(name)
        file = f"{name.replace('-', '_')}-{version}-py3-none-any.whl"
        make = wheel_bytes if also else _plain_wheel
        self.wheels.setdefault(name, {})[file] = make(name, version, tuple(requires), content, also)

    def add_plan(self, plan: dict) -> None:
        """A wheel for every requirement of a plan's JSON; the framework's requires the others."""
        self.add("pip", "26.0")
        for build in plan["builds"]:
            first, *others = build["requirements"]
            for text in others:
                need = Requirement(text)
                if canonicalize_name(need.name) != canonicalize_name(build["framework"]):
                    self.add(need.name, version_for(need))
            names = {}
            for text in others:
                names.setdefault(Requirement(text).name, text)
            framework = Requirement(first)
            self.add(
                framework.name, version_for(framework), tuple(t.replace("===", "==") for t in names.values())
            )

    def downloads(self) -> Counter[str]:
        return Counter({p: n for p, n in self._requests.items() if p.endswith(".whl")})

    @property
    def requests(self) -> Counter[str]:
        """How often each path was read. A test of what uv reads needs the fixture `real_uv`."""
        assert not self.answered, "recorded answers of uv read nothing: this test needs the fixture real_uv"
        return self._requests

    def forget(self) -> None:
        """Count from here on."""
        self._requests.clear()
        self.answered = False

    def plain(self) -> bool:
        """Whether nothing but files and pages decides an answer of uv."""
        return not (self.faults or self.needs)

    def digest(self) -> str:
        """A digest of what it holds."""
        own = [self.prefix, self.root, self.held, self.uploaded, self.uploads, self.yanked]
        wheels = [
            [n, f, hashlib.sha256(w).hexdigest()] for n, held in self.wheels.items() for f, w in held.items()
        ]
        return hashlib.sha256(json.dumps([own, wheels]).encode()).hexdigest()


class Faulty(http.server.BaseHTTPRequestHandler):
    """Answers well, or with one of the faults above. `state` has `retry_after`, `stalled`, `released`."""

    protocol_version = "HTTP/1.1"
    state: Index

    def log_message(self, *_args):
        return

    def do_HEAD(self):
        self.answer(body=False)

    def do_GET(self):
        self.answer(body=True)

    def refuse(self, fault, body):
        """Whether a fault that needs no file was answered."""
        if fault == "stalled" and body:
            self.state.stalled.set()
            self.state.released.wait(60)
        if fault and fault.isdigit():
            self.reply(int(fault), b"", body)
        elif fault == "loop":
            self.reply(302, b"", body)
        elif fault == "html":
            self.reply(200, LOGIN, body, "text/html", fault)
        elif fault == "garbage":
            self.reply(200, b"\x00\xff" * 999, body, fault=fault)
        else:
            return False
        return True

    def reply(self, status, data, body, kind="application/octet-stream", fault=None):
        if fault in ("short", "longer"):
            data = data[: len(data) // 2] if fault == "short" else data + b"\0" * 512
        told, span = len(data), None
        whole = fault not in (None, "reset", "truncated", "stuck")
        if status == 200 and not whole and (part := self.headers.get("Range")):
            first, _, last = part.removeprefix("bytes=").partition("-")
            start = max(0, told - int(last)) if not first else int(first)
            end = told if not first or not last else min(told, int(last) + 1)
            status, span, data = 206, f"bytes {start}-{end - 1}/{told}", data[start:end]
            told = len(data)
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(told))
        if span:
            self.send_header("Content-Range", span)
        if status == 302:
            self.send_header("Location", self.path)
        if status == 401:
            self.send_header("WWW-Authenticate", "Basic")
        if held := getattr(self.state, "held", None):
            self.send_header("Cache-Control", held)
        if status in (429, 503) and self.state.retry_after:
            self.send_header("Retry-After", self.state.retry_after)
        self.end_headers()
        if not body:
            return
        if fault not in ("reset", "truncated", "stuck"):
            self.wfile.write(data)
            return
        self.close_connection = True
        self.wfile.write(data[: told // 2])
        self.wfile.flush()
        if fault == "stuck":
            self.state.stalled.set()
            self.state.released.wait(60)
        if fault == "reset":
            # Closed with nothing to linger for: the other side gets a reset, not an end.
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()


def _handler(index: Index):
    class Handler(Faulty):
        state = index

        def answer(self, body):
            if body:
                index._requests[self.path] += 1
                index.asked_at.append((time.monotonic(), self.path))
            else:
                index.heads += 1
            fault = next((f for end, f in index.faults.items() if self.path.endswith(end)), None)
            if not self.path.startswith(f"{index.root}/"):
                self.reply(404, b"not here", body)
                return
            path = urllib.parse.unquote(self.path).removeprefix(index.root)
            if index.needs and self.headers.get("Authorization") != index.needs:
                fault = "401"
            if self.refuse(fault, body):
                return
            parts = path.strip("/").split("/")
            if path.startswith(index.prefix + "/") and parts[-1] in index.wheels:
                if _JSON in self.headers.get("Accept", ""):
                    self.reply(200, self.page_with_sizes(parts[-1]), body, _JSON, fault)
                    return
                self.reply(200, self.page(parts[-1]), body, "text/html", fault)
                return
            if parts[0] == "files" and parts[-1].removesuffix(".metadata") in index.wheels.get(parts[1], {}):
                data = index.wheels[parts[1]][parts[-1].removesuffix(".metadata")]
                if parts[-1].endswith(".metadata"):
                    archive = zipfile.ZipFile(io.BytesIO(data))
                    data = archive.read(next(n for n in archive.namelist() if n.endswith("METADATA")))
                if fault == "tampered":
                    data = wheel_bytes(
                        parts[1], parts[-1].split("-")[1], content="import os  # not what was locked\n"
                    )
                self.reply(200, data, body, fault=fault)
                return
            self.reply(404, b"not here", body)

        def page_with_sizes(self, name):
            files = [
                {
                    "filename": file,
                    "url": f"{index.root}/files/{name}/{file}",
                    "hashes": {"sha256": hashlib.sha256(data).hexdigest()},
                    "core-metadata": True,
                    "size": len(data),
                    "yanked": index.yanked.get(file, False),
                    **({"upload-time": when} if (when := index.uploads.get(file, index.uploaded)) else {}),
                }
                for file, data in index.wheels[name].items()
            ]
            return json.dumps({"meta": {"api-version": "1.1"}, "name": name, "files": files}).encode()

        def page(self, name):
            rows = []
            for file, data in index.wheels[name].items():
                digest = hashlib.sha256(data).hexdigest()
                yanked = f' data-yanked="{index.yanked[file]}"' if file in index.yanked else ""
                rows.append(
                    f'<a href="{index.root}/files/{name}/{file}#sha256={digest}" data-core-metadata="true"{yanked}>{file}</a><br>'
                )
            return ("<!DOCTYPE html><html><body>" + "\n".join(rows) + "</body></html>").encode()

    return Handler


@contextlib.contextmanager
def serving(index: Index):
    """The index on a free port of 127.0.0.1 until the block ends."""
    with running(_handler(index)) as address:
        index.url = f"http://{address}/simple"
        LIVE[address] = index
        try:
            yield index
        finally:
            del LIVE[address]
            index.released.set()


@contextlib.contextmanager
def proxying(needs: str | None = None):
    """An HTTP proxy on 127.0.0.1, as "host:port"; without the Proxy-Authorization header `needs` it
    answers 407."""

    class Proxy(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_args):
            return

        def do_GET(self):
            if needs and self.headers.get("Proxy-Authorization") != needs:
                return self.reply(407, b"", [("Proxy-Authenticate", 'Basic realm="proxy"')])
            sent = {
                k: v for k, v in self.headers.items() if k.lower() in ("authorization", "range", "accept")
            }
            request = urllib.request.Request(self.path, headers=sent, method=self.command)
            try:
                with _DIRECT.open(request, timeout=300) as answer:
                    return self.reply(answer.status, answer.read(), answer.headers.items())
            except urllib.error.HTTPError as error:
                return self.reply(error.code, error.read(), error.headers.items())
            except urllib.error.URLError:
                return self.reply(502, b"", [])

        do_HEAD = do_GET  # noqa: N815  # the name is http.server's

        def do_CONNECT(self):
            if needs and self.headers.get("Proxy-Authorization") != needs:
                return self.reply(407, b"", [("Proxy-Authenticate", 'Basic realm="proxy"')])
            self.close_connection = True
            host, _, port = self.path.rpartition(":")
            with socket.create_connection((host, int(port))) as far:
                self.send_response(200)
                self.end_headers()
                other = {self.connection: far, far: self.connection}
                while True:
                    for end in select.select([*other], [], [])[0]:
                        if not (data := end.recv(1 << 16)):
                            return None
                        other[end].sendall(data)

        def reply(self, status, data, headers):
            self.send_response(status)
            for name, value in headers:
                if name.lower() not in ("content-length", "connection", "date", "server"):
                    self.send_header(name, value)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data)

    with running(Proxy) as address:
        yield address


_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128  # a connection that finds the queue of 5 full is tried again after a second

    def process_request(self, request, client_address):  # threading.Thread waits until a thread runs
        _thread.start_new_thread(self.process_request_thread, (request, client_address))

    def end(self):
        """Stop `serve_forever` at once: `shutdown` waits until it wakes up, and to wake it up often costs more."""
        self._BaseServer__shutdown_request = True
        with contextlib.suppress(OSError):
            socket.create_connection(self.server_address).close()

    def handle_error(self, request, client_address):
        if not isinstance(sys.exc_info()[1], ConnectionError):  # a client that left is no news
            super().handle_error(request, client_address)


@contextlib.contextmanager
def started(handler, tls=None):
    """A server on a free port of 127.0.0.1 until the block ends; `tls` is its SSLContext."""
    handler.disable_nagle_algorithm = True  # or a body waits 40 ms until its header is acknowledged
    server = _Server(("127.0.0.1", 0), handler)
    if tls:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(9.0,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.end()
        thread.join()
        server.server_close()


def authority(folder):
    """The certificate of an authority of this test's own, and a TLS context that has one of it for 127.0.0.1."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    def certificate(name, signer, *, ca, key):
        now, who = (
            dt.datetime.now(dt.timezone.utc),
            x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)]),
        )
        issuer = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "authority")])
        usage = x509.KeyUsage(
            not ca, False, False, False, False, ca, False, False, False
        )  # Python 3.13 is strict
        address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
        return (
            x509.CertificateBuilder().subject_name(who).issuer_name(issuer).public_key(key.public_key())
            .serial_number(x509.random_serial_number()).not_valid_before(now - dt.timedelta(days=1))
            .not_valid_after(now + dt.timedelta(days=2)).add_extension(address, critical=False)
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
            .sign(signer, hashes.SHA256())
        )  # fmt: skip

    above, mine = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    pem = serialization.Encoding.PEM
    (folder / "ca.pem").write_bytes(certificate("authority", above, ca=True, key=above).public_bytes(pem))
    (folder / "cert.pem").write_bytes(certificate("server", above, ca=False, key=mine).public_bytes(pem))
    plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    (folder / "key.pem").write_bytes(mine.private_bytes(pem, *plain))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    return folder / "ca.pem", context


@contextlib.contextmanager
def running(handler, tls=None):
    """A server as "host:port" until the block ends."""
    with started(handler, tls) as server:
        yield f"127.0.0.1:{server.server_address[1]}"
