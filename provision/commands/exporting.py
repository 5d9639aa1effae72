"""The export of a lock in the forms that other tools read."""

from __future__ import annotations

import dataclasses
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import LockError, UsageError
from ..model import Lock
from ..request import paths as where
from ..request.options import Choices
from ..system import writing
from ..system.output_file import (
    unsigned,
    write_output,
    write_with_digest_beside,
)
from ..system.redaction import redact, redact_text
from ..system.safe_write import hint_of
from .gpuenv_from import Wheel, own_wheel

if TYPE_CHECKING:
    from ..export import InstalledPart

_DEFAULT_ENV = Path(".venv")
WITHOUT_COMMENTS = ("cyclonedx",)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Source:
    """A lock without credentials, the file it is to be found in by others, and its environment's path.
    `written` is the file that it was read from, where that is a lock of its own kind; `built` says that the
    lock is the one that the environment carries."""

    lock: Lock
    file: Path
    env: Path
    written: Path | None = None
    built: bool = False


def source(env: Path | None, file: Path | None, choices: Choices) -> Source:
    """The lock to export. Raises LockError, UsageError."""
    from ..environment import place

    path = where.absolute(env or _DEFAULT_ENV)
    if file is not None:
        return _of_file(file, path, choices)
    if (path / place.MARK).is_dir():
        from ..wheels.locks import read_in

        held = _public(read_in(path / place.MARK))
        return Source(lock=held, file=_file_of(held), env=path, built=True)
    for name in ("pylock.toml", "conda-lock.yml") if env is None else ():
        if Path(name).is_file():
            return _of_file(Path(name), path, choices)
    if env is None:
        raise UsageError(
            f"there is no environment {_DEFAULT_ENV} made by gpuenv, and no pylock.toml here",
            hint="name an environment, or a lock with --lock FILE; `gpuenv lock` makes one",
        )
    told = "was not made by gpuenv, so it has no lock" if path.exists() else "is not there"
    raise UsageError(f"{env} {told}", hint="name a lock with --lock FILE; `gpuenv lock` makes one")


def installed_parts(source: Source) -> tuple[tuple[InstalledPart, ...] | None, list[str]]:
    """What the environment has installed, and how that differs from its lock; nothing of a lock file."""
    if not source.built:
        return None, []
    from . import export_installed

    found = export_installed.parts(source.env, source.lock)
    return found, export_installed.differences(source.lock, found)


def assert_hashed(source: Source, *, allow_md5: bool) -> None:
    """Refuse a conda lock with packages that have no sha256. Raises LockError."""
    from ..managers.protocol import locking

    way = locking(source.lock.manager)
    way.check_hashes(source.lock, str(source.written or source.file), allow_md5=allow_md5)


def _file_of(held: Lock) -> Path:
    """The project's lock file that an environment was built from; where it is not here, its name."""
    from ..environment import state
    from ..managers.protocol import locking
    from ..wheels import locks as stage

    name = Path(locking(held.manager).LOCK_NAME)
    if name.suffix != ".toml":
        return name
    for file in sorted(Path.cwd().glob("pylock*.toml")):
        try:
            if state.lock_digest(stage.read(file)) == state.lock_digest(held):
                return file
        except LockError:
            continue  # somebody else's pylock
    return name


def wheel_for(form: str, address: str | None, folder: Path) -> Wheel | None:
    """Return gpuenv's own wheel where the export installs gpuenv from it. Raises UsageError, BuildError."""
    from .. import export as stage

    if form not in stage.INSTALL_GPUENV:
        if address is None:
            return None
        raise UsageError(
            f"--gpuenv-from: {form} does not install gpuenv",
            hint=f"use it with {', '.join(stage.INSTALL_GPUENV)}",
        )
    return own_wheel(folder) if address is None else None


def missing_lock(form: str, source: Source, subject: Any, folder: Path) -> str | None:
    """That the lock file which an export names is not there yet, and what writes it."""
    needed = folder / subject.lock_file
    if form not in ("apptainer", "devcontainer", "dockerfile", "github") or needed.exists():
        return None
    from ..managers.protocol import locking

    kind = Path(locking(source.lock.manager).LOCK_NAME).stem
    command = shlex.join(["gpuenv", "export", str(source.env), "--format", kind, "--output", str(needed)])
    return f"{subject.lock_file} goes with it and is not there: {command}"


def _of_file(file: Path, env: Path, choices: Choices) -> Source:
    if file.suffix == ".toml":
        from ..wheels import locks as stage

        return Source(lock=_public(stage.read(file)), file=file, env=env)
    from . import accepting

    held = accepting.read(file, dataclasses.replace(choices, manager="conda"))
    own = file if file.suffix in (".yml", ".yaml") else None
    name = file if own else file.with_name("conda-lock.yml")
    return Source(lock=_public(held), file=name, env=env, written=own)


def _public(lock: Lock) -> Lock:
    """A lock without credentials: gpuenv writes none into its own, but this may be another's."""
    packages = tuple(
        dataclasses.replace(p, url=redact(p.url), index=redact(p.index) if p.index else None)
        for p in lock.packages
    )
    return dataclasses.replace(lock, packages=packages)


def lock_text(source: Source) -> str:
    """The lock as its own stage writes it."""
    if source.written:
        # As it stands: other platforms of the file, and what it was solved with, are kept.
        return redact_text(unsigned(source.written.read_text(encoding="utf-8")))
    from ..managers.protocol import locking

    with writing.scratch("export") as scratch:
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
            f"--output {path}: {error.strerror}", hint=hint_of(error, "name a file that can be written")
        ) from error
