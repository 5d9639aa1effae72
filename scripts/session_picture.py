"""Draw docs/gpu-session.txt, a recorded run on a GPU, as docs/gpu.svg: `session_picture.py [--write]`."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from xml.sax.saxutils import escape

DOCS = Path(__file__).resolve().parent.parent / "docs"
TEXT, PICTURE = DOCS / "gpu-session.txt", DOCS / "gpu.svg"
WIDTH, LINE, MARGIN = 8.4, 20, 22
COLOURS = (
    (r"\$ ", "#ffffff"),
    (r"  pass ", "#7ee787"),
    (r"verdict: works", "#7ee787"),
    (r"  fail ", "#ff7b72"),
    (r"(note|lock|build|verify): ", "#8b949e"),
)
PLAIN = "#c9d1d9"


def main() -> None:
    """Print the picture, or write it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="write docs/gpu.svg")
    options = parser.parse_args()
    drawn = draw(TEXT.read_text(encoding="utf-8"))
    if options.write:
        PICTURE.write_text(drawn, encoding="utf-8")
    else:
        sys.stdout.write(drawn)


def draw(session: str) -> str:
    """Return the session as SVG, one `text` element for each line, with the whole text as its description."""
    lines = session.rstrip("\n").split("\n")
    width = round(max(map(len, lines)) * WIDTH + 2 * MARGIN)
    height = len(lines) * LINE + 2 * MARGIN
    rows = [
        f'<text xml:space="preserve" x="{MARGIN}" y="{MARGIN + LINE * (row + 0.75):g}" fill="{colour(line)}">{escape(line)}</text>'
        for row, line in enumerate(lines)
        if line
    ]
    return "\n".join(
        [
            (
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
                ' role="img" aria-labelledby="title text">'
            ),
            '<title id="title">gpuenv create on an NVIDIA H200</title>',
            f'<desc id="text">{escape(session)}</desc>',
            f'<rect width="{width}" height="{height}" rx="10" fill="#0d1117"/>',
            (
                '<g font-family="ui-monospace, Menlo, Consolas, monospace" font-size="14" style="white-space:pre"'
                ' xml:space="preserve">'
            ),
            *rows,
            "</g>",
            "</svg>",
            "",
        ]
    )


def colour(line: str) -> str:
    """Return the colour of a line by its first words."""
    return next((colour for words, colour in COLOURS if re.match(words, line)), PLAIN)


if __name__ == "__main__":
    main()
