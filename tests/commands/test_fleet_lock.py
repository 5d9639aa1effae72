"""`gpuenv lock` for several targets: one lock for each plan, which lists its hosts."""
# fixtures are imported by their names

import json
import re
from pathlib import Path

import pytest
import tomllib
from environment_facts import ok, refused
from test_fleet_command import A100, B200, machine

from provision.config.options import Choices
from provision.config.target import read_target
from provision.errors import LockError
from provision.lock.accept import check_lock
from provision.wheels import pylock

GUIDE = (Path(__file__).resolve().parents[2] / "docs/how-to/fleet.md").read_text(encoding="utf-8")
CHOICE = ("-f", "torch", "--index", "pypi", "--python", "3.11", "--target", "hosts")
NAMES = ["pylock.sm80-r470.toml", "pylock.sm100-r580.toml"]


@pytest.fixture
def fleet(gpuenv, index):
    """A folder with three hosts that need two plans, and an index with what both install."""
    folder = gpuenv.work / "hosts"
    folder.mkdir()
    for name, data in {
        "a1": machine(A100, "470.256.02"), "a2": machine(A100, "470.256.02"), "b": machine(B200, "580.95.05"),
    }.items():  # fmt: skip
        (folder / f"{name}.json").write_text(json.dumps(data))
    ran = gpuenv("resolve", *CHOICE, "--json")
    assert ran.code == 0 and len(ran.json["plans"]) == 2, ran.err
    for plan in ran.json["plans"]:
        index.add_plan(plan["plan"])
    gpuenv.env["PIP_INDEX_URL"] = index.url
    return ran.json


def test_each_plan_has_a_lock_with_its_hosts(gpuenv, fleet):
    ran = ok(gpuenv("lock", *CHOICE, "--json"))
    planned = ran.json["fleet"]["plans"]
    assert ran.json["schema"] == "gpuenv.fleet-locks/1" and planned == fleet["plans"]
    assert [(one["file"], one["plan"]) for one in ran.json["locks"]] == list(zip(NAMES, [0, 1], strict=True))
    for name, plan, hosts in zip(NAMES, fleet["plans"], (["a1", "a2"], ["b"]), strict=True):
        data = tomllib.loads((gpuenv.work / name).read_text())
        (kind,) = data["tool"]["gpuenv"]["classes"]
        assert kind["id"] == plan["classes"][0] and kind["hosts"] == hosts
        locked = {p["name"]: p["version"] for p in data["packages"]}
        assert locked["torch"] == plan["plan"]["builds"][0]["version"]
        read = pylock.read(gpuenv.work / name)
        assert [c.hosts for c in read.classes] == [tuple(hosts)]
        assert read.target.driver == kind["target"]["driver"]
    last = gpuenv("lock", *CHOICE).out.splitlines()[-1]
    assert last == f"gpuenv create --lock {NAMES[0]}  # on a1, a2; the other locks on theirs"


def test_the_fleet_has_the_plans_that_were_locked(gpuenv, fleet):
    """The PyTorch index does not answer, so that the builds of the default index are locked in place of its own."""
    gpuenv.env["GPUENV_INDEX_PYTORCH"] = "http://127.0.0.1:9/whl"
    ran = gpuenv("lock", *CHOICE[:2], *CHOICE[4:], "--json")
    assert ran.code == 0 and " ".join(ran.err.split()).count("continuing without this index") == 1, ran.err
    for one in ran.json["locks"]:
        assert ran.json["fleet"]["plans"][one["plan"]]["plan"]["builds"] == one["lock"]["plan"]["builds"]
    locked = {b["version"] for one in ran.json["locks"] for b in one["lock"]["plan"]["builds"]}
    held = [
        h["versions"]["torch"]
        for price in ran.json["fleet"]["prices"]
        if price["chosen"]
        for h in price["held"]
    ]
    assert locked.issuperset(held), "what hosts get is what is locked for them"


