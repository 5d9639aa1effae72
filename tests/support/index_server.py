"""A server on loopback for package indexes, and wheels to serve."""

import contextlib
import http.server
import io
import zipfile

import pytest
from loopback import started

from provision.index.http import Http


class Handler(http.server.BaseHTTPRequestHandler):
    """Serves `server.pages` (path -> status, headers, body), whole or in ranges; counts requests and connections."""

    protocol_version, disable_nagle_algorithm = "HTTP/1.1", True

    def do_GET(self):
        self.server.seen.append((self.command, self.path, dict(self.headers)))
        self.server.connections.add(self.client_address)
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


@contextlib.contextmanager
def answering(tls=None):
    with started(Handler, tls) as made:
        made.pages, made.seen, made.ranges, made.connections = {}, [], True, set()
        made.url = f"http{'s' if tls else ''}://127.0.0.1:{made.server_port}"
        yield made


@pytest.fixture
def server():
    with answering() as made:
        yield made


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
