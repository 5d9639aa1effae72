"""Asks uv for the packages of one question, for one Python and platform."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import re
import sys
import time
from collections import UserDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from urllib.parse import unquote, urlsplit

import tomli_w
from packaging.pylock import Package as PylockPackage, Pylock, PylockSelectError, PylockValidationError
from packaging.requirements import Requirement
from packaging.tags import Tag
from packaging.utils import canonicalize_name
from packaging.version import Version

from ..errors import LockError, ResolveError
from ..index import uv
from ..index.config import own_cache, pytorch_address, pytorch_packages
from ..index.places import UploadTimes, drop_pages, indexes_of_files
from ..index.uv import without_credentials
from ..index.wheel_names import expand_address, rank_wheel, wheel_tags
from ..model import (
    UV_LOCK_FORMAT,
    VENV_LOCK,
    Emit,
    Event,
    LockedPackage,
    PackageSources,
    Plan,
    RequirementLine,
    requirement_name,
)
from ..model.values import dataclass
from ..resolve.question import Question
from ..system import grants, trust
from ..system.cache import cache_folder
from ..system.files import hash_file
from ..system.grants import escape_references
from ..system.redaction import clean, redact
from ..system.scratch import make_scratch
from ..system.toml import tomllib
from ..system.untrusted import file_name_of_url
from ..system.wheel_file import parse_wheel
from ..wheels import pylock
from ..wheels.pylock import file_name, is_source
from ..wheels.sdist import SourceArchive
from .archives import SourceRules
from .uv_errors import TIMEOUT, explain, find_table, find_variant
from .variants import Chosen, VariantsFoundError, choose

_UV_PLATFORM = {"linux-x86_64": "x86_64", "linux-aarch64": "aarch64", "windows-x86_64": "x86_64"}
_BUILDING = re.compile(r"^DEBUG Preparing metadata for: (\S+)")
_TABLE = re.compile(r"^DEBUG .*/([\w.]{1,200})-([\w.+!%]{1,100})-variants\.json$")
_LOG = "uv_distribution::source=debug,uv_client::cached_client=debug"
"""What uv logs beside its errors: the sources whose build code it runs, and the files that it reads."""


@dataclass(frozen=True, kw_only=True)
class UvQuestion:
    """What uv is asked: the requirements of a plan and a project for its Python and platform.

    `roots` are requirements in the order in which uv decides them, and `needs` the project's other lines. `lines` are
    those of the project among the roots, for messages. `limits` are constraints. `keep` are versions that must stay, and
    `prefer` those that stay if they can. `only_binary` are packages of which no source is taken (":all:" for all
    but those in `built`). `python` is the interpreter that starts build code, of any version. `judge` chooses variants of
    wheels; without it uv ignores them. `alone` leaves out what the roots require.
    """

    plan: Plan
    sources: PackageSources
    roots: tuple[str, ...]
    needs: tuple[RequirementLine, ...] = ()
    lines: tuple[RequirementLine, ...] = ()
    limits: tuple[str, ...] = ()
    keep: Mapping[str, str] = field(default_factory=dict)
    prefer: Mapping[str, str] = field(default_factory=dict)
    only_binary: frozenset[str] = frozenset()
    built: frozenset[str] = frozenset()
    python: str | None = None
    judge: Question | None = None
    alone: bool = False


@dataclass(frozen=True, kw_only=True)
class Answer:
    """uv's solution of a question.

    `archives` are the packages that come from a source archive, with its description if it could be read. `uploaded` is
    the day of the upload of each package whose index states it. `required_by` are the packages that require each package. uv states them in a second run, at their first use.
    """

    packages: tuple[LockedPackage, ...]
    archives: Mapping[str, SourceArchive | None] = field(default_factory=dict)
    uploaded: Mapping[str, str] = field(default_factory=dict)
    required_by: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @functools.cached_property
    def by_name(self) -> Mapping[str, LockedPackage]:
        """The packages by name."""
        return {p.name: p for p in self.packages}

    @functools.cached_property
    def versions(self) -> Mapping[str, str]:
        """The version of each package."""
        return {p.name: p.version for p in self.packages}


def ask(question: UvQuestion, rules: SourceRules, emit: Emit) -> Answer:
    """Return uv's solution. Raises LockError: a refusal has its reason in `uv_errors`' terms."""
    with make_scratch("lock") as scratch:
        run = _Run(question, rules, emit, scratch)
        text = run.solution()
        packages = run.with_indexes(parse_pylock(text, question.plan), text)
    packages = tuple(run.variants[p.name].package if p.name in run.variants else p for p in packages)
    packages = _with_sizes(drop_pages(packages, question.sources), question.sources)
    archives = {p.name: rules.describe(p, question.needs, question.plan) for p in packages if is_source(p)}
    editables = {Path(n.local).absolute().as_uri() for n in question.needs if n.editable and n.local}
    packages = tuple(dataclasses.replace(p, editable=True) if p.url in editables else p for p in packages)
    return Answer(
        packages=tuple(archives[p.name][0] if p.name in archives else p for p in packages),
        archives={name: archive for name, (_, archive) in archives.items()},
        uploaded=parse_uploads(text), required_by=Requirers(lambda: run.annotated(text)),
    )  # fmt: skip


@dataclasses.dataclass
class _Run:
    """The runs of uv for one question, with a folder for its files."""

    question: UvQuestion
    rules: SourceRules
    emit: Emit
    scratch: Path
    bound: dict[str, str] = field(default_factory=dict)
    pinned: dict[str, str] = field(default_factory=dict)
    logins: tuple[str, ...] = ()
    seconds: list[float] = field(default_factory=list)
    built: set[str] = field(default_factory=set)
    variants: dict[str, Chosen] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    plain: bool = False
    tables: set[tuple[str, str]] = field(default_factory=set)

    def solution(self) -> str:
        """Return the solution as a pylock.toml. Raises LockError.

        uv takes only named packages from the PyTorch index. So its packages that others require are asked again, by
        name.
        """
        try:
            text = self.compile(UV_LOCK_FORMAT)
            bound, versions = self._bound_to_pytorch(()), parse_versions(text)
            stray = [n for n in pytorch_packages(self.question.plan) if n in versions and n not in bound]
            return self.compile(UV_LOCK_FORMAT, stray) if stray else text
        finally:
            took = ", ".join(f"{s:.2f} s" for s in self.seconds)
            self.emit(Event("done", "lock", f"uv took {took}" if took else "uv was not run"))

    def annotated(self, text: str) -> str:
        """Return a solution with annotations of indexes and requirers. Raises LockError."""
        with make_scratch("lock") as scratch:
            versions = parse_versions(text)
            pins = tuple(f"{name}=={version}" for name, version in versions.items())
            question = dataclasses.replace(self.question, limits=(*self.question.limits, *pins), prefer={})
            again = _Run(question, self.rules, self.emit, scratch, variants=self.variants)
            bound = [n for n in self.bound if n in versions]
            with contextlib.suppress(LockError):
                return again.compile("requirements.txt", bound, cached=True)
            return again.compile("requirements.txt", bound)

    # --- files for uv --------------------------------------------------------------------------------

    def _write_project(self, more: Sequence[str]) -> Path:
        """Write a pyproject.toml with the roots, and return its path. Packages with one index are bound to it.

        uv binds only packages that this file names.
        """
        question = self.question
        named = pytorch_packages(question.plan)
        lines = [n for n in question.needs if n.name and not n.constraint]
        roots = [*question.roots, *more, *(n.text for n in lines if n.name in named and n.name != "torch")]
        indexed = [n for n in lines if n.index and n.name not in named]
        roots += [n.text for n in indexed]
        self.pinned = {requirement_name(r): r for r in roots}
        bound = self._bound_to_pytorch(roots)
        indexes = {f"project-{i}": url for i, url in enumerate(dict.fromkeys(n.index or "" for n in indexed))}
        names = {url: name for name, url in indexes.items()}
        # uv sends UV_INDEX_PYTORCH_PASSWORD to the index of this name, which a project can replace.
        pytorch = "pytorch" if grants.is_own_origin(question.sources.pytorch or "") else "gpuenv-pytorch"
        if bound:
            indexes[pytorch] = pytorch_address(question.sources.pytorch, question.plan)
        chosen = {n.package: names[n.index or ""] for n in indexed}
        chosen |= dict.fromkeys(bound, pytorch)
        self.bound = {name: indexes[index] for name, index in chosen.items()}
        text = [
            "[project]", 'name = "gpuenv-plan"', 'version = "0"', f'requires-python = "=={question.plan.python}.*"',
            f"dependencies = {json.dumps(roots)}",
            *(f'[[tool.uv.index]]\nname = "{name}"\nurl = {json.dumps(url)}\nexplicit = true' for name, url in indexes.items()),
            "[tool.uv.sources]", *(f'{name} = {{ index = "{index}" }}' for name, index in chosen.items()),
        ]  # fmt: skip
        path = self.scratch / "pyproject.toml"
        path.write_text("\n".join(text) + "\n", encoding="utf-8")
        return path

    def _bound_to_pytorch(self, roots: Sequence[str]) -> list[str]:
        names = {requirement_name(r) for r in (*self.question.roots, *roots)}
        names |= {n.package for n in self.question.needs}
        return [n for n in pytorch_packages(self.question.plan) if n in names]

    def _constraints(self) -> list[str]:
        """Write the constraints and the project's other lines, and return their options."""
        question = self.question
        readable = self.rules.kept(question.needs)
        # uv builds an editable even where builds are forbidden, and no other folder.
        editable = self.rules.builds
        lines = (
            f"-e {n.local}" if n.editable and n.local and editable else n.text
            for n in readable if not n.constraint
        )  # fmt: skip
        bare, self.logins = without_credentials("".join(f"{line}\n" for line in lines))
        bounds = [n.text for n in question.needs if n.constraint and not n.override]
        bounds += [
            *question.limits,
            *(f"{name}=={version}" for name, version in question.keep.items()),
            *self.left_out,
        ]
        overrides = [self.pinned.get(n.package, n.text) for n in question.needs if n.override]
        # Both packages install the module onnxruntime, and many packages require the one for the CPU.
        overrides += ["onnxruntime; python_version < '0'"] * ("onnxruntime-gpu" in self.pinned)
        overrides += self.rules.overrides()
        overrides += [chosen.requirement for chosen in self.variants.values()]
        files = [self._write("needs.in", bare)] if bare else []
        files += ["--constraints", self._write("limits.in", "\n".join(bounds) + "\n")] if bounds else []
        files += (
            ["--overrides", self._write("overrides.in", "\n".join(overrides) + "\n")] if overrides else []
        )
        return files

    def _write_preferences(self) -> Path:
        """Write the preferred versions as an earlier output of uv, and return its path."""
        packages = [{"name": name, "version": version} for name, version in self.question.prefer.items()]
        document = {"lock-version": "1.0", "created-by": "gpuenv", "packages": packages}
        return Path(self._write(VENV_LOCK, tomli_w.dumps(document)))

    def _write(self, name: str, text: str) -> str:
        path = self.scratch / name
        path.write_text(text, encoding="utf-8")
        return str(path)

    # --- runs of uv ----------------------------------------------------------------------------------

    def compile(self, form: str, more: Sequence[str] = (), *, cached: bool = False) -> str:
        """Return uv's answer. uv runs again where a source archive was read in place of a build.

        `more` are further roots. With `cached` nothing is asked that is not in uv's cache.
        """
        while True:
            try:
                text = self._compile_once(form, more, cached=cached)
            except VariantsFoundError as found:
                self._choose_variant(found.package, more)
            except LockError as error:
                if self.left_out:
                    error.message += ". " + ". ".join(self.left_out.values())
                if cached or not self.rules.learn_from(error, self.question.needs, self.question.plan):
                    raise
            else:
                versions = parse_versions(text)
                # An ordinary wheel beside variants is the build for the CPU, which uv takes where no variant fits.
                beside = [n for n, v in versions.items() if (n, v) in self.tables and n not in self.variants]
                if beside and self.question.judge and not self.plain:
                    self._choose_variant(beside[0], more)
                elif not self.rules.learn(versions, self.question.needs, self.question.plan):
                    return text

    def _choose_variant(self, name: str, more: Sequence[str]) -> None:
        """Choose the variant of the release that uv chose, or leave the release out with the reasons."""
        judge = self.question.judge
        assert judge is not None  # otherwise uv ignores variants
        text = self._compile_once("requirements.txt", more)
        release, index = parse_versions(text)[name], parse_annotations(text)[0][name]
        extras = Requirement(self.pinned.get(name, name)).extras
        package = Requirement(f"{name}[{','.join(extras)}]=={release}")
        question = self.question
        try:
            self.variants[name] = choose(
                judge, question.plan, question.sources, index, package, self.scratch / "variants"
            )
        except ResolveError as error:
            self.left_out[f"{name}!={release}"] = error.message
            self.emit(Event("warning", "lock", error.message))

    @functools.cached_property
    def _times(self) -> UploadTimes:
        return UploadTimes(self.question.sources, self.question.plan)

    def _compile_once(self, form: str, more: Sequence[str], *, cached: bool = False) -> str:
        question = self.question
        plan = question.plan
        output = self._write_preferences() if question.prefer else None
        words = [
            "pip", "compile", str(self._write_project(more)), *self._constraints(), "--format", form, "--no-header", "--emit-index-annotation",
            *self.rules.options(question.needs, self.scratch, question.only_binary, question.built), "--python-version", plan.python or "",
            *self._times.options(), "--python-platform", uv_platform(plan.platform, plan.target.glibc, question.sources),
        ]  # fmt: skip
        words += ["--output-file", str(output)] if output else []
        words += ["--no-deps"] if question.alone else []
        settings = uv.Settings(
            only_wheels=only_files(question.sources), git_logins=self.logins, timeout=TIMEOUT,
            variables={"RUST_LOG": _LOG} | ({"UV_OFFLINE": "1"} if cached else {}) | self._variant_settings(),
            on_line=self._name_build,
        )  # fmt: skip
        began = time.monotonic()
        done = uv.run_uv(words, question.sources, python=question.python or sys.executable, settings=settings)
        self.seconds.append(time.monotonic() - began)
        if self._times.exempt_undated(done.stderr):
            return self._compile_once(form, more, cached=cached)
        if done.ok:
            return output.read_text(encoding="utf-8") if output else done.stdout
        if found := find_variant(done.stderr):
            raise VariantsFoundError(found)
        if not self.plain and (table := find_table(done.stderr)):
            self.plain = True
            text = f"the variants in {clean(table)} cannot be read: only wheels without variants are taken"
            self.emit(Event("warning", "lock", text))
            return self._compile_once(form, more, cached=cached)
        lines = (*question.lines, *question.needs)
        raise explain(
            done, question.sources, (*question.roots, *self.pinned.values()), lines, self.rules.archives
        )

    def _variant_settings(self) -> dict[str, str]:
        """Return variables with which uv considers variants as the target would, and not the machine that it runs on."""
        judge = self.question.judge
        if judge is None or self.plain:
            return {}
        gpus = [Version(g.capability) for q in judge.every for g in q.target.gpus]
        speaks = judge.speaks if judge.request.device == "cuda" else None
        return {
            "UV_PREVIEW_FEATURES": "wheel-variants",
            "NV_VARIANT_PROVIDER_FORCE_CUDA_DRIVER_VERSION": speaks or "0.0",
            **({"NV_VARIANT_PROVIDER_FORCE_SM_ARCH": str(max(gpus))} if gpus else {}),
        }

    def _name_build(self, line: str) -> None:
        """Name the package whose build code uv runs, once, and note the releases with variants."""
        if table := _TABLE.match(line):
            self.tables.add((str(canonicalize_name(table[1])), unquote(table[2]).replace("_", "-")))
        if self.rules.builds and (match := _BUILDING.match(line)) and match[1] not in self.built:
            self.built.add(match[1])
            text = f"uv runs the build code of {clean(match[1])} to learn its requirements"
            self.emit(Event("note", "lock", text))

    def with_indexes(self, packages: Sequence[LockedPackage], text: str) -> tuple[LockedPackage, ...]:
        """Return the packages with their indexes, from their addresses or else from another run of uv."""
        of_index = parse_versions(text)
        sources = self.question.sources
        indexed = [p for p in packages if p.name in of_index]
        indexes = indexes_of_files(indexed, sources, self.bound, only_wheels=only_files(sources))
        if indexes is None:
            indexes, _ = parse_annotations(self.annotated(text))
        return tuple(
            dataclasses.replace(p, index=redact(indexes[p.name]) if p.name in indexes else None, url=_address(p))
            for p in packages
        )  # fmt: skip


