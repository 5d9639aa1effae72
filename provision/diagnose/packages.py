"""Find missing Python packages and damaged files of packages."""

from __future__ import annotations

import re

from ..model import FRAMEWORKS, Evidence, ImportName, normalize_name
from .candidates import Case, CauseCandidate
from .pattern_search import evidence
from .tracebacks import Raised, package_of, raised

_MISSING, _DAMAGED = "python_package_missing", "package_files_damaged"
_MODULE = re.compile(r"No module named ['\"]?([A-Za-z_][\w.]{0,200})['\"]?(;.*)?$")
_UNKNOWN = re.compile(r"cannot import name '.{1,80}' from '([A-Za-z_][\w.]{0,200})' \(unknown location\)")
_ABSENT = re.compile(r"module '(\w{1,60})' has no attribute|from '(\w{1,60})' \(unknown location\)")
_INVALID = re.compile(r"[Ii]gnoring invalid distribution [-~]([\w.-]{1,60})")
_ASKS_FOR = (
    re.compile(r"Missing optional dependency ['\"]([\w.-]{1,80})['\"]"),
    re.compile(r"packages that were not found in your environment: ([\w.-]{1,80})"),
    re.compile(r"pip3? install (?:-U |--upgrade )?['\"`]?([A-Za-z][\w.-]{0,80})"),
)
_REFUSED = re.compile(r"import|install|requires|not found|unavailable", re.IGNORECASE)
# Frameworks and CUDA packages: another build or environment is the cause there, never a package to add.
_STACK = re.compile(
    rf"(?:{'|'.join(FRAMEWORKS)}|jaxlib|torchvision|torchaudio|triton|nvidia|cuda|cudnn|cupy|tensorrt|pycuda|numba)(?:$|[._])"
)


def module(case: Case) -> list[CauseCandidate]:
    """Judge a missing module of a package in package_names.yaml, or of one that an installed package imports.

    Any other name may be the program's own module.
    """
    errors = raised(case.said.lines)
    if emptied := _judge_missing_init(case, errors):
        return [emptied]
    shown = _find_refused_import(errors)
    if shown is None:
        return _find_recommended(case, errors[-1]) if errors else []
    name, error = shown
    where = (evidence(error.line),)
    if lost := _judge_lost(case, name, where):
        return [lost]
    if case.ran and case.ran.own_module(name):
        return []
    if name in FRAMEWORKS:
        return [_judge_framework(case, name, where)]
    if _STACK.match(name):
        return []
    if case.ran and case.ran.has_module(name):
        return [_judge_other_python(name, where)]
    row = next((r for r in case.profiles.imports if r.module == name), None)
    if name == "pkg_resources":  # a rule of its own: setuptools brings it only up to a release
        return []
    if row:
        return [_judge_known(case, row, where)]
    if error.package and "." not in name:
        return [_judge_wanted(name, error.package, where)]
    return []


def _judge_lost(case: Case, name: str, where: tuple[Evidence, ...]) -> CauseCandidate | None:
    """Return a missing module that an installed package of the environment lists."""
    owner = case.ran.files_of(name) if case.ran else None
    if owner is None:
        return None
    title = f"Files of the module {name} are missing from the installed package {owner}"
    return CauseCandidate(cause=_DAMAGED, weight=90, confidence="certain", evidence=where, title=title)


def _judge_missing_init(case: Case, errors: list[Raised]) -> CauseCandidate | None:
    """Return a package without its __init__.py. Python reads its folder as an empty namespace."""
    match = _UNKNOWN.search(errors[-1].message) if errors else None
    return _judge_lost(case, match.group(1), (evidence(errors[-1].line),)) if match else None


def _find_refused_import(errors: list[Raised]) -> tuple[str, Raised] | None:
    """Return the module that the text's last exception names as missing.

    An import error that it caused counts as the same. After any other exception, the program went on without it.
    """
    for error in reversed(errors):
        match = _MODULE.search(error.message)
        if error.kind in ("ModuleNotFoundError", "ImportError") and match:
            # "No module named 'a.b'; 'a' is not a package": a file of the program shadows a package
            return None if match.group(2) else (match.group(1), error)
        if not (error.kind in ("ImportError", "RuntimeError") and _REFUSED.search(error.message)):
            return None
    return None


def _judge_other_python(name: str, where: tuple[Evidence, ...]) -> CauseCandidate:
    return CauseCandidate(
        cause=_MISSING, weight=60, confidence="possible", evidence=where,
        title=f"The module {name} is installed in this environment, but the program ran with another Python or could not reach it",
        fix="Start the program with `python` of the environment: `gpuenv run ENV -- python PROGRAM`. Check the "
        "program's first line, PYTHONNOUSERSITE, and options such as -I and -S.",
    )  # fmt: skip


