"""Which NVIDIA libraries a framework could not open: where they lie, or what would bring them.

TensorFlow opens CUDA's libraries by name and then only says "Cannot dlopen some GPU libraries"; the
names stand in its verbose log, which the probe asks for. A library that lies in the environment is out
of reach of its loader: pip's TensorFlow finds the wheels' folders by its RUNPATH, and some releases
leave folders out.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..model import FRAMEWORKS, Environment, Evidence, Finding
from .libraries import Distribution, requirements
from .locate import Surroundings

_UNOPENED = re.compile(r"\b(lib[A-Za-z0-9_]+\.so[\d.]*): cannot open shared object file")
_OPENED = re.compile(r"Successfully opened dynamic library (lib[A-Za-z0-9_]+\.so[\d.]*)")
# The family of a library's name, and the wheel that brings it (nvidia-cublas-cu12, nvidia-cublas).
_WHEELS = {
    "cudart": "cuda-runtime",
    "cublas": "cublas",
    "cudnn": "cudnn",
    "cufft": "cufft",
    "curand": "curand",
    "cusolver": "cusolver",
    "cusparseLt": "cusparselt",
    "cusparse": "cusparse",
    "cupti": "cuda-cupti",
    "nvrtc": "cuda-nvrtc",
    "nvJitLink": "nvjitlink",
    "nccl": "nccl",
    "nvshmem": "nvshmem",
    "cufile": "cufile",
    "nvjpeg": "nvjpeg",
    "npp": "npp",
}
_EXTRAS = {"tensorflow": "and-cuda"}


def finding(
    framework: str, words: str, env: Environment, found: Surroundings, packages: Sequence[Distribution]
) -> Finding | None:
    """The cause in what the loader said to a framework; None where it missed no library of NVIDIA's."""
    names = [n for n in dict.fromkeys(_UNOPENED.findall(words)) if _wheel(n)]
    if not names:
        return None
    here = {name: folder for name in names if (folder := _folder(name, found))}
    lacking = [n for n in names if n not in here]
    if lacking:
        return _not_installed(framework, lacking, here, env, found, packages)
    opened = next((f for n in _OPENED.findall(words) if (f := _folder(n, found))), None)
    return _not_reached(framework, here, opened)


def _wheel(name: str) -> str | None:
    stem = name[3:].partition(".so")[0]
    return next((wheel for family, wheel in _WHEELS.items() if stem.startswith(family)), None)


def nvidia_wheel(name: str) -> str | None:
    """The wheel of NVIDIA's that brings a library by its soname: "nvidia-cuda-runtime-cu12"."""
    wheel, major = _wheel(name), re.search(r"\.so\.(\d+)", name)
    if wheel is None or not name.startswith("lib"):
        return None
    if wheel != "cuda-runtime" or major is None:
        return f"nvidia-{wheel}"
    return f"nvidia-{wheel}-cu{major[1]}" if int(major[1]) < 13 else f"nvidia-{wheel}"


def _folders(found: Surroundings) -> list[Path]:
    """Where wheels and conda packages put NVIDIA's libraries."""
    sites = [Path(s) for s in found.sites]
    wheels = [p for s in sites for p in sorted((s / "nvidia").glob("*/lib")) if p.is_dir()]
    return [*wheels, *(s / "torch" / "lib" for s in sites), Path(found.prefix) / "lib"]


def _folder(name: str, found: Surroundings) -> Path | None:
    return next((f for f in _folders(found) if (f / name).exists()), None)


def _named(framework: str) -> str:
    return {"tensorflow": "TensorFlow", "jax": "JAX"}.get(framework, framework)


