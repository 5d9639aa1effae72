"""Map the results and errors of commands to exit codes."""

from __future__ import annotations

from typing import Any

from ..commands.verdict_inputs import is_expected, is_good
from ..errors import GpuenvError
from ..model import (
    Bundle,
    CreateResult,
    Fleet,
    FleetLocks,
    NodeVerdict,
    Plan,
    RepairResult,
    RunResult,
    Verdict,
)

BUG, USAGE, INTERRUPTED = 1, 2, 130
_NO_BUILD, _VERIFY = 5, 8
OF_ERRORS = {
    "error": BUG,
    "usage": USAGE,
    "data": 3,
    "machine": 4,
    "resolve": _NO_BUILD,
    "lock": 6,
    "build": 7,
    "verify": _VERIFY,
}
"""The exit codes by the names of the error classes."""


def get_error_code(error: GpuenvError) -> int:
    """Return the exit code of an error."""
    return OF_ERRORS[error.name]


def get_exit_code(value: Any, options: Any) -> int:
    """Return the exit code of a command's result.

    With --strict a warning of `verify` fails. With --device cpu a verdict on the CPU is expected.
    """
    if isinstance(value, RunResult):
        return value.code
    if isinstance(value, Plan):
        takes_lock = getattr(options, "takes_lock", False)  # a lock may have no framework
        return 0 if value.builds or takes_lock else _NO_BUILD
    if isinstance(value, (Bundle, Fleet, FleetLocks)):
        fleet = value.fleet if isinstance(value, FleetLocks) else value
        return _NO_BUILD if fleet.unserved else 0
    if isinstance(value, CreateResult):
        return _get_create_code(value)
    if isinstance(value, Verdict):
        warned = options.strict and any(s.status == "warn" for s in value.stages)
        expected = is_expected(value, value.made_for, asked_cpu=options.device == "cpu")
        return 0 if expected and not warned else _VERIFY
    if isinstance(value, NodeVerdict):
        return _VERIFY if value.fault else 0
    if isinstance(value, RepairResult) and value.verdict:
        return 0 if is_expected(value.verdict, value.verdict.made_for) else _VERIFY
    return 0


def _get_create_code(result: CreateResult) -> int:
    if result.environment is None and (result.plan is None or not result.plan.builds):
        return _NO_BUILD
    if not is_good(result):
        return _VERIFY
    return OF_ERRORS[result.kernel_error.name] if result.kernel_error else 0
