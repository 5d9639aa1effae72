"""One run of `uv pip install`: its requirements, options and indexes, its progress, and the reason of a failure."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote, urlsplit

import tomli_w
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from ..errors import BuildError
from ..index import uv
from ..index.config import pytorch_address, split_pytorch
from ..index.uv import without_credentials
from ..index.wheel_names import expand_address
from ..model import (
    VENV_LOCK,
    Emit,
    Event,
    Lock,
    LockedPackage,
    PackageSources,
    Plan,
    format_bytes,
    normalize_name,
)
from ..model.values import Value
from ..system import process, untrusted
from ..system.files import find_existing, write_file
from ..system.redaction import clean, redact_value
from ..system.scratch import make_scratch
from ..wheels.pylock import file_name, is_source, is_variant, wheel_version
from .distributions import find_sites, format_sha256, list_distributions
from .place import MARK

if TYPE_CHECKING:
    from ..wheels.releases import SourceArchives


TIMEOUT = 4 * 3600.0  # seconds for one run of the installer
_ADDRESS_FILE = "direct_url.json"


def requirements_text(lock: Lock, files: Collection[str]) -> str:
    """Return the lock as pinned requirements with hashes, which any index, mirror or folder can serve.

    A package from a direct address keeps it, unless it is one of the `files` in folders.
    """
    lines = []
    for package in lock.packages:
        if package.sha256 is None:
            raise BuildError(f"the lock has no hash for {package.name} {package.version}")
        direct = package.index is None and not package.url.startswith("file:")
        direct = direct and file_name(package) not in files
        version = package.version if is_source(package) else wheel_version(package)
        what = f"{package.name} @ {expand_address(package)}" if direct else f"{package.name}==={version}"
        lines.append(f"{what} --hash=sha256:{package.sha256}")
    return "\n".join(lines) + "\n"


def variants_text(lock: Lock) -> str:
    """Return a pylock.toml of variants under their plain names.

    uv takes them so for what a lock says that they are. As requirements it would compare them with the GPUs of this machine.
    """
    packages = [
        {"name": p.name, "version": p.version,
         "wheels": [{"name": file_name(p), "url": expand_address(p), "hashes": {"sha256": p.sha256}}]}
        for p in lock.packages
    ]  # fmt: skip
    return tomli_w.dumps({"lock-version": "1.0", "created-by": "gpuenv", "packages": packages})


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


class UvInstall(Value, kw_only=False):
    """Packages to install into an environment with uv.

    `reinstall` also replaces installed packages. `target` is another folder for the files, beside an existing
    environment. The environment is then not changed, even by a killed run.
    """

    lock: Lock
    path: Path
    sources: PackageSources
    emit: Emit
    requirements: str = ""
    options: tuple[str, ...] = ()
    reinstall: bool = False
    target: Path | None = None

    def select(self, packages: tuple[LockedPackage, ...], files: Collection[str] = ()) -> UvInstall:
        """Return some of the packages with their hashes in place of all. `files` are as in `requirements_text`."""
        lock = dataclasses.replace(self.lock, packages=packages)
        options = ("--require-hashes", *_make_source_options(packages))
        here = {file_name(p) for p in packages} <= set(files)
        variants = any(map(is_variant, packages)) and not here
        text = variants_text(lock) if variants else requirements_text(lock, files)
        return dataclasses.replace(self, lock=lock, requirements=text, options=options)

    def install_uncached(self) -> process.Finished:
        """Install from files, with an empty cache that is removed afterwards."""
        cache = (self.target.parent if self.target else self.path / MARK) / "fetched"
        sources = dataclasses.replace(self.sources, cache_dir=str(cache))
        try:
            return dataclasses.replace(self, sources=sources).install(offline=True)
        finally:
            shutil.rmtree(cache, ignore_errors=True)

    def install(self, *, offline: bool) -> process.Finished:
        """Run uv, which shows the progress of downloads if the network may be used."""
        theirs, others = split_pytorch(self.lock.packages, self.lock.plan)
        sources = self._adapt_sources(theirs, others, offline=offline)
        wheels = all(map(is_wheel, self.lock.packages))
        variables = {"UV_COMPILE_BYTECODE": "0"} if self.target else {}  # its files move to another place
        words = [
            "pip", "install", "--no-deps", *self.options, *(["--target", str(self.target.absolute())] if self.target else []),
            *(["--reinstall"] if self.reinstall else []), "--requirements",
        ]  # fmt: skip

        there: dict[str, int] = {}
        left: dict[str, int] = {}

        def on_line(line: str) -> None:
            if not offline and (bar := parse_progress(line)):
                name, received, total = bar
                there[name] = max(received, there.get(name, 0))
                left[name] = total - there[name]
                text = f"downloading {max(left, key=lambda name: left[name])}"  # the one that is waited for
                self.emit(Event("progress", "build", text, done=sum(there.values()), unit="bytes"))

        # uv shows progress only on a terminal, so it gets one only if the user has one
        watched = not offline and sys.stderr.isatty()
        requirements, logins = without_credentials(self.requirements)
        # The lock chose the wheels. Build requirements are chosen now, by the rules of a solve.
        settings = uv.Settings(
            builds=not wheels, locked=wheels, variables=variables, git_logins=logins,
            timeout=TIMEOUT, on_line=on_line, terminal=watched,
        )  # fmt: skip
        with make_scratch("install") as folder:  # private: the text contains values of variables
            file = folder / (VENV_LOCK if requirements.startswith("lock-version") else "requirements.txt")
            file.write_text(requirements, encoding="utf-8")
            finished = uv.run_uv(
                [*words, str(file)], sources, python=self.path / "bin/python", settings=settings
            )
        self._redact_installed()
        return finished

    def _adapt_sources(
        self, theirs: Sequence[LockedPackage], others: Sequence[LockedPackage], *, offline: bool
    ) -> PackageSources:
        """Return the sources with the lock's folders. For packages of the PyTorch index it is the default index.

        Its current address applies, not the one in the lock.
        """
        folders = [str(Path(unquote(urlsplit(p.url).path)).parent) for p in self.lock.packages
                   if p.url.startswith("file:") and p.index is None]  # fmt: skip
        links = dict.fromkeys([*self.sources.find_links, *(f for f in folders if Path(f).is_dir())])
        if theirs and not others:
            base = self.sources.pytorch
            default = pytorch_address(base, self.lock.plan) if base else theirs[0].index
            others_of_uv = ("UV_INDEX", "UV_EXTRA_INDEX_URL")
            of_uv = {k: v for k, v in self.sources.uv.items() if k not in others_of_uv}
            sources = dataclasses.replace(self.sources, default=default, extra=(), uv=of_uv)
        else:  # the hash decides, so indexes for single packages may serve all packages
            extra = (*self.sources.extra, *self.sources.explicit)
            sources = dataclasses.replace(self.sources, extra=extra)
        return dataclasses.replace(sources, find_links=tuple(links), offline=offline or sources.offline)

    def _redact_installed(self) -> None:
        """Restore the references to variables in direct_url.json of a lock's packages. Raises BuildError.

        uv writes the address of a package into this file, with the values of variables.
        """
        wanted = {normalize_name(p.name) for p in self.lock.packages if p.index is None}
        sites = [self.target] if self.target else find_sites(self.path)
        for path in (
            one.folder / _ADDRESS_FILE for s in sites for one in list_distributions(s) if one.name in wanted
        ):
            if not path.exists():
                continue
            try:
                content = json.loads(untrusted.read_bytes(path))
                if (public := redact_value(content)) != content:
                    _replace_recorded(path, json.dumps(public).encode(), self.target or self.path)
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
    inside = f"{path.parent.name}/{_ADDRESS_FILE}"
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(
        [inside, format_sha256(data), str(len(data))] if row[:1] == [inside] else row for row in rows
    )
    write_file(record, text.getvalue(), root=root)


# --- what uv prints ----------------------------------------------------------------------------------

_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_BAR = re.compile(
    r"(?<![A-Za-z0-9._-])([A-Za-z0-9._-]{1,200})\s{1,200}-{1,200}\s{1,200}([\d.]{1,20} ?[KMGTi]{0,3}B)/([\d.]{1,20} ?[KMGTi]{0,3}B)"
)


def parse_progress(line: str) -> tuple[str, int, int] | None:
    """Return file, received bytes and total bytes of a line of uv's progress, or None for other lines."""
    bar = _BAR.search(_ESCAPE.sub("", line))
    return (bar[1], _parse_bytes(bar[2]), _parse_bytes(bar[3])) if bar else None


