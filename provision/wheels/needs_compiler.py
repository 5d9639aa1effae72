"""Finds out from its files whether a source archive compiles code."""

from __future__ import annotations

import ast
import re
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from .requirements_stated_in_source import find_setup_calls, last_name, parse_python, read_toml

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
