"""Writes the fix for what an environment lacks: the command, a system package, a wheel, or another release.

profiles/system_libraries.yaml, satellites.yaml and toolkits.yaml have the facts.
"""

from __future__ import annotations

import os
import platform
import re
import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import field
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_version
from packaging.version import Version

from ..environment.distributions import list_names
from ..environment.loader import FRAMEWORK_KINDS, Package, Problem
from ..model import (
    FRAMEWORKS,
    PROJECT_FRAMEWORKS,
    Environment,
    Profiles,
    Satellite,
    SystemLibrary,
    ToolkitRelease,
)
from ..model.values import Value
from ..profiles.wording import find_fix
from ..system import untrusted
from ..system.elf import loader_cache
from ..system.versions import major, minor, public
from .libraries import (
    InstalledLibraries,
    LibraryPackage,
    PythonPaths,
    name_nvidia_wheel,
    read_requirements,
)

Missing = Mapping[str, Collection[str]]
"""By package the libraries that are missing."""


# --- commands that install packages --------------------------------------------------------------


def list_needed(framework: str, wheels: Sequence[str], paths: PythonPaths) -> list[str]:
    """Return the framework's requirements of some wheels, in pip's form."""
    required = read_requirements(paths.sites, framework)
    return [r for w in wheels for r in required if re.match(rf"nvidia-{w}(-cu\d+)?([^\w-]|$)", r)]


def make_install_command(
    framework: str, wheels: Sequence[str], env: Environment, installed: InstalledLibraries
) -> str:
    """Return the command that installs some NVIDIA wheels ("cudnn").

    It installs the requirement itself, or TensorFlow's extra if more packages are missing.
    """
    if env.made_by_gpuenv:
        return make_repair_command(env)
    sites, packages = installed.paths.sites, installed.packages
    needed = list_needed(framework, wheels, installed.paths)
    if not needed:  # a release that does not state its wheels
        named = framework or "|".join(FRAMEWORKS)
        return f"gpuenv create NEW --framework {named}, a new environment with matching libraries"
    version = next((p.version for p in packages if p.name == framework), None)
    required = {re.split(r"[^\w-]", r)[0] for r in read_requirements(sites, framework)}
    if framework == "tensorflow" and version and len(required - {p.name for p in packages}) > 1:
        needed = [f"tensorflow[and-cuda]=={version}"]
    return make_pip_command(env, sites, needed)


def make_pip_command(
    env: Environment, sites: Sequence[str], what: Sequence[str], *, again: bool = False
) -> str:
    """Return the command that installs packages into an environment, with pip if it is installed, else with uv.

    `again` installs the packages again to restore their files.
    """
    python, names = shlex.quote(env.python), " ".join(map(shlex.quote, what))
    if any((Path(s) / "pip").is_dir() for s in sites):
        options = " --force-reinstall --no-deps --no-cache-dir" if again else ""
        return f"{python} -m pip install{options} {names}"
    options = " --reinstall --no-deps --refresh" if again else ""
    return f"uv pip install --python {python}{options} {names}"


def export_folders(folders: Iterable[str]) -> str:
    """Return the command that makes the loader search folders of the environment."""
    value = shlex.quote(":".join(dict.fromkeys(folders)))
    return f'export LD_LIBRARY_PATH={value}"${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}"'


def make_repair_command(env: Environment) -> str:
    """Return the command that restores an environment of gpuenv from its lock."""
    return f"gpuenv repair {shlex.quote(env.path)}"


def make_reinstall_command(env: Environment, package: LibraryPackage) -> str:
    """Return the command that restores the files of a package."""
    if env.made_by_gpuenv:
        return make_repair_command(env)
    if env.manager == "conda" and not package.name.startswith("nvidia-"):
        prefix = shlex.quote(env.path)
        return f"conda install --prefix {prefix} --force-reinstall {package.name}={package.version}"
    match = re.match(r".*/(site|dist)-packages(?=/)", package.files[0].path) if package.files else None
    what = f"{package.name}=={package.version}"
    return make_pip_command(env, [match[0]] if match else [], [what], again=True)


# --- libraries of the system ---------------------------------------------------------------------

_CAUSE = "system_library_missing"
_DEB, _RPM = ("debian", "ubuntu"), ("fedora", "rhel", "centos", "suse")
_T64 = {"debian": 13.0, "ubuntu": 24.04}
"""The first releases with packages named after a 64-bit time_t."""


