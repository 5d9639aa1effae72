"""Run the Ansible collection against this machine's real GPU, by a local connection and without a network.

    python tests/gpu/ansible_local.py --collect STICK [--python 3.12]    # where a network is
    python tests/gpu/ansible_local.py ENV --stick STICK                  # on the machine with the GPU

STICK gets wheels of ansible-core, gpuenv and what they require, for the Python of the second command. ENV is the Python of an
environment that has torch (or --framework): wheels are made of it again (wheelhouse.py), and the collection builds an
environment of them. It is provisioned twice, changed by hand, checked, put back and checked again. Every last screen is
printed; exits 1 where a run does not end as it should. `--device cpu` tries the script where no GPU is.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COLLECTION = ROOT / "ansible" / "gpuenv"
PLATFORMS = ("manylinux_2_28", "manylinux_2_17", "manylinux2014")
HOST = "gpu"
HERE = f"{sys.version_info[0]}.{sys.version_info[1]}"


def run(*words: object, **more: object) -> subprocess.CompletedProcess[str]:
    """Run a program; what fails ends the script with its output."""
    done = subprocess.run([*map(str, words)], capture_output=True, text=True, check=False, **more)
    if done.returncode:
        sys.exit(f"failed ({done.returncode}): {' '.join(map(str, words))}\n{done.stdout}{done.stderr}")
    return done


def collect(stick: Path, python: str) -> None:
    """Fill a folder as the part of a bundle that installs gpuenv, with ansible-core beside it."""
    folder = stick / "gpuenv"
    folder.mkdir(parents=True, exist_ok=True)
    run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", folder, ROOT)
    platforms = [w for name in PLATFORMS for w in ("--platform", f"{name}_{os.uname().machine}")]
    where = ["--only-binary", ":all:", "--python-version", python, *platforms, "-d", folder]
    wheel = next(folder.glob("gpuenv-*.whl"))
    run(sys.executable, "-m", "pip", "download", "-q", *where, "ansible-core>=2.17", wheel)
    print(f"{len(list(folder.iterdir()))} wheels for Python {python} in {folder}")


@dataclass
class Site:
    """The controller and the one host, which are this machine."""

    asked: argparse.Namespace
    root: Path

    def prepare(self) -> None:
        """Install ansible-core, the collection and gpuenv's own wheel; make wheels of the environment."""
        packed = self.asked.stick.absolute() / "gpuenv"
        tool = self.root / "tool"
        run(sys.executable, "-m", "venv", tool)
        pip = [tool / "bin" / "python", "-m", "pip", "install", "-q", "--no-index", "--find-links", packed]
        run(*pip, "ansible-core", next(packed.glob("gpuenv-*.whl")))
        (self.root / "fleet").mkdir()
        galaxy = [tool / "bin" / "ansible-galaxy", "collection"]
        run(*galaxy, "build", COLLECTION, "--output-path", self.root, env=self.env)
        (archive,) = self.root.glob("*.tar.gz")
        run(*galaxy, "install", archive, "-p", self.root / "collections", "--offline", env=self.env)
        house = Path(__file__).with_name("wheelhouse.py")
        run(self.asked.env, house, self.root / "house", self.asked.framework, "pip", *self.asked.also)
        code = f"import importlib.metadata as m, sys; print(m.version('{self.asked.framework}'), *sys.version_info[:2])"
        version, *python = run(self.asked.env, "-c", code).stdout.split()
        self.write_hosts(version.partition("+")[0], ".".join(python))

    @property
    def env(self) -> dict[str, str]:
        """The variables of ansible's programs, with indexes that nobody has."""
        nowhere = "http://127.0.0.1:9/simple"
        return {
            **os.environ, "ANSIBLE_COLLECTIONS_PATH": str(self.root / "collections"), "ANSIBLE_NOCOLOR": "1",
            "HOME": str(self.root), "LC_ALL": "C.UTF-8", "ANSIBLE_LOCALHOST_WARNING": "False",
            "PIP_INDEX_URL": nowhere, "PIP_CONFIG_FILE": os.devnull, "GPUENV_INDEX_PYTORCH": nowhere,
        }  # fmt: skip

    def write_hosts(self, version: str, python: str) -> None:
        """Write the inventory: hosts.yml, which may be JSON."""
        device = ["--device", "cpu"] if self.asked.device == "cpu" else []
        places = ["--offline", "--find-links", str(self.root / "house"), *device]
        values = {
            "ansible_connection": "local", "ansible_python_interpreter": sys.executable,
            "install_bundle": str(self.asked.stick.absolute()), "install_prefix": str(self.root / "gpuenv"),
            "install_python": sys.executable, "provision_env": str(self.root / "env"),
            "provision_folder": str(self.root / "fleet"),
            "provision_controller_gpuenv": str(self.root / "tool" / "bin" / "gpuenv"),
            "provision_frameworks": [f"{self.asked.framework}=={version}"],
            "provision_lock_arguments": ["--python", python, *places], "provision_arguments": places,
        }  # fmt: skip
        text = json.dumps({"all": {"hosts": {HOST: values}}}, indent=1)
        (self.root / "fleet" / "hosts.yml").write_text(text)

    def play(self, name: str, playbook: str, verdict: str, *, changed: bool) -> list[str]:
        """Run a playbook, print its last screen, and return what is not as expected."""
        began = time.monotonic()
        words = [
            self.root / "tool/bin/ansible-playbook",
            f"gpuenv.fleet.{playbook}",
            "-i",
            "hosts.yml",
            "--diff",
        ]
        done = subprocess.run(
            [*map(str, words)],
            env=self.env,
            cwd=self.root / "fleet",
            capture_output=True,
            text=True,
            check=False,
        )
        print(f"== {name}: exit code {done.returncode}, {time.monotonic() - began:.1f} s")
        print("TASK [" + done.stdout.rpartition("TASK [")[2], flush=True)
        if self.asked.verbose or "PLAY RECAP" not in done.stdout:
            print(done.stdout, done.stderr)
        results = self.root / "fleet" / "results.json"
        rows = json.loads(results.read_text())["hosts"] if results.exists() else [{"verdict": "no result"}]
        results.unlink(missing_ok=True)
        counts = re.findall(rf"^{HOST} .*changed=(\d+)", done.stdout, re.MULTILINE)
        problems = [] if rows[0]["verdict"] == verdict else [f"{name}: verdict {rows[0]}, expected {verdict}"]
        if not counts or bool(int(counts[0])) != changed:
            problems.append(f"{name}: changed {counts}, expected {changed}")
        return problems

    def spoil(self) -> Path:
        """Add a byte to a library of cuDNN, else to a module of the framework, as an edit by hand does."""
        (site,) = (self.root / "env").glob("lib/python*/site-packages")
        found = sorted(site.glob("nvidia/cudnn/lib/libcudnn_ops*.so*")) or sorted(
            site.glob("torch/lib/libcudnn_ops*")
        )
        path = found[0] if found else site / self.asked.framework / "version.py"
        data = path.read_bytes()
        path.unlink()
        path.write_bytes(data + b"\n")
        return path


