"""Judge Python packages: missing or damaged ones, releases and builds that conflict, and the order of imports."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from ..environment.distributions import find_owner_of_missing, has_module
from ..model import FRAMEWORK_ALIASES, FRAMEWORKS, Evidence, ImportName, normalize_name
from ..system.versions import major
from .case import Candidate, Case, candidate, rule_out
from .lines import Raised, package_of

_MISSING, _DAMAGED, _TOGETHER = (
    "python_package_missing",
    "package_files_damaged",
    "conflicting_frameworks_in_one_env",
)

# --- missing modules ---------------------------------------------------------------------------

_MODULE = re.compile(r"No module named ['\"]?([A-Za-z_][\w.]{0,200})['\"]?(;.*)?$")
_UNKNOWN = re.compile(r"cannot import name '.{1,80}' from '([A-Za-z_][\w.]{0,200})' \(unknown location\)")
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


def judge_module(case: Case) -> Iterator[Candidate]:
    """Judge a missing module of a package in package_names.yaml, or of one that an installed package imports.

    Any other name may be the program's own module.
    """
    last = case.exceptions[-1] if case.exceptions else None
    if last is None:
        return
    ran, missing = case.circumstances.ran, _find_refused_import(case.exceptions)
    env = ran.env if ran else None
    # a package without its __init__.py: Python reads its folder as an empty namespace
    unknown = _UNKNOWN.search(last.message)
    for name, error in ((unknown[1] if unknown else None, last), missing or (None, last)):
        if name and env and (owner := find_owner_of_missing(env, name)):
            title = f"Files of the module {name} are missing from the installed package {owner}"
            package = owner.partition(" ")[0]
            yield candidate(_DAMAGED, 90, [error.line.evidence], title, confidence="certain", package=package)
            return
    if missing is None:
        yield from _find_recommended(case, last)
        return
    name, error = missing
    where = [error.line.evidence]
    if ran and has_own_module(ran.folders, name):
        return
    if _STACK.match(name) and name not in FRAMEWORKS:
        return
    if env and has_module(env, name):
        yield candidate(
            _MISSING, 60, where,
            f"The module {name} is installed in this environment, but the program ran with another Python or could not reach it",
            case="other_python", module=name,
        )  # fmt: skip
        return
    if name in FRAMEWORKS:
        yield _judge_framework(case, name, where)
        return
    if case.find_message("build_backend_failed"):  # a build has packages of its own, which its log explains
        return
    if name == "pkg_resources":  # a rule of its own: setuptools brings it only up to a release
        return
    if row := next((r for r in case.profiles.imports if r.module == name), None):
        yield _judge_known(case, row, where)
        return
    if error.package and "." not in name:
        title = f"The module {name} is not installed; the installed package {error.package} imports it"
        yield _judge_open(case, name, where, title, 55, wanted_by=error.package)


_SKIPPED = frozenset(("node_modules", "__pycache__", "site-packages", "venv", "env"))
_LEVELS = 3
_FOLDERS = 400


def has_own_module(folders: Sequence[Path], module: str) -> bool:
    """Return whether a module is in the program's own folders, at most a few levels down.

    A folder counts only if it contains Python files. One of that name can contain data.
    """
    top = module.partition(".")[0]
    for start in dict.fromkeys(folders):
        for number, (folder, names, files) in enumerate(os.walk(start)):
            if number > _FOLDERS:
                break
            if f"{top}.py" in files or (top in names and any(Path(folder, top).glob("*.py"))):
                return True
            deep = len(Path(folder).relative_to(start).parts) >= _LEVELS
            left_out = {
                n for n in names if n[0] == "." or n in _SKIPPED or Path(folder, n, "pyvenv.cfg").exists()
            }
            names[:] = [] if deep else sorted({*names} - left_out)
    return False


_OWN = frozenset(("utils", "util", "models", "model", "config", "configs", "common", "data", "dataset", "datasets", "lib", "libs",
                  "src", "core", "main", "train", "test", "tests", "modules", "helpers", "tools", "scripts", "app", "network",
                  "networks", "options", "loss", "losses", "layers", "ops", "evaluate"))  # fmt: skip
"""Names that a program's own folders have."""


