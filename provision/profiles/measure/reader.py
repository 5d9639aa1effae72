"""Read each wheel of an index once, and keep its facts by sha256, so that a run can be resumed.

Below the reader: what its requirements (Requires-Dist lines and their markers) are on one platform.
"""

from __future__ import annotations

import json
import re
import threading
import zipfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from email.parser import HeaderParser
from pathlib import Path
from typing import Any, Literal, NamedTuple

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.tags import Tag
from packaging.utils import InvalidWheelFilename, canonicalize_name
from packaging.version import Version

from ...errors import GpuenvError, LockError
from ...index.archives import open_wheel, read_metadata
from ...index.http import Http, fetch_all
from ...index.simple_api import File, project_files
from ...index.wheel_names import applies, cpython_markers, glibc_of
from ...model import PLATFORMS
from ...model.values import Value
from ...system import trust
from ...system.redaction import redact
from ...system.versions import numbers
from ...system.wheel_file import parse_wheel

Measure = Callable[[zipfile.ZipFile], dict[str, Any]]
Documents = dict[str, list[dict[str, Any]]]
"""The hand-kept tables of a profile file by name, for what no wheel tells."""


class WheelFile(Value):
    """A wheel that an index lists. `platform` is one of model.PLATFORMS or "any".

    `python` is a minor version ("3.12") or None for any. `glibc` comes from its tag, `order` is its build tag.
    """

    file: File
    version: Version
    platform: str
    python: str | None
    glibc: str | None
    order: tuple[int, str]


class ReleaseWheels(NamedTuple):
    """The wheels of one release for one platform."""

    version: Version
    platform: str
    wheels: list[WheelFile]

    @property
    def wheel(self) -> WheelFile:
        """The wheel that is read."""
        return representative(self.wheels)

    def row(self, fact: dict[str, Any]) -> dict[str, Any]:
        """Return the columns that the row of every build has, measured or listed."""
        row: dict[str, Any] = {
            "version": str(self.version), "platform": self.platform, "index": "pypi",
            "python": " ".join(pythons(self.wheels)), "sha256": fact["sha256"], "bytes": str(fact["bytes"]),
        }  # fmt: skip
        if glibcs := [g for g in (*(w.glibc for w in self.wheels), fact.get("glibc")) if g]:
            row["glibc"] = max(glibcs, key=numbers)
        return row | ({"yanked": "yes"} if is_yanked(self.wheels) else {})


def platform_of(tag: str) -> tuple[str, str | None] | None:
    """Return (platform, glibc) of a platform tag, or None for platforms that gpuenv does not support."""
    if tag == "any":
        return "any", None
    if tag == "win_amd64":
        return "windows-x86_64", None
    match = re.fullmatch(r"(?:manylinux(?:_\d+_)?\d+|linux)_(x86_64|aarch64)", tag)
    glibc = glibc_of(tag)
    return (f"linux-{match[1]}", ".".join(map(str, glibc)) if glibc else None) if match else None


def _parse_wheel_files(file: File) -> list[WheelFile]:
    try:
        wheel = parse_wheel(file.name)
    except InvalidWheelFilename:
        return []
    if wheel.label:
        return []  # a row is of the one wheel that every installer takes
    version, build = wheel.version, wheel.build
    order = (int(build[0]), str(build[1])) if build else (-1, "")
    by_platform: dict[tuple[str, str | None], list[str | None]] = defaultdict(list)
    for tag in wheel.tags:
        if (python := _parse_python(tag)) is not False and (place := platform_of(tag.platform)):
            by_platform[place[0], python].append(place[1])
    return [
        WheelFile(
            file=file,
            version=version,
            platform=platform,
            python=python,
            glibc=min((g for g in glibcs if g), key=numbers, default=None),
            order=order,
        )
        for (platform, python), glibcs in by_platform.items()
    ]


