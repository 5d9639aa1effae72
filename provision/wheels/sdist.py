"""Describes a source archive by its files: the requirements that they state, and what its build compiles.

The files are PKG-INFO, the egg-info of setuptools, pyproject.toml and scripts of a build. Nothing is executed.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from ..errors import LockError
from ..model import requirement_name
from ..model.values import Value
from ..system.toml import table_at, tomllib

Files = Mapping[str, "bytes | None"]
"""The files of an archive, by their path below its top folder, with the contents of those that are read."""

_EXTRA = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_EGG_INFO = re.compile(r"(?:[^/]+/)?[^/]+\.egg-info/(?:PKG-INFO|requires\.txt)")


class SourceArchive(Value):
    """A source archive, described by its files.

    `requires` is Requires-Dist as stated, or None if no file states it. `changeable` says that a build may state
    other requirements (metadata that is dynamic, or older than 2.2). `stated_in` is the file that states them.
    `compiles` is a clause about compiled code, or "" for none.
    """

    name: str
    version: str
    requires: tuple[str, ...] | None = None
    requires_python: str | None = None
    extras: tuple[str, ...] = ()
    changeable: bool = True
    stated_in: str = ""
    compiles: str = ""


def read_archive(path: Path, name: str = "", version: str = "") -> SourceArchive:
    """Describe a source archive on this machine. Raises LockError for an unreadable one."""
    from ..index.archives import DAMAGED, list_sdist  # needs the decompressors of Python

    try:
        files = list_sdist(path, _is_relevant)
    except DAMAGED as error:
        raise LockError(
            f"the source archive {path.name} cannot be read: {error}",
            hint="copy the archive again, or remove it",
        ) from error
    from packaging.metadata import parse_email

    about, _ = parse_email(files.get("PKG-INFO") or b"")
    requires, stated_in, changeable = _read_requires(about, files)
    stated = requires is not None and all(map(_is_requirement, requires))
    named = list(filter(_EXTRA.fullmatch, about.get("provides_extra") or ()))
    return SourceArchive(
        name=name or str(canonicalize_name(about.get("name") or "")), version=version or about.get("version") or "",
        requires=requires if stated else None,
        requires_python=_parse_specifier(about.get("requires_python")),
        extras=tuple(dict.fromkeys(named or find_extras(requires or ()))), changeable=changeable,
        stated_in=stated_in, compiles=_find_compiler(files),
    )  # fmt: skip


def _is_relevant(path: str) -> bool:
    """Return whether a file of an archive can state requirements or compiled code."""
    if "/" not in path:
        return path in ("PKG-INFO", "setup.cfg") or path.endswith((".py", ".toml", ".build"))
    return bool(_EGG_INFO.fullmatch(path))


def _read_toml(text: bytes | None) -> dict[str, Any]:
    try:
        return tomllib.loads((text or b"").decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return {}


def _texts(value: object) -> list[str]:
    return list(map(str, value)) if isinstance(value, list) else []


# --- stated requirements ---------------------------------------------------------------------------

_SINCE_DYNAMIC = (2, 2)  # PEP 643: since this version metadata names the fields that a build may change
_DECIDING = {"requires-dist", "requires-python", "provides-extra"}
_DECIDING_KEYS = {"dependencies", "optional-dependencies", "requires-python"}
_STATES = re.compile(rb"\b(?:install_requires|extras_require|setup_requires|pbr)\b|\*\*")
"""What a call of setup() states requirements with."""
_OF_SETUPTOOLS = ("setuptools.build_meta", "setuptools.build_meta:__legacy__", "")


def _read_requires(about: Any, files: Files) -> tuple[tuple[str, ...] | None, str, bool]:
    """Return the requirements, the file that states them, and whether a build may state others."""
    version = (about.get("metadata_version") or "").split(".")
    marks = tuple(int(part) for part in version if part.isdigit()) >= _SINCE_DYNAMIC
    dynamic = {str(d).lower() for d in about.get("dynamic") or ()}
    fixed = _read_project(files.get("pyproject.toml"))
    changeable = fixed is None and (not marks or bool(_DECIDING & dynamic))
    if listed := tuple(about.get("requires_dist") or ()):
        return listed, "PKG-INFO", changeable
    if fixed is not None:
        return fixed, "pyproject.toml", changeable
    return (*_find_requires(files), changeable) if changeable else ((), "PKG-INFO", changeable)


def _read_project(text: bytes | None) -> tuple[str, ...] | None:
    """Return the requirements in [project] of a pyproject.toml, or None if a build may change them."""
    project = _read_toml(text).get("project")
    if not isinstance(project, dict) or not _DECIDING_KEYS.isdisjoint(_texts(project.get("dynamic"))):
        return None
    requirements = _texts(project.get("dependencies"))
    for extra, texts in table_at(project, "optional-dependencies").items():
        for requirement, _, marker in (text.partition(";") for text in _texts(texts)):
            condition = f'({marker.strip()}) and extra == "{extra}"' if marker else f'extra == "{extra}"'
            requirements.append(f"{requirement.strip()} ; {condition}")
    return tuple(requirements)


def _find_requires(files: Files) -> tuple[tuple[str, ...] | None, str]:
    """Return requirements that PKG-INFO lacks, and the file that states them, or None."""
    for path, text in files.items():
        if path.endswith(".egg-info/requires.txt") and text is not None:
            return tuple(_iterate_requires_txt(text.decode("utf-8", "replace"))), path
    # setuptools writes requires.txt beside it if there are requirements
    if about := next((p for p in files if p.endswith(".egg-info/PKG-INFO")), None):
        return (), about
    return (None, "") if _may_state_more(files) else ((), "PKG-INFO")


def _may_state_more(files: Files) -> bool:
    """Return whether a build can add requirements to PKG-INFO.

    setup.py or setup.cfg names some, or a build backend decides.
    """
    pyproject = _read_toml(files.get("pyproject.toml"))
    backend = str(table_at(pyproject, "build-system").get("build-backend", ""))
    if "PKG-INFO" not in files or backend not in _OF_SETUPTOOLS or pyproject.get("project"):
        return True
    if b"requires" in (files.get("setup.cfg") or b""):
        return True
    script = files.get("setup.py") or b""
    return not re.search(rb"\bsetup *\(", script) or bool(_STATES.search(script))


def _iterate_requires_txt(text: str) -> Iterator[str]:
    """Yield the lines of setuptools' requires.txt as PEP 508: sections are "[extra]", "[:marker]", "[extra:marker]"."""
    condition = ""
    for line in filter(None, map(str.strip, text.splitlines())):
        if line.startswith("[") and line.endswith("]"):
            extra, _, marker = line[1:-1].partition(":")
            parts = [f"({marker})" if marker and extra else marker, f'extra == "{extra}"' if extra else ""]
            condition = " and ".join(filter(None, parts))
            continue
        yield f"{line} ; {condition}" if condition else line


