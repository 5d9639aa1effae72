"""Write HTML pages without scripts, fonts or pictures from other hosts."""

from __future__ import annotations

import re
from html import escape

from ..system.redaction import clean
from .report_style import STYLE


def document(title: str, body: list[str]) -> str:
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