def _address(package: LockedPackage) -> str:
    """Return a package's address for the lock. Raises LockError if a variable contains the file's name."""
    url = redact(package.url)
    if not package.unhashed and grants.names_in(url.rpartition("/")[2]):
        raise LockError(
            f"the address of {package.name} has no file name: {url}",
            hint=f"add the file name after the variable: .../{file_name(package)}",
        )
    return url


def _with_sizes(packages: tuple[LockedPackage, ...], sources: PackageSources) -> tuple[LockedPackage, ...]:
    """Return the packages with sizes, which HEAD requests find if the index does not state them.

    The size of a download is shown before it starts. It stays unknown if a server refuses the request.
    """
    urls = {p.url: expand_address(p) for p in packages if p.size is None}
    unknown = [u for u in urls.values() if u.startswith("file:") or not sources.offline]
    if not unknown:
        return packages
    from ..index.http import Http

    try:
        sizes = Http(tries=1, timeout=5.0).sizes(unknown)
    except LockError:
        sizes = {}
    return tuple(dataclasses.replace(p, size=p.size or sizes.get(urls.get(p.url, p.url))) for p in packages)


def only_files(sources: PackageSources) -> bool:
    """Return whether only folders and pages of wheels are used.

    Offline, an index's answers in the cache would name files that are not available.
    """
    return sources.no_index or (sources.offline and bool(sources.find_links))