class LinuxDistribution(Value, kw_only=False):
    """A Linux distribution. `family` is "deb", "rpm", or None if /etc/os-release does not show it.

    `t64` is true if its packages are named after a 64-bit time_t. `needs_sudo` is true if this user is not root, so a
    command that installs a package requires `sudo`.
    """

    family: str | None
    t64: bool = False
    needs_sudo: bool = False

    @property
    def conditions(self) -> tuple[str, ...]:
        """The conditions of a fix's row that it fulfils."""
        names = {"deb": "debian", "rpm": "fedora"}
        return (f"distribution={names[self.family]}",) if self.family else ()


def read_distribution(root: Path = Path("/")) -> LinuxDistribution:
    """Return the distribution of this machine."""
    needs_sudo = os.geteuid() != 0
    try:
        text = untrusted.read_text(root / "etc" / "os-release")
    except OSError:
        return LinuxDistribution(None, needs_sudo=needs_sudo)
    words = dict(re.findall(r'^([A-Z_]+)="?([^"\n]*)"?$', text, re.MULTILINE))
    ids = [words.get("ID", ""), *words.get("ID_LIKE", "").split()]
    version = re.match(r"\d+(\.\d+)?", words.get("VERSION_ID", ""))
    family = next((f for f, known in (("deb", _DEB), ("rpm", _RPM)) if any(i in known for i in ids)), None)
    newest = _T64.get(ids[0])
    t64 = bool(newest and version and float(version[0]) >= newest)
    return LinuxDistribution(family, t64, needs_sudo)


def describe_missing(missing: Missing, rows: Profiles, system: LinuxDistribution) -> str:
    """Return how to install libraries of the system, and which packages do without them."""
    known = {row.soname: row for row in rows.system_libraries}
    wanted = dict.fromkeys(n for found in missing.values() for n in found)
    by_package = [known.get(n, SystemLibrary(n)) for n in wanted if n in known or system.family == "rpm"]
    texts: list[str] = []
    if by_package:
        deb = ((row.deb_t64 if system.t64 else None) or row.deb or "" for row in by_package)
        # dnf accepts the RPM capability of a library (rpm's elfdeps) as a package
        rpm = (row.rpm or shlex.quote(f"{row.soname}()(64bit)") for row in by_package)
        slots = {name: " ".join(dict.fromkeys(names)) for name, names in (("deb", deb), ("rpm", rpm))}
        texts.append(find_fix(_CAUSE, system.conditions, slots))
    if len(by_package) < len(wanted):  # a name that a shell reads otherwise is not for a command
        first, *others = [n for n in wanted if n not in known and shlex.quote(n) == n] or [""]
        named = {"missing": first, "others": ", ".join(others)}
        texts.append(find_fix(_CAUSE, system.conditions, {k: v for k, v in named.items() if v}))
    replaced = " and ".join(
        f"{row.instead} in place of {name}"
        for name, libraries in missing.items()
        for row in rows.replacements
        if row.package == name and set(libraries) <= set(row.without)
    )
    text = " ".join((*texts, *([f"Or install {replaced}."] if replaced else ())))
    return text if system.needs_sudo else text.replace("sudo ", "")


# --- packages that were built for another framework or CUDA ---------------------------------------


class Surroundings(Value):
    """The contents of an environment: its Python ("3.12"), the versions of its packages, and the names of its
    libraries.

    `system` are the libraries of the system's loader cache. `platform` and `glibc` are those of the machine.
    """

    python: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    libraries: frozenset[str] = frozenset()
    system: frozenset[str] = frozenset()
    platform: str = ""
    glibc: str | None = None


