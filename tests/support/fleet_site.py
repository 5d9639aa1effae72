"""Hosts as ansible-core sees them: local connections, each with a home, a cache and a driver made of C of its own."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import yaml
from command import Command
from environment_facts import HERE
from nvidia_stub_wheels import add_nvidia_stubs
from packaging.utils import canonicalize_name

from driver_stub import K80, T4, V100, build, gpu, scenario, spec

ROOT = Path(__file__).resolve().parents[2]
COLLECTION = ROOT / "ansible" / "gpuenv"
BIN = Path(sys.executable).parent
PAGE, GUIDE = (
    (ROOT / "docs" / name).read_text(encoding="utf-8") for name in ("reference/ansible.md", "how-to/fleet.md")
)
COMMANDS = [
    line for page in (PAGE, GUIDE) for block in re.findall(r"```bash\n(.*?)```", page, re.DOTALL)
    for line in block.splitlines() if line.startswith("ansible")
]  # fmt: skip
"""The command lines of the pages, which the tests run in their order."""
A100 = gpu("NVIDIA A100-SXM4-80GB", "8.0", 81920, "GPU-4f0e1d2c-5a6b-4c7d-8e9f-0a1b2c3d4e5f")
H100 = gpu("NVIDIA H100 80GB HBM3", "9.0", 81559, "GPU-5a1f2e3d-6b7c-4d8e-9fa0-1b2c3d4e5f60")
STUBS = {"cudart": 12090, "cudnn": 91002}
DRIVERS = {
    "k80": spec(driver="470.256.02", cuda=11040, gpus=[K80], **STUBS),
    "a100": spec(driver="535.129.03", cuda=12020, gpus=[A100], **STUBS),
    "mixed": spec(driver="550.54.15", cuda=12040, gpus=[T4, V100], **STUBS),
    "h100": spec(driver="580.65.06", cuda=13000, gpus=[H100], **STUBS),
    "cpu": None,
    "broken": spec(driver="580.65.06", cuda=13000, gpus=[H100], nvml_init=18, cu_init=803, **STUBS),
}
"""The driver of each host; 18 and 803 are what a kernel module of another version answers."""


class Play:
    """How a run of ansible-playbook ended."""

    def __init__(self, done, results, page):
        self.code, self.out, self.err = done.returncode, done.stdout, done.stderr
        self.page = page.read_text() if page.exists() else None
        self.document = json.loads(results.read_text()) if results.exists() else None
        self.hosts = {h["host"]: h for h in (self.document or {"hosts": []})["hosts"]}

    @property
    def recap(self):
        """The counters of each host."""
        found = re.findall(r"^(\S+)\s+: (ok=.*)$", self.out.partition("PLAY RECAP")[2], re.MULTILINE)
        return {host: {k: int(v) for k, v in re.findall(r"(\w+)=(\d+)", text)} for host, text in found}

    @property
    def table(self):
        """The lines of the last screen's table."""
        screen = self.out.rpartition("TASK [")[2].partition("PLAY RECAP")[0]
        return re.findall(r'^ +"(.*)",?$', screen, re.MULTILINE)

    @property
    def changed(self):
        """The hosts on which something changed."""
        return sorted(host for host, counts in self.recap.items() if counts["changed"])


