"""`gpuenv drop`: remove packages from the project's file, its lock and the environment."""

from __future__ import annotations

from ..config.edit import parse_package_name
from ..errors import UsageError
from ..model import FRAMEWORKS, CreateResult, Emit, Event, Lock, Preview, drop_event, normalize_name
from ..model.declare import argument
from ..model.values import dataclass
from .edit import EditOptions, PackageEdit, apply_edit


@dataclass(frozen=True, kw_only=True)
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
    for name in sorted({p.name for p in lock.packages} & {*names}) if lock else ():
        emit(Event("note", "drop", f"{name} remains in the lock: another package requires it"))
    return result


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
            hint="remove it from `frameworks:` in the project's file, then run gpuenv create --recreate",
        )
    return name
