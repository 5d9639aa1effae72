"""Write HTML pages without scripts, fonts or pictures from other hosts."""

from __future__ import annotations

import math
import re
from collections import Counter
from html import escape
from itertools import groupby

from ..model import (
    ConvolutionResult,
    DeviceVerdict,
    Evidence,
    Finding,
    FleetResults,
    FrameworkVerdict,
    HostResult,
    LibraryFile,
    StageResult,
    Verdict,
)
from ..system.redaction import clean


def html_document(title: str, body: list[str]) -> str:
    """Return the whole page. `body` is markup, `title` is text."""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{escaped(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(p for p in body if p)
        + "\n</main>\n</body>\n</html>\n"
    )


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
    """Return the verdict_page. `footer` states the program and the time ("gpuenv 0.1.0, 2026-01-31 12:00 UTC")."""
    status, word, meaning = _OUTCOMES[verdict.verdict]
    if verdict.verdict == "works" and not verdict.frameworks:
        meaning = "Driver, CUDA runtime, libraries and cuDNN work. No framework was tested."
    header = (
        f'<header><p class="mark {status}">{word}</p><h1>{escaped(verdict.env)}</h1>'
        f"<p>{escaped(meaning)}</p><p class=quiet>{escaped(verdict.python)}</p></header>"
    )
    parts = [
        header,
        _hint(verdict),
        _findings(verdict.findings),
        _stages(verdict.stages),
        *(_framework(f) for f in verdict.frameworks),
        f"<footer>{escaped(footer)}</footer>",
    ]
    return html_document(f"{word}: {verdict.env}", parts)


def _hint(verdict: Verdict) -> str:
    return f"<p class=hint><b>Do this:</b> {escaped(verdict.hint)}</p>" if verdict.hint else ""


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
    title = ", ".join(w for w in words if w)
    if not device.convolutions:
        return (
            f"<h3>{escaped(title)}</h3><p class=quiet>No convolution results were checked on this device.</p>"
        )
    groups = [
        f"<div class='case{' off' if not all(c.ok for c in rows) else ''}'><h4>{escaped(case)} <span class=quiet>{escaped(dtype)}, tolerance {rows[0].tolerance:g}"
        f"</span></h4>{''.join(_bar(c) for c in rows)}</div>"
        for (case, dtype), group in groupby(device.convolutions, key=lambda c: (c.case, c.dtype))
        if (rows := list(group))
    ]
    return (
        f"<h3>{escaped(title)}</h3>{_summary(device.convolutions)}"
        "<p class=quiet>Each bar is an error on a logarithmic scale. The vertical line is the tolerance, the left end a "
        f"thousandth of it.</p><div class=cases>{''.join(groups)}</div>"
    )


def _summary(rows: tuple[ConvolutionResult, ...]) -> str:
    """Return how many results are right, and the names of the others."""
    wrong = [f"{c.case} {c.dtype} {c.pass_}" for c in rows if not c.ok]
    if not wrong:
        return f"<p><b class=pass>All results are right:</b> {len(rows)} of {len(rows)}</p>"
    return (
        f"<p><b class=fail>{len(wrong)} of {len(rows)} results are wrong:</b> {escaped(', '.join(wrong))}</p>"
    )


def _bar(c: ConvolutionResult) -> str:
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
    ran = tuple(x for x in libraries if x.ran)
    others = tuple(x for x in libraries if not x.ran)
    title = (
        "Other libraries loaded in the process, with no evidence of use"
        if ran
        else "Libraries loaded, with no evidence of use"
    )
    return _library_table("Libraries that were used", ran) + _library_table(title, others)


def _library_table(title: str, libraries: tuple[LibraryFile, ...]) -> str:
    if not libraries:
        return ""
    rows = "".join(
        f"<tr><th scope=row>{escaped(x.soname)}</th><td data-is=version>{escaped(x.version or 'unknown')}</td>"
        f"<td data-is=owner>{escaped(x.owner or 'no package')}</td><td data-is=where>{_place(x)}</td>"
        f"<td data-is=path class=path>{escaped(x.path)}</td></tr>"
        for x in libraries
    )
    head = "".join(f"<th scope=col>{h}</th>" for h in ("library", "version", "owner", "where", "path"))
    return f"<h3>{escaped(title)}</h3><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def _place(library: LibraryFile) -> str:
    if library.inside is None:
        return ""
    return "inside" if library.inside else "<b class=outside>outside</b>"


_WARN = ("planned", "unproven")


def fleet_page(results: FleetResults, footer: str) -> str:
    """Return the fleet_page. `footer` states the program and the time ("gpuenv 0.1.0, 2026-01-31 12:00 UTC")."""
    bad = sum(1 for h in results.hosts if not h.ok)
    status, word = ("fail", f"{bad} of {len(results.hosts)} not ok") if bad else ("pass", "all ok")
    verdicts = Counter(h.verdict.replace("_", " ") for h in results.hosts)
    counts = ", ".join(f"{number} {name}" for name, number in verdicts.most_common())
    title = f"{len(results.hosts)} hosts"
    header = f'<header><p class="mark {status}">{word}</p><h1>{title}</h1><p class=quiet>{escaped(counts)}</p></header>'
    return html_document(
        f"{word}: {title}", [header, _host_table(results), f"<footer>{escaped(footer)}</footer>"]
    )


def _host_table(results: FleetResults) -> str:
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


BASE = """
:root { --page: #f7f7f5; --card: #ffffff; --ink: #1c1e21; --quiet: #5c6168; --line: #d9dad7;
  --track: #e8e9e6; --pass: #1a7f45; --warn: #8a5a00; --fail: #b3261e; --skip: #5c6168; }
@media (prefers-color-scheme: dark) {
  :root { --page: #16181b; --card: #1f2226; --ink: #e6e7e9; --quiet: #a2a8b0; --line: #383c42;
    --track: #32363c; --pass: #5fcf8f; --warn: #e8b04b; --fail: #ff8a80; --skip: #a2a8b0; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); overflow-wrap: anywhere;
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif; }
main { max-width: 1120px; margin: 0 auto; padding: 24px 16px 48px; }
h1 { font-size: 1.35rem; line-height: 1.3; margin: 8px 0; }
h2 { font-size: 1.15rem; margin: 40px 0 8px; padding-bottom: 4px; border-bottom: 1px solid var(--line); }
h3 { font-size: 1rem; margin: 24px 0 4px; }
h4 { font-size: .9rem; margin: 0 0 4px; }
p { margin: 4px 0; }
code, .path, cite, .number { font-family: ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace;
  font-size: .85em; font-style: normal; }
.quiet, cite, .seconds, summary, footer { color: var(--quiet); }
.quiet { font-weight: normal; font-size: .9rem; }
.mark { display: inline-block; padding: 0 10px; border: 1.5px solid currentColor; border-radius: 999px;
  font-weight: 600; font-size: .85rem; line-height: 1.6; text-align: center; }
.pass { color: var(--pass); } .warn { color: var(--warn); }
.fail, .outside { color: var(--fail); } .skip { color: var(--skip); }
.hint, .card { background: var(--card); border: 1px solid var(--line); border-radius: 10px;
  padding: 12px 16px; margin: 12px 0; }
.hint { border-left: 4px solid var(--fail); }
.card h3 { margin-top: 0; }
.evidence { margin: 6px 0; padding-left: 20px; font-size: .9rem; }
.seconds { text-align: right; font-variant-numeric: tabular-nums; font-size: .9rem; }
summary { cursor: pointer; font-size: .85rem; }
footer { margin-top: 48px; font-size: .85rem; }
@media print { body { background: #fff; } .card, .hint { break-inside: avoid; } }
"""

STYLE = (
    BASE
    + """
header .mark { font-size: 1.1rem; }
.stages { list-style: none; padding: 0; margin: 0; }
.stage { display: grid; grid-template-columns: 76px 190px 72px 1fr; gap: 4px 12px; align-items: start;
  padding: 8px 0; border-bottom: 1px solid var(--line); }
.cases { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 330px), 1fr));
  gap: 16px 24px; margin-top: 12px; }
.off { border-left: 4px solid var(--fail); padding-left: 12px; }
.result { display: grid; grid-template-columns: 92px 1fr 108px; gap: 8px; align-items: center;
  font-size: .85rem; line-height: 1.7; }
.bar { position: relative; height: 10px; border-radius: 3px; background: var(--track); overflow: hidden; }
.bar i { position: absolute; inset: 0 auto 0 0; background: currentColor; }
.bar::after { content: ""; position: absolute; top: 0; bottom: 0; left: 75%; width: 2px; margin-left: -1px;
  background: var(--ink); }
.number { text-align: right; white-space: nowrap; }
table { width: 100%; border-collapse: collapse; font-size: .9rem; margin-top: 8px; }
th, td { text-align: left; vertical-align: top; padding: 5px 12px 5px 0;
  border-bottom: 1px solid var(--line); }
tbody th { font-weight: 600; }
thead th { color: var(--quiet); font-weight: normal; white-space: nowrap; }
td[data-is=version], td[data-is=where], td[data-is=seconds] { white-space: nowrap; }
@media (max-width: 720px) {
  .stage { grid-template-columns: 76px 1fr auto; }
  .stage .detail { grid-column: 1 / -1; }
  thead { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }
  tr { display: block; padding: 8px 0; border-bottom: 1px solid var(--line); }
  tbody th, td { display: block; border: 0; padding: 1px 0; }
  td::before { content: attr(data-is) ": "; color: var(--quiet); }
}
"""
)
