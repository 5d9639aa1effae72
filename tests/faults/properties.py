"""The property tests of the suite with random examples; `make test` takes the same examples in each run.

    python tests/faults/properties.py [--seed 1] [--rounds 2] [--only test_project_requirements]

Each round runs every property test with its own seed, and prints it. A failure is repeated by
`--seed SEED --rounds 1`; its smallest example becomes a case of the test's module. A round takes minutes.
"""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

from ground import Report, parser_of

TESTS = Path(__file__).resolve().parent.parent


def round_of(seed: int, only: str) -> tuple[str | None, str]:
    """What failed with a seed (None where nothing did), and the figures of the run."""
    argv = [sys.executable, "-m", "pytest", "-q", "-m", "hypothesis", "--hypothesis-profile=explore", f"--hypothesis-seed={seed}",
            *sorted(map(str, TESTS.rglob(f"{only}*.py")))]  # fmt: skip
    done = subprocess.run(argv, cwd=TESTS.parent, capture_output=True, text=True, check=False)
    figures = done.stdout.strip().splitlines()[-1] if done.stdout.strip() else done.stderr[-300:]
    if done.returncode == 0:
        return None, figures
    print(done.stdout, flush=True)
    failed = [x.split()[1] for x in done.stdout.splitlines() if x.startswith("FAILED ")]
    return f"repeat with --seed {seed} --rounds 1: {', '.join(failed) or 'no test ran'}", figures


def main() -> int:
    """Run the rounds."""
    parser = parser_of(__doc__)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--only", default="test_", help="the beginning of a test module's name")
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    report = Report()
    for number in range(options.seed, options.seed + options.rounds):
        report.case(f"seed {number}", *round_of(number, options.only))
    return report.end("properties")


if __name__ == "__main__":
    sys.exit(main())
