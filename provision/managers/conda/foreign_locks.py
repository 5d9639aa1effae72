"""Reads conda locks: conda-lock.yml, @EXPLICIT lists and pixi.lock.

A lock of another tool has no plan. Its frameworks follow from package names, CUDA and cuDNN from other packages.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...errors import LockError
from ...model import (
    CondaBuild,
    FrameworkRequest,
    Lock,
    LockedPackage,
    Plan,
    PlannedBuild,
    Request,
    Target,
    normalize_name,
)
from ...system import trust
from ...system.redaction import clean_line, redact
from ...system.untrusted import UnsafeNameError, file_name_of_url
from ...wheels import pylock
from . import conda_lock_yml as conda_file, engine as door, specs as conda_specs
from .solve import build_of, find_cuda_and_cudnn, is_conda, shorten_channel
from .specs import Bounds


def read(path: Path, platform: str, rows: Sequence[CondaBuild]) -> Lock:
    """Read a lock for a platform. Raises LockError."""
    try:
        text = trust.read_project(path).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise LockError(
            f"cannot read the lock {path}: {getattr(error, 'strerror', None) or error}",
            hint="make one with `gpuenv lock --manager conda`",
        ) from error
    plan: Plan | None = None
    target: Target | None = None
    inputs: str | None = None
    if re.search(r"^@EXPLICIT\s*$", text, re.MULTILINE):
        packages = _read_explicit(path, text, platform)
    elif re.search(r"^environments:", text, re.MULTILINE) and re.search(r"^packages:", text, re.MULTILINE):
        packages = _read_pixi(path, text, platform)
    else:
        packages, plan, target, inputs = conda_file.read(path, platform)
    if plan is None:
        target = Target(platform=platform)
        plan = _plan_of(packages, platform, target, rows, path)
    try:
        pylock.check_file_names(packages, "package")
    except ValueError as error:
        raise LockError(f"the lock {path} is not valid: {error}") from error
    return Lock(manager="conda", target=target or plan.target, plan=plan, packages=packages, inputs=inputs)


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
        packages.append(
            _parse_package(path, url, platform, **{"sha256" if len(digest) == 64 else "md5": digest or None})
        )
    if not packages:
        raise LockError(f"{path} is an @EXPLICIT list without a package")
    return tuple(packages)


def _parse_package(path: Path, url: str, platform: str, **fields: Any) -> LockedPackage:
    channel, subdir, file = redact(url).rsplit("/", 2)
    name_ = _find_file_name(path, url)
    stem = name_.removesuffix(".conda").removesuffix(".tar.bz2")
    if stem.count("-") < 2 or stem == name_:
        raise LockError(f"{path}: {url} is not a conda package")
    if subdir not in (door.subdir(platform), "noarch"):
        raise LockError(
            f"{path}: {url} is for {subdir}, expected {door.subdir(platform)}",
            hint="lock for this platform: gpuenv lock --manager conda",
        )
    name, version, _ = stem.rsplit("-", 2)
    return LockedPackage(
        name=name, version=version, url=f"{channel}/{subdir}/{file}", index=channel, **fields
    )


def _find_file_name(path: Path, url: str) -> str:
    try:
        return file_name_of_url(url)
    except UnsafeNameError as error:
        raise LockError(f"the lock {path} is not valid: {error.message}", hint=error.hint) from error
    except ValueError as error:
        raise LockError(f"the lock {path} is not valid: {redact(url)} is not an address: {error}") from error


# --- pixi.lock ---------------------------------------------------------------------------------


def _read_pixi(path: Path, text: str, platform: str) -> tuple[LockedPackage, ...]:
    """Read conda packages with py-rattler, and wheels from the file, because py-rattler omits their hashes."""
    import yaml

    here = door.subdir(platform)
    request = {"path": str(path.absolute()), "subdir": here}
    answer = door.ask("pixi", request, lambda _event: None, LockError)
    if "error" in answer:
        raise LockError(f"the lock {path} is not valid: {answer['error']['text'].splitlines()[0]}")
    conda = tuple(
        LockedPackage(name=r["name"], version=r["version"], url=r["url"], sha256=r["sha256"], md5=r["md5"],
                index=r["url"].rsplit("/", 2)[0], size=r["size"], depends=tuple(r["depends"]))
        for r in answer["records"]
    )  # fmt: skip
    try:
        data = yaml.safe_load(text)
        environments = data["environments"]
        chosen = environments.get("default") or next(iter(environments.values()))
        used = [e["pypi"] for e in chosen["packages"].get(here, []) if "pypi" in e]
        # Up to version 5 of the format, `url` has the address of a package.
        by_url = {
            p.get("pypi") or p["url"]: p for p in data["packages"] if "pypi" in p or p.get("kind") == "pypi"
        }
        wheels = tuple(_parse_wheel(path, by_url[url]) for url in used)
    except (yaml.YAMLError, KeyError, TypeError, AttributeError, ValueError, RecursionError) as error:
        raise LockError(f"the lock {path} is not valid: {error}") from error
    return conda + wheels


def _parse_wheel(path: Path, row: Mapping[str, Any]) -> LockedPackage:
    url = str(row["pypi"])
    file = _find_file_name(path, url)
    if not file.endswith(".whl"):
        raise LockError(f"{path}: {url} is not a wheel, and gpuenv does not build from source here")
    if not isinstance(row.get("sha256"), str | None):  # YAML reads digits as a number
        raise LockError(f"{path}: the sha256 of {file} must be a string", hint="lock again, or quote it")
    name, version = file.split("-")[:2]
    return LockedPackage(name=str(row.get("name", name)), version=str(row.get("version", version)), url=url,
                   sha256=row.get("sha256"))  # fmt: skip


# --- the plan of a lock without one --------------------------------------------------------------


def _plan_of(
    packages: Sequence[LockedPackage], platform: str, target: Target, rows: Sequence[CondaBuild], path: Path
) -> Plan:
    records = {
        p.name: {"name": p.name, "version": p.version, "build": build_of(p)} for p in packages if is_conda(p)
    }
    python = records.get("python")
    if python is None:
        raise LockError(f"{path} has no python", hint="add python to the environment and lock again")
    builds = []
    for framework, package in dict.fromkeys((r.framework, r.package) for r in rows):
        package_of_framework = next((p for p in packages if is_conda(p) and p.name == package), None)
        if package_of_framework is not None:
            builds.append(_build_of_lock(framework, package_of_framework, records, rows))
    wheels = {normalize_name(p.name): p for p in packages if not is_conda(p)}
    builds += [
        PlannedBuild(framework=f, version=wheels[f].version, cuda=None, index="pypi", requirements=())
        for f in ("torch", "tensorflow", "jax") if f in wheels and f not in {b.framework for b in builds}
    ]  # fmt: skip
    device = (
        "cuda" if any(b.cuda for b in builds) or any(n.startswith("nvidia-cudnn") for n in wheels) else "cpu"
    )
    cuda = next((b.cuda for b in builds if b.cuda), None)
    return Plan(
        builds=tuple(builds), python=".".join(python["version"].split(".")[:2]), platform=platform, manager="conda",
        device=device, target=target, cuda_major=cuda.split(".")[0] if cuda else None,  # type: ignore[arg-type]  # both are Devices
        cudnn=next((b.cudnn for b in builds if b.cudnn), None),
        notes=(f"another tool wrote the lock {path.name}: gpuenv derived the plan from its packages",),
    )  # fmt: skip


def _build_of_lock(
    framework: str,
    package: LockedPackage,
    records: Mapping[str, Mapping[str, Any]],
    rows: Sequence[CondaBuild],
) -> PlannedBuild:
    record = records[package.name]
    cpu = "cpu" in record["build"]
    cuda, cudnn = (None, None) if cpu else find_cuda_and_cudnn(record, records, rows)
    pin = f"{package.name} {package.version} {record['build']}"
    return PlannedBuild(
        framework=framework, version=package.version, cuda=cuda, cudnn=cudnn,
        index=shorten_channel(package.index or ""), requirements=(pin,),
    )  # fmt: skip


def request_of(lock: Lock) -> Request:
    """Return the part of a lock's request that the virtual packages depend on."""
    wanted = tuple(FrameworkRequest(name=b.framework, specifier=f"=={b.version}") for b in lock.plan.builds)
    return Request(frameworks=wanted, device=lock.plan.device, manager="conda", python=lock.plan.python)


