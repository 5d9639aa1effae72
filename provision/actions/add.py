"""`gpuenv add`: add packages to the project's file, its lock and the environment."""

from __future__ import annotations

from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from ..config.file import CONFIG_NAME
from ..errors import UsageError
from ..model import FRAMEWORKS, CreateResult, Emit, Lock, Preview, drop_event
from ..model.declare import argument
from ..requirements.quote import suggest_version
from .edit import EditOptions, PackageEdit, apply_edit


class AddOptions(EditOptions):
    """The options of `add`."""

    packages: list[str] = argument(
        metavar="PKG...", help="Packages with optional bounds, such as 'einops>=0.8'."
    )


def add(options: AddOptions, emit: Emit = drop_event) -> CreateResult | Lock | Preview:
    """Add packages to gpuenv.yaml, the lock and the environment. Return the lock if there is no environment."""
    wanted = [_package(text) for text in options.packages]
    return apply_edit(PackageEdit(add=wanted), options, emit)


def _package(text: str) -> str:
    if Path(text).suffix and Path(text).is_file():
        raise UsageError(
            f"{text} is a file, not the name of a package",
            hint=f"list requirements under `requirements:` in {CONFIG_NAME}, then run gpuenv sync; name a wheel 'NAME @ ./FILE'",
        )
    try:
        need = Requirement(text)
    except InvalidRequirement as error:
        if meant := suggest_version(text):
            raise UsageError(
                f"{text!r}: a version follows ==, not @ or =", hint=f"gpuenv add '{meant}'"
            ) from error
        reason = str(error).partition("\n")[0]
        raise UsageError(
            f"{text!r} is not a requirement such as 'einops>=0.8': {reason}",
            hint="write a name with bounds in quotes: gpuenv add 'einops>=0.8'; or with an address or path: 'NAME @ ADDRESS'",
        ) from error
    if canonicalize_name(need.name) in FRAMEWORKS:
        raise UsageError(
            f"{need.name} is a framework. gpuenv selects its build",
            hint=f"add it to `frameworks:` in {CONFIG_NAME}, then run gpuenv create. To upgrade it: gpuenv lock --upgrade "
            f"{need.name}",
        )
    return text
