"""Input that is made to harm: files, locks, wheels, environments, programs on PATH, names, logs.

    python tests/faults/hostile.py [--only environments]

Each case has something that shows harm: files outside that must stay, a program that must not run, a server
that nobody may ask, a screen that gets no raw control characters. It prints "held" or "broken" with what was
seen. Races (a folder that is exchanged for a link between two looks) are not tried: whoever can write into the
folder of an environment at that very moment can write into the environment as well.
"""

from __future__ import annotations

import sys
import time
import traceback

import hostile_builds  # noqa: F401  # enters its cases, as do those below
import hostile_conda  # noqa: F401
import hostile_configuration  # noqa: F401
import hostile_environments  # noqa: F401
import hostile_files  # noqa: F401
import hostile_links  # noqa: F401
import hostile_locks  # noqa: F401
import hostile_programs  # noqa: F401
import hostile_servers  # noqa: F401
import hostile_shown  # noqa: F401
import hostile_verdicts  # noqa: F401
from field import CASES, field
from ground import parser_of

LONGEST = 3300.0
"""Seconds for all; what was not tried by then is told, and counts as broken."""


def main() -> int:
    """Try the cases that were asked for."""
    parser = parser_of(__doc__)
    parser.add_argument("--only", default="", help="the beginning of a case's name")
    parser.add_argument("--after", default="", help="go on after the case of this name")
    parser.add_argument("--broken", action="store_true", help="print only what is broken")
    options = parser.parse_args()
    began, tried, broken = time.monotonic(), 0, 0
    with field() as at:
        names = list(CASES)
        begin = names.index(options.after) + 1 if options.after else 0
        for name in names[begin:]:
            function = CASES[name]
            if not name.startswith(options.only):
                continue
            at.fresh()
            start = time.monotonic()
            late = start - began > LONGEST
            try:
                problem = "no time was left to try it" if late else function(at)
            except Exception:  # noqa: BLE001  # the other cases are tried all the same
                problem = traceback.format_exc()[-400:]
            tried += 1
            broken += bool(problem)
            if problem or not options.broken:
                word = f"broken  {name}: {problem}" if problem else f"held    {name}"
                print(f"{word}  ({time.monotonic() - start:.1f} s)", flush=True)
    print(f"hostile input: {tried} cases, {tried - broken} held, {broken} broken, "
          f"{time.monotonic() - began:.0f} s", flush=True)  # fmt: skip
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
