"""Builds specs, constraints and virtual packages for the conda solver, without I/O.

The virtual packages describe the target, so that a login node or an image build without a GPU gets the environment of
the target. CUDA is never newer than the driver supports. conda's own rule (`__cuda >=12` of cuda-version 12.9) is
weaker: with a driver for 12.2 it allows 12.9, whose PTX the driver cannot compile.
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

# All packages, past and present, whose version is the CUDA release of an environment
CUDA_NAMES = ("cuda-version", "cudatoolkit", "pytorch-cuda")
CUDNN_NAMES = ("cudnn", "libcudnn")
_OVERRIDES = {"__cuda": "CUDA", "__cuda_arch": "CUDA_ARCH", "__glibc": "GLIBC", "__linux": "LINUX",
              "__archspec": "ARCHSPEC"}  # fmt: skip
# The kernel of RHEL 8 and its derivatives. conda-lock assumes 5.10 for linux-64.
_ANY_KERNEL = "4.18"
_VERSION = r"(\d+(?:\.\d+)*)"


@dataclass(frozen=True, kw_only=True, slots=True)
class Bounds:
    """The limits of the target's driver and GPUs.

    `cuda` is the newest version that the driver supports. `oldest` and `newest` are the CUDA releases that support every
    GPU. `cudnn` are conda version bounds ("<=9.10.2.21").
    """

    cuda: str | None = None
    oldest: str | None = None
    newest: str | None = None
    cudnn: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class SolverQuestion:
    """The inputs of a solve.

    `channels` are names or addresses, best first. `bounds` and `virtual` come from the target, `limits` from the
    project's files: they apply if the package is a dependency. `prefer` are addresses of packages to keep if possible.
    """

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
    """One way to request a framework: a package of a channel, and the specs of its build."""

    channel: str
    package: str
    specs: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Wish:
    """One question to the solver.

    For each framework the first way with an available package applies. Ways of other channels apply only if there is
    no other. `packages` apply if a channel has them.
    """

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
    """Return the virtual packages of a target. `cuda` is what its driver supports, or None without a GPU."""
    kind, _, machine = target.platform.partition("-")
    packages = [_make_virtual("__archspec", "1", archspec or machine)]
    if kind == "windows":
        packages.append(_make_virtual("__win", "0"))
    else:
        packages += [_make_virtual("__unix", "0"), _make_virtual("__linux", kernel or _ANY_KERNEL)]
        packages += [_make_virtual("__glibc", target.glibc)] if target.glibc else []
    if cuda:
        packages.append(_make_virtual("__cuda", cuda))
        least = min((g.capability for g in target.gpus), key=_split_numbers, default=None)
        packages += [_make_virtual("__cuda_arch", least)] if least else []
    return tuple(packages)


def _make_virtual(name: str, version: str, build: str = "0") -> dict[str, str]:
    return {"name": name, "version": version, "build": build}


def overridden(
    virtual: Sequence[dict[str, str]], environ: Mapping[str, str]
) -> tuple[tuple[dict[str, str], ...], tuple[str, ...]]:
    """Apply CONDA_OVERRIDE_* to virtual packages, and return them with the overrides as text.

    An empty value removes a package. Raises UsageError for an invalid value.
    """
    packages = {v["name"]: v for v in virtual}
    said = []
    for name, suffix in _OVERRIDES.items():
        value = _read_override(environ, name)
        if value is None:
            continue
        before = packages.pop(name, None)
        if value:
            override = _make_virtual(name, "1", value) if name == "__archspec" else _make_virtual(name, value)
            packages[name] = override
        now, was = value or "absent", _format_virtual(before) if before else "absent"
        words = f"{name} is {now}, set by CONDA_OVERRIDE_{suffix}"
        said.append(words if now == was else f"{words} (it was {was})")
    return tuple(packages.values()), tuple(said)


def _read_override(environ: Mapping[str, str], name: str) -> str | None:
    """Return the value of an override: "" removes the virtual package, None keeps it."""
    variable = f"CONDA_OVERRIDE_{_OVERRIDES[name]}"
    value = environ.get(variable)
    if not value:
        return value
    # conda uses only the number of a kernel's release. A CPU has a name.
    match = re.fullmatch(
        {"__archspec": r"([\w.+]+)", "__linux": r"(\d+(?:\.\d+)*).*"}.get(name, _VERSION), value
    )
    if match is None:
        expected = "the name of a CPU" if name == "__archspec" else "a version"
        raise UsageError(
            f"{variable} is `{value}`, which is not {expected}", hint=f"unset {variable}, or correct it"
        )
    return match[1]


def overridden_target(target: Target, environ: Mapping[str, str]) -> Target:
    """Apply CONDA_OVERRIDE_* to the target, so that it limits the wheels like the solver.

    For a removed virtual package the target keeps its value, because only the solver must ignore it.
    """
    cuda, glibc, arch = (_read_override(environ, n) for n in ("__cuda", "__glibc", "__cuda_arch"))
    if cuda:
        target = dataclasses.replace(target, driver=None, driver_cuda=cuda, forward_compat=None)
    if glibc:
        target = dataclasses.replace(target, glibc=glibc)
    if arch:
        target = dataclasses.replace(target, gpus=(TargetGpu(capability=arch),))
    return target


def _format_virtual(virtual: Mapping[str, str]) -> str:
    return virtual["build"] if virtual["name"] == "__archspec" else virtual["version"]


def describe_virtual_packages(virtual: Sequence[Mapping[str, str]]) -> str:
    """Return virtual packages as text: __cuda 12.4, __glibc 2.35 and so on. A missing __cuda is stated."""
    words = [f"{v['name']} {_format_virtual(v)}" for v in virtual if v["name"] != "__unix"]
    if not any(v["name"] == "__cuda" for v in virtual):
        words.append("no __cuda")
    return ", ".join(words)


# --- specs -------------------------------------------------------------------------------------


def rows_of(framework: str, device: str, rows: Sequence[CondaBuild]) -> list[CondaBuild]:
    """Return the rows with the package names of a framework, without rows that describe a version."""
    return [r for r in rows if r.framework == framework and r.device == device and r.version is None]


def rows_for(
    framework: str, device: str, channels: Sequence[str], rows: Sequence[CondaBuild]
) -> list[CondaBuild]:
    """Return the rows of a framework in these channels.

    A channel without a row, such as a mirror, is assumed to use the names of conda-forge.
    """
    named = rows_of(framework, device, rows)
    names = {c.rstrip("/").rsplit("/", 1)[-1] for c in channels}
    return [r for r in named if r.channel in names] or named


def conda_version(specifier: str) -> str:
    """Return PEP 440 bounds as a conda version spec ("" becomes "*").

    conda reads `==2.7.*` as `==2.7`, and has no labels. The plan chooses the build of a label such as "+cu128".
    """
    clauses = []
    for part in (p.strip() for p in specifier.split(",")):
        clause = part.partition("+")[0].replace("===", "==").replace(" ", "")
        clauses += [clause[2:] if re.fullmatch(r"==[\w.]+\.\*", clause) else clause] if clause else []
    return ",".join(dict.fromkeys(clauses)) or "*"


def make_framework_specs(
    wanted: FrameworkRequest, row: CondaBuild, bounds: Sequence[VersionBound] = ()
) -> list[str]:
    """Return the specs of a framework with the requested version and the bounds of the project's files."""
    specifiers = [b.specifier for b in bounds if canonicalize_name(b.name) == wanted.name]
    version = conda_version(",".join([wanted.specifier, *specifiers]))
    return [f"{row.package} {version} {row.build}", *(f"{name} {version}" for name in row.along)]


