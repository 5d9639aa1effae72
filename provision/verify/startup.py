"""Files that Python runs at each start (.pth files, sitecustomize, usercustomize) and that hide the GPUs.

The driver's stages run without them, a framework runs with them: where only the framework sees no GPU, Python is
started once more under watch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..model import FRAMEWORKS, Environment, Evidence, Finding
from . import probe
from .culprit import HIDING

_SECONDS = 60.0


def finding(env: Environment, environ: Mapping[str, str], framework: str) -> Finding | None:
    """The startup file that hides the GPUs, with its line; None where none touches a variable or a framework."""
    asked = {"variables": list(HIDING), "frameworks": list(FRAMEWORKS)}
    try:
        told = probe.run(
            env.python, ("report", "startup"), asked, environ=environ, timeout=_SECONDS, options=("-S",)
        )
    except OSError:
        return None  # the framework's own stage has said that this Python does not start
    rows = told.all("startup")
    set_ = [r for r in rows if r["what"] in HIDING]
    if set_:
        return _sets(set_[-1])
    imported = next((r for r in rows if r["value"] == framework), None)
    return _imports(imported) if imported else None


def _sets(row: Mapping[str, Any]) -> Finding:
    """A file that sets a variable: the last one to do so counts."""
    where = f"{row['file']}, line {row['line']},"
    what = f"sets {row['what']}={row['value']!r}" if row["value"] is not None else f"unsets {row['what']}"
    return Finding(
        cause="visible_devices_invalid",
        title=f"{where} {what} at each start of Python",
        evidence=_evidence(row, what),
        fix=f"Take line {row['line']} out of {row['file']}, or remove the file.",
        confidence="certain",
    )


def _imports(row: Mapping[str, Any]) -> Finding:
    """A file that imports the framework before the program does: what it changes there is not known."""
    what = f"imports {row['value']}"
    return Finding(
        cause="visible_devices_invalid",
        title=f"{row['file']}, line {row['line']}, {what} at each start of Python, and {row['value']} sees no GPU",
        evidence=_evidence(row, what),
        fix=f"Remove {row['file']}, or what it changes in {row['value']}.",
        confidence="likely",
    )


def _evidence(row: Mapping[str, Any], what: str) -> tuple[Evidence, ...]:
    found = [Evidence(text=f"{what} at each start of Python", source=row["file"], line=row["line"])]
    if row["pth"]:
        found.append(Evidence(text="starts it", source=row["pth"][0], line=row["pth"][1]))
    return tuple(found)
