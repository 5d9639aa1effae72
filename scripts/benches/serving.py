"""Serve the wheels of a folder as a package index on 127.0.0.1.

It answers like the public index: pages in both forms (PEP 691; JSON has sizes), metadata files, ranges, and
cache headers.
"""

from __future__ import annotations

import hashlib
import http.server
import json
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from provision.system.wheel_file import parse_wheel

JSON = "application/vnd.pypi.simple.v1+json"


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wheels: Path

    def log_message(self, *_args: object) -> None:
        return

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def _answer(self, *, body: bool) -> None:
        _, _, path = self.path.partition("/")
        kind, _, name = path.strip("/").partition("/")
        pages = projects(self.wheels)
        if kind == "simple" and name in pages:
            kind = JSON if JSON in self.headers.get("Accept", "") else "text/html"
            self._send(pages[name][kind], body, kind, "max-age=600, public")
        elif kind == "files" and (self.wheels / name.removesuffix(".metadata")).is_file() and "/" not in name:
            if name.endswith(".metadata"):
                self._send(metadata(self.wheels / name.removesuffix(".metadata")), body)
            else:
                self._send_file(self.wheels / name, body)
        else:
            self._send(b"", body, status=404)

    def _head(self, length: int, kind: str, cache_control: str, status: int, span: str = "") -> None:
        self.send_response(status)
        for name, value in (
            ("Content-Type", kind),
            ("Content-Length", str(length)),
            ("Cache-Control", cache_control),
        ):
            self.send_header(name, value)
        self.send_header("Accept-Ranges", "bytes")
        if span:
            self.send_header("Content-Range", span)
        self.end_headers()

    def _send(
        self,
        data: bytes,
        body: bool,
        kind: str = "application/octet-stream",
        cache_control: str = "max-age=365000000, immutable, public",
        status: int = 200,
    ) -> None:
        self._head(len(data), kind, cache_control, status)
        if body:
            self.wfile.write(data)

    def _send_file(self, path: Path, body: bool) -> None:
        total = path.stat().st_size
        first, last, status, span = 0, total - 1, 200, ""
        if part := self.headers.get("Range"):
            start, _, end = part.removeprefix("bytes=").partition("-")
            first, last = (
                (int(start), min(int(end or last), last)) if start else (max(0, total - int(end)), last)
            )
            status, span = 206, f"bytes {first}-{last}/{total}"
        cache_control = "max-age=365000000, immutable, public"
        self._head(last - first + 1, "application/octet-stream", cache_control, status, span)
        if body:
            with path.open("rb") as file:
                self.wfile.flush()
                self.connection.sendfile(file, first, last - first + 1)


@cache
def projects(wheels: Path) -> dict[str, dict[str, bytes]]:
    """Return the page of each project in both forms."""
    rows_of_project: dict[str, list[dict[str, Any]]] = {}
    for path in sorted(wheels.glob("*.whl")):
        name = parse_wheel(path.name).name
        row = {
            "filename": path.name,
            "url": f"/files/{path.name}",
            "hashes": {"sha256": _digest(path)},
            "core-metadata": {"sha256": hashlib.sha256(metadata(path)).hexdigest()},
            "size": path.stat().st_size,
        }
        rows_of_project.setdefault(name, []).append(row)
    return {n: {JSON: _as_json(n, rows), "text/html": _as_html(rows)} for n, rows in rows_of_project.items()}


def _as_json(name: str, rows: list[dict[str, Any]]) -> bytes:
    return json.dumps({"meta": {"api-version": "1.1"}, "name": name, "versions": [], "files": rows}).encode()


def _as_html(rows: list[dict[str, Any]]) -> bytes:
    links = [
        f'<a href="{r["url"]}#sha256={r["hashes"]["sha256"]}" '
        f'data-core-metadata="sha256={r["core-metadata"]["sha256"]}">{r["filename"]}</a><br>'
        for r in rows
    ]
    return ("<!DOCTYPE html><html><body>" + "\n".join(links) + "</body></html>").encode()


@cache
def metadata(path: Path) -> bytes:
    """Return a wheel's METADATA."""
    with zipfile.ZipFile(path) as archive:
        return archive.read(next(n for n in archive.namelist() if n.endswith(".dist-info/METADATA")))


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        digest = hashlib.sha256()
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore clients that close the connection early."""


@contextmanager
def serving(wheels: Path) -> Iterator[str]:
    """Yield the URL of the index, and stop the server at the end of the block."""
    projects(wheels)  # hashed before anything is timed

    class Handler(_Handler):
        pass

    Handler.wheels = wheels
    server = _Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/simple"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
