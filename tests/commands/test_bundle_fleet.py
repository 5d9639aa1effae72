"""`bundle` for several targets: one folder for all plans of a fleet, and `create --bundle` on its hosts."""
# ruff: noqa: F811  # fixtures are imported by their name

import hashlib
import json
import re
import shlex
import shutil
import signal

import pytest
import tomllib
from bundle_fleet_site import ASK, LOCKS, host, libraries, made, site  # noqa: F401  # fixtures
from bundle_site import HERE
from doc_pages import texts
from environment_facts import ok, refused
from test_bundle import end_when_one_file_lacks


def manifest(folder):
    return json.loads((folder / "gpuenv-bundle.json").read_text())


def names_in(lock):
    """The wheels of a lock file."""
    data = tomllib.loads(lock.read_text())
    return {wheel["name"] for package in data["packages"] for wheel in package["wheels"]}


def test_each_plan_has_its_lock_and_each_wheel_is_there_once(made):
    document = made.ran.json
    assert document["schema"] == "gpuenv.bundle/1" and document["complete"]
    assert [p["lock"] for p in document["plans"]] == LOCKS and document["lock"] == LOCKS[0]
    hosts = [[h for c in p["classes"] for h in c["hosts"]] for p in document["plans"]]
    assert hosts == [["h1", "h2"], ["k1"], ["c1"]]
    assert [p["device"] for p in document["plans"]] == ["cuda", "cuda", "cpu"] and document["unserved"] == []
    wheels = [names_in(made.out / name) for name in LOCKS]
    there = sorted(p.name for p in (made.out / "wheels").iterdir())
    assert set(there) == set.union(*wheels) and len(there) == len(set(there))
    assert set.intersection(*wheels), "pip at least is in every lock"
    assert all(wheels[0] - other for other in wheels[1:])
    for file in document["files"]:
        data = (made.out / file["path"]).read_bytes()
        assert (len(data), hashlib.sha256(data).hexdigest()) == (file["size"], file["sha256"])
    assert document == manifest(made.out)


def test_a_shared_wheel_is_fetched_once(made):
    fetched = {path: count for path, count in made.index.downloads().items() if path.endswith(".whl")}
    assert fetched.pop("/files/pip/pip-26.0-py3-none-any.whl") == 2, (
        "one for gpuenv, one for the environments"
    )
    assert fetched and set(fetched.values()) == {1}


def test_the_readme_says_what_each_class_gets(made):
    text = (made.out / "README.txt").read_text()
    assert text.startswith("For 4 machines without a network.")
    for plan, fleet in zip(manifest(made.out)["plans"], made.fleet["plans"], strict=True):
        (build,) = fleet["plan"]["builds"]
        row = next(x for x in text.splitlines() if x.startswith(plan["lock"]))
        assert f"torch {build['version']}" in row and f"for {plan['device']}, Python {HERE}" in row
    assert re.search("class sm90-r580: linux-x86_64, glibc .*, driver 580", text) and "    h1, h2\n" in text
    assert text.count("gpuenv create ENV --bundle .\n") == 1 and f"the machine needs Python {HERE}" in text


@pytest.mark.parametrize(
    ("driver", "words", "lock"),
    [
        ("580-h200", "this machine is of host class sm90-r580: installing pylock.sm90-r580.toml", LOCKS[0]),
        ("470-k80", "this machine is of host class sm37-r470: installing pylock.sm37-r470.toml", LOCKS[1]),
        (None, "this machine is of host class cpu: installing pylock.cpu.toml", LOCKS[2]),
        ("535-v100-t4", "no host class of the bundle has machines like this one", LOCKS[1]),
    ],
)
def test_a_host_installs_the_lock_of_its_class(host, driver, words, lock):
    ran = ok(host.create(driver, "--dry-run"))
    said = " ".join(ran.err.split())
    assert words in said and lock in said
    wanted = {p["name"]: p["version"] for p in tomllib.loads((host.bundle / lock).read_text())["packages"]}
    assert dict(re.findall(r"^  (\S+) (\S+), ", ran.err, re.MULTILINE)) == wanted


