"""Reads which NVIDIA libraries an environment has, and which packages contain them."""

from __future__ import annotations

import glob
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..environment.distributions import Distribution, find_distribution, list_distributions
from ..model import normalize_name
from ..system import process, untrusted
from .drift.check_listed_files import ListedFile
from .drift.compare_conda import list_files, text_or_none
from .python_paths import PythonPaths

_FAMILIES = re.compile(r"^lib(cudnn|cublas|cublasLt|cudart|nvrtc|nvJitLink)([._-]|$)")
_CONDA = re.compile(r"^(cudnn|libcudnn|cudatoolkit|cuda-|libcu|libnv)")
CUDNN_PACKAGE = re.compile(r"^(nvidia-cudnn(-cu\d+)?|cudnn|libcudnn)$")


@dataclass(frozen=True, kw_only=True, slots=True)
class LibraryPackage:
    """An installed package that contains NVIDIA libraries, or that may require them."""

    name: str
    version: str
    files: tuple[ListedFile, ...] = ()
    requires: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.name} {self.version}"

    @property
    def is_cudnn(self) -> bool:
        return bool(CUDNN_PACKAGE.match(self.name))


@dataclass(frozen=True, kw_only=True, slots=True)
class InstalledLibraries:
    """The CUDA packages and libraries of an environment. `files` are paths of libraries. `builds` is framework ->
    whether it is a CUDA build."""

    paths: PythonPaths
    packages: tuple[LibraryPackage, ...] = ()
    files: tuple[str, ...] = ()
    builds: Mapping[str, bool] = field(default_factory=dict)

    @property
    def cuda_framework(self) -> str:
        """The first framework with a CUDA build, or ""."""
        return next((name for name, cuda in self.builds.items() if cuda), "")


def read_installed(paths: PythonPaths) -> InstalledLibraries:
    """Read which CUDA packages and libraries an environment has."""
    packages = read_packages(paths)
    return InstalledLibraries(
        paths=paths,
        packages=packages,
        files=find_libraries(paths),
        builds=find_cuda_builds(paths, packages),
    )


def read_packages(paths: PythonPaths) -> tuple[LibraryPackage, ...]:
    """Return the packages of the environment that concern CUDA, from dist-info folders and conda-meta.

    Only files of the target are read. The environment needs no pip.
    """
    wheels = [d for site in paths.sites for d in _read_wheels(site)]
    return (*wheels, *_read_conda(Path(paths.prefix)))


def _read_wheels(site: str) -> Iterable[LibraryPackage]:
    for one in list_distributions(site):
        if one.name.startswith("nvidia-") or one.name == "torch":
            files = tuple(_list_files(one))
        elif re.match(r"(jax|jaxlib|tensorflow)(-|$)", one.name):
            files = ()
        else:
            continue
        requires = tuple(name for name in one.requires if name.startswith("nvidia-"))
        yield LibraryPackage(name=one.name, version=one.version, files=files, requires=requires)


def _list_files(one: Distribution) -> Iterable[ListedFile]:
    """Yield the NVIDIA libraries that a wheel lists."""
    for row in one.select_rows(".so"):
        if "/lib" not in row.name or not re.search(r"\.so(\.\d+)*$", row.name):
            continue
        if one.name == "torch" and not _FAMILIES.match(os.path.basename(row.name)):
            continue
        yield ListedFile(path=os.path.normpath(row.path), size=row.size, sha256=row.digest)


def read_requirements(sites: Sequence[str], package: str) -> tuple[str, ...]:
    """Return the NVIDIA requirements of an installed wheel with versions, without markers."""
    one = find_distribution(sites, normalize_name(package))
    rows = [r.partition(";")[0] for r in one.requirements if r.startswith("nvidia-")] if one else []
    return tuple(re.sub(r"[\s()]", "", row) for row in rows)


def _read_conda(prefix: Path) -> Iterable[LibraryPackage]:
    for path in sorted((prefix / "conda-meta").glob("*.json")):
        if not _CONDA.match(path.name):
            continue
        try:
            data = json.loads(untrusted.read_bytes(path))
        except (OSError, ValueError, RecursionError):
            continue
        name, version, _ = path.name.rsplit("-", 2) if path.name.count("-") > 1 else (path.name, "", "")
        yield LibraryPackage(
            name=name,
            version=version,
            files=tuple(
                ListedFile(
                    path=str(prefix / row["_path"]),
                    size=row.get("size_in_bytes") if isinstance(row.get("size_in_bytes"), int) else None,
                    sha256=text_or_none(row.get("sha256_in_prefix") or row.get("sha256")),
                )
                for row in list_files(data)
                if re.search(r"/lib[^/]*\.so(\.\d+)*$", row["_path"]) and row.get("path_type") != "softlink"
            ),
        )


def find_libraries(paths: PythonPaths) -> tuple[str, ...]:
    """Return the CUDA and cuDNN libraries of the environment, in the folders of wheels and of conda."""
    folders = [
        p for s in paths.sites for p in (*glob.glob(f"{glob.escape(s)}/nvidia/*/lib"), f"{s}/torch/lib")
    ]
    if os.path.isdir(os.path.join(paths.prefix, "conda-meta")):
        folders.append(os.path.join(paths.prefix, "lib"))
    return tuple(path for folder in folders for path in list_libraries(folder))


