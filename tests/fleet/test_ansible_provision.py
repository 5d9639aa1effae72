"""The Ansible collection on six hosts with real ansible-core: the commands of the documentation, one after the other."""
# The fixtures are the runs. Each needs the one before it.

import json
import re
import shutil

import pytest
import yaml
from fleet_site import COMMANDS, DRIVERS, HERE, PAGE
from loopback import Index, serving

pytestmark = pytest.mark.slow  # test_ansible_roles.py decides the same with stand-ins on the hosts
VARS = yaml.safe_load(re.search(r"```yaml\n(.*?)```", PAGE, re.DOTALL)[1])["all"]["vars"]
PREVIEW, PROVISION, CHECK, LIMITED = COMMANDS[2:]
WITH_PLAN, WITHOUT = {"a100", "cpu", "h100", "mixed"}, {"broken", "k80"}


def snapshot(folder):
    """What is in a folder: inodes and times of change of all files, but of the verdict that `verify` keeps."""
    return {
        p: (s.st_ino, s.st_mtime_ns)
        for p in folder.rglob("*")
        if p.name != "verdict.json" and "__pycache__" not in p.parts and (s := p.lstat())
    }


@pytest.fixture(scope="module")
def site(site):
    """The controller with six hosts, before the first run."""
    with serving(Index()) as index:
        site.serve(index)
        for name, driver in DRIVERS.items():
            site.add_host(name, driver)
        yield site
    for folder in ("uv-cache", "hosts", "asked"):  # gigabytes, of which pytest would keep three runs
        shutil.rmtree(site.root / folder, ignore_errors=True)


@pytest.fixture(scope="module")
def preview(site):
    """The page's variables, with paths of this test and the framework that is small."""
    own = {"provision_folder", "provision_env", "install_source", "provision_frameworks"}
    assert set(VARS) == own
    ran = site.types(PREVIEW)
    ran.left = [p.name for p in site.folder.iterdir()], [h for h in WITH_PLAN if (site.env_of(h)).exists()]
    return ran


@pytest.fixture(scope="module")
def first(site):  # after the preview, which changes nothing
    """One host's index breaks off in the middle of a build, and one host more cannot be reached at all."""
    dying = Index()
    dying.wheels = site.index.wheels
    dying.faults = {f"{file}": "reset" for file in site.index.wheels["nvidia-cufft-cu12"]}
    site.inventory["gone"] = {"ansible_host": "127.0.0.1", "ansible_port": 9, "ansible_connection": "ssh"}
    with serving(dying) as server:
        site.variables("a100")["PIP_INDEX_URL"] = server.url
        site.variables("a100")["UV_CACHE_DIR"] = str(site.root / "hosts" / "a100" / "uv-cache")
        yield site.types(PROVISION)


@pytest.fixture(scope="module")
def second(site, first):
    del site.inventory["gone"]
    before = {h: snapshot(site.env_of(h)) for h in WITH_PLAN - {"a100"}}
    locks = site.locks()
    ran = site.types(PROVISION)
    ran.untouched = [h for h, files in before.items() if snapshot(site.env_of(h)) == files]
    ran.same_locks = site.locks() == locks and sorted(locks)
    return ran


@pytest.fixture(scope="module")
def checked(site, second):
    """Somebody has changed a library on one host."""
    library = site.library_of("h100")
    site.real_library = library.read_bytes()
    library.unlink()
    library.write_bytes(site.real_library + b"\0")
    return site.types(CHECK)


@pytest.fixture(scope="module")
def limited(site, checked):
    """Two hosts again: the one that was changed, and the one whose index works now and wants a password."""
    site.variables("a100").pop("PIP_INDEX_URL")
    secret = site.index.url.replace("//", "//me:hunter2-secret@")
    site.inventory["a100"]["provision_secrets"] = {"PIP_INDEX_URL": secret}
    site.locks_before = site.locks()
    return site.types(LIMITED.replace("node2", "a100,h100"), "-vvv", "--diff")


def test_check_mode_foresees_all_and_changes_nothing(preview):
    assert preview.code == 2  # two hosts have no plan
    table = "\n".join(preview.table)
    assert table.startswith("6 hosts: 4 planned, 2 no plan\n")
    assert set(re.findall(r"^(\S+) .* planned ", table, re.MULTILINE)) == WITH_PLAN
    assert set(re.findall(r"^(\S+) .* no plan ", table, re.MULTILINE)) == WITHOUT
    assert preview.left == (["hosts.yml"], []) and preview.document is None
    assert re.search(r"^\+jax \d", preview.out, re.MULTILINE) and "+++ after: pylock.cpu.toml" in preview.out


