"""NVIDIA's `cuda-toolkit` package: which version of each library a CUDA release is made of."""

from __future__ import annotations

from typing import Any

from . import requirements as rq
from .reader import Documents, Reader, nothing_more, number, releases, representative

OLDEST = "11.8"
_LINUX = "linux-x86_64"


def toolkit_rows(reader: Reader, _: Documents) -> list[dict[str, Any]]:
    """One row per toolkit release: `parts` are "extra requirement ...", as it pins them on Linux."""
    found = releases(reader.wheels("cuda-toolkit"), OLDEST)
    found = {v: w for v, w in found.items() if not v.is_prerelease and reader.takes(v, "any")}
    facts = reader.all_facts((representative(w) for w in found.values()), "metadata", nothing_more)
    rows = []
    for version in sorted(found, key=lambda v: number(str(v)), reverse=True):
        fact = facts[representative(found[version])]
        if fact:
            rows.append({"version": str(version), "parts": _parts(fact["requires"])})
    return rows


def _parts(lines: list[str]) -> list[str]:
    """Every extra but `all`, each with what it brings: a library and the libraries under it."""
    told: dict[str, list[str]] = {}
    for line in lines:
        extra = _extra(line)
        held = rq.required([line], _LINUX, ["3.12"], [extra]) if extra and extra != "all" else []
        told.setdefault(extra, []).extend(str(r) for r, _ in held if r.name.startswith("nvidia-"))
    return [" ".join([extra, *names]) for extra, names in sorted(told.items()) if names]


def _extra(line: str) -> str:
    """The extra that a Requires-Dist line is for, "" for none."""
    _, _, marker = line.partition("extra ==")
    return marker.strip().split()[0].strip("\"')") if marker else ""
