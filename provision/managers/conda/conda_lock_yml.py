"""Reads and writes conda-lock.yml with the models of conda-lock.

The conda section has the solver's packages, and the pip section the wheels with their hashes. The custom metadata has
gpuenv's plan and target for each platform of the file. gpuenv does not run conda-lock's solver and installer, because
they would download conda.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...errors import LockError, OtherPlatformError
from ...model import CONDA_LOCK, Lock, LockedPackage, Plan, Target, as_plain, from_plain
from ...system import trust
from ...system.files import is_stream, signed, suggest_fix, write_output
from ...system.scratch import make_scratch
from ...wheels.pylock import refuse_conflict
from . import engine as door
from .solve import build_of, is_conda

_CUSTOM = "gpuenv."


def write(path: Path, lock: Lock, virtual: Sequence[Mapping[str, str]] = (), *, alone: bool = False) -> None:
    """Write a lock atomically, and keep other platforms in the file unless `alone`. Raises LockError.

    `virtual` are the virtual packages of the solve.
    """
    _import_models()
    from conda_lock.lockfile import write_conda_lock_file

    content = _make_content(lock, virtual)
    old_lock = _parse(path) if not alone and path.exists() and not is_stream(path) else None
    if old_lock is not None:
        content = _merge(content, old_lock)
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
    door.require("conda_lock")
    spec = importlib.util.find_spec("conda_lock")
    if spec is not None:
        sys.modules.setdefault("conda_lock", importlib.util.module_from_spec(spec))


def _make_content(lock: Lock, virtual: Sequence[Mapping[str, str]]) -> Any:
    from conda_lock.lockfile.v2prelim.models import Lockfile, LockMeta

    platform = door.subdir(lock.plan.platform)
    channels = list(dict.fromkeys(p.index for p in lock.packages if is_conda(p) and p.index))
    plan = as_plain(lock.plan)
    plan["rejected"] = []
    custom = {
        "plan": plan,
        "target": as_plain(lock.target),
        "sizes": {p.name: p.size for p in lock.packages if p.size},
    }
    custom |= {"inputs": lock.inputs} if lock.inputs else {}
    packages = {v["name"]: f"{v['version']} {v['build']}" for v in virtual}
    spec = {"subdirs": {platform: {"packages": packages}}} if virtual else None
    custom |= {"virtual-packages": spec} if spec else {}
    return Lockfile(
        package=[_make_dependency(p, platform) for p in lock.packages],
        metadata=LockMeta(
            content_hash={platform: _compute_content_hash(lock, channels, platform, spec)},
            channels=channels,
            platforms=[platform],
            sources=[],
            custom_metadata={
                f"{_CUSTOM}{k}.{platform}": json.dumps(v, sort_keys=True) for k, v in custom.items()
            },
        ),
    )


def _compute_content_hash(
    lock: Lock, channels: Sequence[str], platform: str, virtual: dict[str, Any] | None
) -> str:
    """Return the content hash that `conda-lock --check-input-hash` computes.

    Its inputs are an environment.yml with the plan's pins, and the virtual packages of the metadata as
    `--virtual-package-spec`.
    """
    from conda_lock.content_hash import compute_content_hashes
    from conda_lock.models.lock_spec import LockSpecification, VersionedDependency
    from conda_lock.virtual_package import virtual_package_repo_from_specification

    wanted: list[Any] = []
    for build in lock.plan.builds:
        for pin in build.requirements if build.index != "pypi" else ():
            name, version, text = (*pin.split(), "", "")[:3]
            wanted.append(VersionedDependency(name=name, version=version, build=text or None))
    specification = LockSpecification(dependencies={platform: wanted}, channels=list(channels), sources=[])
    if virtual is None:
        return str(compute_content_hashes(specification, None)[platform])
    with make_scratch("lock") as scratch:
        file = scratch / "virtual-packages.yml"
        file.write_text(json.dumps(virtual), encoding="utf-8")  # JSON is YAML
        repo = virtual_package_repo_from_specification(file)
        return str(compute_content_hashes(specification, repo)[platform])


def _make_dependency(package: LockedPackage, platform: str) -> Any:
    from conda_lock.lockfile.v2prelim.models import HashModel, LockedDependency

    if is_conda(package) and package.md5 is None:
        raise LockError(
            f"the channel has no md5 for {package.name} {package.version}, which {CONDA_LOCK} requires",
            hint="index the channel again with md5 sums",
        )
    depends = {}
    for text in package.depends:
        name, _, version = text.partition(" ")
        depends[name.rpartition("::")[2]] = version
    if not is_conda(package) and len(depends) != len(package.depends):
        depends = {}  # the format cannot express two requirements of a name
    return LockedDependency(
        name=package.name, version=package.version, platform=platform, dependencies=depends,
        manager="conda" if is_conda(package) else "pip", url=package.url, categories={"main"},
        hash=HashModel(md5=package.md5 if is_conda(package) else None, sha256=package.sha256),
        build=build_of(package) if is_conda(package) else None,
    )  # fmt: skip


def _merge(new_lock: Any, old_lock: Any) -> Any:
    """Return the lock with the packages of this platform replaced, and the file's other platforms."""
    platforms = set(new_lock.metadata.platforms)
    others = [p for p in old_lock.package if p.platform not in platforms]
    rest = [p for p in old_lock.metadata.platforms if p not in platforms]
    if not rest:
        return new_lock
    meta, before = new_lock.metadata, old_lock.metadata
    custom = {
        k: v for k, v in (before.custom_metadata or {}).items() if k.rsplit(".", 1)[-1] not in platforms
    }
    merged = meta.model_copy(update={
        "content_hash": {**{k: v for k, v in before.content_hash.items() if k not in platforms}, **meta.content_hash},
        "channels": list(dict.fromkeys([*meta.channels, *before.channels])),
        "platforms": sorted([*rest, *platforms]),
        "custom_metadata": {**custom, **(meta.custom_metadata or {})},
    })  # fmt: skip
    return new_lock.model_copy(update={"package": [*new_lock.package, *others], "metadata": merged})