def test_each_host_has_the_plan_that_fits_it(site, first):
    rows = first.hosts
    assert {h: r["verdict"] for h, r in rows.items()} == {
        "cpu": "cpu", "h100": "works", "mixed": "works", "a100": "error", "k80": "no_plan", "broken": "no_plan",
        "gone": "unreachable",
    }  # fmt: skip
    assert {h: r["class"] for h, r in rows.items()} == {
        "cpu": "cpu", "h100": "sm90-r580", "mixed": "sm70-sm75-r550", "a100": "sm80-r535", "k80": "sm37-r470",
        "broken": None, "gone": None,
    }  # fmt: skip
    assert {rows[h]["plan"] for h in ("h100", "mixed", "a100")} == {f"jax {site.version} (CUDA 12.9)"}
    assert rows["cpu"]["plan"] == f"jax {site.version} (CPU)"
    assert sorted(h for h, r in rows.items() if r["ok"]) == ["cpu", "h100", "mixed"]
    assert rows["cpu"]["seconds"] > 0 and rows["k80"]["seconds"] is None
    for host in ("cpu", "h100", "mixed"):
        verdict = json.loads((site.env_of(host) / ".gpuenv" / "plan.json").read_text())
        assert verdict["device"] == ("cpu" if host == "cpu" else "cuda") and verdict["python"] == HERE
    assert "nvidia" in rows["a100"]["cause"] and not site.env_of("a100").exists()
    assert "libraries (580.65.06) and the loaded kernel module" in rows["broken"]["cause"]
    assert "jax" in rows["k80"]["cause"] and rows["k80"]["hint"]
    failed = {h for h, counts in first.recap.items() if counts["failed"]}
    assert failed == {"a100", "broken", "k80", "gone"}
    assert {"cpu", "h100", "mixed"} <= {*first.changed}


def test_a_second_run_changes_nothing(second):
    assert second.changed == []
    assert sorted(second.untouched) == ["cpu", "h100", "mixed"]
    assert second.same_locks == ["hosts.json", "pylock.cpu.toml", "pylock.sm80-r535.toml"]
    assert second.hosts["cpu"]["ok"] and second.hosts["h100"]["verdict"] == "works"


def test_check_finds_the_host_that_was_changed(checked, site):
    assert checked.code == 2 and checked.changed == []
    rows = checked.hosts
    assert sorted(h for h, r in rows.items() if r["ok"]) == ["cpu", "mixed"]
    assert rows["h100"]["verdict"] == "fails" and "libcudnn_ops.so.9" in rows["h100"]["cause"]
    assert "gpuenv repair" in rows["h100"]["hint"]
    assert {h: rows[h]["class"] for h in ("cpu", "h100", "mixed")} == {
        "cpu": "cpu", "h100": "sm90-r580", "mixed": "sm70-sm75-r550",
    }  # fmt: skip
    assert rows["cpu"]["plan"] == f"jax {site.version} (CPU)"
    assert rows["k80"]["verdict"] == "error" and str(site.env_of("k80")) in rows["k80"]["cause"]


def test_a_limited_run_keeps_the_locks_and_puts_back_what_was_changed(limited, site):
    assert limited.code == 0 and limited.changed == ["a100", "h100"], limited.out
    assert {h: r["verdict"] for h, r in limited.hosts.items()} == {"a100": "works", "h100": "works"}
    assert site.locks() == site.locks_before
    assert site.library_of("h100").read_bytes() == site.real_library
    assert re.search(r"^-changed: .*nvidia-cudnn-cu12 .*libcudnn_ops", limited.out, re.MULTILINE)
    assert re.search(r"^\+jax \d", limited.out, re.MULTILINE)


def test_no_log_has_a_secret(limited, site):
    """-vvv shows the arguments of modules and the commands that start them."""
    assert "module_args" in limited.out and "hunter2" not in limited.out + limited.err
    written = [p for p in site.folder.iterdir() if p.name != "hosts.yml"]
    assert len(written) == 5 and not [p for p in written if b"hunter2" in p.read_bytes()]
