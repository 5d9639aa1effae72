"""A conda environment in a bundle: packages as a channel, installed where there is no network."""

import json
import shutil
import sys

import conda_channel as cc
import pytest
from broken_cache import damage
from bundle_site import Site, add_own, files, no_network
from command import Command
from environment_facts import ok
from loopback import Index, serving

PASSWORD = "Basic bWU6aHVudGVyMg=="  # me:hunter2
ASK = ("--manager", "conda", "--framework", "jax", "--device", "cpu")


def _site(folder, index):
    """A site whose index has what gpuenv[conda] itself needs."""
    site = Site.__new__(Site)
    site.gpuenv, site.index = Command(folder), index
    site.out = site.gpuenv.work / "out"
    add_own(index)
    from packaging.requirements import Requirement

    from provision.bundle import wheels

    for text in wheels.own_requirements("conda"):
        need = Requirement(text)
        if need.name in ("conda-lock", "py-rattler"):
            index.add(need.name, next(s.version for s in need.specifier if s.operator == ">="))
    index.add("pip", "26.0")
    site.gpuenv.env |= {"PIP_INDEX_URL": index.url, "UV_PYTHON_INSTALL_MIRROR": "file:///nowhere",
                        "RATTLER_CACHE_DIR": str(site.gpuenv.folder / "rattler")}  # fmt: skip
    return site


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """(site, channel server, JSON of bundle): a channel that lets in who has the password, and is gone later."""
    with serving(Index()) as index, cc.serving(cc.small()) as server:
        site = _site(tmp_path_factory.mktemp("site"), index)
        server.needs = PASSWORD
        secret = server.url.replace("//", "//me:hunter2@")
        ran = ok(site.gpuenv("bundle", "out", *ASK, "--channel", secret, "--json"))
        assert "hunter2" not in ran.err + ran.out
        yield site, server, ran.json


def test_the_packages_of_a_bundle_form_a_channel_with_an_index(made):
    site, _server, told = made
    there = files(site.out)
    assert {"channel/conda-forge/linux-64/repodata.json", "channel/conda-forge/noarch/repodata.json",
            "channel/conda-forge/noarch/jax-0.7.0-pyh0_0.conda", "conda-lock.yml"} <= set(there)  # fmt: skip
    assert {f["path"] for f in told["files"]} == set(there) - {"gpuenv-bundle.json"}
    data = json.loads((site.out / "channel/conda-forge/noarch/repodata.json").read_text())
    assert "jax-0.7.0-pyh0_0.conda" in data["packages.conda"]
    assert "hunter2" not in "".join(
        p.read_text(errors="replace") for n, p in there.items() if not n.endswith((".conda", ".whl"))
    )
    assert "'gpuenv[conda]'" in (site.out / "README.txt").read_text()


def test_a_bundle_in_a_project_takes_the_projects_lock(tmp_path):
    folder = tmp_path / "conda-forge"
    cc.write_package(folder, "python", "3.11.5", "h0_0_cpython")

    def release(version):
        cc.write_package(folder, "jaxlib", version, f"cpu_{cc.TAG}h0_0", ["python 3.11.*"])
        cc.write_package(folder, "jax", version, "pyh0_0", [f"jaxlib {version}"])
        cc.index(folder)

    release("0.6.0")
    with serving(Index()) as index:
        gpuenv = _site(tmp_path, index).gpuenv
        (gpuenv.work / "gpuenv.yaml").write_text(
            f"manager: conda\nframeworks: [jax]\ndevice: cpu\nchannels: ['{folder}']\n"
        )
        ok(gpuenv("lock"))
        release("0.7.0")
        for argv, version in (("in-lock", "0.6.0"), ("anew", "0.7.0")):
            if argv == "anew":
                (gpuenv.work / "conda-lock.yml").unlink()
            ok(gpuenv("bundle", argv, "--json"))
            names = {p.name for p in (gpuenv.work / argv).rglob("jax-*.conda")}
            assert names == {f"jax-{version}-pyh0_0.conda"}, argv


def test_a_second_run_fetches_nothing(made):
    site, server, _ = made
    server.requests.clear()
    secret = server.url.replace("//", "//me:hunter2@")
    ok(site.gpuenv("bundle", "out", *ASK, "--channel", secret, "--json"))
    assert not [p for p in server.requests if p.endswith(".conda")]


