"""A machine with a network that makes a bundle for four hosts, and a host without one that uses it."""

import shutil

import pytest
from bundle_site import HERE, add_own
from command import Command
from loopback import Index, serving

from driver_stub import build, scenario

ASK = ("-f", "torch", "--index", "pypi", "--python", HERE)
HOSTS = {"h1": "580-h200", "h2": "580-h200", "k1": "470-k80", "c1": None}
LOCKS = ["pylock.sm90-r580.toml", "pylock.sm37-r470.toml", "pylock.cpu.toml"]


@pytest.fixture(scope="module")
def libraries(tmp_path_factory):
    return build(tmp_path_factory.mktemp("driver"))


def on(command, libraries, name):
    """The environment variables of a machine with the driver `name`, None for a machine without one."""
    return {**command.env, **(scenario(libraries, name) if name else {})}


class Site:
    """The machine with a network, and what each host detected."""

    def __init__(self, folder, index, libraries):
        self.gpuenv, self.index = Command(folder), index
        self.gpuenv.env |= {
            "PIP_INDEX_URL": index.url, "UV_PYTHON_INSTALL_MIRROR": "file:///nowhere",
        }  # fmt: skip
        add_own(index)
        plain = dict(self.gpuenv.env)
        (self.gpuenv.work / "hosts").mkdir()
        for host, driver in HOSTS.items():
            self.gpuenv.env = on(self.gpuenv, libraries, driver)
            found = self.gpuenv("detect", "--json")
            assert found.code == 0, found.err
            (self.gpuenv.work / "hosts" / f"{host}.json").write_text(found.out)
            self.gpuenv.env = dict(plain)
        self.fleet = self.gpuenv("resolve", *ASK, "--target", "hosts", "--json").json
        for plan in self.fleet["plans"]:
            index.add_plan(plan["plan"])
        self.out = self.gpuenv.work / "out"

    def make(self, *more):
        return self.gpuenv("bundle", "out", *ASK, "--target", "hosts", *more)


@pytest.fixture
def site(tmp_path, index, libraries):
    return Site(tmp_path, index, libraries)


@pytest.fixture(scope="module")
def made(tmp_path_factory, libraries):
    """A site with its bundle."""
    with serving(Index()) as index:
        site = Site(tmp_path_factory.mktemp("site"), index, libraries)
        site.ran = site.make("--json")
        assert site.ran.code == 0, site.ran.err
        yield site


@pytest.fixture
def host(made, libraries, tmp_path):
    """A host without a network: `create` from a copy of the bundle, with the driver that is named."""
    command = Command(tmp_path / "host")
    command.bundle = shutil.copytree(made.out, tmp_path / "stick")
    plain = dict(command.env)

    def create(driver, *more):
        command.env = {**plain, **(scenario(libraries, driver) if driver else {})}
        return command("create", "--bundle", command.bundle, "--no-verify", "--json", *more)

    command.create = create
    return command
