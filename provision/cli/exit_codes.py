"""The exit codes of values: the one table of what a result means to a shell."""

from __future__ import annotations

from typing import Any

from ..commands.judging import is_expected, is_good
from ..errors import GpuenvError
from ..model import Created, Plan, Repaired, Verdict

_NO_BUILD, _VERIFY = 5, 8
_OF_NAME = {error.name: error.code for error in GpuenvError.__subclasses__()}


def of(value: Any, *, strict: bool = False, asked_cpu: bool = False) -> int:
    """The exit code of a command's value. With `strict` a warning of `verify` fails; `asked_cpu` says that the user
    asked for a verdict on the CPU."""
    if isinstance(value, Plan):
        return 0 if value.builds else _NO_BUILD
    if isinstance(value, Created):
        return _of_created(value)
    if isinstance(value, Verdict):
        warned = strict and any(s.status == "warn" for s in value.stages)
        return 0 if is_expected(value, value.made_for, asked_cpu=asked_cpu) and not warned else _VERIFY
    if isinstance(value, Repaired) and value.verdict:
        return 0 if is_expected(value.verdict, value.verdict.made_for) else _VERIFY
    return 0


def _of_created(made: Created) -> int:
    if made.environment is None and (made.plan is None or not made.plan.builds):
        return _NO_BUILD
    if not is_good(made):
        return _VERIFY
    return _OF_NAME[made.kernel_error.name] if made.kernel_error else 0
