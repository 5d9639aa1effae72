"""Recorded answers of uv: `pip compile` of a question that it was asked before, of an index with the same files.

`provision.index.uv` is gpuenv's one door to uv, and starts it through `process.run`: `Answers` stands there. An answer
counts for the same options, files, variables, version of uv and content of index, pages and folders of wheels, whatever their
port or path. uv itself runs for every other command and question, and where more than these decides: an index with a fault
or a login, another server, a folder, code that is built, an answer from uv's cache. Of its log only the lines that gpuenv
reads are kept.

`make answers` asks uv again and writes `tests/data/uv_answers.json`; what differs between two runs of a question stays out.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
import re
import subprocess
import zipfile
from pathlib import Path

import loopback
from wheel_pages import WheelPages

FILE = Path(__file__).parent.parent / "data" / "uv_answers.json"
NEVER_THE_SAME = 40
"""At most so many questions of `make test` are new in each run: they have the time or a folder of the test in them."""
_ADDRESS = re.compile(r"(?:file:|[a-z]+\+|https?://)[^\s\"'<>]*")
_NOWHERE = ("file:///nowhere", "http://127.0.0.1:9/")  # what is not there: the indexes of many tests
_WHEEL = r"file://(/\S+\.whl)"
_TOOK = re.compile(r"(?<=Resolved )(\d+ packages?) in \S+")  # which would never be the same
_DECIDES = re.compile(r"UV_|NV_|\w+_proxy$", re.IGNORECASE)
_WITHOUT_PROXY = ("UV_CACHE_DIR", "NO_PROXY", "no_proxy")


class Answers:
    """Stands for the module `process`. `recorded` is None if uv shall answer, and `asked` has what it answered."""

    def __init__(self, process, recorded: dict | None):
        self._process, self.recorded, self.asked = process, recorded, {}
        self.off = False

    def __getattr__(self, name):
        return getattr(self._process, name)

    def run(self, argv, **options):
        question = None if self.off else _ask(argv, options["env"], options["cwd"])
        if question is None:
            return self._process.run(argv, **options)
        key, names, output, servers = question
        if answer := (self.recorded or {}).get(key):
            _mark(servers)
            return self._repeat(
                [_replace(text, names) for text in answer[1:]], answer[0], output, options["on_line"]
            )
        done = self._process.run(argv, **options)
        if _builds(done.stderr):
            return done  # code of a test ran, which may leave more than the answer
        _mark(servers)
        written = output.read_text(encoding="utf-8") if output and done.ok else ""
        names = {name: real for real, name in names.items()}
        texts = [_replace(text, names) for text in (done.stdout, _without_log(done.stderr), written)]
        self.asked.setdefault(key, []).append([done.returncode, *texts])
        return done

    def _repeat(self, texts, code, output, on_line):
        stdout, stderr, written = texts
        for line in stderr.splitlines() if on_line else ():
            on_line(line)
        if written:
            output.write_text(written, encoding="utf-8")
        return self._process.Finished(
            returncode=code, stdout=stdout, stderr=stderr, timed_out=False, signal=None, report=b""
        )


def read() -> dict:
    """Return the recorded answers."""
    return json.loads(FILE.read_text(encoding="utf-8"))


def collect(folder: Path) -> dict[str, list]:
    """Return what uv answered in the workers, which wrote a file each, by the key of the question."""
    found: dict[str, list] = {}
    for path in folder.glob("answers-*.json"):
        for key, answers in json.loads(path.read_text(encoding="utf-8")).items():
            found.setdefault(key, []).extend(answers)
    return found


def write(found: dict[str, list]) -> None:
    """Record the answers that were the same each time."""
    same = {
        key: answers[0] for key, answers in sorted(found.items()) if all(a == answers[0] for a in answers)
    }
    lines = (f"{json.dumps(key)}: {json.dumps(answer)}" for key, answer in same.items())
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def _replace(text, names):
    for name, real in names.items():
        text = text.replace(name, real)
    return text


def _mark(servers):
    for server in servers:
        server.answered = True


def _builds(log):
    from provision.lock import compile as solve

    return any(solve._BUILDING.match(line) for line in log.splitlines())


def _without_log(text):
    from provision.lock import compile as solve

    read = (solve._TABLE, solve._BUILDING)
    return "".join(
        _TOOK.sub(r"\1", line) for line in text.splitlines(keepends=True)
        if not line.startswith("DEBUG ") or any(pattern.match(line) for pattern in read)
    )  # fmt: skip


@functools.cache
def _always():
    """What decides every answer: the version of uv, and how an index makes its pages."""
    from provision.index import uv

    version = subprocess.run([uv.program(), "--version"], capture_output=True, text=True, check=True).stdout
    return version.split()[1] + inspect.getsource(loopback._handler)


def _contents(wheel):
    """The files of a wheel, whenever it was packed: gpuenv itself writes some for uv."""
    with zipfile.ZipFile(wheel) as archive:
        return [(file.filename, file.CRC) for file in archive.infolist()]


def _ask(argv, env, cwd):
    """Return the key of a question, the names of what is different in each run, the file that uv writes, and the servers,
    or None if uv must answer."""
    words = argv[1:]
    variables = {k: v for k, v in env.items() if _DECIDES.match(k) and k not in _WITHOUT_PROXY}
    if words[:2] != ["pip", "compile"] or any("proxy" in k.lower() for k in variables):
        return None
    if "UV_OFFLINE" in variables and ("pylock.toml" in words or "UV_FIND_LINKS" in variables):
        return None  # what its cache has decides
    python = words[words.index("--python") + 1]
    if Path(python).resolve().name.endswith("t"):
        return None  # without the GIL, whatever --python-version says
    paths = [Path(word) for word in words if word.startswith("/") and word != python]
    names = {"<uv>": str(cwd), "<python>": python, "<lock>": str(paths[0].parent)}
    names |= {"<cache>": env["UV_CACHE_DIR"]} if "UV_CACHE_DIR" in env else {}
    parts = [*words, *(f"{k}={v}" for k, v in sorted(variables.items()))]
    parts += [path.read_text(encoding="utf-8") if path.exists() else "" for path in paths]
    wanted = "\n".join(parts[-len(paths) :])
    pages = "|".join(
        re.escape(server.address) for server in loopback.LIVE.values() if isinstance(server, WheelPages)
    )
    if re.search(rf"(?m)^(-e |[./])| @ (?!{pages or '$'}|{_WHEEL})", wanted):
        return None  # a folder, or an address that uv reads for its requirements
    links = [p for p in map(Path, variables.get("UV_FIND_LINKS", "").split(",")) if p.is_absolute()]
    files = [file for folder in links if folder.is_dir() for file in sorted(folder.iterdir())]
    files += [Path(path) for path in re.findall(rf" @ {_WHEEL}", wanted)]
    if not all(file.suffix == ".whl" and file.is_file() for file in files):
        return None  # uv would build an archive
    folders = dict.fromkeys([*links, *(file.parent for file in files)])
    names |= {f"<wheels {i}>": str(folder) for i, folder in enumerate(folders)}
    parts += [f"{file.name} {_contents(file)}" for file in files]
    servers: dict[str, loopback.Index | WheelPages] = {}
    addresses = _ADDRESS.findall("\n".join(parts))
    for address in addresses:
        if address.startswith(_NOWHERE) or re.fullmatch(_WHEEL, address):
            continue
        place = re.match(r"http://(127\.0\.0\.1:\d+)/", address)
        server = loopback.LIVE.get(place[1]) if place else None
        if server is None or not server.plain():
            return None
        servers[place[1]] = server
    if not servers and not any(address.startswith(_NOWHERE) for address in addresses):
        return None  # uv's own default index
    names |= {f"<index {i}>": place for i, place in enumerate(servers)}
    masked = {real: name for name, real in names.items()}
    asked = [
        _always(),
        *(_replace(part, masked) for part in parts),
        *(server.digest() for server in servers.values()),
    ]
    output = Path(words[words.index("--output-file") + 1]) if "--output-file" in words else None
    return hashlib.sha256(json.dumps(asked).encode()).hexdigest()[:24], names, output, servers.values()
