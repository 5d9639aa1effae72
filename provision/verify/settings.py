"""Searches the user's settings for the one that breaks an environment.

Suspects are entries of LD_LIBRARY_PATH with a library that the environment contains too, LD_PRELOAD, entries of
PYTHONPATH, PYTHONHOME, the user's site-packages, and the variables that steer cuDNN and frameworks. The first run removes
all suspects. If it still fails, no suspect is guilty.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence

from ..model import FRAMEWORKS, Environment, Evidence, Finding
from ..model.values import Value
from ..profiles.wording import make_finding
from ..system.search import find_smallest
from .libraries import list_libraries
from .probe import run_probe
from .state import State

# Variables that steer cuDNN, CUDA and each framework. TF_VAR_*, TF_CLI_* and the like are Terraform's;
# CUDA_VERSION names the CUDA of a container's image. No part of CUDA reads it.
_STEERING = {
    "": r"CUDNN_|CUDA_(?!HOME$|PATH|VERSION$)|NVIDIA_TF32_OVERRIDE$",
    "torch": r"TORCH_|PYTORCH_|ONEDNN_|DNNL_",
    "tensorflow": r"TF_(?!VAR_|CLI_|LOG|DATA_DIR$|WORKSPACE$|IN_AUTOMATION$|PLUGIN_CACHE|INPUT$)|XLA_|ONEDNN_|DNNL_",
    "jax": r"XLA_|JAX_",
    "onnxruntime": r"ORT_",
}
_LISTS = ("LD_LIBRARY_PATH", "PYTHONPATH", "LD_PRELOAD")
_HIDING = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "JAX_PLATFORMS", "JAX_PLATFORM_NAME")
"""Variables that hide GPUs from a framework."""
_KEPT = (
    "gpu_memory_exhausted",
    "preallocation_leaves_no_memory",
    "ptxas_missing_or_too_old",
    "cuda_stub_library_loaded",
)
"""Causes that a variable only brings about: they stay the cause where it is guilty."""


class Suspect(Value, kw_only=False):
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
        return (
            f"{self.part} in {self.variable}" if self.variable in _LISTS else f"{self.variable}={self.part}"
        )

    @property
    def fix(self) -> str:
        if self.variable == "user site":
            return f"Set PYTHONNOUSERSITE=1, or remove the copy in {self.part}"
        return (
            f"Remove {self.part} from {self.variable}"
            if self.variable in _LISTS
            else f"Unset {self.variable}"
        )


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
        driver = os.path.exists(os.path.join(entry, "libcuda.so.1"))
        # Colab and containers find the driver by a folder with its libcuda.
        if _is_stubs(entry) if driver else files:
            suspects.append(Suspect("LD_LIBRARY_PATH", entry, tuple(files)))
    preloaded = re.split(r"[ :]+", environ.get("LD_PRELOAD", ""))
    suspects += [Suspect("LD_PRELOAD", p, (p,)) for p in preloaded if p]
    if framework:
        entries = dict.fromkeys(environ.get("PYTHONPATH", "").split(":"))
        suspects += [Suspect("PYTHONPATH", e) for e in entries if e]
        suspects += [Suspect("PYTHONHOME", e) for e in (environ.get("PYTHONHOME"),) if e]
        if user_site and os.path.isdir(user_site):
            suspects.append(Suspect("user site", user_site))
    steering = re.compile("|".join((_STEERING[""], *([_STEERING[framework]] if framework else []))))
    return suspects + [Suspect(k, v) for k, v in sorted(environ.items()) if steering.match(k)]


def _is_stubs(entry: str) -> bool:
    """Return whether a folder is the toolkit's, which contains a stub libcuda."""
    return os.path.basename(entry.rstrip("/")) == "stubs"


def remove_suspects(environ: Mapping[str, str], removed: Sequence[Suspect]) -> dict[str, str]:
    """Return the variables without some suspects. A variable that becomes empty is unset."""
    left = dict(environ)
    for suspect in removed:
        name = suspect.variable
        if name == "user site":
            left["PYTHONNOUSERSITE"] = "1"
        elif name in _LISTS:
            parts = re.split(r"[ :]+" if name == "LD_PRELOAD" else ":", left.get(name, ""))
            left[name] = ":".join(p for p in parts if p != suspect.part)
        if name not in _LISTS or not left[name]:
            left.pop(name, None)
    return left


def search_settings(
    state: State,
    framework: str | None,
    cured: Callable[[Mapping[str, str]], bool],
    mapped: Sequence[str],
) -> None:
    """Search the setting to blame, and put the finding before those of the failure itself."""
    suspects = list_suspects(state.environ, state.installed.files, state.paths.user_site, framework)
    if not suspects:
        return
    state.announce("note", "running again without " + ", ".join(s.variable for s in suspects))
    if guilty := search_guilty(state.environ, suspects, cured):
        state.blamed = True
        cause = state.findings[-1].cause if state.findings else None
        state.findings.insert(0, explain_settings(guilty, mapped, cause))


