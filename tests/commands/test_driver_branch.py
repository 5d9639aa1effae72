"""`--driver 580`: a branch, or the first parts of a version, means its first known release, wherever a driver is given."""

import json

import pytest
from environment_facts import ok


def plan(gpuenv, *words):
    ran = ok(gpuenv("resolve", "-f", "torch", "--platform", "linux-x86_64", "--json", *words))
    return ran.json


@pytest.mark.parametrize(
    ("given", "system", "read"),
    [
        ("580", "linux", "580.65.06"), ("580.65", "linux", "580.65.06"), ("525", "linux", "525.60.13"),
        ("570", "linux", "570.26"), ("528", "windows", "528.33"),
    ],
)  # fmt: skip
def test_a_branch_is_read_as_its_first_release(gpuenv, given, system, read):
    branch = plan(gpuenv, "--driver", given, "--driver-os", system, "--gpu", "T4")
    whole = plan(gpuenv, "--driver", read, "--driver-os", system, "--gpu", "T4")
    assert branch["builds"] == whole["builds"]
    assert branch["target"] == whole["target"]
    said = [note for note in branch["notes"] if note not in whole["notes"]]
    assert len(said) == 1 and given in said[0] and read in said[0]


def test_the_branch_of_cuda_13_gets_cuda_13(gpuenv):
    assert plan(gpuenv, "--driver", "580", "--gpu", "H100")["builds"][0]["cuda"].startswith("13")


@pytest.mark.parametrize("given", ["565", "580.95.05", "580.65.06", "570.26", "999"])
def test_a_whole_version_and_an_unknown_branch_stay(gpuenv, given):
    found = plan(gpuenv, "--driver", given, "--gpu", "T4")
    assert found["target"]["driver"] == given
    assert not any("is read as" in note for note in found["notes"])
    assert any("driver 999 is newer" in note for note in found["notes"]) == (given == "999")


def test_targets_of_the_project_and_of_a_fleet_are_read_alike(gpuenv):
    file = gpuenv.work / "gpuenv.yaml"
    file.write_text(
        "frameworks: [torch]\ntargets:\n  old: {driver: '525', gpus: [T4]}\n  new: {driver: '580', gpus: [T4]}\n"
    )
    one = plan(gpuenv, "--target", "new")
    assert one["target"]["driver"] == "580.65.06"
    folder = gpuenv.work / "hosts"
    folder.mkdir()
    for name, driver in {"a": "525", "b": "580"}.items():
        target = {"platform": "linux-x86_64", "glibc": "2.35", "driver": driver, "driver_os": "linux",
                  "gpus": [{"capability": "7.5", "name": "Tesla T4"}]}  # fmt: skip
        (folder / f"{name}.json").write_text(json.dumps(target))
    for words in (["--target", "old", "--target", "new"], ["--target", "hosts"]):
        ran = ok(gpuenv("resolve", "-f", "torch", "--json", *words))
        assert {c["target"]["driver"] for c in ran.json["classes"]} == {"525.60.13", "580.65.06"}
