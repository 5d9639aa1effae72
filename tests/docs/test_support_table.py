"""The table of GPU generations and drivers is what resolve says today."""

import sys
from pathlib import Path

from programs import run_program

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "support-table.md"


def test_the_page_has_the_table_that_the_script_prints():
    script = ROOT / "scripts" / "support_table.py"
    done = run_program([sys.executable, script], check=True)
    _, _, rest = PAGE.read_text(encoding="utf-8").partition("<!-- support-table -->\n")
    marked, _, _ = rest.partition("<!-- /support-table -->")
    assert marked == done.stdout, "run scripts/support_table.py --write"


def test_the_table_says_what_is_known_of_old_and_new_gpus():
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    rows = {
        line.split(" | ")[0].strip("| "): line.strip("| ").split(" | ")
        for line in lines
        if "driver" not in line
    }
    kepler = rows["Kepler (3.7)"]
    assert kepler[1] == "2.3.1 / 2.14.1 / - / -"  # cuDNN 8.7 is the last with kernels for it
    assert set(kepler[2:]) == {"-"}  # driver 470 is its last
    volta = rows["Volta (7.0)"]
    assert volta[-1] == "-"  # driver 580 is its last
    assert volta[5].split(" / ")[0] == "2.14.1"  # the last CUDA 12.6 build
    blackwell = next(cells for name, cells in rows.items() if name.startswith("Blackwell") and "12.0" in name)
    assert blackwell[1] == blackwell[2] == "-"  # no driver before 570 knows it
