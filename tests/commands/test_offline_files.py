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


CACHES = sampled(["empty", "used", "damaged"], 2)


def take_cache(site, gpuenv, state):
    """A uv cache in which the index's answers are, but not all wheels."""
    cache = gpuenv.folder / "uv-cache"
    if state == "used":
        shutil.copytree(site.gpuenv.folder / "uv-cache", cache, symlinks=True, dirs_exist_ok=True)


@pytest.mark.parametrize("state", CACHES)
def test_a_bundle_is_installed_whatever_the_cache_holds(made, target, state):
    if state == "damaged":  # also what an environment was installed from
        ran = ok(target.create("before"))
        damage(target.folder / "uv-cache")
    else:
        take_cache(made, target, state)
    made.index.requests.clear()
    target.env["UV_DEFAULT_INDEX"] = made.index.url  # the one whose answers are in the cache
    ran = ok(target.create())
    assert ran.json["environment"]["changed"] and not made.index.requests
    (module,) = (target.work / ".venv").glob("lib/python3*/site-packages/torch/__init__.py")
    assert "broken" not in module.read_text()


@pytest.fixture
def folder(index, tmp_path):
    """A folder with a wheel of everything that the index has."""
    place = tmp_path / "wheels"
    place.mkdir()

    def fill(but=()):
        for name, files in index.wheels.items():
            for file, data in files.items():
                if name not in but:
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


@pytest.mark.parametrize("state", CACHES)
def test_offline_files_are_all_there_is_for_a_solve(gpuenv, index, go, folder, state):
    use(gpuenv, index, go, state)
    place = folder()
    index.requests.clear()
    ran = ok(go("create", "--with", "plain", "--offline", "--find-links", place, "--json"))
    assert {p["name"]: p["version"] for p in ran.json["lock"]["packages"]}["plain"] == "1.0"
    assert not index.requests


@pytest.mark.parametrize("state", CACHES)
def test_offline_files_install_a_lock(gpuenv, index, go, folder, state):
    assert go("lock", "--with", "plain").code == 0  # the cache has answers of the index, and no wheel
    if state == "empty":
        shutil.rmtree(gpuenv.folder / "uv-cache")
    elif state == "damaged":
        damage(gpuenv.folder / "uv-cache")
    place = folder()
    index.requests.clear()
    ok(go("create", "--locked", "--offline", "--find-links", place))
    assert not index.requests


def test_offline_a_lock_takes_from_the_cache_what_no_folder_has(gpuenv, index, go, folder):
    """The hash decides: a wheel of the cache and one of a folder are the same."""
    assert go("create", "--with", "plain").code == 0
    assert go("lock", "--with", "plain").code == 0
    place = folder(but=("torch", "pip"))
    index.requests.clear()
    ok(go("create", "--locked", "--with", "plain", "--recreate", "--offline", "--find-links", place))
    assert not index.requests


def test_offline_a_file_with_another_hash_is_refused_and_a_missing_one_named(gpuenv, index, go, folder):
    assert go("lock", "--with", "plain").code == 0
    place = folder()
    (place / "plain-1.0-py3-none-any.whl").write_bytes(wheel_bytes("plain", "1.0", content="# another\n"))
    ran = go("create", "--locked", "--offline", "--find-links", place)
    assert ran.code != 0 and "plain" in ran.err
    (place / "plain-1.0-py3-none-any.whl").unlink()
    ran = go("create", "--locked", "--offline", "--find-links", place, "--json")
    assert ran.code == 7 and "plain==1.0 is not available offline" in ran.json["error"]["message"], ran.err
    assert not (gpuenv.work / ".venv").exists()
