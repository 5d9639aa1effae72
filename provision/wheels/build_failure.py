"""Explains a failed build of a source: the reason in uv's output, and a hint."""

from __future__ import annotations

import os
import re
import shlex
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from packaging.utils import canonicalize_name

from ..errors import BuildError, LockError
from ..model import FRAMEWORKS, PROJECT_FOLDER, LockedPackage, RequirementLine
from ..system.redaction import clean

_LONGEST = 300
_WHAT = re.compile(r"(?m)^error: Failed to (?:\w+ and )?build `([^`]+)`")
_CAUSE = re.compile(r"(?m)^  cause: (.+)")
_BACKEND = "The build backend returned an error"
_REQUIRES = "Failed to resolve requirements from `build-system.requires`"
_EXCEPTION = re.compile(r"(?:[A-Za-z_]\w*\.)*([A-Za-z_]\w*(?:: .*)?)")
_COMPILER = re.compile(r"\berror: ")
_NEEDS_TO_BUILD = re.compile(
    r"`([^`\s]+)` depends on `([^`\s]+)`, but doesn't declare it as a build dependency"
)
_IMPORTED = re.compile(rf"ModuleNotFoundError: No module named '({'|'.join(FRAMEWORKS)})'")


@dataclass(frozen=True, kw_only=True, slots=True)
class Failure:
    """A failed build. `what` is the source in uv's words, or "" if uv does not know its name yet."""

    what: str
    reason: str

    @property
    def name(self) -> str:
        """The canonical name of the source, if uv knows it."""
        return canonicalize_name(re.split(r" @ |==|\[", self.what)[0]) if self.what else ""


def read_failure(log: str) -> Failure | None:
    """Return the failed build at the end of uv's output, or None."""
    what = _WHAT.search(log)
    causes = _CAUSE.findall(log)
    if _BACKEND in log:
        reason = _read_reason(log) or causes[-1]
    elif what and _REQUIRES in log and "No solution found" in log:
        reason = f"its build requirements are not available: {causes[-1]}"
    elif what and len(causes) == 1 and causes[0].startswith("Expected "):  # uv's own build backend
        reason = causes[0]
    else:
        return None
    return Failure(what=what[1] if what else "", reason=clean(reason, _LONGEST))


def _read_reason(log: str) -> str:
    """Return the first line of the exception that ended the build, else of the last error, else the last line."""
    _, _, said = log.partition("[stderr]\n")
    said, _, _ = said.partition("\nhint: ")
    lines = [line.rstrip() for line in textwrap.dedent(said).splitlines() if line.strip()]
    frames = [i for i, line in enumerate(lines) if line.startswith('  File "')]
    if frames:
        after = [line for line in lines[frames[-1] :] if not line.startswith(" ")]
        exception = _EXCEPTION.fullmatch(after[0]) if after else None
        return exception[1] if exception else "".join(after[:1])
    errors = [line for line in lines if line.startswith("error: ")]
    if errors and errors[-1].lower().startswith("error: command "):
        errors = [line for line in lines if _COMPILER.search(line)][:1]
    return errors[-1].removeprefix("error: ") if errors else "".join(lines[-1:])


def hint_dependencies_alone(folder: Path | str) -> str:
    """Return the hint for a project that cannot be built."""
    return f"write {_make_key(folder)} into gpuenv.yaml to install only its dependencies"


def _make_key(folder: Path | str) -> str:
    place = os.path.relpath(folder)
    shown = place if re.fullmatch(r"[A-Za-z0-9_./-]+", place) else f'"{place}"'
    return f"project: {{path: {shown}, install: false}}"


# --- during a solve ------------------------------------------------------------------------------


def explain_in_solve(log: str, needs: Sequence[RequirementLine]) -> LockError | None:
    """Return the error of a solve in which a source could not be built, or None."""
    if needed := _find_needed_to_build(log, needs):
        return _explain_needed_framework(*needed, needs, log)
    failure = read_failure(log)
    if failure is None:
        return None
    folders = [need for need in needs if need.local]
    named = [need for need in needs if need.name and canonicalize_name(need.name) == failure.name]
    only = folders if not failure.name and len(folders) == 1 else []
    need = next(iter(named or only), None)
    if need is None:
        return LockError(f"{failure.name or 'a source package'} could not be built: {failure.reason}", log=log,
                         hint="request releases that have wheels, or remove it")  # fmt: skip
    if need.origin == PROJECT_FOLDER and need.local:
        name = need.name or Path(need.local).name
        return LockError(f"{name} could not be built: {failure.reason}", log=log,
                         hint=hint_dependencies_alone(need.local))  # fmt: skip
    shown = need.name or clean(need.text)
    return LockError(f"{shown} ({need.origin}) could not be built: {failure.reason}", log=log,
                     hint=f"correct its build, or remove it from {need.origin.partition(' line ')[0]}")  # fmt: skip


def _find_needed_to_build(log: str, needs: Iterable[RequirementLine]) -> tuple[str, str] | None:
    """Return the source whose build fails, and the framework that it imports.

    uv does not name an editable folder. It is the only folder among the needs.
    """
    if named := _NEEDS_TO_BUILD.search(" ".join(log.split())):
        return str(canonicalize_name(named[1].partition("@")[0])), named[2]
    imported = _IMPORTED.search(log)
    folders = [n for n in needs if n.local]
    if imported is None or len(folders) != 1:
        return None
    return folders[0].name or Path(folders[0].local or "").name, imported[1]


def _explain_needed_framework(
    name: str, framework: str, needs: Sequence[RequirementLine], log: str
) -> LockError:
    """Return the error for a source whose build imports a framework, which only an environment with the framework can
    build."""
    need = next((n for n in needs if name in (n.name, Path(n.local or "").name)), None)
    what, left_out = name, f"remove {name}"
    if need and need.local:
        what = f"{'-e ' if need.editable else ''}{shlex.quote(need.local)}"
        if need.origin == PROJECT_FOLDER:
            left_out = f"write {_make_key(need.local)} into gpuenv.yaml"
    elif need and (need.vcs or " @ " in need.text):
        what = shlex.quote(need.text)
    return LockError(
        f"{name} has no wheel for this Python and platform, and the build of its source imports {framework}", log=log,
        hint=f"add a page of wheels with --find-links ADDRESS. Or {left_out}, and build it afterwards: "
        f"gpuenv run -- python -m pip install --no-build-isolation {what}",
    )  # fmt: skip


# --- during an installation ----------------------------------------------------------------------


def explain_in_install(log: str, packages: Sequence[LockedPackage]) -> BuildError | None:
    """Return the error of an installation in which a source could not be built, with its folder, or None."""
    failure = read_failure(log)
    if failure is None:
        return None
    named = [p for p in packages if canonicalize_name(p.name) == failure.name]
    folders = [p for p in packages if p.unhashed and p.url.startswith("file:")]
    only = folders if not failure.name and len(folders) == 1 else []
    package = next(iter(named or only), None)
    name = package.name if package else failure.name or "a source"
    error = BuildError(f"{name} could not be built: {failure.reason}", log=log,
                       hint=f"correct its build, or remove {name}")  # fmt: skip
    if package and package in folders:
        error.folder = unquote(urlsplit(package.url).path)
    return error
