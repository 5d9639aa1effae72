"""`gpuenv init`: a folder is looked at, and gpuenv.yaml, a part of its Makefile and .gitignore are written."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from provision.errors import DataError, UsageError
from provision.model import FRAMEWORK_ALIASES, FRAMEWORKS, InitResult, WrittenFile
from provision.system.safe_write import hint_of

from ..config.edit_packages import write_all
from ..config.gpuenv_yaml import read_config
from ..config.key_forms import CONFIG_NAME, LISTS
from ..config.project_file import project_file_in
from ..quoted_text import first_line, meant_version, requirement, shown
from . import makefile
from .detected_packages import Known, Signs
from .scan_folder import signs
from .yaml_template import rendered

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_IGNORED = ".venv/"
_MOST_BYTES = 8 << 20


def initialise(
    folder: Path,
    frameworks: Sequence[str] = (),
    *,
    known: Known,
    environ: Mapping[str, str],
    gpuenv_from: str = "",
) -> InitResult:
    """Write what is missing, all of it or nothing; what is there is kept. Nothing of the folder is run.
    `gpuenv_from` is what `make env` installs gpuenv from where it is missing: an address or a path.

    Raises UsageError where nothing tells the framework, or a file cannot be read or written; DataError where
    the gpuenv.yaml that is there is invalid.
    """
    contents: dict[Path, bytes] = {}
    files: list[WrittenFile] = []
    remarks: list[str] = []
    named = _config(folder, frameworks, known, environ, contents, files, remarks)
    make_step = partial(_makefile, gpuenv_from=gpuenv_from)
    for path, step in ((makefile.found(folder), make_step), (folder / ".gitignore", _gitignore)):
        old = _bytes(path)
        new, detail = step(path, old or b"", remarks)
        if new is None:
            files.append(WrittenFile(path=path.name, done="kept", detail=detail))
        else:
            contents[path] = new
            done = "written" if old is None else "changed"
            files.append(WrittenFile(path=path.name, done=done, detail=detail))
    try:
        write_all(contents)
    except OSError as error:
        raise UsageError(
            f"{folder}: nothing was written: {error.strerror}",
            hint=hint_of(error, "check the folder's permissions"),
        ) from error
    return InitResult(folder=str(folder), frameworks=named, files=tuple(files), notes=tuple(remarks))


def _config(
    folder: Path,
    frameworks: Sequence[str],
    known: Known,
    environ: Mapping[str, str],
    contents: dict[Path, bytes],
    files: list[WrittenFile],
    remarks: list[str],
) -> tuple[str, ...]:
    """gpuenv.yaml: kept where there is one, else written from what the folder shows."""
    path = project_file_in(folder) or folder / CONFIG_NAME
    if path.exists() or path.is_symlink():
        kept = read_config(path)
        files.append(WrittenFile(path=path.name, done="kept", detail="it is there already"))
        if frameworks and tuple(frameworks) != kept.frameworks:
            remarks.append(f"{path.name} is kept: write the frameworks there yourself")
        return kept.frameworks
    found = signs(folder, known, environ)
    chosen = _chosen(frameworks, known.companions, found)
    try:
        contents[path] = rendered(found, chosen).encode()
    except DataError as error:  # only what --framework said can be wrong in it
        said = "; ".join(problem.partition(": ")[2] for problem in error.problems)
        raise UsageError(f"--framework: {said}", hint="name each framework once, as torch>=2.6") from error
    listed = [*found.requirements, *(_shown_project(found))]
    detail = f"lists {', '.join([*(text for text, _ in chosen), *found.packages])}" + (
        f"; reads {', '.join(listed)}" if listed else ""
    )
    files.append(WrittenFile(path=CONFIG_NAME, done="written", detail=detail))
    remarks += [f"{text}: {origin}" for text, origin in chosen if origin]
    if found.project and found.not_installed:
        remarks.append(f"the project is not installed: {found.not_installed}")
    remarks += found.remarks
    return tuple(text for text, _ in chosen)


def _shown_project(found: Signs) -> list[str]:
    if not found.project:
        return []
    return ["dependencies of the project" if found.not_installed else "the project"]


def _chosen(frameworks: Sequence[str], companions: Mapping[str, str], found: Signs) -> list[tuple[str, str]]:
    """The frameworks to list, those given before those found. Raises UsageError."""
    from packaging.utils import canonicalize_name

    for text in frameworks:
        if meant := meant_version(text):
            raise UsageError(
                f"--framework {text!r}: a version follows ==, not @ or =", hint=f"--framework '{meant}'"
            )
        try:
            name = canonicalize_name(requirement(text).name)
        except ValueError as error:
            raise UsageError(
                f"--framework {shown(text)!r} is no requirement like 'torch>=2.6': {first_line(error)}"
            ) from error
        if LISTS["frameworks"].problem(text) or (name not in FRAMEWORKS and name not in companions):
            meant = f". Did you mean {FRAMEWORK_ALIASES[name]}?" if name in FRAMEWORK_ALIASES else ""
            raise UsageError(
                f"unknown framework {name!r}: gpuenv knows {', '.join(FRAMEWORKS)}{meant}",
                hint=f"--framework {'|'.join(FRAMEWORKS)}",
            )
    chosen = [(text, "") for text in frameworks] or found.framework_texts()
    if not chosen:
        raise UsageError(
            "no file here names torch, tensorflow or jax, and no program imports one"
            + "".join(f"; {remark}" for remark in found.remarks[:2]),
            hint=f"gpuenv init --framework {'|'.join(FRAMEWORKS)}",
        )
    return chosen


def _makefile(path: Path, old: bytes, remarks: list[str], *, gpuenv_from: str) -> tuple[bytes | None, str]:
    part = makefile.with_part(path, old, gpuenv_from)
    remarks += part.remarks
    if part.data is None:
        return None, "gpuenv's part is there already"
    if not gpuenv_from:
        remarks.append(f"GPUENV_FROM in {path.name} is empty: set it for clones on machines without gpuenv")
    elif gpuenv_from.startswith("/"):
        remarks.append(f"GPUENV_FROM in {path.name} is a path of this machine: set an address for others")
    return part.data, ", ".join(f"make {target}" for target in part.targets)


def _gitignore(path: Path, old: bytes, remarks: list[str]) -> tuple[bytes | None, str]:
    del path, remarks
    lines = [line.strip().strip(b"/") for line in old.splitlines()]
    if b".venv" in lines:
        return None, f"{_IGNORED} is there already"
    newline = b"\r\n" if b"\r\n" in old else b"\n"
    lead = b"" if not old or old.endswith(b"\n") else newline
    return old + lead + _IGNORED.encode() + newline, _IGNORED


def _bytes(path: Path) -> bytes | None:
    """The bytes of a file that may be missing. Raises UsageError."""
    try:
        if path.exists() and not path.is_file():
            raise UsageError(f"{path.name} is no file", hint="move it away")
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UsageError(
            f"{path.name} cannot be read: {error.strerror}", hint="check its permissions"
        ) from error
    if len(data) > _MOST_BYTES:
        raise UsageError(f"{path.name} has {len(data)} bytes", hint="write gpuenv's targets by hand")
    return data
