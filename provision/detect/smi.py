"""nvidia-smi, the last resort: only --query-gpu, never its header (renamed in driver 610)."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from ..system import process
from .answers import Answer
from .driver_files import SMI_FIELDS, smi_rows
from .files import absolute_entries, anybody_may_write, is_there, under

TRUSTED = ("/usr/bin", "/usr/lib/wsl/lib", "/usr/local/nvidia/bin")


def candidates(root: Path, environ: Mapping[str, str]) -> Iterable[Path]:
    """Where nvidia-smi may be taken from: the driver's own folders, then PATH entries that belong
    to root or to this user. Someone else's folder on PATH could hold a program of that name."""
    yield from (under(root, folder) / "nvidia-smi" for folder in TRUSTED)
    for folder in absolute_entries(environ.get("PATH")):
        program = folder / "nvidia-smi"
        try:
            owners = {folder.stat().st_uid, program.stat().st_uid}
        except OSError:
            continue
        if owners <= {0, os.geteuid()} and not anybody_may_write(folder, program):
            yield program


def ask_smi(root: Path, environ: Mapping[str, str], seconds: float) -> Answer | None:
    """Ask the first nvidia-smi there is; None where there is none."""
    if os.name == "nt":
        return None  # NVML comes with the same driver package there: nothing more to learn
    program = next((path for path in candidates(root, environ) if is_there(path)), None)
    if program is None:
        return None
    # compute_cap is unknown to nvidia-smi of old drivers, which then answer nothing at all.
    for fields in (SMI_FIELDS, tuple(f for f in SMI_FIELDS if f != "compute_cap")):
        argv = [str(program), f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"]
        try:
            ended = process.run(argv, env=environ, timeout=seconds)
        except OSError as error:
            return Answer(source="nvidia-smi", path=str(program), error=f"nvidia-smi: {error}")
        gpus, driver = smi_rows(ended.stdout, fields)
        if ended.ok and gpus:
            return Answer(source="nvidia-smi", code=0, path=str(program), gpus=gpus, driver=driver)
        if "compute_cap" not in ended.stdout + ended.stderr:
            break
    words = "did not return" if ended.timed_out else (ended.stdout + ended.stderr).strip()[-300:]
    return Answer(
        source="nvidia-smi", path=str(program), code=ended.returncode or None, error=f"nvidia-smi: {words}"
    )
