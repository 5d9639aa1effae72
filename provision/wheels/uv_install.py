"""One run of `uv pip install`: its requirements, options and indexes."""

from __future__ import annotations

import base64
import csv
import dataclasses
import hashlib
import io
import json
import os
import shutil
import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from ..environment.place import MARK
from ..errors import BuildError
from ..index import pytorch_index, uv
from ..index.uv import without_credentials
from ..index.wheel_folders import expand_address
from ..model import Event, Lock, LockedPackage, PackageSources, normalize_name
from ..system import process, untrusted
from ..system.files import write_file
from ..system.redaction import redact_value
from ..system.scratch import make_scratch
from . import cache_and_disk, pylock
from .uv_log import TIMEOUT, progress


def requirements_text(lock: Lock, files: Collection[str] = ()) -> str:
    """Return the lock as pinned requirements with hashes, which any index, mirror or folder can serve.

    A package from a direct address keeps it, unless it is one of the `files` in folders.
    """
    lines = []
    for package in lock.packages:
        if package.unhashed:
            continue
        if package.sha256 is None:
            raise BuildError(f"the lock has no hash for {package.name} {package.version}")
        direct = package.index is None and not package.url.startswith("file:")
        direct = direct and cache_and_disk.file_name(package) not in files
        version = package.version if pylock.is_source(package) else pylock.wheel_version(package)
        what = f"{package.name} @ {expand_address(package)}" if direct else f"{package.name}==={version}"
        lines.append(f"{what} --hash=sha256:{package.sha256}")
    return "\n".join(lines) + "\n"


def format_unhashed(package: LockedPackage) -> str:
    """Return a folder or a commit in the form of pip and uv."""
    if package.url.startswith("file:"):
        folder = unquote(urlsplit(package.url).path)
        return f"-e {folder}" if package.editable else folder
    return f"{package.name} @ {expand_address(package)}"


def _make_source_options(packages: Sequence[LockedPackage]) -> list[str]:
    """Return the options that allow source archives of some packages, and only wheels of all others."""
    names = [p.name for p in packages if not is_wheel(p)]
    return ["--only-binary", ":all:", *(word for name in names for word in ("--no-binary", name))]


def is_wheel(package: LockedPackage) -> bool:
    return urlsplit(package.url).path.endswith(".whl")


def get_python(env: Path) -> Path:
    return env / ("Scripts" if os.name == "nt" else "bin") / "python"


@dataclass(frozen=True)
class UvInstall:
    """Packages to install into an environment with uv.

    `reinstall` also replaces installed packages. `target` is another folder for the files, beside an existing
    environment. The environment is then not changed, even by a killed run. `fetched` is called with `path` after
    wheels were added to it.
    """

    lock: Lock
    path: Path
    sources: PackageSources
    requirements: str = ""
    options: tuple[str, ...] = ()
    reinstall: bool = False
    target: Path | None = None
    fetched: Callable[[Path], None] | None = None

    def only(self, packages: tuple[LockedPackage, ...], files: Collection[str] = ()) -> UvInstall:
        """Return some of the packages with their hashes in place of all. `files` are as in `requirements_text`."""
        lock = dataclasses.replace(self.lock, packages=packages)
        options = ("--require-hashes", *_make_source_options(packages))
        return dataclasses.replace(
            self, lock=lock, requirements=requirements_text(lock, files), options=options
        )

    def report_fetched(self) -> None:
        """Report that wheels were added to the environment."""
        if self.fetched and not self.target:
            self.fetched(self.path)

    def install_uncached(self) -> process.Finished:
        """Install from files, with an empty cache that is removed afterwards."""
        cache = (self.target.parent if self.target else self.path / MARK) / "fetched"
        sources = dataclasses.replace(self.sources, cache_dir=str(cache))
        try:
            return dataclasses.replace(self, sources=sources).install(offline=True)
        finally:
            shutil.rmtree(cache, ignore_errors=True)

    def install(self, *, offline: bool, emit: Callable[[Event], None] | None = None) -> process.Finished:
        theirs, others = pytorch_index.split(self.lock.packages, self.lock.plan)
        sources = _adapt_sources(self.lock, self.sources, offline=offline)
        wheels = all(is_wheel(p) and not p.unhashed for p in self.lock.packages)
        variables = {"UV_COMPILE_BYTECODE": "0"} if self.target else {}  # its files move to another place
        words = [
            "pip", "install", "--no-deps", *self.options, *(["--target", str(self.target.absolute())] if self.target else []),
            *(["--reinstall"] if self.reinstall else []), "--requirements",
        ]  # fmt: skip

        there: dict[str, int] = {}
        left: dict[str, int] = {}

        def on_line(line: str) -> None:
            if emit and (bar := progress(line)):
                name, done, total = bar
                there[name] = max(done, there.get(name, 0))
                left[name] = total - there[name]
                text = f"downloading {max(left, key=lambda name: left[name])}"  # the one that is waited for
                emit(Event(kind="progress", stage="build", text=text, done=sum(there.values()), unit="bytes"))

        # uv shows progress only on a terminal, so it gets one only if the user has one
        watched = emit is not None and os.name == "posix" and sys.stderr.isatty()
        requirements, logins = without_credentials(self.requirements)
        # The lock chose the wheels. Build requirements are chosen now, by the rules of a solve.
        settings = uv.Settings(
            alone=bool(theirs) and not others, builds=not wheels, locked=wheels, variables=variables, git_logins=logins,
            timeout=TIMEOUT, on_line=on_line, terminal=watched,
        )  # fmt: skip
        with make_scratch("install") as folder:  # private: the text contains values of variables
            file = folder / "requirements.txt"
            file.write_text(requirements, encoding="utf-8")
            done = uv.run_uv([*words, str(file)], sources, python=get_python(self.path), settings=settings)
        _redact_installed(self.lock, self.path, self.target)
        return done


