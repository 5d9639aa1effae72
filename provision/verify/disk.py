"""Judges the NVIDIA libraries on disk: the stage libraries, and the libraries that a process did not find or that are damaged.

cuDNN's files must be complete, of one version, and of the version in the lock. A framework takes the cuDNN that it
was compiled with, or a newer minor version.
"""

from __future__ import annotations

import os
import platform
import re
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement

from ..environment.distributions import list_distributions
from ..model import CudnnRelease, Environment, Evidence, Finding, Lock
from ..profiles.wording import make_finding
from ..system.redaction import clean
from ..system.versions import numbers
from .fixes import (
    export_folders,
    list_needed,
    make_install_command,
    make_pip_command,
    make_reinstall_command,
    make_repair_command,
)
from .libraries import (
    CUDNN_PACKAGE,
    DIFFERENCES,
    FileProblem,
    InstalledLibraries,
    LibraryPackage,
    PythonPaths,
    check_files,
    find_other_cudnn,
    find_wheel_family,
    list_folders,
    list_shared,
    read_requirements,
)
from .state import Judgement, State, fail_with

_CUDNN_ROWS = ("cudnn_file_missing", "cudnn_file_of_other_version", "cudnn_file_damaged")
_LIBRARY_ROWS = ("library_missing", "library_of_other_version", "library_damaged")


_SHOWN = 8


def judge_libraries(state: State) -> Judgement:
    """Judge the stage libraries."""
    env, installed, lock, quick = state.env, state.installed, state.lock, state.options.quick
    packages = installed.packages
    elsewhere = find_other_cudnn(installed.paths, state.environ)
    # torch up to 1.12, and its cu118 builds for longer, carry cuDNN in torch/lib
    owners = [p for p in packages if (p.is_cudnn or p.name == "torch") and _has_cudnn(p)]
    bundled = [f for f in installed.files if os.path.basename(f).startswith("libcudnn")]
    if not owners and not bundled:
        if installed.paths.frameworks or installed.builds or installed.files or lock:
            return _judge_absent(env, installed, elsewhere)
        # The stage `framework` says what is missing.
        return Judgement("skip", "the environment contains no CUDA libraries")
    checked = {p.name: check_files(p.files, not quick) for p in owners}
    finding = (
        _find_overlap(owners, checked, packages, lock)
        or _find_broken(env, owners, checked, state.early.profiles().cudnn)
        or (_find_not_locked(env, owners, lock) if lock else _find_unserved(env, installed.paths, owners))
        or _find_other_broken(env, packages, state.options.deep)
    )
    return fail_with(finding) if finding else _judge_whole(owners, bundled, checked, elsewhere)


def _has_cudnn(package: LibraryPackage) -> bool:
    return any(os.path.basename(f.path).startswith("libcudnn") for f in package.files)


def _judge_absent(env: Environment, installed: InstalledLibraries, elsewhere: Sequence[str]) -> Judgement:
    """Judge an environment without cuDNN: a CPU build, or one that uses the system's cuDNN."""
    builds = installed.builds
    if builds and not any(builds.values()):
        names = ", ".join(builds)
        text = "the build has no CUDA, and the environment has no NVIDIA library"
        evidence = (Evidence(text, names),)
        return fail_with(make_finding("environment_for_cpu", evidence, frameworks=names))
    if elsewhere:
        return Judgement(
            "warn",
            "the environment contains no cuDNN, so the system's cuDNN is used",
            tuple(Evidence("cuDNN outside the environment", p) for p in elsewhere[:8]),
        )
    return fail_with(
        make_finding(
            "cudnn_not_installed" if installed.files else "cuda_not_installed",
            (Evidence("searched site-packages, the prefix, LD_LIBRARY_PATH and ldconfig"),),
            command=make_install_command(installed.cuda_framework, ("cudnn",), env, installed),
        )
    )


