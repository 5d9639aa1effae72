"""Write the table of builds for each GPU generation and driver: `support_table.py [--write]`.

Every cell is an answer of `provision.resolve` over the profiles of this checkout, for Linux x86_64 with glibc
2.35, any Python and both indexes. Prints the table. --write puts it between its two marker comments in
docs/reference/support-table.md.
"""

from __future__ import annotations

import argparse
import re
import sys
from itertools import groupby
from pathlib import Path

from provision import profiles
from provision.model import FRAMEWORKS, FrameworkRequest, GpuModel, Profiles, Request, Target, TargetGpu
from provision.resolve import resolve

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "support-table.md"
MARKED = re.compile(r"(<!-- support-table -->\n).*?(<!-- /support-table -->)", re.DOTALL)
BRANCHES = ("470", "525", "550", "570", "580")  # the columns; one for the newest known follows
NONE = "-"


def main() -> None:
    """Print the table, or write it into the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="put the table into the page")
    options = parser.parse_args()
    text = table(profiles.load())
    if not options.write:
        print(text, end="")
        return
    old = PAGE.read_text(encoding="utf-8")
    new, count = MARKED.subn(lambda m: m[1] + text + m[2], old)
    if count != 1:
        sys.exit(f"{PAGE} has {count} regions between the support-table comments, not one")
    if new != old:
        PAGE.write_text(new, encoding="utf-8")


def table(known: Profiles) -> str:
    """Return the Markdown table with its explanation: a row for each generation, split if answers differ."""
    newest = max((b.branch for b in known.branches), key=int)
    drivers = [first_driver(known, branch) for branch in (*BRANCHES, newest)]
    titles = [*BRANCHES, f"{newest} (newest)"]
    lines = [
        "The newest PyTorch / TensorFlow / JAX / ONNX Runtime with a CUDA build, from either index, on Linux x86_64 with",
        "glibc 2.35 and any Python (made by `scripts/support_table.py` from `profiles/`):",
        "",
        f"| GPU | {' | '.join(f'driver {t}' for t in titles)} |",
        f"|---|{'---|' * len(titles)}",
    ]
    answers = [(gpu, tuple(cell(known, gpu, d) for d in drivers)) for gpu in known.gpus if not gpu.tegra]
    for (generation, cells), group in groupby(answers, key=lambda a: (a[0].generation, a[1])):
        capabilities = ", ".join(gpu.capability for gpu, _ in group)
        lines.append(f"| {generation} ({capabilities}) | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def first_driver(known: Profiles, branch: str) -> str:
    """Return the first driver of a branch, which was released with its CUDA, otherwise the branch."""
    spoken = next(b.cuda for b in known.branches if b.branch == branch)
    return next((c.linux for c in known.cuda if c.cuda == spoken and c.linux), branch)


def cell(known: Profiles, gpu: GpuModel, driver: str) -> str:
    """Return the versions of all frameworks, or one dash if there are none."""
    newest = [version(known, framework, gpu, driver) for framework in FRAMEWORKS]
    return " / ".join(newest) if set(newest) != {NONE} else NONE


def version(known: Profiles, framework: str, gpu: GpuModel, driver: str) -> str:
    """Return the version that resolve plans, or a dash."""
    target = Target(
        platform="linux-x86_64",
        glibc="2.35",
        driver=driver,
        driver_os="linux",
        gpus=(TargetGpu(capability=gpu.capability),),
    )
    request = Request(frameworks=(FrameworkRequest(name=framework),), device="cuda", index="auto")
    return next((b.version for b in resolve(request, target, known).builds), NONE)


if __name__ == "__main__":
    main()