def find_extras(requires: Collection[str]) -> list[str]:
    """Return the extras that the markers of requirements name."""
    found = (e for text in requires for e in re.findall(r"""extra\s*==\s*["']([\w.-]+)["']""", text))
    return list(dict.fromkeys(found))


def _is_requirement(text: str) -> bool:
    """Return whether a requirement names releases. An address is left to a build.

    From an archive's metadata uv would read any file or repository at an address.
    """
    try:
        need = Requirement(text)
    except (InvalidRequirement, RecursionError):
        return False
    return need.url is None and _is_plain(need.specifier)


def _parse_specifier(text: str | None) -> str | None:
    try:
        return text if text and _is_plain(SpecifierSet(text)) else None
    except InvalidSpecifier:
        return None


def _is_plain(specifier: SpecifierSet) -> bool:
    """Return whether uv supports a specifier: `===` allows any text, and uv only versions."""
    try:
        return all(Version(s.version.removesuffix(".*")) for s in specifier)
    except InvalidVersion:
        return False


# --- compiled code ---------------------------------------------------------------------------------

_LANGUAGES = {
    **dict.fromkeys((".c", ".cc", ".cpp", ".cxx", ".h", ".hpp", ".s"), "C/C++"),
    **dict.fromkeys((".cu", ".cuh"), "CUDA"),
    **dict.fromkeys((".pyx", ".pxd"), "Cython"),
    **dict.fromkeys((".f", ".for", ".f77", ".f90", ".f95"), "Fortran"),
    ".rs": "Rust", ".go": "Go",
}  # fmt: skip
_ASIDE = re.compile(
    r"(?:^|/)(?:tests?|testing|examples?|docs?|doc|benchmarks?|samples?|demos?)/", re.IGNORECASE
)
_PURE_BACKENDS = ("flit_core", "flit", "uv_build", "hatchling", "poetry", "pdm", "setuptools", "pbr",
                  "jupyter_packaging")  # fmt: skip