def _judge_whole(
    owners: Sequence[LibraryPackage],
    bundled: Sequence[str],
    checked: Mapping[str, list[FileProblem]],
    elsewhere: Sequence[str],
) -> Judgement:
    """Judge an environment with a complete cuDNN by what else is there. The stage `lock` compares other packages."""
    whole = [p for p in owners if not checked[p.name]]
    summary = ", ".join(f"{p}, {len(p.files)} files" for p in whole)
    evidence = tuple(Evidence("a second cuDNN is on the loader's path", p) for p in elsewhere[:8])
    if stale := next((p for p in owners if checked[p.name]), None):
        text = f"{stale} is also installed, but its files were overwritten. Do not uninstall it, because that would remove the correct files"
        return Judgement(
            "warn",
            f"{summary}; {stale.name} is left over from an earlier installation",
            (Evidence(text, stale.files[0].path), *evidence),
        )
    return Judgement("pass", summary or f"{len(bundled)} files in {os.path.dirname(bundled[0])}", evidence)


# --- the files of cuDNN --------------------------------------------------------------------------


def _list_shared_files(owners: Sequence[LibraryPackage]) -> list[str]:
    """Return the files that two installed cuDNN packages both list. The package installed last wrote them."""
    claims = Counter(path for package in owners for path in {f.path for f in package.files})
    return sorted(path for path, many in claims.items() if many > 1)


def _find_overlap(
    owners: Sequence[LibraryPackage],
    checked: Mapping[str, list[FileProblem]],
    packages: Sequence[LibraryPackage],
    lock: Lock | None,
) -> Finding | None:
    """Return the finding for two cuDNN packages with the same files, unless the wanted one is whole: that of the
    lock, else one that the frameworks' wheels require."""
    names = [p.name for p in lock.packages] if lock else []
    if lock is None:
        names = [r.lower() for p in packages if not p.name.startswith("nvidia-") for r in p.requires]
    wanted = {name for name in names if CUDNN_PACKAGE.match(name)}
    whole = [p for p in owners if not checked[p.name]]
    shared = _list_shared_files(owners)
    if not shared or any(p.name in wanted or not wanted for p in whole):
        return None
    owner = f"they belong to {whole[0]}" if whole else "they come from both packages"
    text = f"both packages install the same {len(shared)} files; {owner}"
    evidence = [Evidence(text, os.path.dirname(shared[0]))]
    evidence += [Evidence(f"{n}: {p.text}", p.path) for n, ps in checked.items() for p in ps[:4]]
    return make_finding(
        "cudnn_packages_overlap", tuple(evidence), packages=" and ".join(map(str, owners)), owner=owner,
    )  # fmt: skip


def _find_broken(
    env: Environment,
    owners: Sequence[LibraryPackage],
    checked: Mapping[str, list[FileProblem]],
    releases: Sequence[CudnnRelease],
) -> Finding | None:
    """Return the finding for cuDNN files that are missing, damaged, of another version, or not in the package."""
    overwritten = _list_shared_files(owners) and not all(checked[p.name] for p in owners)
    here = "linux-" + platform.machine()
    for package in owners:
        if (bad := checked[package.name]) and not overwritten:
            return _make_damage_finding(_choose_row(_CUDNN_ROWS, bad), env, package, bad)
        known = (
            set(r.libraries)
            for r in releases
            if (r.package, r.version, r.platform) == (package.name, package.version, here)
        )
        listed = {os.path.basename(f.path) for f in package.files}
        if lacking := sorted(next(known, set()) - listed):
            return make_finding(
                "cudnn_part_not_in_package",
                tuple(Evidence("not among the package's files", n) for n in lacking),
                package=package,
                libraries=", ".join(lacking),
                command=make_reinstall_command(env, package),
            )
    return None


def _choose_row(rows: tuple[str, str, str], bad: Sequence[FileProblem]) -> str:
    """Return the row for missing files, for those of another version (whole files of another size), or for damaged ones."""
    kinds = {p.kind for p in bad}
    if "missing" in kinds:
        return rows[0]
    return rows[1] if "size" in kinds and "short" not in kinds else rows[2]