def make_package_spec(text: str) -> str:
    """Return a PEP 508 requirement as a conda spec, without extras, which conda does not have."""
    need = Requirement(text)
    return f"{canonicalize_name(need.name)} {conda_version(str(need.specifier))}"


def constraints(request: Request, bounds: Bounds, limits: Sequence[VersionBound] = ()) -> tuple[str, ...]:
    """Return the constraints on packages that the solver adds as dependencies."""
    specs = [f"{b.name} {conda_version(b.specifier)}" for b in limits]
    if request.requires_python:
        specs.append(f"python {conda_version(request.requires_python)}")
    if request.device == "cuda":
        for name in CUDA_NAMES:
            if request.cuda:
                specs.append(f"{name} {request.cuda}.*")
            if bounds.cuda:
                specs.append(f"{name} <{_compute_next(bounds.cuda)}")
            if bounds.oldest:
                specs.append(f"{name} >={bounds.oldest}")
            if bounds.newest:
                specs.append(f"{name} <{_compute_next(bounds.newest)}")
        specs += [f"{name} {b}" for name in CUDNN_NAMES for b in bounds.cudnn]
    return tuple(dict.fromkeys(specs))


def _compute_next(cuda: str) -> str:
    """Return the first version above every update of a CUDA release ("12.2" -> "12.3.0a0")."""
    major, minor = (*_split_numbers(cuda), 0)[:2]
    return f"{major}.{minor + 1}.0a0"


def _split_numbers(text: str) -> tuple[int, ...]:
    return tuple(int(n) for n in re.findall(r"\d+", text))


def make_wish(
    label: str,
    question: SolverQuestion,
    frameworks: Sequence[tuple[FrameworkRequest, Sequence[CondaBuild]]],
    packages: Sequence[str],
) -> Wish:
    """Return a question to the solver for frameworks with their rows. `packages` are additional conda specs."""
    request = question.request
    return Wish(
        label=label,
        python=f"python {request.python}.*" if request.python else "python",
        frameworks=tuple(
            (one.name, tuple(Way(channel=r.channel, package=r.package,
                                 specs=tuple(make_framework_specs(one, r, request.bounds))) for r in rows))
            for one, rows in frameworks
        ),
        packages=tuple(dict.fromkeys(packages)),
        constraints=constraints(request, question.bounds, question.limits),
        virtual=tuple(question.virtual),
    )  # fmt: skip
