"""Locks, requirements and packages that were made to harm."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import shutil
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from field import ASK, PAYLOAD, Field, case
from loopback import wheel_bytes

CODES = (0, 2, 3, 4, 5, 6, 7, 8, 9)
NAMES = {
    "a path": "../../../outside/x", "an absolute path": "/tmp/gpuenv-outside", "an option": "--index-url=EVIL", "an option of a file": "-r /etc/passwd",
    "an editable": "-e OUTSIDE", "a line more": "jaxlib\n--index-url EVIL\nevil", "a return": "jaxlib\r--index-url EVIL", "escapes": f"jax{PAYLOAD}lib",
    "a shell": "$(touch MARKER)`touch MARKER`", "a format": "{0.__class__}%s%n", "NUL": "jax\0lib", "a comment": "jaxlib # x", "an address": "jaxlib @ EVIL/x.whl",
    "a marker": "jaxlib; python_version > '0'", "nothing": "", "very long": "a" * 100_000,
}  # fmt: skip
URLS = {
    "a path": "https://127.0.0.1:9/../../../../outside/x-1-py3-none-any.whl", "a file outside": "file://OUTSIDE/x-1-py3-none-any.whl",
    "a device": "file:///dev/zero", "dots": "EVIL/..%2F..%2F..%2Foutside%2Fx-1-py3-none-any.whl", "credentials": "http://us3r:s3cr3t@127.0.0.1:9/x-1-py3-none-any.whl",
    "a line more": "http://127.0.0.1:9/x-1-py3-none-any.whl\n--index-url EVIL\nevil", "a blank": "http://127.0.0.1:9/x-1-py3-none-any.whl --index-url EVIL",
    "escapes": f"http://127.0.0.1:9/{PAYLOAD}-1-py3-none-any.whl", "another scheme": "ext::sh -c 'touch MARKER'", "an option": "--index-url=EVIL",
    "broken": "http://[::1", "a script": "javascript:alert(1)", "nothing": "",
}  # fmt: skip
COMMITS = {
    "a helper": "ext::sh -c touch% MARKER", "an option": "--upload-pack=touch MARKER", "a file outside": "file://OUTSIDE", "a line more": "https://127.0.0.1:9/x\n-e OUTSIDE",
    "an ssh option": "ssh://-oProxyCommand=touch%20MARKER/x", "a blank": "https://127.0.0.1:9/x -e OUTSIDE",
}  # fmt: skip


def put(at: Field, value: str) -> str:
    for word, path in (("EVIL", at.evil.url), ("OUTSIDE", str(at.outside)), ("MARKER", str(at.marker))):
        value = value.replace(word, path)
    return value


def sound(at: Field) -> dict[str, Any]:
    import tomli

    path = at.folder / "sound.toml"
    if not path.exists():
        ran = at.gpuenv("lock", *ASK, "-o", path)
        assert ran.code == 0, ran.err
    return tomli.loads(path.read_text())


def installed_from(at: Field, data: dict[str, Any]) -> str | None:
    import tomli_w

    at.evil.add("evil", "1.0")
    at.evil.add("jaxlib", "1.0")
    (at.work / "pylock.toml").write_text(tomli_w.dumps(data))
    ran = at.gpuenv("create", "env", "--lock", "pylock.toml", "--no-verify")
    told = at.harm(ran, right=CODES)
    if told:
        return told
    if "s3cr3t" in ran.out + ran.err:
        return "credentials are shown"
    if ran.code and (at.work / "env").exists():
        return "half an environment is left"
    return None


def in_lock(at: Field, where: str, value: str) -> str | None:
    data = sound(at)
    package = next(p for p in data["packages"] if p["name"] == "jaxlib")
    value = put(at, value)
    if where == "name":
        package["name"] = value
    elif where == "version":
        package["version"] = value
    elif where == "file":
        package["wheels"][0]["name"] = value
    elif where == "hash":
        package["wheels"][0]["hashes"]["sha256"] = value
    elif where == "index":
        package["index"] = value
    elif where == "url":
        package["wheels"][0]["url"] = value
    elif where == "url alone":
        package["wheels"][0]["url"] = value
        package.pop("index", None)
    elif where == "plan":
        data["tool"]["gpuenv"]["plan"]["builds"][0]["requirements"] = [value]
        data["tool"]["gpuenv"]["plan"]["python"] = value
        data["tool"]["gpuenv"]["plan"]["notes"] = [value]
    elif where in ("commit", "subdirectory"):
        package.pop("wheels")
        package.pop("index", None)
        package["vcs"] = {"type": "git", "url": value, "commit-id": "a" * 40}
        if where == "subdirectory":
            package["vcs"] |= {"url": "http://127.0.0.1:9/x", "subdirectory": value}
    elif where == "folder":
        package.pop("wheels")
        package.pop("index", None)
        package["directory"] = {"path": value, "editable": value.endswith("e")}
    return installed_from(at, data)


FEW = {k: NAMES[k] for k in ("a path", "an option", "a line more", "escapes")}
for where, values in {
    "name": NAMES, "version": FEW, "file": FEW, "index": URLS, "url": URLS, "url alone": URLS, "plan": FEW, "commit": COMMITS,
    "subdirectory": {"a path": "../../x", "a line more": "x\n-e OUTSIDE"}, "folder": {"a line more": "/x\n-e OUTSIDE", "an option": "--index-url=EVIL", "a home": "~/x", "escapes": PAYLOAD},
    "hash": {"a line more": "a" * 64 + "\n--index-url EVIL\nevil", "an option": "a" * 64 + " --index-url EVIL", "short": "aa", "a path": "../../x", "empty": ""},
}.items():  # fmt: skip
    for what, value in values.items():
        case(f"locks: {where}: {what}")(lambda at, w=where, v=value: in_lock(at, w, v))


FILES = {
    "dots": "..%2F..%2F..%2Foutside%2Fprecious.txt", "dots twice": "..%252F..%252F..%252Foutside%252Fprecious.txt", "backslashes": "..%5C..%5Cx.whl",
    "absolute": "%2Ftmp%2Fgpuenv-outside", "a folder": "%2E%2E", "hidden": ".bashrc", "nothing": "", "a device": "nul.whl", "very long": "a" * 300 + "-1-py3-none-any.whl",
}  # fmt: skip


def bundled(at: Field, file: str, *, own: bool) -> str | None:
    """A bundle of a lock, one address of which ends in this name: the index serves the right bytes there."""
    import tomli_w

    data = sound(at)
    wheel = next(p for p in data["packages"] if p["name"] == "jaxlib")["wheels"][0]
    wheel["url"] = wheel["url"].rpartition("/")[0] + "/" + file
    (at.work / "pylock.toml").write_text(tomli_w.dumps(data))
    ran = at.gpuenv("bundle", "stick", *(() if own else ("--lock", "pylock.toml")))
    told = at.harm(ran, right=(6,))
    if told or "cannot be a file name" in ran.err:
        return told or (
            f"files were written: {list(at.work.glob('stick/*'))}" if any(at.work.glob("stick/*")) else None
        )
    return f"not refused by name: {ran.err[-300:]!r}"


for what, value in FILES.items():
    for own in (False, True):
        case(f"locks: bundle: {'own' if own else '--lock'}: {what}")(
            lambda at, v=value, o=own: bundled(at, v, own=o)
        )


# --- conda ------------------------------------------------------------------------------------------


def conda_text(at: Field, name: str, version: str, url: str, build: str = "h0_0") -> str:
    rows = [
        (
            "python",
            "3.11.0",
            "http://127.0.0.1:9/c/linux-64/python-3.11.0-h0_0_cpython.conda",
            "h0_0_cpython",
        ),
        (name, version, url, build),
    ]
    packages = [{"name": n, "version": v, "manager": "conda", "platform": "linux-64", "dependencies": {}, "url": u, "category": "main", "optional": False,
                 "hash": {"md5": "b" * 32, "sha256": "a" * 64}} for n, v, u, _ in rows]  # fmt: skip
    meta = {
        "content_hash": {"linux-64": "a"},
        "channels": [{"url": "http://127.0.0.1:9/c", "used_env_vars": []}],
        "platforms": ["linux-64"],
        "sources": [],
    }
    return json.dumps({"version": 1, "metadata": meta, "package": packages})


def conda_locked(at: Field, text: str, file: str) -> str | None:
    (at.work / file).write_text(text)
    ran = at.gpuenv("create", "env", "--lock", file, "--no-verify", "--allow-md5")
    told = at.harm(ran, right=(2, 3, 4, 5, 6, 7))
    return told or ("credentials are shown" if "s3cr3t" in ran.out + ran.err else None)


def url_of(name: str) -> str:
    return f"http://127.0.0.1:9/c/linux-64/{name}-1.0-h0_0.conda"


for what, value in FILES.items():
    case(f"locks: conda-lock.yml: file: {what}")(
        lambda at, v=value: conda_locked(
            at,
            conda_text(at, "x", "1.0", f"http://127.0.0.1:9/c/linux-64/{v}-1.0-h0_0.conda"),
            "conda-lock.yml",
        )
    )
for what, value in NAMES.items():
    case(f"locks: conda-lock.yml: name: {what}")(
        lambda at, v=value: conda_locked(at, conda_text(at, put(at, v), "1.0", url_of("x")), "conda-lock.yml")
    )
for what, value in FEW.items():
    case(f"locks: conda-lock.yml: version: {what}")(
        lambda at, v=value: conda_locked(at, conda_text(at, "x", put(at, v), url_of("x")), "conda-lock.yml")
    )
for what, value in {**URLS, "dots in the name": "http://127.0.0.1:9/c/linux-64/..%2F..%2F..%2Foutside%2Fx-1.0-h0_0.conda",
                    "dots in the build": "http://127.0.0.1:9/c/linux-64/x-1.0-..%2F..%2Fh0.conda", "a folder": "file://OUTSIDE/linux-64/x-1.0-h0_0.conda",
                    "dots for a subdir": "http://127.0.0.1:9/c/../x-1.0-h0_0.conda"}.items():  # fmt: skip
    case(f"locks: conda-lock.yml: url: {what}")(
        lambda at, v=value: conda_locked(at, conda_text(at, "x", "1.0", put(at, v)), "conda-lock.yml")
    )
    case(f"locks: @EXPLICIT: {what}")(lambda at, v=value: conda_locked(
        at, f"@EXPLICIT\nhttp://127.0.0.1:9/c/linux-64/python-3.11.0-h0_0_cpython.conda#{'a' * 64}\n{put(at, v)}#{'a' * 64}\n", "explicit.txt"))  # fmt: skip
    case(f"locks: pixi.lock: {what}")(lambda at, v=value: conda_locked(at, json.dumps({
        "version": 6, "environments": {"default": {"channels": [{"url": "http://127.0.0.1:9/c"}], "packages": {"linux-64": [{"conda": put(at, v)}, {"pypi": put(at, v)}]}}},
        "packages": [{"conda": put(at, v), "sha256": "a" * 64}, {"pypi": put(at, v), "name": "x", "version": "1", "sha256": "a" * 64}]}), "pixi.lock"))  # fmt: skip


# --- what asks for packages -------------------------------------------------------------------------

ASKED = {
    "an option": "--index-url EVIL", "a file outside": "-r /etc/passwd", "a device": "-r /dev/zero", "itself": "-r requirements.txt", "constraints": "-c OUTSIDE/precious.txt",
    "an editable": "-e OUTSIDE", "a commit": "git+ext::sh%20-c%20touch%20MARKER@main#egg=x", "a helper": "x @ git+ext::sh%20-c%20touch%20MARKER", "a line more": "numpy\\\n--pre",
    "variables": "${HOME}${MARKER}", "escapes": PAYLOAD, "a path": "../../../outside", "a home": "~root/x.whl", "a file url": "x @ file:///dev/zero", "global": "--install-option=x",
    "a config": "--config-settings=x=y", "trusted": "--trusted-host EVIL", "a url": "EVIL/x.whl", "very long": "x" * 200_000,
}  # fmt: skip


def asked(at: Field, text: str) -> str | None:
    (at.outside / "setup.py")
    (at.work / "requirements.txt").write_text("jaxlib\n" + put(at, text) + "\n")
    evil = "EVIL" in text  # to name an index is what requirements files may do: it is asked, no more
    ran = at.gpuenv("lock", *ASK, "-r", "requirements.txt", "-o", "out.toml")
    if evil:
        at.evil.requests.clear()
    return at.harm(ran, right=CODES)


for what, value in ASKED.items():
    case(f"requirements: {what}")(lambda at, v=value: asked(at, v))


def project(at: Field, text: str) -> str | None:
    (at.work / "pyproject.toml").write_text(text)
    (at.work / "setup.py").write_text(
        f"open({str(at.marker)!r}, 'w').write('x')\nfrom setuptools import setup\nsetup(name='x', install_requires=['numpy'])\n"
    )
    return at.harm(at.gpuenv("resolve", *ASK, "--project", "."), at.gpuenv("init"), right=CODES)


@case("pyproject.toml: a setup.py beside it is read and not run")
def _(at: Field) -> str | None:
    return project(at, "[build-system]\nrequires = []\nbuild-backend = 'evil'\nbackend-path = ['.']\n")


@case("pyproject.toml: names, groups and sources that lead out")
def _(at: Field) -> str | None:
    return project(at, put(at, f"""
