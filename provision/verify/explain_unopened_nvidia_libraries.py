"""Explains NVIDIA libraries that a framework could not open, and damaged ones.

TensorFlow opens CUDA's libraries by name, and then only says "Cannot dlopen some GPU libraries". The names are
in its verbose log, which the probe enables. A library can be installed and still not be found: pip's TensorFlow
finds the wheels' folders by its RUNPATH, and some releases omit folders.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ..environment.distributions import list_distributions
from ..model import Environment, Evidence, Finding
from ..profiles.findings import make_finding
from ..system.redaction import clean
from .drift.check_listed_files import DIFFERENCES, FileProblem, ListedFile, check_files
from .drift.install_commands import (
    list_needed,
    make_install_command,
    make_reinstall_command,
    make_repair_command,
)
from .python_paths import PythonPaths
from .read_libraries import InstalledLibraries, LibraryPackage

_UNOPENED = re.compile(r"\b(lib[A-Za-z0-9_]+\.so[\d.]*): cannot open shared object file")
_OPENED = re.compile(r"Successfully opened dynamic library (lib[A-Za-z0-9_]+\.so[\d.]*)")
# The family of a library's name, and the wheel that brings it (nvidia-cublas-cu12, nvidia-cublas).
_WHEELS = {
    "cudart": "cuda-runtime", "cublas": "cublas", "cudnn": "cudnn", "cufft": "cufft", "curand": "curand",
    "cusolver": "cusolver", "cusparseLt": "cusparselt", "cusparse": "cusparse", "cupti": "cuda-cupti",
    "nvrtc": "cuda-nvrtc", "nvJitLink": "nvjitlink", "nccl": "nccl", "nvshmem": "nvshmem",
    "cufile": "cufile", "nvjpeg": "nvjpeg", "npp": "npp",
}  # fmt: skip


def explain_missing(
    framework: str, words: str, env: Environment, installed: InstalledLibraries
) -> Finding | None:
    """Return the cause of a loader message that names an NVIDIA library, else None."""
    names = [n for n in dict.fromkeys(_UNOPENED.findall(words)) if _find_wheel(n)]
    if not names:
        return None
    here = {name: folder for name in names if (folder := _find_folder(name, installed.paths))}
    lacking = [n for n in names if n not in here]
    if lacking:
        return _explain_not_installed(framework, lacking, here, env, installed)
    opened = next((f for n in _OPENED.findall(words) if (f := _find_folder(n, installed.paths))), None)
    return _explain_not_reached(framework, here, opened)


def _find_wheel(name: str) -> str | None:
    stem = name[3:].partition(".so")[0]
    return next((wheel for family, wheel in _WHEELS.items() if stem.startswith(family)), None)


def name_nvidia_wheel(name: str) -> str | None:
    """Return the NVIDIA wheel that contains a library, by its soname: "nvidia-cuda-runtime-cu12"."""
    wheel, major = _find_wheel(name), re.search(r"\.so\.(\d+)", name)
    if wheel is None or not name.startswith("lib"):
        return None
    if wheel != "cuda-runtime" or major is None:
        return f"nvidia-{wheel}"
    return f"nvidia-{wheel}-cu{major[1]}" if int(major[1]) < 13 else f"nvidia-{wheel}"


def _list_folders(paths: PythonPaths) -> list[Path]:
    """Return the folders in which wheels and conda packages put NVIDIA's libraries."""
    sites = [Path(s) for s in paths.sites]
    wheels = [p for s in sites for p in sorted((s / "nvidia").glob("*/lib")) if p.is_dir()]
    return [*wheels, *(s / "torch" / "lib" for s in sites), Path(paths.prefix) / "lib"]


def _find_folder(name: str, paths: PythonPaths) -> Path | None:
    return next((f for f in _list_folders(paths) if (f / name).exists()), None)


def _get_display_name(framework: str) -> str:
    return {"tensorflow": "TensorFlow", "jax": "JAX", "onnxruntime": "ONNX Runtime"}.get(framework, framework)


def _explain_not_reached(framework: str, here: Mapping[str, Path], opened: Path | None) -> Finding:
    """Return the finding for libraries that are installed but not found.

    The fix is a link beside a library that was found, which helps every program. If that folder is not
    writable, the fix is the loader's variable.
    """
    folders = list(dict.fromkeys(here.values()))
    if opened and os.access(opened, os.W_OK):
        relative = [os.path.relpath(folder / name, opened) for name, folder in here.items()]
        link = f"ln -s {' '.join(map(shlex.quote, relative))} {shlex.quote(str(opened))}/"
        fix = f"Run programs with `gpuenv run`. Or link the missing libraries into the folder of the libraries that are found: {link}"
    else:
        value = ":".join(map(str, folders))
        export = f'export LD_LIBRARY_PATH={shlex.quote(value)}"${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}"'
        fix = f"Run programs with `gpuenv run`. Or first run: {export}"
    return make_finding(
        "library_not_reached",
        _list_unreached(here),
        confidence="certain",
        framework=_get_display_name(framework),
        libraries=", ".join(here),
        folders=", ".join(map(str, folders)),
        command=fix,
    )


def _list_unreached(here: Mapping[str, Path]) -> tuple[Evidence, ...]:
    return tuple(
        Evidence(
            text=f"{name} exists in this folder, but the loader does not search it", source=str(folder / name)
        )
        for name, folder in here.items()
    )


