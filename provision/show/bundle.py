"""A bundle for people: what is in it, how big it is, and what it lacks."""

from __future__ import annotations

from ..model import Bundle
from .screen import Screen


def show_bundle(screen: Screen, bundle: Bundle) -> None:
    """What it is for, its files, its notes."""
    gpus = ", ".join(g.name or f"compute capability {g.capability}" for g in bundle.target.gpus)
    driver = f"driver {bundle.target.driver}" if bundle.target.driver else ""
    meant = ", ".join(filter(None, (bundle.target.platform, f"Python {bundle.python}", driver, gpus)))
    screen.wrapped(f"{', '.join(bundle.frameworks)} for {bundle.device}: {meant}", first="")
    total = sum(f.size or 0 for f in bundle.files)
    python = f", with Python {bundle.archive.version}" if bundle.archive else ", without a Python"
    screen.line(f"{len(bundle.files)} files, {total / 1e6:.1f} MB{python}")
    if screen.verbose:
        for file in bundle.files:
            screen.line(f"  {file.path}")
    for note in bundle.notes:
        screen.wrapped(f"note: {note}", indent="    ", first="  ")
