"""Count the code of a package: files, lines, tokens, and what makes a house hard to walk through.

    python scripts/count_code.py [FOLDER ...] [--by-package]
    python scripts/count_code.py --write

Counted are the tokens of the source without comments, docstrings and imports. An f-string is one token with every Python.
`--write` renews the numbers in docs/architecture.md. For a comparison name the folders of other programs: `python scripts/count_code.py provision .../site-packages/pdm`.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_NO_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT,
            tokenize.ENDMARKER, tokenize.ENCODING}  # fmt: skip
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
COLUMNS = (
    "files",
    "lines",
    "tokens",
    "dataclasses",
    "functions",
    "lambdas",
    "Callable",
    "local imports",
    "one importer",
)


def count_tokens(source: str, tree: ast.Module) -> int:
    """Return the number of tokens without comments, docstrings and imports."""
    left_out: set[int] = set()
    for node in ast.walk(tree):
        lines: ast.stmt | None = None
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            lines = node
        elif (
            isinstance(node, (ast.Module, ast.ClassDef, *_FUNCTIONS)) and ast.get_docstring(node) is not None
        ):
            lines = node.body[0]
        if lines:
            left_out.update(range(lines.lineno, (lines.end_lineno or 0) + 1))
    count = depth = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        name = tokenize.tok_name[token.type]
        depth -= name == "FSTRING_END"
        if not depth and name != "FSTRING_END":  # an f-string counts where it starts
            count += token.type not in _NO_CODE and token.start[0] not in left_out
        depth += name == "FSTRING_START"
    return count


def count_module(source: str) -> Counter[str]:
    """Return the counts of one module, by column."""
    tree = ast.parse(source)
    counts = Counter(files=1, lines=source.count("\n"), tokens=count_tokens(source, tree))
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            made_by = map(ast.unparse, (*node.decorator_list, *node.bases))
            counts["dataclasses"] += any("dataclass" in name or name == "Value" for name in made_by)
        elif isinstance(node, ast.Lambda):
            counts["lambdas"] += 1
        elif isinstance(node, ast.Subscript) and ast.unparse(node.value).endswith("Callable"):
            counts["Callable"] += 1
        elif isinstance(node, _FUNCTIONS):
            counts["functions"] += 1
            inside = (n for child in node.body for n in _walk_function(child))
            counts["local imports"] += sum(isinstance(n, (ast.Import, ast.ImportFrom)) for n in inside)
    return counts


def _walk_function(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a node and its parts, without those of functions inside it, which count for themselves."""
    yield node
    if not isinstance(node, _FUNCTIONS):
        for child in ast.iter_child_nodes(node):
            yield from _walk_function(child)


def find_importers(folder: Path, files: list[Path]) -> dict[str, set[str]]:
    """Return the modules that import each module of the folder."""
    names = {}
    for path in files:
        parts = [folder.name, *path.relative_to(folder).with_suffix("").parts]
        names[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    importers: dict[str, set[str]] = defaultdict(set)
    for name, path in names.items():
        package = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            wanted: list[str] = []
            if isinstance(node, ast.Import):
                wanted = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                base = package[: len(package) - node.level + 1] if node.level else []
                stem = ".".join([*base, *([node.module] if node.module else [])])
                wanted = [f"{stem}.{alias.name}" for alias in node.names]
            for one in wanted:
                found = one if one in names else one.rpartition(".")[0]
                if found in names and found != name:
                    importers[found].add(name)
    return importers


def count_folder(folder: Path) -> dict[str, Counter[str]]:
    """Return the counts of a folder by package."""
    files = sorted(p for p in folder.rglob("*.py") if "__pycache__" not in p.parts)
    importers = find_importers(folder, files)
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for path in files:
        package = path.parent.relative_to(folder)
        counts[package.as_posix()] += count_module(path.read_text(encoding="utf-8"))
        name = ".".join([folder.name, *path.relative_to(folder).with_suffix("").parts])
        counts[package.as_posix()]["one importer"] += len(importers.get(name, ())) == 1
    return counts


def renew_page() -> None:
    """Write the numbers of provision/ into docs/architecture.md."""
    counts = sum(count_folder(ROOT / "provision").values(), Counter())
    page = ROOT / "docs" / "architecture.md"
    said = f"`provision/` has {counts['files']} files with {counts['lines']:,} lines and {counts['tokens']:,} tokens"
    text = page.read_text(encoding="utf-8")
    page.write_text(re.sub(r"`provision/` has .* tokens", said, text), encoding="utf-8")


def main() -> None:
    """Print a table with a row for each folder, or for each of its packages."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", nargs="*", type=Path, default=[ROOT / "provision"], metavar="FOLDER")
    parser.add_argument("--by-package", action="store_true", help="a row for each package too")
    parser.add_argument("--write", action="store_true", help="write the numbers into docs/architecture.md")
    options = parser.parse_args()
    if options.write:
        renew_page()
    print(f"{'':24}" + "".join(f"{name:>{max(len(name), 7) + 2}}" for name in COLUMNS))
    for folder in options.folders:
        packages = count_folder(folder.resolve())
        rows = {**(packages if options.by_package else {}), folder.name: sum(packages.values(), Counter())}
        for name, counts in rows.items():
            print(f"{name:24}" + "".join(f"{counts[c]:>{max(len(c), 7) + 2},}" for c in COLUMNS))


if __name__ == "__main__":
    main()
