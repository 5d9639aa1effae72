"""`gpuenv export`: a lock in the forms that other tools read."""

from __future__ import annotations

import dataclasses
import shlex
from dataclasses import dataclass
from pathlib import Path

from .. import export as stage
from ..environment import place, state
from ..errors import LockError, UsageError
from ..managers.protocol import locking
from ..model import Emit, Event, ExportResult, Lock, drop_event
from ..model.command_options import REQUIRED, argument, group, option
from ..project.config.project_file import find_in_folder
from ..request import environment_paths as where, load_profiles, project_folder as projects
from ..request.options import Choices
from ..system import scratch_folders
from ..system.output_file import (
    is_stdout,
    is_stream,
    refuse_to_replace,
    signed,
    unsigned,
    write_output,
    write_with_digest_beside,
)
from ..system.redaction import redact, redact_text
from ..system.safe_write import suggest_fix
from ..wheels import pylock
from .default_env import choose_env_to_read
from .gpuenv_from import GpuenvWheel, resolve_source, write_own_wheel

WITHOUT_COMMENTS = ("cyclonedx",)


@dataclass(frozen=True, kw_only=True)
class ExportOptions:
    """The options of `export`. Without `env` it is the project's .venv, else its pylock.toml, else the active one."""

    env: Path | None = argument(None, help="Path of the environment.", show_default=".venv")
    form: str = option(
        REQUIRED, "--format", metavar="FORMAT", complete="formats",
        help="Format: requirements, pylock, environment.yml, conda-lock, dockerfile, apptainer, pixi, uv, "
        "devcontainer, github, sbatch, prolog, healthcheck, taskprolog, npd, job or cyclonedx.",
    )  # fmt: skip
    lock: Path | None = option(None, help="Export this lock file.")
    output: Path | None = option(None, "--output", "-o", help="File to write.  [default: standard output]")
    gpuenv_from: str | None = option(
        None, metavar="ADDRESS",
        help="Address that images and workflows install gpuenv from, such as git+https://... "
        "By default a wheel is written beside the export.",
    )  # fmt: skip
    force: bool = option(False, help="Replace files that gpuenv did not write or that were edited.")
    allow_md5: bool = option(False, help="conda: accept packages that have only an MD5 hash.")
    choices: Choices = group(Choices, "platform", "profiles", "cache_dir")


def export(options: ExportOptions, emit: Emit = drop_event) -> ExportResult:
    """Return the lock of ENV, of a lock file, or of ./pylock.toml where ENV is missing, in another tool's form."""
    form, output, choices = options.form, options.output, options.choices
    stage.known(form)
    if output and is_stdout(output):
        output = None
    if output:
        refuse_to_replace(output, force=options.force)
    source = _source(emit, options.env, options.lock, choices)
    file = str(source.written or source.file)
    locking(source.lock.manager).check_hashes(source.lock, file, allow_md5=options.allow_md5)
    beside = output.absolute().parent if output else Path.cwd()
    if not beside.is_dir():
        raise UsageError(f"--output {output}: there is no folder {beside}")
    # What runs in the project's folder, wherever its own file lies.
    folder = Path.cwd() if form in ("devcontainer", "github") else beside
    installed, drift = installed_parts(source) if form == "cyclonedx" else (None, [])
    wheel = write_wheel_beside(form, options.gpuenv_from, folder)
    to_file = output is not None and not is_stream(output)
    if wheel and to_file:
        wheel.refuse_to_replace(force=options.force)
    subject = stage.Subject(
        lock=source.lock, lock_file=shown_lock(source.file, folder), images=load_profiles.load_all(choices).images,
        lock_text=lock_text(source) if form in ("pylock", "conda-lock") else "",
        env=str(source.env), folder=str(folder), project=find_in_folder(folder) is not None, installed=installed,
        gpuenv=resolve_source(options.gpuenv_from, wheel),
    )  # fmt: skip
    text = stage.render(form, subject)
    missing = warn_of_missing_lock(form, source, subject, folder) if options.lock is None else None
    remark = wheel.remark() if wheel and not to_file else None
    for told in [*filter(None, (remark, missing)), *drift, *stage.warnings(form, subject)]:
        emit(Event(kind="warning", stage="export", text=told))
    if form not in WITHOUT_COMMENTS:
        text = signed(text, "//" if form == "devcontainer" else "#")
    if wheel and to_file and wheel.write():
        emit(Event(kind="note", stage="export", text=f"{wheel.path.name}: written to the same folder"))
    if output:
        write(output, text, beside=form in WITHOUT_COMMENTS)
    if output and (step := stage.NEXT.get(form)):
        emit(Event(kind="next", stage="export", text=step.format(output, folder=output.parent)))
    return ExportResult(format=form, path=str(output) if output else None, text=text)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExportSource:
    """A lock without credentials, the file it is to be found in by others, and its environment's path.
    `written` is the file that it was read from, where that is a lock of its own kind; `built` says that the
    lock is the one that the environment carries."""

    lock: Lock
    file: Path
    env: Path
    written: Path | None = None
    built: bool = False


