"""Measure what the tests protect: change one place of provision/ at a time, and see whether a test fails.

    python scripts/mutants.py [--seed 38] [--count 300] [--first N] [--package NAME] [--limit 300] [--trace]

All mutants are written into one copy of the tree in .cache/mutants, each as `(changed if on(17) else original)`.
A shared file says which one is on, and gets a mark from each one that is reached, in whatever process. So the
first run, which takes as long as the whole suite, knows which tests reach which mutant; `--trace` repeats it.
Then each mutant is switched on for the tests that reach it, the quickest first, until one fails that passes
without it. A mutant survives if none does, or if none does in the tests that fit into `--limit` seconds.

Mutants are chosen by a hash of their place and the seed: code that did not change keeps its mutants.
Results are kept in .cache/mutants/results.json, and a run goes on from there. Remove the file to begin again.
"""

from __future__ import annotations

import argparse
import ast
import bisect
import copy
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
HOME = ROOT / ".cache" / "mutants"
TREE, SWITCH = HOME / "tree", HOME / "switch"
_SIZE = 4096
_SWAPPED: dict[type, type] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.And: ast.Or, ast.Or: ast.And,
    ast.Add: ast.Sub, ast.Sub: ast.Add,
}  # fmt: skip
# Never with the number of a standard stream that is closed: what is printed would go into the file.
_ON = (
    "import mmap as _mmap, os as _mos; _low = [_mos.open('/dev/null', 0) for _ in range(3)]; "
    "_low += [_mos.open({path!r}, 2)]; _switch = _mmap.mmap(_low[-1], {size}); [_mos.close(f) for f in _low]; "
    "_on = lambda k: (_switch.__setitem__(k, 1), _switch[0] | _switch[1] << 8 == k)[1]"
)
_PLUGIN = """
import json, mmap, os, time
import pytest

_switch = mmap.mmap(os.open({switch!r}, os.O_RDWR), {size})
_loaded = {{}}

def _reached():
    marks, _switch[2:] = _switch[2:], bytes({size} - 2)
    return [at + 2 for at, mark in enumerate(marks) if mark]

@pytest.hookimpl(hookwrapper=True)
def pytest_make_collect_report(collector):
    _reached()
    yield
    _loaded.setdefault(collector.nodeid.split("::")[0], []).extend(_reached())

@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item):
    begun = time.monotonic()
    item.failed = False
    yield
    row = [item.nodeid, item.failed, round(time.monotonic() - begun, 3), sorted({{*_reached(), *_loaded.get(item.nodeid.split("::")[0], [])}})]
    with open({log!r}, "a") as file:
        file.write(json.dumps(row) + "\\n")

@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item):
    item.failed |= (yield).get_result().failed
"""


@dataclass(frozen=True)
class Mutant:
    """A place and the text that replaces it. `key` stays the same while function and statement do."""

    key: str
    package: str
    file: str
    line: int
    span: tuple[int, int]
    text: str
    what: str


def mutants_of(path: Path, seed: int) -> Iterator[Mutant]:
    """Yield at most one mutant of each statement in the functions of a module."""
    source = path.read_text()
    lines = source.encode().splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    file = path.relative_to(ROOT).as_posix()
    package = "/".join(file.split("/")[:2]) if file.count("/") > 1 else "provision"
    seen: Counter[str] = Counter()
    for function, statement in _statements(ast.parse(source)):
        place = f"{file}:{function}:{ast.dump(statement)[:2000]}"
        seen[place] += 1
        found = []
        for number, (node, text, what) in enumerate(_changes(statement)):
            key = hashlib.sha256(f"{seed}:{place}:{seen[place]}:{number}".encode()).hexdigest()[:12]
            span = (
                starts[node.lineno - 1] + node.col_offset,
                starts[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0),
            )
            found.append(Mutant(key, package, file, node.lineno, span, text, what))
        if found:
            yield min(found, key=lambda m: m.key)