def test_a_lock_of_a_fleet_is_for_each_of_its_hosts_and_no_other(gpuenv, fleet):
    assert gpuenv("lock", *CHOICE).code == 0
    choices = Choices(cache_dir=gpuenv.folder / "cache")
    for name, own, other in ((NAMES[0], "a1", "b"), (NAMES[1], "b", "a1")):
        lock = pylock.read(gpuenv.work / name)
        check_lock(lock, choices, read_target(gpuenv.work / "hosts" / f"{own}.json"), None)
        with pytest.raises(LockError, match="does not fit this machine"):
            check_lock(lock, choices, read_target(gpuenv.work / "hosts" / f"{other}.json"), None)


def test_a_second_lock_writes_the_same_files(gpuenv, fleet):
    assert gpuenv("lock", *CHOICE).code == 0
    before = {name: (gpuenv.work / name).read_bytes() for name in NAMES}
    assert f"plan 1: {NAMES[0]}" in ok(gpuenv("lock", *CHOICE)).out
    assert {name: (gpuenv.work / name).read_bytes() for name in NAMES} == before


def test_a_file_that_gpuenv_did_not_write_stops_all_locks(gpuenv, fleet):
    (gpuenv.work / NAMES[1]).write_text("mine\n")
    ran = gpuenv("lock", *CHOICE)
    assert ran.code != 0 and NAMES[1] in ran.err and not (gpuenv.work / NAMES[0]).exists()


@pytest.mark.parametrize("words", [["--output", "x.toml"], ["--check"], ["--upgrade", "numpy"]])
def test_options_for_the_lock_of_one_target_are_refused(gpuenv, fleet, words):
    assert "is for the lock of one target" in refused(gpuenv("lock", *CHOICE, *words), 2).err


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('id = "sm80-r470"', 'id = "../../x"', "tool.gpuenv.classes[0].id: '../../x'"),
        ('id = "sm80-r470"', 'id = "sm80-r470"\nmore = 1', "tool.gpuenv.classes[0].more: unknown key"),
        (
            'device = "cuda"\nhosts',
            'device = "tpu"\nhosts',
            "tool.gpuenv.classes[0].device: 'tpu' is not one of",
        ),
    ],
)
def test_classes_in_a_lock_are_read_strictly(gpuenv, fleet, old, new, said):
    assert gpuenv("lock", *CHOICE).code == 0
    path = gpuenv.work / NAMES[0]
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(LockError) as refused:
        pylock.read(path)
    assert said in refused.value.message


def test_a_lock_without_classes_is_read_as_before(gpuenv, fleet):
    assert (
        gpuenv("lock", "-f", "torch", "--index", "pypi", "--python", "3.11", "--target", "hosts/b.json").code
        == 0
    )
    data = tomllib.loads((gpuenv.work / "pylock.toml").read_text())
    assert "classes" not in data["tool"]["gpuenv"]
    assert pylock.read(gpuenv.work / "pylock.toml").classes == ()


def test_a_lock_whose_plan_is_gone_is_named(gpuenv, fleet):
    assert gpuenv("lock", *CHOICE).code == 0
    (gpuenv.work / "pylock.mine.toml").write_text(
        (gpuenv.work / NAMES[1]).read_text().split("[[tool.gpuenv")[0]
    )
    (gpuenv.work / "hosts" / "b.json").unlink()
    ran = gpuenv("lock", *CHOICE)
    said = " ".join(ran.err.split())
    assert ran.code == 0 and re.search(rf"{NAMES[1]} [^.]*no current plan \(hosts b\)", said)
    assert NAMES[0] not in said.split("warning: ")[1] and "pylock.mine.toml" not in said
    assert (gpuenv.work / NAMES[1]).exists()
    (gpuenv.work / NAMES[1]).unlink()
    assert "no current plan" not in gpuenv("lock", *CHOICE).err


