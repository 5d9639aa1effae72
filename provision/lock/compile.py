"""Asks uv for the packages of one plan.

`Query.answer` is the flow, and `Query._run` has every option and file that uv gets.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import re
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import field
from pathlib import Path
from urllib.parse import unquote

import tomli_w
from packaging.pylock import Package, Pylock, PylockSelectError, PylockValidationError
from packaging.requirements import Requirement
from packaging.tags import Tag
from packaging.utils import canonicalize_name
from packaging.version import Version

from ..errors import LockError, ResolveError
from ..index import uv
from ..index.config import pytorch_address, pytorch_packages
from ..index.places import UploadTimes, cacheable_index, drop_pages, map_only_indexes
from ..index.uv import without_credentials
from ..index.wheel_names import expand_address, rank_wheel, wheel_tags
from ..model import (
    ASSUMED_GLIBC,
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
from ..model.values import Value
from ..resolve.question import Question
from ..system import grants, process
from ..system.files import hash_file
from ..system.grants import escape_references
from ..system.redaction import clean, redact
from ..system.scratch import make_scratch
from ..system.toml import tomllib
from ..system.untrusted import file_name_of_url, path_of_url
from ..system.wheel_file import parse_wheel
from ..wheels import pylock
from ..wheels.pylock import file_name, is_source
from ..wheels.sdist import SourceArchive
from .source_builds import SourceRules
from .variants import ChosenVariant, choose_variant

_UV_PLATFORM = {"linux-x86_64": "x86_64", "linux-aarch64": "aarch64", "windows-x86_64": "x86_64"}
UV_GLIBC = (17, 28, *range(31, 41))
"""The minor versions of glibc 2 for which uv has a platform."""
_BUILDING = re.compile(r"^DEBUG Preparing metadata for: (\S+)")
_TABLE = re.compile(r"^DEBUG .*/([\w.]{1,200})-([\w.+!%]{1,100})-variants\.json$")
_LOG = "uv_distribution::source=debug,uv_client::cached_client=debug"
"""What uv logs beside its errors: the sources whose build code it runs, and the files that it reads."""


Annotations = tuple[dict[str, str], dict[str, tuple[str, ...]]]
"""The index of each package, and the packages that require it."""


class Answer(Value):
    """uv's solution of a query.

    `archives` are the packages that come from a source archive, with its description if it could be read. `uploaded` is
    the day of the upload of each package whose index states it. `required_by` are the packages that require each
    package. uv states them in a second run, at their first use: `annotations` runs it.
    """

    packages: tuple[LockedPackage, ...]
    archives: Mapping[str, SourceArchive | None] = field(default_factory=dict)
    uploaded: Mapping[str, str] = field(default_factory=dict)
    annotations: Callable[[], Annotations] = lambda: ({}, {})

    @functools.cached_property
    def required_by(self) -> dict[str, tuple[str, ...]]:
        """The packages that require each package. Its first use may run uv, and raise LockError."""
        return self.annotations()[1]

    @functools.cached_property
    def by_name(self) -> Mapping[str, LockedPackage]:
        """The packages by name."""
        return {p.name: p for p in self.packages}

    @functools.cached_property
    def versions(self) -> Mapping[str, str]:
        """The version of each package, without folders whose version is that of their code."""
        return {p.name: p.version for p in self.packages if p.version}


@dataclasses.dataclass(kw_only=True)
class Query:
    """What uv is asked for a plan's Python and platform: `answer` and `newest` run uv until it has an answer.

    `roots` are requirements in the order in which uv decides them, and `lines` the project's other lines. `root_lines` are
    those of the project among the roots, for messages. `limits` are constraints. `prefer` are versions that stay if they
    can. `only_binary` are packages of which no source is taken (":all:" for all
    but those in `built`). `python` is the interpreter that starts build code, of any version. `variants_for` chooses variants of
    wheels; without it uv ignores them. `alone` leaves out what the roots require.
    """

    plan: Plan
    rules: SourceRules
    emit: Emit
    roots: tuple[str, ...]
    lines: tuple[RequirementLine, ...] = ()
    root_lines: tuple[RequirementLine, ...] = ()
    limits: tuple[str, ...] = ()
    prefer: Mapping[str, str] = field(default_factory=dict)
    only_binary: frozenset[str] = frozenset()
    built: frozenset[str] = frozenset()
    python: str | None = None
    variants_for: Question | None = None
    alone: bool = False

    # What its runs found: chosen variants, releases without a variant that fits, and all releases with variants. `_plain` says
    # that variants are not asked for any more, `_named` whose build code was announced.
    _variants: dict[str, ChosenVariant] = field(default_factory=dict)
    _left_out: dict[str, str] = field(default_factory=dict)
    _tables: set[tuple[str, str]] = field(default_factory=set)
    _plain: bool = False
    _named: set[str] = field(default_factory=set)
    _seconds: list[float] = field(default_factory=list)
    _folder: Path = Path()

    @functools.cached_property
    def sources(self) -> PackageSources:
        """The sources that uv reads. Offline these are folders and pages of wheels, if there are any: an index's answers in the
        cache would name files that are not available."""
        sources = self.rules.archives.sources
        only_files = sources.offline and bool(sources.find_links)
        return dataclasses.replace(sources, no_index=True) if only_files else sources

    def answer(self) -> Answer:
        """Return uv's solution. Raises LockError, which for a refusal is what `uv_errors.explain` makes of it."""
        with make_scratch("lock") as self._folder:
            try:
                text = self._compile(UV_LOCK_FORMAT)
                # uv takes only named packages from the PyTorch index: those that others require are asked again, by name.
                named = self._list_pytorch_packages()
                if stray := {*pytorch_packages(self.plan)} & parse_versions(text).keys() - {*named}:
                    self.roots = (*self.roots, *sorted(stray))
                    text = self._compile(UV_LOCK_FORMAT)
            finally:
                took = ", ".join(f"{s:.2f} s" for s in self._seconds)
                self.emit(Event("done", "lock", f"uv took {took}" if took else "uv was not run"))
            # An index whose answers may not be stored is read again completely for the annotations.
            annotations = functools.cache(functools.partial(self._annotate, text))
            indexes = map_only_indexes(parse_versions(text), self.sources, self._map_indexes())
            if indexes is None or self._variants:  # here, because the files of variants go with the folder
                indexes = annotations()[0]
        own = {row["url"] for row in cacheable_index(self.sources)}  # uv prints it as it was given
        indexes = {name: url.removesuffix("/") if url in own else url for name, url in indexes.items()}
        packages = parse_pylock(text, self.plan)
        packages = tuple(
            self._variants[p.name].package if p.name in self._variants else
            dataclasses.replace(p, index=redact(indexes[p.name]) if p.name in indexes else None, url=_address(p))
            for p in packages
        )  # fmt: skip
        packages = _with_sizes(drop_pages(packages, self.sources), self.sources)
        archives = {p.name: self.rules.describe(p, self.lines, self.plan) for p in packages if is_source(p)}
        packages = tuple(archives[p.name][0] if p.name in archives else p for p in packages)
        editables = {Path(n.local).absolute().as_uri() for n in self.lines if n.editable and n.local}
        return Answer(
            packages=tuple(dataclasses.replace(p, editable=True) if p.url in editables else p for p in packages),
            archives={name: archive for name, (_, archive) in archives.items()},
            uploaded=parse_uploads(text), annotations=annotations,
        )  # fmt: skip

    def newest(self) -> Answer:
        """Return the newest release of each root, or none at all if one of them has none."""
        with (
            make_scratch("lock") as self._folder,
            contextlib.suppress(LockError),
        ):  # the solve says what is missing
            text = self._compile(UV_LOCK_FORMAT)
            return Answer(packages=parse_pylock(text, self.plan), uploaded=parse_uploads(text))
        return Answer(packages=())

    def _annotate(self, text: str) -> Annotations:
        """Return the annotations of a solution: uv states indexes and requirers in another form. Raises LockError."""
        pins = (f"{name}=={version}" for name, version in parse_versions(text).items())
        again = dataclasses.replace(self, limits=(*self.limits, *pins), prefer={})
        with make_scratch("lock") as again._folder:  # noqa: SLF001  # its own class
            with contextlib.suppress(LockError):
                return parse_annotations(again._compile("requirements.txt", cached=True))  # noqa: SLF001
            return parse_annotations(again._compile("requirements.txt"))  # noqa: SLF001

    # --- runs of uv ----------------------------------------------------------------------------------

    def _compile(self, form: str, *, cached: bool = False) -> str:
        """Return uv's answer. uv runs again where a variant was chosen, or an archive was read in place of a build.

        With `cached` nothing is asked that is not in uv's cache.
        """
        while True:
            finished = self._run(form, cached=cached)
            if self._upload_times.exempt_undated(finished.stderr):
                continue
            if not finished.ok:
                from . import uv_errors  # most solves need no words of uv

            versions = parse_versions(finished.stdout) if finished.ok else {}
            # An ordinary wheel beside variants is the build for the CPU, which uv takes where no variant fits.
            variants = (n for n, v in versions.items() if (n, v) in self._tables and n not in self._variants)
            variant = next(variants, None) if finished.ok else uv_errors.find_variant(finished.stderr)
            if variant and self.variants_for and not self._plain:
                self._choose_variant(variant, self.variants_for)
            elif finished.ok:
                if not self.rules.read_archives(versions, self.lines, self.plan):
                    return finished.stdout
            elif not self._plain and (table := uv_errors.find_table(finished.stderr)):
                self._plain = True
                text = (
                    f"the variants in {clean(table)} cannot be read: only wheels without variants are taken"
                )
                self.emit(Event("warning", "lock", text))
            else:
                error = self._explain(finished)
                if cached or not self.rules.recover(error, self.lines, self.plan):
                    raise error

    def _run(self, form: str, *, cached: bool = False) -> process.Finished:
        """Run `uv pip compile` once. Its standard output is the answer."""
        plan, sources, lines = self.plan, self.sources, self.lines
        variables = {"RUST_LOG": _LOG} | ({"UV_OFFLINE": "1"} if cached else {})
        roots = {requirement_name(r): r for r in self._dependencies()}
        words = ["pip", "compile", self._write("pyproject.toml", self._project())]
        # uv builds an editable even where builds are forbidden, and no other folder.
        editable = self.rules.may_build
        listed = [
            f"-e {n.text}" if n.editable and n.local and editable else n.text
            for n in self.rules.drop_unread(lines) if not n.constraint
        ]  # fmt: skip
        bare, logins = without_credentials("".join(f"{line}\n" for line in listed))
        words += [self._write("needs.in", bare)] if bare else []
        bounds = [
            *(n.text for n in lines if n.constraint and not n.override), *self.limits, *self._left_out,
        ]  # fmt: skip
        words += ["--constraints", self._write("limits.in", "\n".join(bounds))] if bounds else []
        overrides = [
            *(roots.get(n.package, n.text) for n in lines if n.override),
            # Both packages install the module onnxruntime, and many packages require the one for the CPU.
            *["onnxruntime; python_version < '0'"] * ("onnxruntime-gpu" in roots),
            *self.rules.overrides(), *(chosen.requirement for chosen in self._variants.values()),
        ]  # fmt: skip
        words += ["--overrides", self._write("overrides.in", "\n".join(overrides))] if overrides else []
        options, tables = self.rules.options(lines, self.only_binary, self.built)
        config = {"dependency-metadata": tables, "index": cacheable_index(sources)}
        words += [*options, "--config-file", self._write("uv.toml", tomli_w.dumps(config))]
        words += [
            "--python-version",
            plan.python or "",
            "--python-platform",
            uv_platform(plan.platform, plan.target.glibc),
        ]
        words += ["--format", form, "--no-header", "--emit-index-annotation", *self._upload_times.options()]
        words += ["--no-deps"] if self.alone else []
        if self.prefer:  # as an earlier output of uv
            packages = [{"name": name, "version": version} for name, version in self.prefer.items()]
            document = {"lock-version": "1.0", "created-by": "gpuenv", "packages": packages}
            words += ["--output-file", self._write(VENV_LOCK, tomli_w.dumps(document))]
        if self.variants_for and not self._plain:
            # Variants are considered as the target would, and not the machine that uv runs on.
            variables |= {"UV_PREVIEW_FEATURES": "wheel-variants", **_make_variables(self.variants_for)}
        settings = uv.Settings(
            git_logins=logins, timeout=uv.LONGEST_SOLVE, variables=variables,
            on_line=self._note_line,
        )  # fmt: skip
        began = time.monotonic()
        finished = uv.run_uv(words, sources, python=self.python or sys.executable, settings=settings)
        self._seconds.append(time.monotonic() - began)
        if self.prefer and finished.ok:
            finished = finished._replace(stdout=(self._folder / VENV_LOCK).read_text(encoding="utf-8"))
        return finished

    def _write(self, name: str, text: str) -> str:
        path = self._folder / name
        path.write_text(text + "\n", encoding="utf-8")
        return str(path)

    def _note_line(self, line: str) -> None:
        """Name the package whose build code uv runs, once, and note the releases with variants."""
        if table := _TABLE.match(line):
            self._tables.add((str(canonicalize_name(table[1])), unquote(table[2]).replace("_", "-")))
        if self.rules.may_build and (match := _BUILDING.match(line)) and match[1] not in self._named:
            self._named.add(match[1])
            text = f"uv runs the build code of {clean(match[1])} to learn its requirements"
            self.emit(Event("note", "lock", text))

    def _explain(self, finished: process.Finished) -> LockError:
        roots, lines = [*self.roots, *self._dependencies()], (*self.root_lines, *self.lines)
        from .uv_errors import explain

        error = explain(finished, self.sources, roots, lines, self.rules.archives)
        error.message = ". ".join([error.message, *self._left_out.values()])
        return error

    # --- the project for uv --------------------------------------------------------------------------

    def _project(self) -> str:
        """Return a pyproject.toml with the roots. Packages with one index are bound to it.

        uv binds only packages that this file names.
        """
        places = self._map_indexes()
        names = {url: f"project-{i}" for i, url in enumerate(dict.fromkeys(places.values()))}
        if self._list_pytorch_packages():
            # uv sends UV_INDEX_PYTORCH_PASSWORD to the index of this name, which a project can replace.
            own = grants.is_own_origin(self.sources.pytorch or "")
            names[self._pytorch_index] = "pytorch" if own else "gpuenv-pytorch"
        indexes = [{"name": name, "url": url, "explicit": True} for url, name in names.items()]
        project = {
            "name": "gpuenv-plan", "version": "0", "requires-python": f"=={self.plan.python}.*",
            "dependencies": self._dependencies(),
        }  # fmt: skip
        bound = {"index": indexes, "sources": {name: {"index": names[url]} for name, url in places.items()}}
        return tomli_w.dumps({"project": project, "tool": {"uv": bound}})

    def _dependencies(self) -> list[str]:
        """Return the roots, and the project's lines on packages with one index."""
        lines = [n for n in self.lines if n.name and not n.constraint]
        theirs = pytorch_packages(self.plan)
        return [
            *self.roots, *(n.text for n in lines if n.name in theirs and n.name != "torch"),
            *(n.text for n in lines if n.index and n.name not in theirs),
        ]  # fmt: skip

    def _map_indexes(self) -> dict[str, str]:
        """Return the index of each package that has only one."""
        theirs = pytorch_packages(self.plan)
        lines = (n for n in self.lines if n.name and not n.constraint and n.name not in theirs)
        return {n.package: n.index for n in lines if n.index} | dict.fromkeys(
            self._list_pytorch_packages(), self._pytorch_index
        )

    def _list_pytorch_packages(self) -> list[str]:
        names = {*map(requirement_name, self.roots), *(n.package for n in self.lines)}
        return [n for n in pytorch_packages(self.plan) if n in names]

    @property
    def _pytorch_index(self) -> str:
        return pytorch_address(self.sources.pytorch, self.plan)

    @functools.cached_property
    def _upload_times(self) -> UploadTimes:
        return UploadTimes(self.sources, self.plan)

    # --- variants of wheels --------------------------------------------------------------------------

    def _choose_variant(self, name: str, question: Question) -> None:
        """Choose the variant of the release that uv chose, or leave the release out with the reasons."""
        finished = self._run("requirements.txt")
        if not finished.ok:
            raise self._explain(finished)
        release, index = parse_versions(finished.stdout)[name], parse_annotations(finished.stdout)[0][name]
        root = next((r for r in self._dependencies() if requirement_name(r) == name), name)
        package = Requirement(f"{name}[{','.join(Requirement(root).extras)}]=={release}")
        try:
            self._variants[name] = choose_variant(
                question, self.plan, self.sources, index, package, self._folder / "variants"
            )
        except ResolveError as error:
            self._left_out[f"{name}!={release}"] = error.message
            self.emit(Event("warning", "lock", error.message))