@functools.cache
def uv_platform(platform: str, glibc: str | None, sources: PackageSources) -> str:
    """Return uv's name for a platform, with the newest glibc that uv knows and the target has. Raises LockError."""
    machine = _UV_PLATFORM[platform]
    if platform.startswith("windows"):
        return f"{machine}-pc-windows-msvc"
    known = {int(m) for m in re.findall(rf"{machine}-manylinux_2_(\d+)", _read_uv_options(sources))}
    fitting = [m for m in known if m <= int((glibc or "2.17").split(".")[1])]
    if not fitting:
        raise LockError(
            f"glibc {glibc} is too old: packages can be solved for glibc 2.{min(known)} or newer",
            hint="use a newer system or a container",
        )
    return f"{machine}-manylinux_2_{max(fitting)}"


def _read_uv_options(sources: PackageSources) -> str:
    """Return uv's help on `uv pip compile`, which is cached for this uv."""
    status = Path(uv.program()).stat()
    kept = cache_folder(own_cache(sources), "uv-help") / f"{status.st_mtime_ns}-{status.st_size}.txt"
    with contextlib.suppress(OSError, ValueError):
        return trust.read_cached(kept).decode()
    text = uv.run_uv(["pip", "compile", "--help"], PackageSources(), python=None).stdout
    trust.write_cached(kept, text)
    return text


