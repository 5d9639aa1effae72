"""The command that activates an environment in the user's shell."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from pathlib import Path

_SHELLS = ("bash", "zsh", "fish", "csh", "tcsh", "pwsh", "nu", "sh", "dash", "ksh")


def activate_line(env: Path, environ: Mapping[str, str]) -> str:
    """Return the command that activates an environment. A path below the current folder is relative."""
    shell = _detect_shell() or Path(environ.get("SHELL", "bash")).name
    try:
        shown = env.relative_to(Path.cwd())
    except ValueError:
        shown = env
    scripts = {"fish": "activate.fish", "csh": "activate.csh", "tcsh": "activate.csh",
               "pwsh": "activate.ps1", "nu": "activate.nu"}  # fmt: skip
    if shell in ("pwsh", "nu") and (env / "conda-meta").is_dir():
        return f"gpuenv run {shlex.quote(str(shown))} -- {shell}"
    path = str(shown / "bin" / scripts.get(shell, "activate"))
    path = f"./{path}" if path.startswith("-") else path  # otherwise read as an option
    script = shlex.quote(path)
    if shell == "pwsh":  # `&` runs a quoted command; '' is an escaped apostrophe
        return path if script == path else "& '" + path.replace("'", "''") + "'"
    if shell == "nu":  # nu has escapes only in double quotes
        escaped = path.replace("\\", "\\\\").replace('"', '\\"')
        return f"overlay use {path}" if script == path else f'overlay use "{escaped}"'
    return f". {script}" if shell in ("sh", "dash", "ksh") else f"source {script}"


def _detect_shell() -> str | None:
    """Return the name of the nearest ancestor process that is a shell, read from /proc."""
    pid = os.getppid()
    for _ in range(6):
        try:
            status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
        except OSError:
            return None
        fields = dict(row.split(":\t", 1) for row in status.splitlines() if ":\t" in row)
        name = fields.get("Name", "").strip()
        if name in _SHELLS and name != "sh":
            return name
        pid = int(fields.get("PPid", "0"))
        if pid <= 1:
            return None
    return None
