"""Render the results of a fleet as one HTML page."""

from __future__ import annotations

from collections import Counter

from ..model import FleetResults, HostResult
from .html_page import document, escaped

_WARN = ("planned", "unproven")


def page(results: FleetResults, footer: str) -> str:
    """Return the page. `footer` states the program and the time ("gpuenv 0.1.0, 2026-01-31 12:00 UTC")."""
    bad = sum(1 for h in results.hosts if not h.ok)
    status, word = ("fail", f"{bad} of {len(results.hosts)} not ok") if bad else ("pass", "all ok")
    verdicts = Counter(h.verdict.replace("_", " ") for h in results.hosts)
    counts = ", ".join(f"{number} {name}" for name, number in verdicts.most_common())
    title = f"{len(results.hosts)} hosts"
    header = f'<header><p class="mark {status}">{word}</p><h1>{title}</h1><p class=quiet>{escaped(counts)}</p></header>'
    return document(f"{word}: {title}", [header, _table(results), f"<footer>{escaped(footer)}</footer>"])


def _table(results: FleetResults) -> str:
    heads = "".join(
        f"<th scope=col>{h}</th>" for h in ("host", "class", "plan", "verdict", "cause", "seconds")
    )
    rows = "".join(_row(host) for host in results.hosts)
    return f"<section><table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></section>"


def _row(host: HostResult) -> str:
    status = "fail" if not host.ok else "warn" if host.verdict in _WARN else "pass"
    hint = f"<p class=quiet><b>Do this:</b> {escaped(host.hint)}</p>" if host.hint and not host.ok else ""
    seconds = "" if host.seconds is None else f"{host.seconds:.1f}"
    return (
        f"<tr><th scope=row>{escaped(host.host)}</th><td data-is=class>{escaped(host.class_ or '')}</td>"
        f"<td data-is=plan>{escaped(host.plan or '')}</td>"
        f'<td data-is=verdict><span class="mark {status}">{host.verdict.replace("_", " ")}</span></td>'
        f"<td data-is=cause>{escaped(host.cause or '')}{hint}</td>"
        f"<td data-is=seconds class=number>{seconds}</td></tr>"
    )