def _parse_python(tag: Tag) -> str | Literal[False] | None:
    """Return the minor version ("3.12"), or None for any Python 3.

    Return False for Pythons that gpuenv does not support (free-threaded, PyPy).
    """
    if tag.abi.endswith("t") and tag.abi.startswith("cp"):
        return False
    if match := re.fullmatch(r"cp3(\d+)", tag.interpreter):
        return f"3.{match[1]}" if tag.abi != "abi3" else None
    return None if re.fullmatch(r"py3\d*|py2\.py3", tag.interpreter) else False


class Reader:
    """Access to an index, with a cache of the facts of its wheels.

    `cache` is a folder of one JSON file per wheel, or None. `problems` are the things that could not be read,
    one sentence each. `read_count` counts the wheels read over the network. `only` are the requested rows, by
    `row_name`, if set. `platforms` are those whose rows are requested, `known` are rows to skip.
    """

    def __init__(
        self, http: Http, index: str, cache: Path | None, *, say: Callable[[str], None] | None = None
    ) -> None:
        self.http, self.index, self.cache = http, index, cache
        self.problems: list[str] = []
        self.read_count = 0
        self.only: frozenset[tuple[str, str, str]] | None = None
        self.known: frozenset[tuple[str, str, str]] = frozenset()
        self.platforms: frozenset[str] = frozenset({*PLATFORMS, "any"})
        self._say = say or (lambda _: None)
        self._lock = threading.Lock()
        self._files: dict[str, list[File]] = {}
        self._wheels: dict[str, list[WheelFile]] = {}

    def files(self, project: str) -> list[File]:
        """Return every file of a project."""
        if project not in self._files:
            self._files[project] = project_files(self.http, self.index, project)
        return self._files[project]

    def wheels(self, project: str) -> list[WheelFile]:
        """Return every wheel of a project for a supported platform."""
        if project not in self._wheels:
            self._wheels[project] = [w for f in self.files(project) for w in _parse_wheel_files(f)]
        return self._wheels[project]

    def builds(self, project: str, oldest: str, package: str = "") -> list[ReleaseWheels]:
        """Return the builds of a project whose rows are requested, newest first."""
        return [
            ReleaseWheels(version, platform, usable)
            for version, wheels in releases(self.wheels(project), oldest).items()
            for platform in PLATFORMS
            if self.is_requested(version, platform, package)
            and (usable := [w for w in wheels if w.platform == platform])
        ]

    def require(self, project: str) -> None:
        """Raise LockError if the index lists no wheel of a project, because then it says nothing about new
        releases."""
        if not self.wheels(project):
            shown = redact(self.index)
            raise LockError(
                f"{shown} lists no wheels of {project}.",
                hint="The index may require credentials, or may be a mirror without this project. To use another index: --index URL.",
                unreachable=shown,
            )

    def is_requested(self, version: Version, platform: str, package: str = "") -> bool:
        """Return whether a row of this version and platform was requested. `package` is for tables with that
        column."""
        row = (package, str(version), platform)
        wanted = platform in self.platforms and row not in self.known
        return wanted and (self.only is None or row in self.only)

    def add_problem(self, text: str) -> None:
        """Report something that cannot be read."""
        with self._lock:
            self.problems.append(text)
        self._say(f"cannot read: {text}")

    def facts(
        self, wheel: WheelFile, kind: str, measure: Measure | None = None, step: int | None = None
    ) -> dict[str, Any] | None:
        """Return what metadata and `measure` say of a wheel, with its `sha256` and the `bytes` fetched.

        If the wheel cannot be read, add a problem and return None.
        """
        return self.read_cached(wheel.file, kind, lambda: self._read(wheel.file, measure, step))

    def _read(self, file: File, measure: Measure | None, step: int | None) -> dict[str, Any]:
        opened, counter = open_wheel(self.http, file.url, step)
        return {
            **read_header(read_metadata(opened, file.name)),
            **(measure(opened) if measure else {}),
            "bytes": counter.fetched,
            "sha256": file.sha256,
        }

    def read_cached(self, file: File, kind: str, read: Callable[[], dict[str, Any]]) -> dict[str, Any] | None:
        """Return the result of `read` for a file, from the cache if possible. If it fails, add a problem and
        return None."""
        kept = self.cache / f"{file.sha256}-{kind}.json" if self.cache and file.sha256 else None
        if kept and kept.is_file():
            try:
                cached: dict[str, Any] = json.loads(trust.read_cached(kept))
            except (OSError, ValueError):
                kept.unlink()  # another user's, or half-written by a run that was killed: read the wheel again
            else:
                return cached
        try:
            facts = read()
        except (GpuenvError, ValueError, KeyError, OSError) as e:
            if getattr(e, "unreachable", None):
                raise  # the network, not the wheel: stop, and go on from the cache another time
            self.add_problem(f"{file.name}: {e}")
            return None
        with self._lock:
            self.read_count += 1
        self._say(f"read {file.name} ({facts['bytes'] >> 10} KiB)")
        if kept:
            kept.parent.mkdir(parents=True, exist_ok=True)
            part = kept.with_suffix(f".{threading.get_ident()}")
            part.write_text(json.dumps(facts), encoding="utf-8")
            part.replace(kept)
        return facts

    def all_facts(
        self, wheels: Iterable[WheelFile], kind: str, measure: Measure | None = None
    ) -> dict[WheelFile, dict[str, Any] | None]:
        """Return the facts of many wheels. A bounded number is read at a time."""
        return fetch_all(wheels, lambda w: self.facts(w, kind, measure))

    def measured(
        self, builds: Sequence[ReleaseWheels], kind: str, measure: Measure | None = None
    ) -> list[tuple[ReleaseWheels, dict[str, Any]]]:
        """Return the builds that can be read, with their facts."""
        facts = self.all_facts((b.wheel for b in builds), kind, measure)
        return [(b, fact) for b in builds if (fact := facts[b.wheel])]