# --- reading -----------------------------------------------------------------------------------


def _parse(path: Path) -> Any:
    _import_models()
    import yaml
    from conda_lock.lockfile import parse_conda_lock_file

    try:
        with make_scratch("lock") as folder:
            copy = folder / path.name  # it is parsed as it was checked
            content = trust.read_project(path)
            refuse_conflict(path, content)
            copy.write_bytes(content)
            return parse_conda_lock_file(copy)
    except OSError as error:
        raise LockError(
            f"cannot read the lock {path}: {error.strerror or error}", hint="make one with `gpuenv lock`"
        ) from error
    except (ValueError, AttributeError, TypeError, LookupError, RecursionError, yaml.YAMLError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise LockError(
            f"the lock {path} is not valid: {reason}", hint="make it again with `gpuenv lock`", log=str(error)
        ) from error


def read(
    path: Path, platform: str
) -> tuple[tuple[LockedPackage, ...], Plan | None, Target | None, str | None]:
    """Return the packages of a conda-lock.yml for a platform ("linux-x86_64"). Raises LockError.

    Also returns plan, target and the digest of the request, if gpuenv wrote the lock.
    """
    content = _parse(path)
    here = door.subdir(platform)
    packages = [
        p for p in content.package if p.platform == here and ("main" in p.categories or not p.categories)
    ]
    if not packages:
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
    except (ValueError, TypeError, RecursionError) as error:
        raise LockError(
            f"the lock {path} is not valid: {error}", hint="make it again with `gpuenv lock`"
        ) from error
    sizes = values.get("sizes", {})
    inputs = values.get("inputs")
    return (
        tuple(_make_package(p, sizes) for p in packages),
        plan,
        target,
        inputs if isinstance(inputs, str) else None,
    )


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
