"""Confirm findings of an environment that the text shows too."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from ..model import Evidence, Finding
from .candidates import Case

_BY_LIBRARY = frozenset(
    ("extension_built_for_other_torch_or_cuda", "system_library_missing", "nvidia_libs_not_on_loader_path")
)


def confirm(findings: Iterable[Finding], case: Case) -> Iterator[Finding]:
    """Yield the findings of an environment, certain if the text confirms them.

    A package can require a library that nothing loads, so its files prove little. A text in which the loader does
    not find this library proves that it was needed.
    """
    for finding in findings:
        shown = _is_missed(finding, case) if _is_open(finding) else None
        evidence = (*finding.evidence, shown) if shown else finding.evidence
        yield replace(finding, evidence=evidence, confidence="certain") if shown else finding


def _is_open(finding: Finding) -> bool:
    return finding.confidence == "likely" and finding.cause in _BY_LIBRARY


def _is_missed(finding: Finding, case: Case) -> Evidence | None:
    """Return the line in which the loader does not find a library of the finding."""
    named = {word.strip(",:;()") for e in finding.evidence for word in e.text.split()}
    missing = case.facts.seen.get("missing", [])
    return next((fact.evidence for fact in missing if fact.value in named and ".so" in fact.value), None)