def _parse_bytes(text: str) -> int:
    """Return the number of bytes in uv's form "120.5 MiB", or 0 for another text."""
    match = re.fullmatch(r"(\d{1,18}(?:\.\d{1,9})?) ?([KMGT]?)(i?)B", text)
    if not match:
        return 0
    return int(float(match[1]) * (1024 if match[3] else 1000) ** " KMGT".index(match[2] or " "))


def strip_progress(log: str) -> str:
    """Return uv's output on a terminal as plain lines, without progress and the path of the draft."""
    rows = _ESCAPE.sub("", log.replace("\r", "\n")).splitlines()
    return "\n".join(
        r for r in rows if r.strip() and not _BAR.search(r) and not r.startswith("Using Python ")
    )


_MISSING = re.compile(
    r"network was disabled|Network connectivity is disabled|not found in the cache|offline|"
    r"no version of|not found in the package registry|unsatisfiable",
    re.IGNORECASE,
)


def lacks_only_files(log: str) -> bool:
    """Return whether an offline run failed only because something was not in the cache."""
    return bool(_MISSING.search(log)) and "os error 28" not in log and "Hash mismatch" not in log


def explain_install_failure(finished: process.Finished, lock: Lock, *, offline: bool = False) -> BuildError:
    """Return the error for a run of uv. The most precise cause is tried first."""
    from ..index import refusals  # it brings an HTTP client

    log = clean(strip_progress(finished.stderr))
    if stored := refusals.find_storage_failure(log):
        return BuildError(stored.message, hint=stored.hint, log=log)
    indexes = {p.name: p.index for p in lock.packages}
    if mismatch := re.search(r"Hash mismatch for `?([^`\s]+)", log):
        index = indexes.get(mismatch[1].partition("=")[0])
        return BuildError(
            f"{mismatch[1]}{f' of {index}' if index else ''} is not the locked file: its hash differs",
            hint="if the lock was edited, restore it; if the index replaced the file, run gpuenv lock --upgrade", log=log,
        )  # fmt: skip
    if finished.timed_out:
        return BuildError(
            f"the installation took longer than {TIMEOUT / 3600:.0f} hours", log=log,
            hint="run the same command again: it continues from the cache",
        )  # fmt: skip
    if unbuilt := explain_unbuilt(log, lock.packages):
        return unbuilt
    if refused := refusals.find_failure(log, indexes):
        return BuildError(refused.message, hint=refused.hint, log=log)
    if cache_is_damaged(log):
        return BuildError(
            "uv's cache is damaged", log=log,
            hint="choose another cache with --cache-dir DIR, or remove the one in UV_CACHE_DIR",
        )  # fmt: skip
    name, absent = refusals.find_absent_package(log), _NOT_CACHED.search(log)
    if missing := f"the locked {name}" if name and offline else absent and absent[1]:
        return BuildError(
            f"{missing} is not available offline. It is neither in a folder of wheels nor in the cache", log=log,
            hint="name a folder that has it with --find-links DIR, or run once without --offline",
        )  # fmt: skip
    if name:
        index = indexes.get(name)
        return BuildError(
            f"no index has the locked {name} (it was locked from {index or 'a folder of wheels'})",
            hint="name an index or a folder that has it: pip's index-url, --find-links DIR", log=log,
        )  # fmt: skip
    return BuildError("the packages could not be installed", log=log, hint="read the output of uv above")