def test_a_host_that_no_class_fits_is_refused_with_the_classes(host):
    data = manifest(host.bundle)
    data["plans"] = [p for p in data["plans"] if p["lock"] != LOCKS[1]]
    (host.bundle / "gpuenv-bundle.json").write_text(json.dumps(data))
    ran = host.create("470-k80")
    error = ran.json["error"]
    assert ran.code == 6 and "no lock of the bundle" in error["message"]
    assert "driver 470" in error["message"] and "(3.7)" in error["message"]
    assert f"sm90-r580 ({LOCKS[0]}): " in error["message"]
    assert f"cpu ({LOCKS[2]}): for cpu, but this machine requires cuda" in error["message"]
    assert "gpuenv detect --json" in error["hint"] and not list(host.work.iterdir())


def test_options_choose_among_the_plans(host):
    assert host.create("mismatch").code == host.create(None, "--device", "cuda").code == 4
    ran = ok(host.create("580-h200", "--device", "cpu"))
    assert "installing pylock.cpu.toml" in ran.err
    assert ok(host.create("580-h200", "--device", "cpu")).json["environment"]["changed"] is False
    ran = host.create("580-h200", "--python", "3.1", "--recreate")
    assert ran.code == 6 and f"for Python {HERE}, not 3.1" in ran.json["error"]["message"]
    assert host.create(None, "--framework", "jax", "--recreate").code == 6


def test_damage_is_found_on_each_host(host):
    wheel = next((host.bundle / "wheels").glob("torch-*.whl"))
    wheel.write_bytes(wheel.read_bytes()[:-1] + b"?")
    assert wheel.name in refused(host.create(None), 7).json["error"]["message"]


def test_targets_from_files_and_lines_and_the_page_are_one_fleet(made, tmp_path):
    (page,) = texts(
        "docs/how-to/air-gapped.md", "test_targets_from_files_and_lines_and_the_page_are_one_fleet"
    )
    assert shlex.split(page) == ["gpuenv", "bundle", "stick", "--framework", "torch", "--target", "hosts/"]
    (tmp_path / "hosts").mkdir()
    for name in ("h1", "k1"):
        shutil.copy(made.gpuenv.work / "hosts" / f"{name}.json", tmp_path / "hosts")
    lines = "".join(
        json.dumps({"host": name, **json.loads((made.gpuenv.work / "hosts" / f"{name}.json").read_text())})
        + "\n"
        for name in ("h1", "k1")
    )
    ask = ("bundle", tmp_path / "out", *ASK, "--dry-run", "--json")
    piped = ok(made.gpuenv(*ask, "--target", "-", stdin=lines))
    files = [w for name in ("h1", "k1") for w in ("--target", f"hosts/{name}.json")]
    named = made.gpuenv(*ask, *files)
    assert named.code == 0 and named.json["writes"] == piped.json["writes"] != []
    folder = made.gpuenv(*ask, "--target", tmp_path / "hosts")
    assert folder.json["writes"] == named.json["writes"]
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--driver", "535.129.03"], "--driver describes one machine, but --target names several"),
        (["--lock", "pylock.toml"], "--lock is the lock of one target, and --target names several"),
        (["--manager", "conda"], "several targets are supported only with --manager venv"),
    ],
)
def test_options_of_one_machine_are_refused(made, tmp_path, words, said):
    ran = made.gpuenv("bundle", tmp_path / "new", *ASK, "--target", "hosts", *words)
    assert ran.code == 2 and said in ran.err and not (tmp_path / "new").exists()


def test_hosts_without_a_build_are_named_and_the_others_served(site):
    machine = json.loads((site.gpuenv.work / "hosts" / "h1.json").read_text())
    machine["target"] |= {"driver": "304.137", "gpus": [{"capability": "2.0", "name": "Tesla M2090"}]}
    (site.gpuenv.work / "hosts" / "x1.json").write_text(json.dumps(machine))
    ran = refused(site.make("--json"), 5)
    (missing,) = ran.json["unserved"]
    assert missing["classes"] == ["sm20-r304"] and len(ran.json["plans"]) == 3
    assert "no plan for sm20-r304" in ran.err
    assert "Nothing for sm20-r304: " in (site.out / "README.txt").read_text()
    for name in ("h1", "h2", "k1", "c1"):
        (site.gpuenv.work / "hosts" / f"{name}.json").unlink()
    ran = site.gpuenv("bundle", "none", *ASK, "--target", "hosts", "--json")
    assert ran.code == 5 and ran.json["schema"] == "gpuenv.fleet/1"
    assert not (site.gpuenv.work / "none").exists()