def _adapt_sources(lock: Lock, sources: PackageSources, *, offline: bool) -> PackageSources:
    """Return the sources with the lock's folders. For packages of the PyTorch index it is the default index.

    Its current address applies, not the one in the lock.
    """
    folders = [str(Path(unquote(urlsplit(p.url).path)).parent) for p in lock.packages
               if p.url.startswith("file:") and p.index is None]  # fmt: skip
    links = dict.fromkeys([*sources.find_links, *(f for f in folders if Path(f).is_dir())])
    theirs, others = pytorch_index.split(lock.packages, lock.plan)
    if theirs and not others:
        base = sources.pytorch
        default = pytorch_index.address(base, lock.plan) if base else theirs[0].index
        sources = dataclasses.replace(sources, default=default, extra=())
    else:  # the hash decides, so indexes for single packages may serve all packages
        sources = dataclasses.replace(sources, extra=(*sources.extra, *sources.explicit))
    return dataclasses.replace(sources, find_links=tuple(links), offline=offline or sources.offline)


_ADDRESS_FILE = "direct_url.json"


def _redact_installed(lock: Lock, env: Path, target: Path | None = None) -> None:
    """Restore the references to variables in direct_url.json of a lock's packages. Raises BuildError.

    uv writes the address of a package into this file, with the values of variables. The packages are in an
    environment, or in a folder `target` beside it.
    """
    wanted = {normalize_name(p.name) for p in lock.packages if p.index is None}
    root = target or env
    for path in sorted(
        root.glob(f"{'' if target else 'lib/python3*/site-packages/'}*.dist-info/{_ADDRESS_FILE}")
    ):
        if normalize_name(path.parent.name.partition("-")[0]) not in wanted:
            continue
        try:
            content = json.loads(untrusted.read_bytes(path))
            if (public := redact_value(content)) != content:
                _replace_recorded(path, json.dumps(public).encode(), root)
        except (OSError, ValueError) as error:
            raise BuildError(
                f"{path} may contain credentials of an address, and cannot be changed: {error}",
                hint="build it again: gpuenv create --recreate",
            ) from error


def _replace_recorded(path: Path, data: bytes, root: Path) -> None:
    """Replace a file, and its digest and size in RECORD."""
    write_file(path, data, root=root)
    record = path.with_name("RECORD")
    rows = list(csv.reader(untrusted.read_bytes(record).decode("utf-8").splitlines()))
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    inside = f"{path.parent.name}/{_ADDRESS_FILE}"
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(
        [inside, f"sha256={digest}", str(len(data))] if row[:1] == [inside] else row for row in rows
    )
    write_file(record, text.getvalue(), root=root)