_DAMAGED = re.compile(r"(?i)cache entry|failed to \w+ (file|directory)[^\n]*archive-v\d")


def cache_is_damaged(log: str) -> bool:
    """Return whether uv failed at files of its cache."""
    from ..index import refusals

    return bool(_DAMAGED.search(log)) and refusals.find_storage_failure(log) is None


_NOT_CACHED = re.compile(r"Failed to download `([^`]+)`(?=(?s:.*)Network connectivity is disabled)")


_UNDECLARED = re.compile(r"depends on `([A-Za-z0-9._-]+)`,\s+but doesn't declare it as a build dependency")


def find_undeclared(log: str) -> str:
    """Return the package that a source imports for its build and does not require, or ""."""
    match = _UNDECLARED.search(" ".join(strip_progress(log).split()))
    return match[1] if match else ""


def explain_failed_build(
    package: LockedPackage, finished: process.Finished, plan: Plan, archives: SourceArchives
) -> BuildError:
    """Return the error of a source that could not be built, with the ways to a wheel."""
    log = clean(strip_progress(finished.stderr))
    failure = read_failure(log)
    shown = f"{package.name} {package.version}"
    steps = []
    for need in map(Requirement, plan.packages):
        known = archives.releases(need.name, SpecifierSet(), plan) if need.specifier else {}
        wheels = [v for v, has_wheel in known.items() if has_wheel and not v.is_prerelease]
        if wheels and not any(need.specifier.contains(v) for v in wheels):
            steps.append(
                f"request {need.name}>={min(wheels)} in place of {need}: it has wheels for Python {plan.python}"
            )
    if not steps and (python := archives.pythons(package, plan).rpartition(" ")[2]):
        names = ", ".join(b.framework for b in plan.builds)
        steps.append(
            f"build a new environment with --python {python}, for which {shown} has a wheel; {names} may be older then"
        )
    return BuildError(
        f"{shown} has no wheel for this environment, and its source could not be built"
        f"{f': {failure.reason}' if failure else ''}",
        hint=". Or ".join(steps)
        or "if the log names a missing program or header, install it; or request another release",
        log=log.partition("\nhint: ")[0],
    )