def judge_unknown_module(case: Case, found: Sequence[Candidate]) -> Iterator[Candidate]:
    """Report a missing module that no table knows as possible, if nothing else is found.

    Some programs print "No module named 'X'" without the exception's name. A name that programs give to their own
    folders says nothing.
    """
    if found or case.find_message("build_backend_failed"):
        return
    missing = _find_refused_import(case.exceptions)
    lines = case.lines[-8:] if missing is None and not case.exceptions else ()
    named = next(
        ((m[1], x.evidence) for x in reversed(lines) if (m := _MODULE.search(x.text)) and not m[2]), None
    )
    name, where = (missing[0], missing[1].line.evidence) if missing else named or ("", None)
    top = name.partition(".")[0]
    ran = case.circumstances.ran
    if where is None or top != name or top in _OWN or top.startswith("_") or top in sys.stdlib_module_names:
        return
    if ran and (has_own_module(ran.folders, name) or (ran.env and has_module(ran.env, name))):
        return
    if row := next((r for r in case.profiles.imports if r.module == top and not r.common), None):
        yield replace(_judge_known(case, row, [where]), confidence="possible")
        return
    title = f"The module {name} is not installed: it is a package, or a part of the program itself"
    yield _judge_open(case, top, [where], title, 40)


def _find_refused_import(errors: Sequence[Raised]) -> tuple[str, Raised] | None:
    """Return the module that the text's last exception names as missing.

    An import error that it caused counts as the same. After any other exception, the program went on without it.
    """
    for error in reversed(errors):
        match = _MODULE.search(error.message)
        if error.kind in ("ModuleNotFoundError", "ImportError") and match:
            # "No module named 'a.b'; 'a' is not a package": a file of the program shadows a package
            return None if match[2] else (match[1], error)
        if not (error.kind in ("ImportError", "RuntimeError") and _REFUSED.search(error.message)):
            return None
    return None


def _judge_framework(case: Case, name: str, where: Sequence[Evidence]) -> Candidate:
    """Judge a missing framework: a build in isolation, or an environment for another framework."""
    if case.find_message("isolated_build"):
        return candidate(
            "build_toolkit_missing_or_mismatched", 60, where,
            f"A package that compiles against {name} is built in isolation, without {name}", case="isolated",
            confidence="certain" if case.find_message("build_backend_failed") else None,
        )  # fmt: skip
    return candidate(
        _MISSING, 50, where, f"{name} is not installed in the Python that ran this program",
        case="framework", framework=name,
    )  # fmt: skip


def _judge_open(
    case: Case, name: str, where: Sequence[Evidence], title: str, weight: int, wanted_by: str | None = None
) -> Candidate:
    """Judge a missing module without a row in package_names.yaml. A known program has its own install command."""
    known = next((r for r in case.profiles.programs if name in r.modules or name == r.program), None)
    package = known.program if known else None
    guess = name.replace("_", "-")
    return candidate(
        _MISSING, weight, where, title, module=name, guess=guess, package=package, wanted_by=wanted_by
    )


def _find_recommended(case: Case, error: Raised) -> Iterator[Candidate]:
    """Return the package that an import error recommends, if the table has it."""
    if error.kind not in ("ImportError", "ModuleNotFoundError"):
        return
    named = next((m[1].rstrip(".").lower() for p in _ASKS_FOR if (m := p.search(error.message))), None)
    rows = case.profiles.imports
    row = next((r for r in rows if named in (r.package.lower(), r.module.lower())), None)
    if row is None or _STACK.match(row.module) or row.common:
        return
    yield _judge_known(case, row, [error.line.evidence])