def check_target(lock: Lock, virtual: Sequence[Mapping[str, str]], bounds: Bounds) -> None:
    """Raise LockError for a lock that does not fit this machine.

    A package requires a missing virtual package, or the driver or a GPU does not support the lock's CUDA.
    """
    have = {v["name"]: v["version"] for v in virtual}
    problems = []
    for package in lock.packages:
        for text in package.depends:
            name, _, wanted = text.partition(" ")
            if name.startswith("__") and not _is_met(have.get(name), wanted):
                problems.append(f"{package.name} {package.version} needs {text}")
    cuda = next((b.cuda for b in lock.plan.builds if b.cuda), None)
    if cuda and bounds.cuda and _numbers(cuda) > _numbers(bounds.cuda):
        problems.append(
            f"its CUDA {cuda} is newer than CUDA {bounds.cuda}, the newest version that the driver supports"
        )
    if cuda and bounds.oldest and _numbers(cuda) < _numbers(bounds.oldest):
        problems.append(f"its CUDA {cuda} does not support this GPU, which requires CUDA {bounds.oldest}")
    if cuda and bounds.newest and _numbers(cuda) > _numbers(bounds.newest)[:2]:
        problems.append(f"its CUDA {cuda} does not support this GPU, the last that does is {bounds.newest}")
    if problems:
        raise LockError(
            f"the lock does not fit this machine ({conda_specs.describe_virtual_packages(virtual)}): {problems[0]}",
            log="\n".join(problems) if len(problems) > 1 else None,
            hint="lock for this machine: gpuenv lock --manager conda",
        )


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(n) for n in re.findall(r"\d+", text.split("a", maxsplit=1)[0]))


def _is_met(have: str | None, wanted: str) -> bool:
    """Return whether the version of a virtual package satisfies a conda spec, in the forms that packages use."""
    if have is None:
        return False
    for part in re.split(r"[,\s]", wanted):
        match = re.fullmatch(r"(>=|<=|==|!=|>|<|=)?(\d[\w.]*)(\.\*|\*)?", part)
        if not match:
            continue  # a build string, or a form that only the solver supports
        operator, number = match[1] or "=", _numbers(match[2])
        version = _numbers(have)
        size = max(len(version), len(number))
        left, right = (t + (0,) * (size - len(t)) for t in (version, number))
        same = version[: len(number)] == number
        good = {">=": left >= right, "<=": left <= right, ">": left > right, "<": left < right,
                "==": left == right, "!=": left != right, "=": same}[operator]  # fmt: skip
        if not good:
            return False
    return True