def read_header(text: str) -> dict[str, Any]:
    """Return what metadata requires."""
    header = HeaderParser().parsestr(text)
    return {
        "requires": header.get_all("Requires-Dist") or [], "requires_python": header.get("Requires-Python")
    }  # fmt: skip


def row_name(row: dict[str, Any]) -> tuple[str, str, str]:
    """Return the package ("" if its table has only one), version and platform of a row."""
    return row.get("package", ""), row["version"], row.get("platform", "any")


def representative(wheels: Iterable[WheelFile]) -> WheelFile:
    """Return the wheel that is read for all Pythons of a build: the highest build tag, then Python."""
    return max(wheels, key=lambda w: (w.order, numbers(w.python or "0"), w.file.name))


def releases(wheels: Iterable[WheelFile], oldest: str) -> dict[Version, list[WheelFile]]:
    """Return wheels by version from `oldest` on, newest first. Pre-releases count only above the newest final
    release."""
    by_version: dict[Version, list[WheelFile]] = defaultdict(list)
    for wheel in wheels:
        if wheel.version >= Version(oldest) and not wheel.version.local and not wheel.version.is_devrelease:
            by_version[wheel.version].append(wheel)
    newest = max((v for v in by_version if not v.is_prerelease), default=Version("0"))
    kept = [v for v in by_version if not v.is_prerelease or v > newest]
    return {v: by_version[v] for v in sorted(kept, reverse=True)}


def pythons(wheels: Iterable[WheelFile]) -> list[str]:
    """Return the minor versions that have a wheel, oldest first."""
    return sorted({w.python for w in wheels if w.python}, key=numbers)


def allowed_pythons(fact: dict[str, Any]) -> list[str]:
    """Return the minor versions of Python that the metadata of a release allows."""
    specifier = SpecifierSet(fact["requires_python"] or "")
    return [m for m in (f"3.{n}" for n in range(8, 20)) if allows(specifier, f"{m}.20")]


