"""Draw curves as a small SVG for light and dark pages."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from html import escape

_W, _H, _COLUMNS = 240, 180, 4
_STYLE = """
svg { font: 11px system-ui, sans-serif; --ink: #24292f; --faint: #8c959f; --line: #0969da; }
@media (prefers-color-scheme: dark) { svg { --ink: #e6edf3; --faint: #7d8590; --line: #58a6ff; } }
text { fill: var(--ink); } .faint { fill: var(--faint); }
.axis { stroke: var(--faint); fill: none; }
.linear { stroke: var(--faint); fill: none; stroke-dasharray: 4 3; }
.curve { stroke: var(--line); fill: none; stroke-width: 2; } circle { fill: var(--line); }
"""


@dataclasses.dataclass(frozen=True)
class Curve:
    """Sizes, and the time or bytes of each."""

    name: str
    sizes: tuple[int, ...]
    taken: tuple[float, ...]


def svg(curves: Sequence[Curve]) -> str:
    """Return an SVG with one panel for each curve, both axes logarithmic.

    A dashed line from the first point shows linear growth. A curve under it is better than linear.
    """
    rows = math.ceil(len(curves) / _COLUMNS)
    width, height = _W * min(_COLUMNS, len(curves)), _H * rows + 24
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" aria-label="Growth of time and disk, each beside linear growth">',
        f"<style>{_STYLE}</style>",
    ]
    for number, curve in enumerate(curves):
        row, column = divmod(number, _COLUMNS)
        parts.append(f'<g transform="translate({column * _W} {row * _H})">{_panel(curve)}</g>')
    note = "times what the first point took; dashed: linear growth; both axes logarithmic"
    parts.append(f'<text class="faint" x="12" y="{height - 8}">{note}</text></svg>\n')
    return "\n".join(parts)


def _panel(curve: Curve) -> str:
    left, right, top, bottom = 40, _W - 16, 34, _H - 30
    most = math.log(curve.sizes[-1] / curve.sizes[0])
    grown = [t / curve.taken[0] for t in curve.taken]

    def at(size: float, times: float) -> tuple[float, float]:
        x = left + (right - left) * math.log(size / curve.sizes[0]) / most
        y = bottom - (bottom - top) * min(1.15, max(-0.05, math.log(times) / most))
        return round(x, 1), round(y, 1)

    points = [at(s, g) for s, g in zip(curve.sizes, grown, strict=True)]
    line = " ".join(f"{x},{y}" for x, y in points)
    parts = [
        f'<text x="12" y="18">{escape(curve.name)}</text>',
        f'<polyline class="axis" points="{left},{top} {left},{bottom} {right},{bottom}"/>',
        f'<polyline class="linear" points="{left},{bottom} {right},{top}"/>',
        f'<polyline class="curve" points="{line}"/>',
    ]
    for size, (x, y) in zip(curve.sizes, points, strict=True):
        parts.append(f'<circle cx="{x}" cy="{y}" r="3"/>')
        parts.append(f'<text class="faint" x="{x}" y="{bottom + 14}" text-anchor="middle">{size}</text>')
    for times in (1.0, math.exp(most)):
        y = at(curve.sizes[0], times)[1]
        parts.append(f'<text class="faint" x="{left - 4}" y="{y + 4}" text-anchor="end">{times:.0f}x</text>')
    x, y = points[-1]
    parts.append(f'<text x="{x}" y="{y - 7}" text-anchor="end">{grown[-1]:.2g}x</text>')
    return "".join(parts)
