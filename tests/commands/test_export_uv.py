"""`gpuenv export --format uv`, read by the real uv: `uv sync` takes the files of the lock."""

import sys

import export_locks as el
import pytest
import tomli_w
import tomllib
from command import Command
from environment_facts import HERE, installed, ok
from loopback import Index, serving
from programs import run_program
from uv import find_uv_bin

from provision import export
from provision.errors import UsageError

ASK = ("--framework", "torch", "--driver", "550.54.15", "--gpu", "7.5", "--python", HERE)


@pytest.fixture(scope="module")
def locked(tmp_path_factory):
    """gpuenv beside two indexes and a pylock.toml of torch for CUDA 12.6, with higher releases of everything."""
    gpuenv = Command(tmp_path_factory.mktemp("uv"))
    plan = gpuenv("resolve", *ASK, "--json").json
    version = plan["builds"][0]["requirements"][0].removeprefix("torch===")
    with serving(Index()) as main, serving(Index()) as other:
        main.add_plan(plan)
        main.add("extra", "2.0rc1", ("numpy",))
        main.add("numpy", "1.5")
        main.add("trainer", "1.0", ("torch",))
        other.prefix = "/whl/" + version.partition("+")[2]
        other.wheels["torch"] = main.wheels.pop("torch")
        gpuenv.env |= {
            "PIP_INDEX_URL": main.url,
            "GPUENV_INDEX_PYTORCH": other.url.replace("/simple", "/whl"),
        }
        ok(gpuenv("lock", *ASK, "--with", "extra==2.0rc1"))
        for name in [*main.wheels, "torch"]:
            main.add(name, "99.0")
        main.add("torch", version, content="# of the wrong index\n")
        other.add("numpy", "99.0")
        other.add("torch", "99.0")
        yield gpuenv


