"""What each record of a probe's report must hold. A record without it is not used, and named as malformed.

The report comes from the environment's own Python, so a damaged or changed environment can write anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_TEXT = (str,)
_MAYBE = (str, type(None))
_NUMBER = (int, float)

_DEVICE = {"index": (int,), "name": _MAYBE, "capability": _MAYBE, "uuid": _MAYBE}
_FAILED = ({"call": _TEXT}, type(None))
_MEMORY = {"index": (int,), "free_mib": (int,), "total_mib": (int,)}
_HOLDER = {
    "gpu": (int, type(None)),
    "pid": (int,),
    "memory_mib": (int, type(None)),
    "name": _MAYBE,
    "framework": _MAYBE,
}
_KINDS: dict[str, dict[str, Any]] = {
    "begin": {"stage": _TEXT, "doing": _TEXT},
    "stage": {"stage": _TEXT, "failed": _FAILED, "told": {}},
    "framework": {"version": _TEXT, "cuda": _MAYBE, "file": _TEXT, "devices": [_DEVICE]},
    "failed": {"stage": _TEXT},
    "convolution": {
        "device": (int,), "case": _TEXT, "dtype": _TEXT, "which": _TEXT, "error": (*_NUMBER, type(None)),
        "tolerance": _NUMBER, "reason": _TEXT, "ok": (bool,),
    },
    "unserved": {"case": _TEXT, "dtype": _TEXT, "reason": _TEXT},
    "mapped": {"files": list},
    "computed": {"files": [_TEXT]},
    "waited": {"seconds": _NUMBER},
    "extension": {"package": _TEXT, "path": _TEXT, "error": _MAYBE},
    "needs": {
        "device": _TEXT, "python": _TEXT, "compilers": [_TEXT], "compiler": _MAYBE, "include": _TEXT, "headers": (bool,),
    },
    "compiled": {"max_error": _NUMBER, "ok": (bool,)},
    "required": {"module": _TEXT, "error": _MAYBE},
    "imported": {"module": _TEXT, "error": _MAYBE},
    "enter": {"framework": _TEXT},
    "startup": {"what": _TEXT, "value": _MAYBE, "file": _TEXT, "line": (int,), "pth": (list, type(None))},
    "copy": {"source": (int,), "target": (int,), "direct": (bool,), "ok": (bool,)},
    "all_reduce": {"ok": (bool,)},
    "where": {
        "version": _TEXT, "executable": _TEXT, "prefix": _TEXT, "base_prefix": _TEXT, "path": [_TEXT],
        "sites": [_TEXT], "user_site": _MAYBE, "frameworks": {},
    },
}  # fmt: skip
_STAGES: dict[str, dict[str, Any]] = {
    "driver": {
        "kernel_module": _MAYBE, "files": [{"path": _TEXT, "problem": _MAYBE}], "mig": [_TEXT],
        "devices": [{**_DEVICE, "uuid": _TEXT, "capability": _TEXT}],
    },
    "runtime": {"libcudart": _MAYBE, "memory": [_MEMORY], "holders": [_HOLDER]},
    "cudnn": {"mapped": list},
}  # fmt: skip
_REACHED: dict[str, dict[str, Any]] = {
    "driver": {"cuda": _TEXT},
    "runtime": {"version": _TEXT, "libcudart": _TEXT},
    "cudnn": {"number": (int,)},
}


def problem(record: Mapping[str, Any]) -> str | None:
    """The first thing that a record lacks or has of a wrong type; None for a well-formed record."""
    kind = record["kind"]
    if kind not in _KINDS:
        return None
    wrong = _lacks(record, {"at": _NUMBER, **_KINDS[kind]}) or _of_kind(record)
    return f"a record {kind!r} {wrong}" if wrong else None


def _of_kind(record: Mapping[str, Any]) -> str | None:
    """What the fields alone do not show."""
    kind = record["kind"]
    if kind == "stage":
        reached = _REACHED.get(record["stage"], {}) if record["failed"] is None else {}
        return _lacks(record["told"], {**_STAGES.get(record["stage"], {}), **reached}) or _pairs(
            record["told"], "mapped"
        )
    if kind == "failed":
        return None if "call" in record else _lacks(record, {"error": _TEXT, "text": _TEXT})
    if kind == "convolution" and record["tolerance"] <= 0:
        return "has a tolerance of 0 or less"
    return _pairs(record, "files") if kind == "mapped" else None


def _pairs(record: Mapping[str, Any], name: str) -> str | None:
    """Whether a list holds pairs of a path and a version."""
    right = all(
        isinstance(row, list) and len(row) == 2 and isinstance(row[0], str) and isinstance(row[1], _MAYBE)
        for row in record.get(name, ())
    )
    return None if right else f"has no pairs of path and version in {name!r}"


def _lacks(record: Mapping[str, Any], wanted: Mapping[str, Any]) -> str | None:
    for name, form in wanted.items():
        if name not in record:
            return f"lacks {name!r}"
        if not _fits(record[name], form):
            return f"has a wrong {name!r}"
    return None


def _fits(value: Any, form: Any) -> bool:
    """Whether a value has a form: a class, one of several, a list of a form, or a table with these keys."""
    if isinstance(form, list):
        return isinstance(value, list) and all(_fits(item, form[0]) for item in value)
    if isinstance(form, dict):
        return isinstance(value, dict) and _lacks(value, form) is None
    if isinstance(form, tuple):
        return any(_fits(value, one) for one in form)
    return isinstance(value, form) and not (isinstance(value, bool) and form is not bool)
