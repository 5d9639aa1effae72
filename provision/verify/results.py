"""Judges the stages of a framework from the report of its process: the import, what it computed, what it loaded."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..environment.distributions import list_distributions
from ..model import (
    NVIDIA_LIBRARY_FAMILIES,
    TORCH_COMPANIONS,
    DeviceVerdict,
    Evidence,
    Finding,
    FrameworkVerdict,
    GradedResult,
    LibraryFile,
    format_cudnn,
)
from ..profiles.wording import make_finding
from ..system.redaction import clean
from ..system.versions import public
from .causes import (
    explain_cudnn_call,
    explain_kernels,
    explain_signal,
)
from .disk import explain_removed, explain_unloaded
from .libraries import (
    CUDNN_PACKAGE,
    LibraryPackage,
    is_inside,
    map_owners,
    shorten_version,
)
from .probe import GRADED, ProbeReport
from .state import FRAMEWORK_STAGES, Judgement, State, fail_with


class Results:
    """The results of a framework: the judgements of its stages by the report of its process, and the libraries that it mapped.

    `wrong` is true if numbers were wrong, or another cuDNN than the environment's ran.
    """

    def __init__(self, state: State, name: str, report: ProbeReport) -> None:
        self.state, self.name, self.report = state, name, report
        self.saw: Mapping[str, Any] = report.last("framework") or {}
        self.libraries: tuple[LibraryFile, ...] = ()
        self.stages: dict[str, Judgement] = {}
        self.wrong = False

    @property
    def is_bad(self) -> bool:
        """Whether a stage failed, or another library than the environment's was loaded."""
        return any(j.status == "fail" or j.foreign for j in self.stages.values())

    def judge(self) -> Results:
        """Judge the stages, and return these results."""
        state, report = self.state, self.report
        stages = self.stages = {"framework": self.judge_import()}
        if state.options.quick:
            stages |= dict.fromkeys(FRAMEWORK_STAGES[1:], Judgement("skip", "not run with --quick"))
            return self
        owners = map_owners(state.installed.packages)
        self.libraries = list_mapped(report, state.paths.roots, owners, state.device)
        for stage in ("convolution", "matmul", "attention"):
            judged = self._judge_failure(stage) or _judge_early_end(report, stage)
            stages[stage] = judged or self._judge_graded(stage)
        if stages["attention"].status == "fail":
            stages["attention"] = self._suggest_backend(stages["attention"])
        judged = self._judge_death("loaded") or _judge_early_end(report, "loaded", "extensions")
        stages["loaded"] = loaded = judged or self.judge_loaded()
        failed = None
        for stage, judged in stages.items():
            if failed:
                stages[stage] = Judgement("skip", f"the {failed} stage failed", foreign=judged.foreign)
            elif judged.status == "fail":
                failed = stage
        other = state.device != "cpu" and stages["convolution"].status == "pass"
        other = other and any("libcudnn" in p for p in loaded.foreign)
        self.wrong = other or any(not c.ok for d in self.verdict.devices for c in d.results)
        return self

    @property
    def cudnn(self) -> LibraryFile | None:
        """The libcudnn of the process."""
        return next((x for x in self.libraries if x.soname.startswith("libcudnn.so")), None)

    @functools.cached_property
    def verdict(self) -> FrameworkVerdict:
        state, saw, main = self.state, self.saw, self.cudnn
        reported = {d["index"]: d for d in saw.get("devices", ())}
        if state.device == "cpu":
            reported = {-1: reported.get(-1, {})}
        read = (
            {d["index"]: d for d in state.gpu_report.values("driver").get("devices", ())}
            if state.gpu_report
            else {}
        )

        def collect(stage: str, index: int) -> tuple[GradedResult, ...]:
            return tuple(
                GradedResult(
                    case=r["case"], dtype=r["dtype"], pass_=r["which"], max_error=r["error"], tolerance=r["tolerance"],
                    ok=r["ok"],
                )
                for r in self.report.all(stage)
                if r["device"] == index
            )  # fmt: skip

        devices = []
        for index, device in reported.items():
            known = {**read.get(index, {}), **{k: v for k, v in device.items() if v}}
            devices.append(
                DeviceVerdict(
                    index=index, uuid=known.get("uuid"), name=known.get("name"), capability=known.get("capability"),
                    convolutions=collect("convolution", index), matmuls=collect("matmul", index),
                    attentions=collect("attention", index),
                )
            )  # fmt: skip
        return FrameworkVerdict(
            name=self.name,
            version=saw.get("version"),
            cuda=saw.get("cuda"),
            cudnn_built=format_cudnn(saw.get("cudnn_built")),
            cudnn_loaded=shorten_version(main.version if main else None) or format_cudnn(saw.get("cudnn")),
            devices=tuple(devices),
            libraries=self.libraries,
        )

    def _judge_death(self, stage: str) -> Judgement | None:
        """Judge the stage in which the process ended badly. A process that reached no stage failed in `framework`."""
        state, report = self.state, self.report
        if report.death is None or (report.stage or "framework") != stage:
            return None
        evidence = (Evidence(report.death, stage), *report.complaints(), *report.words())
        last, low = clean(report.finished.stderr)[-4000:], state.low_memory
        explained = state.explain(last)
        finding = (
            (explained if explained and explained.confidence == "certain" else None)
            or explain_unloaded(state, self.name, f"{report.death}\n{last}")
            or explained
            # some calls into CUDA end the process where they get no memory
            or (explain_cudnn_call({"call": report.death}, report.complaints(), low) if low else None)
            or explain_signal(report.finished, evidence)
        )
        return Judgement("fail", report.death, evidence, finding)

    def _judge_failure(self, stage: str) -> Judgement | None:
        """Judge the stage in which the process ended badly, or the framework raised an exception."""
        state, name, report, saw = self.state, self.name, self.report, self.saw
        failed = next((r for r in report.all("failed") if r["stage"] == stage), None)
        if (died := self._judge_death(stage)) or failed is None:
            return died
        text, stderr, low = failed["text"], report.finished.stderr, state.low_memory
        evidence = (Evidence(clean(text, 2000), stage), *report.complaints(), *report.words(4))
        removed = explain_removed(name, state.env, state.paths) if stage == "framework" else None
        # JAX's exception only says that there is no GPU. The reason is in its log.
        words = (text, clean(stderr)[-8000:])
        explained = (explain_kernels(part, saw, evidence) or state.explain(part) for part in words)
        finding = removed or explain_unloaded(state, name, text) or next(filter(None, explained), None)
        unseen = stage == "framework" and state.device != "cpu" and saw and not saw.get("devices")
        if finding is None and unseen:
            finding = self._explain_unseen_gpu()
        # With little free memory, any status of cuDNN and an invisible GPU mean that memory ran out.
        if finding is None or (low and finding.cause in ("gpu_memory_exhausted", "visible_devices_invalid")):
            call = {"call": failed["error"], "text": text}
            finding = explain_cudnn_call(call, report.complaints(), low) or explain_unloaded(
                state, name, stderr
            )
        detail = clean(text.splitlines()[0], 300) if text else failed["error"]
        return Judgement("fail", detail, evidence, finding)

    # --- the import ---

    def judge_import(self) -> Judgement:
        """Judge the stage framework, and compare a framework that works with the lock.

        Another version in the environment is a warning, but for a probe that only imported the framework: then it is
        left to the stage `lock`. A framework that is imported from outside the environment is a failure.
        """
        state, name, saw = self.state, self.name, self.saw
        if bad := self._judge_failure("framework"):
            return bad
        if not saw:
            return Judgement("fail", f"{name} reported nothing", self.report.words())
        named = f"{name} {saw['version']}"
        evidence = (Evidence(saw["file"], "imported from"),)
        if state.device == "cpu":
            judged = Judgement("pass", named, evidence)
        elif not saw["cuda"] or not saw["devices"]:
            return fail_with(self._explain_unseen_gpu())
        else:
            cudnn = format_cudnn(saw.get("cudnn")) or "not reported"
            gpus = f"{len(saw['devices'])} GPU{'s' if len(saw['devices']) > 1 else ''}"
            first = (
                "; call onnxruntime.preload_dlls() before the first session" if saw.get("preloaded") else ""
            )
            judged = Judgement("pass", f"{named}, CUDA {saw['cuda']}, cuDNN {cudnn}, {gpus}{first}", evidence)
        locked = None
        if state.lock:  # its package can have another name, as onnxruntime-gpu
            builds, packages = state.lock.plan.builds, state.lock.packages
            package = next((b.package_name for b in builds if b.framework == name), name)
            locked = next((p.version for p in packages if p.name == package), None)
        if not locked or public(locked) == public(saw["version"]):
            return judged
        inside = is_inside(saw["file"], state.paths.roots)
        if inside and state.options.quick:
            return judged
        detail = f"{named} was imported, but the lock has {locked}"
        return replace(judged, status="warn" if inside else "fail", detail=detail)

    def _explain_unseen_gpu(self) -> Finding:
        """Return why a framework sees no GPU: a build for the CPU, a library that the loader did not find, or its log."""
        saw, stderr, shown = self.saw, self.report.finished.stderr, self.report.words(6)
        named = f"{self.name} {saw['version']}"
        if not saw["cuda"]:
            return make_finding(
                "framework_for_cpu", (Evidence(saw["file"], "imported from"),), framework=named
            )
        row = "framework_misses_libraries" if "dlopen" in stderr else "framework_sees_no_gpu"
        return (
            explain_unloaded(self.state, self.name, stderr)
            or self.state.explain(stderr)
            or make_finding(row, shown, confidence="possible", framework=named)
        )

    # --- convolutions, matrix products and attention ---

    def _judge_graded(self, stage: str) -> Judgement:
        """Judge the graded results of a stage. What ran them is named from the API logs and the framework's own word."""
        report = self.report
        rows = report.all(stage)
        unserved = [
            Evidence(f"{r['case']} {r['dtype']}: {r['reason']}", "not checked")
            for r in report.all("unserved")
            if r["stage"] == stage
        ]
        if not rows:
            if stage == "convolution":
                return Judgement("fail", "no convolution was run", report.words())
            return Judgement("skip", f"{self.name} has no {stage} of its own")
        reasons = {r["dtype"]: f"at most {r['tolerance']:g}: {r['reason']}" for r in rows}
        evidence = tuple(Evidence(text, f"tolerance of {dtype}") for dtype, text in reasons.items())
        if wrong := [r for r in rows if not r["ok"]]:
            shown = tuple(Evidence(_describe_row(r), f"device {r['device']}") for r in wrong[:12])
            gpus = None if self.state.device == "cpu" else "several GPUs"
            finding = make_finding("framework_gives_wrong_numbers", shown, gpus=gpus)
            detail = f"{len(wrong)} of {len(rows)} results are wrong; first: {_describe_row(wrong[0])}"
            return Judgement("fail", detail, (*shown, *evidence), finding)
        worst = max(rows, key=lambda r: r["error"] / r["tolerance"])
        error, limit = worst["error"], worst["tolerance"]
        detail = f"{len(rows)} {_NAMES[stage]} correct; largest error {error:.2g} (limit {limit:.0e})"
        judged = Judgement("pass", detail, (*evidence, *unserved))
        if stage == "matmul" and (calls := _PRODUCTS.findall(report.read_log(stage))):
            names = sorted({own or light for own, light in calls})
            return replace(
                judged, detail=f"{detail}; cuBLAS was called {len(calls)} times",
                evidence=(Evidence(", ".join(names), "cuBLAS's API log"), *judged.evidence),
            )  # fmt: skip
        return _judge_backends(judged, report) if stage == "attention" else judged

    def _suggest_backend(self, judged: Judgement) -> Judgement:
        """Name a backend that works where the default fails."""
        working = [backend for backend, problem in _list_backends(self.report).items() if problem is None]
        if not working:
            return judged
        finding = make_finding(
            "attention_default_fails", judged.evidence[:4], framework=self.name, working=" and ".join(working),
            how=_CHOICES[self.name].format(working[0]),
        )  # fmt: skip
        return replace(judged, finding=finding)

    # --- the NVIDIA libraries that the framework loaded ---

    def judge_loaded(self) -> Judgement:
        """Judge the stage `loaded`."""
        device, libraries = self.state.device, self.libraries
        if not libraries:
            if device == "cpu":
                return Judgement("skip", "on the CPU no NVIDIA library is loaded")
            return Judgement("warn", f"{self.name} did not load an NVIDIA library, so cuDNN was not used")
        evidence = tuple(
            Evidence(
                f"{_describe_library(lib)}{f' of {lib.owner}' if lib.owner else ', not part of a package'}",
                lib.path,
            )
            for lib in libraries
        )
        if problem := self._find_foreign(evidence) or self._find_mixed(evidence):
            return problem
        if device == "cpu":
            detail = f"{len(libraries)} NVIDIA libraries are loaded. On the CPU, none of them is used"
            return Judgement("pass", detail, evidence)
        log = self.report.read_log("convolution")
        calls = _CALLED.findall(log)
        if not calls:
            why = self._explain_not_called()
            shown = Evidence(why, "cuDNN's API log")
            detail = f"{self.name} did not call cuDNN for its convolutions: {why}"
            return Judgement("warn", detail, (shown, *evidence))
        outside = [lib for lib in libraries if not lib.inside]
        answered = _ANSWERED.findall(log)
        versions = sorted({f"{format_cudnn(int(n))}{'.' + last if last else ''}" for n, last in answered})
        names = ", ".join(sorted(set(calls)))
        text = f"{len(calls)} calls of {names}, executed by cuDNN {' and '.join(versions)}"
        where = f"{len(outside)} of them from the system" if outside else "all from the environment"
        return Judgement(
            "warn" if outside else "pass",
            f"cuDNN was called {len(calls)} times; {len(libraries)} libraries, {where}",
            (Evidence(text, "cuDNN's API log"), *evidence),
        )

    def _find_foreign(self, evidence: tuple[Evidence, ...]) -> Judgement | None:
        """Judge libraries from elsewhere that were loaded in place of the environment's. libcublasLt belongs to the
        family libcublas."""

        def family(path: str) -> str | None:
            return next((f for f in NVIDIA_LIBRARY_FAMILIES if os.path.basename(path).startswith(f)), None)

        own = {name for path in self.state.installed.files if (name := family(path))}
        foreign = [lib for lib in self.libraries if not lib.inside and family(lib.path) in own]
        if not foreign:
            return None
        paths = tuple(lib.path for lib in foreign)
        cudnn = next((lib for lib in foreign if lib.soname.startswith("libcudnn")), None)
        first = cudnn or foreign[0]
        finding = make_finding(
            "cudnn_shadowed" if cudnn else "library_shadowed",
            tuple(e for e in evidence if e.source in paths),
            library=_describe_library(first),
            folder=os.path.dirname(first.path),
        )
        return Judgement("fail" if cudnn else "warn", finding.title, evidence, finding, paths)

    def _find_mixed(self, evidence: tuple[Evidence, ...]) -> Judgement | None:
        """Judge a process with more than one copy of cuDNN, by folder, or with another one than the lock's."""
        paths = (os.path.realpath(x.path) for x in self.libraries if x.soname.startswith("libcudnn"))
        folders = {os.path.dirname(path) for path in paths}
        if len(folders) > 1:
            shown = tuple(e for e in evidence if "libcudnn" in (e.source or ""))
            named = ", ".join(sorted(folders))
            return fail_with(make_finding("two_cudnn_loaded", shown, folders=named))
        lock, main = self.state.lock, self.cudnn
        packages = lock.packages if lock else ()
        locked = next((p for p in packages if CUDNN_PACKAGE.match(p.name)), None)
        if locked is None or main is None or shorten_version(main.version) == shorten_version(locked.version):
            return None
        finding = make_finding(
            "loaded_cudnn_not_as_locked", evidence[:4], loaded=main.version,
            locked=f"{locked.name} {locked.version}",
        )  # fmt: skip
        return fail_with(finding, foreign=(main.path,))

    def _explain_not_called(self) -> str:
        if self.saw.get("cudnn_enabled") is False:
            return (
                "torch.backends.cudnn.enabled is False, so torch used its own kernels. Remove the line that sets it "
                "from your program, or from the sitecustomize or usercustomize module that Python runs at startup"
            )
        if not any(x.soname.startswith("libcudnn") for x in self.libraries):
            return "no libcudnn was loaded"
        return "its API log contains no compute calls"


