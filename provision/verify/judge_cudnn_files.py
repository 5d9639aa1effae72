"""Judges stage 3: the cuDNN files on disk.

They must be complete, of one version, and of the version in the lock.
"""

from __future__ import annotations

import os
import platform
from collections import Counter
from collections.abc import Mapping, Sequence

from ..model import CudnnRelease, Environment, Evidence, Lock
from ..profiles.findings import make_finding
from .compiled_mismatch import judge_cudnn_version
from .drift import install_commands
from .drift.check_listed_files import DIFFERENCES, FileProblem, check_files, find_worst
from .options import Baseline, Options
from .read_libraries import InstalledLibraries, LibraryPackage, find_other_cudnn
from .verification_state import Judgement, fail_with

_CUDNN_FINDINGS = {
    "missing": "cudnn_file_missing", "size": "cudnn_file_of_other_version", "damaged": "cudnn_file_damaged",
}  # fmt: skip
_LIBRARY_FINDINGS = {
    "missing": "library_missing", "size": "library_of_other_version", "damaged": "library_damaged",
}  # fmt: skip


def judge_libraries(
    env: Environment,
    installed: InstalledLibraries,
    options: Options,
    baseline: Baseline,
    environ: Mapping[str, str],
) -> Judgement:
    """Judge stage 3."""
    packages, lock = installed.packages, baseline.lock
    elsewhere = find_other_cudnn(installed.paths, environ)
    # torch up to 1.12, and its cu118 builds for longer, carry cuDNN in torch/lib
    owners = [p for p in packages if (p.is_cudnn or p.name == "torch") and _has_cudnn(p)]
    bundled = [f for f in installed.files if os.path.basename(f).startswith("libcudnn")]
    if not owners and not bundled:
        if not (installed.paths.frameworks or installed.builds or installed.files or lock):
            # The stage `framework` says what is missing.
            return Judgement(status="skip", detail="the environment contains no CUDA libraries")
        framework = installed.cuda_framework
        fix = install_commands.make_install_command(framework, ("cudnn",), env, installed)
        return _judge_absent(installed.builds, installed.files, elsewhere, fix)
    wanted = _list_wanted(packages, lock)
    checked = {p.name: check_files(p.files, not options.quick) for p in owners}
    bad = _judge_cudnn_packages(env, owners, checked, wanted, baseline.releases)
    if bad:
        return bad
    required = None if lock else judge_cudnn_version(env, installed.paths.sites, owners)
    bad = (
        fail_with(required)
        if required
        else _judge_locked(env, owners, lock)
        or _judge_others(env, packages, options.deep and not options.quick)
    )
    if bad:
        return bad
    return _judge_complete(owners, bundled, checked, elsewhere, _list_differences(packages, lock))


def _has_cudnn(package: LibraryPackage) -> bool:
    return any(os.path.basename(f.path).startswith("libcudnn") for f in package.files)


def _list_wanted(packages: Sequence[LibraryPackage], lock: Lock | None) -> set[str]:
    """Return the names of the cuDNN packages in the lock, else of those that the frameworks' wheels require."""
    if lock is not None:
        return {p.name for p in lock.packages if LibraryPackage(name=p.name, version="").is_cudnn}
    return {
        r.lower()
        for p in packages
        if not p.name.startswith("nvidia-")
        for r in p.requires
        if LibraryPackage(name=r.lower(), version="").is_cudnn
    }


def _judge_cudnn_packages(
    env: Environment,
    owners: Sequence[LibraryPackage],
    checked: Mapping[str, list[FileProblem]],
    wanted: set[str],
    releases: Sequence[CudnnRelease],
) -> Judgement | None:
    whole = [p for p in owners if not checked[p.name]]
    shared = _list_shared(owners)
    if shared and not any(p.name in wanted or not wanted for p in whole):
        return _judge_overlap(owners, checked, whole, shared)
    for package in owners:
        if checked[package.name] and not (shared and whole):
            return _judge_broken(env, package, checked[package.name])
        lacking = _list_lacking(package, releases)
        if lacking:
            names = ", ".join(lacking)
            return fail_with(
                make_finding(
                    "cudnn_part_not_in_package",
                    tuple(Evidence(text="not among the package's files", source=n) for n in lacking),
                    confidence="certain",
                    package=package,
                    libraries=names,
                    command=install_commands.make_reinstall_command(env, package),
                )
            )
    return None


def _list_shared(owners: Sequence[LibraryPackage]) -> list[str]:
    """Return the files that two installed cuDNN packages both list. The package installed last wrote them."""
    claims = Counter(path for package in owners for path in {f.path for f in package.files})
    return sorted(path for path, many in claims.items() if many > 1)


def _judge_overlap(
    owners: Sequence[LibraryPackage],
    checked: Mapping[str, list[FileProblem]],
    whole: Sequence[LibraryPackage],
    shared: Sequence[str],
) -> Judgement:
    names = " and ".join(f"{p.name} {p.version}" for p in owners)
    now = f"they belong to {whole[0].name} {whole[0].version}" if whole else "they come from both packages"
    evidence = [
        Evidence(
            text=f"both packages install the same {len(shared)} files; {now}",
            source=os.path.dirname(shared[0]),
        )
    ]
    evidence += [Evidence(text=f"{n}: {p.text}", source=p.path) for n, ps in checked.items() for p in ps[:4]]
    return fail_with(
        make_finding(
            "cudnn_packages_overlap", tuple(evidence), confidence="certain", packages=names, owner=now
        )
    )


