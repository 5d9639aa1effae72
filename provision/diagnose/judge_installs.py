"""Judge what a text shows of installed packages: a plugin that is there, pins that conflict, releases that were tried."""

from __future__ import annotations

import re
from collections.abc import Iterator

from packaging.version import InvalidVersion, Version

from ..model import FRAMEWORK_ALIASES, Confidence, Evidence, normalize_name
from .candidates import Case, CauseCandidate
from .pattern_search import evidence
from .shell_commands import ShellCommand, shell_commands
from .tracebacks import raised

_PLUGIN = re.compile(r"jax-cuda1\d-plugin")
_CONFLICT = re.compile(
    r"^(?:ERROR: )?([\w.-]{1,60}) [\w.+]{1,40} requires (nvidia-[\w-]{2,40})[=<>~!,.\w* ]{2,60}[;, ].{0,80}but you have nvidia-[\w-]{2,40} ([\w.]{1,30}) which is incompatible"
)  # fmt: skip
_PINNED = re.compile(r"requires nvidia-[\w-]{2,40}==(\d{1,3})\.")
_OWNERS = ("torch", "tensorflow", "jax", "jaxlib", "paddlepaddle-gpu", "onnxruntime-gpu", "mxnet-cu112", "cupy-cuda12x",
           "tensorrt", "dgl", "cudf-cu12", "cuml-cu12")  # fmt: skip
_INSTALL = re.compile(r"\b(?:pip3?|uv pip|conda|mamba|python3? -m pip)\b.{0,40}\binstall\b")
_SPEC = r"(?<![\w.-]){}(?:-gpu)?(?:\[[\w,-]{{1,40}}\])?={{1,2}}(\d{{1,4}}\.\d{{1,4}}(?:\.\d{{1,4}})?)"
_FAILED = re.compile(r"error|fail|traceback|exception|cannot|abort|segmentation|core dumped", re.IGNORECASE)
_EMPTY_FOLDER = re.compile(r"-packages/nvidia/([a-z_]{2,30})/(?:lib|bin)\b")


def jax_build(case: Case) -> list[CauseCandidate]:
    """Exclude a CPU build of JAX if its CUDA plugin is installed: then the plugin did not start."""
    facts, shows = case.facts, case.said.group("jax_fell_back")
    plugin = next((n for n in facts.seen if _PLUGIN.fullmatch(n)), None)
    failed = shows or case.said.group("jax_backend_failed")
    if not failed or plugin is None:
        return []
    case.ruled_out.add("cpu_only_build")
    where = (*failed[:1], *facts.where(plugin, "jaxlib"))
    jaxlib, release = facts.first("jaxlib"), facts.first(plugin)
    differs = bool(jaxlib and release and jaxlib != release)
    if not shows and not differs:
        return []
    weight, confidence = (72, "likely") if differs else (38, "possible")
    title = f"{plugin} {release} and jaxlib {jaxlib} have different releases" if differs else None
    return [
        CauseCandidate(cause="jax_plugin_version_mismatch", weight=weight, evidence=where, title=title,
                       confidence="likely" if confidence == "likely" else "possible"),
        CauseCandidate(cause="nvidia_libs_not_installed", weight=36, confidence="possible", evidence=where),
        CauseCandidate(cause="driver_missing", weight=34, confidence="possible", evidence=where),
    ]  # fmt: skip


def pins(case: Case) -> list[CauseCandidate]:
    """Judge two frameworks that require different releases of one NVIDIA package, if one of them fails."""
    failures = ("jax_fell_back", "dlopen", "cudnn_missing", "cudnn_status", "sublibrary_mismatch", "nvidia_symbol",
                "cudnn_symbol", "dnn_handle", "dnn_library", "loaded_older", "cudnn_older_jax", "crash", "lib_missing")  # fmt: skip
    shows = next((s for name in failures if (s := case.said.group(name))), ())
    if not shows:
        return []
    for line in case.said.lines:
        match = _CONFLICT.match(line.text.strip()) if "but you have nvidia" in line.text else None
        if match is None or not (other := _find_other(case, match.group(1))):
            continue
        pinned = _PINNED.search(line.text)
        apart = bool(pinned and pinned.group(1) != match.group(3).split(".")[0])
        confidence: Confidence = "likely" if apart else "possible"
        title = (
            f"{match.group(1)} and {other} require different releases of {match.group(2)} in one environment"
        )
        where = (evidence(line), *shows[:1])
        found = [CauseCandidate(cause="conflicting_frameworks_in_one_env", weight=74 if apart else 58,
                                confidence=confidence, evidence=where, title=title)]  # fmt: skip
        if apart and "cudnn" in match.group(2):
            found.append(CauseCandidate(cause="cudnn_major_mismatch", weight=60, confidence="possible", evidence=where))  # fmt: skip
        return found
    return []


