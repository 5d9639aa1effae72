"""The bill of materials: valid by CycloneDX's own schema, complete, and of what is really installed."""

import dataclasses
import json
import shutil

import export_locks as el
import pytest
from cyclonedx.model.bom import Bom
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from environment_facts import ok, refused
from made_env import jax_env
from packageurl import PackageURL
from rows import rows

from provision.environment.distributions import Distribution
from provision.export import bom
from provision.export.subject import InstalledPart


def bill(text):
    """The document, after the schema and CycloneDX's own model have accepted it."""
    wrong = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
    assert wrong is None, str(wrong)[:300]
    document = json.loads(text)
    parsed = Bom.from_json(document)
    assert len(parsed.components) == len(document["components"])
    refs = [c["bom-ref"] for c in document["components"]]
    assert len(set(refs)) == len(refs)
    known = {"environment", *refs}
    for row in document["dependencies"]:
        assert row["ref"] in known and set(row["dependsOn"]) <= known
    for part in document["components"]:
        if "purl" in part:
            assert PackageURL.from_string(part["purl"]).to_string() == part["purl"]
    return document


def parts(document):
    return {c["name"]: c for c in document["components"]}


def edges(document):
    names = {c["bom-ref"]: c["name"] for c in document["components"]} | {"environment": "environment"}
    return {names[d["ref"]]: {names[r] for r in d["dependsOn"]} for d in document["dependencies"]}


def test_a_lock_of_wheels_gives_each_package_with_its_hash_and_origin():
    made = bill(el.text("cyclonedx", env="/home/u/demo/.venv"))
    assert made["metadata"]["component"]["name"] == "demo"
    assert "serialNumber" not in made and "timestamp" not in made["metadata"]
    found = parts(made)
    assert set(found) == {p.name for p in el.PACKAGES}
    for package in el.PACKAGES:
        part = found[package.name]
        assert part["hashes"] == [{"alg": "SHA-256", "content": package.sha256}]
        purl = PackageURL.from_string(part["purl"])
        assert (purl.type, purl.name, purl.version) == ("pypi", package.name, package.version)
        assert part["externalReferences"] == [{"type": "distribution", "url": package.url}]
    assert PackageURL.from_string(found["torch"]["purl"]).qualifiers == {"repository_url": el.PYTORCH}
    assert "?" not in found["numpy"]["purl"]


def test_a_lock_of_wheels_says_that_it_does_not_hold_who_requires_what():
    made = bill(el.text("cyclonedx"))
    assert edges(made) == {"environment": {p.name for p in el.PACKAGES}}
    (unknown,) = made["compositions"]
    assert unknown["aggregate"] == "unknown"
    assert set(unknown["dependencies"]) == {c["bom-ref"] for c in made["components"]}


def test_commits_folders_sources_and_files_are_told_apart_and_no_path_is_named():
    text = el.text("cyclonedx", el.of(el.MIXED), env="/home/u/secret-place/.venv")
    found = parts(bill(text))
    assert PackageURL.from_string(found["thing"]["purl"]).qualifiers == {"vcs_url": el.COMMITTED.url}
    assert found["thing"]["externalReferences"] == [{"type": "vcs", "url": el.COMMITTED.url}]
    assert "hashes" not in found["thing"]
    assert "purl" not in found["mine"], "another project's release of that name is not this folder"
    assert found["local"]["hashes"][0]["content"] == el.LOCAL.sha256
    assert found["old"]["externalReferences"][0]["url"].endswith("old-0.9.tar.gz")
    assert "/srv/wheels" not in text and "/home/u" not in text


def test_conda_packages_carry_build_channel_and_platform_and_their_graph():
    made = bill(el.text("cyclonedx", el.of_conda()))
    found = parts(made)
    purl = PackageURL.from_string(found["pytorch"]["purl"])
    assert (purl.type, purl.version) == ("conda", "2.7.1")
    assert purl.qualifiers == {
        "build": "cuda129_py312_h1_300", "channel": "conda-forge", "subdir": "linux-64", "type": "conda",
    }  # fmt: skip
    assert {h["alg"] for h in found["pytorch"]["hashes"]} == {"MD5", "SHA-256"}
    assert edges(made)["pytorch"] == {"python"} and "pytorch" in edges(made)["environment"]
    assert PackageURL.from_string(found["einops"]["purl"]).type == "pypi"


def test_names_of_a_hostile_lock_stay_data():
    odd = dataclasses.replace(
        el.PACKAGES[3], version="1!2.0+a~b", url='https://files.example/x"\\%zz[<>{}|^`].whl'
    )
    twice = dataclasses.replace(el.PACKAGES[4], url="https://files.example/other.whl")
    made = bill(el.text("cyclonedx", el.of((*el.PACKAGES[:3], odd, el.PACKAGES[4], twice))))
    assert len(made["components"]) == 6


