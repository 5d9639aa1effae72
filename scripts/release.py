"""Build a release twice, from two clones, and compare the files byte for byte.

`release.py` clones HEAD into two folders with different names, depths, masks, time zones and times. In each
it builds the wheel and the source archive with exactly the build tools of release/build.txt, with hashes. It
puts them into dist/ with SHA256SUMS only if both builds are the same. The bill of materials in the wheel must
be that of the current lock, and the wheel built from the source archive must be the same too. `--lock` renews
the files of release/.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

import sbom

ROOT = Path(__file__).resolve().parent.parent
RELEASE = ROOT / "release"
UV = [sys.executable, "-m", "uv"]


def lock() -> None:
    """Lock the newest requirements of gpuenv and of its build, for every Python and system."""
    compiling = [
        *UV,
        "pip",
        "compile",
        "-q",
        "--upgrade",
        "--universal",
        "--python-version",
        "3.10",
        "--generate-hashes",
    ]
    compiling += ["--no-header", "--no-emit-index-url"]
    run([*compiling, "pyproject.toml", "-o", "release/requirements.txt"], ROOT)
    run([*compiling, "--extra", "conda", "pyproject.toml", "-o", "release/requirements-conda.txt"], ROOT)
    with tempfile.NamedTemporaryFile("w", suffix=".in") as wanted:
        wanted.write("\n".join(build_requires()) + "\n")
        wanted.flush()
        same = ["--constraint", "release/requirements.txt"]  # `make env` installs both into one environment
        run([*compiling, *same, "--no-annotate", wanted.name, "-o", "release/build.txt"], ROOT)
    sbom.WRITTEN.write_text(sbom.bill(), encoding="utf-8")


def build_requires() -> list[str]:
    """Return the build requirements in pyproject.toml."""
    import tomli

    data = tomli.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return list(data["build-system"]["requires"])


def built(clone: Path, epoch: str, mask: int, zone: str) -> dict[str, bytes]:
    """Return the files that one clone builds: source archive, wheel, and the wheel of that archive."""
    run(["git", "clone", "--quiet", "--no-local", str(ROOT), str(clone)], clone.parent, mask=mask)
    env = {**os.environ, "SOURCE_DATE_EPOCH": epoch, "TZ": zone, "PYTHONHASHSEED": str(mask)}
    exactly = ["--build-constraint", "release/build.txt", "--require-hashes", "-q"]
    run([*UV, "build", *exactly, "--sdist", "--wheel", "--out-dir", "out"], clone, env, mask)
    (archive,) = (clone / "out").glob("*.tar.gz")
    run([*UV, "build", *exactly, "--wheel", "--out-dir", "again", str(archive)], clone, env, mask)
    files = {p.name: p.read_bytes() for p in (clone / "out").iterdir() if p.suffix in (".whl", ".gz")}
    again = {f"{p.name} of the archive": p.read_bytes() for p in (clone / "again").glob("*.whl")}
    return {**files, **again}


def run(argv: list[str], folder: Path, env: dict[str, str] | None = None, mask: int = 0o022) -> None:
    """Run a step. A failure ends the release."""
    done = subprocess.run(argv, cwd=folder, env=env, umask=mask, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(argv)}: exit {done.returncode}")


def compare_builds(one: dict[str, bytes], two: dict[str, bytes]) -> dict[str, bytes]:
    """Return the files if both builds are the same and the archive builds the same wheel."""
    different = sorted(n for n in one.keys() | two.keys() if one.get(n) != two.get(n))
    if different:
        sys.exit(f"two builds differ in {', '.join(different)}")
    files = {n: d for n, d in one.items() if not n.endswith(" of the archive")}
    (wheel,) = (n for n in files if n.endswith(".whl"))
    if one[f"{wheel} of the archive"] != one[wheel]:
        sys.exit(f"{wheel} built of the source archive differs from the one built of the clone")
    return files


def main() -> None:
    """Lock, or build and compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lock", action="store_true", help="renew release/")
    parser.add_argument("--out", type=Path, default=ROOT / "dist", metavar="DIR")
    options = parser.parse_args()
    if options.lock:
        lock()
        return
    command = ["git", "log", "-1", "--format=%ct"]
    epoch = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()
    with tempfile.TemporaryDirectory(prefix="gpuenv-release-") as scratch:
        one = built(Path(scratch, "a"), epoch, 0o022, "UTC")
        time.sleep(2.1)  # a zip counts time in steps of two seconds
        deeper = Path(scratch, "another", "with a longer name")
        deeper.mkdir(parents=True)
        two = built(deeper / "gpuenv", epoch, 0o077, "Asia/Kathmandu")
    files = compare_builds(one, two)
    options.out.mkdir(parents=True, exist_ok=True)
    sums = ""
    for name, data in sorted(files.items()):
        (options.out / name).write_bytes(data)
        sums += f"{hashlib.sha256(data).hexdigest()}  {name}\n"
        if name.endswith(".whl"):
            _assert_bill(options.out / name)
    (options.out / "SHA256SUMS").write_text(sums, encoding="utf-8")
    shutil.copy(sbom.WRITTEN, options.out)
    sys.stdout.write(f"two builds, the same bytes:\n{sums}")


def _assert_bill(wheel: Path) -> None:
    """Exit if the wheel does not contain the bill of materials of the current lock."""
    with zipfile.ZipFile(wheel) as archive:
        names = [n for n in archive.namelist() if ".dist-info/sboms/" in n]
        if [archive.read(n).decode() for n in names] != [sbom.bill()]:
            sys.exit(
                f"{wheel.name} has no bill of materials of today's lock: scripts/sbom.py --write, then commit"
            )


if __name__ == "__main__":
    main()
