"""Pages of prebuilt wheels on 127.0.0.1, in the two forms of the web: the assets of a release, without hashes, and the
wheels for one build of torch, with a page that lists these pages.

Its rows take the place of those in profiles/indexes.yaml (`--profiles`), with the same rules of file names.
"""

from __future__ import annotations

import hashlib
import http.server
import inspect
import json
import re
from collections import Counter
from contextlib import contextmanager
from urllib.parse import quote, unquote

from loopback import LIVE, running, wheel_bytes

from provision import profiles


class WheelPages:
    """The files of each page by path, the requests that were answered, and a status for all pages (`fault`)."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.pages: dict[str, list[str]] = {}
        self._requests: Counter[str] = Counter()
        self.answered = False  # a recorded answer of uv stood for these pages
        self.fault: int | None = None
        self.ranges = 0
        self.address = ""

    @property
    def requests(self) -> Counter[str]:
        """How often each path was read. A test of what uv reads needs the fixture `real_uv`."""
        assert not self.answered, "recorded answers of uv read nothing: this test needs the fixture real_uv"
        return self._requests

    def plain(self) -> bool:
        """Whether nothing but the files decides an answer of uv."""
        return True

    def digest(self) -> str:
        """A digest of what they hold, and of how they are made."""
        files = {path: hashlib.sha256(data).hexdigest() for path, data in self.files.items()}
        parts = [
            files,
            self.pages,
            self.fault,
            inspect.getsource(WheelPages),
            inspect.getsource(serving_pages),
        ]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()

    def add_asset(self, package: str, version: str, local: str, *, requires=(), python="cp311") -> str:
        """Add a wheel to a release. As in the real ones, only the file's name has the local version."""
        file = f"{package.replace('-', '_')}-{version}+{local}-{python}-{python}-linux_x86_64.whl"
        path = f"/{package}/releases/download/v{version}/{file}"
        self.files[path] = wheel_bytes(package, version, requires)
        self.pages.setdefault(f"/{package}/releases/expanded_assets/v{version}", []).append(path)
        return file

    def add_for_build(self, package: str, version: str, torch: str, label: str, python="cp311") -> str:
        """Add a wheel to the page of a build of torch; its metadata has the local version too."""
        local = f"pt{''.join(torch.split('.')[:2])}{label}"
        file = f"{package.replace('-', '_')}-{version}+{local}-{python}-{python}-linux_x86_64.whl"
        path = f"/whl/torch-{torch}+{label}/{file}"
        self.files[path] = wheel_bytes(package, f"{version}+{local}")
        self.pages.setdefault(f"/whl/torch-{torch}+{label}.html", []).append(path)
        return file

    def add_named(self, package: str, version: str, file: str) -> None:
        """Add a file by its name alone to the page that its name says; it has no content."""
        if built := re.search(r"\+pt(\d)(\d+)(cpu|cu\d+)-", file):
            page = f"/whl/torch-{built[1]}.{built[2]}.0+{built[3]}.html"
        else:
            page = f"/{package}/releases/expanded_assets/v{version}"
        self.pages.setdefault(page, []).append(f"{page.rpartition('/')[0]}/{file}")

    def replace_bytes(self, file: str) -> None:
        """Put other bytes behind the name of a file."""
        for path in [p for p in self.files if p.endswith(file)]:
            name, version = file.split("-")[:2]
            self.files[path] = wheel_bytes(
                name.replace("_", "-"), version.split("+")[0], content="other = 1\n"
            )

    def write_rows(self, folder) -> None:
        """Write the rows of the shipped pages with these addresses into a folder of profiles."""
        folder.mkdir(exist_ok=True)
        rows = []
        for page in profiles.load().pages:
            of_release = f"{self.address}/{page.packages[0]}/releases/expanded_assets/v{{release}}"
            url = of_release if page.is_of_release else f"{self.address}/whl/torch-{{version}}+{{label}}.html"
            listing = f', listing: "{self.address}/whl/index.html"' if page.listing else ""
            rows.append(
                f'  - {{packages: "{" ".join(page.packages)}", url: "{url}", local: "{page.local}"{listing}}}\n'
            )
        head = '- table: "pages"\n  framework: "torch"\n  source: "here"\n  read: "2026-11-23"\n  kept: "by hand"\n  rows:\n'
        (folder / "indexes.yaml").write_text(head + "".join(rows))  # the other tables stay as shipped

    def page(self, path: str) -> bytes | None:
        """Return a page as HTML, None where there is none."""
        if path == "/whl/index.html":
            links = [p.removeprefix("/whl/") for p in self.pages if p.startswith("/whl/")]
            return _html(f'<a href="{quote(link)}">{link}</a><br/>' for link in links)
        if path not in self.pages:
            return None
        if path.startswith("/whl/"):
            return _html(
                f'<a href="{quote(p.removeprefix("/whl/"))}">{p.rpartition("/")[2]}</a><br/>'
                for p in self.pages[path]
            )
        rows = "".join(
            f'<li class="Box-row"><a href="{quote(p)}" rel="nofollow" class="Truncate"><span>'
            f'{p.rpartition("/")[2]}</span></a></li>' for p in self.pages[path]
        )  # fmt: skip
        archives = "".join(
            f'<li class="Box-row"><a href="/x/archive/refs/tags/v1.{form}" rel="nofollow">Source code</a></li>'
            for form in ("zip", "tar.gz")
        )
        return f'<div class="Box Box--condensed"><ul>{rows}{archives}</ul></div>'.encode()


def _html(lines) -> bytes:
    return "<!DOCTYPE html>\n<html>\n<body>\n{}\n</body>\n</html>".format("\n".join(lines)).encode()


@contextmanager
def serving_pages():
    """The pages on a free port of 127.0.0.1 until the block ends."""
    pages = WheelPages()

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_args):
            return

        def do_GET(self):
            path = unquote(self.path)
            pages._requests[path] += self.command == "GET"
            found = pages.page(path) or pages.files.get(path)
            status = pages.fault if pages.fault and path not in pages.files else 404 if found is None else 200
            body = found if status == 200 and found else b""
            span = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", ""))
            if span and path in pages.files and status == 200:  # as the storage behind release assets
                first = int(span[1]) if span[1] else max(0, len(body) - int(span[2]))
                last = min(int(span[2]), len(body) - 1) if span[1] and span[2] else len(body) - 1
                status, whole, body = 206, len(body), body[first : last + 1]
                pages.ranges += 1
            self.send_response(status)
            self.send_header("Accept-Ranges", "bytes")
            if status == 206:
                self.send_header("Content-Range", f"bytes {first}-{last}/{whole}")
            self.send_header(
                "Content-Type", "text/html" if path in pages.pages else "application/octet-stream"
            )
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        do_HEAD = do_GET  # noqa: N815  # the name is http.server's

    with running(Handler) as address:
        pages.address = f"http://{address}"
        LIVE[address] = pages
        try:
            yield pages
        finally:
            del LIVE[address]