def main() -> int:
    """Collect the wheels, or run all steps."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("env", nargs="?", help="the Python of an environment with the framework")
    parser.add_argument("--collect", type=Path, metavar="STICK")
    parser.add_argument("--python", default=HERE, help="of the other machine, with --collect")
    parser.add_argument("--stick", type=Path)
    parser.add_argument("--framework", default="torch")
    parser.add_argument(
        "--also", action="append", default=[], help="another distribution of ENV to make a wheel of"
    )
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--verbose", action="store_true", help="print all screens")
    asked = parser.parse_args()
    if asked.collect:
        collect(asked.collect, asked.python)
        return 0
    if not asked.env or not asked.stick:
        parser.error("ENV and --stick are needed")
    works = "cpu" if asked.device == "cpu" else "works"
    with tempfile.TemporaryDirectory(prefix="ansible-local-") as folder:
        site = Site(asked, Path(folder))
        site.prepare()
        bad = site.play("provision", "provision", works, changed=True)
        bad += site.play("again", "provision", works, changed=False)
        print(f"changed by hand: {site.spoil()}")
        bad += site.play("check", "check", "fails", changed=False)
        bad += site.play("provision puts it back", "provision", works, changed=True)
        bad += site.play("check again", "check", works, changed=False)
    print("\n".join(bad) if bad else "all runs ended as they should")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
