"""Write a CycloneDX 1.6 bill of materials of a lock or an environment.

It contains no time and no random number, so the same packages give the same bytes. It contains no local
paths.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePath
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from .. import __version__
from ..environment.distributions import Distribution, list_conda_infos, read_distributions
from ..index.wheel_names import applies
from ..model import Lock, LockedPackage, requirement_name
from ..templates import oneline
from .subject import (
    InstalledPart,
    Subject,
    conda_packages,
    describe_target,
    file_name,
    folder_of,
    headline,
    main_index,
)

_ROOT = "environment"
_URL_SAFE = "%/:=&?~#+!$,;'@()*"


def cyclonedx(subject: Subject) -> str:
    """Return the bill of materials as JSON."""
    parts = [*_locked_parts(subject), *_added_parts(subject)]
    refs = _refs(parts)
    document = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": _metadata(subject),
        "components": [{**part, "bom-ref": ref} for part, ref in zip(parts, refs, strict=True)],
        **_relations(subject, parts, refs),
    }
    return json.dumps(document, indent=1) + "\n"


def _metadata(subject: Subject) -> dict[str, Any]:
    lock = subject.lock
    said = (
        f"{headline(lock)}; locked for {describe_target(lock)}; written by `gpuenv export --format cyclonedx`"
    )
    return {
        "component": {
            "type": "application", "bom-ref": _ROOT, "name": _name(subject.env), "description": said,
        },
        "tools": {"components": [{"type": "application", "name": "gpuenv", "version": __version__}]},
        "properties": _properties({
            "cdx:reproducible": "true", "gpuenv:manager": lock.manager, "gpuenv:python": lock.plan.python or "",
            "gpuenv:device": lock.plan.device, "gpuenv:platform": lock.plan.platform,
            "gpuenv:contents": "lock" if subject.installed is None else "installed",
        }),
    }  # fmt: skip


def _name(env: str) -> str:
    """Return the name of the environment's folder, or of its parent if the name is hidden (.venv)."""
    path = PurePath(env)
    name = path.parent.name if path.name.startswith(".") else path.name
    return oneline(name) or _ROOT


def _properties(pairs: dict[str, str]) -> list[dict[str, str]]:
    return [{"name": name, "value": oneline(value)} for name, value in pairs.items() if value]


# --- components ----------------------------------------------------------------------------------


def _locked_parts(subject: Subject) -> list[dict[str, Any]]:
    """Return the lock's packages, or for an environment those installed in the locked version."""
    parts = []
    installed = {p.name: p for p in subject.installed or ()}
    main = main_index(subject.lock)
    for package in sorted(subject.lock.packages, key=lambda p: (p.name, p.version, p.url)):
        one = installed.get(canonicalize_name(package.name))
        if package.is_conda:
            parts.append(_conda_part(package))
        elif subject.installed is None or (one and one.state == "locked"):
            parts.append(_wheel_part(package, main, one))
    return parts


def _added_parts(subject: Subject) -> list[dict[str, Any]]:
    """Return the packages of an environment that are not in its lock, or have another version."""
    return [
        {
            **_part(one.name, one.version, _purl("pypi", one.name, one.version)), **_licenses(one),
            "properties": _properties({"gpuenv:state": one.state}),
        }
        for one in sorted(subject.installed or (), key=lambda p: (p.name, p.version))
        if one.state != "locked"
    ]  # fmt: skip


def _part(name: str, version: str, purl: str | None) -> dict[str, Any]:
    part: dict[str, Any] = {"type": "library", "bom-ref": "", "name": oneline(name)}
    part |= {"version": oneline(version)} if version else {}
    return part | ({"purl": purl} if purl else {})


def _wheel_part(package: LockedPackage, main: str | None, one: InstalledPart | None) -> dict[str, Any]:
    folder, commit = folder_of(package), package.url.startswith("git+")
    name, version = str(canonicalize_name(package.name)), package.version
    more = {"vcs_url": package.url} if commit else {}
    if package.index and package.index != main and not package.index.startswith("file:"):
        more = {"repository_url": package.index}
    # A folder is not a release. With a purl, advisories of another project would match it.
    part = _part(name, version, None if folder else _purl("pypi", name, version, more))
    part |= _hashes(package) | (_licenses(one) if one else {})
    if commit:
        return part | {"externalReferences": [{"type": "vcs", "url": _iri(package.url)}]}
    if package.url.startswith("file:"):
        kind = "folder" if folder else "file"
        return part | {"properties": _properties({f"gpuenv:{kind}": file_name(package)})}
    return part | {"externalReferences": [{"type": "distribution", "url": _iri(package.url)}]}