def _make_damage_finding(
    row: str,
    env: Environment,
    package: LibraryPackage,
    bad: Sequence[FileProblem],
    *shown: Evidence,
    **slots: Any,
) -> Finding:
    """Return the finding on files that differ from their package's list."""
    first, *others = bad
    return make_finding(
        row, (*(Evidence(p.text, p.path) for p in bad[:_SHOWN]), *shown), package=package,
        difference=DIFFERENCES[first.kind], more=len(others) or None, command=make_reinstall_command(env, package),
        **{"library": os.path.basename(first.path), **slots},
    )  # fmt: skip


def _find_not_locked(env: Environment, owners: Sequence[LibraryPackage], lock: Lock) -> Finding | None:
    """Compare the cuDNN on disk with the lock."""
    named = {p.name: p.version for p in lock.packages if CUDNN_PACKAGE.match(p.name)}
    other = next((p for p in owners if p.is_cudnn and named and named.get(p.name) != p.version), None)
    if other is None:
        return None
    return make_finding(
        "cudnn_not_as_locked",
        tuple(Evidence("installed", f.path) for f in other.files[:1]),
        package=other,
        locked=", ".join(f"{n} {v}" for n, v in named.items()),
        command=make_repair_command(env),
    )


def _find_other_broken(env: Environment, packages: Sequence[LibraryPackage], hashes: bool) -> Finding | None:
    """Check the other NVIDIA packages: sizes always, bytes if `hashes`."""
    for package in packages:
        if package.is_cudnn or package.name == "torch" or not (bad := check_files(package.files, hashes)):
            continue
        return _make_damage_finding(_choose_row(_LIBRARY_ROWS, bad), env, package, bad)
    return None


# --- the cuDNN of a framework --------------------------------------------------------------------

_FRAMEWORKS = ("torch", "tensorflow", "jax_cuda12_plugin", "jax_cuda13_plugin", "jax_cuda12_pjrt")


def _find_unserved(env: Environment, paths: PythonPaths, owners: Sequence[LibraryPackage]) -> Finding | None:
    """Return the finding for a framework that no installed cuDNN serves.

    A framework loads only its own cuDNN major version. It refuses an older minor version than the one it was
    compiled with.
    """
    installed = [(v, p) for p in owners if p.is_cudnn and (v := numbers(p.version))]
    for framework in _FRAMEWORKS if installed else ():
        required = (_parse_cudnn(text) for text in read_requirements(paths.sites, framework))
        needed = next((r for r in required if r), None)
        least = _find_oldest(needed) if needed else ()
        if not needed or not least or any(v[0] == least[0] and v[:2] >= least[:2] for v, _ in installed):
            continue
        version, package = max(installed, key=lambda row: row[0])
        name = framework.replace("_", "-")
        return make_finding(
            "cudnn_other_major" if version[0] != least[0] else "cudnn_older",
            (
                Evidence(f"{name} requires {needed.name}{needed.specifier}", "METADATA"),
                Evidence(f"{package} is installed", package.files[0].path),
            ),
            package=package,
            framework=name,
            required=needed.specifier,
            command=make_pip_command(env, paths.sites, [f"{needed.name}{needed.specifier}"]),
        )
    return None


def _parse_cudnn(text: str) -> Requirement | None:
    try:
        requirement = Requirement(text)
    except InvalidRequirement:
        return None
    return requirement if CUDNN_PACKAGE.match(requirement.name.lower()) else None


def _find_oldest(requirement: Requirement) -> tuple[int, ...]:
    """Return the oldest cuDNN that a requirement allows: its pin, or its lower bound."""
    bounds = (s.version for s in requirement.specifier if s.operator in ("==", ">=", "~="))
    return max(map(numbers, bounds), default=())