def uv(gpuenv, *words, folder):
    """The real uv, in a project's folder, without gpuenv's and pip's configuration."""
    env = {k: v for k, v in gpuenv.env.items() if not k.startswith(("PIP_", "GPUENV_"))}
    done = run_program(
        [find_uv_bin(), *words, "--python", sys.executable],
        cwd=folder,
        env=env | {"UV_NO_MANAGED_PYTHON": "1"},
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done


def of_gpuenv(gpuenv):
    rows = tomllib.loads((gpuenv.work / "pylock.toml").read_text(encoding="utf-8"))["packages"]
    return {
        r["name"]: (r["version"], f"sha256:{r['wheels'][0]['hashes']['sha256']}", r["index"])
        for r in rows
        if r["name"] != "pip"
    }


def of_uv(folder):
    rows = tomllib.loads((folder / "uv.lock").read_text(encoding="utf-8"))["package"]
    return {
        r["name"]: (r["version"], r["wheels"][0]["hash"], r["source"]["registry"])
        for r in rows
        if "registry" in r["source"]
    }


def test_uv_sync_takes_the_files_of_the_lock(locked):
    folder = locked.work / "whole"
    folder.mkdir()
    ran = ok(locked("export", "--format", "uv", "-o", locked.work / "other.toml"))
    assert "uv reads only a file named pyproject.toml" in ran.err and "uv sync" not in ran.out
    ran = ok(locked("export", "--format", "uv", "-o", folder / "pyproject.toml"))
    assert ran.out.splitlines()[-1] == f"uv sync --project {folder}"
    uv(locked, "sync", folder=folder)
    wanted = of_gpuenv(locked)
    assert of_uv(folder) == wanted
    assert installed(folder / ".venv") == {name: version for name, (version, _, _) in wanted.items()}
    assert "extra" in wanted and "+cu" in wanted["torch"][0]


@pytest.mark.parametrize("extra", ["old", "new"])
def test_a_machine_takes_the_files_of_its_own_lock(several, extra):
    """One pyproject.toml for two machines, as uv#12994 asks: extras that exclude each other, with indexes of their own."""
    folder = several.work / extra
    folder.mkdir()
    both = ("--lock", "pylock.old.toml", "--lock", "pylock.new.toml")
    ok(several("export", "--format", "uv", *both, "-o", folder / "pyproject.toml"))
    uv(several, "sync", "--extra", extra, folder=folder)
    text = (several.work / f"pylock.{extra}.toml").read_text(encoding="utf-8")
    wanted = {r["name"]: r["version"] for r in tomllib.loads(text)["packages"] if r["name"] != "pip"}
    assert installed(folder / ".venv") == wanted
    refused = several("export", "--format", "requirements", *both)
    assert refused.code == 2 and "--format requirements exports one lock" in refused.err


@pytest.fixture(scope="module")
def several(tmp_path_factory):
    """gpuenv with the locks of a machine for CUDA 12.6 and one for CUDA 13.2, whose torch is on the main index."""
    gpuenv = Command(tmp_path_factory.mktemp("machines"))
    new = ("--framework", "torch", "--driver", "580.95.05", "--gpu", "H100", "--python", HERE)
    with serving(Index()) as main, serving(Index()) as other:
        for words in (ASK, new):
            main.add_plan(gpuenv("resolve", *words, "--json").json)
        other.prefix = "/whl/cu126"
        main.wheels["torch"], other.wheels["torch"] = (
            {n: d for n, d in main.wheels["torch"].items() if ("+cu" in n) == labelled}
            for labelled in (False, True)
        )
        gpuenv.env |= {
            "PIP_INDEX_URL": main.url,
            "GPUENV_INDEX_PYTORCH": other.url.replace("/simple", "/whl"),
        }
        for name, words in (("old", ASK), ("new", new)):
            ok(gpuenv("lock", *words, "-o", f"pylock.{name}.toml"))
        yield gpuenv


def project(gpuenv, name, dependencies, keys):
    """The folder of a project with dependencies of its own and keys of an export's [tool.uv]."""
    folder = gpuenv.work / name
    folder.mkdir()
    tables = tomllib.loads(gpuenv("export", "--format", "uv").out)["tool"]["uv"]
    mine = {"name": "mine", "version": "1", "requires-python": f"=={HERE}.*", "dependencies": dependencies}
    text = tomli_w.dumps({"project": mine, "tool": {"uv": {k: tables[k] for k in keys or tables}}})
    (folder / "pyproject.toml").write_text(text, encoding="utf-8")
    return folder


@pytest.mark.parametrize("dependency", ["torch", "trainer==1.0"])
def test_another_project_with_the_exported_tables_gets_the_locked_files(locked, dependency):
    """It requires one package: what that requires comes in the locked releases from the locked indexes."""
    folder = project(locked, dependency.replace("=", "-"), [dependency], ())
    uv(locked, "lock", folder=folder)
    wanted, got = of_gpuenv(locked), of_uv(folder)
    assert {n: v for n, v in got.items() if n != "trainer"} == {n: wanted[n] for n in got if n != "trainer"}
    assert {"torch", "nvidia-cudnn-cu12"} <= set(got) and "extra" not in got


def test_uv_takes_other_files_without_the_exported_tables(locked):
    """What the test above would see if the tables held nothing."""
    folder = project(locked, "free", ["torch"], ("index",))
    uv(locked, "lock", folder=folder)
    assert of_uv(folder)["torch"][0] == "99.0"


def rendered(lock):
    return tomllib.loads(export.render("uv", export.Subject(lock=lock, lock_file="pylock.toml")))


def test_commits_folders_files_and_addresses_are_sources():
    beside = el.wheel("beside", "1.0", index=None)
    found = rendered(el.of((*el.MIXED, beside)))["tool"]["uv"]
    assert found["sources"] == {
        "beside": {"url": beside.url},
        "local": {"path": "/srv/wheels/local-1.0-py3-none-any.whl"},
        "mine": {"path": "/home/u/my project", "editable": True},
        "nvidia-cudnn-cu12": {"index": "pytorch-cu126"},
        "thing": {"git": "https://git.example/thing", "rev": el.COMMIT},
        "torch": {"index": "pytorch-cu126"},
    }
    assert [(i["url"], i.get("explicit", False), i.get("default", False)) for i in found["index"]] == [
        (el.MAIN, False, True), (el.PYTORCH, True, False),
    ]  # fmt: skip
    assert "torch==2.14.1+cu126" in found["constraint-dependencies"]
    assert not [c for c in found["constraint-dependencies"] if c.startswith(("mine", "thing", "pip="))]


def test_three_indexes_have_three_names():
    third = el.wheel("own", "1.0", index="https://third.example/simple")
    found = rendered(el.of((*el.PACKAGES, third)))["tool"]["uv"]
    assert len({i["name"] for i in found["index"]}) == 3
    assert found["sources"]["own"] == {
        "index": next(i["name"] for i in found["index"] if "third" in i["url"])
    }


def test_a_lock_of_conda_packages_is_refused():
    with pytest.raises(UsageError, match="uv supports only wheels") as refused:
        rendered(el.of(el.CONDA_PACKAGES, manager="conda"))
    assert refused.value.hint == "gpuenv export --format pixi"
