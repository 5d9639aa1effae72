"""Without a network, named folders and bundles are all there is: no cached answer of an index stands over them."""
# ruff: noqa: F811  # fixtures are imported by their name

import shutil

import pytest
from broken_cache import damage
from bundle_site import Site, bundle, made, target  # noqa: F401  # fixtures
from environment_facts import HERE, ok
from loopback import wheel_bytes
from rows import sampled

pytestmark = pytest.mark.usefixtures("real_uv")

GPU = ("--driver", "580.65.06", "--gpu", "9.0")
TORCH = ("--framework", "torch", "--python", HERE, "--index", "pypi", *GPU)


def test_a_bundle_is_installed_whatever_the_cache_holds(made, target):
    made.index.forget()
    target.env["UV_DEFAULT_INDEX"] = made.index.url  # the one whose answers are in the cache

    def install(env):
        ran = ok(target.create(env))
        assert ran.json["environment"]["changed"] and not made.index.requests
        (module,) = (target.work / env).glob("lib/python3*/site-packages/torch/__init__.py")
        assert "broken" not in module.read_text()

    install("from-an-empty-cache")
    damage(target.folder / "uv-cache")  # also what an environment was installed from
    install("from-a-damaged-cache")
    shutil.rmtree(target.folder / "uv-cache")  # the index's answers, but not all wheels
    shutil.copytree(made.gpuenv.folder / "uv-cache", target.folder / "uv-cache", symlinks=True)
    install("from-a-used-cache")


@pytest.fixture
def folder(index, tmp_path):
    """A folder with a wheel of everything that the index has."""
    place = tmp_path / "wheels"
    place.mkdir()

    def fill():
        for file, data in (pair for files in index.wheels.values() for pair in files.items()):
            (place / file).write_bytes(data)
        return place

    return fill


@pytest.fixture
def go(gpuenv, index):
    index.add_plan(gpuenv("resolve", "--json", *TORCH).json)
    index.add("plain", "1.0")
    gpuenv.env["PIP_INDEX_URL"] = index.url

    def run(verb, *more):
        verify = ("--no-verify",) if verb == "create" else ()
        return gpuenv(verb, *TORCH, *verify, *more)

    return run


def use(gpuenv, index, go, state):
    """Bring the cache into a state: used, it holds the index's answers and a newer release that is no longer there."""
    if state == "empty":
        return
    index.add("plain", "2.0")
    assert go("lock", "--with", "plain").code == 0
    assert "2.0" in (gpuenv.work / "pylock.toml").read_text()
    (gpuenv.work / "pylock.toml").unlink()
    del index.wheels["plain"]["plain-2.0-py3-none-any.whl"]
    if state == "damaged":
        damage(gpuenv.folder / "uv-cache")


@pytest.mark.parametrize("state", sampled(["empty", "used", "damaged"], 2))
def test_offline_files_are_all_there_is_for_a_solve(gpuenv, index, go, folder, state):
    use(gpuenv, index, go, state)
    place = folder()
    index.requests.clear()
    ran = ok(go("lock", "--with", "plain", "--offline", "--find-links", place, "--json"))
    assert {p["name"]: p["version"] for p in ran.json["packages"]}["plain"] == "1.0"
    assert not index.requests


def test_offline_the_hashes_of_a_lock_decide_what_folders_and_the_cache_bring(gpuenv, index, go, folder):
    assert go("lock", "--with", "plain").code == 0  # the cache has answers of the index, and no wheel
    cache, place = gpuenv.folder / "uv-cache", folder()
    index.requests.clear()
    install = ("create", "--locked", "--recreate", "--offline", "--find-links")
    ok(go(*install, place))
    damage(cache)
    ok(go(*install, place))
    shutil.rmtree(cache)
    ok(go(*install, place))
    assert not index.requests
    shutil.rmtree(cache)
    ok(go("create", "online", "--locked"))  # an environment that remembers no folder
    ok(go("lock", "--with", "plain"))
    index.requests.clear()
    for name in ("torch", "pip"):  # a wheel of the cache and one of a folder are the same
        next(place.glob(f"{name}-*")).unlink()
    ok(go(*install, place))
    assert not index.requests
    shutil.rmtree(cache)
    shutil.rmtree(gpuenv.work / ".venv")
    ok(go("lock", "--with", "plain"))
    folder()
    (place / "plain-1.0-py3-none-any.whl").write_bytes(wheel_bytes("plain", "1.0", content="# another\n"))
    ran = go(*install, place)
    assert ran.code != 0 and "plain" in ran.err
    (place / "plain-1.0-py3-none-any.whl").unlink()
    ran = go(*install, place, "--json")
    assert ran.code == 7 and "plain==1.0 is not available offline" in ran.json["error"]["message"], ran.err
    assert not (gpuenv.work / ".venv").exists()