# --- the newest releases ---------------------------------------------------------------------------


def newest(question: UvQuestion, rules: SourceRules, emit: Emit) -> Answer:
    """Return the newest release of each root of a question, or none at all if one of them has none.

    One run of uv looks at all of them, without what they require.
    """
    with (
        make_scratch("lock") as scratch,
        contextlib.suppress(LockError),
    ):  # the solve itself says what is missing
        text = _Run(question, rules, emit, scratch).compile(UV_LOCK_FORMAT)
        return Answer(packages=parse_pylock(text, question.plan), uploaded=parse_uploads(text))
    return Answer(packages=())


# --- uv's answer -----------------------------------------------------------------------------------


def list_target_tags(plan: Plan) -> Mapping[Tag, int]:
    """Return the wheel tags that the plan's Python supports on the target, each with its rank."""
    return wheel_tags(plan.python or "", plan.platform, plan.target.glibc)


def parse_pylock(text: str, plan: Plan) -> tuple[LockedPackage, ...]:
    """Return one file per package, whose tags fit the target best. Raises LockError."""
    tags = list_target_tags(plan)
    return tuple(_choose_file(p, tags) for p in read_pylock(text).packages)


def parse_uploads(text: str) -> dict[str, str]:
    """Return the day of the first upload of each package in uv's pylock.toml, where the index states it."""
    days: dict[str, str] = {}
    for package in read_pylock(text).packages:
        times = [w.upload_time for w in package.wheels or () if w.upload_time]
        times += [package.sdist.upload_time] if package.sdist and package.sdist.upload_time else []
        if times:
            days[str(package.name)] = min(times).date().isoformat()
    return days