def _judge_known(case: Case, row: ImportName, where: Sequence[Evidence]) -> Candidate:
    """Judge a missing module of a known package. A `common` name can be a folder of the program too."""
    ran, package, module = case.circumstances.ran, row.package, row.module
    others = f"{' or '.join(row.also[:2])} contains the module too." if row.also else None
    if row.common:
        return candidate(
            _MISSING, 50, where,
            f"The module {module} is missing. It comes from the package {package}, or from a folder of the program",
            case="common", package=package, module=module,
        )  # fmt: skip
    named = package if package.lower() == module.lower() else f"{package} ({module})"
    return candidate(
        _MISSING, 86, where, f"The Python package {named} is not installed in this environment",
        confidence="certain" if ran else "likely", case="known", package=package, module=module, others=others,
    )  # fmt: skip


# --- damaged packages --------------------------------------------------------------------------

_ABSENT = re.compile(r"module '(\w{1,60})' has no attribute|from '(\w{1,60})' \(unknown location\)")
_INVALID = re.compile(r"[Ii]gnoring invalid distribution [-~]([\w.-]{1,60})")
_EMPTY_FOLDER = re.compile(r"-packages/nvidia/([a-z_]{2,30})/(?:lib|bin)\b")


def judge_half_removed(case: Case) -> Iterator[Candidate]:
    """Find a package that an interrupted pip left behind: a folder without __init__.py, or one that begins with ~."""
    match = next((m for e in reversed(case.exceptions) if (m := _ABSENT.search(e.message))), None)
    name = match[1] or match[2] if match else ""
    if match is None or not _STACK.match(name):
        return
    last = case.exceptions[-1].line.evidence
    if left := next((line for line in case.lines if _is_remnant(line.text, name)), None):
        yield candidate(
            _DAMAGED, 84, (left.evidence, last),
            f"{name} is incomplete: pip was interrupted while it replaced or removed the package",
            case="half_removed", package=name,
        )  # fmt: skip
        return
    if match[2]:  # Python reads its folder as an empty namespace
        title = f"Python found a folder {name} without __init__.py: the package is incomplete, or the program has a folder of that name"
        yield candidate(_DAMAGED, 62, [last], title)


def _is_remnant(text: str, name: str) -> bool:
    """Return whether a line shows what is left of a module's package."""
    invalid = _INVALID.search(text)
    if invalid and normalize_name(invalid[1]).startswith(name[1:].lower()):
        return True
    return "has no attribute '__version__'" in text or ("_NamespacePath(" in text and name in text)


def judge_damaged_file(case: Case) -> Iterator[Candidate]:
    """Return a damaged file with its installed package."""
    shows = case.find_message("damaged_file")
    package, shown = next(((p, e) for e in shows if (p := package_of(e.text))), (None, None))
    if shown is None or case.find_message("driver_file_damaged"):
        return
    path = re.search(r"/[^\s:'\"]{1,300}", shown.text)
    file = path[0].rpartition("/")[2] if path else "a file"
    title = f"The file {file} of the installed package {package} is damaged"
    yield candidate(_DAMAGED, 92, shows, title, package=package)


def judge_emptied(case: Case) -> Iterator[Candidate]:
    """Find an NVIDIA package that is installed, and whose folder is listed without libraries."""
    for command in case.commands:
        folder = _EMPTY_FOLDER.search(command.typed.replace("\\", "/"))
        if not folder or not re.search(r"\b(?:ls|dir|find|gci)\b", command.typed) or not command.ended:
            continue
        start = f"nvidia-{folder[1].replace('_', '-')}-cu"
        name = next((n for n in case.facts.seen if n.startswith(start)), None)
        if name and not any(re.search(r"\.so|\.dll", line.text) for line in command.output):
            title = f"{name} is installed, but its libraries are absent from its folder"
            yield candidate(_DAMAGED, 80, (*case.facts.find_lines(name), command.line.evidence), title)
            return


# --- releases ----------------------------------------------------------------------------------

_PLUGIN = re.compile(r"jax-cuda1\d-plugin")
_CONFLICT = re.compile(
    r"^(?:ERROR: )?([\w.-]{1,60}) [\w.+]{1,40} requires (nvidia-[\w-]{2,40})[=<>~!,.\w* ]{2,60}[;, ].{0,80}but you have nvidia-[\w-]{2,40} ([\w.]{1,30}) which is incompatible"
)  # fmt: skip
_PINNED = re.compile(r"requires nvidia-[\w-]{2,40}==(\d{1,3})\.")
_OWNERS = ("torch", "tensorflow", "jax", "paddlepaddle-gpu", "onnxruntime-gpu", "mxnet-cu112", "cupy-cuda12x",
           "tensorrt", "dgl", "cudf-cu12", "cuml-cu12")  # fmt: skip


