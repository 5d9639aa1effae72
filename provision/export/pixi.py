"""Write a pixi.toml with all packages pinned. `pixi lock` makes its pixi.lock."""

from __future__ import annotations

from typing import Any

import tomli_w

from ..model import Lock, LockedPackage
from . import export_subject_and_shared_texts as s
from .export_subject_and_shared_texts import Subject

FORM = "pixi"
_PLATFORMS = {"linux-x86_64": "linux-64", "linux-aarch64": "linux-aarch64", "windows-x86_64": "win-64"}


def text(subject: Subject) -> str:
    """Return the manifest. Raises UsageError for a package that it cannot name."""
    lock = subject.lock
    conda = sorted(s.conda_packages(lock), key=lambda p: p.name)
    wheels = [p for p in s.pip_packages(lock) if p.name != "pip"]  # pixi has its own installer
    index = s.main_index(lock)
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
    document["tasks"] = {"check": " ".join(s.quick_check(lock, "$CONDA_PREFIX"))}
    comments = [
        "`pixi lock` writes pixi.lock with the hashes of all packages. `pixi run python` runs Python in the environment",
        "`pixi run check` verifies the environment. It requires gpuenv on PATH",
    ]
    return (
        s.comment(subject, FORM, "", *comments)
        + "\n"
        + tomli_w.dumps({k: v for k, v in document.items() if v})
    )


def _system(lock: Lock) -> dict[str, Any]:
    """Return the virtual packages that pixi solves with: those of the target, not of the solving machine."""
    glibc = lock.target.glibc if lock.plan.platform.startswith("linux") else None
    system: dict[str, Any] = {"libc": {"family": "glibc", "version": glibc}} if glibc else {}
    # pixi rejects a machine whose driver supports less. Wheels run on any driver of their CUDA major.
    cuda = s.conda_override(lock) if lock.manager == "conda" else lock.plan.cuda_major
    return system | ({"cuda": cuda} if cuda and lock.plan.device == "cuda" else {})


def _conda(package: LockedPackage) -> dict[str, str]:
    build = s.file_name(package).removesuffix(".conda").removesuffix(".tar.bz2").rsplit("-", 1)[-1]
    pins = {
        "version": f"=={package.version}", "build": build, "channel": package.index, "sha256": package.sha256,
        "md5": None if package.sha256 else package.md5,
    }  # fmt: skip
    return {k: v for k, v in pins.items() if v}


def _wheel(package: LockedPackage, index: str | None) -> Any:
    """Return a package as a version, a version of another index, a file's address, a commit, or a folder."""
    folder = s.folder_of(package)
    if folder:
        return {"path": folder, "editable": True} if package.editable else {"path": folder}
    if package.url.startswith("git+"):
        return s.commit_of(package)
    if package.url.startswith("file:"):
        return {"path": s.path_of(package)}
    if package.index and package.index.startswith(("http://", "https://")):
        pin = f"=={package.version}"
        return pin if package.index == index else {"version": pin, "index": package.index}
    return {"url": package.url}
