#!/usr/bin/env python3
"""Add realistic noise to the logs of a file of reports (JSON lines with a key `log`), by a seed.

    scripts/noisy_reports.py reports.jsonl --seed 3 > noisy.jsonl

Comparing `gpuenv diagnose` on both files shows the effect of noise. The noise is that of
tests/support/log_noise.py.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "support"))

from log_noise import wrapped  # type: ignore[import-not-found]  # on the path only here and in tests


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("reports", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(argv)
    with options.reports.open(encoding="utf-8") as stream:
        for number, line in enumerate(stream):
            report = json.loads(line)
            report["log"] = wrapped(report["log"], options.seed * 1000 + number)
            print(json.dumps(report, ensure_ascii=False))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
