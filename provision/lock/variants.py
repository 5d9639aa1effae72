"""Variants of wheels (PEP 825): each one is a build of its release, judged for every GPU of the target as all builds are.

uv solves releases and says which of them have variants. Its own choice follows the machine that it runs on, and the GPU
with the highest capability there. So uv gets the metadata of the chosen variant as a file, and the lock gets its address.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import InvalidWheelFilename, canonicalize_name
from packaging.version import Version

from ..errors import LockError, ResolveError
from ..index import uv
from ..index.places import list_indexes
from ..index.simple_api import VARIANTS, File, project_url, version_of
from ..index.variants import Properties, cuda_of, kernels_of, list_foreign, parse_variants
from ..index.wheel_names import rank_wheel, wheel_tags
from ..model import Build, FrameworkRequest, LockedPackage, PackageSources, Plan, RequestContext
from ..model.values import Value
from ..resolve.choice import sort_builds
from ..resolve.objections import device_objections, objections
from ..resolve.question import Question, make_joint_question
from ..system.grants import escape_references
from ..system.redaction import redact
from ..system.versions import major
from ..system.wheel_file import NULL, WheelName, parse_wheel, plain_name
from ..wheels.releases import IndexMetadata

_MOST_RELEASES = 12
"""The most releases of a framework whose variants become builds."""
_TIMEOUT = 8.0
"""Seconds for a page that only adds builds."""


class VariantRelease(Value, kw_only=False):
    """The wheels of a release that has variants, and the properties of each label."""

    name: str
    version: Version
    wheels: tuple[tuple[WheelName, File], ...]
    properties: Mapping[str, Properties]

    def builds(self, question: Question, framework: str | None = None) -> Iterator[Build]:
        """Yield a build for each label with a wheel for the platform. A row of the same CUDA adds what was measured."""
        target = question.target
        rows = {b.cuda: b for b in question.profiles.builds
                if (b.package_name, b.version, b.platform) == (self.name, str(self.version), target.platform)}  # fmt: skip
        for label in dict.fromkeys(wheel.label or NULL for wheel, _ in self.wheels):
            properties = self.properties.get(label, {})
            pythons = tuple(p.version for p in question.profiles.pythons
                            if self.file(label, p.version, question) is not None)  # fmt: skip
            if list_foreign(properties) or not pythons:
                continue
            cuda, stated = cuda_of(properties), kernels_of(properties)
            bare = Build(framework=framework or self.name, version=str(self.version), cuda=cuda, index="pypi",
                         platform=target.platform, python=pythons, package=self.name if framework else None)  # fmt: skip
            row = rows.get(cuda, bare)
            measured = tuple(k for k in stated if k in row.kernels) or stated or row.kernels
            yield row._replace(index="pypi", local=None, glibc=None, sha256=None, bytes=None, yanked=False,
                               python=pythons, kernels=measured, variant=label)  # fmt: skip

    def file(self, label: str, python: str, question: Question) -> File | None:
        """Return the wheel of a label with the best tags for a Python. An ordinary wheel counts as the null variant."""
        tags = wheel_tags(python, question.target.platform, question.oldest_glibc)
        fitting = [
            ((label != wheel.label, rank), file)
            for wheel, file in self.wheels
            if label == (wheel.label or NULL) and file.yanked is None and (rank := rank_wheel(wheel, tags))
        ]
        return min(fitting, key=lambda pair: pair[0])[1] if fitting else None


def read_releases(
    pages: IndexMetadata, index: str, name: str, only: str | None = None
) -> list[VariantRelease]:
    """Return the releases with variants on an index, newest first, or only one. Raises LockError."""
    by_version: dict[Version, list[File]] = {}
    for file in pages.page(project_url(index, name), naming=VARIANTS):  # few of the long pages name any
        # The version of a table is where that of a wheel is: {name}-{version}-variants.json.
        stem = file.name.replace(VARIANTS, "-.whl") if file.name.endswith(VARIANTS) else file.name
        if release := version_of(stem, name):
            by_version.setdefault(release, []).append(file)
    wanted = [Version(only)] if only else sorted(by_version, reverse=True)
    releases = (_read_release(pages, index, name, v, by_version.get(v, ())) for v in wanted[:_MOST_RELEASES])
    return [r for r in releases if r]


def _read_release(
    pages: IndexMetadata, index: str, name: str, release: Version, files: Sequence[File]
) -> VariantRelease | None:
    """Return a release, or None for one without variants. Raises LockError."""
    table = next((f for f in files if f.name.endswith(VARIANTS)), None)
    from ..index.downloads import add_credentials

    answer = pages.http.get(add_credentials(table.url, [index])) if table else None
    if table is None or answer is None:
        return None
    try:
        properties = parse_variants(answer.body)
    except ValueError as error:
        raise LockError(
            f"{redact(table.url)} cannot be read: {error}", hint="report it to the owner of the index"
        ) from error
    wheels = []
    for file in files:
        try:
            wheels.append((parse_wheel(file.name), file))
        except InvalidWheelFilename:
            continue  # the table, or a source archive
    known = tuple((w, f) for w, f in wheels if (w.label or NULL) in {*properties, NULL})
    return VariantRelease(name, release, known, properties)


# --- builds of frameworks --------------------------------------------------------------------------


def add_variants(context: RequestContext) -> RequestContext:
    """Return the context with the builds of variants that the user's indexes have of the requested frameworks.

    They take the place of the rows of the default index. An index that does not answer has none: the solve says so. uv's
    own default index is not read: its rows were measured.
    """
    sources, profiles = context.sources, context.profiles
    if sources.offline or sources.no_index:
        return context
    question, pages = make_joint_question(context), IndexMetadata(sources, tries=1, timeout=_TIMEOUT)
    own = [url for url in list_indexes(sources) if url.rstrip("/") != uv.own_index()]
    found: list[Build] = []
    for wanted in context.request.frameworks:
        names = {b.package_name for b in profiles.builds if b.framework == wanted.name}
        for index, name in itertools.product(own, sorted(names)):
            with contextlib.suppress(LockError):
                for release in read_releases(pages, index, name):
                    found += release.builds(question, wanted.name)
    if not found:
        return context
    taken = {(b.package_name, b.version) for b in found}
    rows = (b for b in profiles.builds if b.index != "pypi" or (b.package_name, b.version) not in taken)
    return dataclasses.replace(context, profiles=dataclasses.replace(profiles, builds=(*found, *rows)))


# --- the variant of a release that uv chose --------------------------------------------------------


class ChosenVariant(Value, kw_only=False):
    """The variant of a release. `requirement` gives uv a file with its metadata, under its plain name."""

    package: LockedPackage
    requirement: str


def choose_variant(
    question: Question, plan: Plan, sources: PackageSources, index: str, package: Requirement, folder: Path
) -> ChosenVariant:
    """Return the variant of a release ("demo[extra]==1.0") that fits every target, and write its metadata.

    Raises ResolveError with the reason against each variant.
    """
    name, (pin,) = canonicalize_name(package.name), package.specifier
    pages = IndexMetadata(sources)
    index = next(
        (i for i in list_indexes(sources) if redact(i).rstrip("/") == redact(index).rstrip("/")), index
    )
    release = next(iter(read_releases(pages, index, name, pin.version)), None)
    wanted = next((w for b in question.profiles.builds if b.variant and b.package_name == name
                   for w in question.request.frameworks if w.name == b.framework), None)  # fmt: skip
    builds = list(release.builds(question, wanted.name if wanted else None)) if release else []
    reasons: dict[str, str] = {}
    for build in sort_builds(question, builds):
        if why := _why_not(question, plan, wanted, build, builds):
            reasons[build.variant or ""] = why
            continue
        file = release.file(build.variant or "", plan.python or "", question) if release else None
        if file is not None:
            return _choose_file(pages, file, package, index, folder)
    for label, properties in (release.properties if release else {}).items():
        if others := list_foreign(properties):
            reasons[label] = f"needs {', '.join(others)}, which gpuenv does not know"
    listed = (
        "; ".join(f"{label}: {why}" for label, why in reasons.items()) or f"none is for Python {plan.python}"
    )
    raise ResolveError(f"no variant of {name} {pin.version} fits: {listed}")


def _why_not(
    question: Question, plan: Plan, wanted: FrameworkRequest | None, build: Build, others: Sequence[Build]
) -> str | None:
    """Return why a variant does not fit the targets and the plan, or None."""
    if wanted:
        reasons = objections(question, wanted, build)
    else:
        # Variants without CUDA say nothing of GPUs: they are for processors or other libraries.
        reasons = device_objections(question, build) if any(b.cuda for b in others) else ()
    if reasons:
        return reasons[0].text
    for planned in plan.builds:
        same = wanted is not None and planned.version == build.version and planned.framework == wanted.name
        if same and planned.cuda != build.cuda:
            return f"is for CUDA {build.cuda}; the plan has {planned.cuda}"
        if not wanted and build.cuda and planned.cuda and major(planned.cuda) != major(build.cuda):
            return f"is for CUDA {build.cuda}; {planned.framework} {planned.version} for {planned.cuda}"
    return None


def _choose_file(
    pages: IndexMetadata, file: File, package: Requirement, index: str, folder: Path
) -> ChosenVariant:
    if not file.sha256:
        raise LockError(
            f"{redact(index)} states no sha256 of {file.name}", hint="ask the owner of the index for hashes"
        )
    (pin,) = package.specifier
    folder.mkdir(exist_ok=True)
    path = folder / plain_name(file.name)
    info = "-".join(file.name.split("-")[:2]) + ".dist-info"
    import zipfile

    from ..index.archives import metadata  # the decompressors of Python: few locks need them
    from ..index.downloads import add_credentials

    from_index = dataclasses.replace(file, url=add_credentials(file.url, [index]))
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr(f"{info}/METADATA", metadata(pages.http, from_index))
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\n")
        wheel.writestr(f"{info}/RECORD", "")
    locked = LockedPackage(
        name=canonicalize_name(package.name), version=pin.version, url=escape_references(file.url), sha256=file.sha256,
        index=redact(index), size=file.size,
    )  # fmt: skip
    extras = f"[{','.join(sorted(package.extras))}]" if package.extras else ""
    return ChosenVariant(locked, f"{package.name}{extras} @ {path.as_uri()}")