def test_the_bill_has_the_graph_and_licences_of_installed_packages():
    installed = tuple(
        InstalledPart(
            name=p.name, version=p.version, state="locked",
            requires=("filelock", "numpy") if p.name == "torch" else (),
            license_expression="MIT" if p.name == "filelock" else None,
            license_names=("BSD License",) if p.name == "numpy" else (),
        )
        for p in el.PACKAGES
    )  # fmt: skip
    made = bill(el.text("cyclonedx", installed=installed))
    assert edges(made)["torch"] == {"filelock", "numpy"}
    assert edges(made)["environment"] == {"torch", "nvidia-cudnn-cu12", "pip"}
    assert "compositions" not in made
    assert parts(made)["filelock"]["licenses"] == [{"expression": "MIT"}]
    assert parts(made)["numpy"]["licenses"] == [{"license": {"name": "BSD License"}}]


def test_the_same_lock_gives_the_same_bytes(gpuenv):
    el.written(gpuenv.work / "pylock.toml", el.of(el.MIXED))
    one = gpuenv("export", "--format", "cyclonedx")
    assert one.code == 0 and one.err == ""
    assert gpuenv("export", "--format", "cyclonedx", "-o", "bill.cdx.json").code == 0
    assert (gpuenv.work / "bill.cdx.json").read_text() == one.out
    assert bill(one.out)["metadata"]["component"]["name"] == "work"
    assert "Did you mean cyclonedx?" in refused(gpuenv("export", "--format", "sbom"), 2).err


@pytest.fixture
def built(gpuenv, index):
    """.venv of jax for the CPU from tiny wheels that say what they require and how they are licensed."""
    jax_env(gpuenv, index)
    index.add("einops", "0.8.1", ("filelock>=3 ; python_version >= '3'", "absent ; python_version < '3'"))
    index.add("filelock", "3.20.0")
    ok(gpuenv("add", "einops", "--no-verify"))
    return gpuenv.work / ".venv"


def test_an_environments_bill_is_of_what_is_installed(gpuenv, built, index):
    ran = gpuenv("export", "--format", "cyclonedx")
    assert ran.code == 0 and ran.err == ""
    made = bill(ran.out)
    assert edges(made)["einops"] == {"filelock"}
    assert {"name": "gpuenv:contents", "value": "installed"} in made["metadata"]["properties"]
    assert all("hashes" in c for c in made["components"])

    site = next(built.glob("lib/python3*/site-packages"))
    shutil.rmtree(site / "filelock-3.20.0.dist-info")  # removed
    info = next(site.glob("einops-*.dist-info"))
    (info / "METADATA").write_text(
        (info / "METADATA").read_text().rstrip() + "\nLicense-Expression: mit\nRequires-Dist: ((\n\nbody\n"
    )
    info.rename(site / "einops-0.9.0.dist-info")  # replaced by another version
    (site / "extra-1.0.dist-info").mkdir()
    (site / "extra-1.0.dist-info" / "METADATA").write_text(
        "Name: extra\nLicense-Expression:\nClassifier: License :: OSI Approved :: BSD License\n"
        "Requires-Dist: einops[all]\n"
    )
    ran = ok(gpuenv("export", "--format", "cyclonedx"))
    changed = parts(bill(ran.out))
    assert "filelock" not in changed
    assert changed["einops"]["version"] == "0.9.0" and "hashes" not in changed["einops"]
    assert changed["einops"]["licenses"] == [{"expression": "MIT"}]
    assert changed["extra"]["properties"] == [{"name": "gpuenv:state", "value": "added"}]
    assert changed["extra"]["licenses"] == [{"license": {"name": "BSD License"}}]
    assert edges(json.loads(ran.out))["extra"] == {"einops"}
    said = " ".join(ran.err.split())
    assert "einops 0.9.0" in said and "extra 1.0" in said and "not installed: filelock" in said
    of_lock = gpuenv("export", "--format", "cyclonedx", "--lock", built / ".gpuenv" / "pylock.toml")
    assert "filelock" in parts(bill(of_lock.out)), of_lock.err


def test_a_conda_package_of_a_folder_is_named_without_its_path():
    here = el.conda("pytorch", "2.7.1", "cuda129_py312_h1_300", channel="file:///home/jane/channel")
    text = el.text("cyclonedx", el.of_conda((here,)))
    (part,) = bill(text)["components"]
    assert part["properties"] == [
        {"name": "gpuenv:file", "value": "pytorch-2.7.1-cuda129_py312_h1_300.conda"}
    ]
    assert "externalReferences" not in part and "jane" not in text


@rows(
    ("version", "locked", "state"),
    [("1.0", None, "added"), ("1.0", "1", "locked"), ("1.0", "2.0", "replaced"), ("2004d", "2004d", "locked"), ("2004d", "1.0", "replaced")],
)  # fmt: skip
def test_an_installed_version_is_compared_with_the_lock_whatever_its_form(version, locked, state):
    assert bom._state(version, locked) == state


def test_a_licence_that_is_no_expression_is_left_out(tmp_path):
    for said, licence in (("mit or apache-2.0", "MIT OR Apache-2.0"), ("see the file", None)):
        (tmp_path / "METADATA").write_text(f"Name: a\nLicense-Expression: {said}\n")
        assert bom._expression(Distribution("a", "1", tmp_path)) == licence
