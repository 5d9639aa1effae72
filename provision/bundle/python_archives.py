"""Download and unpack the Python archives of a bundle: the standalone builds that uv manages.

uv downloads the archive for any platform (UV_PYTHON_INSTALL_MIRROR names a mirror) and compares it with its
built-in hash. On the target uv unpacks it, after a comparison with the bundle's hash, for one environment.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..environment import bundled_pythons
from ..errors import BuildError
from ..index import uv
from ..model import BundlePython, PackageSources
from ..system import process, scratch_folders, write_inside_folder
from ..system.untrusted import file_name_of_url
from . import WORK, not_writable

_OF = {
    "linux-x86_64": ("linux", "x86_64", "gnu"),
    "linux-aarch64": ("linux", "aarch64", "gnu"),
    "windows-x86_64": ("windows", "x86_64", "none"),
}
_TIMEOUT = 1800.0


def offered(minor: str, platform: str) -> dict[str, Any] | None:
    """Return key, version and address of uv's newest build of a Python for a platform, or None."""
    wanted = _OF[platform]
    words = ["python", "list", "--only-downloads", "--all-platforms", "--all-arches", "--output-format", "json",
             minor]  # fmt: skip
    done = _run(words, timeout=60)
    try:
        rows = json.loads(done.stdout or "[]")
    except ValueError:
        return None
    for row in rows:
        plain = row["implementation"] == "cpython" and row["variant"] == "default"
        if plain and (row["os"], row["arch"], row["libc"]) == wanted:
            return dict(row)
    return None


def fetch_archive(folder: Path, minor: str, platform: str) -> tuple[BundlePython | None, str]:
    """Put a Python archive into a bundle, or return None and the reason. Raises BuildError for a disk error."""
    row = offered(minor, platform)
    if row is None:
        return None, f"uv has no Python {minor} for {platform}"
    work = folder / WORK
    shutil.rmtree(work, ignore_errors=True)
    cache = work / "archive"
    variables = {"UV_PYTHON_CACHE_DIR": str(cache.absolute()), "UV_HTTP_RETRIES": "1"}
    unpacked = str((work / "unpacked").absolute())
    words = ["python", "install", row["key"], "--install-dir", unpacked, "--no-bin"]
    try:
        write_inside_folder.make_folder(cache, root=folder)
        done = _run(words, variables)
        archives = sorted(cache.iterdir())
        if not done.ok or len(archives) != 1:
            return None, f"Python {row['version']} cannot be downloaded ({_why(done.stderr)})"
        path = folder / "python" / file_name_of_url(row["url"])
        write_inside_folder.make_folder(path.parent, root=folder)
        archives[0].replace(path)
    except OSError as error:
        raise not_writable(folder, error) from error
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return BundlePython(key=row["key"], version=row["version"], path=f"python/{path.name}"), ""


def _why(log: str) -> str:
    causes = [x.partition("cause:")[2].strip() for x in log.splitlines() if "cause:" in x]
    return uv.redacted(causes[-1] if causes else (log.strip().splitlines() or ["no reason given"])[-1])


def _run(
    words: Sequence[str], variables: Mapping[str, str] | None = None, timeout: float = _TIMEOUT
) -> process.Finished:
    """Run a uv command, which may download only the archive that it names."""
    variables_of_uv = {"UV_PYTHON_DOWNLOADS": "manual", "UV_OFFLINE": "0", **(variables or {})}
    return uv.run_uv(
        words, PackageSources(), python=None, settings=uv.Settings(variables=variables_of_uv, timeout=timeout)
    )


def install(folder: Path, archive: BundlePython, sha256: str, env: Path) -> str:
    """Make uv unpack a bundle's Python for an environment, and return the path of the interpreter. Raises BuildError."""
    parts = re.fullmatch(r"(\d{1,9})\.(\d{1,9})\.(\d{1,9})(.*)", archive.version)
    assert parts  # guaranteed by BundlePython
    _, _, system, machine, libc = archive.key.split("-")
    entry = {
        "name": "cpython", "arch": {"family": machine, "variant": None}, "os": system, "libc": libc,
        "major": int(parts[1]), "minor": int(parts[2]), "patch": int(parts[3]), "prerelease": parts[4],
        "url": (folder / archive.path).resolve().as_uri(), "sha256": sha256, "variant": None, "build": None,
    }  # fmt: skip
    home = bundled_pythons.claim(env, sha256)
    with scratch_folders.scratch("python") as scratch:
        listed = scratch / "listed.json"
        listed.write_text(json.dumps({archive.key: entry}), encoding="utf-8")
        variables = {"UV_PYTHON_DOWNLOADS_JSON_URL": str(listed)}
        done = _run(["python", "install", archive.key, "--no-bin", "--install-dir", str(home)], variables)
    path = home / archive.key / ("python.exe" if system == "windows" else "bin/python3")
    if not done.ok or not path.exists():
        raise BuildError(
            f"the bundle's Python {archive.version} ({archive.path}) cannot be unpacked",
            log=uv.redacted(done.stderr), hint="install that Python, or copy the bundle again",
        )  # fmt: skip
    return str(path)
