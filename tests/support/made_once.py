"""An environment that a test begins with: built once in a run of the tests, and copied for each that asks for the same."""

import copy
import hashlib
import json
import subprocess
from collections import Counter
from pathlib import Path

from command import Command
from environment_facts import ok, own
from loopback import Index, serving
from once import once

from provision.environment import place


def create(gpuenv: Command, index: Index, *argv: str) -> None:
    """Put into `gpuenv.work` what `gpuenv create ARGV --no-verify` leaves there with the files that it has, on `index`.

    It was built for another folder and an index with the same files; its caches do not come along.
    """
    files = {p.relative_to(gpuenv.work): p.read_bytes() for p in gpuenv.work.rglob("*") if p.is_file()}
    variables = {k: v for k, v in gpuenv.env.items() if gpuenv.first.get(k) != v}
    here = {index.url: "<index>", str(gpuenv.work): "<work>", str(gpuenv.folder): "<folder>"}
    asked = json.dumps([argv, variables, {str(name): data.hex() for name, data in sorted(files.items())}])
    key = hashlib.sha256((_replace(asked, here) + index.digest()).encode()).hexdigest()[:16]

    def make(folder: Path) -> None:
        held = copy.copy(index)
        held._requests = Counter()
        with serving(held):
            made = Command(folder)
            there = {index.url: held.url, str(gpuenv.work): str(made.work), str(gpuenv.folder): str(folder)}
            for name, data in files.items():
                (made.work / name).parent.mkdir(parents=True, exist_ok=True)
                (made.work / name).write_bytes(_replace_bytes(data, there))
            made.env |= {name: _replace(value, there) for name, value in variables.items()}
            ok(made("create", *(_replace(word, there) for word in argv), "--no-verify"))
            (folder / "url").write_text(held.url)

    kept = once(f"made-{key}", make)
    subprocess.run(["cp", "-aT", kept / "work", gpuenv.work], check=True)
    names = {
        (kept / "url").read_text(): index.url,
        str(kept / "work"): str(gpuenv.work),
        str(kept): str(gpuenv.folder),
    }
    for mark in gpuenv.work.rglob(place.MARK):
        env = mark.parent
        for path in (*gpuenv.work.glob("*"), *mark.iterdir(), *env.glob("bin/*"), env / "pyvenv.cfg"):
            if path.is_file() and not path.is_symlink():
                path.write_bytes(_replace_bytes(path.read_bytes(), names))
        own(env, gpuenv.env)


def _replace(text: str, names: dict[str, str]) -> str:
    for old, new in names.items():
        text = text.replace(old, new)
    return text


def _replace_bytes(data: bytes, names: dict[str, str]) -> bytes:
    for old, new in names.items():
        data = data.replace(old.encode(), new.encode())
    return data
