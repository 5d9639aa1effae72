"""Packages beside a framework for several targets: what they separate, and why."""

import json
import re

import pytest
import tomllib
from environment_facts import ok, refused
from loopback import wheel_bytes
from test_fleet_command import A100, B200, machine

V100 = ("7.0", "Tesla V100")
ASK = ("-f", "torch", "--index", "pypi", "--python", "3.11", "--target", "hosts", "--plans", "fewest")
ROWS = """\
- table: "satellites"
  source: "made up"
  read: "2026-01-01"
  kept: "by hand"
  rows:
  - {package: "kern", version: "2.0", platform: "linux-x86_64", form: "wheel", pythons: "3.10+", glibc: "2.17", kernels: "8.0 10.0"}
  - {package: "kern", version: "1.0", platform: "linux-x86_64", form: "wheel", pythons: "3.10+", glibc: "2.17", kernels: "7.0 8.0"}
"""
WITH = ("--with", "kern", "--profiles", "rows")
LOCKS = ["pylock.sm100-r580.toml", "pylock.sm70-r580.toml"]


@pytest.fixture
def fleet(gpuenv, index):
    """Four hosts that one torch serves, and an index with what each alone would get too."""
    folder = gpuenv.work / "hosts"
    folder.mkdir()
    for name, gpu in {"v1": V100, "a1": A100, "b1": B200, "b2": B200}.items():
        (folder / f"{name}.json").write_text(json.dumps(machine(gpu, "580.95.05")))
    (gpuenv.work / "rows").mkdir()
    (gpuenv.work / "rows" / "satellites.yaml").write_text(ROWS)
    for version in ("1.0", "2.0"):
        index.add("kern", version)
    gpuenv.env |= {"PIP_INDEX_URL": index.url, "GPUENV_INDEX_PYTORCH": "http://127.0.0.1:9/whl"}
    for plan in gpuenv("resolve", *ASK, "--json").json["plans"]:
        index.add_plan(plan["plan"])
    for capability in ("7.0", "8.0", "10.0"):
        add_plans(gpuenv, index, ("--driver", "580.95.05", "--gpu", capability))
    return gpuenv


def add_plans(gpuenv, index, *targets):
    for words in targets:
        plan = ok(gpuenv("resolve", *ASK[:-4], *words, "--json"))
        index.add_plan(plan.json)


def solved(ran):
    """How many sets of hosts a command solved, as -v says."""
    return int(re.search(r"packages: (\d+) sets of hosts solved", " ".join(ran.err.split()))[1])


def test_packages_split_a_plan_and_each_lock_has_the_release_for_its_hosts(fleet, index):
    alone = fleet("resolve", *ASK, "--json")
    assert len(alone.json["plans"]) == 1
    ran = ok(fleet("resolve", *ASK, *WITH, "--json", "-v"))
    plans = ran.json["plans"]
    assert [p["classes"] for p in plans] == [["sm100-r580", "sm80-r580"], ["sm70-r580"]]
    assert ran.json["exact"] and ran.json["at_least"] == 2
    (apart,) = ran.json["apart"]
    assert apart["classes"] == ["sm100-r580", "sm70-r580"] and apart["would_merge"] is None
    why = r"sm100-r580 \(2 hosts\) and sm70-r580 \(1 host\) .*: kern 2\.0 .*Tesla V100 \(7\.0\)"
    assert re.match(why, apart["reason"])
    held = [h["package"] for h in plans[1]["plan"]["held_back"]]
    assert "kern" in held and "kern" not in [h["package"] for h in plans[0]["plan"]["held_back"]]
    assert 3 <= solved(ran) <= 40
    words = " ".join(fleet("resolve", *ASK, *WITH).out.split())
    assert "4 hosts, 3 classes, 2 plans (this is the minimum)" in words
    assert "cannot share a lock: kern 2.0" in words
    for plan in plans:
        index.add_plan(plan["plan"])
    ran = ok(fleet("lock", *ASK, *WITH, "--json", "-v"))
    assert [one["file"] for one in ran.json["locks"]] == LOCKS
    found = []
    for name in LOCKS:
        data = tomllib.loads((fleet.work / name).read_text())
        found.append({p["name"]: p["version"] for p in data["packages"]}["kern"])
    assert found == ["2.0", "1.0"]
    assert 3 <= solved(ran) <= 40