def parse_versions(text: str) -> dict[str, str]:
    """Return the version of each package of an index, from either form of uv's answer. Raises LockError."""
    if not text.startswith("lock-version"):
        pins = re.findall(r"(?m)^([A-Za-z0-9._-]+)={2,3}([^\s;]+)", text)
        return {str(canonicalize_name(name)): version for name, version in pins}
    packages = read_pylock(text).packages
    return {str(p.name): str(p.version) for p in packages if p.version and (p.wheels or p.sdist)}


@functools.lru_cache(maxsize=4)
def read_pylock(text: str) -> Pylock:
    """Return uv's answer. Raises LockError for another text."""
    try:
        return Pylock.from_dict(tomllib.loads(text))
    except (ValueError, PylockValidationError, PylockSelectError) as error:
        raise LockError(
            f"the solver's answer cannot be read: {error}",
            hint="reinstall gpuenv: its uv was replaced by another version",
        ) from error


def _choose_file(package: PylockPackage, tags: Mapping[Tag, int]) -> LockedPackage:
    """Return the file or source of a package.

    It is a commit, a folder, the file of an address, the best wheel, or the source archive if no wheel fits.
    """
    if source := pylock.unhashed_source(package):
        return dataclasses.replace(source, url=escape_references(source.url))
    file = package.archive or (None if package.wheels else package.sdist)
    if file is None:
        try:
            return choose_best_wheel(package, tags)
        except LockError:
            if package.sdist is None:
                raise
            file = package.sdist
    url = escape_references(file.url or Path(file.path or "").absolute().as_uri())
    sha256 = file.hashes.get("sha256") or _hash_of(url)
    return pylock.check_file_name(LockedPackage(
        name=str(package.name), version=str(package.version or ""), url=url, sha256=sha256, index=package.index,
        size=file.size, unhashed=sha256 is None,
    ))  # fmt: skip