def _judge_early_end(report: ProbeReport, *stages: str) -> Judgement | None:
    """Judge the stage in which code of the environment ended the process with status 0."""
    if report.last("done") or report.death or (report.stage or "framework") not in stages:
        return None
    graded = sum(len(report.all(kind)) for kind in GRADED)
    detail = f"the process ended after {graded} results, before the test was complete"
    return Judgement("fail", detail, report.words())


def judge_extensions(name: str, report: ProbeReport) -> Judgement | None:
    """Judge the extensions that the probe loaded. Return None if there are none, or all load.

    A library that is not found is for the stage packages, which knows where the package's modules look for it.
    """
    refused = [
        (r["package"], r["path"], r["error"])
        for r in report.all("extension")
        if r["error"]
        and ("cannot open shared object file" not in r["error"] or _is_needed(r["package"], r["path"]))
    ]
    last = report.last("begin")
    if report.death and last and last["stage"] == "extensions":
        refused.append((last["package"], last["doing"].removeprefix("loading "), report.death))
    if not refused:
        return None
    build = str((report.last("framework") or {}).get("version", name))
    finding = make_finding(
        "extension_does_not_load",
        tuple(Evidence(error, path) for _, path, error in refused),
        packages=", ".join(dict.fromkeys(package for package, _, _ in refused)),
        framework=f"{name} {build}",
        name=name,
        package=refused[0][0].split()[0],
    )
    needed = any(_is_needed(package, path) for package, path, _ in refused)
    return replace(fail_with(finding), status="fail" if needed else "warn")


