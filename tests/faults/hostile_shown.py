"""Text from outside that is shown: on a terminal, in a pipe, as JSON, on an HTML page."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable

from field import ASK, PAYLOAD, RAW, Field, case

CODES = (0, 2, 3, 4, 5, 6, 7, 8, 9)
CAUSE = "RuntimeError: cuDNN error: CUDNN_STATUS_NOT_INITIALIZED"
LOGS = {
    "escapes": f"{PAYLOAD}{CAUSE}{PAYLOAD}\n" * 20, "OSC 8 and 52": f"\x1b]8;;file:///etc/passwd\x1b\\{CAUSE}\x1b]8;;\x1b\\ \x1b]52;c;{'A' * 5000}\x07\n",
    "bidi": f"\u202e{CAUSE}\u2066\u2069\u200f\n", "NUL": f"\0\0{CAUSE}\0\0\n" * 50, "C1": f"\x9b31m{CAUSE}\x9d0;x\x9c\x90x\n", "returns": f"error: fake\r{CAUSE}\rhint: rm -rf /\n",
    "half an escape": f"{CAUSE}\x1b]0;never ends " + "x" * 5000 + "\n\x1b[", "a device string": f"\x1bP+q544e\x1b\\{CAUSE}\x1b_x\x1b\\\x1b^y\x1b\\\n",
    "markup": f"[red]{CAUSE}[/red] <script>alert(1)</script> [link=http://h]x[/link]\n",
}  # fmt: skip


def shown(at: Field, *argv: object, right: tuple[int, ...] = CODES) -> str | None:
    """In a pipe, on a terminal, and as JSON."""
    plain, watched, document = at.gpuenv(*argv), at.gpuenv.on_terminal(*argv), at.gpuenv(*argv, "--json")
    problem = at.harm(plain, watched, document, right=right)
    if problem:
        return problem
    try:
        json.loads(document.out)
    except ValueError as error:
        return f"no JSON: {error}"
    return None


def log_shown(at: Field, text: str) -> str | None:
    (at.work / "log.txt").write_bytes(text.encode("utf-8", "surrogateescape"))
    return shown(at, "diagnose", "log.txt", "--no-machine")


for what, value in LOGS.items():
    case(f"logs: {what}")(lambda at, v=value: log_shown(at, v))


@case("logs: lines of 10 MB, and 50 MB of escapes")
def _(at: Field) -> str | None:
    for text in (
        "A" * 10_000_000 + CAUSE + "\n",
        "\x1b[31m" * 10_000_000 + CAUSE + "\n",
        "\x1b]" * 5_000_000 + "\n" + CAUSE,
        ("CUDNN_STATUS_" * 800_000 + "\n") * 2 + CAUSE + "\n",
    ):
        (at.work / "log.txt").write_text(text)
        began = time.monotonic()
        problem = at.harm(at.gpuenv("diagnose", "log.txt", "--no-machine", timeout=60), right=(0,))
        if problem:
            return problem
        if time.monotonic() - began > 45:
            return "it takes too long"
    return None


@case("logs: the output of a program that gpuenv runs")
def _(at: Field) -> str | None:
    at.made()
    program = at.folder / "noisy"
    program.write_text(f"#!/bin/sh\nprintf '%s' '{PAYLOAD}' >&2\necho '{CAUSE}' >&2\nexit 3\n")
    program.chmod(0o755)
    ran = at.gpuenv("run", ".venv", "--", program)
    told = ran.err.replace(
        PAYLOAD, ""
    )  # the program's own words go to the terminal as they are: it is the user's
    ran.err = told
    return at.harm(ran, right=(3,))


# --- names that are shown ------------------------------------------------------------------------------


@case("shown: names of files, of packages and of variables in a target and a machine")
def _(at: Field) -> str | None:
    gpu = {"capability": "9.0", "name": f"H{PAYLOAD}"}
    (at.work / "t.json").write_text(
        json.dumps(
            {
                "platform": "linux-x86_64",
                "glibc": f"2.35{PAYLOAD}",
                "driver": "580.65.06",
                "driver_os": "linux",
                "gpus": [gpu],
            }
        )
    )
    (at.work / "u.json").write_text(json.dumps({"schema": PAYLOAD, "platform": PAYLOAD, PAYLOAD: PAYLOAD}))
    return shown(at, "resolve", "--framework", "jax", "--target", "t.json") or shown(
        at, "resolve", "--framework", "jax", "--target", "u.json"
    )


@case("shown: a file's name")
def _(at: Field) -> str | None:
    name = "a\x1b]0;x\x07\u202eb.json"
    (at.work / name).write_text("{")
    return (
        shown(at, "resolve", "--framework", "jax", "--target", name)
        or shown(at, "diagnose", name, "--no-machine")
        or shown(at, "create", "env", "--lock", name)
    )


@case("shown: words of the command line")
def _(at: Field) -> str | None:
    return (shown(at, "resolve", "--framework", f"j{PAYLOAD}") or shown(at, PAYLOAD) or shown(at, "resolve", f"--{PAYLOAD}") or shown(at, "verify", f"x{PAYLOAD}")
            or shown(at, "export", "--format", PAYLOAD) or shown(at, "remove", PAYLOAD) or shown(at, "resolve", "--framework", "jax", "--python", PAYLOAD))  # fmt: skip


@case("shown: variables of the environment")
def _(at: Field) -> str | None:
    at.gpuenv.env |= {
        "LD_LIBRARY_PATH": f"/x{PAYLOAD}",
        "CUDA_VISIBLE_DEVICES": PAYLOAD,
        "XLA_FLAGS": PAYLOAD,
        "NVIDIA_VISIBLE_DEVICES": PAYLOAD,
        "SLURM_JOB_ID": PAYLOAD,
    }
    return shown(at, "detect") or at.harm(at.gpuenv("report"), right=CODES)


def answers(
    at: Field, data: bytes, status: int = 200, kind: str = "text/html", header: str = "x"
) -> str | None:
    """An index that answers so; whatever it says is shown harmless."""
    import http.server

    from loopback import running

    class Handler(http.server.BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            return

        def do_GET(self) -> None:
            self.wfile.write(f'HTTP/1.1 {status} {header}\r\nContent-Type: {kind}\r\nX-Reason: {header}\r\nWWW-Authenticate: Basic realm="{header}"\r\n'
                             f"Content-Length: {len(data)}\r\nConnection: close\r\n\r\n".encode("utf-8", "replace") + data)  # fmt: skip

        do_HEAD = do_GET  # noqa: N815

    with running(Handler) as address:
        at.gpuenv.env["PIP_INDEX_URL"] = f"http://{address}/simple"
        shutil.rmtree(at.folder / "uv-cache", ignore_errors=True)
        runs = [at.gpuenv("lock", *ASK), at.gpuenv.on_terminal("lock", *ASK), at.gpuenv("lock", *ASK, "--json"),
                at.gpuenv("profiles", "update", "jax", "--index", f"http://{address}/simple")]  # fmt: skip
    return at.harm(*runs, right=CODES)


PAGES: dict[str, tuple[bytes, int, str]] = {
    "an error's body": (PAYLOAD.encode() * 50, 500, "text/plain"), "a refusal's body": (PAYLOAD.encode() * 50, 403, "text/html"),
    "names of files": (f'<a href="/f/jaxlib-1.0{PAYLOAD}-py3-none-any.whl">jaxlib-1.0{PAYLOAD}-py3-none-any.whl</a>'.encode(), 200, "text/html"),
    "a yanked reason": (f'<a data-yanked="{PAYLOAD}" data-requires-python="{PAYLOAD}" href="jaxlib-9.0-py3-none-any.whl#sha256=x">jaxlib-9.0-py3-none-any.whl</a>'.encode(), 200, "text/html"),
    "JSON": (json.dumps({"meta": {"api-version": PAYLOAD}, "name": PAYLOAD, "files": [{"filename": PAYLOAD, "url": PAYLOAD, "hashes": {}}]}).encode(), 200, "application/vnd.pypi.simple.v1+json"),
    "JSON that is deep": (b"[" * 200_000, 200, "application/vnd.pypi.simple.v1+json"),
    "JSON that is odd": (b'{"meta": 7, "files": [7, {"filename": 7}, null], "name": []}', 200, "application/vnd.pypi.simple.v1+json"),
    "an address that leads out": (b'<a href="file:///etc/passwd#sha256=x">jaxlib-9.0-py3-none-any.whl</a><a href="../../../../etc/x">../../x-1.0-py3-none-any.whl</a>', 200, "text/html"),
}  # fmt: skip
for what, (body, code, sort) in PAGES.items():
    case(f"shown: an index: {what}")(
        lambda at, b=body, c=code, s=sort: answers(at, b, c, s, header="x\x1b]0;owned\x07\u202e")
    )


@case("shown: what an environment says of itself")
def _(at: Field) -> str | None:
    env = at.made()
    for name in ("plan.json", "request.json"):
        path = env / ".gpuenv" / name
        path.write_text(
            path.read_text()
            .replace('"jax"', json.dumps(f"jax{PAYLOAD}"))
            .replace('"3.11"', json.dumps(f"3.11{PAYLOAD}"))
        )
    info = next(at.site(env).glob("jaxlib-*.dist-info"))
    info.rename(info.with_name("jax\x1b]0;owned\x07lib-\u202e9.9.dist-info"))
    (env / "pyvenv.cfg").write_text(f"home = /x{PAYLOAD}\nversion = {PAYLOAD}\nprompt = {PAYLOAD}\n")
    registry = at.folder / "data" / "gpuenv" / "environments" / "x.json"
    registry.parent.mkdir(parents=True, exist_ok=True)
    registry.write_text(json.dumps({"path": str(env)}))
    commands: tuple[Callable[[], str | None], ...] = (
        lambda: shown(at, "list"), lambda: shown(at, "repair", ".venv", "--no-verify"), lambda: shown(at, "verify", ".venv", "--device", "cpu"),
        lambda: at.harm(at.gpuenv("report", ".venv"), right=CODES),
        lambda: shown(at, "create", ".venv", *ASK, "--no-verify"), lambda: shown(at, "export", ".venv", "--format", "requirements"),
    )  # fmt: skip
    return next((p for c in commands if (p := c())), None)


@case("shown: the page of a verdict holds no markup from outside")
def _(at: Field) -> str | None:
    env = at.made("<script>alert(1)<s>")
    (at.site(env) / "jax" / "__init__.py").write_text(
        "raise RuntimeError('</style><script>alert(1)</script><img src=x onerror=alert(1)>')\n"
    )
    ran = at.gpuenv("verify", env, "--device", "cpu", "--report", "page.html")
    page = (at.work / "page.html").read_text()
    odd = [x for x in ("<script>alert", "<img", "</style><script", "<s>") if x in page]
    return at.harm(ran, right=CODES) or (f"markup: {odd}" if odd else None)


@case("shown: completion of hostile environments")
def _(at: Field) -> str | None:
    folder = at.folder / "data" / "gpuenv" / "environments"
    folder.mkdir(parents=True, exist_ok=True)
    env = at.made("a$(touch marked)\x1b]0;x\x07;b")
    (folder / "x.json").write_text(json.dumps({"path": str(env)}))
    at.gpuenv.env |= {"_GPUENV_COMPLETE": "complete_bash", "COMP_WORDS": "gpuenv verify ", "COMP_CWORD": "2"}
    ran = at.gpuenv()
    (folder / "x.json").unlink()
    problem = at.harm(ran, right=CODES)
    return problem or ("a command in a completion" if "$(" in ran.out.replace("\\$\\(", "") else None)


@case("shown: lists of processes of this machine")
def _(at: Field) -> str | None:
    """A process of a hostile name is there while the machine is looked at."""
    name = at.folder / "x\x1b]0;owned\x07y"
    shutil.copy("/bin/sleep", name)
    pid = os.spawnv(os.P_NOWAIT, str(name), [str(name), "20"])
    try:
        return shown(at, "detect")
    finally:
        os.kill(pid, 9)
        os.waitpid(pid, 0)


assert RAW.search(PAYLOAD)