def _statements(node: ast.AST, function: str = "") -> Iterator[tuple[str, ast.stmt]]:
    """Yield the statements in functions, each with the name of its function."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _statements(child, child.name)
        elif isinstance(child, ast.ClassDef):
            yield from _statements(child)
        elif isinstance(child, ast.stmt | ast.ExceptHandler | ast.match_case):
            if function and isinstance(child, ast.stmt):
                yield function, child
            yield from _statements(child, function)


def _changes(statement: ast.stmt) -> Iterator[tuple[Any, str, str]]:
    """Yield the nodes of a statement that can be changed, the new text, and what the change is.

    In a new text, a NUL character stands for the call that asks whether the mutant is on."""
    value = getattr(statement, "value", None)
    if isinstance(statement, ast.Expr | ast.AugAssign | ast.Continue | ast.Break | ast.Raise):
        if not isinstance(value, ast.Constant | ast.Yield | ast.YieldFrom):
            yield statement, f"if not \0: {ast.unparse(statement)}", "removed"
    elif isinstance(statement, ast.Return) and value and ast.unparse(value) not in {"None", "False"}:
        yield value, f"(None if \0 else {ast.unparse(value)})", "None returned"
    todo: list[ast.AST] = [statement]
    while todo:
        node = todo.pop()
        for name, below in ast.iter_fields(node):
            parts = below if isinstance(below, list) else [below]
            if name not in {"annotation", "pattern"}:
                todo += [n for n in parts if isinstance(n, ast.expr | ast.comprehension | ast.keyword)]
        tests = node.ifs if isinstance(node, ast.comprehension) else [getattr(node, "test", None)]
        for test in filter(None, tests):
            yield test, f"(not ({ast.unparse(test)}) if \0 else {ast.unparse(test)})", "negated"
        if isinstance(node, ast.expr) and (other := _other(node)):
            yield node, f"({ast.unparse(other)} if \0 else {ast.unparse(node)})", "operator or constant"


def _other(node: ast.expr) -> Any:
    """Return another expression for one, or None where there is none."""
    new: Any = copy.deepcopy(node)
    if isinstance(new, ast.Compare) and len(new.ops) == 1 and type(new.ops[0]) in _SWAPPED:
        new.ops = [_SWAPPED[type(new.ops[0])]()]
    elif isinstance(new, ast.BoolOp | ast.BinOp) and type(new.op) in _SWAPPED:
        new.op = _SWAPPED[type(new.op)]()
    elif isinstance(new, ast.UnaryOp) and isinstance(new.op, ast.Not):
        new = new.operand
    elif isinstance(new, ast.Constant) and isinstance(new.value, int):
        new.value = not new.value if isinstance(new.value, bool) else new.value + 1
    else:
        return None
    return new


def chosen(seed: int, count: int) -> list[Mutant]:
    """Return the mutants: as many of each package as it has of all lines, those with the lowest hashes."""
    by_package: dict[str, list[Mutant]] = defaultdict(list)
    sizes: Counter[str] = Counter()
    for path in sorted((ROOT / "provision").rglob("*.py")):
        for mutant in mutants_of(path, seed):
            by_package[mutant.package].append(mutant)
            sizes[mutant.package] += 1
    result: list[Mutant] = []
    for package, mutants in by_package.items():
        share = max(1, round(count * sizes[package] / sizes.total()))
        usable = (m for m in sorted(mutants, key=lambda m: m.key) if _compiles(m))
        result += [m for m, _ in zip(usable, range(share), strict=False)]
    return sorted(result, key=lambda m: m.key)


def _compiles(mutant: Mutant) -> bool:
    try:
        compile(
            _applied((ROOT / mutant.file).read_bytes(), [(2, mutant)]), mutant.file, "exec", dont_inherit=True
        )
    except SyntaxError:
        return False
    return True


def _applied(source: bytes, mutants: list[tuple[int, Mutant]]) -> bytes:
    """Return a module with its mutants, and with the function that switches them."""
    body = ast.parse(source).body
    docs = [n for n in body if isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant)][:1]
    first = [n for n in body if isinstance(n, ast.ImportFrom) and n.module == "__future__"] or docs
    for number, mutant in sorted(mutants, key=lambda m: m[1].span, reverse=True):
        begin, end = mutant.span
        source = source[:begin] + mutant.text.replace("\0", f"_on({number})").encode() + source[end:]
    header = _ON.format(path=str(SWITCH), size=_SIZE).encode()
    if not first:
        return header + b"\n" + source
    lines = source.splitlines(keepends=True)
    at = (first[-1].end_lineno or 0) - 1
    lines[at] = lines[at].split(b"#")[0].rstrip() + b"; " + header + b"\n"
    return b"".join(lines)


def make_tree(mutants: list[Mutant]) -> None:
    """Copy the tree and its environment, and write all mutants into the copy."""
    shutil.rmtree(TREE, ignore_errors=True)
    HOME.mkdir(parents=True, exist_ok=True)
    listed = subprocess.run(
        ["git", "ls-files", "-z", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, check=True
    )
    for name in filter(None, listed.stdout.decode().split("\0")):
        if (ROOT / name).exists():
            (TREE / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, TREE / name, follow_symlinks=False)
    by_file: dict[str, list[tuple[int, Mutant]]] = defaultdict(list)
    for number, mutant in enumerate(mutants, 2):
        by_file[mutant.file].append((number, mutant))
    for file, here in by_file.items():
        (TREE / file).write_bytes(_applied((ROOT / file).read_bytes(), here))
    SWITCH.write_bytes(bytes(_SIZE))
    SWITCH.chmod(0o666)
    dev = Path(sys.prefix)
    subprocess.run(["cp", "-al", dev, TREE / dev.name], check=True)
    for path in [*(TREE / dev.name / "bin").iterdir(), *(TREE / dev.name).glob("lib/*/site-packages/*.pth")]:
        if not path.is_symlink() and str(ROOT).encode() in (data := path.read_bytes()):
            path.unlink()  # a link to the original
            path.write_bytes(data.replace(str(ROOT).encode(), str(TREE).encode()))
            path.chmod(0o755)
    for words in (
        ["init", "-q"],
        ["add", "-A"],
        ["-c", "user.name=m", "-c", "user.email=m@localhost", "commit", "-qm", "m"],
    ):
        subprocess.run(["git", *words], cwd=TREE, check=True)


def trace(log: Path) -> None:
    """Run every test once, and write which mutants it reaches."""
    log.unlink(missing_ok=True)
    _pytest(["-m", "not slow"], 0, log, None)


def _pytest(words: list[str], on: int, log: Path, limit: float | None) -> int | None:
    """Run tests in the copy with one mutant on. Return pytest's exit code, None where the time was over."""
    plugin = next((TREE / Path(sys.prefix).name).glob("lib/*/site-packages")) / "mutants_plugin.py"
    plugin.write_text(_PLUGIN.format(switch=str(SWITCH), size=_SIZE, log=str(log)))
    with SWITCH.open("r+b") as file:
        file.write(on.to_bytes(2, "little"))
    argv: list[str | Path] = [
        TREE / Path(sys.prefix).name / "bin" / "python",
        "-m",
        "pytest",
        "-q",
        "-p",
        "mutants_plugin",
    ]
    with (HOME / "output").open("w") as output:
        child = subprocess.Popen(
            [*argv, *words],
            cwd=TREE,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        try:
            return child.wait(limit)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            return None


def judge(number: int, tests: list[tuple[str, float]], limit: float) -> str:
    """Return how a mutant ended: "killed by TEST", "survived" its tests, or the part of them that fits into `limit`."""
    left, spent, size = list(tests), 0.0, 20
    while left and spent < limit:
        fits = bisect.bisect(list(accumulate(seconds for _, seconds in left[:size])), limit - spent)
        batch, left, size = left[: max(fits, 1)], left[max(fits, 1) :], size * 4
        names, log = HOME / "batch", HOME / "batch.log"
        names.write_text("\n".join(name for name, _ in batch))
        log.unlink(missing_ok=True)
        begun, expected = time.monotonic(), sum(seconds for _, seconds in batch)
        code = _pytest(["-x", f"@{names}"], number, log, 60 + 10 * expected)
        spent += time.monotonic() - begun
        rows = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
        if code is None:
            return f"killed by time after {rows[-1][0] if rows else 'its start'}"
        failed = [row[0] for row in rows if row[1]]
        if code and not failed:
            return "killed by pytest's own end"
        if failed and _pytest(failed[:1], 0, log, 60 + 10 * expected) == 0:
            return f"killed by {failed[0]}"
        left = [t for t in batch if t[0] not in {r[0] for r in rows}] + left  # after a test that fails anyway
    return f"survived a part of {len(tests)} tests" if left else f"survived {len(tests)} tests"


def main() -> None:
    """Choose, trace, judge and show."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seed", type=int, default=38)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--first", type=int, help="only so many of them")
    parser.add_argument("--package", help="only those of a package, such as provision/resolve")
    parser.add_argument("--limit", type=float, default=300, help="seconds for a mutant")
    parser.add_argument(
        "--trace", action="store_true", help="run the whole suite again to see which tests reach which mutant"
    )
    given = parser.parse_args()
    mutants = chosen(given.seed, given.count)
    make_tree(mutants)
    keys, log, kept = HOME / "keys.json", HOME / "trace.log", HOME / "results.json"
    listed = json.dumps([m.key for m in mutants])
    if given.trace or not keys.exists() or keys.read_text() != listed:
        trace(log)
        keys.write_text(listed)
        kept.unlink(missing_ok=True)
    rows = [json.loads(line) for line in log.read_text().splitlines()]
    results: dict[str, str] = json.loads(kept.read_text()) if kept.exists() else {}
    wanted = [(n, m) for n, m in enumerate(mutants, 2) if given.package in {None, m.package}][: given.first]
    for number, mutant in wanted:
        if mutant.key not in results:
            reach = [
                (name, seconds) for name, failed, seconds, marks in rows if number in marks and not failed
            ]
            results[mutant.key] = judge(number, sorted(reach, key=lambda t: t[1]), given.limit)
            kept.write_text(json.dumps(results, indent=1))
            print(
                f"{mutant.key} {mutant.file}:{mutant.line} {mutant.what}: {results[mutant.key]}", flush=True
            )
    show([(m, results[m.key]) for _, m in wanted])


def show(ended: list[tuple[Mutant, str]]) -> None:
    """Print the survivors, and the share that was killed by package."""
    for mutant, how in ended:
        if not how.startswith("killed"):
            print(
                f"\n{mutant.key} {mutant.file}:{mutant.line} {mutant.what}: {how}\n    {mutant.text.replace(chr(0), 'on')}"
            )
    print()
    for package in [*sorted({m.package for m, _ in ended}), ""]:
        of_it = [how for m, how in ended if package in {m.package, ""}]
        killed = sum(how.startswith("killed") for how in of_it)
        print(f"{package or 'all':32} {killed:4} of {len(of_it):4}  {killed / len(of_it):6.1%}")


if __name__ == "__main__":
    main()
