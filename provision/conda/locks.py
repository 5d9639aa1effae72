"""Reads conda locks (conda-lock.yml, @EXPLICIT lists and pixi.lock), and writes conda-lock.yml with conda-lock's models.

gpuenv does not run conda-lock's solver and installer, because they would download conda. A lock of another tool has no
plan: its frameworks follow from package names, CUDA and cuDNN from other packages.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.util
import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import LockError, OtherPlatformError
from ..model import (
    CONDA_LOCK,
    CONDA_SUBDIRS,
    CondaBuild,
    FrameworkRequest,
    Lock,
    LockedPackage,
    Plan,
    PlannedBuild,
    Request,
    Target,
    as_plain,
    from_plain,
    normalize_name,
)
from ..system import trust
from ..system.files import is_stream, signed, suggest_fix, write_output
from ..system.redaction import clean_line, redact
from ..system.scratch import make_scratch
from ..system.untrusted import UnsafeNameError, file_name_of_url
from ..system.versions import numbers
from ..wheels import pylock
from . import engine
from .solver import (
    Bounds,
    Virtual,
    describe_virtual_packages,
    find_cuda_and_cudnn,
    make_package,
    make_plan,
    shorten_channel,
)

_CUSTOM = "gpuenv."
"""The beginning of gpuenv's keys in the custom metadata of conda-lock.yml, which end with the platform."""
_AGAIN = "make it again with `gpuenv lock`"


def read(path: Path, platform: str, rows: Sequence[CondaBuild]) -> Lock:
    """Read a lock for a platform ("linux-x86_64"). Raises LockError, OtherPlatformError."""
    try:
        text = trust.read_project(path).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise LockError(
            f"cannot read the lock {path}: {getattr(error, 'strerror', None) or error}",
            hint="write one: gpuenv lock --manager conda",
        ) from error
    if re.search(r"^@EXPLICIT\s*$", text, re.MULTILINE):
        lock = _derive_lock(_read_explicit(path, text, platform), platform, rows, path)
    elif re.search(r"^environments:", text, re.MULTILINE) and re.search(r"^packages:", text, re.MULTILINE):
        lock = _derive_lock(_read_pixi(path, platform), platform, rows, path)
    else:
        lock = _read_conda_lock(path, platform, rows)
    try:
        pylock.check_file_names(lock.packages, "package")
    except ValueError as error:
        raise LockError(f"the lock {path} is not valid: {error}") from error
    return lock


# --- @EXPLICIT ---------------------------------------------------------------------------------


def _read_explicit(path: Path, text: str, platform: str) -> tuple[LockedPackage, ...]:
    """Read the output of `conda list --explicit --md5` or `conda-lock render`.

    A hash of 64 digits is a sha256, one of 32 digits an md5.
    """
    packages = []
    for number, line in enumerate(text.splitlines(), start=1):
        entry = line.strip()
        if not entry or entry.startswith(("#", "@")):
            continue
        url, _, digest = entry.partition("#")
        digest = digest.removeprefix("sha256:").removeprefix("md5:")
        if "://" not in url or not re.fullmatch(r"([0-9a-f]{32}|[0-9a-f]{64})?", digest):
            raise LockError(
                f"{path}:{number}: expected a package address with a hash: {clean_line(entry, 120)}"
            )
        channel, subdir, file = redact(url).rsplit("/", 2)
        stem = re.fullmatch(r"(.+)-([^-]+)-[^-]+\.(?:conda|tar\.bz2)", _find_file_name(path, url))
        if stem is None:
            raise LockError(f"{path}: {url} is not a conda package")
        if subdir not in (CONDA_SUBDIRS[platform], "noarch"):
            raise LockError(
                f"{path}: {url} is for {subdir}, expected {CONDA_SUBDIRS[platform]}",
                hint="lock for this platform: gpuenv lock --manager conda",
            )
        packages.append(LockedPackage(
            name=stem[1], version=stem[2], url=f"{channel}/{subdir}/{file}", index=channel,
            sha256=digest if len(digest) == 64 else None, md5=digest if len(digest) == 32 else None,
        ))  # fmt: skip
    if not packages:
        raise LockError(f"{path} is an @EXPLICIT list without a package")
    return tuple(packages)


def _find_file_name(path: Path, url: str) -> str:
    try:
        return file_name_of_url(url)
    except UnsafeNameError as error:
        raise LockError(f"the lock {path} is not valid: {error.message}", hint=error.hint) from error
    except ValueError as error:
        raise LockError(f"the lock {path} is not valid: {redact(url)} is not an address: {error}") from error