def _hash_of(url: str) -> str | None:
    """Return the sha256 of a local file, or None for a remote one without a known hash."""
    if not url.startswith("file:"):
        return None
    return hash_file(unquote(urlsplit(url).path))["sha256"]


def choose_best_wheel(package: PylockPackage, tags: Mapping[Tag, int]) -> LockedPackage:
    """Return the wheel of a package with the best tags. Raises LockError if none fits."""
    named = (
        (parse_wheel(w.name or file_name_of_url(w.url or w.path or "")), w) for w in package.wheels or ()
    )
    fitting = [(rank, wheel) for name, wheel in named if (rank := rank_wheel(name, tags))]
    if not fitting or package.version is None:
        raise LockError(
            f"{package.name} {package.version or ''} has no wheel that fits the target",
            hint="try another --python",
        )
    wheel = min(fitting, key=lambda pair: pair[0])[1]
    return pylock.check_file_name(LockedPackage(
        name=str(package.name), version=str(package.version), url=escape_references(wheel.url or wheel.path or ""),
        sha256=wheel.hashes.get("sha256"), index=package.index, size=wheel.size,
    ))  # fmt: skip


class Requirers(UserDict[str, tuple[str, ...]]):
    """The packages that require each package. They are read at their first use, because few locks need them."""

    def __init__(self, annotated: Callable[[], str]) -> None:
        self._annotated = annotated

    @functools.cached_property
    def data(self) -> dict[str, tuple[str, ...]]:  # type: ignore[override]  # UserDict sets it at once
        return parse_annotations(self._annotated())[1]


def parse_annotations(text: str) -> tuple[dict[str, str], dict[str, tuple[str, ...]]]:
    """Return the index of each package and the packages that require it, from the annotations of `uv pip compile`.

    `# from URL` and `# via NAME` stand under each pin. Files and the plan require nothing.
    """
    indexes: dict[str, str] = {}
    requirers: dict[str, tuple[str, ...]] = {}
    name = ""
    for line in text.splitlines():
        if pin := re.match(r"([A-Za-z0-9._-]+)(?:\[[^\]]*\])?(?:={2,3}| @ )", line):
            name = pin[1].lower()
            requirers[name] = ()
        elif name and (origin := re.match(r"\s+# from (\S+)", line)):
            indexes[name] = origin[1]
        elif name and (by := re.fullmatch(r"\s+#\s+(?:via\s+)?([A-Za-z0-9][A-Za-z0-9._-]*)", line)):
            requirers[name] = (*requirers[name], by[1].lower())
    return indexes, {n: tuple(b for b in by if b in requirers) for n, by in requirers.items()}