def _conda_part(package: LockedPackage) -> dict[str, Any]:
    file = file_name(package)
    kind = "conda" if file.endswith(".conda") else "tar.bz2"
    build = file.removesuffix(f".{kind}").rpartition("-")[2]
    subdir = unquote(urlsplit(package.url).path).rstrip("/").rpartition("/")[0].rpartition("/")[2]
    channel = (package.index or "").rstrip("/").rpartition("/")[2]
    more = {"build": build, "channel": channel, "subdir": subdir, "type": kind}
    part = _part(package.name, package.version, _purl("conda", package.name, package.version, more))
    part |= _hashes(package)
    if package.url.startswith("file:"):
        return part | {"properties": _properties({"gpuenv:file": file})}
    return part | {"externalReferences": [{"type": "distribution", "url": _iri(package.url)}]}


def _hashes(package: LockedPackage) -> dict[str, Any]:
    rows = [("MD5", package.md5), ("SHA-256", package.sha256)]
    hashes = [{"alg": alg, "content": content.lower()} for alg, content in rows if content]
    return {"hashes": hashes} if hashes else {}


def _licenses(one: InstalledPart) -> dict[str, Any]:
    if one.license_expression:
        return {"licenses": [{"expression": one.license_expression}]}
    names = [{"license": {"name": oneline(name)}} for name in one.license_names]
    return {"licenses": names} if names else {}


def _purl(kind: str, name: str, version: str, more: dict[str, str] | None = None) -> str:
    """Return a package URL with quoted parts, and qualifiers sorted by name."""
    said = f"pkg:{kind}/{_quoted(name)}" + (f"@{_quoted(version)}" if version else "")
    pairs = [f"{key}={quote(value, safe='.-_~:/')}" for key, value in sorted((more or {}).items()) if value]
    return said + (f"?{'&'.join(pairs)}" if pairs else "")


def _quoted(word: str) -> str:
    return quote(word, safe=".-_~:")


def _iri(url: str) -> str:
    return quote(re.sub(r"%(?![0-9A-Fa-f]{2})", "%25", oneline(url)), safe=_URL_SAFE)


# --- requirements ----------------------------------------------------------------------------


def _refs(parts: Iterable[dict[str, Any]]) -> list[str]:
    """Return a unique reference for each component."""
    refs: list[str] = []
    for part in parts:
        ref = part.get("purl") or f"{part['name']}@{part.get('version', '')}"
        refs.append(ref if ref not in refs else f"{ref}#{len(refs)}")
    return refs


def _relations(subject: Subject, parts: list[dict[str, Any]], refs: list[str]) -> dict[str, Any]:
    """Return the known graph of requirements. A lock of wheels has none."""
    known = _requirements(subject)
    by_name: dict[str, list[str]] = {}
    for part, ref in zip(parts, refs, strict=True):
        by_name.setdefault(str(canonicalize_name(part["name"])), []).append(ref)
    rows, required, unknown = [], set(), []
    for part, ref in zip(parts, refs, strict=True):
        name = str(canonicalize_name(part["name"]))
        if name not in known:
            unknown.append(ref)
            continue
        theirs = sorted({r for n in known[name] for r in by_name.get(n, ()) if r != ref})
        required |= set(theirs)
        rows.append({"ref": ref, "dependsOn": theirs})
    direct = {r for name in _list_required(subject.lock) for r in by_name.get(name, ())}
    top = sorted({r for r in refs if r not in required} | direct)
    relations: dict[str, Any] = {"dependencies": [{"ref": _ROOT, "dependsOn": top}, *rows]}
    if unknown:
        relations["compositions"] = [{"aggregate": "unknown", "dependencies": unknown}]
    return relations


