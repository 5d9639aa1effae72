"""Make docs/compatibility.html, in which a person looks up builds: `compatibility_page.py [--write |
--check]`.

The answers are those of `provision.resolve` over the profiles of this checkout, computed for every class of
questions. This takes minutes. The page looks them up. --write writes the page. --check prints how the
committed page differs, and exits with 1 if it does. --layout keeps the answers of the committed page and
renews the rest, which takes a second.
"""

from __future__ import annotations

import argparse
import base64
import difflib
import json
import re
import sys
import textwrap
import zlib
from pathlib import Path
from typing import Any

from compatibility.answers import all_answers
from compatibility.heat import heat_maps
from compatibility.lookup import differences

from provision import profiles, templates

PAGE = Path(__file__).resolve().parent.parent / "docs" / "compatibility.html"
PARTS = Path(__file__).resolve().parent / "compatibility"
_DATA = '<script type="text/plain" id="data">'


def main() -> None:
    """Write the page, or print how it would change."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="write docs/compatibility.html")
    parser.add_argument("--check", action="store_true", help="exit 1 where the page is another one")
    parser.add_argument("--layout", action="store_true", help="keep the answers of the page")
    options = parser.parse_args()
    document = read_data(PAGE.read_text(encoding="utf-8")) if options.layout else made_data()
    text = page(document)
    old = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    if not changes(old, text):  # another zlib may compress the same data to other bytes
        print(f"{PAGE.name} is up to date")
    elif options.write:
        PAGE.write_text(text, encoding="utf-8")
        print(f"{PAGE.name} written, {len(text.encode()):,} bytes")
    else:
        sys.stdout.writelines(changes(old, text))
        sys.exit("docs/compatibility.html is out of date. Run: make page" if options.check else 0)


def made_data() -> dict[str, Any]:
    """Return the document of all answers."""
    known = profiles.load()
    document = all_answers(known)
    return document | {"heat": heat_maps(known, document), "read": newest_reading()}


def newest_reading() -> str:
    """Return the date of the newest profile."""
    texts = (p.read_text(encoding="utf-8") for p in profiles.directory().glob("*.yaml"))
    dates: list[str] = [d for text in texts for d in re.findall(r'^  read: "([\d-]+)"', text, re.MULTILINE)]
    return max(dates)


def page(document: dict[str, Any]) -> str:
    """Return the page with a document: JSON, compressed for phones, in Base64."""
    scripts = sorted((PARTS / "js").glob("*.js"))
    data = json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()
    parts = {
        "{style}": templates.read("page.css") + (PARTS / "page.css").read_text(encoding="utf-8"),
        "{script}": "\n".join(_without_comments(s.read_text(encoding="utf-8")) for s in scripts),
        "{made}": f"From gpuenv's profiles of {document['read']}. Made by scripts/compatibility_page.py.",
        "{data}": textwrap.fill(base64.b64encode(zlib.compress(data, 9)).decode(), 120),
    }
    text = (PARTS / "page.html").read_text(encoding="utf-8")
    for mark, value in parts.items():
        assert text.count(mark) == 1, mark
        text = text.replace(mark, value)
    return text


def _without_comments(text: str) -> str:
    """Return a script without indentation, lines of comments and empty lines."""
    lines = (line.strip() for line in text.splitlines())
    return "\n".join(line for line in lines if line and not line.startswith("//"))


def read_data(text: str) -> dict[str, Any]:
    """Return the document of a page. Raises zlib.error if it has none."""
    document: dict[str, Any] = json.loads(zlib.decompress(base64.b64decode(_data_of(text))))
    return document


def _data_of(text: str) -> str:
    return text.partition(_DATA)[2].partition("</script>")[0]


def changes(old: str, new: str) -> list[str]:
    """Return the differences between two pages: lines of the layout, and answers by their questions."""
    if old == new:
        return []
    before, after = (t.replace(_data_of(t), "").splitlines(keepends=True) for t in (old, new))
    lines = difflib.unified_diff(before, after, "committed", "made now", n=0)
    if not _data_of(old):
        return [*lines]
    was, now = read_data(old), read_data(new)
    data = [f"{line}\n" for line in differences(was, now)]
    return [*lines, *data] or (["the data has another order\n"] if was != now else [])


if __name__ == "__main__":
    main()
