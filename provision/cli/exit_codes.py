"""Map the results and errors of commands to exit codes."""

from __future__ import annotations

from typing import Any

from .. import model
from ..errors import GpuenvError

BUG, USAGE, INTERRUPTED = 1, 2, 130
_NO_BUILD, _VERIFY, _NETWORK, _HUNG = 5, 8, 9, 10
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
    return _NETWORK if getattr(error, "unreachable", None) else OF_ERRORS[error.name]


def get_exit_code(value: Any, options: Any) -> int:
    """Return the exit code of a command's result.

    With --strict a warning of `verify` fails. With --device cpu a verdict on the CPU is expected.
    """
    match type(value).__name__:  # importing all classes takes a tenth of the start of a command
        case "RunResult":
            return int(value.code)
        case "Plan":
            takes_lock = getattr(options, "takes_lock", False)  # a lock may have no framework
            return 0 if value.builds or takes_lock else _NO_BUILD
        case "Bundle" | "Fleet":
            return _NO_BUILD if value.unserved else 0
        case "FleetLocks":
            return _NO_BUILD if value.fleet.unserved else 0
        case "CreateResult":
            if value.environment is None and (value.plan is None or not value.plan.builds):
                return _NO_BUILD
            if not model.is_good(value):
                return _VERIFY
            return OF_ERRORS[value.kernel_error.name] if value.kernel_error else 0
        case "Verdict":
            warned = options.strict and any(s.status == "warn" for s in value.stages)
            expected = model.is_expected(value, value.made_for, asked_cpu=options.device == "cpu")
            return 0 if expected and not warned else _VERIFY
        case "NodeVerdict":
            return (_HUNG if value.hung else _VERIFY) if value.fault else 0
        case "RepairResult":
            verdict = value.verdict
            return 0 if verdict is None or model.is_expected(verdict, verdict.made_for) else _VERIFY
    return 0
