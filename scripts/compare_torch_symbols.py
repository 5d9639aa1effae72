"""Show which torch releases define the symbols that the packages of satellites.yaml need.

    python scripts/compare_torch_symbols.py [PACKAGE ...] [--cache DIR]

Reads the torch libraries of the default index, some 15 GB, and the libraries of the packages, both with the
cache of scripts/update_profiles.py. Exits with 1 if a row names torch releases that lack a symbol. A release
with all symbols may still change their meaning. So this excludes releases, and proves none.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection
from packaging.requirements import Requirement
from packaging.version import Version

from provision.index.config import pip_settings
from provision.index.http import Http
from provision.index.places import default_index
from provision.profiles.measure import libraries
from provision.profiles.measure.libraries import FRAMEWORK_SYMBOL, measure_libraries
from provision.profiles.measure.reader import Reader, releases, representative
from provision.profiles.measure.satellites import STEP
from provision.profiles.tables import read_file
from provision.system import process

if TYPE_CHECKING:
    import zipfile

ROOT = Path(__file__).resolve().parent.parent
OLDEST = "2.5"
_LIBRARIES = re.compile(r"torch/lib/lib(torch\w*|c10\w*|shm)\.so")


def measure_torch(wheel: zipfile.ZipFile) -> dict[str, Any]:
    """Return the framework symbols that torch's libraries define."""
    framework_symbols: set[str] = set()
    for name in filter(_LIBRARIES.fullmatch, wheel.namelist()):
        with tempfile.TemporaryFile() as target, wheel.open(name) as source:
            while data := source.read(1 << 20):
                target.write(data)
            target.flush()
            table = ELFFile(target).get_section_by_name(".dynsym")
            assert isinstance(table, SymbolTableSection)
            defined = (s.name for s in table.iter_symbols() if s["st_shndx"] != "SHN_UNDEF")
            framework_symbols |= {name for name in defined if FRAMEWORK_SYMBOL.fullmatch(name)}
    return {"symbols": sorted(framework_symbols)}


def torch_symbols(reader: Reader) -> dict[Version, frozenset[str]]:
    """Return the symbols that each torch release of the index defines, oldest first."""
    symbols = {}
    for version, wheels in sorted(releases(reader.wheels("torch"), OLDEST).items()):
        on_platform = [w for w in wheels if w.platform == "linux-x86_64"]
        if on_platform and (
            fact := reader.facts(representative(on_platform), "torch-symbols", measure_torch, STEP)
        ):
            symbols[version] = frozenset(fact["symbols"])
    return symbols


def needed(reader: Reader, row: dict[str, Any]) -> set[str]:
    """Return the torch symbols that a row's wheel needs."""
    wheel = next(w for w in reader.wheels(row["package"]) if w.file.sha256 == row["sha256"])
    fact = reader.facts(wheel, "satellite", measure_libraries, STEP) or {"libraries": {}}
    symbols = {s for library in fact["libraries"].values() for s in library["symbols"]}
    return {s for s in symbols if libraries.is_of_torch(s)}


def compare(reader: Reader, row: dict[str, Any], defined: dict[Version, frozenset[str]]) -> bool:
    """Print the torch releases that define what a row needs, and return whether they include all that it
    names."""
    if not (symbols := needed(reader, row)):
        return True
    fitting = [v for v, have in defined.items() if symbols <= have]
    stated = Requirement(row.get("built_for", "torch"))
    refused = [v for v in defined if v not in fitting and stated.specifier.contains(v)]
    fits = not (stated.specifier and refused)
    print(
        f"{'fits ' if fits else 'LACKS'} {row['package']} {row['version']} ({row['abi']}, {stated}):",
        *(map(str, fitting) if fitting else ["no release"]),
    )
    return fits


def main() -> int:
    """Compare the rows of the named packages, or of all that call torch."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("packages", nargs="*", metavar="PACKAGE")
    parser.add_argument("--cache", type=Path, default=ROOT / ".cache" / "measured")
    options = parser.parse_args()
    environ = process.environ()
    reader = Reader(Http(pip_settings(environ)), default_index(environ), options.cache)
    defined = torch_symbols(reader)
    tables, _ = read_file(ROOT / "profiles" / "satellites.yaml")
    rows = [r for t in tables if t.head["table"] == "satellites" for r in t.rows if r.get("abi")]
    chosen = [r for r in rows if not options.packages or r["package"] in options.packages]
    wrong = [row for row in chosen if not compare(reader, row, defined)]
    for problem in reader.problems:
        print(f"left out: {problem}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
