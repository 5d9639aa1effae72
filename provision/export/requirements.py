"""Write a requirements.txt with hashes, for pip and uv."""

from __future__ import annotations

from ..model import Lock, LockedPackage
from . import export_subject_and_shared_texts as s
from .export_subject_and_shared_texts import Subject

FORM = "requirements"


def text(subject: Subject) -> str:
    """Return a requirements file with every wheel by version and hash.

    pip accepts hashes for all entries or for none. Packages without a hash are at the end, with the command
    that installs them. Raises UsageError for a conda lock.
    """
    s.venv_only(subject, FORM, "environment.yml")
    lock = subject.lock
    index = s.main_index(lock)
    packages = sorted(s.pip_packages(lock), key=lambda p: p.name)
    head = s.comment(
        subject, FORM, "",
        "pip install --require-hashes --no-deps -r requirements.txt",
        "uv pip install --require-hashes --no-deps -r requirements.txt",
    )  # fmt: skip
    rows = [head, f"\n--index-url {s.oneline(index)}\n" if index else "", "\n"]
    rows += [_entry(p, index) for p in packages if s.hashed(p)]
    return "".join(rows) + _without_hashes(packages)


def requirement(package: LockedPackage, index: str | None) -> str:
    """Return a package in PEP 508 form: by version if the main index has it, otherwise by address."""
    if s.hashed(package) and package.index and package.index == index:
        return s.oneline(f"{package.name}=={package.version}")
    return s.oneline(f"{package.name} @ {package.url}")


def _entry(package: LockedPackage, index: str | None) -> str:
    return f"{requirement(package, index)} \\\n    --hash=sha256:{s.oneline(package.sha256 or '')}\n"


def _without_hashes(packages: list[LockedPackage]) -> str:
    rows = []
    for package in packages:
        folder = s.folder_of(package)
        if s.hashed(package):
            continue
        if folder and package.editable:
            rows.append(s.shell("pip", "install", "--no-deps", "--editable", s.oneline(folder)))
        else:
            rows.append(s.shell("pip", "install", "--no-deps", requirement(package, None)))
    if not rows:
        return ""
    note = "\n# Commits and folders have no hash, and pip requires a hash for every entry if one entry has a hash.\n# Install these after the packages above:\n"
    return note + "".join(f"#   {row}\n" for row in rows)


def left_out(lock: Lock) -> list[str]:
    """Return the names of the packages at the end."""
    return [p.name for p in s.pip_packages(lock) if not s.hashed(p)]