def test_locks_and_the_project_of_a_folder_come_along(site, tmp_path):
    """`lock` and `bundle` give the same versions: a lock that is there stays where it can. A folder is one wheel."""
    folder = tmp_path / "mine"
    (folder / "mine").mkdir(parents=True)
    (folder / "mine" / "__init__.py").write_text("")
    (folder / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
        '[project]\nname = "mine"\nversion = "1.0"\n'
    )
    (folder / "backend.py").write_text(BACKEND)
    ok(site.gpuenv("lock", *ASK, "--target", "hosts", "--project", folder))
    before = {name: (site.gpuenv.work / name).read_bytes() for name in LOCKS}
    site.index.add("pip", "99.0")
    ran = ok(site.make("--json", "--project", folder))
    assert {name: (site.gpuenv.work / name).read_bytes() for name in LOCKS} == before
    for name in LOCKS:
        versions = [
            {
                p["name"]: p["version"]
                for p in tomllib.loads((place / name).read_text())["packages"]
                if "version" in p
            }
            for place in (site.gpuenv.work, site.out)
        ]
        assert versions[1] == versions[0] | {"mine": "1.0"} and versions[0]["pip"] == "26.0"
        assert "mine-1.0-py3-none-any.whl" in names_in(site.out / name)
    assert [p.name for p in (site.out / "wheels").glob("mine-*")] == ["mine-1.0-py3-none-any.whl"]
    assert len([n for n in ran.json["notes"] if "contains mine as a wheel" in n]) == 1


BACKEND = """
import zipfile
def get_requires_for_build_wheel(config_settings=None): return []
def build_wheel(folder, config_settings=None, metadata_directory=None):
    name = "mine-1.0-py3-none-any.whl"
    with zipfile.ZipFile(f"{folder}/{name}", "w") as wheel:
        wheel.writestr("mine/__init__.py", "")
        wheel.writestr("mine-1.0.dist-info/METADATA", "Metadata-Version: 2.1\\nName: mine\\nVersion: 1.0\\n")
        wheel.writestr("mine-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\\nGenerator: x\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr("mine-1.0.dist-info/RECORD", "")
    return name
"""


# --- again, and interrupted ----------------------------------------------------------------------


@pytest.mark.slow  # test_bundle.py continues a killed one
def test_a_killed_bundle_is_continued_with_its_locks_and_another_fleet_replaces_it(site):
    torch = next(name for name in site.index.wheels["torch"])
    end_when_one_file_lacks(site, torch, signal.SIGKILL, *ASK, "--target", "hosts")
    assert [p["lock"] for p in manifest(site.out)["plans"]] == LOCKS
    before = site.index.downloads()
    site.index.add("pip", "99.0")  # a fresh lock would take it
    ran = site.make("--json")
    assert ran.code == 0 and "continuing with the locks of" in ran.err, ran.err
    again = {p for p, n in site.index.downloads().items() if n > before[p] > 0 and not p.endswith(torch)}
    assert not again
    assert ran.json["complete"] and not (site.out / "wheels" / "pip-99.0-py3-none-any.whl").exists()
    for name in ("k1", "c1"):
        (site.gpuenv.work / "hosts" / f"{name}.json").unlink()
    ran = ok(site.make("--json"))
    assert [p["lock"] for p in ran.json["plans"]] == LOCKS[:1]
    there = {p.relative_to(site.out).as_posix() for p in site.out.rglob("*") if p.is_file()}
    assert there == {f["path"] for f in ran.json["files"]} | {"gpuenv-bundle.json"}
    assert not any((site.out / name).exists() for name in LOCKS[1:])
    (site.out / LOCKS[0]).write_text("mine\n")
    assert f"{LOCKS[0]} was edited" in " ".join(refused(site.make(), 2).err.split())
