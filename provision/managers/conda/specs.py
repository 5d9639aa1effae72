"""What the conda solver is asked for: specs, constraints and virtual packages. Pure.

The target decides the virtual packages, so that a login node or an image build without a GPU gets the
environment of the machine it is for. CUDA never goes above what the driver speaks: conda's own rule
(`__cuda >=12` of cuda-version 12.9) lets a driver of 12.2 get 12.9, whose PTX it cannot compile.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from ...errors import UsageError
from ...model import CondaBuild, FrameworkRequest, Request, Target, TargetGpu, VersionBound

# Every package whose version is the CUDA release of an environment, through conda's history.
CUDA_NAMES = ("cuda-version", "cudatoolkit", "pytorch-cuda")
CUDNN_NAMES = ("cudnn", "libcudnn")
_OVERRIDES = {"__cuda": "CUDA", "__cuda_arch": "CUDA_ARCH", "__glibc": "GLIBC", "__linux": "LINUX",
              "__archspec": "ARCHSPEC"}  # fmt: skip
# The kernel of RHEL 8 and its kin; conda-lock assumes 5.10 for linux-64 in the same place.
_ANY_KERNEL = "4.18"
_VERSION = r"(\d+(?:\.\d+)*)"


@dataclass(frozen=True, kw_only=True, slots=True)
class Bounds:
    """What the target's driver and GPUs allow: `cuda` a version that is spoken, `oldest` and `newest`
    the CUDA releases that know every GPU, `cudnn` conda version bounds ("<=9.10.2.21")."""

    cuda: str | None = None
    oldest: str | None = None
    newest: str | None = None
    cudnn: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """Everything that the solve depends on. `channels` are names or addresses, best first; `bounds`
    and `virtual` come from the target, `limits` from the project's files (they hold where a package of that
    name comes along). `prefer` are addresses of packages that stay where they can."""

    request: Request
    target: Target
    rows: tuple[CondaBuild, ...]
    channels: tuple[str, ...]
    bounds: Bounds
    virtual: tuple[dict[str, str], ...]
    limits: tuple[VersionBound, ...] = ()
    prefer: tuple[str, ...] = ()
    offline: bool = False
    cache_dir: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Way:
    """One way to ask for a framework: a package of a channel, and the specs that name its build."""

    channel: str
    package: str
    specs: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Wish:
    """One question to the solver. Of each framework the first way counts whose package a channel has; those
    of channels that are not asked only where there is no other. `packages` count where a channel has them."""

    label: str
    python: str
    frameworks: tuple[tuple[str, tuple[Way, ...]], ...]
    packages: tuple[str, ...]
    constraints: tuple[str, ...]
    virtual: tuple[dict[str, str], ...]

    def plain(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


# --- virtual packages --------------------------------------------------------------------------


def virtual_packages(
    target: Target, *, cuda: str | None, kernel: str | None, archspec: str | None
) -> tuple[dict[str, str], ...]:
    """The virtual packages of a target. `cuda` is what its driver speaks (None without a GPU)."""
    kind, _, machine = target.platform.partition("-")
    found = [_virtual("__archspec", "1", archspec or machine)]
    if kind == "windows":
        found.append(_virtual("__win", "0"))
    else:
        found += [_virtual("__unix", "0"), _virtual("__linux", kernel or _ANY_KERNEL)]
        found += [_virtual("__glibc", target.glibc)] if target.glibc else []
    if cuda:
        found.append(_virtual("__cuda", cuda))
        least = min((g.capability for g in target.gpus), key=_numbers, default=None)
        found += [_virtual("__cuda_arch", least)] if least else []
    return tuple(found)


def _virtual(name: str, version: str, build: str = "0") -> dict[str, str]:
    return {"name": name, "version": version, "build": build}


def overridden(
    virtual: Sequence[dict[str, str]], environ: Mapping[str, str]
) -> tuple[tuple[dict[str, str], ...], tuple[str, ...]]:
    """The virtual packages under CONDA_OVERRIDE_* (an empty value takes one away), and what was
    overridden, in words. Raises UsageError for a value that is none."""
    found = {v["name"]: v for v in virtual}
    said = []
    for name, suffix in _OVERRIDES.items():
        value = _told(environ, name)
        if value is None:
            continue
        before = found.pop(name, None)
        if value:
            made = _virtual(name, "1", value) if name == "__archspec" else _virtual(name, value)
            found[name] = made
        now, was = value or "absent", _shown(before) if before else "absent"
        words = f"{name} is {now}, as CONDA_OVERRIDE_{suffix} says"
        said.append(words if now == was else f"{words} (it was {was})")
    return tuple(found.values()), tuple(said)


def _told(environ: Mapping[str, str], name: str) -> str | None:
    """The value of an override: "" takes the virtual package away, None leaves it."""
    variable = f"CONDA_OVERRIDE_{_OVERRIDES[name]}"
    value = environ.get(variable)
    if not value:
        return value
    # Of the kernel's release only the number counts, as conda has it; a CPU has a name.
    found = re.fullmatch(
        {"__archspec": r"([\w.+]+)", "__linux": r"(\d+(?:\.\d+)*).*"}.get(name, _VERSION), value
    )
    if found is None:
        what = "the name of a CPU" if name == "__archspec" else "a version"
        raise UsageError(
            f"{variable} is `{value}`, which is not {what}", hint=f"unset {variable}, or mend it"
        )
    return found[1]


def overridden_target(target: Target, environ: Mapping[str, str]) -> Target:
    """The target under CONDA_OVERRIDE_*, so that it binds the wheels on top as it binds the solver. Of
    what is taken away the target keeps what is known: the solver alone is to do without it."""
    cuda, glibc, arch = (_told(environ, n) for n in ("__cuda", "__glibc", "__cuda_arch"))
    if cuda:
        target = dataclasses.replace(target, driver=None, driver_cuda=cuda, forward_compat=None)
    if glibc:
        target = dataclasses.replace(target, glibc=glibc)
    if arch:
        target = dataclasses.replace(target, gpus=(TargetGpu(capability=arch),))
    return target


def _shown(virtual: Mapping[str, str]) -> str:
    return virtual["build"] if virtual["name"] == "__archspec" else virtual["version"]


def in_words(virtual: Sequence[Mapping[str, str]]) -> str:
    """For people: __cuda 12.4, __glibc 2.35 and so on; that there is no __cuda is said too."""
    told = [f"{v['name']} {_shown(v)}" for v in virtual if v["name"] != "__unix"]
    if not any(v["name"] == "__cuda" for v in virtual):
        told.append("no __cuda")
    return ", ".join(told)


# --- specs -------------------------------------------------------------------------------------


def rows_of(framework: str, device: str, rows: Sequence[CondaBuild]) -> list[CondaBuild]:
    """How a framework is called anywhere, without rows that only describe a version."""
    return [r for r in rows if r.framework == framework and r.device == device and r.version is None]


def rows_for(
    framework: str, device: str, channels: Sequence[str], rows: Sequence[CondaBuild]
) -> list[CondaBuild]:
    """How a framework is called in these channels. A channel that no row names (a mirror under another name) is taken to follow conda-forge's names."""
    mine = rows_of(framework, device, rows)
    names = {c.rstrip("/").rsplit("/", 1)[-1] for c in channels}
    return [r for r in mine if r.channel in names] or mine