def judge_numpy(name: str, report: ProbeReport) -> Judgement | None:
    """Return a warning if a framework cannot read arrays of the installed NumPy, else None."""
    if (refused := report.last("numpy")) is None:
        return None
    evidence = (Evidence(refused["error"], f"{name}.from_numpy, NumPy {refused['version']}"),)
    return replace(fail_with(make_finding("numpy_interface_differs", evidence)), status="warn")


def _is_needed(package: str, path: str) -> bool:
    """Return whether most programs load an extension: torch's companions have their operators in `_C`.

    A refused file of another package gives a warning, because the program may never import it.
    """
    return package.split(maxsplit=1)[0] in TORCH_COMPANIONS and os.path.basename(path).startswith("_C")


# --- convolutions, matrix products and attention --------------------------------------------------

_NAMES = {"convolution": "convolutions", "matmul": "matrix products", "attention": "results of attention"}


# A call of cuBLAS as "I! cuBLAS (v13.1.0) function cublasStatus_t cublasSgemm_v2(", of cuBLASLt as "[Trace][cublasLtMatmul]"
_PRODUCTS = re.compile(
    r"^I! cuBLAS .*? function cublasStatus_t (\w+)\(|^\[.*?\[Trace\]\[(\w+)\]", re.MULTILINE
)


