"""Searches the user's settings for the one that breaks an environment.

Suspects are entries of LD_LIBRARY_PATH with a library that the environment contains too, LD_PRELOAD, entries of
PYTHONPATH, the user's site-packages, and the variables that steer cuDNN and frameworks. The first run removes
all suspects. If it still fails, no suspect is guilty.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..model import FRAMEWORKS, Environment, Evidence, Finding
from ..profiles.findings import make_finding
from . import run_probe
from .read_libraries import list_libraries

# Variables that steer cuDNN, CUDA and each framework. TF_VAR_*, TF_CLI_* and the like are Terraform's;
# CUDA_VERSION names the CUDA of a container's image. No part of CUDA reads it.
_STEERING = {
    "": r"CUDNN_|CUDA_(?!HOME$|PATH|VERSION$)|NVIDIA_TF32_OVERRIDE$",
    "torch": r"TORCH_|PYTORCH_|ONEDNN_|DNNL_",
    "tensorflow": r"TF_(?!VAR_|CLI_|LOG|DATA_DIR$|WORKSPACE$|IN_AUTOMATION$|PLUGIN_CACHE|INPUT$)|XLA_|ONEDNN_|DNNL_",
    "jax": r"XLA_|JAX_",
    "onnxruntime": r"ORT_",
}


HIDING = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "JAX_PLATFORMS", "JAX_PLATFORM_NAME")
"""Variables that hide GPUs from a framework."""
_KEPT = (
    "gpu_memory_exhausted",
    "preallocation_leaves_no_memory",
    "ptxas_missing_or_too_old",
    "cuda_stub_library_loaded",
)
"""Causes that a variable only brings about: they stay the cause where it is guilty."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Suspect:
    """A setting that can be removed: a variable, or one part of its value.

    `files` are the libraries that this part could bring into a process.
    """

    variable: str
    part: str
    files: tuple[str, ...] = ()

    @property
    def named(self) -> str:
        if self.variable == "user site":
            return f"the user's site-packages, {self.part},"
        if self.variable in ("LD_LIBRARY_PATH", "PYTHONPATH", "LD_PRELOAD"):
            return f"{self.part} in {self.variable}"
        return f"{self.variable}={self.part}"


def list_suspects(
    environ: Mapping[str, str], brought: Sequence[str], user_site: str | None, framework: str | None
) -> list[Suspect]:
    """Return the settings that could be guilty. `brought` are the library files of the environment.

    An entry of LD_LIBRARY_PATH without a copy of such a file cannot be guilty. Without a framework, settings
    that steer only Python or frameworks cannot be either.
    """
    families = {os.path.basename(p).split(".so")[0] for p in brought}
    suspects = []
    for entry in dict.fromkeys(environ.get("LD_LIBRARY_PATH", "").split(":")):
        files = [f for f in list_libraries(entry or ".") if os.path.basename(f).split(".so")[0] in families]
        stub = _is_stub(entry)
        # Colab and containers find the driver by a folder with its libcuda.
        if stub or (files and not os.path.exists(os.path.join(entry, "libcuda.so.1"))):
            suspects.append(Suspect(variable="LD_LIBRARY_PATH", part=entry, files=tuple(files)))
    preloaded = re.split(r"[ :]+", environ.get("LD_PRELOAD", ""))
    suspects += [Suspect(variable="LD_PRELOAD", part=p, files=(p,)) for p in preloaded if p]
    if framework:
        entries = dict.fromkeys(environ.get("PYTHONPATH", "").split(":"))
        suspects += [Suspect(variable="PYTHONPATH", part=e) for e in entries if e]
        if user_site and os.path.isdir(user_site):
            suspects.append(Suspect(variable="user site", part=user_site))
    steering = re.compile("|".join((_STEERING[""], _STEERING[framework]) if framework else (_STEERING[""],)))
    return suspects + [Suspect(variable=k, part=v) for k, v in sorted(environ.items()) if steering.match(k)]


def _is_stub(entry: str) -> bool:
    """Return whether a folder is the toolkit's folder `stubs`, which contains a stub libcuda."""
    return os.path.basename(entry.rstrip("/")) == "stubs" and os.path.exists(
        os.path.join(entry, "libcuda.so.1")
    )


def remove_suspects(environ: Mapping[str, str], removed: Sequence[Suspect]) -> dict[str, str]:
    """Return the variables without some suspects. A variable that becomes empty is unset."""
    left = dict(environ)
    for suspect in removed:
        if suspect.variable == "user site":
            left["PYTHONNOUSERSITE"] = "1"
        elif suspect.variable in ("LD_LIBRARY_PATH", "PYTHONPATH"):
            parts = [p for p in left.get(suspect.variable, "").split(":") if p != suspect.part]
            left[suspect.variable] = ":".join(parts)
        elif suspect.variable == "LD_PRELOAD":
            parts = [p for p in re.split(r"[ :]+", left.get("LD_PRELOAD", "")) if p != suspect.part]
            left["LD_PRELOAD"] = ":".join(parts)
        else:
            left.pop(suspect.variable, None)
        if left.get(suspect.variable) == "":
            del left[suspect.variable]
    return left


