"""`gpuenv verify`: the verdict on any environment."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..errors import UsageError
from ..model import FRAMEWORKS, Emit, Verdict, drop_event
from ..model.option import argument, group, option
from ..request.options import Choices


@dataclass(frozen=True, kw_only=True)
class VerifyOptions:
    """The options of `verify`."""

    env: Path = argument(Path(".venv"), help="Path of the environment.", complete="environments")
    quick: bool = option(
        False, help="Driver, runtime, libraries and cuDNN only; on the CPU the frameworks are imported."
    )
    deep: bool = option(False, help="Every case, dtype and hash.")
    strict: bool = option(False, help="Warnings fail.")
    locked: bool = option(False, help="Drift fails: what is not as its lock has it.")
    device: str | None = option(None, help="cuda:N, all or cpu.")
    framework: list[str] = option(list, "--framework", "-f", help="Only this one; repeatable.")
    timeout: float = option(300.0, help="Seconds for each child process.")
    report: Path | None = option(None, help="Also write the verdict as one HTML page.")
    force: bool = option(False, help="Replace files that gpuenv did not write, or that were edited since.")
    choices: Choices = group(Choices, "profiles", "cache_dir")


def verify(options: VerifyOptions, emit: Emit = drop_event) -> Verdict:
    """Return the verdict on a venv, a conda prefix or the environment of a python executable."""
    from ..system.output_file import refuse_to_replace
    from . import proving

    asked = {
        "quick": options.quick, "deep": options.deep, "strict": options.strict, "locked": options.locked,
        "device": _device(options.device), "frameworks": _frameworks(options.framework),
        "timeout": options.timeout,
    }  # fmt: skip
    if options.report:
        refuse_to_replace(options.report, force=options.force)
    return proving.show_verdict(emit, options.env, options.choices, asked, options.report)


def _device(device: str | None) -> str | None:
    if device is None or device in ("cpu", "all", "cuda"):
        return None if device == "cuda" else device
    if device.startswith("cuda:") and device[5:].isdigit():
        return device
    raise UsageError(f"--device {device}: expected cpu, all or cuda:N")


def _frameworks(named: list[str]) -> tuple[str, ...]:
    for name in named:
        if name not in FRAMEWORKS:
            raise UsageError(f"unknown framework {name!r}: gpuenv knows {', '.join(FRAMEWORKS)}")
    return tuple(named)
