"""Reads the files of a source archive: the requirements that they state, and whether a build compiles code. Nothing is executed."""

from __future__ import annotations

import ast
import re
import threading
import warnings
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tomli
from packaging.metadata import parse_email
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from ..errors import UsageError
from ..system import untrusted

_MOST_PYTHON = 1 << 20
_parsing = threading.Lock()
_SINCE_DYNAMIC = (2, 2)  # PEP 643: since this version metadata names the fields that a build may change
_DECIDING = frozenset({"requires-dist", "requires-python", "provides-extra"})
_EXTRA = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_EGG_INFO = re.compile(r"(?:[^/]+/)?[^/]+\.egg-info/(?:PKG-INFO|requires\.txt)")
_OF_SETUPTOOLS = ("setuptools.build_meta", "setuptools.build_meta:__legacy__", "")


@dataclass(frozen=True, kw_only=True, slots=True)
class Stated:
    """The stated metadata of a source archive.

    `requires` are requirements as PEP 508 strings, or None if no file states them. `changeable` says that a build may
    state others. PKG-INFO marks them dynamic, or its version cannot mark them. `file` is the file that states them.
    """

    name: str = ""
    version: str = ""
    metadata_version: str = ""
    requires: tuple[str, ...] | None = None
    requires_python: str | None = None
    extras: tuple[str, ...] = ()
    changeable: bool = True
    file: str = ""


def is_stating(path: str) -> bool:
    """Return whether a file of an archive can state requirements. The path is relative to the archive's top folder."""
    return path in ("PKG-INFO", "pyproject.toml", "setup.py", "setup.cfg") or bool(_EGG_INFO.fullmatch(path))


