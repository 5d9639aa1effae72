"""List every text that a user reads, with its file and line.

`messages.py` prints `file:line: kind: text`, sorted by file. `messages.py error provision/cli` prints one
kind of one folder. Kinds: error, hint, event (notes, warnings, progress), help, finding (titles, fixes,
evidence, details), screen (output of `show`), file (text of generated files), profile (rows of
profiles/*.yaml), text (parts of messages).

Texts come from the syntax tree. `{...}` marks a value that is only known at run time.
"""

from __future__ import annotations

import argparse
import ast
import functools
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parent.parent
KINDS = ("error", "hint", "event", "help", "finding", "screen", "file", "profile", "text")

_BY_CALL = {
    "Event": "event", "option": "help", "argument": "help", "Option": "help", "Argument": "help", "Verb": "help", "Typer": "help",
    "Finding": "finding", "StageResult": "finding", "Evidence": "finding", "RejectionReason": "finding",
    "EnvironmentChange": "finding", "CheckResult": "finding", "HostResult": "finding",
}  # fmt: skip
_BY_KEYWORD = {"hint": "hint", "help": "help", "title": "finding", "fix": "finding", "detail": "finding"}
_BY_FOLDER = {"show": "screen", "export": "file", "init": "file"}
_BY_FILE = {"bundle_readme.py": "file", "verbs.py": "help"}
_PROFILE_KEYS = frozenset({"title", "fix", "in_container", "on_windows", "decides", "why", "instead"})
# Programs that the target environment runs, and calls whose strings no user reads.
_UNREAD = ("provision/probes/", "provision/model/__init__.py")
_UNREAD_CALLS = frozenset(
    {"compile", "fullmatch", "match", "search", "sub", "findall", "finditer", "cast", "TypeVar", "getattr"}
)
_PROSE = re.compile(r"[A-Za-z]{2,}[,;:.]? +(\{[^}]*\}[,;:.]? +)*[A-Za-z]{2,}")


@dataclass(frozen=True, order=True)
class Message:
    """A text with its file and line."""

    file: str
    line: int
    kind: str
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.kind}: {self.text}"


@functools.cache
def list_messages(root: Path = ROOT) -> list[Message]:
    """Return the messages of the code and of the profiles."""
    messages: set[Message] = set()
    for file in sorted((root / "provision").rglob("*.py")):
        name = file.relative_to(root)
        if not name.as_posix().startswith(_UNREAD):
            messages.update(read_code(file.read_text(encoding="utf-8"), name.as_posix()))
    for file in sorted((root / "profiles").glob("*.yaml")):
        messages.update(read_profile(file.read_text(encoding="utf-8"), str(file.relative_to(root))))
    return sorted(messages)


def read_code(source: str, file: str) -> Iterator[Message]:
    """Yield the messages of a module."""
    reader = _CodeReader(file)
    reader.visit(ast.parse(source))
    yield from reader.messages


def read_profile(source: str, file: str) -> Iterator[Message]:
    """Yield the texts for people in a profile."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    pending = [yaml.compose(source, Loader=loader)]
    while pending:
        node = pending.pop()
        if isinstance(node, yaml.SequenceNode):
            pending.extend(node.value)
        elif isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                if isinstance(value, yaml.ScalarNode) and key.value in _PROFILE_KEYS:
                    yield Message(file, value.start_mark.line + 1, "profile", _one_line(value.value))
                else:
                    pending.append(value)


class _CodeReader(ast.NodeVisitor):
    """A visitor that collects strings, with the kind that follows from their place in the tree."""

    def __init__(self, file: str) -> None:
        parts = Path(file).parts
        self.file = file
        self.messages: list[Message] = []
        by_folder = next((kind for folder, kind in _BY_FOLDER.items() if folder in parts), "text")
        self.kind = _BY_FILE.get(parts[-1], by_folder)
        self.is_declared = False

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, str):
            self._add(node, node.value)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        self._add(node, _text_of(node))
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                self.visit(part.value)

    def visit_Expr(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Constant):  # else a docstring
            self.visit(node.value)

    def visit_Raise(self, node: ast.Raise) -> None:
        if node.exc is not None:
            self.visit(node.exc)

    def visit_Compare(self, node: ast.Compare) -> None:
        """Skip words that a program's output is compared with."""

    def visit_Dict(self, node: ast.Dict) -> None:
        for value in node.values:
            self.visit(value)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        self.visit(node.value)  # a key, or an annotation

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_Assign(self, node: ast.Assign) -> None:
        names = {
            getattr(target, "attr", getattr(target, "id", "")).lower().strip("_") for target in node.targets
        }
        kind = next(
            (k for word, k in _BY_KEYWORD.items() if any(n == word or n.endswith(f"_{word}") for n in names)),
            None,
        )
        self._visit_as(node.value, kind)

    def visit_Call(self, node: ast.Call) -> None:
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        self.visit(node.func)
        if name in _UNREAD_CALLS:
            return
        kind = "error" if name.endswith("Error") else _BY_CALL.get(name)
        for argument in node.args:
            self._visit_as(argument, kind)
        for keyword in node.keywords:
            by_keyword = _BY_KEYWORD.get(keyword.arg or "")
            self._visit_as(
                keyword.value,
                "help" if kind == "help" else by_keyword or kind,
                declared=keyword.arg == "help",
            )

    def _visit_as(self, node: ast.AST, kind: str | None, *, declared: bool = False) -> None:
        before = self.kind, self.is_declared
        self.kind, self.is_declared = kind or self.kind, declared or (kind is not None and kind != "help")
        self.visit(node)
        self.kind, self.is_declared = before

    def _add(self, node: ast.expr, text: str) -> None:
        text = _one_line(text)
        if _PROSE.search(text) or (self.is_declared and re.search(r"[A-Za-z]{3}", text) and " " in text):
            self.messages.append(Message(self.file, node.lineno, self.kind, text))


def _text_of(node: ast.JoinedStr) -> str:
    parts = []
    for part in node.values:
        if isinstance(part, ast.Constant):
            parts.append(str(part.value))
        elif isinstance(part, ast.FormattedValue):
            parts.append("{" + ("..." if _has_text(part.value) else ast.unparse(part.value)) + "}")
    return "".join(parts)


def _has_text(node: ast.expr) -> bool:
    """Return whether a value contains texts. They are listed separately."""
    return any(
        isinstance(n, ast.Constant) and isinstance(n.value, str) and " " in n.value for n in ast.walk(node)
    )


def _one_line(text: str) -> str:
    return " ".join(text.replace("\n", " \\n ").split())


def main(argv: list[str] | None = None) -> int:
    """Print the messages that the command line selects."""
    parser = argparse.ArgumentParser(description="List every text that a user reads, with its file and line.")
    parser.add_argument(
        "words", nargs="*", metavar="KIND|PATH", help=f"only these kinds ({', '.join(KINDS)}) or paths"
    )
    words = parser.parse_args(argv).words
    kinds = {word for word in words if word in KINDS}
    paths = tuple(word for word in words if word not in KINDS)
    for message in list_messages():
        if (not kinds or message.kind in kinds) and (not paths or message.file.startswith(paths)):
            sys.stdout.write(f"{message}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
