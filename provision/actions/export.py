"""`gpuenv export`: write a lock in the formats of other tools."""

from __future__ import annotations

import dataclasses
import shlex
from pathlib import Path

from ..config import rows
from ..config.env import (
    choose_env_to_read,
    find_active_env,
    find_in_folder,
    find_project_env,
    find_project_folder,
)
from ..config.options import Choices, make_absolute
from ..environment import place, record
from ..errors import LockError, UsageError
from ..export import INSTALL_GPUENV, MANIFESTS, NEXT, assert_known, render, warnings
from ..export.source import choose_source
from ..export.subject import Subject, extras_of
from ..lock.formats import find_lock_manager, get_format
from ..model import (
    LOCK_NAMES,
    VENV_LOCKS,
    Emit,
    Event,
    ExportResult,
    Lock,
    drop_event,
    make_lock_name,
)
from ..model.declare import REQUIRED, argument, force_option, group, option
from ..model.values import Value
from ..system import untrusted
from ..system.files import (
    is_stdout,
    is_stream,
    refuse_to_replace,
    require_folder,
    signed,
    unsigned,
    write_named,
)
from ..system.redaction import redact, redact_addresses
from ..system.scratch import make_scratch
from ..wheels import pylock

WITHOUT_COMMENTS = ("cyclonedx",)


class ExportOptions(Value):
    """The options of `export`. Without `env` it exports the project's .venv, then its pylock.toml, then the
    active one."""

    env: Path | None = argument(None, help="Path of the environment.", show_default=".venv")
    form: str = option(
        REQUIRED, "--format", metavar="FORMAT", complete="formats",
        help="Format: requirements, pylock, environment.yml, conda-lock, dockerfile, apptainer, pixi, uv, "
        "devcontainer, github, sbatch, prolog, healthcheck, taskprolog, npd, daemonset, job or cyclonedx.",
    )  # fmt: skip
    lock: list[Path] = option(
        list, help="Export this lock file. With --format uv each becomes an extra. Repeatable."
    )
    output: Path | None = option(None, "--output", "-o", help="File to write.  [default: standard output]")
    gpuenv_from: str | None = option(
        None, metavar="ADDRESS",
        help="Address that images and workflows install gpuenv from, such as git+https://... "
        "By default a wheel is written beside the export.",
    )  # fmt: skip
    force: bool = force_option()
    allow_md5: bool = option(False, help="conda: accept packages that have only an MD5 hash.")
    choices: Choices = group(Choices, "platform", "profiles", "cache_dir", "trust_project")


def export(options: ExportOptions, emit: Emit = drop_event) -> ExportResult:
    """Return the lock of an environment or of a lock file in another tool's format."""
    form, choices = options.form, options.choices
    output = None if options.output and is_stdout(options.output) else options.output
    assert_known(form)
    if output:
        refuse_to_replace(output, force=options.force)
    source = _source(emit, options.env, next(iter(options.lock), None), choices)
    if options.lock[1:] and form != "uv":
        raise UsageError(
            f"--lock: --format {form} exports one lock", hint="export each lock to a file of its own"
        )
    file = str(source.written or source.file)
    get_format(source.lock.manager).check_hashes(source.lock, file, allow_md5=options.allow_md5)
    base = require_folder("--output", output).resolve() if output else Path.cwd()
    # These run in the project's folder, even if their own file is elsewhere.
    in_project = form in ("devcontainer", "github") and base.is_relative_to(Path.cwd())
    folder = Path.cwd() if in_project else base  # the paths in the export start from it
    to_file = output is not None and not is_stream(output)
    gpuenv, wheel = choose_source(form, options.gpuenv_from, base, folder)
    if wheel and to_file:
        wheel.refuse_to_replace(force=options.force)
    lock_file = place_lock(source.file, folder, base)
    copied = form in INSTALL_GPUENV and to_file and lock_file != make_absolute(source.file)
    if copied and output:
        refuse_to_replace(lock_file, force=options.force)
        if not (options.force or output.exists()):
            _refuse_other_lock(lock_file, source)
    more = [_source(drop_event, options.env, other, choices).lock for other in options.lock[1:]]
    installed, warned = None, list[str]()
    if form == "cyclonedx" and source.built:
        from ..export import bom

        installed = bom.list_installed_parts(source.env, source.lock)
        warned = bom.describe_differences(source.lock, installed)
    subject = Subject(
        lock=source.lock, extras=extras_of(dict(zip(options.lock, (source.lock, *more), strict=True))) if more else {},
        lock_file=lock_file.relative_to(folder).as_posix(), images=rows.load(choices).images,
        lock_text=lock_text(source) if form in ("pylock", "conda-lock") else "",
        env=str(source.env), folder=str(folder), project=find_in_folder(folder) is not None, installed=installed,
        gpuenv=gpuenv,
    )  # fmt: skip
    text = render(form, subject)
    if form in INSTALL_GPUENV and not copied and (problem := _describe_lock(lock_file, source)):
        warned.insert(0, problem)
    if wheel and not to_file and (remark := wheel.remark()):
        warned.insert(0, remark)
    for warning in [*warned, *warnings(form, subject)]:
        emit(Event("warning", "export", warning))
    if form not in WITHOUT_COMMENTS:
        text = signed(text, "//" if form == "devcontainer" else "#")
    if wheel and to_file and wheel.write():
        emit(Event("note", "export", f"{wheel.path.name}: written to the same folder"))
    if copied:
        write_named(lock_file, "--output", signed(lock_text(source), "#"))
        emit(Event("note", "export", f"{lock_file.name}: written to the same folder"))
    if output:
        write_named(output, "--output", text, beside=form in WITHOUT_COMMENTS)
        if event := _explain_use(form, output):
            emit(event)
    return ExportResult(format=form, path=str(output) if output else None, text=text)


