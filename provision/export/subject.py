"""The input of an export, and the texts that all formats share.

Names, addresses and targets of a lock are untrusted. They enter an export only through a quoting of `provision/templates`,
a writer of the format (TOML, YAML, JSON), or `oneline`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from packaging.utils import canonicalize_name

from ..errors import UsageError
from ..model import BaseImage, Lock, LockedPackage, find_lock_target, format_label
from ..model.values import Value
from ..system.wheel_file import plain_name
from ..templates import fill, oneline


class InstalledPart(Value):
    """A distribution in an environment's site-packages, for its bill of materials.

    `state` is "locked", "replaced" (another version than the lock's) or "added". `requires` are the names
    that it requires on its platform. `license_expression` is an SPDX expression; `license_names` are other
    names of licences.
    """

    name: str
    version: str
    state: str
    requires: tuple[str, ...] = ()
    license_expression: str | None = None
    license_names: tuple[str, ...] = ()


class GpuenvSource(Value):
    """The source of gpuenv for an image, a dev container or a workflow.

    It is the path of a wheel from the export's folder with its sha256, or an address. It is never the bare name, because an
    index may have another package of that name.
    """

    wheel: str = ""
    sha256: str = ""
    address: str = ""

    def requirement(self, folder: str) -> str:
        """Return the requirement that pip installs. `folder` has the wheel when pip runs."""
        # pip checks this hash without --require-hashes too.
        return f"gpuenv @ {self.address or f'file://{folder}/{quote(self.wheel)}#sha256={self.sha256}'}"

    def files(self, lock_file: str) -> str:
        """Return the names of the files that go with the export."""
        return f"{lock_file} and {self.wheel}" if self.wheel else lock_file


class Subject(Value):
    """A lock without credentials, and the other values that exports need.

    `lock_file` is the path of the lock relative to the export, and `lock_text` its text for formats that are
    the lock. `env` is the path of the environment. `folder` is the absolute folder of the export. `project`
    is true if it contains a gpuenv.yaml. `installed` are the installed packages, or None for a lock file and
    for formats that do not list them. `gpuenv` is the source of gpuenv. `extras` are the locks of several machines by the
    name of their extra.
    """

    lock: Lock
    lock_file: str
    lock_text: str = ""
    images: tuple[BaseImage, ...] = ()
    env: str = ".venv"
    folder: str = "/"
    project: bool = False
    installed: tuple[InstalledPart, ...] | None = None
    gpuenv: GpuenvSource = field(default_factory=GpuenvSource)
    extras: Mapping[str, Lock] = field(default_factory=dict)


def extras_of(locks: Mapping[Path, Lock]) -> dict[str, Lock]:
    """Return locks by the names of their extras: the target or class of the file, otherwise the build ("cu126").

    Raises UsageError for two locks of one name.
    """
    extras: dict[str, Lock] = {}
    for file, lock in locks.items():
        cuda = lock.plan.cuda if lock.plan.device == "cuda" else None
        name = canonicalize_name(find_lock_target(file.name) or format_label(cuda))
        if name in extras:
            raise UsageError(
                f"--lock: two of the locks would be the extra {name}",
                hint=f"name one pylock.NAME.toml: {file}",
            )
        extras[name] = lock
    return extras


def headline(lock: Lock) -> str:
    """Return a headline: "torch 2.14.1 (CUDA 12.6, cuDNN 9.10.2.21), Python 3.12"."""
    builds = []
    for build in lock.plan.builds:
        cudnn = f", cuDNN {build.cudnn}" if build.cudnn else ""
        builds.append(
            f"{build.framework} {build.version} ({f'CUDA {build.cuda}' if build.cuda else 'CPU'}{cudnn})"
        )
    return oneline(", ".join([*builds, f"Python {lock.plan.python}"]))


def describe_target(lock: Lock) -> str:
    """Return the target of the lock as text."""
    target = lock.target
    words = [target.platform]
    words += [f"glibc {target.glibc} or newer"] if target.glibc else []
    if lock.plan.device != "cuda":
        return oneline(", ".join([*words, "no GPU"]))
    system = (
        " (Windows)" if target.driver_os == "windows" and not target.platform.startswith("windows") else ""
    )
    words.append(f"driver {target.driver}{system}" if target.driver else "any driver")
    gpus = dict.fromkeys(
        f"{g.name} ({g.capability})" if g.name else f"GPU {g.capability}" for g in target.gpus
    )
    return oneline(", ".join([*words, *(gpus or ["any GPU"])]))


def comment(subject: Subject, form: str, *more: str, sign: str = "#") -> str:
    """Return the head of an export as comment lines. `more` are further lines, and "" is an empty line."""
    rows = [
        headline(subject.lock), f"locked for {describe_target(subject.lock)}",
        f"written by `gpuenv export --format {form}`: export again after changes of the lock", *more,
    ]  # fmt: skip
    return "".join(f"{sign} {row}".rstrip() + "\n" for row in rows)


def from_template(name: str, subject: Subject, form: str, **more: Any) -> str:
    """Return a template, filled with what templates share and with `more`."""
    lock, wheels = subject.lock, [oneline(file_name(p)) for p in local_files(subject.lock)]
    shared = {
        "head": comment(subject, form, sign="//" if form == "devcontainer" else "#").rstrip(),
        "headline": headline(lock), "cuda": lock.plan.device == "cuda", "conda_cuda": conda_override(lock),
        "files": subject.gpuenv.files(subject.lock_file), "wheel": subject.gpuenv.wheel,
        "wheels": wheels, "wheel_names": ", ".join(wheels),
        "released": f"requirements{'-conda' if lock.manager == 'conda' else ''}.txt",  # what gpuenv was released with
    }  # fmt: skip
    return fill(name, shared | more)


def conda_packages(lock: Lock) -> list[LockedPackage]:
    return sorted((p for p in lock.packages if p.is_conda), key=lambda p: p.name)


def pip_packages(lock: Lock) -> list[LockedPackage]:
    return sorted((p for p in lock.packages if not p.is_conda), key=lambda p: p.name)


def hashed(package: LockedPackage) -> bool:
    """Return whether pip can compare the package with a hash. It does not accept md5."""
    return not package.unhashed and package.sha256 is not None


def main_index(lock: Lock) -> str | None:
    """Return the index of most wheels. Only its packages are named by version, and all others by address."""
    indexes = [p.index for p in pip_packages(lock) if p.index and p.index.startswith(("http://", "https://"))]
    return max(dict.fromkeys(indexes), key=indexes.count, default=None)


def folder_of(package: LockedPackage) -> str | None:
    """Return the path of a package that is a local folder, else None."""
    return path_of(package) if package.url.startswith("file:") and package.unhashed else None


def local_files(lock: Lock) -> Iterator[LockedPackage]:
    """Yield wheels and archives in folders of the locking machine."""
    for package in pip_packages(lock):
        if package.url.startswith("file:") and folder_of(package) is None:
            yield package


def path_of(package: LockedPackage) -> str:
    return unquote(urlsplit(package.url).path)


def file_name(package: LockedPackage) -> str:
    """Return the last segment of a package's address, without the label of a variant.

    It was checked when the lock was read. It does not become a path here, because exports are text.
    """
    return plain_name(unquote(urlsplit(package.url).path.rsplit("/", 1)[-1]))


def commit_of(package: LockedPackage) -> dict[str, str]:
    """Return the repository, the commit and the folder in it of a git package. Raises UsageError."""
    match = re.fullmatch(r"git\+(.+)@([0-9a-f]{40,64})(?:#subdirectory=(.*))?", package.url)
    if match is None:
        raise UsageError(f"{oneline(package.name)}: {oneline(package.url)} is not the address of a commit")
    commit = {"git": match[1], "rev": match[2]}
    return commit | ({"subdirectory": match[3]} if match[3] else {})


def target_options(lock: Lock) -> list[str]:
    """Return the options that describe the target of the lock to another machine."""
    target = lock.target
    if lock.plan.device != "cuda":
        return []
    options = ["--driver", target.driver] if target.driver else []
    options += ["--driver-os", "windows"] if target.driver_os == "windows" else []
    for capability in dict.fromkeys(g.capability for g in target.gpus):
        options += ["--gpu", capability]
    return options


def find_links(lock: Lock, folder: str) -> list[str]:
    """Return the option for a folder with the wheels that the lock has from folders of the locking machine, if there are any."""
    return ["--find-links", folder] if any(local_files(lock)) else []


def create_command(subject: Subject, env: str, lock_path: str, wheels: str, *more: str) -> list[str]:
    """Return the command that builds the lock, also on a machine without its GPU. `wheels` is the folder of local wheels."""
    how = ["--manager", "conda"] if subject.lock.manager == "conda" else target_options(subject.lock)
    how += find_links(subject.lock, wheels)
    return ["gpuenv", "create", env, "--locked", "--lock", lock_path, "--no-verify", *how, *more]


def conda_override(lock: Lock) -> str | None:
    """Return CONDA_OVERRIDE_CUDA to install a conda lock for a GPU on a machine without one, else None.

    It is the CUDA of the target's driver, or the CUDA of the lock's builds.
    """
    if lock.manager != "conda" or lock.plan.device != "cuda":
        return None
    return lock.target.driver_cuda or lock.plan.cuda


def linux_only(subject: Subject, form: str) -> None:
    """Raise UsageError for a lock of another system than Linux, which `form` cannot serve."""
    platform = subject.lock.plan.platform
    if not platform.startswith("linux"):
        raise UsageError(
            f"--format {form} requires Linux, but the lock is for {oneline(platform)}",
            hint="lock for Linux: gpuenv lock --platform linux-x86_64",
        )


def venv_only(subject: Subject, form: str, instead: str) -> None:
    """Raise UsageError for a conda lock. pip cannot install its packages."""
    if subject.lock.manager == "conda":
        raise UsageError(
            f"{form} supports only wheels, but the lock has conda packages",
            hint=f"gpuenv export --format {instead}",
        )