def search_guilty(
    environ: Mapping[str, str], suspects: Sequence[Suspect], cured: Callable[[Mapping[str, str]], bool]
) -> tuple[Suspect, ...]:
    """Return a smallest set of suspects whose removal cures, or () if the removal of all does not."""

    def cures(removed: Sequence[Suspect]) -> bool:
        return cured(remove_suspects(environ, removed))

    return tuple(find_smallest(suspects, cures)) if suspects and cures(suspects) else ()


def explain_settings(guilty: Sequence[Suspect], mapped: Sequence[str], cause: str | None) -> Finding:
    """Return the finding: which variable, which part of it, and which file it brought in.

    `mapped` are the files that the failing process had loaded. `cause` is the cause of the failure itself.
    """
    evidence, libraries = [], []
    for suspect in guilty:
        brought = [p for p in mapped if _is_from(p, suspect)] or list(suspect.files[:1])
        libraries += brought
        evidence.append(Evidence(suspect.named, suspect.variable))
        evidence += [Evidence("loaded because of this setting", path) for path in brought[:4]]
    first, *others = (s.fix for s in guilty)
    return make_finding(
        "setting_breaks_environment",
        tuple(evidence),
        cause=_choose_cause(guilty, libraries, cause),
        settings=" and ".join(s.named for s in guilty),
        library=libraries[0] if libraries else None,
        it="them" if others else "it",
        steps="; ".join([first, *(fix[0].lower() + fix[1:] for fix in others)]) + ".",
    )


def _is_from(path: str, suspect: Suspect) -> bool:
    folder, real = os.path.realpath(suspect.part), os.path.realpath(path)
    return folder in (real, os.path.dirname(real)) or real in map(os.path.realpath, suspect.files)


def _choose_cause(guilty: Sequence[Suspect], libraries: Sequence[str], failure: str | None) -> str:
    """Return the cause. `failure` is that of the failure itself."""
    names, variables = [os.path.basename(p) for p in libraries], {s.variable for s in guilty}
    if any(n.startswith("libcudnn") for n in names):
        return "cudnn_shadowed_by_other_copy"
    if any(
        s.variable == "LD_LIBRARY_PATH" and _is_stubs(s.part) and os.path.exists(f"{s.part}/libcuda.so.1")
        for s in guilty
    ):
        return "cuda_stub_library_loaded"
    if names and variables <= {"LD_LIBRARY_PATH", "LD_PRELOAD"}:
        return "nvidia_lib_symbol_mismatch"
    if not variables.isdisjoint(_HIDING):
        return "visible_devices_invalid"
    if failure == "forked_after_cuda_init":
        return failure  # code on PYTHONPATH did it, but the cause is the fork
    if not variables.isdisjoint(("PYTHONPATH", "user site")):
        return "conflicting_frameworks_in_one_env"
    return failure if failure in _KEPT else "variable_breaks_framework"


# --- startup files (.pth, sitecustomize, usercustomize) that hide the GPUs -----------------------
#
# The driver's stages run without them, a framework runs with them. If only the framework sees no GPU, Python is
# started once more with an audit hook.
_SECONDS = 60.0


def explain_startup_files(env: Environment, environ: Mapping[str, str], framework: str) -> Finding | None:
    """Return the finding for the startup file that hides the GPUs, with its line: the last one that sets such a
    variable, else the first one that imports the framework before the program does, whose effect is unknown.

    Return None if no startup file sets a variable or imports a framework.
    """
    request = {"variables": list(_HIDING), "frameworks": list(FRAMEWORKS)}
    report = run_probe(
        env.python, ("report", "startup_files"), request, environ=environ, timeout=_SECONDS, options=("-S",)
    )
    rows = report.all("startup")
    setting = next((r for r in reversed(rows) if r["what"] in _HIDING), None)
    row = setting or next((r for r in rows if r["value"] == framework), None)
    if row is None:
        return None
    name, value, file, line = row["what"], row["value"], row["file"], row["line"]
    what = f"imports {value}"
    if setting:
        what = f"unsets {name}" if value is None else f"sets {name}={value!r}"
    evidence = [Evidence(f"{what} at each start of Python", file, line)]
    if row["pth"]:
        evidence.append(Evidence("the line that runs this file", row["pth"][0], row["pth"][1]))
    return make_finding(
        "startup_file_sets_variable" if setting else "startup_file_imports_framework",
        tuple(evidence),
        file=file,
        line=line,
        action=what,
        framework=value,
    )