def _source(emit: Emit, env: Path | None, file: Path | None, choices: Choices) -> ExportSource:
    """The lock to export. Raises LockError, UsageError."""
    path = where.make_absolute(env or projects.find_project_env())
    if file is not None:
        return _read_file_source(file, path, choices)
    if (path / place.MARK).is_dir():
        return _read_env_source(path)
    for name in ("pylock.toml", "conda-lock.yml") if env is None else ():
        if (projects.find_project_folder() / name).is_file():
            return _read_file_source(projects.find_project_folder() / name, path, choices)
    if env is None:
        active = projects.find_active_env()
        if active and place.made_by_gpuenv(active[1]):
            return _read_env_source(choose_env_to_read(emit, None))
        raise UsageError(
            f"there is no environment {projects.find_project_env()} made by gpuenv, and no pylock.toml here",
            hint="name an environment, or a lock with --lock FILE; `gpuenv lock` writes one",
        )
    told = "was not made by gpuenv and has no lock" if path.exists() else "does not exist"
    raise UsageError(f"{env} {told}", hint="name a lock with --lock FILE; `gpuenv lock` writes one")


def _read_env_source(path: Path) -> ExportSource:
    """Return the lock of an environment that gpuenv made. Raises LockError."""
    held = _public(pylock.read_in(path / place.MARK))
    return ExportSource(lock=held, file=_choose_lock_file(held), env=path, built=True)


def installed_parts(source: ExportSource) -> tuple[tuple[stage.InstalledPart, ...] | None, list[str]]:
    """What the environment has installed, and how that differs from its lock; nothing of a lock file."""
    if not source.built:
        return None, []
    from . import installed_packages

    found = installed_packages.list_installed_parts(source.env, source.lock)
    return found, installed_packages.describe_differences(source.lock, found)


def _choose_lock_file(lock: Lock) -> Path:
    """The project's lock file that an environment was built from; where it is not here, its name."""
    name = Path(locking(lock.manager).LOCK_NAME)
    if name.suffix != ".toml":
        return name
    for file in sorted(projects.find_project_folder().glob("pylock*.toml")):
        try:
            if state.lock_digest(pylock.read(file)) == state.lock_digest(lock):
                return file
        except LockError:
            continue  # somebody else's pylock
    return name


def write_wheel_beside(form: str, address: str | None, folder: Path) -> GpuenvWheel | None:
    """Return gpuenv's own wheel where the export installs gpuenv from it. Raises UsageError, BuildError."""
    if form not in stage.INSTALL_GPUENV:
        if address is None:
            return None
        raise UsageError(
            f"--gpuenv-from: {form} does not install gpuenv",
            hint=f"use it with {', '.join(stage.INSTALL_GPUENV)}",
        )
    return write_own_wheel(folder) if address is None else None


def warn_of_missing_lock(form: str, source: ExportSource, subject: stage.Subject, folder: Path) -> str | None:
    """That the lock file which an export names does not exist yet, and what writes it."""
    needed = folder / subject.lock_file
    if form not in ("apptainer", "devcontainer", "dockerfile", "github") or needed.exists():
        return None
    kind = Path(locking(source.lock.manager).LOCK_NAME).stem
    command = shlex.join(["gpuenv", "export", str(source.env), "--format", kind, "--output", str(needed)])
    return f"{subject.lock_file} must be in the same folder, but it is missing: {command}"


def _read_file_source(file: Path, env: Path, choices: Choices) -> ExportSource:
    if file.suffix == ".toml":
        return ExportSource(lock=_public(pylock.read(file)), file=file, env=env)
    from . import lock_acceptance

    held = lock_acceptance.read_lock(file, dataclasses.replace(choices, manager="conda"))
    own = file if file.suffix in (".yml", ".yaml") else None
    name = file if own else file.with_name("conda-lock.yml")
    return ExportSource(lock=_public(held), file=name, env=env, written=own)


def _public(lock: Lock) -> Lock:
    """A lock without credentials: gpuenv writes none into its own, but this may be another's."""
    packages = tuple(
        dataclasses.replace(p, url=redact(p.url), index=redact(p.index) if p.index else None)
        for p in lock.packages
    )
    return dataclasses.replace(lock, packages=packages)


def lock_text(source: ExportSource) -> str:
    """The lock as its own stage writes it."""
    if source.written:
        # As it stands: other platforms of the file, and what it was solved with, are kept.
        return redact_text(unsigned(source.written.read_text(encoding="utf-8")))
    with scratch_folders.scratch("export") as scratch:
        path = scratch / "lock"
        locking(source.lock.manager).write_lock(path, source.lock, ())
        return unsigned(path.read_text(encoding="utf-8"))


def shown_lock(file: Path, folder: Path) -> str:
    """How the lock is called in the export's folder: its path from there, its name where it lies elsewhere."""
    path = file.absolute()
    return path.relative_to(folder).as_posix() if path.is_relative_to(folder) else path.name


def write(path: Path, text: str, *, beside: bool) -> None:
    """Write in one step, the digest `beside` where the text has no comments. Raises UsageError."""
    try:
        (write_with_digest_beside if beside else write_output)(path, text)
    except OSError as error:
        raise UsageError(
            f"--output {path}: {error.strerror}", hint=suggest_fix(error, "name a file that can be written")
        ) from error
