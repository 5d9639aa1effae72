"""A package index on 127.0.0.1, made of tiny wheels, that counts what is asked of it.

It holds a wheel of every name and version that a plan pins, so that lock and build run for real
without the gigabytes. `faults` maps a path ending to what goes wrong with it.
"""

from __future__ import annotations

import base64
import hashlib
import http.server
import io
import threading
import zipfile
from collections import Counter
from contextlib import contextmanager

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


def wheel_bytes(
    name: str, version: str, requires: tuple[str, ...] = (), content: str = "", also: dict | None = None
) -> bytes:
    """A pure wheel: one module named after the distribution, and the files of `also` (path: text)."""
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
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        rows.append(f"{path},sha256={digest},{len(text.encode())}")
    files[f"{info}/RECORD"] = "\n".join([*rows, f"{info}/RECORD,,", ""])
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
    return buffer.getvalue()


def version_for(requirement: Requirement) -> str:
    """A version that meets a requirement: the one it pins, else the lowest it names."""
    for kind in ("===", "==", "~=", ">="):
        for spec in requirement.specifier:
            if spec.operator == kind:
                return spec.version.removesuffix(".*")
    return "1.0"


class Index:
    """What the server holds and what happened to it."""

    def __init__(self) -> None:
        self.wheels: dict[str, dict[str, bytes]] = {}
        self.requests: Counter[str] = Counter()
        self.faults: dict[str, str] = {}
        self.url = ""
        self.prefix = "/simple"
        self.stalled, self.released = threading.Event(), threading.Event()

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
        self.wheels.setdefault(name, {})[file] = wheel_bytes(name, version, requires, content, also)

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
        return Counter({p: n for p, n in self.requests.items() if p.endswith(".whl")})


def _handler(index: Index):
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_args):
            return

        def do_HEAD(self):
            self.answer(body=False)

        def do_GET(self):
            self.answer(body=True)

        def answer(self, body):
            if body:
                index.requests[self.path] += 1
            fault = next((f for end, f in index.faults.items() if self.path.endswith(end)), None)
            if fault == "stalled" and body:
                index.stalled.set()
                index.released.wait(60)
            if fault and fault.isdigit():
                return self.reply(int(fault), b"", body)
            parts = self.path.strip("/").split("/")
            if self.path.startswith(index.prefix + "/") and parts[-1] in index.wheels:
                return self.reply(200, self.page(parts[-1]), body, "text/html")
            if parts[0] == "files" and parts[-1].removesuffix(".metadata") in index.wheels.get(parts[1], {}):
                data = index.wheels[parts[1]][parts[-1].removesuffix(".metadata")]
                if parts[-1].endswith(".metadata"):
                    archive = zipfile.ZipFile(io.BytesIO(data))
                    data = archive.read(next(n for n in archive.namelist() if n.endswith("METADATA")))
                if fault == "tampered":
                    data = wheel_bytes(
                        parts[1], parts[-1].split("-")[1], content="import os  # not what was locked\n"
                    )
                return self.reply(200, data, body)
            return self.reply(404, b"not here", body)

        def page(self, name):
            rows = []
            for file, data in index.wheels[name].items():
                digest = hashlib.sha256(data).hexdigest()
                rows.append(
                    f'<a href="/files/{name}/{file}#sha256={digest}" data-core-metadata="true">{file}</a><br>'
                )
            return ("<!DOCTYPE html><html><body>" + "\n".join(rows) + "</body></html>").encode()

        def reply(self, status, data, body, kind="application/octet-stream"):
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            if body:
                self.wfile.write(data)

    return Handler


@contextmanager
def serving(index: Index):
    """The index on a free port of 127.0.0.1 until the block ends."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _handler(index))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    index.url = f"http://127.0.0.1:{server.server_address[1]}/simple"
    try:
        yield index
    finally:
        index.released.set()
        server.shutdown()
        server.server_close()
        thread.join()
