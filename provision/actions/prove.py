"""Prove an environment: the stages of the proof, those after it, and the checks of its project."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from .. import detect, verify
from ..config import rows
from ..config.file import read_check
from ..config.options import Choices, get_cache_dir
from ..config.recall import OwnProject, list_named_packages, read_own_project
from ..detect import machine_for_verdict
from ..detect.device import explain_cpu, list_nvidia_traces
from ..environment import record
from ..errors import GpuenvError, UsageError
from ..model import (
    Check,
    Emit,
    Environment,
    Event,
    Lock,
    StageResult,
    Verdict,
    normalize_name,
)
from ..system import process
from ..verify.state import LAYERS
from .explain import explain_log, explain_program
from .run import find_programs, prepare_variables

if TYPE_CHECKING:
    from ..environment.loader import Package
    from ..model import Finding, Machine, Profiles
    from ..verify.checks import CheckOutcome
    from ..verify.modules import ProjectImport

_TIMED_OUT = 124
"""The exit code of timeout(1) for a command that it ended."""
_IMPORTS = "imports.json"
"""The file of an environment with the modules that its project imports, for --quick."""


@dataclasses.dataclass
class Proof:
    """The proof of an environment, compared with its lock if it has one, and the stages after it.

    `choices` are options of the command, `options` those of the stage. `project` is that of the checks that run.
    """

    env: Environment
    choices: Choices
    emit: Emit
    options: verify.Options = verify.Options()
    lock: Lock | None = None
    project: OwnProject | None = None
    early: verify.EarlyProbes = dataclasses.field(init=False)

    @property
    def _for_cpu(self) -> bool:
        return verify.device_of(self.options, self.lock)[0] == "cpu"

    @contextlib.contextmanager
    def start(
        self, *, driver: bool = True, packages: bool = False, machine: Callable[[], Machine] | None = None
    ) -> Iterator[None]:
        """Run the first probes. The packages are read while they run, if the stage `packages` follows."""
        with verify.run_early_probes(
            self.env,
            self.options,
            driver=driver and not self._for_cpu,
            machine=machine or self.read_machine,
            profiles=lambda: rows.load(self.choices),
            packages=packages,
        ) as self.early:
            yield

    def read_machine(self) -> Machine:
        """Read this machine's driver and GPUs within the time limit of a stage."""
        return machine_for_verdict(seconds=min(self.options.timeout, 30.0))

    def run(self) -> Verdict:
        """Return the verdict of the stages of the proof."""
        diagnose = functools.partial(explain_log, choices=self.choices)
        return verify.verify(self.early, self.options, self.emit, self.lock, diagnose=diagnose)

    def keep(self, verdict: Verdict) -> None:
        """Store the verdict in the environment, with what it depends on. Raises BuildError."""
        env, checks = Path(self.env.path), self.project.digest if self.project else None
        digest = record.lock_digest(self.lock)
        record.keep_verdict(
            env, verdict, record.list_circumstances(env, digest, machine_for_verdict(), checks)
        )

    # --- the stage `packages` ---

    def add_packages(self, verdict: Verdict, *, always: bool = False) -> Verdict:
        """Add the stage `packages` to a verdict. After a failed stage it imports nothing, and is skipped if that stage came
        before the frameworks, unless the files are `always` read."""
        from ..verify import packages

        failed, reading = verdict.failed, self.early.reading
        findings: Sequence[Finding] = ()
        if failed and failed.stage in LAYERS and not always:
            result = StageResult(stage="packages", status="skip", detail=f"the {failed.stage} stage failed")
        else:
            # After a failed stage nothing is imported: it could fail too. The files may show the reason.
            quick, read = bool(failed) or self.options.quick, reading.result()
            if read.doubtful and not quick:
                names = ", ".join(n.package.name for n in read.doubtful)
                self.emit(Event("progress", "verify", f"importing {names}"))
            result, findings = packages.judge(
                read,
                seconds=None if quick else self.options.timeout,
                load_profiles=self._load_libraries,
                list_wanted=self._list_wanted if self.lock else None,
                machine=self.early.machine.result() if read.bad and not self._for_cpu else None,
            )
            result, findings = self._add_project_imports(result, findings, quick=quick)
        return verify.add_stage(verdict, result, findings, self.emit, strict=self.options.strict)

    def _load_libraries(self) -> Profiles:
        """Return the profile rows on libraries, and the rows measured on this machine."""
        from ..lock.measured import read_rows

        known = rows.load(self.choices)
        return dataclasses.replace(known, satellites=(*known.satellites, *read_rows(self.lock, self.choices)))

    def _list_wanted(self, installed: Sequence[Package]) -> Collection[str]:
        """Return the named packages and those that they always require. Without names, what no other package requires is
        named."""
        from ..verify.packages import list_required

        assert self.lock is not None
        python = self.early.python_paths.result().version
        names = list_named_packages(Path(self.env.path), self.lock, self.choices)
        if names is None:
            always = {n for p in installed for n in p.requires_always(python)}
            names = frozenset(p.name for p in installed if p.name not in always)
        return list_required(installed, names, python)

    def _add_project_imports(
        self, result: StageResult, findings: Sequence[Finding], *, quick: bool
    ) -> tuple[StageResult, Sequence[Finding]]:
        """Add a warning about modules that the environment's project imports and the environment lacks.

        `quick` looks up what the last whole proof read. Nothing of the project runs.
        """
        from ..verify import modules

        path, lock = Path(self.env.path), self.lock
        try:
            kept = record.read(path, _IMPORTS).get("imports")
            if not quick:
                found = self._read_project_imports()
                if found is None:
                    return result, findings
                plain = [dataclasses.asdict(one) for one in found]
                if plain != kept:
                    record.write(path, _IMPORTS, {"imports": plain})
                kept = plain
            imports = [modules.ProjectImport(**row) for row in kept or ()]
        except (GpuenvError, TypeError) as error:
            self.emit(Event("note", "verify", f"the project's imports are not known: {error}"))
            return result, findings
        sites = self.early.python_paths.result().sites
        locked = {p.name for p in lock.packages} if lock else set()  # the stage lock names these
        missing = [one for one in modules.find_missing(imports, sites) if one.package not in locked]
        absent = modules.find_absent(imports, sites, rows.load(self.choices).removed_names)
        for finding in (modules.explain_missing(missing), modules.explain_absent(absent)):
            if finding:
                result, findings = modules.add_warning(result, finding), (*findings, finding)
        return result, findings

    def _read_project_imports(self) -> list[ProjectImport] | None:
        """Return the modules that programs of the environment's project cannot run without, or None without a project."""
        from ..requirements.scan import find_package, find_project_imports, list_optional
        from ..verify.modules import ProjectImport

        project = read_own_project(Path(self.env.path), get_cache_dir(self.choices))
        if project is None or project.problem:
            return None
        known = rows.load(self.choices)
        seen = find_project_imports(project.file.parent, known, project.requirements)
        packages = {module: find_package(module, known) for module in seen}
        optional = list_optional(project.file.parent)
        # google is only a part of google.cloud
        parts = {module.partition(".")[0] for module in seen if "." in module}
        found = [
            ProjectImport(module, uses.files[0], packages[module], uses.names)
            for module, uses in seen.items()
            if uses.files
            and (packages[module] or module not in parts)
            and normalize_name(packages[module] or module) not in optional
        ]
        # those of programs near the top first
        return sorted(found, key=lambda one: (one.package is None, one.file.count("/"), one.module.lower()))

    # --- the stage `checks` ---

    def read_project(self) -> None:
        """Read the project of the environment, whose checks are to run. --quick leaves them out. Raises DataError."""
        if not self.options.quick:
            self.project = read_own_project(Path(self.env.path), get_cache_dir(self.choices))

    def run_checks(self, verdict: Verdict, typed: Sequence[Check] = ()) -> Verdict:
        """Add the stage `checks` to a verdict if there are any. They run if no earlier stage failed.

        They run in the project's folder, but a command of the command line runs in the current one.
        """
        from ..verify import checks

        env, project, emit, strict = self.env, self.project, self.emit, self.options.strict
        home = project.file.parent if project and not project.problem else None
        placed = [checks.PlacedCheck(check=c, folder=home) for c in (project.checks if project else ())]
        placed += [checks.PlacedCheck(check=c, folder=Path.cwd() if c.kind == "run" else home) for c in typed]
        if project and project.problem and not (project.missing and placed):
            why = f"the project's checks did not run: {project.problem}"
            verdict = checks.skip_checks(verdict, why, emit, warn=not project.missing, strict=strict)
        if not placed:
            return verdict
        if verdict.failed:
            why = f"the {verdict.failed.stage} stage failed"
            return checks.skip_checks(verdict, why, emit, strict=strict)
        root, programs = find_programs(Path(env.python))
        environ = prepare_variables(emit, root, programs, process.environ())
        environ["PYTHONDONTWRITEBYTECODE"] = "1"  # the project's folder gets none
        device = "cpu" if verdict.verdict == "cpu" else "cuda"
        ended = checks.run_checks(env, placed, environ, emit, timeout=self.options.timeout, device=device)
        ended = tuple(dataclasses.replace(e, findings=self._diagnose_check(e)) for e in ended)
        return checks.add_checks(verdict, ended, emit, strict=strict)

    def _diagnose_check(self, ended: CheckOutcome) -> tuple[Finding, ...]:
        """Diagnose a failed check from what it printed and how it ended."""
        from ..verify.checks import make_command
        from ..verify.compilers import make_lack_finding

        finished, placed, env = ended.finished, ended.placed, self.env
        if ended.result.status == "pass" or not finished:
            return ()
        if ended.missing:
            return (make_lack_finding({"torch.compile": ended.missing}, env),)
        finished = finished._replace(stderr=ended.text)
        if finished.timed_out:  # gpuenv ended it
            finished = finished._replace(returncode=_TIMED_OUT, signal=None)
        return explain_program(
            ended.result.label, Path(env.path), make_command(env, placed.check), finished, ended.before, self.choices,
            placed.folder, self.emit,
        )  # fmt: skip


def read_checks(texts: Sequence[str]) -> tuple[Check, ...]:
    """Return the checks that a command line asks for. Raises UsageError."""
    checks: dict[str, Check] = {}
    for text in texts:
        try:
            check = read_check(text)
        except ValueError as error:
            raise UsageError(
                f"--check {text!r}: {error}", hint="--check 'import cv2', or --check 'python train.py --help'"
            ) from error
        checks[check.label] = check
    return tuple(checks.values())


def explain_no_gpu(doing: str = "", *, seconds: float = 30.0) -> str | None:
    """Return why the CPU is all that this machine has and what gpuenv is `doing` about it, or None if it has an NVIDIA
    GPU or its driver, working or not."""
    machine = detect.detect({"driver", "context", "hardware", "environment"}, seconds=seconds)
    return None if machine.gpus or list_nvidia_traces(machine) else explain_cpu(machine, doing)