# --- libraries that a process did not find -------------------------------------------------------
#
# TensorFlow opens CUDA's libraries by name, and then only says "Cannot dlopen some GPU libraries". The names are
# in its verbose log, which the probe enables. A library can be installed and still not be found: pip's TensorFlow
# finds the wheels' folders by its RUNPATH, and some releases omit folders.

_UNOPENED = re.compile(r"\b(lib[A-Za-z0-9_]+\.so[\d.]*): cannot open shared object file")
_OPENED = re.compile(r"Successfully opened dynamic library (lib[A-Za-z0-9_]+\.so[\d.]*)")
_SHOWN_NAMES = {"tensorflow": "TensorFlow", "jax": "JAX", "onnxruntime": "ONNX Runtime"}


def explain_unloaded(state: State, framework: str, words: str) -> Finding | None:
    """Return the cause of a message of the loader or of a crash, or None if no NVIDIA library explains it."""
    return explain_damaged(framework, words, state.env, state.paths) or explain_missing(
        framework, words, state.env, state.installed
    )


def explain_missing(
    framework: str, words: str, env: Environment, installed: InstalledLibraries
) -> Finding | None:
    """Return the cause of a loader message that names an NVIDIA library, else None."""
    names = [n for n in dict.fromkeys(_UNOPENED.findall(words)) if find_wheel_family(n)]
    if not names:
        return None
    folders = list_folders(installed.paths.sites, installed.paths.prefix)
    here = {name: folder for name in names if (folder := _find_folder(name, folders))}
    unreached = tuple(
        Evidence(f"{name} exists in this folder, but the loader does not search it", str(folder / name))
        for name, folder in here.items()
    )
    shown = _SHOWN_NAMES.get(framework, framework)
    lacking = [n for n in names if n not in here]
    if not lacking:
        opened = next((f for n in _OPENED.findall(words) if (f := _find_folder(n, folders))), None)
        return make_finding(
            "library_not_reached", unreached, framework=shown, libraries=", ".join(here),
            folders=", ".join(map(str, dict.fromkeys(here.values()))), command=_make_link_command(here, opened),
        )  # fmt: skip
    wheels = tuple(dict.fromkeys(w for n in lacking if (w := find_wheel_family(n))))
    needed = list_needed(framework, wheels, installed.paths)
    brings = ", ".join(re.split(r"[^\w-]", r)[0] for r in needed)
    verb, pronoun = "contain" if ", " in brings else "contains", "it" if len(lacking) == 1 else "them"
    others = {
        name: sorted({p for f in folders for p in f.glob(name.partition(".so")[0] + ".so.*")})
        for name in lacking
    }
    other = [path for found in others.values() for path in found]
    return make_finding(
        _name_not_installed(others, of_cudnn=wheels == ("cudnn",)),
        (
            *(Evidence("the loader did not find it", name) for name in lacking),
            *(Evidence("of another version", str(path)) for path in other),
            *unreached,
        ),
        framework=shown,
        libraries=", ".join(lacking),
        installed=", ".join(dict.fromkeys(path.name for path in other)),
        wheels=f"{brings} {verb} {pronoun}" if brings else None,
        command=make_install_command(framework, wheels, env, installed),
    )


def _find_folder(name: str, folders: Sequence[Path]) -> Path | None:
    return next((f for f in folders if (f / name).exists()), None)


def _make_link_command(here: Mapping[str, Path], opened: Path | None) -> str:
    """Return the fix for libraries that are installed but not found.

    It is a link beside a library that was found, which helps every program. If that folder is not writable, it is the
    loader's variable.
    """
    if opened and os.access(opened, os.W_OK):
        relative = [os.path.relpath(folder / name, opened) for name, folder in here.items()]
        link = f"ln -s {' '.join(map(shlex.quote, relative))} {shlex.quote(str(opened))}/"
        return f"Run programs with `gpuenv run`. Or link the missing libraries into the folder of the libraries that are found: {link}"
    return f"Run programs with `gpuenv run`. Or first run: {export_folders(map(str, here.values()))}"