def test_no_host_goes_back_without_consent(gpuenv, fleet, index):
    """A host that can share only an old plan joins. With --plans 1 the others would go back."""
    (gpuenv.work / "hosts" / "a2.json").unlink()
    (gpuenv.work / "hosts" / "a1.json").write_text(json.dumps(machine(A100, "580.95.05")))
    (gpuenv.work / "hosts" / "b.json").unlink()
    for words in ((), ("--plans", "fewest")):
        (plan,) = gpuenv("resolve", *CHOICE, *words, "--json").json["plans"]
        index.add_plan(plan["plan"])
    assert gpuenv("lock", *CHOICE).code == 0
    before = {p.name: p.read_bytes() for p in gpuenv.work.glob("pylock.*")}
    new = plan["plan"]["builds"][0]["version"]
    (gpuenv.work / "hosts" / "a2.json").write_text(json.dumps(machine(("7.0", "Tesla V100"), "470.256.02")))
    (plan,) = gpuenv("resolve", *CHOICE, "--plans", "fewest", "--json").json["plans"]
    index.add_plan(plan["plan"])
    old = plan["plan"]["builds"][0]["version"]
    hosts = [json.loads(f.read_text()) | {"host": f.stem} for f in sorted((gpuenv.work / "hosts").iterdir())]
    lines = "".join(json.dumps(host) + "\n" for host in hosts)  # as the role of Ansible gives them
    ran = gpuenv("lock", *CHOICE[:-1], "-", "--plans", "fewest", stdin=lines)
    said = " ".join(ran.err.split())
    assert ran.code == 6
    (name,) = before
    assert f"torch {new} ({name}) to {old} on 1 (a1)" in said
    assert "--allow-downgrade permits it" in said
    assert {p.name: p.read_bytes() for p in gpuenv.work.glob("pylock.*")} == before
    for plan in gpuenv("resolve", *CHOICE, "--json").json["plans"]:
        index.add_plan(plan["plan"])
    beside = gpuenv("lock", *CHOICE, "--json")  # the new host has a plan of its own
    assert beside.code == 0 and len(beside.json["locks"]) == 2, beside.err
    assert (gpuenv.work / name).read_bytes() == before[name]
    assert gpuenv("lock", *CHOICE, "--plans", "fewest", "--allow-downgrade").code == 0
    both = gpuenv("resolve", "--locks", ".", "--driver", "595")
    assert both.code == 6 and "a1 is in two locks, pylock." in " ".join(both.err.split())
    assert "Remove a lock" in refused(gpuenv("lock", *CHOICE, "--plans", "fewest"), 6).err
    (gpuenv.work / name).unlink()
    ok(gpuenv("lock", *CHOICE, "--plans", "fewest"))


def test_the_locks_that_work_with_another_driver_are_told_before_the_change(gpuenv, fleet):
    assert gpuenv("lock", *CHOICE).code == 0
    ask = ("resolve", "--locks", ".", "--json")
    command = next(line for line in GUIDE.splitlines() if "--locks" in line)
    fine = gpuenv(*command.split()[1:], "--json")
    assert fine.code == 0 and [p["hosts"] for p in fine.json["fleet"]["plans"]] == [2, 1], fine.err
    assert sorted(one["file"] for one in fine.json["locks"]) == sorted(NAMES)
    assert {c["target"]["driver"].split(".")[0] for c in fine.json["fleet"]["classes"]} == {"595"}
    back = gpuenv(*ask, "--driver", "470.256.02")
    assert back.code == 5 and [p["hosts"] for p in back.json["fleet"]["plans"]] == [2]
    (missing,) = back.json["fleet"]["unserved"]
    assert missing["classes"] == ["sm100-r580"]
    assert missing["reason"].startswith(f"{NAMES[1]}: the lock's torch ")
    assert "the driver is 470.256.02" in missing["reason"]
    words = gpuenv("resolve", "--locks", ".", "--driver", "470.256.02").out
    assert f"no plan for sm100-r580 (1 host): {NAMES[1]}: " in " ".join(words.split())
    for more, said in (
        (("--gpu", "A100"), "takes it from the locks"),
        (("--target", "hosts"), "takes it from"),
    ):
        refused = gpuenv(*ask[:3], *more)
        assert refused.code == 2 and said in " ".join(refused.err.split())
    (gpuenv.work / "pylock.other.toml").write_text('lock-version = "1.0"\npackages = []\n')
    note, usable = gpuenv(*ask, "--driver", "595").json["fleet"]["notes"]
    assert "not checked: the lock pylock.other.toml" in note
    assert usable == f"still usable: {', '.join(NAMES)}"
    (gpuenv.work / "empty").mkdir()
    refused = gpuenv("resolve", "--locks", "empty", "--driver", "595")
    assert "has no lock of gpuenv" in " ".join(refused.err.split())