def _make_variables(question: Question) -> dict[str, str]:
    """Return the variables that replace the driver and the GPU of this machine by those of the targets."""
    gpus = [Version(g.capability) for q in question.per_target for g in q.target.gpus]
    speaks = question.driver_cuda if question.request.device == "cuda" else None
    return {
        "NV_VARIANT_PROVIDER_FORCE_CUDA_DRIVER_VERSION": speaks or "0.0",
        **({"NV_VARIANT_PROVIDER_FORCE_SM_ARCH": str(max(gpus))} if gpus else {}),
    }


def _address(package: LockedPackage) -> str:
    """Return a package's address for the lock. Raises LockError if a variable contains the file's name."""
    url = redact(package.url)
    if not package.unhashed and grants.list_variables(url.rpartition("/")[2]):
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
    sizes: dict[str, int | None] = {}
    for url in urls.values():
        if url.startswith("file:"):
            with contextlib.suppress(OSError):
                sizes[url] = path_of_url(url).stat().st_size
    remote = [u for u in urls.values() if not u.startswith("file:")]
    if remote and not sources.offline:
        from ..index.http import Http

        with contextlib.suppress(LockError):
            sizes |= Http(tries=1, timeout=5.0).sizes(remote)
    return tuple(dataclasses.replace(p, size=p.size or sizes.get(urls.get(p.url, p.url))) for p in packages)