# --- pixi.lock ---------------------------------------------------------------------------------


def _read_pixi(path: Path, platform: str) -> tuple[LockedPackage, ...]:
    """Read the packages with py-rattler, which pixi is made of."""
    request = {"path": str(path.absolute()), "subdir": CONDA_SUBDIRS[platform]}
    answer = engine.ask("pixi", request, lambda _event: None, LockError)
    if "error" in answer:
        raise LockError(f"the lock {path} is not valid: {answer['error']['text'].splitlines()[0]}")
    conda = (make_package(r, r["url"].rsplit("/", 2)[0]) for r in answer["records"])
    for url in (wheel["url"] for wheel in answer["wheels"]):
        if not _find_file_name(path, url).endswith(".whl"):
            raise LockError(f"{path}: {url} is not a wheel, and gpuenv does not build from source here")
    return (*conda, *(LockedPackage(**wheel) for wheel in answer["wheels"]))


# --- the plan of a lock without one --------------------------------------------------------------


def _derive_lock(
    packages: tuple[LockedPackage, ...], platform: str, rows: Sequence[CondaBuild], path: Path
) -> Lock:
    """Return the lock of packages that another tool locked."""
    records = {
        p.name: {"name": p.name, "version": p.version, "build": p.build, "channel": p.index or ""}
        for p in packages
        if p.is_conda
    }
    if "python" not in records:
        raise LockError(f"{path} has no python", hint="add python to the environment and lock again")
    builds = [
        _derive_build(framework, records[package], records, rows)
        for framework, package in dict.fromkeys((r.framework, r.package) for r in rows)
        if package in records
    ]
    wheels = {normalize_name(p.name): p for p in packages if not p.is_conda}
    builds += [
        PlannedBuild(framework=f, version=wheels[f].version, cuda=None, index="pypi", requirements=())
        for f in ("torch", "tensorflow", "jax") if f in wheels and f not in {b.framework for b in builds}
    ]  # fmt: skip
    has_cuda = any(b.cuda for b in builds) or any(n.startswith("nvidia-cudnn") for n in wheels)
    note = f"another tool wrote the lock {path.name}: gpuenv derived the plan from its packages"
    target = Target(platform=platform)
    plan = make_plan(builds, records["python"], target, "cuda" if has_cuda else "cpu", notes=(note,))
    return Lock(manager="conda", target=target, plan=plan, packages=packages)


def _derive_build(
    framework: str, record: dict[str, str], records: Mapping[str, dict[str, str]], rows: Sequence[CondaBuild]
) -> PlannedBuild:
    cuda, cudnn = (None, None) if "cpu" in record["build"] else find_cuda_and_cudnn(record, records, rows)
    return PlannedBuild(
        framework=framework, version=record["version"], cuda=cuda, cudnn=cudnn,
        index=shorten_channel(record["channel"]),
        requirements=(f"{record['name']} {record['version']} {record['build']}",),
    )  # fmt: skip


# --- a lock and a target ------------------------------------------------------------------------


def make_request(lock: Lock) -> Request:
    """Return the part of a lock's request that the virtual packages depend on."""
    wanted = tuple(FrameworkRequest(name=b.framework, specifier=f"=={b.version}") for b in lock.plan.builds)
    return Request(frameworks=wanted, device=lock.plan.device, manager="conda", python=lock.plan.python)


def check_target(lock: Lock, virtual: Sequence[Virtual], bounds: Bounds) -> None:
    """Raise LockError for a lock that does not fit this machine.

    A package requires a missing virtual package, or the driver or a GPU does not support the lock's CUDA.
    """
    have = {v["name"]: v["version"] for v in virtual}
    problems = []
    for package in lock.packages:
        for text in package.depends:
            name, _, wanted = text.partition(" ")
            if name.startswith("__") and not (name in have and _is_met(have[name], wanted)):
                problems.append(f"{package.name} {package.version} needs {text}")
    cuda = lock.plan.cuda
    if cuda and bounds.cuda and numbers(cuda) > numbers(bounds.cuda):
        problems.append(
            f"its CUDA {cuda} is newer than CUDA {bounds.cuda}, the newest version that the driver supports"
        )
    if cuda and bounds.oldest and numbers(cuda) < numbers(bounds.oldest):
        problems.append(f"its CUDA {cuda} does not support this GPU, which requires CUDA {bounds.oldest}")
    if cuda and bounds.newest and numbers(cuda) > numbers(bounds.newest)[:2]:
        problems.append(f"its CUDA {cuda} does not support this GPU, the last that does is {bounds.newest}")
    if problems:
        raise LockError(
            f"the lock does not fit this machine ({describe_virtual_packages(virtual)}): {problems[0]}",
            log="\n".join(problems) if len(problems) > 1 else None,
            hint="lock for this machine: gpuenv lock --manager conda",
        )


