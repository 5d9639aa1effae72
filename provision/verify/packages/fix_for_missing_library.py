"""Writes the fix for a missing library: a system package, a wheel, or another release."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...model import Environment, Replacement, Satellite, SystemLibrary, ToolkitRelease
from ...system import untrusted
from ..drift.install_commands import make_pip_command
from ..explain_unopened_nvidia_libraries import name_nvidia_wheel
from .compiled_files import Package
from .loader_search import Problem

_DEB, _RPM = ("debian", "ubuntu"), ("fedora", "rhel", "centos", "suse")
_T64 = {"debian": 13.0, "ubuntu": 24.04}
"""The first releases with packages named after a 64-bit time_t."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RemedyRows:
    """The rows of profiles/system_libraries.yaml, satellites.yaml and toolkits.yaml that fixes use."""

    system: Sequence[SystemLibrary] = ()
    replacements: Sequence[Replacement] = ()
    satellites: Sequence[Satellite] = ()
    toolkits: Sequence[ToolkitRelease] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class LinuxDistribution:
    """A Linux distribution. `family` is "deb", "rpm", or None if /etc/os-release does not show it.

    `t64` is true if its packages are named after a 64-bit time_t. `needs_sudo` is true if this user is not root, so a
    command that installs a package requires `sudo`.
    """

    family: str | None
    t64: bool = False
    needs_sudo: bool = False


def read_distribution(root: Path = Path("/")) -> LinuxDistribution:
    """Return the distribution of this machine."""
    needs_sudo = hasattr(os, "geteuid") and os.geteuid() != 0
    try:
        text = untrusted.read_text(root / "etc" / "os-release")
    except OSError:
        return LinuxDistribution(family=None, needs_sudo=needs_sudo)
    words = dict(re.findall(r'^([A-Z_]+)="?([^"\n]*)"?$', text, re.MULTILINE))
    ids = [words.get("ID", ""), *words.get("ID_LIKE", "").split()]
    version = re.match(r"\d+(\.\d+)?", words.get("VERSION_ID", ""))
    if any(i in _DEB for i in ids):
        newest = _T64.get(ids[0])
        t64 = bool(newest and version and float(version[0]) >= newest)
        return LinuxDistribution(family="deb", t64=t64, needs_sudo=needs_sudo)
    return LinuxDistribution(family="rpm" if any(i in _RPM for i in ids) else None, needs_sudo=needs_sudo)


def describe_missing(
    problems: Mapping[Package, Sequence[Problem]],
    rows: RemedyRows,
    env: Environment,
    sites: Sequence[str],
    here: LinuxDistribution,
) -> str:
    """Return how to install libraries of the system."""
    names = list(dict.fromkeys(p.library for found in problems.values() for p in found))
    known = {row.soname: row for row in rows.system}
    steps = _make_commands([known[n] for n in names if n in known], here)
    unknown = [n for n in names if n not in known]
    if wheels := list(dict.fromkeys(w for n in unknown if (w := name_nvidia_wheel(n)))):
        steps.append(make_pip_command(env, sites, wheels))
    if rest := [n for n in unknown if not name_nvidia_wheel(n)]:
        steps.append(_make_search_step(rest, here))
    missing = {package.name: {p.library for p in found} for package, found in problems.items()}
    return f"{'; '.join(steps)}.{_suggest_replacements(missing, rows.replacements)}"


def describe_system(missing: Mapping[str, Collection[str]], rows: RemedyRows, here: LinuxDistribution) -> str:
    """Return how to install libraries that `rows` contain. `missing` is package -> libraries."""
    known = {row.soname: row for row in rows.system}
    names = dict.fromkeys(n for found in missing.values() for n in found)
    steps = _make_commands([known[n] for n in names], here)
    return f"{'; '.join(steps)}.{_suggest_replacements(missing, rows.replacements)}"


def _suggest_replacements(missing: Mapping[str, Collection[str]], replacements: Sequence[Replacement]) -> str:
    """Return a sentence with packages that do not need the libraries."""
    replaced = [
        f"{row.instead} in place of {name}"
        for name, libraries in missing.items()
        for row in replacements
        if row.package == name and set(libraries) <= set(row.without)
    ]
    return f" Or install {' and '.join(replaced)}." if replaced else ""


def _make_commands(rows: Sequence[SystemLibrary], here: LinuxDistribution) -> list[str]:
    deb = _join_names((row.deb_t64 if here.t64 else None) or row.deb for row in rows)
    rpm = _join_names(row.rpm or _format_capability(row.soname) for row in rows)
    steps, sudo = [], "sudo " if here.needs_sudo else ""
    if deb and here.family != "rpm":
        steps.append(f"{'' if here.family else 'Debian, Ubuntu: '}{sudo}apt-get install {deb}")
    if rpm and here.family != "deb":
        steps.append(f"{'' if here.family else 'Fedora, RHEL: '}{sudo}dnf install {rpm}")
    return steps


def _format_capability(soname: str) -> str:
    """Return the RPM capability of a library (rpm's elfdeps), which dnf accepts as a package name."""
    return shlex.quote(f"{soname}()(64bit)")


def _join_names(names: Iterable[str | None]) -> str:
    return " ".join(dict.fromkeys(name for names_ in names if names_ for name in names_.split()))


def _make_search_step(names: Sequence[str], here: LinuxDistribution) -> str:
    if here.family == "rpm":
        return f"{'sudo ' if here.needs_sudo else ''}dnf install {' '.join(map(_format_capability, names))}"
    shown = f" (`apt-file search {shlex.quote(names[0])}` names it)" if here.family else ""
    return f"Install the system package that contains {', '.join(names)}{shown}"


def describe_other_build(
    packages: Sequence[Package], frameworks: Sequence[str], wheels: Sequence[str]
) -> str:
    """Return how to install a build for the installed framework and CUDA. `wheels` contain the missing
    libraries."""
    named = " ".join(p.name for p in packages)
    beside = " and ".join(frameworks) or "the CUDA"
    alone = list(dict.fromkeys(wheels))
    brings = (
        f" ({', '.join(alone)} install{'s' if len(alone) == 1 else ''} only the libraries)" if alone else ""
    )
    return f"Install the release of {named} that was built for the installed {beside}{brings}."


def describe_unsearched(folders: Sequence[str]) -> str:
    """Return how to make the loader search folders of the environment."""
    value = shlex.quote(":".join(dict.fromkeys(folders)))
    export = f'export LD_LIBRARY_PATH={value}"${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}"'
    return f"First run: {export}"


def describe_versions(packages: Sequence[Package], versions: Sequence[str]) -> str:
    """Return the fix for system libraries that are older than a package needs."""
    named = " ".join(str(p) for p in packages)
    return (
        f"Install a release of {named} that was built for an older system (without {', '.join(versions[:4])}), "
        "or use a newer distribution."
    )


def describe_damage(env: Environment, packages: Sequence[Package], sites: Sequence[str]) -> str:
    """Return how to restore the files of packages."""
    if env.made_by_gpuenv:
        return f"gpuenv repair {shlex.quote(env.path)}"
    return make_pip_command(env, sites, [f"{p.name}=={p.version}" for p in packages], again=True)