def uv_platform(platform: str, glibc: str | None) -> str:
    """Return uv's name for a platform, with the newest glibc that uv knows and the target has. Raises LockError."""
    machine = _UV_PLATFORM[platform]
    if platform.startswith("windows"):
        return f"{machine}-pc-windows-msvc"
    fitting = [m for m in UV_GLIBC if m <= int((glibc or ASSUMED_GLIBC).split(".")[1])]
    if not fitting:
        raise LockError(
            f"glibc {glibc} is too old: packages can be solved for glibc 2.{min(UV_GLIBC)} or newer",
            hint="use a newer system or a container",
        )
    return f"{machine}-manylinux_2_{max(fitting)}"


# --- uv's answer -----------------------------------------------------------------------------------


def parse_pylock(text: str, plan: Plan) -> tuple[LockedPackage, ...]:
    """Return one file per package, whose tags fit the target best. Raises LockError."""
    tags = wheel_tags(plan.python or "", plan.platform, plan.target.glibc)
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


def _choose_file(package: Package, tags: Mapping[Tag, int]) -> LockedPackage:
    """Return the file or source of a package. Raises LockError if none fits.

    It is a commit, a folder, the file of an address, the best wheel, or the source archive if no wheel fits.
    """
    if source := pylock.unhashed_source(package):
        return dataclasses.replace(source, url=escape_references(source.url))
    named = (
        (parse_wheel(w.name or file_name_of_url(w.url or w.path or "")), w) for w in package.wheels or ()
    )
    fitting = [(rank, wheel) for name, wheel in named if (rank := rank_wheel(name, tags))]
    best = min(fitting, key=lambda pair: pair[0])[1] if fitting and package.version else None
    file = package.archive or best or package.sdist
    if file is None:
        raise LockError(
            f"{package.name} {package.version or ''} has no wheel that fits the target",
            hint="try another --python",
        )
    url = escape_references(file.url or Path(file.path or "").absolute().as_uri())
    sha256 = file.hashes.get("sha256")
    if sha256 is None and url.startswith("file:"):
        sha256 = hash_file(path_of_url(url))
    return pylock.check_file_name(LockedPackage(
        name=str(package.name), version=str(package.version or ""), url=url, sha256=sha256, index=package.index,
        size=file.size, unhashed=sha256 is None and file is not best,
    ))  # fmt: skip


def parse_annotations(text: str) -> Annotations:
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
