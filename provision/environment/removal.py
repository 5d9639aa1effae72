"""Removes environments of gpuenv, and refuses any other folder."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from ..errors import BuildError, UsageError
from . import draft_and_replace_folder

_LISTED = "`gpuenv list` shows the environments that gpuenv made"


def check(env: Path) -> None:
    """Refuse a folder that must not be removed. Raises UsageError, and BuildError if it cannot be read."""
    try:
        _check_is_ours(env)
        if os.path.lexists(env):
            _check_nobody_needs(env)
    except OSError as error:
        raise draft_and_replace_folder.not_writable(env, error) from error


def _check_is_ours(env: Path) -> None:
    if (
        os.path.lexists(env)
        and not draft_and_replace_folder.made_by_gpuenv(env)
        and draft_and_replace_folder.holds_more_than_an_environment(env)
    ):
        raise UsageError(f"{env} {_explain_refusal(env)}; gpuenv never removes it", hint=_LISTED)
    if env.is_symlink():
        raise UsageError(
            f"{env} is a symbolic link to {env.readlink()}; it is left alone",
            hint="pass the path of the environment itself, or remove the link with rm",
        )
    if not os.path.lexists(env):
        if not list(list_leftovers(env)):
            raise UsageError(f"{env} does not exist", hint=_LISTED)
    elif not env.is_dir():
        raise UsageError(f"{env} is a file, not an environment")
    elif not draft_and_replace_folder.made_by_gpuenv(env):
        raise UsageError(
            f"{env} is a folder that gpuenv did not make; it is left alone",
            hint="to delete it anyway, remove the folder yourself",
        )
    elif not draft_and_replace_folder.has_been_made(env):
        raise UsageError(
            f"{env} contains a folder {draft_and_replace_folder.MARK}, but is not an environment. It was not removed"
        )


def _explain_refusal(env: Path) -> str:
    """Return why a folder that holds more than an environment is never removed."""
    home, real = draft_and_replace_folder.home_folder(), env.resolve()
    if home and home.resolve() == real:
        return "is your home folder"
    return (
        "contains your home folder"
        if home and home.resolve().is_relative_to(real)
        else "is not an environment of gpuenv"
    )


def _check_nobody_needs(env: Path) -> None:
    real = env.resolve()
    if any(Path(p).resolve().is_relative_to(real) for p in (sys.prefix, __file__)):
        raise UsageError(f"this gpuenv runs from {env}", hint="remove it with another gpuenv, or with rm")
    for folder, whose in (
        (_get_current_folder(), "you are inside"),
        (draft_and_replace_folder.home_folder(), "your home folder is inside"),
    ):
        if folder and folder.is_relative_to(real):
            raise UsageError(f"{whose} {env}; it is left alone", hint="cd out of it first")
    if mounted := draft_and_replace_folder.find_mount(env):
        raise UsageError(
            f"another disk is mounted at {mounted}; {env} is left alone", hint="unmount it first"
        )
    if not os.access(env, os.W_OK) or not os.access(env.parent, os.W_OK):
        raise BuildError(f"{env} is write-protected", hint=f"chmod -R u+w {env}")


def _get_current_folder() -> Path | None:
    try:
        return Path.cwd()
    except FileNotFoundError:
        return None  # the current folder was removed


def list_leftovers(env: Path) -> Iterator[Path]:
    """Yield the folders that interrupted runs left beside the environment."""
    for path in (draft_and_replace_folder.get_draft_path(env), draft_and_replace_folder.aside(env)):
        if (
            path.is_dir()
            and not path.is_symlink()
            and (draft_and_replace_folder.made_by_gpuenv(path) or not any(path.iterdir()))
        ):
            yield path


def remove(env: Path, forget: Callable[[], None]) -> None:
    """Remove an environment that `check` allowed, and the remains of interrupted runs beside it. Raises BuildError.

    It is renamed first, so that its path is free at once. The next removal or build there completes an interrupted
    removal. `forget` removes it from the lists of environments and kernels before its files are removed.
    """
    half = draft_and_replace_folder.get_draft_path(env)
    try:
        draft_and_replace_folder.discard(half)
        if env.is_dir():
            env.rename(half)
        forget()
        for path in list_leftovers(env):
            draft_and_replace_folder.discard(path)
    except OSError as error:
        failure = draft_and_replace_folder.not_writable(env.parent, error)
        failure.hint = f"to remove the remaining files, run again: gpuenv remove {env}"
        raise failure from error