def _judge_framework(case: Case, name: str, where: tuple[Evidence, ...]) -> CauseCandidate:
    """Judge a missing framework: another Python, or an environment for another framework."""
    if case.ran and case.ran.has_module(name):
        return _judge_other_python(name, where)
    if case.said.group("isolated_build"):
        return CauseCandidate(
            cause="build_toolkit_missing_or_mismatched", weight=60, confidence="possible", evidence=where,
            title=f"A package that compiles against {name} is built in isolation, without {name}",
            fix=f"Install {name} first, then the package with `pip install --no-build-isolation NAME`.",
        )  # fmt: skip
    return CauseCandidate(
        cause=_MISSING, weight=50, confidence="possible", evidence=where,
        title=f"{name} is not installed in the Python that ran this program",
        fix=f"Start the program with the environment that has {name}: `gpuenv run ENV -- python PROGRAM`. If there "
        f"is none: `gpuenv create --framework {name}`.",
    )  # fmt: skip


def _find_recommended(case: Case, error: Raised) -> list[CauseCandidate]:
    """Return the package that an import error recommends, if the table has it."""
    if error.kind not in ("ImportError", "ModuleNotFoundError"):
        return []
    named = next((m.group(1).rstrip(".") for p in _ASKS_FOR if (m := p.search(error.message))), None)
    rows = case.profiles.imports
    row = next((r for r in rows if named and named.lower() in (r.package.lower(), r.module.lower())), None)
    if row is None or _STACK.match(row.module) or row.common:
        return []
    return [_judge_known(case, row, (evidence(error.line),))]


def _judge_known(case: Case, row: ImportName, where: tuple[Evidence, ...]) -> CauseCandidate:
    named = row.package if row.package.lower() == row.module.lower() else f"{row.package} ({row.module})"
    others = f" {' or '.join(row.also[:2])} contains the module too." if row.also else ""
    pip = "" if case.ran and case.ran.made_by_gpuenv else f" In an environment that gpuenv did not create: `python -m pip install {row.package}`."  # fmt: skip
    if row.common:
        return CauseCandidate(
            cause=_MISSING, weight=50, confidence="possible", evidence=where,
            title=f"The module {row.module} is missing. It comes from the package {row.package}, or from a folder of the program",
            fix=f"If {row.module} is a folder of the program, run from its parent folder. If it is the package: "
            f"`gpuenv add {row.package}`.{pip}",
        )  # fmt: skip
    return CauseCandidate(
        cause=_MISSING, weight=86, confidence="certain" if case.ran else "likely", evidence=where,
        title=f"The Python package {named} is not installed in this environment",
        fix=f"Install the package: `gpuenv add {row.package}`.{others}{pip}",
    )  # fmt: skip


def _judge_wanted(name: str, package: str, where: tuple[Evidence, ...]) -> CauseCandidate:
    return CauseCandidate(
        cause=_MISSING, weight=55, confidence="possible", evidence=where,
        title=f"The module {name} is not installed; the installed package {package} imports it",
        fix=f"Find the package of {name} in the documentation of {package}, and add it: `gpuenv add NAME`.",
    )  # fmt: skip


def half_removed(case: Case) -> list[CauseCandidate]:
    """Find a package that an interrupted pip left behind: a folder without __init__.py, or one that begins with ~."""
    errors = raised(case.said.lines)
    match = next((m for e in reversed(errors) if (m := _ABSENT.search(e.message))), None)
    name = next((g for g in match.groups() if g), None) if match else None
    if name is None or not _STACK.match(name):
        return []
    left = [line for line in case.said.lines if _is_left(line.text, name)]
    if not left:
        return _judge_namespace(name, errors[-1]) if match and match.group(2) else []
    shows = (evidence(left[0]), evidence(errors[-1].line))
    return [
        CauseCandidate(
            cause=_DAMAGED, weight=84, confidence="likely", evidence=shows,
            title=f"{name} is incomplete: pip was interrupted while it replaced or removed the package",
            fix="Delete the folders in site-packages whose names begin with a tilde. Then reinstall the package: `gpuenv repair`, "
            f"or `python -m pip install --force-reinstall --no-cache-dir {name}`.",
        )
    ]  # fmt: skip


def _judge_namespace(name: str, error: Raised) -> list[CauseCandidate]:
    """Judge a framework that Python reads as an empty namespace: its __init__.py is missing."""
    return [
        CauseCandidate(
            cause=_DAMAGED, weight=62, confidence="possible", evidence=(evidence(error.line),),
            title=f"Python found a folder {name} without __init__.py: the package is incomplete, or the program has a folder of that name",
        )
    ]  # fmt: skip


def _is_left(text: str, name: str) -> bool:
    """Return whether a line shows what is left of a module's package."""
    invalid = _INVALID.search(text)
    if invalid and normalize_name(invalid.group(1)).startswith(name[1:].lower()):
        return True
    return "has no attribute '__version__'" in text or ("_NamespacePath(" in text and name in text)


def damaged(case: Case) -> list[CauseCandidate]:
    """Return a damaged file with its installed package."""
    shows = case.said.group("damaged_file")
    if not shows or case.said.group("driver_file_damaged"):
        return []
    found = next(((p, e) for e in shows if (p := package_of(e.text))), None)
    if found is None:
        return []
    package, shown = found
    path = re.search(r"/[^\s:'\"]{1,300}", shown.text)
    file = path.group(0).rpartition("/")[2] if path else "a file"
    return [
        CauseCandidate(
            cause=_DAMAGED, weight=92, confidence="likely", evidence=shows,
            title=f"The file {file} of the installed package {package} is damaged",
        )
    ]  # fmt: skip
