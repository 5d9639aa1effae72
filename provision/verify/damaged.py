"""Damaged libraries of packages, looked for when a process crashed or the loader refused a file.

Sizes of all packages are compared first, which takes some milliseconds. Only where they are right and the process
crashed are the bytes of the framework's own libraries compared: some GB, a few seconds.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from ..model import Environment, Evidence, Finding, normalize_name
from ..system import untrusted_files
from .disk import reinstall
from .libraries import Distribution, Problem, Shipped, problems
from .locate import Surroundings
from .records import cells, sha256_in, size_in

CAUSE = "package_files_damaged"
_CRASHED = re.compile(r"ended by SIG(BUS|SEGV|ILL|FPE|ABRT)|Inconsistency detected by ld\.so")
_REFUSED = re.compile(
    r"file too short|invalid ELF header|ELF load command|has no dynamic section|has no loadable segments|"
    r"ELF file's phentsize|cannot read file data|nonzero padding in e_ident|file version does not match"
)
_OF = {"torch": r"torch(?![\w])", "tensorflow": r"tensorflow", "jax": r"jax"}


def finding(framework: str, words: str, env: Environment, found: Surroundings) -> Finding | None:
    """The damaged files behind a crash or the loader's words; None where no file differs from its record."""
    crashed = _CRASHED.search(words)
    if not crashed and not _REFUSED.search(words):
        return None
    packages = [p for site in found.sites for p in _recorded(Path(site))]
    for package in packages:
        if bad := [p for p in problems(package.files, False) if p.kind != "missing"]:
            return _finding(env, package, bad, words)
    for package in packages if crashed else ():
        if re.match(_OF.get(framework, r"$^"), package.name) and (bad := problems(package.files, True)):
            return _finding(env, package, bad, words)
    refused = next((line for line in words.splitlines() if _REFUSED.search(line)), None)
    return _unrecorded(env, refused) if refused else None


def _recorded(site: Path) -> Iterator[Distribution]:
    """The installed packages with the libraries that their RECORDs list."""
    for folder in sorted(site.glob("*.dist-info")):
        try:
            text = untrusted_files.read_text(folder / "RECORD")
        except OSError:
            continue  # conda's packages have none
        rows = cells(r for r in text.splitlines() if ".so" in r)
        files = tuple(
            Shipped(path=os.path.normpath(site / name), size=size_in(size), sha256=sha256_in(digest))
            for name, digest, size in rows
            if re.search(r"\.so(\.\d+)*$", name)
        )
        if files:
            name, _, version = folder.name.removesuffix(".dist-info").partition("-")
            yield Distribution(name=normalize_name(name), version=version, files=files)


def _finding(env: Environment, package: Distribution, bad: Sequence[Problem], words: str) -> Finding:
    how = {
        "short": "is cut short",
        "size": "has another size",
        "hash": "has other bytes",
        "missing": "is missing",
    }
    first = os.path.basename(bad[0].path)
    more = f", and {len(bad) - 1} more" if len(bad) > 1 else ""
    return Finding(
        cause=CAUSE,
        title=f"{first} of {package.name} {package.version} {how[bad[0].kind]}{more}",
        evidence=(
            *(Evidence(text=p.text, source=p.path) for p in bad[:6]),
            Evidence(text=words.splitlines()[0][:300], source="the process"),
        ),
        fix=reinstall(env, package),
        confidence="certain",
    )


def _unrecorded(env: Environment, refused: str) -> Finding:
    """A file that the loader refused and no RECORD lists."""
    path = re.search(r"/[^\s:'\"]{1,300}", refused)
    name = os.path.basename(path.group(0)) if path else "a library"
    return Finding(
        cause=CAUSE,
        title=f"The loader refuses {name}: the file is damaged",
        evidence=(Evidence(text=refused.strip()[:300], source="the loader"),),
        fix=_again(env),
    )


def _again(env: Environment) -> str:
    if env.made_by_gpuenv:
        return f"gpuenv repair {env.path}"
    return "Install the package of that library again, without the installer's cache."
