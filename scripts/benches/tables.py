"""Write the tables of figures in README.md and docs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from .measuring import Row

SPEEDS = (
    "warm cache: `create --locked --no-verify`, small", "warm cache: `create --locked --no-verify`, large",
    "`create --locked`, cold", "`verify jax`, CPU", "`verify torch`, CPU",
)  # fmt: skip
"""The first cells of the rows that the README shows, if the page has them."""
_SPEEDS = re.compile(r"(<!-- speeds -->\n)(.*?)(<!-- /speeds -->)", re.DOTALL)
_MARKED = re.compile(r"(<!-- bench -->\n)(.*?)(<!-- /bench -->)", re.DOTALL)


def write(page: Path, rows: Sequence[Row], machine: str) -> None:
    """Write the table between the marks of a page."""
    old = page.read_text(encoding="utf-8")
    page.write_text(_MARKED.sub(lambda m: m[1] + table(rows, machine) + m[3], old), encoding="utf-8")


def write_speeds(readme: Path, page: Path) -> None:
    """Copy the rows SPEEDS from the table of the page to the README."""
    old = readme.read_text(encoding="utf-8")
    fresh = speeds(page.read_text(encoding="utf-8"))
    readme.write_text(_SPEEDS.sub(lambda m: m[1] + fresh + m[3], old), encoding="utf-8")


def speeds(page: str) -> str:
    """Return the head of the page's table and its rows SPEEDS."""
    lines = _MARKED.search(page)[2].splitlines()  # type: ignore[index]  # the page has the marks
    head = [line for line in lines if line.startswith(("| what ", "|---"))]
    rows = [line for first in SPEEDS for line in lines if line.startswith(f"| {first} |")]
    return "\n".join([*head, *rows]) + "\n"


def table(rows: Sequence[Row], machine: str) -> str:
    """Return the rows as Markdown."""
    lines = [
        f"Medians of interleaved runs at default settings, on one machine ({machine}):",
        "",
        "| what | against | ratio | at most |",
        "|---|---|---|---|",
    ]
    where = {"warm": "warm cache: ", "pip": "warm cache: "}
    lines += [
        f"| {where.get(r.part, '')}`{_command(r.name)}`{_rest(r.name)} | {_against(r)} | {_times(r.found)} | {_times(r.limit)} |"
        for r in rows
        if r.unit == "s" and r.part != "growth"
    ]
    lines += _worst(rows)
    return "\n".join(lines) + "\n"


def _worst(rows: Sequence[Row]) -> list[str]:
    lines = []
    grown = [r for r in rows if r.part == "growth" and not r.name.startswith("disk")]
    if grown:
        worst = max(grown, key=lambda r: r.found / (r.limit or 1))
        what = f"{worst.against} ({worst.name}), the nearest to linear of {len(grown)}"
        lines.append(f"| growth: {what} | the first | {_times(worst.found)} | {_times(worst.limit)} |")
    lines += [
        f"| {r.name} of 50 packages, 1 MB each | {r.against} | {_times(r.found)} | {_times(r.limit)} |"
        for r in rows
        if r.name.startswith("disk")
    ]
    lines += [
        f"| {r.name} | ({r.unit}) | {_times(r.found)} | {_times(r.limit)} |"
        for r in rows
        if r.part == "fleet"
    ]
    if peaks := [r for r in rows if r.part == "memory"]:
        top = max(peaks, key=lambda r: r.found)
        lines.append(
            f"| peak memory of {len(peaks)} commands, children apart | (`{top.name}`) | {top.found:.0f} MiB | {top.limit or 0:.0f} MiB |"
        )
    return lines


def _command(name: str) -> str:
    return name.partition(",")[0]


def _rest(name: str) -> str:
    return "".join(name.partition(",")[1:])


def _against(row: Row) -> str:
    return row.against if row.against.startswith(("a ", "the ")) else f"`{row.against}`"


def _times(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.2f}" if value < 1.95 else f"{value:.1f}".removesuffix(".0")