def _explain_not_installed(
    framework: str,
    lacking: Sequence[str],
    here: Mapping[str, Path],
    env: Environment,
    installed: InstalledLibraries,
) -> Finding:
    """Return the finding for libraries of which at least one is not in the environment."""
    wheels = tuple(dict.fromkeys(w for n in lacking if (w := _find_wheel(n))))
    brings = ", ".join(re.split(r"[^\w-]", r)[0] for r in list_needed(framework, wheels, installed.paths))
    others = {name: _list_other_versions(name, installed.paths) for name in lacking}
    evidence = [Evidence(text="the loader did not find it", source=name) for name in lacking]
    evidence += [
        Evidence(text="of another version", source=str(p)) for found in others.values() for p in found
    ]
    return make_finding(
        _name_not_installed(others, of_cudnn=wheels == ("cudnn",)),
        (*evidence, *_list_unreached(here)),
        confidence="certain",
        framework=_get_display_name(framework),
        libraries=", ".join(lacking),
        installed=", ".join(dict.fromkeys(p.name for found in others.values() for p in found)),
        wheels=f"{brings} {'contain' if ', ' in brings else 'contains'} {'it' if len(lacking) == 1 else 'them'}"
        if brings
        else None,
        command=make_install_command(framework, wheels, env, installed),
    )


def _list_other_versions(name: str, paths: PythonPaths) -> list[Path]:
    """Return the files of a library in other versions than the one of a soname."""
    pattern = name.partition(".so")[0] + ".so.*"
    return sorted({path for folder in _list_folders(paths) for path in folder.glob(pattern)})


def _name_not_installed(others: Mapping[str, Sequence[Path]], *, of_cudnn: bool) -> str:
    """Return the row for missing libraries. `others` are the files of each library in other versions."""
    differ = all(
        any(_read_major(p.name) != _read_major(name) for p in found) for name, found in others.items()
    )
    if of_cudnn:
        return "cudnn_of_other_major" if differ else "cudnn_not_in_environment"
    return "libraries_of_other_cuda" if differ else "libraries_not_in_environment"


def _read_major(name: str) -> str:
    return name.partition(".so.")[2].partition(".")[0]


# --- damaged libraries ---


def explain_unloaded(
    framework: str, words: str, env: Environment, installed: InstalledLibraries
) -> Finding | None:
    """Return the cause in the end of a process and the loader's messages, or None if they name no library."""
    return explain_damaged(framework, words, env, installed.paths) or explain_missing(
        framework, words, env, installed
    )


# Bytes (some GB) are compared only after a crash with right sizes, for the framework's own libraries.
DAMAGED = "package_files_damaged"
_CRASHED = re.compile(r"ended by SIG(BUS|SEGV|ILL|FPE|ABRT)|Inconsistency detected by ld\.so")
_REFUSED = re.compile(
    r"file too short|invalid ELF header|ELF load command|has no dynamic section|has no loadable segments|"
    r"ELF file's phentsize|cannot read file data|nonzero padding in e_ident|file version does not match"
)
_OF = {
    "torch": r"torch(?![\w])",
    "tensorflow": r"tensorflow",
    "jax": r"jax",
    "onnxruntime": r"onnxruntime(-gpu)?",
}


def explain_damaged(framework: str, words: str, env: Environment, paths: PythonPaths) -> Finding | None:
    """Return the damaged files that explain a crash or a loader message, or None if all match their RECORD."""
    crashed = _CRASHED.search(words)
    if not crashed and not _REFUSED.search(words):
        return None
    packages = [p for site in paths.sites for p in _list_packages(site)]
    for package in packages:
        if bad := [p for p in check_files(package.files, False) if p.kind != "missing"]:
            return _make_damaged(env, package, bad, words)
    for package in packages if crashed else ():
        if re.match(_OF.get(framework, r"$^"), package.name) and (bad := check_files(package.files, True)):
            return _make_damaged(env, package, bad, words)
    refused = next((line for line in words.splitlines() if _REFUSED.search(line)), None)
    return _explain_unrecorded(env, refused) if refused else None


def _list_packages(site: str) -> Iterator[LibraryPackage]:
    """Yield the distributions with the libraries that their RECORDs list. Packages of conda have no RECORD."""
    for one in list_distributions(site):
        files = tuple(
            ListedFile(path=row.path, size=row.size, sha256=row.digest)
            for row in one.select_rows(".so")
            if re.search(r"\.so(\.\d+)*$", row.name)
        )
        if files:
            yield LibraryPackage(name=one.name, version=one.version, files=files)


def _make_damaged(
    env: Environment, package: LibraryPackage, bad: Sequence[FileProblem], words: str
) -> Finding:
    return make_finding(
        "package_file_damaged",
        (
            *(Evidence(text=p.text, source=p.path) for p in bad[:6]),
            Evidence(text=clean(words.splitlines()[0], 300), source="the process"),
        ),
        confidence="certain",
        library=os.path.basename(bad[0].path),
        package=package,
        difference=DIFFERENCES[bad[0].kind],
        more=len(bad) - 1 or None,
        command=make_reinstall_command(env, package),
    )


def _explain_unrecorded(env: Environment, refused: str) -> Finding:
    """Return the finding for a file that the loader refused and no RECORD lists."""
    path = re.search(r"/[^\s:'\"]{1,300}", refused)
    name = os.path.basename(path.group(0)) if path else "a library"
    return make_finding(
        "file_refused_by_loader",
        (Evidence(text=clean(refused.strip(), 300), source="the loader"),),
        library=name,
        command=_describe_reinstallation(env),
    )


def _describe_reinstallation(env: Environment) -> str:
    if env.made_by_gpuenv:
        return make_repair_command(env)
    return "Reinstall the package of that library without the installer's cache."