_CMAKE_BACKENDS = ("scikit_build_core", "py_build_cmake", "cmeel")
_COMPILING_REQUIRES = frozenset(
    {"cython", "pybind11", "nanobind", "scikit-build", "cmake", "setuptools-golang"}
)
_TABLES = re.compile(
    r"(?m)^\[+tool\.(setuptools\.ext-modules|setuptools-rust|hatch\.build\.[\w.]*hooks\.(?:cython|mypyc|scikit-build|autorun|rust))\b"
)
"""Tables of pyproject.toml about what is compiled."""
_OF_TORCH = re.compile(r"\b(CUDAExtension)\b"), re.compile(r"\b(CppExtension|SyclExtension)\b")
_OF_OTHERS = re.compile(
    r"\b(Extension|cythonize|Pybind11Extension|CMakeExtension|RustExtension)\(|\b(rust_extensions|cmake_source_dir)\b"
)
_OF_ANY = re.compile(
    r"\b(ext_modules) *=(?! *(?:\[ *\]|\( *\)|None))|[\"'](cmake|make|cargo|go|nvcc|ninja|gcc|g\+\+|bazel)[\"' ]"
)
_OF_PYTHON = re.compile(r"\b(mypycify|cffi_modules)\b")
"""What compiles code without a file in a compiled language."""
_TORCH = re.compile(r"(?m)^ *(?:import|from) torch\b")
_TRY = re.compile(r"(?m)^( *)try:\n(?:\1 .*\n|\n)*")


def _find_languages(files: Files) -> list[str]:
    """Return the compiled languages of the files, without those of tests, examples and documentation."""
    named = (path for path in files if "." in path and not _ASIDE.search(path))
    found = (_LANGUAGES.get(path[path.rfind(".") :].lower()) for path in named)
    return list(dict.fromkeys(filter(None, found)))


def _find_compiler(files: Files) -> str:
    """Return what compiles: the build backend, a requirement of the build, or a script that it runs; "" for nothing."""
    native = _find_languages(files)
    pyproject = _read_toml(files.get("pyproject.toml"))
    system = table_at(pyproject, "build-system")
    requires = {requirement_name(text) for text in _texts(system.get("requires"))}
    backend = str(system.get("build-backend") or "setuptools.build_meta")
    top, languages = re.split(r"[.:]", backend)[0], ", ".join(native)
    if top == "maturin" or (top == "setuptools" and requires & {"setuptools-rust", "maturin"}):
        return f"its build backend {top} compiles Rust"
    if top in _CMAKE_BACKENDS and "CMakeLists.txt" in files:
        return f"its build backend {top} runs CMake"
    if native and top == "mesonpy":
        return "its build backend mesonpy compiles with Meson"
    if native and (required := sorted(requires & _COMPILING_REQUIRES)):
        return f"its build requires {required[0]}"
    if native and (top not in _PURE_BACKENDS or system.get("backend-path")):
        return f"its build uses its own backend {backend}, and the source contains {languages}"
    if native and top == "hatchling" and "hatch_build.py" in files:
        return f"its build runs hatch_build.py, and the source contains {languages}"
    if native and (table := _TABLES.search(_read_text(files, "pyproject.toml"))):
        return f"pyproject.toml has {table[1]}"
    script = table_at(pyproject, "tool", "poetry").get("build")
    path = str(script.get("script") if isinstance(script, dict) else script)
    if top in ("setuptools", "pbr") or table_at(pyproject, "tool", "pdm", "build").get("run-setuptools"):
        path = "setup.py"
    text = _read_text(files, path)
    # An isolated build has no torch unless the project requires it. What goes on without it compiles nothing.
    tries = _TORCH.search(text) and not _TORCH.search(_TRY.sub("", text)) and "torch" not in requires
    kinds = [_OF_PYTHON]
    if native and (not tries or _OF_OTHERS.search(text)):
        kinds = [*_OF_TORCH, _OF_OTHERS, _OF_ANY, _OF_PYTHON]
    found = next(filter(None, (kind.search(text) for kind in kinds)), None)
    return f"{path} uses {found[found.lastindex or 0]}" if found else ""


def _read_text(files: Files, path: str) -> str:
    """Return a file without comments."""
    return re.sub(r"#.*", "", (files.get(path) or b"").decode("utf-8", "replace"))