def is_yanked(wheels: Sequence[WheelFile]) -> bool:
    """Return whether all wheels of a release are yanked."""
    return bool(wheels) and all(w.file.yanked is not None for w in wheels)


def list_tested(documents: Documents, version: Version) -> list[dict[str, Any]]:
    """Return the rows of the table `tested` about a release: the CUDA and cuDNN that a document names."""
    return [r for r in documents.get("tested", ()) if f"{version}.".startswith(f"{r['version']}.")]


# --- requirements -------------------------------------------------------------------------------------


GPU_NAMES = re.compile(r"(nvidia|cuda|tensorrt)-.*|tensorrt|triton|pytorch-triton|jax-cuda\d+-(plugin|pjrt)")
"""The requirements that a build's row keeps: what is, or brings, code for GPUs."""


def parse(line: str) -> Requirement | None:
    """Return a Requires-Dist line as a requirement, or None for the few invalid lines of old wheels."""
    head, semicolon, marker = line.partition(";")
    try:
        return Requirement(re.sub(r"\(([^()]*)\)", r"\1", head, count=1) + semicolon + marker)
    except InvalidRequirement:
        return None


def list_required(
    lines: Iterable[str], platform: str, pythons: Sequence[str], extras: Sequence[str] = ()
) -> list[tuple[Requirement, list[str]]]:
    """Return the requirements that apply on a platform with these extras, and for which of the Pythons."""
    here = {**cpython_markers(platform, None), "platform_release": "", "platform_version": ""}
    result = []
    for requirement in filter(None, map(parse, lines)):
        where = []
        for p in pythons:
            python = {
                "python_version": p,
                "python_full_version": f"{p}.0",
                "implementation_version": f"{p}.0",
            }
            if applies(requirement.marker, here | python, extras or ("",)):
                where.append(p)
        if where:
            requirement.marker = None
            result.append((requirement, where))
    return result


def format_requirement(requirement: Requirement, where: Sequence[str], pythons: Sequence[str]) -> str:
    """Return a requirement as text for a profile row. It has a marker only if it does not apply to every
    Python."""
    extras = f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""
    text = f"{canonicalize_name(requirement.name)}{extras}{requirement.specifier}"
    inside, everywhere = sorted(where, key=numbers), sorted(pythons, key=numbers)
    count = len(inside)
    if count == len(everywhere):
        return text
    if inside == everywhere[:count]:
        return f'{text}; python_version < "{everywhere[count]}"'
    if inside == everywhere[-count:]:
        return f'{text}; python_version >= "{inside[0]}"'
    alone = " or ".join(f'python_version == "{p}"' for p in inside)
    return f"{text}; {alone}"


def cudnn_specifier(requires: Iterable[str]) -> str | None:
    """Return the specifier of the cuDNN package among a row's requirements."""
    for text in requires:
        requirement = Requirement(text)
        if re.fullmatch(r"nvidia-cudnn-cu\d+", requirement.name):
            return str(requirement.specifier)
    return None


def unresolvable(
    reader: Reader, lines: Iterable[str], platform: str, pythons: Sequence[str], extras: Sequence[str] = ()
) -> list[str]:
    """Return the Pythons for which a GPU requirement has no wheel on the index, with that requirement."""
    missing: dict[str, str] = {}
    for need, where in list_required(lines, platform, pythons, extras):
        for python in where if GPU_NAMES.fullmatch(need.name) else ():
            has_wheel = any(
                w.platform in (platform, "any") and w.python in (None, python) and w.file.yanked is None
                and allows(need.specifier, str(w.version))
                for w in reader.wheels(need.name)
            )  # fmt: skip
            if not has_wheel:
                missing.setdefault(python, f"{python}: {need.name}{need.specifier} has no wheel for it")
    return [missing[p] for p in pythons if p in missing]


def allows(specifier: SpecifierSet | None, version: str) -> bool:
    """Return whether a specifier allows a version, pre-releases included."""
    return specifier is None or specifier.contains(version, prereleases=True)
