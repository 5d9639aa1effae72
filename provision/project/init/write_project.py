"""Write gpuenv.yaml, a part of the Makefile, and .gitignore for `gpuenv init`."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from provision.errors import DataError, UsageError
from provision.model import FRAMEWORK_ALIASES, FRAMEWORKS, InitResult, WrittenFile
from provision.system.write_inside_folder import suggest_fix

from ..config.edit_packages import write_files
from ..config.gpuenv_yaml import read_config
from ..config.key_forms import CONFIG_NAME, LISTS
from ..config.project_file import find_in_folder
from ..quote_for_messages_and_parse_requirement import (
    parse_requirement,
    quote_text,
    suggest_version,
    take_first_line,
)
from . import edit_makefile
from .folder_findings import FolderFindings, PackageFacts
from .scan_folder import scan_folder
from .yaml_template import render_config

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path


@dataclass
class _ProjectWrite:
    """The contents to write, and the files and remarks to report."""

    contents: dict[Path, bytes] = field(default_factory=dict)
    files: list[WrittenFile] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)


_IGNORED = ".venv/"
_MOST_BYTES = 8 << 20


def write_project_files(
    folder: Path,
    frameworks: Sequence[str] = (),
    *,
    known: PackageFacts,
    environ: Mapping[str, str],
    gpuenv_from: str = "",
) -> InitResult:
    """Write the missing files, all or none, without running anything in the folder.

    `gpuenv_from` is the address or path from which `make env` installs a missing gpuenv. Raises UsageError if no
    framework is found, or a file cannot be read or written. Raises DataError for an existing invalid gpuenv.yaml.
    """
    output = _ProjectWrite()
    contents, files, remarks = output.contents, output.files, output.remarks
    named = _write_config(output, folder, frameworks, known, environ)
    make_step = partial(_extend_makefile, gpuenv_from=gpuenv_from)
    for path, step in (
        (edit_makefile.find_makefile(folder), make_step),
        (folder / ".gitignore", _extend_gitignore),
    ):
        old = _read_bytes(path)
        new, detail = step(path, old or b"", remarks)
        if new is None:
            files.append(WrittenFile(path=path.name, done="kept", detail=detail))
        else:
            contents[path] = new
            done = "written" if old is None else "changed"
            files.append(WrittenFile(path=path.name, done=done, detail=detail))
    try:
        write_files(contents)
    except OSError as error:
        raise UsageError(
            f"{folder}: nothing was written: {error.strerror}",
            hint=suggest_fix(error, "check the folder's permissions"),
        ) from error
    return InitResult(folder=str(folder), frameworks=named, files=tuple(files), notes=tuple(remarks))


def _write_config(
    output: _ProjectWrite,
    folder: Path,
    frameworks: Sequence[str],
    known: PackageFacts,
    environ: Mapping[str, str],
) -> tuple[str, ...]:
    """Return the frameworks of the existing gpuenv.yaml, or those of a new one after a scan of the folder."""
    files, remarks = output.files, output.remarks
    path = find_in_folder(folder) or folder / CONFIG_NAME
    if path.exists() or path.is_symlink():
        kept = read_config(path)
        files.append(WrittenFile(path=path.name, done="kept", detail="already exists"))
        if frameworks and tuple(frameworks) != kept.frameworks:
            remarks.append(f"{path.name} exists already: add the frameworks to it by hand")
        return kept.frameworks
    findings = scan_folder(folder, known, environ)
    chosen = _choose_frameworks(frameworks, known.companions, findings)
    try:
        output.contents[path] = render_config(findings, chosen).encode()
    except DataError as error:  # only the values of --framework can be invalid here
        mistakes = "; ".join(problem.partition(": ")[2] for problem in error.problems)
        raise UsageError(
            f"--framework: {mistakes}", hint="name each framework once, such as torch>=2.6"
        ) from error
    listed = [*findings.requirements, *(_describe_project(findings))]
    detail = f"lists {', '.join([*(text for text, _ in chosen), *findings.packages])}" + (
        f"; reads {', '.join(listed)}" if listed else ""
    )
    files.append(WrittenFile(path=CONFIG_NAME, done="written", detail=detail))
    remarks += [f"{text}: {origin}" for text, origin in chosen if origin]
    if findings.project and findings.not_installed:
        remarks.append(f"the project is not installed: {findings.not_installed}")
    remarks += findings.remarks
    return tuple(text for text, _ in chosen)


def _describe_project(findings: FolderFindings) -> list[str]:
    if not findings.project:
        return []
    return ["dependencies of the project" if findings.not_installed else "the project"]


def _choose_frameworks(
    frameworks: Sequence[str], companions: Mapping[str, str], findings: FolderFindings
) -> list[tuple[str, str]]:
    """Return the frameworks to list: those of the options, else those found. Raises UsageError."""
    from packaging.utils import canonicalize_name

    for text in frameworks:
        if meant := suggest_version(text):
            raise UsageError(
                f"--framework {text!r}: a version follows ==, not @ or =", hint=f"--framework '{meant}'"
            )
        try:
            name = canonicalize_name(parse_requirement(text).name)
        except ValueError as error:
            raise UsageError(
                f"--framework {quote_text(text)!r} is not a requirement like 'torch>=2.6': {take_first_line(error)}"
            ) from error
        if LISTS["frameworks"].problem(text) or (name not in FRAMEWORKS and name not in companions):
            meant = f". Did you mean {FRAMEWORK_ALIASES[name]}?" if name in FRAMEWORK_ALIASES else ""
            raise UsageError(
                f"unknown framework {name!r}: gpuenv knows {', '.join(FRAMEWORKS)}{meant}",
                hint=f"--framework {'|'.join(FRAMEWORKS)}",
            )
    chosen = [_keep_bound(text, findings) for text in frameworks] or findings.framework_texts()
    if not chosen:
        raise UsageError(
            "no file here names a framework, and no program imports one"
            + "".join(f"; {remark}" for remark in findings.remarks[:2]),
            hint=f"gpuenv init --framework {'|'.join(FRAMEWORKS)}",
        )
    return chosen


def _keep_bound(text: str, findings: FolderFindings) -> tuple[str, str]:
    """Return a named framework with its origin: a bare name gets the bounds of files that gpuenv.yaml cannot list."""
    bound = findings.bounds.get(text)
    return (text + bound, findings.frameworks[text]) if bound else (text, "")


def _extend_makefile(
    path: Path, old: bytes, remarks: list[str], *, gpuenv_from: str
) -> tuple[bytes | None, str]:
    part = edit_makefile.add_part(path, old, gpuenv_from)
    remarks += part.remarks
    if part.data is None:
        return None, "already has gpuenv's part"
    if not gpuenv_from:
        remarks.append(f"GPUENV_FROM in {path.name} is empty: set it for machines without gpuenv")
    elif edit_makefile.is_of_one_machine(gpuenv_from):
        remarks.append(
            f"GPUENV_FROM in {path.name} is a path on this machine: set an address for other machines"
        )
    return part.data, ", ".join(f"make {target}" for target in part.targets)


def _extend_gitignore(path: Path, old: bytes, remarks: list[str]) -> tuple[bytes | None, str]:
    del path, remarks
    lines = [line.strip().strip(b"/") for line in old.splitlines()]
    if b".venv" in lines:
        return None, f"already lists {_IGNORED}"
    newline = b"\r\n" if b"\r\n" in old else b"\n"
    lead = b"" if not old or old.endswith(b"\n") else newline
    return old + lead + _IGNORED.encode() + newline, _IGNORED


def _read_bytes(path: Path) -> bytes | None:
    """Return the bytes of a file, or None for a missing file. Raises UsageError."""
    try:
        if path.exists() and not path.is_file():
            raise UsageError(f"{path.name} is not a regular file", hint="move it elsewhere")
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UsageError(
            f"{path.name} cannot be read: {error.strerror}", hint="check its permissions"
        ) from error
    if len(data) > _MOST_BYTES:
        raise UsageError(
            f"{path.name} is too large to edit ({len(data)} bytes)", hint="add gpuenv's targets by hand"
        )
    return data