def _is_met(have: str, wanted: str) -> bool:
    """Return whether the version of a virtual package satisfies a conda spec, in which a build may follow the version."""
    engine.require("rattler")
    from rattler import Version, VersionSpec
    from rattler.exceptions import InvalidVersionError, InvalidVersionSpecError

    try:
        return bool(VersionSpec(wanted.partition(" ")[0] or "*").matches(Version(have)))
    except (InvalidVersionError, InvalidVersionSpecError) as error:
        raise LockError(f"the lock is not valid: {error}", hint=_AGAIN) from error


# --- conda-lock.yml ----------------------------------------------------------------------------


def write(path: Path, lock: Lock, *, alone: bool = False) -> None:
    """Write a lock atomically, and keep other platforms in the file unless `alone`. Raises LockError.

    The conda section has the solver's packages, and the pip section the wheels with their hashes. The custom metadata
    has gpuenv's plan and target for each platform of the file.
    """
    _import_models()
    from conda_lock.lockfile import write_conda_lock_file

    content = _make_content(lock)
    if not alone and path.exists() and not is_stream(path):
        content = _merge(content, _parse(path))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with make_scratch("lock") as folder:
            draft = folder / CONDA_LOCK
            write_conda_lock_file(content, draft, metadata_choices=None, include_help_text=False)
            write_output(path, signed(draft.read_text(encoding="utf-8")), durable=True)
    except OSError as error:
        raise LockError(
            f"cannot write the lock {path}: {error.strerror}",
            hint=suggest_fix(error, "choose a writable folder"),
        ) from error


def _import_models() -> None:
    """Import conda-lock's models without its command.

    The package would import the command with its solvers and installers, which takes twice as long as the models. So an
    empty package takes its place in sys.modules.
    """
    engine.require("conda_lock")
    spec = importlib.util.find_spec("conda_lock")
    if spec is not None:
        sys.modules.setdefault("conda_lock", importlib.util.module_from_spec(spec))


def _make_content(lock: Lock) -> Any:
    from conda_lock.lockfile.v2prelim.models import Lockfile, LockMeta

    platform = CONDA_SUBDIRS[lock.plan.platform]
    channels = list(dict.fromkeys(p.index for p in lock.packages if p.is_conda and p.index))
    custom = {
        "plan": as_plain(dataclasses.replace(lock.plan, rejected=())),
        "target": as_plain(lock.target),
        "sizes": {p.name: p.size for p in lock.packages if p.size},
    }
    if lock.inputs:
        custom["inputs"] = lock.inputs
    # conda-lock renews a lock whose hash differs from that of its input files, which only gpuenv reads here.
    content_hash = lock.inputs or hashlib.sha256(json.dumps(custom["plan"]).encode()).hexdigest()
    return Lockfile(
        package=[_make_dependency(p, platform) for p in lock.packages],
        metadata=LockMeta(
            content_hash={platform: content_hash},
            channels=channels,
            platforms=[platform],
            sources=[],
            custom_metadata={
                f"{_CUSTOM}{k}.{platform}": json.dumps(v, sort_keys=True) for k, v in custom.items()
            },
        ),
    )


def _make_dependency(package: LockedPackage, platform: str) -> Any:
    from conda_lock.lockfile.v2prelim.models import HashModel, LockedDependency

    conda = package.is_conda
    if conda and package.md5 is None:
        raise LockError(
            f"the channel has no md5 for {package.name} {package.version}, which {CONDA_LOCK} requires",
            hint="index the channel again with md5 sums",
        )
    depends = {}
    for text in package.depends:
        name, _, version = text.partition(" ")
        depends[name.rpartition("::")[2]] = version
    if not conda and len(depends) != len(package.depends):
        depends = {}  # the format cannot express two requirements of a name
    return LockedDependency(
        name=package.name, version=package.version, platform=platform, dependencies=depends,
        manager="conda" if conda else "pip", url=package.url, categories={"main"},
        hash=HashModel(md5=package.md5 if conda else None, sha256=package.sha256),
        build=package.build if conda else None,
    )  # fmt: skip