def test_what_the_solver_alone_sees_splits_plans_too(fleet, index):
    """`top` says nothing of torch; what it requires does. `resolve` and `lock` agree."""
    (fleet.work / "hosts" / "a1.json").unlink()
    index.add("top", "1.0", ("mid==1.0",))
    index.add("top", "2.0", ("mid==2.0",))
    index.add("mid", "1.0", ("torch<2.7",))
    index.add("mid", "2.0", ("torch>=2.11",))
    old, new = ("--driver", "580.95.05", "--gpu", "7.0"), ("--driver", "580.95.05", "--gpu", "10.0")
    add_plans(fleet, index, old, new, (*old, *new[2:]))
    ran = fleet("resolve", "-f", "torch<2.7", *ASK[2:-4], *old, "--json")
    index.add_plan(ran.json)
    planned = fleet("resolve", *ASK, "--with", "top", "--json").json["plans"]
    ran = ok(fleet("lock", *ASK, "--with", "top", "--json"))
    assert [one["file"] for one in ran.json["locks"]] == LOCKS
    assert [p["plan"]["builds"] for p in planned] == [
        one["lock"]["plan"]["builds"] for one in ran.json["locks"]
    ]
    locked = [{p["name"]: p["version"] for p in one["lock"]["packages"]} for one in ran.json["locks"]]
    assert [(v["top"], v["mid"]) for v in locked] == [("2.0", "2.0"), ("1.0", "1.0")]
    (apart,) = ran.json["fleet"]["apart"]
    assert "cannot share a lock: " in apart["reason"] and apart["would_merge"] is None
    assert re.search(r"\b(top|mid)\b", apart["reason"])


def test_a_class_without_a_wheel_is_named_and_the_others_are_locked(fleet, index):
    index.add("deep", "1.0", ("tagged",))
    index.wheels["tagged"] = {
        "tagged-1.0-cp311-cp311-manylinux_2_35_x86_64.whl": wheel_bytes("tagged", "1.0")
    }
    file = fleet.work / "hosts" / "a1.json"
    file.write_text(file.read_text().replace('"glibc": "2.35"', '"glibc": "2.28"'))
    (fleet.work / "hosts" / "v1.json").unlink()
    for plan in fleet("resolve", *ASK, "--json").json["plans"]:
        index.add_plan(plan["plan"])
    add_plans(
        fleet, index, ("--driver", "580.95.05", "--gpu", "10.0"), ("--driver", "580.95.05", "--gpu", "8.0")
    )
    ran = refused(fleet("lock", *ASK, "--with", "deep", "--json"), 5)
    assert [one["file"] for one in ran.json["locks"]] == LOCKS[:1]
    (missing,) = ran.json["fleet"]["unserved"]
    assert missing["classes"] == ["sm80-r580"] and "tagged" in missing["reason"]


def test_packages_that_no_host_can_have_are_an_error_of_the_lock(fleet, index):
    for plan in fleet("resolve", *ASK, "--json").json["plans"]:
        index.add_plan(plan["plan"])
    ran = fleet("lock", *ASK, "--with", "nowhere-to-be-had", "--json")
    assert ran.code == 6 and "nowhere-to-be-had" in ran.json["error"]["message"]
    assert not list(fleet.work.glob("pylock.*"))


def test_a_named_package_that_would_lose_two_feature_releases_separates_hosts(fleet, index):
    """kern 4.0 and 3.0 have no kernels for the V100: with one plan for both the A100 would have 2.0."""
    (new, old) = ROWS.splitlines()[-2:]
    rows = [new.replace('"2.0"', f'"{version}"') for version in ("4.0", "3.0")]
    rows.append(old.replace('"1.0"', '"2.0"'))
    (fleet.work / "rows" / "satellites.yaml").write_text("\n".join([*ROWS.splitlines()[:-2], *rows, ""]))
    for version in ("3.0", "4.0"):
        index.add("kern", version)
    for host in ("b1", "b2"):
        (fleet.work / "hosts" / f"{host}.json").unlink()
    ask = ("-f", "torch<2.7", *ASK[2:-2], *WITH, "--json")
    index.add_plan(fleet("resolve", *ask[:-5], "--json").json["plans"][0]["plan"])
    fewest, default = (fleet("resolve", *ask, *more).json for more in (("--plans", "fewest"), ()))
    assert [p["classes"] for p in fewest["plans"]] == [["sm70-r580", "sm80-r580"]]
    assert sorted(p["classes"] for p in default["plans"]) == [["sm70-r580"], ["sm80-r580"]]
    assert default["exact"] and "kern would be 2.0, not 4.0" in default["apart"][0]["reason"]
    (held,) = fewest["prices"][0]["held"]
    torch = fewest["plans"][0]["plan"]["builds"][0]["version"]
    assert (held["by"], held["versions"]) == (["sm70-r580"], {"torch": torch, "kern": "2.0"})
    assert held["newer"] == {"torch": torch, "kern": "4.0"}