# --- failed builds -----------------------------------------------------------------------------------

_WHAT = re.compile(r"(?m)^error: Failed to (?:\w+ and )?build `([^`]+)`")
_CAUSE = re.compile(r"(?m)^  cause: (.+)")
_EXCEPTION = re.compile(r"(?:[A-Za-z_]\w*\.)*([A-Za-z_]\w*(?:: .*)?)")


class FailedBuild(NamedTuple):
    """A build that failed. `name` is the canonical name of the source, or "" if uv does not know it yet."""

    name: str
    reason: str


def read_failure(log: str) -> FailedBuild | None:
    """Return the failed build at the end of uv's output, or None."""
    what = _WHAT.search(log)
    causes = _CAUSE.findall(log)
    if "The build backend returned an error" in log:
        reason = _read_reason(log) or causes[-1]
    elif (
        what
        and "Failed to resolve requirements from `build-system.requires`" in log
        and "No solution found" in log
    ):
        reason = f"its build requirements are not available: {causes[-1]}"
    elif what and len(causes) == 1 and causes[0].startswith("Expected "):  # uv's own build backend
        reason = causes[0]
    else:
        return None
    name = canonicalize_name(re.split(r" @ |==|\[", what[1])[0]) if what else ""
    return FailedBuild(name, clean(reason, 300))


def _read_reason(log: str) -> str:
    """Return the first line of the exception that ended the build, else of the last error, else the last line."""
    _, _, stderr = log.partition("[stderr]\n")
    stderr, _, _ = stderr.partition("\nhint: ")
    lines = [line.rstrip() for line in textwrap.dedent(stderr).splitlines() if line.strip()]
    frames = [i for i, line in enumerate(lines) if line.startswith('  File "')]
    if frames:
        after = [line for line in lines[frames[-1] :] if not line.startswith(" ")]
        exception = _EXCEPTION.fullmatch(after[0]) if after else None
        return exception[1] if exception else "".join(after[:1])
    errors = [line for line in lines if line.startswith("error: ")]
    if errors and errors[-1].lower().startswith("error: command "):
        errors = [line for line in lines if re.search(r"\berror: ", line)][:1]
    return errors[-1].removeprefix("error: ") if errors else "".join(lines[-1:])


def explain_unbuilt(log: str, packages: Sequence[LockedPackage]) -> BuildError | None:
    """Return the error of an installation in which a source could not be built, with its folder, or None."""
    failure = read_failure(log)
    if failure is None:
        return None
    named = [p for p in packages if canonicalize_name(p.name) == failure.name]
    folders = [p for p in packages if p.unhashed and p.url.startswith("file:")]
    only = folders if not failure.name and len(folders) == 1 else []
    package = next(iter(named or only), None)
    name = package.name if package else failure.name or "a source"
    error = BuildError(f"{name} could not be built: {failure.reason}", log=log,
                       hint=f"correct its build, or remove {name}")  # fmt: skip
    if package and package in folders:
        error.folder = unquote(urlsplit(package.url).path)
    return error


def hint_dependencies_alone(folder: Path | str) -> str:
    """Return the hint for a project that cannot be built."""
    return f"write {write_project_key(folder)} into gpuenv.yaml to install only its dependencies"


def write_project_key(folder: Path | str) -> str:
    """Return the line of gpuenv.yaml that installs only the dependencies of a project."""
    place = os.path.relpath(folder)
    shown = place if re.fullmatch(r"[A-Za-z0-9_./-]+", place) else f'"{place}"'
    return f"project: {{path: {shown}, install: false}}"


# --- caches, folders and disks -----------------------------------------------------------------------

# Ratio of unpacked to packed bytes of a whole environment: 1.6 to 2.3 for CUDA wheels (measured on torch, TensorFlow
# and JAX locks of 2026-11). The upper end applies, because a full disk costs more than a warning.
UNPACKED = 2.3


def check_disk(cache: Path, packed: int) -> None:
    """Raise BuildError if the disk of the cache has too little space: wheels are unpacked there, and then linked."""
    path = find_existing(cache)
    need = packed * (1 + UNPACKED)
    free = shutil.disk_usage(path).free
    if free < need:
        raise BuildError(
            f"{path} has {format_bytes(free)} free; downloading and unpacking needs about {format_bytes(need)}",
            hint="free space, or choose another disk: --cache-dir DIR and another ENV",
        )


def list_local_files(sources: PackageSources) -> frozenset[str]:
    """Return the names of the files in the folders of wheels, or nothing if the network may be used."""
    folders = (Path(p) for p in sources.find_links if sources.offline and "://" not in p)
    return frozenset(name for folder in folders if folder.is_dir() for name in os.listdir(folder))  # noqa: PTH208  # names alone
