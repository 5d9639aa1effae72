"""Confirm findings of an environment that the text shows too."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from ..model import Evidence, Finding
from .candidates import Case, CauseCandidate

_BY_LIBRARY = frozenset(
    ("extension_built_for_other_torch_or_cuda", "system_library_missing", "nvidia_libs_not_on_loader_path")
)
_BY_PACKAGE = frozenset(("extension_built_for_other_torch_or_cuda", "package_files_damaged"))


def confirm(
    findings: Iterable[Finding], case: Case, candidates: Iterable[CauseCandidate]
) -> Iterator[Finding]:
    """Yield the findings of an environment, certain if the text confirms them.

    A package can require a library or a symbol that nothing loads, so its files prove little. A text in which the
    loader does not find this library, or in which this package does not load, proves that it was needed. So does a
    text that proves the same cause.
    """
    certain = {c.cause: c.evidence for c in candidates if c.confidence == "certain"}
    for finding in findings:
        is_open = finding.confidence == "likely"
        shown = _find_lines(finding, case, certain.get(finding.cause, ())) if is_open else ()
        evidence = tuple(dict.fromkeys((*finding.evidence, *shown)))
        yield replace(finding, evidence=evidence, confidence="certain") if shown else finding


def _find_lines(finding: Finding, case: Case, proof: tuple[Evidence, ...]) -> tuple[Evidence, ...]:
    """Return the lines of the text that confirm a finding."""
    by_library = _find_missing(finding, case) if finding.cause in _BY_LIBRARY else None
    by_package = _find_refused(finding, case) if finding.cause in _BY_PACKAGE else None
    line = by_library or by_package
    return (line,) if line else proof[:2]


def _find_missing(finding: Finding, case: Case) -> Evidence | None:
    """Return the line in which the loader does not find a library of the finding."""
    named = {word.strip(",:;()") for e in finding.evidence for word in e.text.split()}
    missing = case.facts.seen.get("missing", [])
    return next((fact.evidence for fact in missing if fact.value in named and ".so" in fact.value), None)


def _find_refused(finding: Finding, case: Case) -> Evidence | None:
    """Return the line in which a package of the finding, "NAME VERSION: ...", does not load its compiled code."""
    packages = {e.text.partition(" ")[0] for e in finding.evidence if ": " in e.text}
    spelled = "|".join(re.escape(name).replace(r"\-", "[-_.]") for name in sorted(packages))
    pattern = re.compile(rf"(?<![\w-])(?:{spelled})(?![\w-])", re.IGNORECASE)
    lines = case.said.group("extension_words") if packages else ()
    return next((line for line in lines if pattern.search(line.text)), None)