def read_toml(text: bytes | None) -> dict[str, Any]:
    """Return a TOML file's content, or {} for an unreadable file."""
    try:
        return tomli.loads((text or b"").decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return {}


def parse_python(text: bytes | None) -> ast.Module | None:
    """Return a Python file's syntax tree, or None for an invalid (Python 2) or too long file."""
    if text is None or len(text) > _MOST_PYTHON:
        return None
    # one thread at a time, because filters of warnings belong to the whole process
    with _parsing, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return ast.parse(untrusted.decode(text, ""))
        except (UsageError, SyntaxError, ValueError, RecursionError, MemoryError):
            return None


def read_stated(files: Mapping[str, bytes | None]) -> Stated:
    """Return the metadata that the files of an archive state."""
    about, _ = parse_email(files.get("PKG-INFO") or b"")
    listed = [str(d).lower() for d in about.get("dynamic") or ()]
    version = about.get("metadata_version") or ""
    marks = _numbers(version) >= _SINCE_DYNAMIC
    fixed = _read_project(files.get("pyproject.toml"))
    changeable = fixed is None and (not marks or bool(_DECIDING & set(listed)))
    requires: tuple[str, ...] | None = tuple(about.get("requires_dist") or ())
    file: str = "PKG-INFO"
    if not requires and fixed is not None:
        requires, file = fixed, "pyproject.toml"
    elif not requires and changeable:
        requires, file = _find_requires(files)
    return Stated(
        name=about.get("name") or "", version=about.get("version") or "", metadata_version=version,
        requires=requires if requires is not None and all(map(_is_requirement, requires)) else None,
        requires_python=_parse_specifier(about.get("requires_python")),
        extras=_list_extras_of(about.get("provides_extra") or (), requires or ()),
        changeable=changeable, file=file,
    )  # fmt: skip


def _read_project(text: bytes | None) -> tuple[str, ...] | None:
    """Return the requirements in [project] of a pyproject.toml, or None if a build may change them."""
    project = read_toml(text).get("project")
    if not isinstance(project, dict) or _DECIDING_KEYS & {str(d) for d in _list(project.get("dynamic"))}:
        return None
    requirements = [str(d) for d in _list(project.get("dependencies"))]
    extras = project.get("optional-dependencies")
    for extra, texts in extras.items() if isinstance(extras, dict) else ():
        for requirement, _, marker in (str(t).partition(";") for t in _list(texts)):
            condition = f'({marker.strip()}) and extra == "{extra}"' if marker else f'extra == "{extra}"'
            requirements.append(f"{requirement.strip()} ; {condition}")
    return tuple(requirements)


_DECIDING_KEYS = frozenset({"dependencies", "optional-dependencies", "requires-python"})


def _find_requires(files: Mapping[str, bytes | None]) -> tuple[tuple[str, ...] | None, str]:
    """Return requirements that PKG-INFO lacks, and the file that states them, or None."""
    for path, text in files.items():
        if path.endswith(".egg-info/requires.txt") and text is not None:
            return tuple(_iterate_requires_txt(text.decode("utf-8", "replace"))), path
    # setuptools writes requires.txt beside it if there are requirements
    if about := next((p for p in files if p.endswith(".egg-info/PKG-INFO")), None):
        return (), about
    return (None, "") if _may_state_more(files) else ((), "PKG-INFO")


def _may_state_more(files: Mapping[str, bytes | None]) -> bool:
    """Return whether a build can add requirements to PKG-INFO.

    setup.py or setup.cfg names some, or a build backend decides.
    """
    pyproject = read_toml(files.get("pyproject.toml"))
    system = pyproject.get("build-system")
    backend = str(system.get("build-backend", "")) if isinstance(system, dict) else ""
    if "PKG-INFO" not in files or backend not in _OF_SETUPTOOLS or pyproject.get("project"):
        return True
    if "requires" in (files.get("setup.cfg") or b"").decode("utf-8", "replace"):
        return True
    tree = parse_python(files.get("setup.py"))
    if tree is None:
        return b"requires" in (files.get("setup.py") or b"")
    calls = list(find_setup_calls(tree))
    return not calls or any(k.arg is None or k.arg in _STATING_WORDS for call in calls for k in call.keywords)


_STATING_WORDS = frozenset({"install_requires", "extras_require", "setup_requires", "pbr"})


def find_setup_calls(tree: ast.Module) -> Iterator[ast.Call]:
    """Yield the calls of setup() in a setup.py."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and last_name(node.func) == "setup":
            yield node


def last_name(node: ast.expr) -> str:
    """Return the last part of a dotted name, or "" for another expression."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


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


def _list_extras_of(named: Sequence[str], requires: Sequence[str]) -> tuple[str, ...]:
    """Return the named extras, or else those in the markers of requirements."""
    extras = [extra for extra in named if _EXTRA.fullmatch(extra)]
    extras = extras or [
        m for text in requires for m in re.findall(r"""extra\s*==\s*["']([\w.-]+)["']""", text)
    ]
    return tuple(dict.fromkeys(extras))


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
    return all(_is_version(s.version.removesuffix(".*")) for s in specifier)


def _is_version(text: str) -> bool:
    try:
        Version(text)
    except InvalidVersion:
        return False
    return True


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


_LANGUAGES = {
    **dict.fromkeys((".c", ".cc", ".cpp", ".cxx", ".h", ".hpp", ".s"), "C/C++"),
    **dict.fromkeys((".cu", ".cuh"), "CUDA"),
    **dict.fromkeys((".pyx", ".pxd"), "Cython"),
    **dict.fromkeys((".f", ".for", ".f77", ".f90", ".f95"), "Fortran"),
    ".rs": "Rust", ".go": "Go",
}  # fmt: skip
_TOOLS = {"C/C++": "a C/C++ compiler", "CUDA": "nvcc", "Cython": "a C/C++ compiler", "Rust": "a Rust compiler",
          "Fortran": "a Fortran compiler", "Go": "a Go compiler"}  # fmt: skip
_FEW = 0.02
"""The share of files up to which a language is ignored, because bundled libraries have their own bindings."""
_ASIDE = re.compile(
    r"(?:^|/)(?:tests?|testing|examples?|docs?|doc|benchmarks?|samples?|demos?)/", re.IGNORECASE
)
_PURE_BACKENDS = (
    "flit_core",
    "flit",
    "uv_build",
    "hatchling",
    "poetry",
    "pdm",
    "setuptools",
    "pbr",
    "jupyter_packaging",
)
_OF_TORCH = frozenset({"CUDAExtension", "CppExtension", "SyclExtension"})
_EXTENSIONS = frozenset({
    "Extension", "cythonize", "Pybind11Extension", "CMakeExtension", "RustExtension", "mypycify", *_OF_TORCH,
})  # fmt: skip
_MODULES = frozenset({"ext_modules", "cffi_modules", "rust_extensions", "cmake_source_dir", "libraries"})
_WITHOUT_FILES = frozenset({"mypycify", "cffi_modules"})
"""Functions that compile code without a file in a compiled language."""
_COMPILING_REQUIRES = frozenset(
    {"cython", "pybind11", "nanobind", "scikit-build", "cmake", "setuptools-golang"}
)
_HOOKS = ("hatch_build.py",)
_RUST_REQUIRES = ("setuptools-rust", "maturin")
_BUILD_COMMAND = re.compile(r"""["'](?:cmake|make|cargo|go|nvcc|ninja|gcc|g\+\+|bazel)["' ]""")


@dataclass(frozen=True, kw_only=True, slots=True)
class CompiledCode:
    """The code that a build compiles.

    `evidence` is a clause about the archive, or "" if nothing is compiled. `tools` are the needed programs ("a C/C++
    compiler", "nvcc"). `files` is the number of files of compiled languages in the archive, even if the build ignores
    them.
    """

    evidence: str = ""
    tools: tuple[str, ...] = ()
    files: int = 0


def read_compiling(files: Mapping[str, bytes | None]) -> CompiledCode:
    """Return the code that the build of an archive with these files compiles."""
    native = _group_native(files)
    pyproject = read_toml(files.get("pyproject.toml"))
    evidence = _read_backend(files, pyproject, native) or _read_tables(pyproject)
    scripts = _iterate_scripts(pyproject)
    for path in scripts:
        evidence = evidence or _read_script(path, files.get(path), pyproject, native)
    count = sum(map(len, native.values()))
    if not evidence:
        return CompiledCode(files=count)
    shown = (
        f"{evidence} ({count} files such as {_choose_example(evidence, native)})" if count > 1 else evidence
    )
    return CompiledCode(evidence=shown, tools=_list_tools(evidence, native), files=count)


def _choose_example(evidence: str, native: Mapping[str, list[str]]) -> str:
    """Return one of the compiled files: a CUDA file if there is one, and the one in the uppermost folder."""
    paths = native.get("CUDA") if "CUDA" in evidence else None
    every = paths or [path for some in native.values() for path in some]
    return min(every, key=lambda path: (path.endswith((".h", ".hpp", ".cuh", ".pxd")), path.count("/"), path))


def is_building(path: str) -> bool:
    """Return whether a file of an archive can state compiled code. The path is relative to the archive's top folder."""
    return "/" not in path and path.endswith((".py", ".toml", ".build"))


def _group_native(files: Iterable[str]) -> dict[str, list[str]]:
    """Return the files in compiled languages by language, without those of tests, examples and documentation."""
    by_language: dict[str, list[str]] = {}
    for path in files:
        language = _LANGUAGES.get(path[path.rfind(".") :].lower()) if "." in path else None
        if language and not _ASIDE.search(path):
            by_language.setdefault(language, []).append(path)
    return by_language


def _list_tools(evidence: str, native: Mapping[str, list[str]]) -> tuple[str, ...]:
    named = [
        tool for word, tool in (("Rust", "a Rust compiler"), ("CUDAExtension", "nvcc")) if word in evidence
    ]
    count = sum(map(len, native.values()))
    tools = [_TOOLS[name] for name in _TOOLS if len(native.get(name, ())) > count * _FEW]
    if (
        "CppExtension" not in evidence
        and "CUDAExtension" not in evidence
        and "nvcc" in tools
        and len(tools) > 1
    ):
        tools.remove("nvcc")  # CUDA files beside C++ are mostly optional without a CUDA extension
    return tuple(dict.fromkeys([*tools, *named])) or ("a compiler",)


# --- pyproject.toml ----------------------------------------------------------------------------------


def _read_backend(
    files: Mapping[str, bytes | None], pyproject: dict[str, Any], native: Mapping[str, list[str]]
) -> str:
    system = _get_table(pyproject, "build-system")
    backend = str(system.get("build-backend") or "setuptools.build_meta")
    requires = {_name(str(r)) for r in system.get("requires") or () if isinstance(r, str)}
    top = re.split(r"[.:]", backend)[0]
    if top == "maturin" or (top == "setuptools" and requires & set(_RUST_REQUIRES)):
        return f"its build backend {top} compiles Rust"
    if top in ("scikit_build_core", "py_build_cmake", "cmeel") and "CMakeLists.txt" in files:
        return f"its build backend {top} runs CMake"
    if top == "mesonpy":
        return "its build backend mesonpy compiles with Meson" if native else ""
    if native and (tool := next(iter(sorted(requires & _COMPILING_REQUIRES)), None)):
        return f"its build requires {tool}"
    if native and top == "hatchling" and (hook := next((h for h in _HOOKS if h in files), None)):
        return f"its build runs {hook}, and the source contains {', '.join(native)}"
    if top in _PURE_BACKENDS and not system.get("backend-path"):
        return ""
    return (
        f"its build uses its own backend {backend}, and the source contains {', '.join(native)}"
        if native
        else ""
    )


def _read_tables(pyproject: dict[str, Any]) -> str:
    """Return the extension modules in tables of build tools."""
    tool = _get_table(pyproject, "tool")
    if _get_table(tool, "setuptools").get("ext-modules"):
        return "pyproject.toml lists ext-modules"
    if _get_table(tool, "setuptools-rust"):
        return "pyproject.toml lists modules in Rust"
    hooks = [*_get_table(_get_table(_get_table(tool, "hatch"), "build"), "hooks")]
    targets = _get_table(_get_table(_get_table(tool, "hatch"), "build"), "targets")
    hooks += [*_get_table(_get_table(targets, "wheel"), "hooks")]
    if hook := next((h for h in hooks if h in ("cython", "mypyc", "scikit-build", "autorun", "rust")), None):
        return f"pyproject.toml names the build hook {hook}"
    return ""


def _iterate_scripts(pyproject: dict[str, Any]) -> Iterator[str]:
    """Yield the Python files that a build runs."""
    tool = _get_table(pyproject, "tool")
    top = re.split(r"[.:]", str(_get_table(pyproject, "build-system").get("build-backend") or "setuptools"))[
        0
    ]
    if top in ("setuptools", "pbr") or _get_table(_get_table(tool, "pdm"), "build").get("run-setuptools"):
        yield "setup.py"
    build = _get_table(tool, "poetry").get("build")
    script = build.get("script") if isinstance(build, dict) else build
    if isinstance(script, str):
        yield script
    hatch = _get_table(_get_table(tool, "hatch"), "build")
    wheel = _get_table(_get_table(hatch, "targets"), "wheel")
    for hooks in (_get_table(hatch, "hooks"), _get_table(wheel, "hooks")):
        if "custom" in hooks:
            yield str(_get_table(hooks, "custom").get("path") or "hatch_build.py")


# --- setup.py and other scripts ------------------------------------------------------------------


def _read_script(
    path: str, text: bytes | None, pyproject: dict[str, Any], native: Mapping[str, list[str]]
) -> str:
    """Return the code that a build script compiles, or "" for none."""
    if text is None:
        return ""
    tree = parse_python(text)
    if tree is None:  # Python 2: only words can be searched
        words = sorted(w for w in _EXTENSIONS if re.search(rf"\b{w}\(", text.decode("utf-8", "replace")))
        return f"{path} names {words[0]}" if words and native else ""
    calls = {last_name(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    compiling = sorted((calls | _find_used(tree)) & (_EXTENSIONS if native else _WITHOUT_FILES))
    passed = _find_passed_modules(tree, _MODULES if native else _WITHOUT_FILES)
    if (compiling or passed) and _is_without_torch(tree, pyproject, compiling):
        return ""
    if compiling:
        return f"{path} builds extension modules with {_find_first(compiling)}"
    if passed:
        return f"{path} passes {passed} to setup()"
    if native and (command := _BUILD_COMMAND.search(text.decode("utf-8", "replace"))):
        return f"{path} runs {command[0].strip(chr(34) + chr(39) + ' ')}"
    return ""


def _find_first(calls: list[str]) -> str:
    return next((name for name in calls if name in _OF_TORCH and name.startswith("CUDA")), calls[0])


def _find_passed_modules(tree: ast.Module, words: Container[str]) -> str:
    """Return the keyword with which setup() gets modules to compile. An empty list counts as none."""
    for call in find_setup_calls(tree):
        for keyword in call.keywords:
            empty = isinstance(keyword.value, (ast.List, ast.Tuple)) and not keyword.value.elts
            none = isinstance(keyword.value, ast.Constant) and not keyword.value.value
            if keyword.arg in words and not (empty or none):
                return keyword.arg or ""
    return ""


def _find_used(tree: ast.Module) -> set[str]:
    """Return the names that a script uses. A plain import uses none, and one with another name does."""
    names = {last_name(n) for n in ast.walk(tree) if isinstance(n, (ast.Name, ast.Attribute))}
    imports = (n for n in ast.walk(tree) if isinstance(n, ast.ImportFrom))
    return names | {a.name for n in imports for a in n.names if a.asname and a.asname != a.name}


def _is_without_torch(tree: ast.Module, pyproject: dict[str, Any], calls: list[str]) -> bool:
    """Return whether a script continues without torch, and no other tool makes its extension modules.

    An isolated build has no torch unless the project requires it for its build. So it then compiles nothing.
    """
    requires = {_name(str(r)) for r in _get_table(pyproject, "build-system").get("requires") or ()}
    if "torch" in requires or set(calls) - _OF_TORCH:
        return False
    caught = {id(node) for t in ast.walk(tree) if isinstance(t, ast.Try) and _catches_import(t)
              for part in t.body for node in ast.walk(part)}  # fmt: skip
    imports = [n for n in ast.walk(tree) if isinstance(n, (ast.Import, ast.ImportFrom)) and _is_of_torch(n)]
    return bool(imports) and all(id(n) in caught for n in imports)


def _catches_import(node: ast.Try) -> bool:
    names = {
        last_name(n) for h in node.handlers for n in ([h.type] if h.type else []) if isinstance(n, ast.expr)
    }
    names |= {last_name(e) for h in node.handlers if isinstance(h.type, ast.Tuple) for e in h.type.elts}
    bare = any(h.type is None for h in node.handlers)
    return bare or bool(names & {"ImportError", "ModuleNotFoundError", "Exception"})


def _is_of_torch(node: ast.Import | ast.ImportFrom) -> bool:
    names = [a.name for a in node.names] if isinstance(node, ast.Import) else [node.module or ""]
    return any(n.partition(".")[0] == "torch" for n in names)


def _get_table(value: dict[str, Any], key: str) -> dict[str, Any]:
    entry = value.get(key)
    return entry if isinstance(entry, dict) else {}


def _name(text: str) -> str:
    try:
        return str(canonicalize_name(Requirement(text).name))
    except InvalidRequirement:
        return ""
