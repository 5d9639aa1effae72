"""Shows the environments on this machine as a table that fits the terminal."""

from __future__ import annotations

from itertools import zip_longest
from pathlib import Path

from ..model import EnvironmentList, ListedEnvironment, RemoveResult, format_bytes
from ..system.redaction import clean
from .terminal_output import Screen

_HEADS = ("ENVIRONMENT", "MADE FOR", "PYTHON", "VERDICT", "SIZE")
_WIDTHS = (24, 6, 10, 11)  # of all columns but the first, which gets what is left


def show_listing(screen: Screen, listing: EnvironmentList) -> None:
    """Show each environment in two or more lines. A path is broken at its slashes."""
    if not listing.environments:
        screen.line("no environments of gpuenv on this machine")
        return
    home = screen.environ.get("HOME", "")
    paths = [clean(_shorten_path(env.path, home)) for env in listing.environments]
    room = screen.width() - sum(_WIDTHS) - 2 * len(_WIDTHS)
    first = max(14, min(room, max(map(len, paths))))
    widths = (first, *_WIDTHS)
    screen.line(_format_row(_HEADS, widths))
    for env, path in zip(listing.environments, paths, strict=True):
        cells = (_fold_path(path, first), *_make_cells(env))
        for row in zip_longest(*cells, fillvalue=""):
            screen.line(_format_row(row, widths))


def _format_row(cells: tuple[str, ...], widths: tuple[int, ...]) -> str:
    return "  ".join(c.ljust(w) for c, w in zip(cells, widths, strict=True)).rstrip()


def _make_cells(env: ListedEnvironment) -> tuple[list[str], ...]:
    names = [f"{f.name} {f.version}" for f in env.frameworks]
    libraries = [f"CUDA {env.cuda}"] if env.cuda else ["CPU"] if env.frameworks else []
    libraries += [f"cuDNN {env.cudnn}"] if env.cudnn else []
    builds = [clean(x)[: _WIDTHS[0]] for x in [*names, ", ".join(libraries)] if x]
    if len(", ".join(libraries)) > _WIDTHS[0]:
        builds[-1:] = libraries
    if env.manager == "conda":
        builds.append("conda")
    verdict = [env.verdict or "-", *([env.verified[:10]] if env.verified else [])]
    if env.bytes is None:
        return builds, [env.python or "?"], verdict, ["?"]
    sizes = [format_bytes(env.bytes)]
    if env.shared_bytes:
        sizes.append(f"own {format_bytes(env.bytes - env.shared_bytes)}")
    return builds, [env.python or "?"], verdict, sizes


def _shorten_path(path: str, home: str) -> str:
    inside = home not in ("", "/") and Path(path).is_relative_to(home)
    return f"~/{Path(path).relative_to(home)}" if inside else path


def _fold_path(path: str, width: int) -> list[str]:
    """Return a path in rows, broken after slashes. A name longer than a row is broken anywhere."""
    rows = [""]
    for part in path.replace("/", "/\0").split("\0"):
        if rows[-1] and len(rows[-1]) + len(part) > width:
            rows.append("  ")
        while len(rows[-1]) + len(part) > width:
            room = width - len(rows[-1])
            rows[-1] += part[:room]
            part = part[room:]  # noqa: PLW2901
            rows.append("  ")
        rows[-1] += part
    return [r for r in rows if r.strip()]


def show_removal(screen: Screen, done: RemoveResult) -> None:
    """Show one sentence for each environment."""
    for env in done.removed:
        kept = env.bytes - env.freed_bytes
        sentence = f"{env.path}: removed, {format_bytes(env.freed_bytes)} freed"
        if kept > 0:
            sentence += f"; {format_bytes(kept)} are shared with a cache or another environment and stay"
        screen.wrapped(sentence, indent="  ", first="")
        for kernel in env.kernels:
            screen.wrapped(f"Jupyter kernel {kernel}: removed", indent="    ", first="  ")
