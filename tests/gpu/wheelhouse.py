"""Make wheels again from installed distributions: `wheelhouse.py FOLDER NAME...`, run by the Python
whose environment holds them.

A machine with a GPU and no network can then build environments offline from what it has. Each
wheel is what its RECORD lists (less scripts and bytecode, which installers make), stored without
compression; what the named distributions require comes along.
"""

from __future__ import annotations

import base64
import concurrent.futures
import csv
import hashlib
import importlib.metadata
import io
import sys
import zipfile
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

MADE_BY_INSTALLERS = ("INSTALLER", "REQUESTED", "direct_url.json", "RECORD")


def closure(names: list[str]) -> dict[str, importlib.metadata.Distribution]:
    """The distributions and all that they require, extras of the requirements too."""
    found: dict[str, importlib.metadata.Distribution] = {}
    waiting = [(name, frozenset[str]()) for name in names]
    seen = set()
    while waiting:
        name, extras = waiting.pop()
        if (name, extras) in seen:
            continue
        seen.add((name, extras))
        try:
            dist = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            print(f"not installed: {name}", file=sys.stderr)
            continue
        found[canonicalize_name(name)] = dist
        for text in dist.requires or ():
            need = Requirement(text)
            wanted = [{"extra": e} for e in (extras or {""})]
            if need.marker is None or any(need.marker.evaluate(e) for e in wanted):
                waiting.append((canonicalize_name(need.name), frozenset(need.extras)))
    return found


def tag_of(dist: importlib.metadata.Distribution) -> str:
    """The tag set of the WHEEL file, compressed as a file name has it (PEP 425)."""
    lines = (dist.read_text("WHEEL") or "").splitlines()
    tags = [line.split(":", 1)[1].strip().split("-") for line in lines if line.startswith("Tag:")]
    return "-".join(".".join(dict.fromkeys(t[i] for t in tags)) for i in range(3))


def make(dist: importlib.metadata.Distribution, folder: Path) -> Path:
    """Write one wheel."""
    name = dist.metadata["Name"].replace("-", "_").replace(".", "_")
    path = folder / f"{name}-{dist.version}-{tag_of(dist)}.whl"
    rows, info = [], ""
    with zipfile.ZipFile(path, "w", allowZip64=True) as wheel:
        for file in dist.files or ():
            inside = str(file)
            # Only the distribution's own .dist-info: setuptools carries those of others inside.
            own = len(file.parts) == 2 and file.parts[0].endswith(".dist-info")
            info = file.parts[0] if own else info
            if inside.startswith("..") or inside.endswith(".pyc"):
                continue
            if own and file.name in MADE_BY_INSTALLERS:
                continue
            data = Path(str(file.locate())).read_bytes()
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            rows.append((inside, f"sha256={digest}", len(data)))
            member = zipfile.ZipInfo(inside, (2020, 1, 1, 0, 0, 0))
            member.external_attr = Path(str(file.locate())).stat().st_mode << 16  # ptxas is executed
            wheel.writestr(member, data)
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([*rows, (f"{info}/RECORD", "", "")])
        wheel.writestr(f"{info}/RECORD", text.getvalue())
    return path


def main() -> None:
    """Make the wheels, several at once."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for path in pool.map(lambda d: make(d, folder), closure(sys.argv[2:]).values()):
            print(f"{path.stat().st_size / 1e6:10.1f} MB  {path.name}")


if __name__ == "__main__":
    main()