def _requirements(subject: Subject) -> dict[str, tuple[str, ...]]:
    """Return the names that each package requires."""
    required = {
        str(canonicalize_name(p.name)): tuple(
            str(canonicalize_name(words[0])) for need in p.depends if (words := need.split())
        )
        for p in conda_packages(subject.lock)
    }
    return required | {p.name: p.requires for p in subject.installed or ()}


def _list_required(lock: Lock) -> set[str]:
    """Return the names that the plan requires."""
    needs = (*(r for b in lock.plan.builds for r in b.requirements), *lock.plan.packages)
    return set(map(requirement_name, needs))


# A longer requirement in METADATA is not a name with versions and a marker.
_LONGEST = 4096


def list_installed_parts(env: Path, lock: Lock) -> tuple[InstalledPart, ...]:
    """Return the distributions in the environment's site-packages, without those of conda packages."""
    locked = {str(canonicalize_name(p.name)): p.version for p in lock.packages if not p.is_conda}
    by_conda = list_conda_infos(env)
    installed = {
        name: one
        for name, (one, *_) in sorted(read_distributions(env).items())
        if one.installer != "conda" and one.folder.name not in by_conda
    }
    needs = {name: _parse_requirements(one.requirements) for name, one in installed.items()}
    extras = {"", *(extra for rows in needs.values() for need in rows for extra in need.extras)}
    planned = _parse_requirements(
        [*(r for b in lock.plan.builds for r in b.requirements), *lock.plan.packages]
    )
    extras |= {extra for need in planned for extra in need.extras}
    return tuple(
        InstalledPart(
            name=name, version=one.version, state=_state(one.version, locked.get(name)),
            requires=_names(needs[name], extras, one.folder),
            license_expression=_expression(one), license_names=_list_classifiers(one),
        )
        for name, one in installed.items()
    )  # fmt: skip


def describe_differences(lock: Lock, installed: Sequence[InstalledPart]) -> list[str]:
    """Return sentences on how the installed packages differ from the lock."""
    here = {p.name for p in installed}
    missing = [p.name for p in lock.packages if not p.is_conda and canonicalize_name(p.name) not in here]
    differences = []
    for state, words in (
        ("replaced", "in another version than the lock's"),
        ("added", "in addition to the locked packages"),
    ):
        names = [f"{p.name} {p.version}" for p in installed if p.state == state]
        differences += (
            [f"installed {words} and therefore without a hash: {', '.join(names)}"] if names else []
        )
    differences += (
        [f"omitted, because they are in the lock but not installed: {', '.join(missing)}"] if missing else []
    )
    return differences


def _state(version: str, locked: str | None) -> str:
    if locked is None:
        return "added"
    try:
        same = not locked or Version(version) == Version(locked)
    except InvalidVersion:
        same = version == locked
    return "locked" if same else "replaced"


def _parse_requirements(texts: Iterable[str]) -> list[Requirement]:
    parsed = []
    for text in texts:
        try:
            parsed += [Requirement(text)] if len(text) <= _LONGEST else []
        except InvalidRequirement:
            continue  # an invalid requirement of an old package is left out
    return parsed


def _names(needs: Iterable[Requirement], extras: set[str], folder: Path) -> tuple[str, ...]:
    """Return the names of the requirements that apply on this platform, for all requested extras."""
    minor = folder.parent.parent.name.removeprefix("python")
    environment = {"python_version": minor, "python_full_version": f"{minor}.0"}
    names = {str(canonicalize_name(need.name)) for need in needs if applies(need.marker, environment, extras)}
    return tuple(sorted(names))


def _expression(one: Distribution) -> str | None:
    """Return the licence as an SPDX expression, or None if the package has none."""
    for text in one.find_values("License-Expression"):
        try:
            return str(canonicalize_license_expression(text))
        except InvalidLicenseExpression:
            continue
    return None


def _list_classifiers(one: Distribution) -> tuple[str, ...]:
    """Return the licences of the classifiers ("License :: OSI Approved :: MIT License")."""
    rows = [row.split(" :: ") for row in one.find_values("Classifier")]
    return tuple(dict.fromkeys(row[-1] for row in rows if row[0] == "License" and len(row) > 1))
