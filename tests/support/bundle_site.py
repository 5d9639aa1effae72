"""A machine with a network that makes bundles, and one without that uses them."""

import importlib.metadata
import shutil
import subprocess

import pytest
from command import Command
from environment_facts import HERE, ok
from loopback import Index, serving, version_for, wheel_bytes
from packaging.requirements import Requirement

from provision.bundle import wheels

GPU = ("--driver", "580.65.06", "--gpu", "9.0")


ASK = ("--framework", "torch", "--python", HERE, "--index", "pypi", *GPU)


UV = importlib.metadata.version("uv")


def add_own(index):
    """What gpuenv itself requires: uv as it comes, one wheel a platform."""
    for text in wheels.own_requirements():
        need = Requirement(text)
        if need.name != "uv":
            index.add(need.name, version_for(need))
    tags = ("manylinux_2_17_x86_64.manylinux2014_x86_64", "manylinux_2_28_aarch64")
    index.wheels["uv"] = {
        f"uv-{UV}-py3-none-{t}.whl": wheel_bytes("uv", UV, content=f"# {t}\n") for t in tags
    }


class Site:
    """The machine with a network: `make` makes a bundle there."""

    def __init__(self, folder, index):
        self.gpuenv, self.index = Command(folder), index
        self.plan = self.gpuenv("resolve", "--json", *ASK).json
        nowhere = "file:///nowhere"
        self.gpuenv.env |= {
            "PIP_INDEX_URL": index.url, "UV_PYTHON_INSTALL_MIRROR": nowhere,
        }  # fmt: skip
        add_own(index)
        index.add_plan(self.plan)
        self.out = self.gpuenv.work / "out"

    def make(self, *more, ask=ASK):
        return self.gpuenv("bundle", "out", *ask, "--json", *more)

    def lock(self, *more):
        """A lock that this machine accepts, made from what was planned for another one."""
        ok(self.gpuenv("lock", *ASK, *more))
        path = self.gpuenv.work / (more[1] if more[:1] == ("--output",) else "pylock.toml")
        path.write_text(path.read_text().replace('device = "cuda"', 'device = "cpu"'))
        return path


@pytest.fixture
def site(tmp_path, index):
    return Site(tmp_path, index)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A site whose bundle is one that this machine accepts; `touched` is what else was written there."""
    with serving(Index()) as index:
        site = Site(tmp_path_factory.mktemp("site"), index)
        site.lock()
        before = outside_of_caches(site)
        ok(site.make(ask=()))
        site.touched = {p for p in outside_of_caches(site) - before if not p.is_relative_to(site.out)}
        yield site


def outside_of_caches(site):
    root = site.gpuenv.folder
    return {p for p in root.rglob("*") if "cache" not in p.relative_to(root).parts[0]}


@pytest.fixture
def bundle(made):
    return made.out


@pytest.fixture
def again(made, tmp_path):
    """The same site with a copy of its bundle, so that what is done to it stays here."""
    made.index.forget()
    copy = shutil.copytree(made.out, tmp_path / "a copy")

    def make(*more):
        return made.gpuenv("bundle", copy, *more)

    make.folder, make.index, make.gpuenv = copy, made.index, made.gpuenv
    return make


@pytest.fixture
def target(tmp_path, bundle):
    """The machine without a network: `create` from a copy of the bundle."""
    made = Command(tmp_path / "target")
    made.bundle = shutil.copytree(bundle, tmp_path / "stick")
    made.create = lambda *more: made("create", "--bundle", made.bundle, "--no-verify", "--json", *more)
    return made


def files(folder):
    return {p.relative_to(folder).as_posix(): p for p in folder.rglob("*") if p.is_file()}


def no_network(*argv, **more):
    argv = ["unshare", "-rn", *map(str, argv)]
    return subprocess.run(argv, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, **more)
