"""Write a lock in the files of package tools: pip, conda, pixi, uv, and the lock itself."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlsplit

import tomli_w

from ..errors import UsageError
from ..index.config import is_pytorch
from ..model import CONDA_SUBDIRS, Lock, LockedPackage
from ..templates import oneline, shell
from .subject import (
    Subject,
    comment,
    commit_of,
    conda_override,
    conda_packages,
    describe_target,
    folder_of,
    hashed,
    main_index,
    path_of,
    pip_packages,
    venv_only,
)

# --- pip ----------------------------------------------------------------------------------------------


def requirements(subject: Subject) -> str:
    """Return a requirements file with every wheel by version and hash.

    pip accepts hashes for all entries or for none. Packages without a hash are at the end, with the command
    that installs them. Raises UsageError for a conda lock.
    """
    venv_only(subject, "requirements", "environment.yml")
    index = main_index(subject.lock)
    text = comment(
        subject, "requirements", "",
        "pip install --require-hashes --no-deps -r requirements.txt",
        "uv pip install --require-hashes --no-deps -r requirements.txt",
    )  # fmt: skip
    text += f"\n--index-url {oneline(index)}\n\n" if index else "\n"
    commands = []
    for package in pip_packages(subject.lock):
        if hashed(package):
            digest = oneline(package.sha256 or "")
            text += f"{_requirement(package, index)} \\\n    --hash=sha256:{digest}\n"
        else:
            folder = folder_of(package) if package.editable else None
            what = ["--editable", folder] if folder else [_requirement(package, None)]
            commands.append(shell("pip", "install", "--no-deps", *what))
    if commands:
        text += (
            "\n# Commits and folders have no hash, and pip requires a hash for every entry if one entry has a hash.\n"
            "# Install these after the packages above:\n"
        )
    return text + "".join(f"#   {command}\n" for command in commands)


def _requirement(package: LockedPackage, index: str | None) -> str:
    """Return a package in PEP 508 form: by version if the main index has it, otherwise by address."""
    if hashed(package) and package.index and package.index == index:
        return oneline(f"{package.name}=={package.version}")
    return oneline(f"{package.name} @ {package.url}")


# --- conda, mamba, micromamba, pixi -------------------------------------------------------------------


def environment_yml(subject: Subject) -> str:
    """Return the file with exact versions: conda packages with builds, wheels with hashes.

    pip accepts hashes for all packages or for none, so they are omitted if one package has none.
    """
    import yaml

    lock, index = subject.lock, main_index(subject.lock)
    conda = conda_packages(lock)
    wheels = [p for p in pip_packages(lock) if conda or p.name != "pip"]
    loose = [p.name for p in wheels if not hashed(p)]
    channels = _channels(conda)
    dependencies: list[object] = [] if conda else [f"python={lock.plan.python}", "pip"]
    for package in conda:  # with its channel if there are several
        channel = f"{package.index}::" if len(channels) > 1 and package.index else ""
        dependencies.append(oneline(f"{channel}{package.name}={package.version}={package.build}"))
    rows = []
    for package in wheels:
        row = _requirement(package, index)
        if package.editable and folder_of(package):
            row = f"-e {oneline(package.url)}"  # pip splits a path at spaces
        elif not loose:
            # The hash is an option, or in an address, where conda-lock requires it. pip accepts both.
            pinned, sign = "==" in row.partition(" @ ")[0], "&" if "#" in package.url else "#"
            row = oneline(f"{row}{' --hash=sha256:' if pinned else f'{sign}sha256='}{package.sha256}")
        rows.append(row)
    dependencies += [{"pip": rows}] if rows else []
    name = re.sub(r"[^A-Za-z0-9_-]", "", "-".join(b.framework for b in lock.plan.builds)) or "gpuenv"
    more = [f"its wheels come from {oneline(index)}: set PIP_INDEX_URL for a mirror"] if index else []
    if loose:
        more.append(f"no hashes: {oneline(', '.join(loose))} has none, and pip requires all or none")
    body = {"name": name, "channels": [*map(oneline, channels), "nodefaults"], "dependencies": dependencies}
    return comment(subject, "environment.yml", *(["", *more] if more else [])) + yaml.safe_dump(
        body, sort_keys=False, allow_unicode=True, width=10_000
    )


def _channels(conda: list[LockedPackage]) -> list[str]:
    return list(dict.fromkeys(p.index for p in conda if p.index)) or ["conda-forge"]


def pixi(subject: Subject) -> str:
    """Return a pixi.toml, of which `pixi lock` makes a pixi.lock. Raises UsageError for a package that it cannot name."""
    lock, index = subject.lock, main_index(subject.lock)
    conda = conda_packages(lock)
    # The virtual packages that pixi solves with are those of the target, not of the solving machine.
    platform = {"platform": CONDA_SUBDIRS[lock.plan.platform]}
    if lock.target.glibc and lock.plan.platform.startswith("linux"):
        platform["glibc"] = lock.target.glibc
    # pixi rejects a machine whose driver supports less. Wheels run on any driver of their CUDA major.
    cuda = conda_override(lock) if lock.manager == "conda" else lock.plan.cuda_major
    if cuda and lock.plan.device == "cuda":
        platform["cuda"] = cuda
    document: dict[str, Any] = {
        "workspace": {
            "name": "-".join(b.framework for b in lock.plan.builds) or "gpuenv",
            "channels": _channels(conda), "platforms": [platform], "requires-pixi": ">=0.71",  # the first with platforms as tables
        },
        "dependencies": {p.name: _conda_pin(p) for p in conda} or {"python": f"{lock.plan.python}.*"},
        "pypi-options": {"index-url": index} if index else {},
        # pixi has its own installer
        "pypi-dependencies": {p.name: _wheel_pin(p, index) for p in pip_packages(lock) if p.name != "pip"},
        "tasks": {"check": f"gpuenv verify $CONDA_PREFIX {'--quick' if lock.plan.device == 'cuda' else '--device cpu'}"},
    }  # fmt: skip
    comments = [
        "`pixi lock` writes pixi.lock with the hashes of all packages. `pixi run python` runs Python in the environment",
        "`pixi run check` verifies the environment. It requires gpuenv on PATH",
    ]
    body = tomli_w.dumps({k: v for k, v in document.items() if v})
    return f"{comment(subject, 'pixi', '', *comments)}\n{body}"


def _conda_pin(package: LockedPackage) -> dict[str, str]:
    pins = {
        "version": f"=={package.version}", "build": package.build, "channel": package.index,
        "sha256": package.sha256, "md5": None if package.sha256 else package.md5,
    }  # fmt: skip
    return {k: v for k, v in pins.items() if v}


def _wheel_pin(package: LockedPackage, index: str | None) -> Any:
    """Return a package as a version, a version of another index, or a place."""
    if place := _place(package):
        return place
    if package.index and package.index.startswith(("http://", "https://")):
        pin = f"=={package.version}"
        return pin if package.index == index else {"version": pin, "index": package.index}
    return {"url": package.url}


def _place(package: LockedPackage) -> dict[str, Any] | None:
    """Return the folder, file or commit of a package, or None if it comes from an index or a URL."""
    if package.url.startswith("git+"):
        return commit_of(package)
    if package.url.startswith("file:"):
        return {
            "path": path_of(package),
            **({"editable": True} if folder_of(package) and package.editable else {}),
        }
    return None


# --- uv -----------------------------------------------------------------------------------------------

_MARKERS = {
    "linux-x86_64": "sys_platform == 'linux' and platform_machine == 'x86_64'",
    "linux-aarch64": "sys_platform == 'linux' and platform_machine == 'aarch64'",
    "windows-x86_64": "sys_platform == 'win32' and platform_machine == 'AMD64'",
}


def uv(subject: Subject) -> str:
    """Return a pyproject.toml with all packages, their versions as constraints, and their indexes.

    `uv lock` reads the indexes again and writes its own hashes. In another project's pyproject.toml the tables of
    [tool.uv] alone limit its requirements to the lock's versions and indexes. Several locks are extras that exclude each
    other, with an index for each. Raises UsageError for a conda lock, for an address that it cannot name, and for locks of
    several Pythons.
    """
    venv_only(subject, "uv", "pixi")
    lock, extras = subject.lock, subject.extras
    if pythons := {one.plan.python for one in extras.values()} - {lock.plan.python}:
        raise UsageError(
            f"the locks are for Python {lock.plan.python} and {', '.join(map(str, sorted(pythons, key=str)))}",
            hint="lock them all with the same --python",
        )
    # gpuenv locks pip for an environment that uv manages itself.
    locks = extras or {"": lock}
    by_extra = {extra: [p for p in pip_packages(one) if p.name != "pip"] for extra, one in locks.items()}
    main, packages = main_index(lock), [p for locked in by_extra.values() for p in locked]
    names = _index_names(packages, main)
    # The main index stands for uv's own, and the others are for the packages that name them.
    indexes: list[dict[str, Any]] = [{"name": "main", "url": oneline(main), "default": True}] if main else []
    indexes += [{"name": name, "url": oneline(url), "explicit": True} for url, name in names.items()]
    sources: dict[str, Any] = {}
    for extra, locked in by_extra.items():
        for package in locked:
            place = _place(package)
            if place is None and (not main or package.index != main):
                place = {"index": names[package.index]} if package.index in names else {"url": package.url}
            if place and extra:
                sources.setdefault(package.name, []).append(place | {"extra": extra})
            elif place:
                sources[package.name] = place
    pins = {extra: [_pin(p, locks[extra]) for p in locked] for extra, locked in by_extra.items()}
    project = {
        "constraint-dependencies": [] if extras else [oneline(f"{p.name}=={p.version}") for p in packages if not p.unhashed],
        "conflicts": [[{"extra": extra} for extra in extras]] if extras else [],
        "environments": list(dict.fromkeys(_MARKERS[one.plan.platform] for one in (lock, *extras.values()))),
        "package": False, "sources": sources, "index": indexes,
    }  # fmt: skip
    document = {
        "project": {
            "name": "-".join(["gpuenv", *(b.framework for b in lock.plan.builds)]), "version": "0",
            "requires-python": f"=={lock.plan.python}.*",
            "dependencies": [] if extras else [oneline(p.name) for p in packages],
            **({"optional-dependencies": pins} if extras else {}),
        },
        "tool": {"uv": {key: value for key, value in project.items() if value not in ({}, [])}},
    }  # fmt: skip
    comments = [
        "`uv sync` in this file's folder installs these builds",
        "to use the same builds in another project, copy the [tool.uv] tables and requires-python to its pyproject.toml",
    ]
    if extras:
        comments = [
            *(oneline(f"`uv sync --extra {extra}`: {describe_target(one)}") for extra, one in extras.items()),
            "to use the same builds in another project, copy the extras, the [tool.uv] tables and requires-python",
        ]
    return f"{comment(subject, 'uv', '', *comments)}\n{tomli_w.dumps(document)}"


def _pin(package: LockedPackage, lock: Lock) -> str:
    """Return the requirement of an extra: on the lock's platform the lock's version, or the place of `sources`."""
    version = "" if package.unhashed else f"=={package.version}"
    return oneline(f"{package.name}{version} ; {_MARKERS[lock.plan.platform]}")


def _index_names(packages: list[LockedPackage], main: str | None) -> dict[str, str]:
    """Return a name for each index but the main one, by its address: "pytorch-cu126", else "index-2"."""
    names: dict[str, str] = {}
    for package in packages:
        url = package.index
        if url and url not in (main, *names) and url.startswith(("http://", "https://")):
            label = urlsplit(url).path.rstrip("/").rpartition("/")[2]
            name = f"pytorch-{label}" if is_pytorch(url) and re.fullmatch(r"cu\d+|cpu", label) else ""
            names[url] = name if name and name not in names.values() else f"index-{len(names) + 2}"
    return names


# --- the lock itself ----------------------------------------------------------------------------------


def pylock(subject: Subject) -> str:
    """Return the text of a pylock.toml. Raises UsageError for a conda lock."""
    venv_only(subject, "pylock", "conda-lock")
    return comment(subject, "pylock") + subject.lock_text


def conda_lock(subject: Subject) -> str:
    """Return the text of a conda-lock.yml. Raises UsageError for a lock of wheels.

    conda-lock.yml needs a python package with its hash, which only a solve of the channels can give.
    """
    if subject.lock.manager != "conda":
        raise UsageError(
            "the lock contains only wheels. conda-lock.yml also needs conda packages, at least python",
            hint="create a conda lock with gpuenv lock --manager conda, or export with --format environment.yml",
        )
    return comment(subject, "conda-lock") + subject.lock_text