[project]
name = "../../x"
version = "{'1' * 5000}"
requires-python = ">=3 ; $(touch MARKER)"
dependencies = ["numpy @ file:///dev/zero", "x\\n-r /etc/passwd", "--index-url=EVIL", "a[../x]"]
[dependency-groups]
a = [{{include-group = "b"}}]
b = [{{include-group = "a"}}]
[tool.uv.sources]
numpy = {{ path = "OUTSIDE", editable = true }}
[tool.uv]
find-links = ["/etc"]
""").replace(PAYLOAD, ""))  # fmt: skip


# --- wheels -----------------------------------------------------------------------------------------


def wheel(extra: dict[str, Any], version: str) -> bytes:
    """A wheel of jaxlib with files that lead out; a tuple is a link."""
    info = f"jaxlib-{version}.dist-info"
    source = zipfile.ZipFile(io.BytesIO(wheel_bytes("jaxlib", version)))
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as out:
        rows = source.read(f"{info}/RECORD").decode()
        for name in source.namelist():
            if not name.endswith("RECORD"):
                out.writestr(name, source.read(name))
        for named, text in extra.items():
            name = named.replace("INFO", info).replace("DATA", f"jaxlib-{version}.data")
            data = text[0].encode() if isinstance(text, tuple) else text.encode()
            one = zipfile.ZipInfo(name)
            if isinstance(text, tuple):
                one.external_attr, one.create_system = 0o120777 << 16, 3
            out.writestr(one, data)
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            rows = f"{name},sha256={digest},{len(data)}\n" + rows
        out.writestr(f"{info}/RECORD", rows)
    return buffer.getvalue()


def up(at: Field, env: Path) -> str:
    return "../" * 12 + str(at.outside).lstrip("/")


WHEELS: dict[str, Callable[[Field], dict[str, Any]]] = {
    "a path": lambda at: {"../" * 12 + str(at.outside).lstrip("/") + "/new.txt": "x"},
    "an absolute path": lambda at: {f"{at.outside}/new.txt": "x"},
    "data": lambda at: {"DATA/data/" + "../" * 12 + str(at.outside).lstrip("/") + "/new.txt": "x"},
    "purelib": lambda at: {"DATA/purelib/" + "../" * 12 + str(at.outside).lstrip("/") + "/new.txt": "x"},
    "scripts": lambda at: {"DATA/scripts/" + "../" * 12 + str(at.outside).lstrip("/") + "/new.txt": "#!python\n"},
    "headers": lambda at: {"DATA/headers/" + "../" * 12 + str(at.outside).lstrip("/") + "/new.txt": "x"},
    "entry points": lambda at: {"INFO/entry_points.txt": f"[console_scripts]\n{'../' * 12}{str(at.outside).lstrip('/')}/new = os:getcwd\n"},
    "an absolute entry point": lambda at: {"INFO/entry_points.txt": f"[console_scripts]\n{at.outside}/new = os:getcwd\n"},
    "a shell in an entry point": lambda at: {"INFO/entry_points.txt": f"[console_scripts]\nx = os:system('touch {at.marker}')\npython = os:abort\nactivate = os:abort\n"},
    "a link and through it": lambda at: {"jaxlib/out": (str(at.outside),), "jaxlib/out/new.txt": "x"},
    "a link": lambda at: {"jaxlib/out": (str(at.outside),)},
    "backslashes": lambda at: {"..\\..\\..\\new.txt": "x"},
    "another's dist-info": lambda at: {"pip-26.0.dist-info/RECORD": f"{at.outside}/precious.txt,,\n"},
    # A .pth of a wheel that was asked for is not here: it runs whenever that Python starts, also for uv.
    "python itself": lambda at: {"DATA/scripts/python": f"#!/bin/sh\ntouch {at.marker}\n", "DATA/data/bin/python": f"#!/bin/sh\ntouch {at.marker}\n"},
    "the mark": lambda at: {"DATA/data/.gpuenv/plan.json": "{}", "DATA/data/pyvenv.cfg": "home = /evil\n"},
}  # fmt: skip


def from_wheel(at: Field, make: Callable[[Field], dict[str, Any]]) -> str | None:
    file, kept = next(iter(at.index.wheels["jaxlib"].items()))
    at.index.wheels["jaxlib"][file] = wheel(make(at), file.split("-")[1])
    for cache in ("uv-cache", "cache"):
        shutil.rmtree(at.folder / cache, ignore_errors=True)
    try:
        runs = [at.gpuenv("create", "env", *ASK, "--no-verify")]
        told = at.harm(*runs, right=(0, 6, 7))
        if runs[0].code == 0 and not told:
            at.marker.unlink(missing_ok=True)
            for one in at.work.glob("env/lib/python3*/site-packages/jaxlib/__init__.py"):
                one.unlink()
            told = at.harm(at.gpuenv("repair", "env", "--no-verify"), at.gpuenv("remove", "env"), right=CODES)
        return told
    finally:
        at.index.wheels["jaxlib"][file] = kept
        for cache in ("uv-cache", "cache"):
            shutil.rmtree(at.folder / cache, ignore_errors=True)


for what, make in WHEELS.items():
    case(f"wheels: {what}")(lambda at, m=make: from_wheel(at, m))


@case("sources: a package that has none but a source archive is not built unasked")
def _(at: Field) -> str | None:
    text = f"open({str(at.marker)!r}, 'w').write('x')\nfrom setuptools import setup\nsetup(name='onlysource', version='1.0')\n".encode()
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, data in (
            ("setup.py", text),
            ("PKG-INFO", b"Metadata-Version: 2.2\nName: onlysource\nVersion: 1.0\n"),
        ):
            one = tarfile.TarInfo(f"onlysource-1.0/{name}")
            one.size = len(data)
            archive.addfile(one, io.BytesIO(data))
    at.index.wheels["onlysource"] = {"onlysource-1.0.tar.gz": buffer.getvalue()}
    try:
        runs = [
            at.gpuenv("lock", *ASK, "--with", "onlysource", "-o", "o.toml"),
            at.gpuenv("resolve", *ASK, "--with", "onlysource"),
        ]
        return at.harm(*runs, right=CODES)
    finally:
        at.index.wheels.pop("onlysource")