def read_surroundings(
    packages: Sequence[Package], python: str, prefix: str, root: Path = Path("/")
) -> Surroundings:
    """Read the contents of an environment. `python` is its version, `root` the system's root folder."""
    machine = platform.machine()
    names = {f.rpartition("/")[2] for p in packages for f in p.files}
    return Surroundings(
        python=minor(python),
        versions={p.name: p.version for p in packages},
        libraries=frozenset(names.union(list_names(f"{prefix}/lib"))),
        system=frozenset(name for name, _ in loader_cache(root, machine)),
        platform=f"linux-{machine}",
        glibc=(os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")[2] or None,
    )


def describe_other_build(
    problems_of: Mapping[Package, Sequence[Problem]],
    rows: Profiles,
    here: Surroundings,
    env: Environment,
    sites: Sequence[str],
) -> str:
    """Return the fix for packages that were built for something else, each by the first way that the rows
    contain: an extra, another release, the framework, or wheels with the missing libraries."""
    wanted: list[str] = []
    reasons: list[str] = []
    left: dict[Package, list[str]] = {}
    for package, problems in problems_of.items():
        libraries = list(dict.fromkeys(p.library for p in problems if p.kind not in FRAMEWORK_KINDS))
        requirements, reason = _choose_step(package, libraries, rows, here)
        if requirements:
            wanted += requirements
            reasons.append(reason)
        else:
            left[package] = libraries
    texts = []
    if wanted:
        texts.append(f"{make_pip_command(env, sites, list(dict.fromkeys(wanted)))} ({'; '.join(reasons)}).")
    if left:
        texts.append(_describe_unknown(left, rows, here))
    return " ".join(texts)


def _choose_step(
    package: Package, libraries: Sequence[str], rows: Profiles, here: Surroundings
) -> tuple[Sequence[str], str]:
    """Return requirements to install, and why; none if no row helps."""
    measured = _select_rows(package, rows.satellites, here.platform)
    built_for = _describe_target(measured[0]) if measured else ""
    brought = ", ".join(libraries)
    extras = next((r.extras for r in measured if r.extras and set(libraries) <= set(r.needs)), ())
    if libraries and extras:
        extra = f"[{','.join(extras)}]"
        return [f"{package.name}{extra}=={package.version}"], f"{package}{extra} brings {brought}"
    if other := find_fitting_release(package, rows.satellites, here):
        reason = f"{package} was built for {built_for or 'other libraries'}, {other.package} {other.version} for {_describe_target(other)}"
        return [f"{other.package}=={other.version}"], reason
    if framework := _find_missing_framework(libraries, measured, package, here):
        return [str(framework)], f"{package} was built for {framework}"
    stated = next((major(r.cuda) for r in measured if r.cuda), None)
    needs, present = find_cuda_major(libraries) or stated, find_cuda_major(here.libraries)
    if present and needs and present != needs:
        return [], ""
    wheels = [w for n in libraries if (w := find_wheel(n, rows.toolkits, needs or present))]
    if len(wheels) < len(libraries):
        return [], ""
    verb = "they include" if len(set(wheels)) > 1 else "it includes"
    return wheels, f"{verb} {brought} for {package}"


def _describe_unknown(left: Mapping[Package, Sequence[str]], rows: Profiles, here: Surroundings) -> str:
    """Return the fix for packages without a known release that fits."""
    libraries = [n for names in left.values() for n in names]
    cuda = find_cuda_major(libraries)
    wheels = dict.fromkeys(w for n in libraries if (w := find_wheel(n, rows.toolkits, cuda)))
    measured = {package: _select_rows(package, rows.satellites, here.platform) for package in left}
    required = {r for package in left for r in package.requires}
    required |= {f.name for found in measured.values() for row in found if (f := _parse_framework(row))}
    frameworks = " and ".join(f for f in PROJECT_FRAMEWORKS if f in required) or "the CUDA"
    brings = f" ({', '.join(wheels)} install{'s' if len(wheels) == 1 else ''} only the libraries)"
    text = f"Install the release of {' '.join(p.name for p in left)} that was built for the installed {frameworks}"
    targets = {p: _describe_target(found[0]) for p, found in measured.items() if found}
    built = "; ".join(f"{p} was built for {target}" for p, target in targets.items() if target)
    return f"{text}{brings if wheels else ''}.{f' {built}.' if built else ''}"


def _describe_target(row: Satellite) -> str:
    """Return the framework and the CUDA that a release was built for."""
    return " and ".join(x for x in (row.built_for, f"CUDA {row.cuda}" if row.cuda else None) if x)


_OWNERS = {"libtorch": "torch", "libc10": "torch", "libshm": "torch", "libtensorflow": "tensorflow"}


def _find_missing_framework(
    libraries: Sequence[str], measured: Sequence[Satellite], package: Package, here: Surroundings
) -> Requirement | None:
    """Return the framework that is not installed and whose libraries are missing, or None."""
    owners = {o for n in libraries for prefix, o in _OWNERS.items() if n.startswith(prefix)}
    if len(owners) != 1 or not owners.isdisjoint(here.versions):
        return None
    owner = owners.pop()
    stated = next((f for r in measured if (f := _parse_framework(r)) and f.name == owner), None)
    return stated or (Requirement(owner) if owner in package.requires else None)


# --- measured releases that fit ------------------------------------------------------------------

DRIVER = frozenset({"libcuda.so.1", "libnvidia-ml.so.1"})
"""The libraries of NVIDIA's driver."""


def _select_rows(package: Package, rows: Iterable[Satellite], machine: str) -> list[Satellite]:
    """Return the rows of the installed release, on a platform."""
    of_package = (row for row in rows if row.package == package.name and row.platform == machine)
    return [row for row in of_package if canonicalize_version(row.version) == _canonical(package)]


def _canonical(package: Package) -> str:
    """Return a package's version without its local label."""
    return canonicalize_version(public(package.version))


def find_fitting_release(package: Package, rows: Iterable[Satellite], here: Surroundings) -> Satellite | None:
    """Return the newest measured release that fits the environment's framework, CUDA, Python and glibc.

    Return None if none fits, or only the installed one.
    """
    fitting = [r for r in rows if r.package == package.name and r.form == "wheel" and _is_fitting(r, here)]
    newest = max(fitting, key=lambda r: Version(r.version), default=None)
    return None if newest is None or canonicalize_version(newest.version) == _canonical(package) else newest


def find_other_framework(
    package: Package, rows: Iterable[Satellite], versions: Mapping[str, str], machine: str
) -> tuple[str, str] | None:
    """Return the framework that a measured wheel was built for, and the installed one of another release.

    Return None if they agree, or one of them is unknown. `machine` is that of the platform.
    """
    measured = (r for r in _select_rows(package, rows, f"linux-{machine}") if r.form == "wheel" and r.abi)
    wanted = [w for row in measured if (w := _parse_framework(row))]
    if not wanted or wanted[0].name not in versions:
        return None
    if any(_is_allowed(w, versions.get(w.name)) for w in wanted):
        return None
    name = wanted[0].name
    return str(wanted[0]), f"{name} {versions[name]}"


def _parse_framework(row: Satellite) -> Requirement | None:
    """Return the framework that a release was built for."""
    return Requirement(row.built_for) if row.built_for else None


def _is_fitting(row: Satellite, here: Surroundings) -> bool:
    python, wanted = Version(here.python), _parse_framework(row)
    return (
        row.platform == here.platform
        # "3.12", or "3.10+" and later
        and any(
            python >= Version(text[:-1]) if text.endswith("+") else text == here.python
            for text in row.pythons
        )
        and not (row.glibc and here.glibc and Version(row.glibc) > Version(here.glibc))
        and set(row.needs) - DRIVER <= here.libraries | here.system
        and (_is_allowed(wanted, here.versions.get(wanted.name)) if wanted else not row.built_for)
    )


def _is_allowed(wanted: Requirement, version: str | None) -> bool:
    """Return whether a requirement allows an installed version without its local label."""
    return version is not None and wanted.specifier.contains(public(version), prereleases=True)


# --- wheels with libraries of CUDA ---------------------------------------------------------------

_LIBRARY = re.compile(r"lib([A-Za-z0-9_-]+?)\.so(?:\.(\d+))?")
_CUDA = re.compile(r"lib(?:cudart|cublas|cublasLt|nvrtc|nvJitLink|cupti)\.so\.(\d+)")


def find_wheel(library: str, toolkits: Sequence[ToolkitRelease], cuda: str | None) -> str | None:
    """Return the requirement of the wheel with a library, by its soname, or None if NVIDIA has no such wheel.

    For libcudart.so.13 it is "nvidia-cuda-runtime==13.*". `cuda` is the CUDA major version that decides if
    wheels of several have the soname.
    """
    match = _LIBRARY.match(library)
    if not match:
        return None
    stem, wanted = match[1].lower(), match[2]
    same: dict[str, str] = {}
    others: dict[str, str] = {}
    newest = None
    for release in toolkits:
        toolkit = major(release.version)
        newest = max(newest or toolkit, toolkit)
        for part in release.parts:
            name, number = _find_part(part, stem)
            if name and (wanted is None or number == wanted):
                same.setdefault(toolkit, f"{name}=={number}.*")
            elif name:
                others.setdefault(toolkit, name)
    # the soname of libcufile.so.0 does not count with its wheel
    if wheels := same or others:
        return wheels.get(cuda or "") or wheels[max(wheels, key=int)]
    # cuDNN, NCCL and others have the CUDA major version in their names
    wheel, cuda = name_nvidia_wheel(library), cuda or newest
    if wheel is None or re.search(r"-cu\d+$", wheel) or cuda is None:
        return wheel
    return f"{wheel}-cu{cuda}"


def _find_part(part: str, stem: str) -> tuple[str | None, str | None]:
    """Return the wheel of a part of the toolkit, and its major version, if the part has the library."""
    extra, *requirements = part.split(" ")
    if not stem.startswith(extra) or stem.startswith("cusparselt"):
        return None, None
    names = [re.split(r"[<>=!~]", r, maxsplit=1)[0] for r in requirements]
    index = next((i for i, name in enumerate(names) if extra in name), 0)
    number = re.search(r"(?:==|>=)(\d+)", requirements[index])
    return names[index], number[1] if number else None


def find_cuda_major(libraries: Iterable[str]) -> str | None:
    """Return the CUDA major version in the sonames of libraries, or None if they show none or several."""
    majors = {m[1] for n in libraries if (m := _CUDA.match(n))}
    return majors.pop() if len(majors) == 1 else None