def _find_other(case: Case, name: str) -> str | None:
    """Return another framework of the text."""
    mine = _canonical(name)
    return next((n for n in _OWNERS if _canonical(n) != mine and case.facts.first(_canonical(n))), None)


def _canonical(name: str) -> str:
    name = normalize_name(name)
    name = FRAMEWORK_ALIASES.get(name, name)
    return "jax" if name == "jaxlib" else name


def tried_releases(case: Case) -> list[CauseCandidate]:
    """Find a release that failed, and another release of the same framework that then worked on the same machine."""
    errors = raised(case.said.lines) if any("install" in line.text for line in case.said.lines) else []
    if not errors:
        return []
    for command in shell_commands(case.said.lines):
        if command.line.number < errors[0].line.number or not _INSTALL.search(command.typed):
            continue
        for name in ("torch", "tensorflow", "jax", "jaxlib", "onnxruntime"):
            match = re.search(_SPEC.format(name), command.typed)
            failed = case.facts.first(name)
            if match and failed and match.group(1) != failed and _works_after(case, command):
                return [_make_tried(name, failed, match.group(1), (evidence(errors[0].line), evidence(command.line)))]  # fmt: skip
    return []


def _works_after(case: Case, command: ShellCommand) -> bool:
    """Return whether output follows the install, and no failure."""
    later = [x.text for x in case.said.lines if x.number > command.line.number]
    return bool(later) and not any(_FAILED.search(text) for text in later)


def _make_tried(name: str, failed: str, works: str, where: tuple[Evidence, ...]) -> CauseCandidate:
    try:
        newer = Version(works) > Version(failed)
    except InvalidVersion:
        newer = False
    return CauseCandidate(
        cause="framework_bug_upgrade", weight=68, confidence="likely", evidence=where,
        title=f"{name} {failed} fails, and {works} works on the same machine",
        fix=f"Use {name} {works}{' or newer' if newer else ', or a release newer than ' + failed}.",
    )  # fmt: skip


def emptied(case: Case) -> list[CauseCandidate]:
    """Find an NVIDIA package that is installed, and whose folder is listed without libraries."""
    if not any(name.startswith("nvidia-") for name in case.facts.seen):
        return []
    for command in shell_commands(case.said.lines):
        folder = _EMPTY_FOLDER.search(command.typed.replace("\\", "/"))
        if not folder or not re.search(r"\b(?:ls|dir|find|gci)\b", command.typed) or not command.ended:
            continue
        name = next(_list_wheels(case, folder.group(1)), None)
        if name and not any(re.search(r"\.so|\.dll", line.text) for line in command.output):
            where = (*case.facts.where(name), evidence(command.line))
            return [
                CauseCandidate(cause="package_files_damaged", weight=80, confidence="likely", evidence=where,
                               title=f"{name} is installed, but its libraries are absent from its folder")
            ]  # fmt: skip
    return []


def _list_wheels(case: Case, folder: str) -> Iterator[str]:
    return (n for n in case.facts.seen if n.startswith(f"nvidia-{folder.replace('_', '-')}-cu"))


def known_bad(case: Case) -> list[CauseCandidate]:
    """Find an installed release of a package that known_bad.yaml lists, if cuDNN fails."""
    failures = ("cudnn_status", "sublibrary_mismatch", "sublibrary_loading", "cudnn_missing", "cudnn_symbol", "dnn_library", "dnn_handle")  # fmt: skip
    shows = next((s for name in failures if (s := case.said.group(name))), ())
    for row in case.profiles.known_bad if shows else ():
        if any(
            f"{row.version}.".startswith(f"{v}.") and v.count(".") > 1 for v in case.facts.all(row.package)
        ):
            return [
                CauseCandidate(
                    cause="framework_bug_upgrade", weight=86, confidence="likely",
                    evidence=(*shows[:1], *case.facts.where(row.package)),
                    title=f"{row.package} {row.version} has a known fault", fix=f"Install another release of {row.package}. {row.why}",
                )
            ]  # fmt: skip
    return []