@pytest.mark.parametrize("way", [pytest.param("mirror", marks=pytest.mark.slow), "auth file"])
def test_mirrors_and_passwords_of_the_rattler_configuration_are_used(made, tmp_path, way):
    site, server, _ = made
    gpuenv = Command(tmp_path)
    gpuenv.env |= {k: site.gpuenv.env[k] for k in ("PIP_INDEX_URL", "UV_PYTHON_INSTALL_MIRROR")}
    more = ()
    if way == "mirror":
        config = gpuenv.folder / "config" / "rattler" / "config.toml"
        config.parent.mkdir(parents=True)
        config.write_text(f'[mirrors]\n"https://conda.anaconda.org/conda-forge" = ["{server.url}"]\n')
        server.needs = None
    else:
        auth = tmp_path / "auth.json"
        known = {"127.0.0.1": {"BasicHTTP": {"username": "me", "password": "hunter2"}}}
        auth.write_text(json.dumps(known))
        gpuenv.env["RATTLER_AUTH_FILE"] = str(auth)
        server.needs, more = PASSWORD, ("--channel", server.url)
    ran = ok(gpuenv("bundle", "out", *ASK, *more, "--json"))
    lock = (gpuenv.work / "out" / "conda-lock.yml").read_text()
    assert ("https://conda.anaconda.org/conda-forge" if way == "mirror" else server.url) in lock
    assert "hunter2" not in lock + ran.err


@pytest.fixture
def target(made, tmp_path):
    site, _, _ = made
    gpuenv = Command(tmp_path / "target")
    gpuenv.bundle = shutil.copytree(site.out, tmp_path / "stick")
    return gpuenv


@pytest.mark.parametrize("state", ["used", "damaged"])
def test_a_conda_environment_is_made_from_a_bundle_whatever_the_cache_holds(made, target, state):
    """Neither package manager follows what its cache says of a server or an index; broken files are replaced."""
    site, server, _ = made
    for name in ("uv-cache", "rattler"):
        if (site.gpuenv.folder / name).exists():
            shutil.copytree(
                site.gpuenv.folder / name, target.folder / name, symlinks=True, dirs_exist_ok=True
            )
    target.env |= {"RATTLER_CACHE_DIR": str(target.folder / "rattler"), "UV_DEFAULT_INDEX": site.index.url}
    if state == "damaged":  # also what an environment was installed from
        ok(target("create", "before", "--bundle", target.bundle, "--no-verify"))
        assert list((target.folder / "rattler").iterdir())
        damage(target.folder / "uv-cache")
        damage(target.folder / "rattler")
    server.requests.clear()
    site.index.forget()
    ok(target("create", "--bundle", target.bundle, "--no-verify"))
    module = target.work / ".venv/lib/python3.11/site-packages/jaxlib/__init__.py"
    assert "broken" not in module.read_text()
    assert not server.requests and not site.index.requests


def test_a_conda_environment_is_made_from_a_bundle_without_a_network(target):
    if shutil.which("unshare") is None or no_network("true").returncode:
        pytest.skip("no network namespaces here")
    argv = [sys.executable, "-m", "provision", "create", "--bundle", target.bundle, "--no-verify", "--json"]
    done = no_network(*argv, env=target.env, cwd=target.work)
    assert done.returncode == 0, done.stderr + done.stdout
    env = target.work / ".venv"
    assert (env / "lib/python3.11/site-packages/jaxlib/__init__.py").exists()
    assert {json.loads(p.read_text())["name"] for p in (env / "conda-meta").glob("*.json")} == {
        "python",
        "jax",
        "jaxlib",
    }
    kept = json.loads((env / ".gpuenv" / "lock.json").read_text())
    assert not [p for p in kept["lock"]["packages"] if p["url"].startswith("file:")], (
        "its own lock names the channel"
    )
    told = [json.loads(p.read_text())["url"] for p in (env / "conda-meta").glob("*.json")]
    assert all(u.startswith("http://127.0.0.1") for u in told), "conda is told where packages come from"


def test_a_conda_package_that_changed_is_named(target):
    package = target.bundle / "channel/conda-forge/noarch/jax-0.7.0-pyh0_0.conda"
    package.write_bytes(cc.spoiled(package.read_bytes()))
    ran = target("create", "--bundle", target.bundle, "--no-verify", "--json")
    assert ran.code == 7 and "jax-0.7.0-pyh0_0.conda" in ran.json["error"]["message"]
    assert not (target.work / ".venv").exists()


def test_the_channel_of_a_bundle_serves_other_questions_too(target):
    channel = target.bundle / "channel" / "conda-forge"
    ran = target("resolve", *ASK, "--channel", channel, "--offline", "--json")
    assert ran.code == 0 and ran.json["builds"][0]["version"] == "0.7.0", ran.err