_CHOICES = {
    "torch": "with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.{}):",
    "jax": 'jax.nn.dot_product_attention(..., implementation="{}")',
}
"""How a program of a framework names a backend."""


def _judge_backends(judged: Judgement, report: ProbeReport) -> Judgement:
    """Add to the judgement of attention which backend is the default, and warn of each other that does not work."""
    chosen = sorted({r["backend"] for r in report.all("attention_by")})
    if chosen:
        judged = replace(judged, detail=f"{judged.detail}, by {' and '.join(chosen)}")
    broken = {name: problem for name, problem in _list_backends(report).items() if problem}
    if not broken:
        return judged
    evidence = tuple(Evidence(text, f"backend {name}") for name, text in broken.items())
    detail = f"{judged.detail}. Programs that choose {' or '.join(broken)} fail"
    return replace(judged, status="warn", detail=detail, evidence=(*evidence, *judged.evidence))


def _list_backends(report: ProbeReport) -> dict[str, str | None]:
    """Return each backend of attention that was tried, and its problem or None."""
    backends: dict[str, str | None] = {}
    backend = ""
    for r in report.records:
        if r["kind"] == "backend":
            backend = r["backend"]
            backends.setdefault(backend, None)
        elif r["kind"] == "failed" and r["stage"] == "attention_backend":
            backends[backend] = clean(str(r["text"]), 300)
        elif r["kind"] == "attention_backend" and not r["ok"]:
            backends[backend] = backends[backend] or _describe_row(r)
        elif r["kind"] == "unserved" and r["case"] == backend and not backends.get(backend):
            backends.pop(backend, None)  # unless it failed on another GPU
    if report.death and report.stage == "attention_backend":
        backends[backend] = report.death
    return backends


