"""Create an environment for an unmodified YOLOv5 checkout without libGL, then train in it with libGL.

    python tests/gpu/object_detection.py CHECKOUT --find-links WHEELS [--libraries FOLDER] [--python 3.12]

For a machine with an NVIDIA GPU and no network, run as root: libGL.so.1 is renamed while the first half
runs. `--libraries` names a folder with libGL.so.1 and what it needs, for a machine that has none; they
become known to the loader for the second half. The checkout is copied. Prints each step with its time and
the end of its output; exits 1 where a step does not end as expected.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
SONAME = "libGL.so.1"
DATA = """
import pathlib, shutil, sys
import matplotlib
from PIL import Image, ImageDraw
folder = pathlib.Path(sys.argv[1])
folder.mkdir()
shutil.copy(f"{matplotlib.get_data_path()}/fonts/ttf/DejaVuSans.ttf", folder / "Arial.ttf")
for part in ("train", "val"):
    (folder / "images" / part).mkdir(parents=True)
    (folder / "labels" / part).mkdir(parents=True)
    for i in range(16):
        image = Image.new("RGB", (128, 128), (i * 10, 80, 120))
        x, y = 10 + 5 * i, 100 - 4 * i
        ImageDraw.Draw(image).rectangle((x, y, x + 20, y + 20), fill=(250, 40, 40))
        image.save(folder / "images" / part / f"{i}.jpg")
        text = f"0 {(x + 10) / 128} {(y + 10) / 128} {20 / 128} {20 / 128}\\n"
        (folder / "labels" / part / f"{i}.txt").write_text(text)
(folder / "data.yaml").write_text(
    f"path: {folder}\\ntrain: images/train\\nval: images/val\\nnames: {{0: box}}\\n"
)
"""


@dataclass
class Steps:
    """The steps of a run, in a project's folder. YOLOv5 finds a font beside the images: without one it fetches one."""

    project: Path
    failed: list[str] = field(default_factory=list)

    def run(self, name: str, argv: list[str], code: int, *says: str) -> None:
        """Run gpuenv; note the step as failed unless it ends with `code` and says each pattern."""
        began = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-m", "provision", *argv], cwd=self.project, capture_output=True, text=True,
            check=False, env={**os.environ, "PYTHONPATH": str(ROOT), "YOLOV5_CONFIG_DIR": str(self.project.parent / "data")},
        )  # fmt: skip
        text = done.stdout + done.stderr
        missing = [s for s in says if not re.search(s, " ".join(text.split()))]
        print(f"== {name}: exit {done.returncode} (expected {code}), {time.perf_counter() - began:.1f} s")
        print(text[-2500:], flush=True)
        if done.returncode != code or missing:
            self.failed.append(name)
            print(f"   NOT AS EXPECTED: {missing}", flush=True)


@contextlib.contextmanager
def hidden(soname: str) -> Iterator[None]:
    """Rename a library of the system, and what links to it, and give the names back afterwards."""
    text = subprocess.run(["ldconfig", "-p"], capture_output=True, text=True, check=True).stdout
    names = {Path(m) for m in re.findall(rf"{re.escape(soname)} .*=> (\S+)", text)}
    moved = [(path, path.with_name(f"hidden-{path.name}")) for path in names]
    for path, aside in moved:
        path.rename(aside)
    subprocess.run(["ldconfig"], check=True)
    try:
        yield
    finally:
        for path, aside in moved:
            aside.rename(path)
        subprocess.run(["ldconfig"], check=True)


def install(libraries: Path) -> None:
    """Copy libraries to where the loader looks, as a system package would."""
    for path in libraries.iterdir():
        place = Path("/usr/local/lib") / path.name
        if not place.exists():
            shutil.copy(path, place)
    subprocess.run(["ldconfig"], check=True)


def main() -> int:
    """Run the two halves."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--find-links", type=Path, required=True)
    parser.add_argument("--libraries", type=Path)
    parser.add_argument("--python", default="3.12")
    options = parser.parse_args()
    project = Path(tempfile.mkdtemp(prefix="gpuenv-detection-")) / "project"
    shutil.copytree(options.checkout, project)
    steps = Steps(project)
    offline = ["--offline", "--find-links", str(options.find_links.resolve())]
    with hidden(SONAME):
        steps.run("init", ["init"], 0, "install: false|not installed")
        steps.run(
            "create without libGL", ["create", "--python", options.python, *offline], 8, r"libGL\.so\.1"
        )
        steps.run("verify without libGL", ["verify", ".venv"], 8, "opencv-python", r"libGL\.so\.1", "libgl1")
        steps.run("train without libGL", ["run", ".venv", "--", "python", "train.py", "--help"], 1, "libgl1")
    if options.libraries:
        install(options.libraries)
    steps.run("verify", ["verify", ".venv"], 0, "works")
    data = project.parent / "data"
    steps.run("images", ["run", ".venv", "--", "python", "-c", DATA, str(data)], 0)
    train = [
        "python",
        "train.py",
        "--img",
        "128",
        "--batch",
        "8",
        "--epochs",
        "2",
        "--workers",
        "2",
        "--device",
        "0",
    ]
    more = ["--data", str(data / "data.yaml"), "--weights", "", "--cfg", "models/yolov5n.yaml", "--noplots"]
    steps.run("train", ["run", ".venv", "--", *train, *more], 0, "2 epochs completed")
    print("failed: " + ", ".join(steps.failed) if steps.failed else "all steps ended as expected")
    return 1 if steps.failed else 0


if __name__ == "__main__":
    sys.exit(main())