def _name_not_installed(others: Mapping[str, Sequence[Path]], *, of_cudnn: bool) -> str:
    """Return the row for missing libraries. `others` are the files of each library in other versions."""

    def major(name: str) -> str:
        return name.partition(".so.")[2].partition(".")[0]

    differ = all(any(major(p.name) != major(name) for p in found) for name, found in others.items())
    if of_cudnn:
        return "cudnn_of_other_major" if differ else "cudnn_not_in_environment"
    return "libraries_of_other_cuda" if differ else "libraries_not_in_environment"


# --- damaged libraries ---------------------------------------------------------------------------

# Bytes (some GB) are compared only after a crash with right sizes, for the framework's own libraries.
_CRASHED = re.compile(r"ended by SIG(BUS|SEGV|ILL|FPE|ABRT)|Inconsistency detected by ld\.so")
_REFUSED = re.compile(
    r"file too short|invalid ELF header|ELF load command|has no dynamic section|has no loadable segments|"
    r"ELF file's phentsize|cannot read file data|nonzero padding in e_ident|file version does not match"
)
_PACKAGES = {
    "torch": r"torch(?![\w])",
    "tensorflow": r"tensorflow",
    "jax": r"jax",
    "onnxruntime": r"onnxruntime(-gpu)?",
}


def explain_removed(framework: str, env: Environment, paths: PythonPaths) -> Finding | None:
    """Return the modules and libraries that a framework's packages, or what they require, lack of their RECORD, or None.

    The message of an import that fails seldom names such a file. Tests are left out, because people remove them.
    """
    found = {one.name: one for site in reversed(paths.sites) for one in list_distributions(site)}
    own = [one for name, one in found.items() if re.match(_PACKAGES.get(framework, r"$^"), name)]
    for one in dict.fromkeys([*own, *(found[r] for each in own for r in each.requires if r in found)]):
        gone = [
            FileProblem("missing", path, "this file is missing")
            for path, how in one.find_wrong_sizes().items()
            if how == "missing"
            and path.endswith((".py", ".so"))
            and "/test" not in path[len(str(one.root)) :]
        ]
        if gone:
            return _make_damage_finding(
                "package_file_damaged", env, LibraryPackage(name=one.name, version=one.version), gone,
                library=os.path.relpath(gone[0].path, one.root), confidence="likely",
            )  # fmt: skip
    return None


def explain_damaged(framework: str, words: str, env: Environment, paths: PythonPaths) -> Finding | None:
    """Return the damaged files that explain a crash or a loader message, or None if all match their RECORD.

    Packages of conda have no RECORD.
    """
    crashed = _CRASHED.search(words)
    if not crashed and not _REFUSED.search(words):
        return None
    packages = [
        LibraryPackage(name=one.name, version=one.version, files=files)
        for site in paths.sites
        for one in list_distributions(site)
        if (files := tuple(list_shared(one)))
    ]
    own = [p for p in packages if re.match(_PACKAGES.get(framework, r"$^"), p.name)] if crashed else []
    for package, hashes in (*((p, False) for p in packages), *((p, True) for p in own)):
        bad = [p for p in check_files(package.files, hashes) if hashes or p.kind != "missing"]
        if bad:
            evidence = Evidence(clean(words.splitlines()[0], 300), "the process")
            return _make_damage_finding("package_file_damaged", env, package, bad, evidence)
    refused = next((line for line in words.splitlines() if _REFUSED.search(line)), None)
    if refused is None:
        return None
    path = re.search(r"/[^\s:'\"]{1,300}", refused)  # a file that no RECORD lists
    again = "Reinstall the package of that library without the installer's cache."
    return make_finding(
        "file_refused_by_loader",
        (Evidence(clean(refused.strip(), 300), "the loader"),),
        library=os.path.basename(path[0]) if path else "a library",
        command=make_repair_command(env) if env.made_by_gpuenv else again,
    )