def judge_extras(reports: Mapping[str, ProbeReport]) -> Judgement:
    """Judge the further operations of `--deep`, by name. Compiling is a warning, because it needs a C compiler."""
    problems: dict[str, str] = {}
    for name, report in reports.items():
        row, failed = report.last("operation"), report.last("failed")
        if failed or report.death or (row and not row["ok"]):
            wrong = (
                f"off by {row['error']:.2g}, at most {row['tolerance']:g}"
                if row and row["error"] is not None
                else "not a number"
            )
            problems[name] = clean(str(failed["text"]), 300) if failed else report.death or wrong
        elif row is None and not report.last("unserved"):
            problems[name] = "the process ended before the result"
    unserved = [
        Evidence(f"{name}: {row['reason']}", "not checked")
        for name, report in reports.items()
        if (row := report.last("unserved"))
    ]
    evidence = (*(Evidence(text, name) for name, text in problems.items()), *unserved)
    if not problems:
        right = ", ".join(name for name, report in reports.items() if report.last("operation"))
        return Judgement("pass", f"correct: {right}", evidence)
    detail = f"{', '.join(problems)} {'does' if len(problems) == 1 else 'do'} not work: {next(iter(problems.values()))}"
    return Judgement("warn" if set(problems) == {"compile"} else "fail", clean(detail, 300), evidence)


