"""Write a lock in the files of package tools."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlsplit

import tomli_w

from ..errors import UsageError
from ..index import pytorch_index
from ..model import Lock, LockedPackage
from ..templates import oneline, shell
from .subject import (
    Subject,
    comment,
    commit_of,
    conda_override,
    conda_packages,
    file_name,
    folder_of,
    hashed,
    main_index,
    path_of,
    pip_packages,
    quick_check,
    venv_only,
)


def requirements(subject: Subject) -> str:
    """Return a requirements file with every wheel by version and hash.

    pip accepts hashes for all entries or for none. Packages without a hash are at the end, with the command
    that installs them. Raises UsageError for a conda lock.
    """
    venv_only(subject, "requirements", "environment.yml")
    lock = subject.lock
    index = main_index(lock)
    packages = sorted(pip_packages(lock), key=lambda p: p.name)
    head = comment(
        subject, "requirements", "",
        "pip install --require-hashes --no-deps -r requirements.txt",
        "uv pip install --require-hashes --no-deps -r requirements.txt",
    )  # fmt: skip
    rows = [head, f"\n--index-url {oneline(index)}\n" if index else "", "\n"]
    rows += [_entry(p, index) for p in packages if hashed(p)]
    return "".join(rows) + _without_hashes(packages)


def requirement(package: LockedPackage, index: str | None) -> str:
    """Return a package in PEP 508 form: by version if the main index has it, otherwise by address."""
    if hashed(package) and package.index and package.index == index:
        return oneline(f"{package.name}=={package.version}")
    return oneline(f"{package.name} @ {package.url}")


def _entry(package: LockedPackage, index: str | None) -> str:
    return f"{requirement(package, index)} \\\n    --hash=sha256:{oneline(package.sha256 or '')}\n"


def _without_hashes(packages: list[LockedPackage]) -> str:
    rows = []
    for package in packages:
        folder = folder_of(package)
        if hashed(package):
            continue
        if folder and package.editable:
            rows.append(shell("pip", "install", "--no-deps", "--editable", oneline(folder)))
        else:
            rows.append(shell("pip", "install", "--no-deps", requirement(package, None)))
    if not rows:
        return ""
    note = "\n# Commits and folders have no hash, and pip requires a hash for every entry if one entry has a hash.\n# Install these after the packages above:\n"
    return note + "".join(f"#   {row}\n" for row in rows)


def left_out(lock: Lock) -> list[str]:
    """Return the names of the packages at the end."""
    return [p.name for p in pip_packages(lock) if not hashed(p)]


def environment_yml(subject: Subject) -> str:
    """Return the file with exact versions: conda packages with builds, wheels with hashes.

    pip accepts hashes for all packages or for none, so they are omitted if one package has none.
    """
    import yaml

    lock = subject.lock
    conda, wheels = sorted(conda_packages(lock), key=lambda p: p.name), pip_packages(lock)
    channels = list(dict.fromkeys(p.index for p in conda if p.index)) or ["conda-forge"]
    if conda:
        dependencies: list[object] = [_spec(p, many=len(channels) > 1) for p in conda]
    else:
        dependencies = [f"python={lock.plan.python}", "pip"]
        wheels = [p for p in wheels if p.name != "pip"]
    if wheels:
        dependencies.append({"pip": _pip_section(sorted(wheels, key=lambda p: p.name), lock)})
    document = {
        "name": _name(lock), "channels": [*map(oneline, channels), "nodefaults"], "dependencies": dependencies,
    }  # fmt: skip
    body = yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=10_000)
    return comment(subject, "environment.yml", *_told(lock, wheels)) + body


def _told(lock: Lock, wheels: list[LockedPackage]) -> list[str]:
    index, more = main_index(lock), []
    if index:
        more.append(f"its wheels come from {oneline(index)}: set PIP_INDEX_URL for a mirror")
    loose = [p.name for p in wheels if not hashed(p)]
    if loose:
        more.append(f"no hashes: {oneline(', '.join(loose))} has none, and pip requires all or none")
    return ["", *more] if more else []


def _pip_section(wheels: list[LockedPackage], lock: Lock) -> list[str]:
    index = main_index(lock)
    checked = all(map(hashed, wheels))
    rows = []
    for package in wheels:
        folder = folder_of(package)
        if folder and package.editable:
            rows.append(f"-e {oneline(package.url)}")  # pip splits a path at spaces
        else:
            named = requirement(package, index)
            rows.append(oneline(named + (_hash(package, named) if checked else "")))
    return rows


def _hash(package: LockedPackage, named: str) -> str:
    """Return the hash as an option, or in an address, where conda-lock requires it. pip accepts both."""
    if "==" in named.partition(" @ ")[0]:
        return f" --hash=sha256:{package.sha256}"
    return f"{'&' if '#' in package.url else '#'}sha256={package.sha256}"


def _spec(package: LockedPackage, *, many: bool) -> str:
    """Return the exact spec of a conda package, with its channel if there are several."""
    name = file_name(package).removesuffix(".conda").removesuffix(".tar.bz2")
    channel = f"{package.index}::" if many and package.index else ""
    return oneline(f"{channel}{package.name}={package.version}={name.rsplit('-', 1)[-1]}")


def _name(lock: Lock) -> str:
    name = "-".join(b.framework for b in lock.plan.builds)
    return re.sub(r"[^A-Za-z0-9_-]", "", name) or "gpuenv"


_PLATFORMS = {"linux-x86_64": "linux-64", "linux-aarch64": "linux-aarch64", "windows-x86_64": "win-64"}


def pixi(subject: Subject) -> str:
    """Return the manifest. Raises UsageError for a package that it cannot name."""
    lock = subject.lock
    conda = sorted(conda_packages(lock), key=lambda p: p.name)
    wheels = [p for p in pip_packages(lock) if p.name != "pip"]  # pixi has its own installer
    index = main_index(lock)
    document: dict[str, Any] = {
        "workspace": {
            "name": "-".join(b.framework for b in lock.plan.builds) or "gpuenv",
            "channels": list(dict.fromkeys(p.index for p in conda if p.index)) or ["conda-forge"],
            "platforms": [_PLATFORMS[lock.plan.platform]],
        },
        "system-requirements": _system(lock),
        "dependencies": {p.name: _conda(p) for p in conda} or {"python": f"{lock.plan.python}.*"},
    }
    if index:
        document["pypi-options"] = {"index-url": index}
    if wheels:
        document["pypi-dependencies"] = {p.name: _wheel(p, index) for p in wheels}
    document["tasks"] = {"check": " ".join(quick_check(lock, "$CONDA_PREFIX"))}
    comments = [
        "`pixi lock` writes pixi.lock with the hashes of all packages. `pixi run python` runs Python in the environment",
        "`pixi run check` verifies the environment. It requires gpuenv on PATH",
    ]
    return (
        comment(subject, "pixi", "", *comments)
        + "\n"
        + tomli_w.dumps({k: v for k, v in document.items() if v})
    )


def _system(lock: Lock) -> dict[str, Any]:
    """Return the virtual packages that pixi solves with: those of the target, not of the solving machine."""
    glibc = lock.target.glibc if lock.plan.platform.startswith("linux") else None
    system: dict[str, Any] = {"libc": {"family": "glibc", "version": glibc}} if glibc else {}
    # pixi rejects a machine whose driver supports less. Wheels run on any driver of their CUDA major.
    cuda = conda_override(lock) if lock.manager == "conda" else lock.plan.cuda_major
    return system | ({"cuda": cuda} if cuda and lock.plan.device == "cuda" else {})


def _conda(package: LockedPackage) -> dict[str, str]:
    build = file_name(package).removesuffix(".conda").removesuffix(".tar.bz2").rsplit("-", 1)[-1]
    pins = {
        "version": f"=={package.version}", "build": build, "channel": package.index, "sha256": package.sha256,
        "md5": None if package.sha256 else package.md5,
    }  # fmt: skip
    return {k: v for k, v in pins.items() if v}


def _wheel(package: LockedPackage, index: str | None) -> Any:
    """Return a package as a version, a version of another index, a file's address, a commit, or a folder."""
    folder = folder_of(package)
    if folder:
        return {"path": folder, "editable": True} if package.editable else {"path": folder}
    if package.url.startswith("git+"):
        return commit_of(package)
    if package.url.startswith("file:"):
        return {"path": path_of(package)}
    if package.index and package.index.startswith(("http://", "https://")):
        pin = f"=={package.version}"
        return pin if package.index == index else {"version": pin, "index": package.index}
    return {"url": package.url}


