"""The collection as a product: its archive, ansible-lint, the documentation of its plugins."""

import json
import tarfile

import pytest
from fleet_site import BIN, COLLECTION, ROOT
from programs import run_program

from provision import __version__


def test_the_archive_has_the_files_of_the_repository(site):
    with tarfile.open(site.archive) as archive:
        names = {m.name for m in archive.getmembers() if m.isfile()}
    files = (p for p in COLLECTION.rglob("*") if p.is_file() and p.suffix != ".pyc")
    here = {p.relative_to(COLLECTION).as_posix() for p in files} - {"galaxy.yml"}
    assert "plugins/modules/gpuenv_facts.py" in here and names == here | {"MANIFEST.json", "FILES.json"}
    assert site.archive.name == f"gpuenv-fleet-{__version__}.tar.gz"


@pytest.mark.slow
def test_the_production_profile_of_ansible_lint_passes(site):
    folder = site.root / "collections" / "ansible_collections" / "gpuenv" / "fleet"
    done = run_program(
        [BIN / "ansible-lint", "--offline", "--profile", "production", "--strict", "."],
        cwd=folder,
        env={**site.env, "NO_COLOR": "1"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Profile 'production' was required, and it passed" in done.stdout + done.stderr


def test_every_plugin_and_role_is_documented(site):
    modules = sorted(p.stem for p in (COLLECTION / "plugins" / "modules").glob("*.py"))
    found = json.loads(site.run("ansible-doc", "-j", *(f"gpuenv.fleet.{m}" for m in modules)))
    for name in modules:
        doc = found[f"gpuenv.fleet.{name}"]
        assert doc["doc"]["short_description"] and doc["examples"] and doc["return"], name
        assert doc["doc"]["options"]["secrets"]["description"], name
    filters = json.loads(
        site.run("ansible-doc", "-j", "-t", "filter", "gpuenv.fleet.rows", "gpuenv.fleet.machines")
    )
    assert all(f["doc"]["short_description"] for f in filters.values())


@pytest.mark.parametrize("role", ["install", "provision", "check"])
def test_the_documented_variables_of_a_role_are_those_that_it_has(site, role):
    import yaml

    folder = COLLECTION / "roles" / role
    defaults = yaml.safe_load((folder / "defaults" / "main.yml").read_text())
    spec = yaml.safe_load((folder / "meta" / "argument_specs.yml").read_text())
    assert set(defaults) == set(spec["argument_specs"]["main"]["options"])


def test_the_wheel_of_gpuenv_has_nothing_of_it():
    import tomllib

    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]
    assert build["wheel"]["packages"] == ["provision", "gpuenv"]
    assert not [path for path in build["sdist"]["include"] if "ansible" in path]