def conda_version(specifier: str) -> str:
    """PEP 440 bounds as a conda version spec ("" becomes "*"). Conda takes `==2.7.*` for `==2.7`, and has
    no labels: that of a wheel's build ("+cu128") is ignored: the plan chooses it."""
    found = []
    for part in (p.strip() for p in specifier.split(",")):
        clause = part.partition("+")[0].replace("===", "==").replace(" ", "")
        found += [clause[2:] if re.fullmatch(r"==[\w.]+\.\*", clause) else clause] if clause else []
    return ",".join(dict.fromkeys(found)) or "*"


def framework_specs(
    wanted: FrameworkRequest, row: CondaBuild, bounds: Sequence[VersionBound] = ()
) -> list[str]:
    """A framework's specs, in the version that is named and within the bounds of the project's files."""
    mine = [b.specifier for b in bounds if canonicalize_name(b.name) == wanted.name]
    version = conda_version(",".join([wanted.specifier, *mine]))
    return [f"{row.package} {version} {row.build}", *(f"{name} {version}" for name in row.along)]


def package_spec(text: str) -> str:
    """A PEP 508 requirement as a conda spec; extras are not conda's."""
    need = Requirement(text)
    return f"{canonicalize_name(need.name)} {conda_version(str(need.specifier))}"


def constraints(request: Request, bounds: Bounds, limits: Sequence[VersionBound] = ()) -> tuple[str, ...]:
    """What must hold of packages that the solver takes along by itself."""
    found = [f"{b.name} {conda_version(b.specifier)}" for b in limits]
    if request.requires_python:
        found.append(f"python {conda_version(request.requires_python)}")
    if request.device == "cuda":
        for name in CUDA_NAMES:
            if request.cuda:
                found.append(f"{name} {request.cuda}.*")
            if bounds.cuda:
                found.append(f"{name} <{_after(bounds.cuda)}")
            if bounds.oldest:
                found.append(f"{name} >={bounds.oldest}")
            if bounds.newest:
                found.append(f"{name} <{_after(bounds.newest)}")
        found += [f"{name} {b}" for name in CUDNN_NAMES for b in bounds.cudnn]
    return tuple(dict.fromkeys(found))


def _after(cuda: str) -> str:
    """The first version that is above every update of a CUDA release ("12.2" -> "12.3.0a0")."""
    major, minor = (*_numbers(cuda), 0)[:2]
    return f"{major}.{minor + 1}.0a0"


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(n) for n in re.findall(r"\d+", text))


def wish(
    label: str,
    request: Request,
    frameworks: Sequence[tuple[FrameworkRequest, Sequence[CondaBuild]]],
    bounds: Bounds,
    virtual: Sequence[dict[str, str]],
    packages: Sequence[str],
    limits: Sequence[VersionBound] = (),
) -> Wish:
    """The question for these frameworks, each with its rows; `packages` are conda specs to be taken along."""
    return Wish(
        label=label,
        python=f"python {request.python}.*" if request.python else "python",
        frameworks=tuple(
            (one.name, tuple(Way(channel=r.channel, package=r.package,
                                 specs=tuple(framework_specs(one, r, request.bounds))) for r in rows))
            for one, rows in frameworks
        ),
        packages=tuple(dict.fromkeys(packages)),
        constraints=constraints(request, bounds, limits),
        virtual=tuple(virtual),
    )  # fmt: skip