def _judge_broken(env: Environment, package: LibraryPackage, bad: Sequence[FileProblem]) -> Judgement:
    """Return the failure for files that are missing, damaged, or of another version."""
    names = ", ".join(os.path.basename(p.path) for p in bad)
    title = (
        f"{names} of {package.name} {package.version} {DIFFERENCES[bad[0].kind]}"
        if len(bad) == 1
        else f"{len(bad)} files of {package.name} {package.version} differ from its file list: {names}"
    )
    return fail_with(
        make_finding(
            _CUDNN_FINDINGS[find_worst(bad)],
            tuple(Evidence(text=p.text, source=p.path) for p in bad),
            confidence="certain",
            files=title,
            command=install_commands.make_reinstall_command(env, package),
        )
    )


def _list_lacking(package: LibraryPackage, releases: Sequence[CudnnRelease]) -> list[str]:
    """Return the known sublibraries of this release that the package does not list."""
    here = "linux-" + platform.machine()
    for release in releases:
        if (release.package, release.version, release.platform) == (package.name, package.version, here):
            listed = {os.path.basename(f.path) for f in package.files}
            return sorted(set(release.libraries) - listed)
    return []


def _judge_locked(env: Environment, owners: Sequence[LibraryPackage], lock: Lock | None) -> Judgement | None:
    """Compare the cuDNN on disk with the lock."""
    if lock is None:
        return None
    named = {p.name: p.version for p in lock.packages if LibraryPackage(name=p.name, version="").is_cudnn}
    for package in owners:
        locked = named.get(package.name)
        if locked == package.version or not named or not package.is_cudnn:
            continue
        want = ", ".join(f"{n} {v}" for n, v in named.items())
        return fail_with(
            make_finding(
                "cudnn_not_as_locked",
                tuple(Evidence(text="installed", source=f.path) for f in package.files[:1]),
                confidence="certain",
                package=package,
                locked=want,
                command=install_commands.make_repair_command(env),
            )
        )
    return None


def _list_differences(packages: Sequence[LibraryPackage], lock: Lock | None) -> list[Evidence]:
    """Compare the public versions of the other CUDA packages with the lock."""
    here = {p.name: p.version for p in packages}
    return [
        Evidence(text=f"{p.name} {here[p.name]} is installed, but the lock has {p.version}", source="lock")
        for p in (lock.packages if lock else ())
        if p.name in here and here[p.name].split("+")[0] != p.version.split("+")[0]
    ]


def _judge_others(env: Environment, packages: Sequence[LibraryPackage], hashes: bool) -> Judgement | None:
    """Check the other NVIDIA packages: sizes always, bytes if `hashes`."""
    for package in packages:
        if package.is_cudnn or package.name == "torch":
            continue
        bad = check_files(package.files, hashes)
        if not bad:
            continue
        first = bad[0]
        evidence = tuple(Evidence(text=p.text, source=p.path) for p in bad)
        finding = make_finding(
            _LIBRARY_FINDINGS[find_worst(bad)],
            evidence,
            confidence="certain",
            library=os.path.basename(first.path),
            package=package,
            difference=first.text,
            command=install_commands.make_reinstall_command(env, package),
        )
        return fail_with(finding)
    return None


def _judge_absent(
    builds: Mapping[str, bool], files: Sequence[str], elsewhere: Sequence[str], fix: str
) -> Judgement:
    """Judge an environment without cuDNN: a CPU build, or one that uses the system's cuDNN."""
    if builds and not any(builds.values()):
        names = ", ".join(builds)
        finding = make_finding(
            "environment_for_cpu",
            (
                Evidence(
                    text="the build has no CUDA, and the environment has no NVIDIA library", source=names
                ),
            ),
            confidence="certain",
            frameworks=names,
        )
        return fail_with(finding)
    if elsewhere:
        return Judgement(
            status="warn",
            detail="the environment contains no cuDNN, so the system's cuDNN is used",
            evidence=tuple(Evidence(text="cuDNN outside the environment", source=p) for p in elsewhere[:8]),
        )
    return fail_with(
        make_finding(
            "cudnn_not_installed" if files else "cuda_not_installed",
            (Evidence(text="searched site-packages, the prefix, LD_LIBRARY_PATH and ldconfig"),),
            confidence="certain",
            command=fix,
        )
    )


def _judge_complete(
    owners: Sequence[LibraryPackage],
    bundled: Sequence[str],
    checked: Mapping[str, list[FileProblem]],
    elsewhere: Sequence[str],
    differences: Sequence[Evidence],
) -> Judgement:
    whole = [p for p in owners if not checked[p.name]]
    summary = ", ".join(f"{p.name} {p.version}, {len(p.files)} files" for p in whole)
    evidence = [Evidence(text="a second cuDNN is on the loader's path", source=p) for p in elsewhere[:8]]
    if len(owners) > len(whole):
        stale = next(p for p in owners if checked[p.name])
        text = f"{stale.name} {stale.version} is also installed, but its files were overwritten. Do not uninstall it, because that would remove the correct files"
        return Judgement(
            status="warn",
            detail=f"{summary}; {stale.name} is left over from an earlier installation",
            evidence=(Evidence(text=text, source=stale.files[0].path), *differences, *evidence),
        )
    if differences:
        return Judgement(
            status="warn",
            detail=f"{summary}; {len(differences)} other packages differ from the lock",
            evidence=(*differences, *evidence),
        )
    return Judgement(
        status="pass",
        detail=summary or f"{len(bundled)} files in {os.path.dirname(bundled[0])}",
        evidence=tuple(evidence),
    )