class Site:
    """A controller with the collection installed from its archive, and hosts."""

    def __init__(self, root):
        self.root, self.index, self.version, self.inventory = root, None, None, {}
        self.folder = root / "fleet"
        self.results, self.page = self.folder / "results.json", self.folder / "results.html"
        self.folder.mkdir(parents=True)
        (root / "home").mkdir()
        self.env = {
            "HOME": str(root / "home"), "PATH": f"{BIN}:/usr/bin:/bin", "LC_ALL": "C.UTF-8", "ANSIBLE_NOCOLOR": "1",
            "ANSIBLE_COLLECTIONS_PATH": str(root / "collections"), "ANSIBLE_LOCALHOST_WARNING": "False",
            "ANSIBLE_INVENTORY_UNPARSED_WARNING": "False", "ANSIBLE_FORKS": "4", "ANSIBLE_RETRY_FILES_ENABLED": "False",
            "ANSIBLE_PIPELINING": "True",
            "XDG_CACHE_HOME": str(root / "cache"), "PIP_CONFIG_FILE": os.devnull,
        }  # fmt: skip

    def serve(self, index):
        """Take packages from an index, which gets what jax installs."""
        self.index, self.version = index, add_jax(index, self.root / "asked")
        self.env |= packages_from(index)

    def install_collection(self):
        """Build the archive and install it, as the page says, but into folders of this test. Return its path."""
        build, install = COMMANDS[:2]
        self.run(*shlex.split(build), "--output-path", self.root, folder=ROOT)
        self.run(*shlex.split(install), "-p", self.root / "collections", "--offline", folder=self.root)
        (archive,) = self.root.glob("gpuenv-fleet-*.tar.gz")
        return archive

    def run(self, program, *words, folder=None):
        done = subprocess.run(
            [BIN / program, *map(str, words)], env=self.env, cwd=folder or self.folder, capture_output=True, text=True,
            check=False, stdin=subprocess.DEVNULL, timeout=300,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def add_host(self, name, driver, **variables):
        """A host with a home of its own; `driver` is the text of a driver stub's spec."""
        home = self.root / "hosts" / name
        home.mkdir(parents=True)
        environment = {
            "HOME": str(home), "XDG_CACHE_HOME": str(home / "cache"), "XDG_CONFIG_HOME": str(home / "config"),
            "PATH": f"{sys.base_prefix}/bin", "UV_CACHE_DIR": str(self.root / "uv-cache"), **packages_from(self.index),
        }  # fmt: skip
        if driver:
            version = re.search("^driver (.*)$", driver, re.MULTILINE)[1]
            environment |= scenario(build(home / "driver", version), driver)
        self.inventory[name] = {
            "ansible_connection": "local", "ansible_python_interpreter": sys.executable,
            "ansible_remote_tmp": str(home / "tmp"), "provision_env": str(home / "env"),
            "provision_proof": "quick" if driver else "full", "check_quick": bool(driver), "provision_environment": environment, **variables,
        }  # fmt: skip

    def env_of(self, name):
        """The environment of a host."""
        return self.root / "hosts" / name / "env"

    def locks(self):
        """The locks and what says which host gets which, by their names."""
        files = (*self.folder.glob("pylock.*"), self.folder / "hosts.json")
        return {p.name: p.read_bytes() for p in files}

    def library_of(self, name):
        """A library of cuDNN in the environment of a host."""
        return next(self.env_of(name).glob("lib/python*/site-packages/nvidia/cudnn/lib/libcudnn_ops.so.9"))

    def variables(self, name):
        """The environment variables of gpuenv on a host."""
        return self.inventory[name]["provision_environment"]

    def types(self, line, *more, hosts=None, former=None):
        """Run a command line of ansible-playbook as a page has it, in the folder with hosts.yml, which names `hosts`
        or all."""
        shared = {
            "provision_folder": str(self.folder), "provision_gpuenv": str(BIN / "gpuenv"),
            "provision_controller_gpuenv": str(BIN / "gpuenv"), "provision_frameworks": [f"jax=={self.version}"],
            "provision_lock_arguments": ["--python", HERE],
        }  # fmt: skip
        named = {"all": {"vars": shared, "hosts": hosts or self.inventory}}
        (self.folder / "hosts.yml").write_text(yaml.safe_dump(named))
        for path in (self.results, self.page):
            path.unlink(missing_ok=True)
        if former:
            self.results.write_text(former)
        program, *words = shlex.split(line)
        done = subprocess.run(
            [str(BIN / program), *words, *more], env=self.env, cwd=self.folder, capture_output=True, text=True,
            check=False, stdin=subprocess.DEVNULL, timeout=600,
        )  # fmt: skip
        return Play(done, self.results, self.page)


def packages_from(index):
    """The loopback index as the only one."""
    return {
        "PIP_CONFIG_FILE": os.devnull, "PIP_INDEX_URL": index.url, "UV_HTTP_RETRIES": "0",
        "GPUENV_INDEX_PYTORCH": "http://127.0.0.1:9/whl",
    }  # fmt: skip


def add_jax(index, scratch):
    """Fill the index: the real jax for the CPU from where pip is configured to look, and for the GPU what a CUDA plan
    adds to it, as stubs of NVIDIA's libraries and of the plug-in. Return the version."""
    ask = Command(scratch / "asked")
    boards = [w for capability in ("7.0", "7.5", "8.0", "9.0") for w in ("--gpu", capability)]
    plan = ask("resolve", "--json", "-f", "jax", "--index", "pypi", "--python", HERE, "--driver", "535.129.03",
               *boards).json  # fmt: skip
    version = plan["builds"][0]["version"]
    index.add_plan(plan)
    add_nvidia_stubs(index, plan, scratch)
    wheels = scratch / "wheels"
    pip = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "-q",
        "--only-binary",
        ":all:",
        "-d",
        wheels,
        f"jax=={version}",
    ]
    subprocess.run(pip, check=True, timeout=300)
    for file in wheels.iterdir():
        index.wheels[canonicalize_name(file.name.split("-")[0])] = {file.name: file.read_bytes()}
    return version
