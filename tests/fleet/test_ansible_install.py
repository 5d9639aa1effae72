"""The role `install` with a real pip: from a bundle and from a wheel of the controller, without a network."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from fleet_site import COLLECTION
from programs import run_program

from provision import __version__
from provision.bundle import wheels

ROOT = Path(__file__).resolve().parents[2]
NOWHERE = {"PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_CONFIG_FILE": "/dev/null"}
PLAY = [{
    "name": "Install", "hosts": "all", "gather_facts": False,
    "tasks": [
        {"name": "Install", "ansible.builtin.import_role": {"name": "gpuenv.fleet.install"}},
        {"name": "Detect", "gpuenv.fleet.gpuenv_facts": {"executable": "{{ install_prefix }}/bin/gpuenv"},
         "when": "not ansible_check_mode"},
    ],
}]  # fmt: skip


@pytest.fixture(scope="module")
def stick(tmp_path_factory):
    """The part of a bundle that installs gpuenv: its wheel, and real wheels of what it requires."""
    folder = tmp_path_factory.mktemp("stick") / "gpuenv"
    folder.mkdir()
    wheels.own_wheel(folder)
    pip = [sys.executable, "-m", "pip", "download", "-q", "--only-binary", ":all:", "-d", folder]
    subprocess.run(
        [*pip, "--require-hashes", "-r", ROOT / "release" / "requirements.txt"], check=True, timeout=300
    )
    return folder.parent


@pytest.fixture(scope="module")
def play(site, stick):
    """Runs the role on one host that has the bundle and one that gets a wheel, both without a network."""
    (site.folder / "install.yml").write_text(yaml.safe_dump(PLAY))
    wheel = next((stick / "gpuenv").glob("gpuenv-*.whl"))
    carried = site.folder / wheel.name
    shutil.copy(wheel, carried)
    links = ["--no-index", "--find-links", str(stick / "gpuenv")]
    kinds = {
        "bundled": {"install_bundle": str(stick)},
        "carried": {"install_source": str(carried), "install_arguments": links},
    }
    hosts = {
        name: {
            "ansible_connection": "local", "ansible_python_interpreter": sys.executable, "install_environment": NOWHERE,
            "install_python": sys.executable, "install_prefix": str(site.root / "opt" / name), **kind,
        }
        for name, kind in kinds.items()
    }  # fmt: skip

    def run(*words, **changed):
        for values in hosts.values():
            values.update(changed)
        return site.types("ansible-playbook install.yml -i hosts.yml", *words, hosts=hosts)

    return run


@pytest.fixture(scope="module")
def first(play, site):
    foreseen = play("--check", "--diff")
    left = (site.root / "opt").exists()
    ran = play()
    ran.foreseen, ran.left = foreseen, left
    return ran


@pytest.mark.slow
def test_check_mode_installs_nothing(first, site):
    assert first.foreseen.code == 0 and first.foreseen.changed == ["bundled", "carried"], first.foreseen.out
    assert "+sha256:" in first.foreseen.out and not first.left


@pytest.mark.slow
def test_gpuenv_is_installed_and_runs(first, site):
    assert first.code == 0 and first.changed == ["bundled", "carried"], first.out
    for name in ("bundled", "carried"):
        program = site.root / "opt" / name / "bin" / "gpuenv"
        said = run_program([program, "--version"], check=True).stdout
        assert said.split()[-1] == __version__
        named = run_program([program, "profiles", "list", "--json"], check=True)
        assert json.loads(named.stdout)["schema"] == "gpuenv.profiles/1"


@pytest.mark.slow
def test_a_second_run_changes_nothing(first, play):
    ran = play()
    assert ran.code == 0 and ran.changed == []


@pytest.mark.slow
def test_a_failed_installation_leaves_the_one_in_use(first, play, site):
    before = (site.root / "opt" / "carried").resolve()
    ran = play(install_python="/nowhere/python3")
    assert ran.code == 2 and {h: c["failed"] for h, c in ran.recap.items()} == {"bundled": 1, "carried": 1}
    assert "could not check /nowhere/python3" in ran.out
    assert (site.root / "opt" / "carried").resolve() == before and (before / "bin" / "gpuenv").exists()


def test_the_collection_and_gpuenv_have_one_version():
    assert yaml.safe_load((COLLECTION / "galaxy.yml").read_text())["version"] == __version__