def search_guilty(
    environ: Mapping[str, str], suspects: Sequence[Suspect], cured: Callable[[Mapping[str, str]], bool]
) -> tuple[Suspect, ...]:
    """Return a smallest set of suspects whose removal cures, or () if the removal of all does not.

    The search is delta debugging (Zeller and Hildebrandt 2002): halves, then quarters and their complements. It
    finds one guilty suspect among n in about log n runs.
    """

    def cures(removed: Sequence[Suspect]) -> bool:
        return cured(remove_suspects(environ, removed))

    if not suspects or not cures(suspects):
        return ()
    guilty, parts = list(suspects), 2
    while len(guilty) > 1:
        size = -(-len(guilty) // parts)
        chunks = [guilty[i : i + size] for i in range(0, len(guilty), size)]
        smaller = next((c for c in chunks if cures(c)), None)
        if smaller is not None:
            guilty, parts = smaller, 2
            continue
        rests = [[s for s in guilty if s not in c] for c in chunks] if len(chunks) > 2 else []
        smaller = next((r for r in rests if cures(r)), None)
        if smaller is not None:
            guilty, parts = smaller, max(parts - 1, 2)
        elif parts >= len(guilty):
            break
        else:
            parts = min(len(guilty), parts * 2)
    return tuple(guilty)


def explain_settings(guilty: Sequence[Suspect], mapped: Sequence[str], cause: str | None) -> Finding:
    """Return the finding: which variable, which part of it, and which file it brought in.

    `mapped` are the files that the failing process had loaded. `cause` is the cause of the failure itself.
    """
    evidence, libraries = [], []
    for suspect in guilty:
        brought = [p for p in mapped if _is_from(p, suspect)] or list(suspect.files[:1])
        libraries += brought
        evidence.append(Evidence(text=suspect.named, source=suspect.variable))
        evidence += [Evidence(text="loaded because of this setting", source=path) for path in brought[:4]]
    return make_finding(
        "setting_breaks_environment",
        tuple(evidence),
        confidence="certain",
        cause=_choose_cause(guilty, libraries, cause),
        settings=" and ".join(s.named for s in guilty),
        library=libraries[0] if libraries else None,
        it="it" if len(guilty) == 1 else "them",
        steps="; ".join(
            _describe_fix(s) if s is guilty[0] else _describe_fix(s)[0].lower() + _describe_fix(s)[1:]
            for s in guilty
        )
        + ".",
    )


def _is_from(path: str, suspect: Suspect) -> bool:
    folder = os.path.realpath(suspect.part)
    real = os.path.realpath(path)
    return real == folder or os.path.dirname(real) == folder or real in map(os.path.realpath, suspect.files)


def _choose_cause(guilty: Sequence[Suspect], libraries: Sequence[str], said: str | None) -> str:
    names = [os.path.basename(p) for p in libraries]
    if any(n.startswith("libcudnn") for n in names):
        return "cudnn_shadowed_by_other_copy"
    if any(_is_stub(s.part) for s in guilty if s.variable == "LD_LIBRARY_PATH"):
        return "cuda_stub_library_loaded"
    if names and all(s.variable in ("LD_LIBRARY_PATH", "LD_PRELOAD") for s in guilty):
        return "nvidia_lib_symbol_mismatch"
    if any(s.variable in HIDING for s in guilty):
        return "visible_devices_invalid"
    if said == "forked_after_cuda_init":
        return said  # code on PYTHONPATH did it, but the cause is the fork
    if any(s.variable in ("PYTHONPATH", "user site") for s in guilty):
        return "conflicting_frameworks_in_one_env"
    return said if said in _KEPT else "variable_breaks_framework"


def _describe_fix(suspect: Suspect) -> str:
    if suspect.variable == "user site":
        return f"Set PYTHONNOUSERSITE=1, or remove the copy in {suspect.part}"
    if suspect.variable in ("LD_LIBRARY_PATH", "PYTHONPATH", "LD_PRELOAD"):
        return f"Remove {suspect.part} from {suspect.variable}"
    return f"Unset {suspect.variable}"


# --- startup files (.pth, sitecustomize, usercustomize) that hide the GPUs ---
#
# The driver's stages run without them, a framework runs with them. If only the framework sees no GPU, Python is
# started once more with an audit hook.
_SECONDS = 60.0


def explain_startup_files(env: Environment, environ: Mapping[str, str], framework: str) -> Finding | None:
    """Return the finding for the startup file that hides the GPUs, with its line.

    Return None if no startup file sets a variable or imports a framework.
    """
    request = {"variables": list(HIDING), "frameworks": list(FRAMEWORKS)}
    try:
        report = run_probe.run_probe(
            env.python,
            ("report", "startup_files"),
            request,
            run_probe.ChildSettings(environ=environ, timeout=_SECONDS, options=("-S",)),
        )
    except OSError:
        return None  # the framework's stage has reported that this Python does not start
    rows = report.all("startup")
    set_ = [r for r in rows if r["what"] in HIDING]
    if set_:
        return _explain_variable(set_[-1])
    imported = next((r for r in rows if r["value"] == framework), None)
    return _explain_import(imported) if imported else None


def _explain_variable(row: Mapping[str, Any]) -> Finding:
    """Return the finding for a file that sets a variable. The last such file decides."""
    what = f"sets {row['what']}={row['value']!r}" if row["value"] is not None else f"unsets {row['what']}"
    return make_finding(
        "startup_file_sets_variable",
        _list_evidence(row, what),
        confidence="certain",
        file=row["file"],
        line=row["line"],
        action=what,
    )


def _explain_import(row: Mapping[str, Any]) -> Finding:
    """Return the finding for a file that imports the framework before the program does. Its effect is unknown."""
    return make_finding(
        "startup_file_imports_framework",
        _list_evidence(row, f"imports {row['value']}"),
        file=row["file"],
        line=row["line"],
        framework=row["value"],
    )


def _list_evidence(row: Mapping[str, Any], what: str) -> tuple[Evidence, ...]:
    evidence = [Evidence(text=f"{what} at each start of Python", source=row["file"], line=row["line"])]
    if row["pth"]:
        evidence.append(
            Evidence(text="the line that runs this file", source=row["pth"][0], line=row["pth"][1])
        )
    return tuple(evidence)