def judge_jax_plugin(case: Case) -> Iterator[Candidate]:
    """Exclude a CPU build of JAX if its CUDA plugin is installed: then the plugin did not start.

    A plugin that raised an error is installed, although JAX then says that no CUDA-enabled jaxlib is.
    """
    facts, fell_back = case.facts, case.find_message("jax_fell_back")
    if any("xla_cuda" in shown.text for shown in case.find_message("jax_plugin_raised")):
        yield from rule_out("cpu_only_build")
    plugin = next((n for n in facts.seen if _PLUGIN.fullmatch(n)), None)
    failed = fell_back or case.find_message("jax_backend_failed")
    if not failed or plugin is None:
        return
    yield from rule_out("cpu_only_build")
    where = (*failed[:1], *facts.find_lines(plugin, "jaxlib"))
    jaxlib, release = facts.first("jaxlib"), facts.first(plugin)
    differs = bool(jaxlib and release and jaxlib != release)
    if not fell_back and not differs:
        return
    title = f"{plugin} {release} and jaxlib {jaxlib} have different releases" if differs else None
    yield candidate("jax_plugin_version_mismatch", 72 if differs else 38, where, title)
    yield candidate("nvidia_libs_not_installed", 36, where)
    yield candidate("driver_missing", 34, where)


def judge_pins(case: Case) -> Iterator[Candidate]:
    """Judge two frameworks that require different releases of one NVIDIA package, if one of them fails."""
    shows = case.find_message(
        "jax_fell_back", "dlopen", "cudnn_missing", "cudnn_status", "sublibrary_mismatch", "nvidia_symbol", "cudnn_symbol",
        "dnn_handle", "dnn_library", "loaded_older", "cudnn_older_jax", "crash", "lib_missing",
    )  # fmt: skip
    for line in case.lines if shows else ():
        match = _CONFLICT.match(line.text.strip()) if "but you have nvidia" in line.text else None
        if match is None:
            continue
        others = {n: _get_framework(n) for n in _OWNERS if _get_framework(n) != _get_framework(match[1])}
        other = next((n for n, framework in others.items() if case.facts.first(framework)), None)
        if other is None:
            continue
        pinned = _PINNED.search(line.text)
        apart = bool(pinned and pinned[1] != major(match[3]))
        title = f"{match[1]} and {other} require different releases of {match[2]} in one environment"
        where = (line.evidence, *shows[:1])
        yield candidate(_TOGETHER, 74 if apart else 58, where, title)
        if apart and "cudnn" in match[2]:
            yield candidate("cudnn_major_mismatch", 60, where)
        return


def _get_framework(name: str) -> str:
    name = normalize_name(name)
    name = FRAMEWORK_ALIASES.get(name, name)
    return "jax" if name == "jaxlib" else name


def judge_known_bad(case: Case) -> Iterator[Candidate]:
    """Find an installed release of a package that known_bad.yaml lists without a condition, if cuDNN fails."""
    shows = case.find_message("cudnn_status", "sublibrary_mismatch", "sublibrary_loading", "cudnn_missing", "cudnn_symbol",
                      "dnn_library", "dnn_handle")  # fmt: skip
    for row in case.profiles.known_bad if shows else ():
        if row.gpu or row.driver or row.companion:
            continue
        versions = (v for v in case.facts.all(row.package) if v.count(".") > 1)
        if any(f"{row.version}.".startswith(f"{v}.") for v in versions):
            yield candidate(
                "framework_bug_upgrade", 86, (*shows[:1], *case.facts.find_lines(row.package)),
                f"{row.package} {row.version} has a known fault", package=row.package, why=row.why,
            )  # fmt: skip
            return