def _merge(new_lock: Any, old_lock: Any) -> Any:
    """Return the lock with the packages of this platform replaced, and the file's other platforms."""
    meta, before = new_lock.metadata, old_lock.metadata
    here = set(meta.platforms)
    rest = [p for p in before.platforms if p not in here]
    if not rest:
        return new_lock
    custom = {k: v for k, v in (before.custom_metadata or {}).items() if k.rsplit(".", 1)[-1] not in here}
    merged = meta.model_copy(update={
        "content_hash": {**{k: v for k, v in before.content_hash.items() if k not in here}, **meta.content_hash},
        "channels": list(dict.fromkeys([*meta.channels, *before.channels])),
        "platforms": sorted([*rest, *here]),
        "custom_metadata": {**custom, **(meta.custom_metadata or {})},
    })  # fmt: skip
    packages = [*new_lock.package, *(p for p in old_lock.package if p.platform not in here)]
    return new_lock.model_copy(update={"package": packages, "metadata": merged})


def _parse(path: Path) -> Any:
    _import_models()
    import yaml
    from conda_lock.lockfile import parse_conda_lock_file

    try:
        with make_scratch("lock") as folder:
            copy = folder / path.name  # it is parsed as it was checked
            content = trust.read_project(path)
            pylock.refuse_conflict(path, content)
            copy.write_bytes(content)
            return parse_conda_lock_file(copy)
    except (ValueError, AttributeError, TypeError, LookupError, RecursionError, yaml.YAMLError) as error:
        text = isinstance(error, (ValueError, yaml.YAMLError)) and str(
            error
        )  # else conda-lock met another type
        reason = text.splitlines()[0] if text else "it does not have the form of a conda-lock.yml"
        raise LockError(f"the lock {path} is not valid: {reason}", hint=_AGAIN, log=text or None) from error


def _read_conda_lock(path: Path, platform: str, rows: Sequence[CondaBuild]) -> Lock:
    """Read a conda-lock.yml, with plan, target and the digest of the request if gpuenv wrote it."""
    content = _parse(path)
    here = CONDA_SUBDIRS[platform]
    chosen = [
        p for p in content.package if p.platform == here and ("main" in p.categories or not p.categories)
    ]
    if not chosen:
        raise OtherPlatformError(
            f"{path} has no packages for {here} (only {', '.join(content.metadata.platforms)})",
            hint=f"create a lock for this platform: gpuenv lock --manager conda --platform {platform}",
        )
    custom = content.metadata.custom_metadata or {}
    try:
        values = {k: json.loads(custom[f"{_CUSTOM}{k}.{here}"]) for k in ("plan", "target", "sizes", "inputs")
                if f"{_CUSTOM}{k}.{here}" in custom}  # fmt: skip
        plan = from_plain(Plan, values["plan"], "gpuenv.plan") if "plan" in values else None
        target = from_plain(Target, values["target"], "gpuenv.target") if "target" in values else None
        sizes = {name: int(size) for name, size in dict(values.get("sizes", {})).items()}
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise LockError(f"the lock {path} is not valid: {error}", hint=_AGAIN) from error
    packages = tuple(_make_package(p, sizes) for p in chosen)
    inputs = values.get("inputs") if isinstance(values.get("inputs"), str) else None
    if plan is None:
        return dataclasses.replace(_derive_lock(packages, platform, rows, path), inputs=inputs)
    return Lock(manager="conda", target=target or plan.target, plan=plan, packages=packages, inputs=inputs)


def _make_package(package: Any, sizes: dict[str, int]) -> LockedPackage:
    conda = package.manager == "conda"
    rows = list(package.dependencies.items())
    if not conda:  # for a source archive gpuenv lists Python first, then the versions that it was solved with
        rows = sorted(rows, key=lambda row: row[0] != "python") if "python" in package.dependencies else []
    return LockedPackage(
        name=package.name, version=package.version, url=package.url, sha256=package.hash.sha256, md5=package.hash.md5,
        index=package.url.rsplit("/", 2)[0] if conda else None, size=sizes.get(package.name),
        depends=tuple(f"{name} {version}".strip() for name, version in rows),
    )  # fmt: skip