def _not_reached(framework: str, here: Mapping[str, Path], opened: Path | None) -> Finding:
    """All lie in the environment. The remedy is a link beside a library that was found, which serves
    every program; where nothing may be written, the loader's variable."""
    folders = list(dict.fromkeys(here.values()))
    if opened and os.access(opened, os.W_OK):
        relative = [os.path.relpath(folder / name, opened) for name, folder in here.items()]
        link = f"ln -s {' '.join(map(shlex.quote, relative))} {shlex.quote(str(opened))}/"
        fix = f"Run programs by `gpuenv run`, or link what it misses beside what it finds: {link}"
    else:
        value = ":".join(map(str, folders))
        export = f'export LD_LIBRARY_PATH={shlex.quote(value)}"${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}"'
        fix = f"Run programs by `gpuenv run`, or after: {export}"
    names = ", ".join(here)
    return Finding(
        cause="nvidia_libs_not_on_loader_path",
        title=f"{_named(framework)} does not find {names}, though installed in {', '.join(map(str, folders))}",
        evidence=_unreached(here),
        fix=fix,
        confidence="certain",
    )


def _unreached(here: Mapping[str, Path]) -> tuple[Evidence, ...]:
    return tuple(
        Evidence(text=f"{name} is there, but the loader does not look there", source=str(folder / name))
        for name, folder in here.items()
    )


def _not_installed(
    framework: str,
    lacking: Sequence[str],
    here: Mapping[str, Path],
    env: Environment,
    found: Surroundings,
    packages: Sequence[Distribution],
) -> Finding:
    """At least one lies nowhere in the environment."""
    wheels = tuple(dict.fromkeys(w for n in lacking if (w := _wheel(n))))
    brings = ", ".join(re.split(r"[^\w-]", r)[0] for r in _needed(framework, wheels, found))
    others = {o for n in lacking for f in _folders(found) for o in f.glob(n.partition(".so")[0] + ".so.*")}
    evidence = [Evidence(text="the loader did not find it", source=name) for name in lacking]
    evidence += [Evidence(text="of another version is there", source=str(p)) for p in sorted(others)]
    names = ", ".join(lacking)
    return Finding(
        cause="cudnn_not_found" if wheels == ("cudnn",) else "nvidia_libs_not_installed",
        title=f"{_named(framework)} does not find {names}: not installed in this environment"
        + (f" ({brings} brings {'it' if len(lacking) == 1 else 'them'})" if brings else ""),
        evidence=(*evidence, *_unreached(here)),
        fix=install(framework, wheels, env, found, packages),
        confidence="certain",
    )


def _needed(framework: str, wheels: Sequence[str], found: Surroundings) -> list[str]:
    """The framework's own requirements of some wheels, in the form pip takes."""
    required = requirements(found.sites, framework)
    return [r for w in wheels for r in required if re.match(rf"nvidia-{w}(-cu\d+)?([^\w-]|$)", r)]


def install(
    framework: str,
    wheels: Sequence[str],
    env: Environment,
    found: Surroundings,
    packages: Sequence[Distribution],
) -> str:
    """The command that brings some wheels of NVIDIA's ("cudnn"): the requirement itself, the framework's
    extra where more is missing."""
    if env.made_by_gpuenv:
        return f"gpuenv repair {shlex.quote(env.path)}"
    extra = _EXTRAS.get(framework)
    version = next((p.version for p in packages if p.name == framework), None)
    needed = _needed(framework, wheels, found)
    installed = {p.name for p in packages}
    missing = {re.split(r"[^\w-]", r)[0] for r in requirements(found.sites, framework)} - installed
    if extra and version and len(missing) > 1 and needed:
        what = [f"{framework}[{extra}]=={version}"]
    elif needed:
        what = needed
    else:  # a release that says nowhere which wheels it takes
        named = framework or "|".join(FRAMEWORKS)
        return f"gpuenv create NEW --framework {named}, a new environment with matching libraries"
    return pip_install(env, found.sites, what)


def pip_install(env: Environment, sites: Sequence[str], what: Sequence[str], *, again: bool = False) -> str:
    """The command that installs into an environment, by pip where it is there, else by uv; `again` puts
    the files of what is installed back."""
    python, names = shlex.quote(env.python), " ".join(map(shlex.quote, what))
    if any((Path(s) / "pip").is_dir() for s in sites):
        options = " --force-reinstall --no-deps --no-cache-dir" if again else ""
        return f"{python} -m pip install{options} {names}"
    options = " --reinstall --no-deps --refresh" if again else ""
    return f"uv pip install --python {python}{options} {names}"
