"""The pages of the documentation, their blocks of code, and the comment before each that names its test."""

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "SECURITY.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
_FENCE = re.compile(
    r"(?:<!-- (?P<comment>[^\n]*?) -->\n)?^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE
)


@dataclass(frozen=True)
class Block:
    """A fenced block: `test` is FILE::NAME of the test that types it, `reason` says why none does."""

    page: str
    language: str
    text: str
    comment: str

    @property
    def test(self):
        return self.comment.removeprefix("run: ") if self.comment.startswith("run: ") else ""

    @property
    def reason(self):
        return self.comment.removeprefix("not run: ") if self.comment.startswith("not run: ") else ""


def read(page):
    return (ROOT / page).read_text(encoding="utf-8")


def blocks(page, language=None):
    """The blocks of a page, in order; of one language alone if it is given."""
    found = [
        Block(str(page), m["language"], m["text"], m["comment"] or "") for m in _FENCE.finditer(read(page))
    ]
    return [block for block in found if language in (None, block.language)]


def texts(page, test, language="bash"):
    """The blocks of a page that name a test, as text."""
    return [block.text for block in blocks(page, language) if block.test.endswith(f"::{test}")]


def commands():
    """Every command line of gpuenv in a block of commands, with its page."""
    for path in PAGES:
        page = str(path.relative_to(ROOT))
        for block in blocks(page):
            if block.language in ("bash", "console"):
                for line in block.text.splitlines():
                    yield from (
                        (page, m[1].strip())
                        for m in re.finditer(r"(?:^|[!$]|/bin/|&& |srun \S+ |\| )(gpuenv [^#|>\"'&]+)", line)
                    )
