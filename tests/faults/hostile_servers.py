"""Indexes that trickle, send too much, and answer with headers and archives of nonsense."""

from __future__ import annotations

import contextlib
import hashlib
import http.server
import io
import struct
import time
import zipfile
from collections.abc import Callable, Iterator

from field import ASK, Field, Ran, case
from loopback import running, wheel_bytes

PATIENCE = 40.0
"""Seconds for a command where each request may wait one second, with its repetitions."""
MOST_SENT = 600 << 20
"""Bytes that a command may take of an answer without an end: gpuenv reads pages of up to 256 MB."""


class Answering(http.server.BaseHTTPRequestHandler):
    """What an answer needs: heads with any text, and the number of bytes sent."""

    protocol_version = "HTTP/1.1"
    sent = 0

    def log_message(self, *_: object) -> None:
        return

    def head(self, *lines: str, status: str = "200 OK") -> None:
        self.write("\r\n".join([f"HTTP/1.1 {status}", "Connection: close", *lines, "", ""]).encode("latin-1"))

    def write(self, data: bytes) -> None:
        self.wfile.write(data)
        self.wfile.flush()
        type(self).sent += len(data)


Answer = Callable[[Answering], None]


def trickle(handler: Answering, piece: bytes = b" ") -> None:
    """A byte now and then, for longer than the command may take."""
    until = time.monotonic() + PATIENCE + 10
    while time.monotonic() < until:
        handler.write(piece)
        time.sleep(0.05)


def trickling_head(handler: Answering) -> None:
    handler.write(b"HTTP/1.1 200 OK\r\nX: ")
    trickle(handler, b"x")


def endless_body(handler: Answering) -> None:
    handler.head("Content-Type: text/html")
    for _ in range(4 * MOST_SENT >> 20):
        handler.write(b" " * (1 << 20))


def saying(*lines: str, status: str = "200 OK", body: bytes = b"<html></html>") -> Answer:
    def answer(handler: Answering) -> None:
        handler.head("Content-Type: text/html", *lines, status=status)
        handler.write(body)

    return answer


NUMBERS = {"a power": "\xb2", "negative": "-5", "5,000 digits": "9" * 5000, "hexadecimal": "0x10"}
PAGES: dict[str, Answer] = {
    "a head that trickles": trickling_head,
    "a body without an end": endless_body,
    **{f"Content-Length: {k}": saying(f"Content-Length: {v}") for k, v in NUMBERS.items()},
    "Retry-After: a word": saying("Retry-After: ten", "Content-Length: 0", status="503 Busy", body=b""),
    "Retry-After: 4,000 digits": saying(f"Retry-After: {'9' * 4000}", "Content-Length: 0", status="429 Busy", body=b""),
    "a redirect to no address": saying("Location: http://[::1", "Content-Length: 0", status="302 Found", body=b""),
    "a redirect to a file": saying("Location: file:///etc/passwd", "Content-Length: 0", status="302 Found", body=b""),
}  # fmt: skip


@contextlib.contextmanager
def answering(respond: Answer) -> Iterator[tuple[str, type[Answering]]]:
    """A server whose every answer is `respond`'s, as the address of its index."""

    class Handler(Answering):
        def do_GET(self) -> None:
            self.close_connection = True
            with contextlib.suppress(ConnectionError):
                respond(self)

        do_HEAD = do_GET  # noqa: N815  # the name is http.server's

    with running(Handler) as address:
        yield f"http://{address}/simple", Handler


def wrong(at: Field, ran: Ran, began: float, address: str, right: tuple[int, ...]) -> str | None:
    """What is wrong with how a command ended: it must be in time, and name the server."""
    problem = at.harm(ran, right=right)
    if problem:
        return problem
    if time.monotonic() - began > PATIENCE:
        return f"it took {time.monotonic() - began:.0f} s"
    if len(ran.err) > 20_000:
        return f"a message of {len(ran.err)} characters"
    host = address.split("/")[2]
    return None if host in ran.err and "hint:" in ran.err else f"the server is not named: {ran.err[-300:]!r}"


def impatient(at: Field) -> None:
    at.gpuenv.env |= {"PIP_TIMEOUT": "1", "UV_HTTP_TIMEOUT": "1"}


def asked(at: Field, respond: Answer, argv: tuple[object, ...]) -> str | None:
    """A command whose index answers so."""
    impatient(at)
    with answering(respond) as (address, handler):
        began = time.monotonic()
        ran = at.gpuenv(*argv, "--index", address, timeout=PATIENCE + 10)
        problem = wrong(at, ran, began, address, (6, 9))
    return problem or (f"{handler.sent >> 20} MB were taken" if handler.sent > MOST_SENT else None)


for what, answer in PAGES.items():
    case(f"servers: profiles update: {what}")(
        lambda at, a=answer: asked(at, a, ("profiles", "update", "jax"))
    )


def asked_by_uv(at: Field, respond: Answer) -> str | None:
    """The same where the installer asks."""
    impatient(at)
    with answering(respond) as (address, _):
        at.gpuenv.env["PIP_INDEX_URL"] = address
        began = time.monotonic()
        return wrong(at, at.gpuenv("lock", *ASK), began, address, (6, 9))


