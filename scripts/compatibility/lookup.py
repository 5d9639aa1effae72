"""Look up answers in a document as the page does, and compare two documents."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import Any

from provision.system.versions import version

VERSION, CUDA, INDEX, CUDNN, PYTHON, PIP, UV, GAP, WHY, NOTES, HINT = range(11)


def system_of(document: dict[str, Any], key: str) -> dict[str, Any]:
    """Return the system of a key. Raises StopIteration for an unknown key."""
    system: dict[str, Any] = next(s for s in document["systems"] if s["key"] == key)
    return system


def interval_of(system: dict[str, Any], driver: str | None) -> int:
    """Return the index of a driver's interval."""
    return 0 if driver is None else 1 + bisect_right([version(f) for f in system["floors"]], version(driver))


# Seven parameters: the document, and the six parts of a question.
def answer_of(
    document: dict[str, Any],
    system: dict[str, Any],
    framework: str,
    capability: str,
    driver: str | None,
    *,
    glibc: int = 0,
    python: int = 0,
) -> list[Any]:
    """Return the answer to a question.

    `glibc` and `python` are indexes in the document's lists. The defaults mean the newest glibc and any
    Python.
    """
    table = document["tables"][system["key"]][framework]
    row = table["rows"][table["pairs"][interval_of(system, driver)]]
    classes = table["classes"][row[system["capabilities"].index(capability)]]
    head, *rest = document["answers"][document["lines"][classes[glibc]][python]]
    return [*document["heads"][head], *rest]


def differences(old: dict[str, Any], new: dict[str, Any]) -> Iterator[str]:
    """Yield a line for each answer that differs.

    Answers for any Python on the newest glibc are compared one by one. Differences in texts are only counted.
    """
    others = 0
    for system in new["systems"]:
        before = next((s for s in old["systems"] if s["key"] == system["key"]), None)
        for framework in new["tables"][system["key"]]:
            if before is None or framework not in old["tables"][system["key"]]:
                yield f"{system['key']} {framework}: new"
                continue
            for driver in (None, *system["floors"]):
                for capability in system["capabilities"]:
                    if capability not in before["capabilities"]:
                        yield f"{system['key']} {framework}, GPU {capability}: new"
                        continue
                    was = answer_of(old, before, framework, capability, driver)
                    now = answer_of(new, system, framework, capability, driver)
                    if was[:PIP] != now[:PIP]:
                        yield f"{system['key']} {framework}, driver {driver or 'any'}, GPU {capability}: {_said(was)} -> {_said(now)}"
                    elif _texts(old, was) != _texts(new, now):
                        others += 1
    if others:
        yield f"{others} answers with other texts"
    rest = [
        k
        for k in new
        if k not in ("tables", "heat", "texts", "heads", "answers", "lines") and new[k] != old.get(k)
    ]
    yield from (f"{key} differs" for key in rest)


def _said(answer: list[Any]) -> str:
    return " ".join(str(x) for x in answer[:PIP] if x) or "no build"


def _texts(document: dict[str, Any], answer: list[Any]) -> list[str]:
    numbers = [*answer[WHY], *answer[NOTES], answer[HINT], *answer[PIP:WHY]]
    return [document["texts"][n] if n >= 0 else "" for n in numbers]
