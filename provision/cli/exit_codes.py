"""Map the results and errors of commands to exit codes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..errors import GpuenvError

if TYPE_CHECKING:
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
    """Return the exit code of a command's result."""
    get_code = _OF_RESULTS.get(type(value).__name__)
    return get_code(value, options) if get_code else 0


def get_signal(value: Any) -> str | None:
    """Return the name of the signal that ended the program of `gpuenv run`, or None."""
    result: RunResult | None = value if type(value).__name__ == "RunResult" else None
    return result.signal if result else None


def _get_run_code(result: RunResult, _options: Any) -> int:
    return result.code


def _get_plan_code(plan: Plan, options: Any) -> int:
    takes_lock = getattr(options, "takes_lock", False)  # a lock may have no framework
    return 0 if plan.builds or takes_lock else _NO_BUILD


def _get_fleet_code(fleet: Bundle | Fleet, _options: Any) -> int:
    return _NO_BUILD if fleet.unserved else 0


def _get_fleet_locks_code(locks: FleetLocks, _options: Any) -> int:
    return _NO_BUILD if locks.fleet.unserved else 0


def _get_create_code(result: CreateResult, _options: Any) -> int:
    from ..model import is_good

    if result.environment is None and (result.plan is None or not result.plan.builds):
        return _NO_BUILD
    if not is_good(result):
        return _VERIFY
    return OF_ERRORS[result.kernel_error.name] if result.kernel_error else 0


def _get_verdict_code(verdict: Verdict, options: Any) -> int:
    """Return the code of `verify`. With --strict a warning fails. With --device cpu a verdict on the CPU is
    expected."""
    from ..model import is_expected

    warned = options.strict and any(s.status == "warn" for s in verdict.stages)
    expected = is_expected(verdict, verdict.made_for, asked_cpu=options.device == "cpu")
    return 0 if expected and not warned else _VERIFY


def _get_node_code(verdict: NodeVerdict, _options: Any) -> int:
    return (_HUNG if verdict.hung else _VERIFY) if verdict.fault else 0


def _get_repair_code(result: RepairResult, _options: Any) -> int:
    from ..model import is_expected

    if result.verdict is None:
        return 0
    return 0 if is_expected(result.verdict, result.verdict.made_for) else _VERIFY


# By name: importing these classes takes a tenth of the start of a command that has none of them.
_OF_RESULTS: dict[str, Callable[[Any, Any], int]] = {
    "RunResult": _get_run_code,
    "Plan": _get_plan_code,
    "Bundle": _get_fleet_code,
    "Fleet": _get_fleet_code,
    "FleetLocks": _get_fleet_locks_code,
    "CreateResult": _get_create_code,
    "Verdict": _get_verdict_code,
    "NodeVerdict": _get_node_code,
    "RepairResult": _get_repair_code,
}
