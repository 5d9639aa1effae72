"""Check the values of options, and suggest the value that a wrong word means."""

from __future__ import annotations

import difflib
import re

from ..errors import UsageError
from ..model import MANAGERS, PLATFORMS
from .shared_options import Choices

_MEANT = {"gpu": "cuda", "nvidia": "cuda", "none": "cpu", "virtualenv": "venv", "mamba": "conda"}
"""Words that are no value of an option, and the value that they mean."""
_DRIVER_PLACE = "the driver version is at the top left of nvidia-smi"


def check_values(c: Choices) -> None:
    """Raise UsageError for an invalid value of an option. It names the most similar valid value."""
    for option, value, allowed in (
        ("--manager", c.manager, MANAGERS),
        ("--device", c.device, ("auto", "cuda", "cpu")),
        ("--platform", c.platform, PLATFORMS),
        ("--driver-os", c.driver_os, ("linux", "windows")),
    ):
        if value is not None and value not in allowed:
            raise UsageError(
                f"{option} {value}: not one of {', '.join(allowed)}", hint=suggest_value(value, allowed)
            )
    if "://" not in c.index and c.index not in ("auto", "pypi", "pytorch"):
        hint = suggest_value(c.index, ("auto", "pypi", "pytorch"))
        raise UsageError(f"--index {c.index}: not auto, pypi, pytorch or a URL", hint=hint)
    for option, value, form in (
        ("--driver", c.driver, r"\d{3,4}(\.\d+){0,3}"),
        ("--glibc", c.glibc, r"2\.\d+"),
        ("--python", c.python, r"3\.\d+(\.\d+)?"),
        ("--cuda", c.cuda, r"\d+(\.\d+)?"),
        ("--gpus", c.gpus, r"\d+(,\d+)*"),
    ):
        if value is not None and not re.fullmatch(form, value):
            raise _wrong_form(option, value)


def _wrong_form(option: str, value: str) -> UsageError:
    """Return the error for a version or list of another form. A CUDA version is often used as a driver
    version."""
    if option == "--driver" and re.fullmatch(r"\d{1,2}(\.\d+)?", value):
        return UsageError(
            f"--driver {value}: this looks like a CUDA version",
            hint=f"{_DRIVER_PLACE}; for a CUDA release: --cuda {value}",
        )
    example = {"--driver": "535.129.03", "--glibc": "2.28", "--python": "3.11", "--cuda": "12.6"}
    expected = f"a version such as {example[option]}" if option in example else "indexes such as 0,2"
    return UsageError(
        f"{option} {value}: expected {expected}", hint=_DRIVER_PLACE if option == "--driver" else None
    )


def suggest_value(word: str, allowed: tuple[str, ...] | list[str]) -> str | None:
    """Return the similar valid word as a question, or None."""
    meant = _MEANT.get(word.lower())
    near = [meant] if meant in allowed else difflib.get_close_matches(word, allowed, n=1, cutoff=0.4)
    return f"Did you mean {near[0]}?" if near else None