def _explain_use(form: str, output: Path) -> Event | None:
    """Return the command that uses a file, or a warning for a name that the tool does not read."""
    if output.name != MANIFESTS.get(form, output.name):
        return Event("warning", "export", f"{form} reads only a file named {MANIFESTS[form]}")
    quoted, folder, name = (shlex.quote(str(p)) for p in (output, output.parent, output.name))
    step = NEXT.get(form, "").format(quoted, folder=folder, name=name)
    return Event("next", "export", step.removeprefix("cd . && ")) if step else None


def place_lock(file: Path, folder: Path, base: Path) -> Path:
    """Return the path of the lock that an export names: the lock itself if it is inside `folder`, else a copy in `base`."""
    path = make_absolute(file)
    inside = path.is_relative_to(folder) and (path.exists() or base == folder == path.parent)
    return path if inside else base / file.name


def _refuse_other_lock(file: Path, source: ExportSource) -> None:
    if _is_another(file, source):
        raise UsageError(
            f"{file} is another lock, which other files there may name; it is kept",
            hint="export into another folder, or replace it with --force",
        )


def _describe_lock(file: Path, source: ExportSource) -> str | None:
    """Return why the lock that an export names is not there, or None."""
    if file.exists():
        another = source.built and _is_another(file, source)
        return f"{file} is not the lock of {source.env}, and the export names it" if another else None
    kind = Path(make_lock_name(source.lock.manager)).stem
    where = [str(source.env)] if source.built else ["--lock", str(source.written or source.file)]
    command = shlex.join(["gpuenv", "export", *where, "--format", kind, "--output", str(file)])
    return f"{file.name} must be in the same folder as the exported file, but it is missing. To write it: {command}"


def _is_another(file: Path, source: ExportSource) -> bool:
    """Return whether a file is there that is not the lock."""
    if not file.is_file():
        return False
    if file.suffix == ".toml":
        return not _has_lock(file, source.lock)
    return unsigned(untrusted.read_text(file)) != lock_text(source)


def _has_lock(file: Path, lock: Lock) -> bool:
    try:
        return record.lock_digest(pylock.read(file)) == record.lock_digest(lock)
    except LockError:
        return False  # another tool's pylock


class ExportSource(Value):
    """A lock without credentials, the path of its file for other users, and the path of its environment.

    `written` is the file that it was read from, if that is a lock of the same format. `built` is true if the
    environment contains the lock.
    """

    lock: Lock
    file: Path
    env: Path
    written: Path | None = None
    built: bool = False


def _source(emit: Emit, env: Path | None, file: Path | None, choices: Choices) -> ExportSource:
    """Return the lock to export. Raises LockError, UsageError."""
    path = make_absolute(env or find_project_env())
    if file is not None:
        return _read_file_source(file, path, choices)
    if place.made_by_gpuenv(path):
        return _read_env_source(path)
    for name in LOCK_NAMES.values() if env is None else ():
        if (find_project_folder() / name).is_file():
            return _read_file_source(find_project_folder() / name, path, choices)
    if env is None:
        active = find_active_env()
        if active and place.made_by_gpuenv(active[1]):
            return _read_env_source(choose_env_to_read(emit, None))
        raise UsageError(
            f"there is no environment {find_project_env()} made by gpuenv, and no pylock.toml here",
            hint="name an environment, or a lock with --lock FILE; `gpuenv lock` writes one",
        )
    problem = "was not made by gpuenv and has no lock" if path.exists() else "does not exist"
    raise UsageError(f"{env} {problem}", hint="name a lock with --lock FILE; `gpuenv lock` writes one")


def _read_env_source(path: Path) -> ExportSource:
    """Return the lock of an environment that gpuenv made. Raises LockError."""
    lock = _public(record.read_lock(path))
    return ExportSource(lock=lock, file=_choose_lock_file(lock), env=path, built=True)


def _choose_lock_file(lock: Lock) -> Path:
    """Return the project's lock file that an environment was built from, or only its name if it is elsewhere."""
    name = Path(make_lock_name(lock.manager))
    if name.suffix != ".toml":
        return name
    return next((f for f in sorted(find_project_folder().glob(VENV_LOCKS)) if _has_lock(f, lock)), name)


def _read_file_source(file: Path, env: Path, choices: Choices) -> ExportSource:
    from ..lock import accept

    manager = find_lock_manager(file, "venv")
    lock = accept.read_lock(file, dataclasses.replace(choices, manager=manager))
    written = file if file.suffix in (".yml", ".yaml") else None
    name = file if written or get_format(manager).OF_WHEELS else file.with_name(make_lock_name(manager))
    return ExportSource(lock=_public(lock), file=name, env=env, written=written)


def _public(lock: Lock) -> Lock:
    """Return the lock without credentials. gpuenv writes none, but other tools may."""
    packages = tuple(
        dataclasses.replace(p, url=redact(p.url), index=redact(p.index) if p.index else None)
        for p in lock.packages
    )
    return dataclasses.replace(lock, packages=packages)


def lock_text(source: ExportSource) -> str:
    """Return the lock as its manager writes it."""
    if source.written:
        # The text is copied, so that other platforms and the solver's settings are kept.
        return redact_addresses(unsigned(source.written.read_text(encoding="utf-8")))
    with make_scratch("export") as scratch:
        path = scratch / "lock"
        get_format(source.lock.manager).write_lock(path, source.lock)
        return unsigned(path.read_text(encoding="utf-8"))