def list_libraries(folder: str) -> list[str]:
    """Return the CUDA and cuDNN libraries in a folder, by name; empty if the folder cannot be read."""
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return []
    return [os.path.join(folder, n) for n in names if _FAMILIES.match(n) and ".so" in n]


def pick_library(files: Sequence[str], family: str, major: str | None = None) -> str | None:
    """Return the first file `lib<family>.so.<major>`, of any major version without `major`.

    This is the name that the loader requests. The development link without a number is never returned.
    """
    number = re.escape(major) if major else r"\d+"
    pattern = re.compile(rf"^{family}(-[0-9a-f]+)?\.so\.{number}(\.\d+)*$")
    named = [f for f in files if pattern.match(os.path.basename(f))]
    return min(named, key=lambda f: len(os.path.basename(f))) if named else None


def find_cuda_builds(paths: PythonPaths, packages: Sequence[LibraryPackage]) -> dict[str, bool]:
    """Return framework -> whether it is a CUDA build, without importing it."""
    names = {d.name for d in packages}
    builds = {}
    for framework in paths.frameworks:
        package = Path(framework.origin).parent
        if framework.name == "torch":
            match = re.search(r"^cuda\b[^=]*= *(.+)$", _read_text(package / "version.py"), re.MULTILINE)
            builds["torch"] = match is None or match.group(1).strip() != "None"
        elif framework.name == "tensorflow":
            text = _read_text(package / "python" / "platform" / "build_info.py")
            builds["tensorflow"] = not re.search(r"is_cuda_build['\"]\s*[,:]\s*False", text)
        elif framework.name == "onnxruntime":
            builds["onnxruntime"] = any((package / "capi").glob("libonnxruntime_providers_cuda.*"))
        else:
            plugin = any(re.match(r"jax-cuda\d+-(plugin|pjrt)$", n) for n in names)
            builds["jax"] = plugin or any(d.name == "jaxlib" and "cuda" in d.version for d in packages)
    return builds


def read_built_major(paths: PythonPaths) -> str | None:
    """Return the CUDA major version that the frameworks on disk were built with, or None if they differ.

    JAX does not state it.
    """
    majors = set()
    for framework in paths.frameworks:
        package = Path(framework.origin).parent
        text, pattern = "", r"$^"
        if framework.name == "torch":
            text, pattern = _read_text(package / "version.py"), r"^cuda\b[^=]*= *['\"](\d+)\."
        elif framework.name == "tensorflow":
            text = _read_text(package / "python" / "platform" / "build_info.py")
            pattern = r"['\"]cuda_version['\"]\s*[,:]\s*['\"](\d+)\."
        elif framework.name == "onnxruntime":
            text, pattern = (
                _read_text(package / "capi" / "build_and_package_info.py"),
                r"^cuda_version *= *['\"](\d+)\.",
            )
        majors |= set(re.findall(pattern, text, re.MULTILINE)[:1])
    return majors.pop() if len(majors) == 1 else None


def _read_text(path: Path) -> str:
    try:
        return untrusted.read_text(path)
    except OSError:
        return ""


def format_cudnn_version(value: Any) -> str | None:
    """Return cuDNN's version number in three parts: 8907 is 8.9.7, 91002 is 9.10.2.

    Some frameworks report a list, [9, 19, 0], or a string.
    """
    if value is None:
        return None
    if isinstance(value, (list, tuple)):
        return ".".join(str(v) for v in value)
    if isinstance(value, str):
        return value
    if value >= 90000:
        return f"{value // 10000}.{value // 100 % 100}.{value % 100}"
    return f"{value // 1000}.{value // 100 % 10}.{value % 100}"


def shorten_version(version: str | None) -> str | None:
    """Return the three parts of a cuDNN version on which plan and loaded library must agree."""
    return None if version is None else ".".join(version.split(".")[:3])


# --- owners of library files ---


def find_other_cudnn(python_paths: PythonPaths, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the libcudnn files outside the environment that the loader would find.

    It searches LD_LIBRARY_PATH and its cache.
    """
    paths = [
        path
        for entry in environ.get("LD_LIBRARY_PATH", "").split(":")
        if entry
        for path in list_libraries(entry)
        if os.path.basename(path).startswith("libcudnn.so")
    ]
    paths += re.findall(r"=> (\S*/libcudnn\.so\S*)$", _read_loader_cache(), re.MULTILINE)
    return tuple(dict.fromkeys(p for p in paths if not is_inside(p, python_paths.roots)))


def is_inside(path: str, roots: Sequence[str]) -> bool:
    """Return whether a file is in one of the folders, as named or with links resolved."""
    return any(
        p == root or p.startswith(root.rstrip("/") + "/")
        for p in (path, os.path.realpath(path))
        for root in roots
    )


def _read_loader_cache() -> str:
    """Return the output of `ldconfig -p`; empty on systems without it."""
    for program in ("/sbin/ldconfig", "/usr/sbin/ldconfig"):
        if os.access(program, os.X_OK):
            return process.run([program, "-p"], timeout=10).stdout
    return ""


def map_owners(packages: Sequence[LibraryPackage]) -> dict[str, LibraryPackage]:
    """Return resolved path -> package for each library file, because uv may link files into its cache."""
    owned: dict[str, LibraryPackage] = {}
    for package in packages:
        for f in package.files:
            owned.setdefault(os.path.realpath(f.path), package)
    return owned
