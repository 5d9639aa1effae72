"""The readers of files from outside, fed with what hypothesis makes of sound examples.

    python tests/faults/fuzz.py [--reader RECORD] [--seconds 20] [--seed 1]

hypothesis takes an example apart (as JSON, TOML or YAML where it is that) and puts odd values in its places.
A crash is written to the folder --keep names, and becomes a case of tests/test_faults_readers.py.
"""

from __future__ import annotations

import hashlib
import json
import random
import sys
import time
import traceback
from pathlib import Path

from ground import Report, parser_of
from readers import READERS, Reader, bears

ODD = (
    None, True, -1, 0, 2**70, 1.5, float("nan"), "", " ", "\0", "\x1b[31m", "..", "../../../etc/passwd", "/etc/passwd",
    "file:///etc/passwd", "http://[::1", "https://u:p@h/x", "a" * 5000, "9" * 5000, "2.35.1", "\u202e", "\ud800", "²", "-r x",
    "--index-url=x", "${HOME}", "%s", "{0}", "; rm -rf /", "\n", "a\nb", "1.0+cu", "==", [], {}, [[]], {"": ""}, [None], {"a": [1]},
)  # fmt: skip


def places(tree: object, at: tuple = ()) -> list[tuple]:
    """The way to every node of a tree."""
    found = [at]
    pairs = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in pairs:
        found += places(value, (*at, key))
    return found


def changed(tree: object, at: tuple, value: object) -> object:
    """A tree with another node at a place."""
    if not at:
        return value
    copy = dict(tree) if isinstance(tree, dict) else list(tree)
    copy[at[0]] = changed(copy[at[0]], at[1:], value)
    return copy


def taken_apart(reader: Reader, data: bytes) -> object | None:
    import tomli
    import yaml

    try:
        text = data.decode()
        return {"json": json.loads, "toml": tomli.loads, "yaml": yaml.safe_load}[reader.kind](text)
    except (ValueError, KeyError, yaml.YAMLError):
        return None


def put_together(reader: Reader, tree: object) -> bytes | None:
    import tomli_w

    try:
        if reader.kind == "toml":
            return tomli_w.dumps(tree).encode("utf-8", "surrogatepass")
        return json.dumps(tree, ensure_ascii=False).encode("utf-8", "surrogatepass")  # JSON is YAML
    except (TypeError, ValueError, AttributeError):
        return None


def strategy(reader: Reader):
    """Bytes that a reader may be given."""
    from hypothesis import strategies as st

    made = [st.binary(max_size=200), st.binary(max_size=20).map(lambda b: reader.sound[0] + b)]
    odd = st.sampled_from(ODD) | st.text(max_size=40) | st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda x: st.lists(x, max_size=3) | st.dictionaries(st.text(max_size=5), x, max_size=3), max_leaves=6,
    )  # fmt: skip
    for example in reader.sound:
        made += [
            st.tuples(st.integers(0, len(example)), st.integers(0, 40), st.binary(max_size=12)).map(
                lambda t, e=example: e[: t[0]] + t[2] + e[t[0] + t[1] :]
            )
        ]
        tree = taken_apart(reader, example)
        if tree is not None:
            ways = places(tree)
            made += [
                st.tuples(st.sampled_from(ways), odd).map(
                    lambda t, tree=tree: put_together(reader, changed(tree, *t)) or b""
                )
            ]
    return st.one_of(made)


def by_hypothesis(
    reader: Reader, seconds: float, chance: random.Random, examples: int = 60
) -> tuple[int, str | None, bytes]:
    """How many examples were tried in a time, `examples` at least, and the first fault with its smallest example."""
    from hypothesis import HealthCheck, Phase, given, seed, settings

    tried, until, last = 0, time.monotonic() + seconds, b""
    while tried == 0 or time.monotonic() < until:

        @seed(chance.getrandbits(32))
        @settings(max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck),
                  phases=(Phase.generate, Phase.shrink), report_multiple_bugs=False)  # fmt: skip
        @given(strategy(reader))
        def run(data: bytes) -> None:
            nonlocal tried, last
            tried += 1
            last = data
            bears(reader, data)

        try:
            run()
        except Exception as error:  # noqa: BLE001  # the fault that was looked for
            frames = traceback.extract_tb(error.__traceback__)
            ours = [f for f in frames if "/provision/" in f.filename] or frames
            where = f"{ours[-1].filename.rpartition('/provision/')[2]}:{ours[-1].lineno}"
            return tried, f"{type(error).__name__}: {str(error)[:100]} ({where})", last
    return tried, None, b""


def main() -> int:
    """Fuzz the readers that were asked for."""
    parser = parser_of(__doc__)
    parser.add_argument("--reader", choices=sorted(READERS))
    parser.add_argument("--seconds", type=float, default=20.0, help="for each reader")
    parser.add_argument("--keep", type=Path, default=Path(".cache/fuzz"))
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1, 10**6))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    options.keep.mkdir(parents=True, exist_ok=True)
    report = Report()
    for name, reader in READERS.items():
        if options.reader not in (None, name):
            continue
        tried, fault, data = by_hypothesis(reader, options.seconds, random.Random(f"{options.seed} {name}"))
        if fault:
            path = options.keep / f"{name.replace('/', '_')}-{hashlib.sha256(data).hexdigest()[:8]}"
            path.write_bytes(data)
            fault += f"; {path}: {data[:120]!r}"
        report.case(name, fault, f"{tried} examples")
    return report.end("readers")


if __name__ == "__main__":
    sys.exit(main())