_MARKERS = {
    "linux-x86_64": "sys_platform == 'linux' and platform_machine == 'x86_64'",
    "linux-aarch64": "sys_platform == 'linux' and platform_machine == 'aarch64'",
    "windows-x86_64": "sys_platform == 'win32' and platform_machine == 'AMD64'",
}
_OF_THE_TOOL = ("pip",)
"""What gpuenv locks for an environment that uv manages itself."""


def uv(subject: Subject) -> str:
    """Return the project file. Raises UsageError for a conda lock, and for an address that it cannot name."""
    venv_only(subject, "uv", "pixi")
    lock = subject.lock
    packages = sorted((p for p in pip_packages(lock) if p.name not in _OF_THE_TOOL), key=lambda p: p.name)
    main = main_index(lock)
    names = index_names(packages, main)
    project = {
        "constraint-dependencies": [_pin(p) for p in packages if not p.unhashed],
        "environments": [_MARKERS[lock.plan.platform]],
        "package": False,
        "sources": {p.name: place for p in packages if (place := _source(p, main, names))},
        "index": _indexes(main, names),
    }
    document = {
        "project": {
            "name": "gpuenv-" + "-".join(b.framework for b in lock.plan.builds)
            if lock.plan.builds
            else "gpuenv",
            "version": "0",
            "requires-python": f"=={lock.plan.python}.*",
            "dependencies": [oneline(p.name) for p in packages],
        },
        "tool": {"uv": {key: value for key, value in project.items() if value not in ({}, [])}},
    }
    comments = [
        "`uv sync` in this file's folder installs these builds",
        "to use the same builds in another project, copy the [tool.uv] tables and requires-python to its pyproject.toml",
    ]
    return comment(subject, "uv", "", *comments) + "\n" + tomli_w.dumps(document)


