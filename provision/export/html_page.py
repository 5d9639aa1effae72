"""The frame of a page that has no script, no font and no picture from elsewhere."""

from __future__ import annotations

import re
from html import escape

from .report_style import STYLE


def document(title: str, body: list[str]) -> str:
    """The whole page. `body` is markup, `title` is text."""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{escaped(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(p for p in body if p)
        + "\n</main>\n</body>\n</html>\n"
    )


def escaped(value: object) -> str:
    """Text from outside as markup: special characters escaped, control characters replaced by a mark."""
    return escape(re.sub(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]", "\ufffd", str(value)))