def _describe_row(r: Mapping[str, Any]) -> str:
    error = "not a number" if r["error"] is None else f"off by {r['error']:.2g}"
    return f"{r['case']} {r['dtype']} {r['which']}: {error}, at most {r['tolerance']:g}"


# --- the NVIDIA libraries that the framework loaded, and the calls of cuDNN -----------------------

# Functions of cuDNN that compute, as its API log names them: the graph API of 8 and 9, the older one.
_CALLED = re.compile(r"function (cudnnBackendExecute|cudnnConvolution\w+)\(\) called")
# cuDNN's log writes "91900 56": four parts since cuDNN 9, three before.
_ANSWERED = re.compile(r"^I! CuDNN \(v(\d+)(?: (\d+))?\)", re.MULTILINE)


def list_mapped(
    report: ProbeReport,
    roots: Sequence[str],
    owners: Mapping[str, LibraryPackage],
    device: str = "cuda",
) -> tuple[LibraryFile, ...]:
    """Return the mapped NVIDIA libraries, with their versions, and whether they ran.

    `owners` is resolved path -> package.
    """
    last = report.last("mapped")
    libraries = []
    for path, version in last["files"] if last else ():
        owner = owners.get(os.path.realpath(path))
        libraries.append(
            LibraryFile(
                soname=os.path.basename(path),
                path=path,
                version=_choose_version(path, version, owner),
                owner=str(owner) if owner else None,
                inside=is_inside(path, roots) or owner is not None,
                ran=_has_run(path, report, device),
            )
        )
    return tuple(libraries)


def _has_run(path: str, report: ProbeReport, device: str) -> bool | None:
    """Return whether a mapped library was used, or None if that is unknown.

    The convolutions open the libraries that they need, and cuDNN logs its calls. A library that only gpuenv's
    version query opened did not run.
    """
    if device == "cpu":
        return False
    computed = report.last("computed")
    if computed is None:
        return None
    if path not in computed["files"]:
        return False
    if os.path.basename(path).startswith("libcudnn.so"):
        return bool(_CALLED.search(report.read_log("convolution")))
    return None if path in (p for p, _ in report.all("mapped")[0]["files"]) else True


def _choose_version(path: str, reported: str | None, owner: LibraryPackage | None) -> str | None:
    """Return the package's version if it extends the reported one, else that one, else the file name's, else that of
    the only cuDNN wheel beside the file."""
    name = os.path.basename(path)
    packaged = owner.version if owner and owner.name != "torch" else None  # old torch bundles libraries
    extends = reported is None or (
        not name.startswith("libcudnn.so") and str(packaged).startswith(reported + ".")
    )
    if packaged and extends:
        return packaged
    named = re.search(r"\.so\.(\d+\.\d+\.\d+)$", os.path.realpath(path))
    if reported or named:
        return reported or (named and named[1])
    parents = Path(path).parents
    if "libcudnn" not in name or len(parents) < 3:
        return None
    versions = [d.version for d in list_distributions(parents[2]) if d.name.startswith("nvidia-cudnn")]
    return versions[0] if len(versions) == 1 else None


def _describe_library(library: LibraryFile) -> str:
    return f"{library.soname} {library.version}" if library.version else library.soname
