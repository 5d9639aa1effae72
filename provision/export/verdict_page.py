"""Render a verdict as one HTML page without scripts, fonts or pictures from other hosts."""

from __future__ import annotations

import math
from itertools import groupby

from ..model import (
    ConvolutionResult,
    DeviceVerdict,
    Evidence,
    Finding,
    FrameworkVerdict,
    LibraryFile,
    StageResult,
    Verdict,
)
from .html_page import document, escaped

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


def page(verdict: Verdict, footer: str) -> str:
    """Return the page. `footer` states the program and the time ("gpuenv 0.1.0, 2026-01-31 12:00 UTC")."""
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
    return document(f"{word}: {verdict.env}", parts)


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
    return _table("Libraries that were used", ran) + _table(title, others)


def _table(title: str, libraries: tuple[LibraryFile, ...]) -> str:
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