def index_names(packages: list[LockedPackage], main: str | None) -> dict[str, str]:
    """Return a name for each index but the main one, by its address: "pytorch-cu126", else "index-2"."""
    names: dict[str, str] = {}
    for package in packages:
        url = package.index
        if not url or url == main or url in names or not url.startswith(("http://", "https://")):
            continue
        label = urlsplit(url).path.rstrip("/").rpartition("/")[2]
        name = f"pytorch-{label}" if pytorch_index.is_one(url) and re.fullmatch(r"cu\d+|cpu", label) else ""
        names[url] = name if name and name not in names.values() else f"index-{len(names) + 2}"
    return names


def _indexes(main: str | None, names: dict[str, str]) -> list[dict[str, Any]]:
    """Return the main index instead of uv's own, and the others for the packages that name them."""
    rows: list[dict[str, Any]] = [{"name": "main", "url": oneline(main), "default": True}] if main else []
    return rows + [{"name": name, "url": oneline(url), "explicit": True} for url, name in names.items()]


def _pin(package: LockedPackage) -> str:
    return oneline(f"{package.name}=={package.version}")


def _source(package: LockedPackage, main: str | None, names: dict[str, str]) -> dict[str, Any] | None:
    """Return where uv gets a package from, or None for the main index."""
    folder = folder_of(package)
    if folder:
        return {"path": folder, "editable": True} if package.editable else {"path": folder}
    if package.url.startswith("git+"):
        return commit_of(package)
    if package.url.startswith("file:"):
        return {"path": path_of(package)}
    if package.index == main and main:
        return None
    if package.index in names:
        return {"index": names[package.index]}
    return {"url": package.url}


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