for what in (
    "a head that trickles",
    "Content-Length: 5,000 digits",
    "Retry-After: 4,000 digits",
    "a redirect to a file",
):
    case(f"servers: lock: {what}")(lambda at, a=PAGES[what]: asked_by_uv(at, a))


# --- wheels -------------------------------------------------------------------------------------------------


def fetched(at: Field, respond: Callable[[Answering, bytes], None]) -> str | None:
    """`bundle` of a lock, the server of which answers so to the request for a wheel: gpuenv itself fetches it."""
    import tomli
    import tomli_w
    from bundle_site import add_own

    add_own(at.index)
    impatient(at)
    at.gpuenv.env["UV_PYTHON_INSTALL_MIRROR"] = "file:///nowhere"
    data = wheel_bytes("jaxlib", "1.0", content="# " + "x" * 200_000)
    with answering(lambda handler: respond(handler, data)) as (address, handler):
        path = at.folder / "sound.toml"
        if not path.exists():
            assert at.gpuenv("lock", *ASK, "-o", path).code == 0
        lock = tomli.loads(path.read_text())
        wheel = next(p for p in lock["packages"] if p["name"] == "jaxlib")["wheels"][0]
        version = wheel["url"].rpartition("/")[2].partition("#")[0]
        wheel |= {"url": f"{address}/{version}", "size": len(data)}
        wheel["hashes"] = {"sha256": hashlib.sha256(data).hexdigest()}
        (at.work / "pylock.toml").write_text(tomli_w.dumps(lock))
        began = time.monotonic()
        ran = at.gpuenv("bundle", "stick", "--lock", "pylock.toml", timeout=PATIENCE + 10)
        problem = wrong(at, ran, began, address, (6, 7, 9))
    return problem or (f"{handler.sent >> 20} MB were taken" if handler.sent > 50 << 20 else None)


def slowly(handler: Answering, data: bytes) -> None:
    handler.head(f"Content-Length: {len(data)}")
    trickle(handler)


def without_an_end(handler: Answering, data: bytes) -> None:
    handler.head()
    for _ in range(200):
        handler.write(data * 5)


def larger(handler: Answering, data: bytes) -> None:
    handler.head("Content-Length: 500000000")
    for _ in range(500):
        handler.write(b"\0" * 1_000_000)


def number(text: str) -> Callable[[Answering, bytes], None]:
    def respond(handler: Answering, data: bytes) -> None:
        handler.head(f"Content-Length: {text}")
        handler.write(data)

    return respond


def another_part(handler: Answering, data: bytes) -> None:
    """A part that is none of those asked for, of a file of centuries."""
    handler.head(f"Content-Range: bytes 5-6/{'9' * 5000}", "Content-Length: 2", status="206 Partial Content")
    handler.write(b"ab")


for what, give in {
    "trickles": slowly, "has no end": without_an_end, "is larger than the lock says": larger, "is an odd part": another_part,
    "Content-Length: a power": number("\xb2"), "Content-Length: 5,000 digits": number("9" * 5000),
}.items():  # fmt: skip
    case(
        f"servers: bundle: a wheel that {what}"
        if ":" not in what
        else f"servers: bundle: a wheel with {what}"
    )(lambda at, g=give: fetched(at, g))


# --- archives -----------------------------------------------------------------------------------------------


def bomb(claims: int | None = None, size: int = 64 << 20) -> bytes:
    """A wheel whose METADATA unpacks to `size` bytes, and says that it has `claims`."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("bomb-1.0.dist-info/METADATA", b"\n" * size)
    data = bytearray(buffer.getvalue())
    if claims is not None:
        struct.pack_into("<I", data, data.rfind(b"PK\1\2") + 24, claims)
    return bytes(data)


def from_wheels(at: Field, data: bytes) -> str | None:
    """The new release of a framework on an index is such a wheel: its metadata is read for the profiles."""
    name = "jax-99.0-py3-none-any.whl"
    page = f'<a href="/simple/{name}#sha256={hashlib.sha256(data).hexdigest()}">{name}</a>'.encode()

    def respond(handler: Answering) -> None:
        if not handler.path.endswith(".whl"):
            return saying(f"Content-Length: {len(page)}", body=page)(handler)
        if not (part := handler.headers.get("Range")):
            handler.head(f"Content-Length: {len(data)}", "Accept-Ranges: bytes")
            return None if handler.command == "HEAD" else handler.write(data)
        first, _, last = part.removeprefix("bytes=").partition("-")
        start = int(first) if first else max(0, len(data) - int(last))
        end = min(len(data), int(last) + 1) if first and last else len(data)
        where = f"Content-Range: bytes {start}-{end - 1}/{len(data)}"
        handler.head(where, f"Content-Length: {end - start}", status="206 Partial Content")
        return handler.write(data[start:end])

    impatient(at)
    with answering(respond) as (address, _):
        ran = at.gpuenv("profiles", "update", "jax", "--index", address)
    problem = at.harm(ran, right=(0, 6, 9))
    return problem or (
        None if name.removesuffix("-py3-none-any.whl") in ran.err else f"not named: {ran.err!r}"
    )


for what, file in {"64 MB": bomb(), "64 MB that are said to be 100": bomb(100)}.items():
    case(f"servers: profiles update: metadata of {what}")(lambda at, d=file: from_wheels(at, d))
