"""Write a verdict and the results of a fleet as HTML pages, without scripts, fonts or pictures from other hosts."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timezone
from html import escape
from itertools import groupby
from pathlib import Path

from .. import __version__
from ..model import (
    DeviceVerdict,
    Evidence,
    Finding,
    FleetResults,
    FrameworkVerdict,
    GradedResult,
    HostResult,
    LibraryFile,
    StageResult,
    Verdict,
)
from ..system.files import signed, write_named
from ..system.redaction import clean
from ..templates import fill, read


def html_document(title: str, body: Iterable[str]) -> str:
    """Return the whole page. `body` is markup, `title` is text."""
    parts = {
        "title": escaped(title),
        "style": read("page.css") + read("report.css"),
        "body": "\n".join(filter(None, body)),
    }
    return fill("page.html", parts)


def escaped(value: object) -> str:
    """Return untrusted text as markup: special characters are escaped, without secrets and control characters."""
    return escape(re.sub(r"[\ud800-\udfff]", "\ufffd", clean(str(value))))


_OUTCOMES = {
    "works": (
        "pass",
        "works",
        "All convolution results are correct, and cuDNN was loaded from the environment.",
    ),
    "cpu": ("pass", "works on the CPU", "All convolution results are correct. No GPU was tested."),
    "unproven": ("warn", "unproven", "No code from the environment was run."),
    "wrong": ("fail", "wrong", "Convolutions ran, and some results are wrong."),
    "fails": ("fail", "fails", "The first stage that failed is the cause; later ones were skipped."),
}
# The scale of the bars is logarithmic, from a thousandth of the tolerance to ten times the tolerance.
_LOW, _HIGH = -3.0, 1.0


def verdict_page(verdict: Verdict, footer: str) -> str:
    """Return the page of a verdict. `footer` states the program and the time ("gpuenv 0.1.0, 2026-01-31 12:00 UTC")."""
    status, word, meaning = _OUTCOMES[verdict.verdict]
    if verdict.verdict == "works" and not verdict.frameworks:
        meaning = "Driver, CUDA runtime, libraries and cuDNN work. No framework was tested."
    parts = [
        f'<header><p class="mark {status}">{word}</p><h1>{escaped(verdict.env)}</h1><p>{escaped(meaning)}</p>',
        f"<p class=quiet>{escaped(verdict.python)}</p></header>",
        f"<p class=hint><b>Do this:</b> {escaped(verdict.hint)}</p>" if verdict.hint else "",
        _findings(verdict.findings),
        _stages(verdict.stages),
        *map(_framework, verdict.frameworks),
        f"<footer>{escaped(footer)}</footer>",
    ]
    return html_document(f"{word}: {verdict.env}", parts)


def _evidence(rows: tuple[Evidence, ...]) -> str:
    if not rows:
        return ""
    items = "".join(
        f"<li>{escaped(r.text)}"
        + (f" <cite>{escaped(r.source)}{':' + str(r.line) if r.line else ''}</cite>" if r.source else "")
        + "</li>"
        for r in rows
    )
    return f"<ul class=evidence>{items}</ul>"


def _findings(findings: tuple[Finding, ...]) -> str:
    cards = [
        f"<article class=card><h3>{escaped(f.title)}</h3><p class=quiet><code>{escaped(f.cause)}</code>, "
        f"{escaped(f.confidence)}</p>"
        + (f"<p><b>Fix:</b> {escaped(f.fix)}</p>" if f.fix else "")
        + _evidence(f.evidence)
        + "</article>"
        for f in findings
    ]
    return f"<section><h2>Findings</h2>{''.join(cards)}</section>" if cards else ""


def _stages(stages: tuple[StageResult, ...]) -> str:
    rows = []
    for s in stages:
        about = " ".join(x for x in (s.framework, s.device if s.device not in ("cuda", "cpu") else None) if x)
        seconds = "" if s.seconds is None else f"{s.seconds:.2f} s"
        more = _evidence(s.evidence)
        if more:
            word = "piece" if len(s.evidence) == 1 else "pieces"
            opened = " open" if s.status in ("fail", "warn") else ""
            more = f"<details{opened}><summary>{len(s.evidence)} {word} of evidence</summary>{more}</details>"
        rows.append(
            f'<li class=stage><span class="mark {s.status}">{s.status}</span>'
            f"<span class=name><b>{escaped(s.stage)}</b> {escaped(about)}</span>"
            f"<span class=seconds>{seconds}</span><div class=detail>{escaped(s.detail)}{more}</div></li>"
        )
    return f"<section><h2>Stages</h2><ol class=stages>{''.join(rows)}</ol></section>"


def _framework(framework: FrameworkVerdict) -> str:
    facts = [
        ("CUDA", framework.cuda),
        ("cuDNN built with", framework.cudnn_built),
        ("cuDNN loaded", framework.cudnn_loaded),
    ]
    shown = ", ".join(f"{name} {value}" for name, value in facts if value)
    title = f"{framework.name} {framework.version or ''}".strip()
    return (
        f"<section><h2>{escaped(title)}</h2>"
        + (f"<p class=quiet>{escaped(shown)}</p>" if shown else "")
        + "".join(_device(d) for d in framework.devices)
        + _libraries(framework.libraries)
        + "</section>"
    )


def _device(device: DeviceVerdict) -> str:
    name = "the CPU" if device.index < 0 else f"device {device.index}"
    words = [name, device.name, device.capability and f"compute capability {device.capability}", device.uuid]
    title = f"<h3>{escaped(', '.join(filter(None, words)))}</h3>"
    results = device.results
    if not results:
        return f"{title}<p class=quiet>No results were checked on this device.</p>"
    wrong = [f"{c.case} {c.dtype} {c.pass_}" for c in results if not c.ok]
    summary = f"<b class=pass>All results are right:</b> {len(results)} of {len(results)}"
    if wrong:
        summary = (
            f"<b class=fail>{len(wrong)} of {len(results)} results are wrong:</b> {escaped(', '.join(wrong))}"
        )
    cases = ""
    for (case, dtype), group in groupby(results, key=lambda c: (c.case, c.dtype)):
        rows = list(group)
        cases += (
            f"<div class='case{'' if all(c.ok for c in rows) else ' off'}'><h4>{escaped(case)} <span class=quiet>{escaped(dtype)}, "
            f"tolerance {rows[0].tolerance:g}</span></h4>{''.join(map(_bar, rows))}</div>"
        )
    return (
        f"{title}<p>{summary}</p><p class=quiet>Each bar is an error on a logarithmic scale. The vertical line is the "
        f"tolerance, the left end a thousandth of it.</p><div class=cases>{cases}</div>"
    )


def _bar(c: GradedResult) -> str:
    """Return one result: its error as a share of the tolerance."""
    number = "NaN" if c.max_error is None else f"{c.max_error:.1e}"
    if c.max_error is None:
        share = 1.0
    elif c.max_error <= 0:
        share = 0.0
    else:
        share = (math.log10(c.max_error / c.tolerance) - _LOW) / (_HIGH - _LOW)
    width = 100 * min(max(share, 0.005), 1.0)
    status = "pass" if c.ok else "fail"
    label = f"{c.pass_}: error {number}, at most {c.tolerance:g}: {'right' if c.ok else 'wrong'}"
    return (
        f'<div class=result><span class=which>{escaped(c.pass_)}</span><span class=bar role=img aria-label="{escaped(label)}">'
        f'<i class="{status}" style="width:{width:.1f}%"></i></span>'
        f"<span class=number>{number}{'' if c.ok else ' wrong'}</span></div>"
    )


def _libraries(libraries: tuple[LibraryFile, ...]) -> str:
    """Return the libraries that ran, then others that were loaded."""
    ran = [x for x in libraries if x.ran]
    others = [x for x in libraries if not x.ran]
    title = "Other libraries loaded in the process" if ran else "Libraries loaded"
    return _library_table("Libraries that were used", ran) + _library_table(
        f"{title}, with no evidence of use", others
    )


def _library_table(title: str, libraries: list[LibraryFile]) -> str:
    if not libraries:
        return ""
    places = {None: "", True: "inside", False: "<b class=outside>outside</b>"}
    rows = [
        (
            escaped(x.soname),
            escaped(x.version or "unknown"),
            escaped(x.owner or "no package"),
            places[x.inside],
            escaped(x.path),
        )
        for x in libraries
    ]
    columns = {"library": "", "version": "", "owner": "", "where": "", "path": "path"}
    return f"<h3>{escaped(title)}</h3>{_table(columns, rows)}"


def _table(columns: Mapping[str, str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table of cells that are markup. `columns` are its heads, with the class of their cells."""
    head = "".join(f"<th scope=col>{name}</th>" for name in columns)
    body = ""
    for first, *cells in rows:
        body += f"<tr><th scope=row>{first}</th>"
        for (name, kind), cell in zip(list(columns.items())[1:], cells, strict=True):
            body += f"<td data-is={name}{f' class={kind}' if kind else ''}>{cell}</td>"
        body += "</tr>"
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def fleet_page(results: FleetResults, footer: str) -> str:
    """Return the page of a fleet. `footer` states the program and the time ("gpuenv 0.1.0, 2026-01-31 12:00 UTC")."""
    bad = sum(1 for h in results.hosts if not h.ok)
    status, word = ("fail", f"{bad} of {len(results.hosts)} not ok") if bad else ("pass", "all ok")
    verdicts = Counter(h.verdict.replace("_", " ") for h in results.hosts)
    counts = ", ".join(f"{number} {name}" for name, number in verdicts.most_common())
    title = f"{len(results.hosts)} hosts"
    columns = {"host": "", "class": "", "plan": "", "verdict": "", "cause": "", "seconds": "number"}
    if results.history:
        columns["before"] = ""
    body = [
        f'<header><p class="mark {status}">{word}</p><h1>{title}</h1><p class=quiet>{escaped(counts)}</p></header>',
        f"<section>{_table(columns, (_host_cells(h, results) for h in results.hosts))}</section>",
        f"<footer>{escaped(footer)}</footer>",
    ]
    return html_document(f"{word}: {title}", body)


def _host_cells(host: HostResult, results: FleetResults) -> tuple[str, ...]:
    before = [
        f'<span class="mark {"pass" if past.ok else "fail"}" title="{escaped(past.when)}">{escaped(past.verdict)}</span>'
        for past in results.history.get(host.host, ())[1:]
    ]
    status = "fail" if not host.ok else "warn" if host.verdict in ("planned", "unproven") else "pass"
    hint = f"<p class=quiet><b>Do this:</b> {escaped(host.hint)}</p>" if host.hint and not host.ok else ""
    return (
        escaped(host.host), escaped(host.class_ or ""), escaped(host.plan or ""),
        f'<span class="mark {status}">{host.verdict.replace("_", " ")}</span>', escaped(host.cause or "") + hint,
        "" if host.seconds is None else f"{host.seconds:.1f}", *([" ".join(before)] if results.history else []),
    )  # fmt: skip


def write_html_page(path: Path, option: str, make_page: Callable[[str], str]) -> None:
    """Write the page that `make_page` makes from a footer. Raises UsageError with the option that names the file."""
    footer = f"gpuenv {__version__}, {datetime.now(timezone.utc):%Y-%m-%d %H:%M} UTC"
    write_named(path, option, signed(make_page(footer), "<!--"))
