"""`gpuenv drop`: remove packages from the project's file, its lock and the environment."""

from __future__ import annotations

from pathlib import Path

from ..config.edit import parse_package_name
from ..config.file import CONFIG_NAME
from ..environment.distributions import list_installed
from ..errors import UsageError
from ..model import (
    FRAMEWORKS,
    CreateResult,
    Emit,
    Event,
    Lock,
    Preview,
    drop_event,
    name_few,
    normalize_name,
    requirement_name,
)
from ..model.declare import argument
from .edit import EditOptions, PackageEdit, apply_edit


class DropOptions(EditOptions):
    """The options of `drop`."""

    packages: list[str] = argument(
        metavar="PKG...", help="Names of packages, such as einops.", complete="packages"
    )


def drop(options: DropOptions, emit: Emit = drop_event) -> CreateResult | Lock | Preview:
    """Remove packages from the project's file, the lock and the environment: the inverse of `add`.

    Return the lock if there is no environment.
    """
    names = list(dict.fromkeys(_name(text) for text in options.packages))
    result = apply_edit(PackageEdit(drop=names), options, emit)
    if isinstance(result, Preview):
        return result
    lock = result if isinstance(result, Lock) else result.lock
    made = None if isinstance(result, Lock) else result.environment
    for name in sorted({p.name for p in lock.packages} & {*names}) if lock else ():
        needed_by = _list_requirers(Path(made.path), name) if made else []
        who = (
            f"{name_few(needed_by)} require" + "s" * (len(needed_by) == 1)
            if needed_by
            else "another package requires"
        )
        emit(Event("note", "drop", f"{name} remains in the lock: {who} it"))
    return result


def _list_requirers(env: Path, name: str) -> list[str]:
    """Return the packages of an environment that require another one without an extra."""
    return [
        d.name
        for d in list_installed(env)
        if any(requirement_name(r) == name and "extra ==" not in r for r in d.requirements)
    ]


def _name(text: str) -> str:
    """Return the canonical name of a package. Raises UsageError."""
    try:
        name = parse_package_name(text)
    except ValueError as error:
        raise UsageError(
            f"{text!r} is not a package name", hint="write a package name, such as einops"
        ) from error
    if name != normalize_name(text.strip()):
        raise UsageError(f"{text!r} contains more than a package name", hint=f"gpuenv drop {name}")
    if name in FRAMEWORKS:
        raise UsageError(
            f"{name} is a framework, not an added package",
            hint=f"remove it from `frameworks:` in {CONFIG_NAME}, or write another in its place, then run gpuenv create --recreate",
        )
    return name
