"""The roles in plays of one's own, on hosts that have no gpuenv: what a play does when nothing works."""

import json
import sys

import pytest
import yaml
from command import Command
from detected_drivers import detected_machine
from fleet_site import DRIVERS, packages_from
from loopback import Index, serving


@pytest.fixture
def play(site):
    """Runs a play with a role on two hosts without gpuenv."""

    def run(role, *options, **more):
        task = {"name": "Role", "ansible.builtin.import_role": {"name": f"gpuenv.fleet.{role}"}}
        plays = [{"name": "Play", "hosts": "all", "gather_facts": False, "tasks": [task], **more}]
        (site.folder / "own.yml").write_text(yaml.safe_dump(plays))
        hosts = {
            name: {
                "ansible_connection": "local", "ansible_python_interpreter": sys.executable,
                "provision_gpuenv": f"/nowhere/{name}/gpuenv",
            }
            for name in ("one", "two")
        }  # fmt: skip
        return site.types("ansible-playbook own.yml -i hosts.yml", *options, hosts=hosts)

    return run


@pytest.mark.parametrize("role", [pytest.param("provision", marks=pytest.mark.slow), "check"])
def test_a_play_on_which_every_host_fails_ends_with_the_table(play, role):
    ran = play(role)
    assert ran.code == 2 and {h: c["failed"] for h, c in ran.recap.items()} == {"one": 1, "two": 1}
    assert ran.table[0] == "2 hosts: 2 error"
    for name, row in ran.hosts.items():
        assert row["verdict"] == "error" and f"there is no program /nowhere/{name}/gpuenv" in row["cause"]
        assert row["hint"] == "run the role gpuenv.fleet.install first"
    assert set(ran.hosts) == {"one", "two"} and "2 of 2 not ok" in ran.page


def test_a_play_with_serial_is_refused_because_it_plans_a_part_of_the_hosts(play, site):
    ran = play("provision", serial=1)
    assert ran.code == 2 and "This play has serial" in ran.out
    assert not list(site.folder.glob("pylock.*"))


@pytest.mark.parametrize("role", ["provision", pytest.param("check", marks=pytest.mark.slow)])
def test_a_folder_that_is_missing_is_named_on_every_host(play, role):
    ran = play(role, "-e", "provision_folder=/nowhere/fleet", "-e", "report_json=/nowhere/fleet/results.json")
    assert ran.code == 2 and {h: c["failed"] for h, c in ran.recap.items()} == {"one": 1, "two": 1}
    for host in ("one", "two"):
        said = ran.out.rpartition(f"[{host}]: FAILED!")[2].partition("FAILED!")[0]
        assert "is missing on the controller: /nowhere/fleet" in said


STUB = """#!/bin/sh
echo "$HOST $1 $2" >>"$CALLS"
case $1 in
create) mkdir -p "$2/.gpuenv" && verdict=$VERDICT ;;
remove) rm -r "$2" && echo '{}' && exit 0 ;;
esac
[ "$verdict" = works ] && code=0 environment='{"changed": true}' || code=8 environment=null
echo "{\\"plan\\": null, \\"environment\\": $environment, \\"verdict\\":"
echo "{\\"verdict\\": \\"$verdict\\", \\"stages\\": [], \\"hint\\": \\"reboot\\"}}"
exit $code
"""


@pytest.fixture
def waves(site, tmp_path):
    """Runs the playbook with a bundle, on hosts whose gpuenv answers as told. Returns the run, and the hosts that were tried."""
    stub, calls = tmp_path / "gpuenv", tmp_path / "calls"
    stub.write_text(STUB)
    stub.chmod(0o755)

    def run(verdicts, *options):
        calls.write_text("")
        hosts = {
            name: {
                "ansible_connection": "local", "ansible_python_interpreter": sys.executable, "install_bundle": "",
                "provision_gpuenv": str(stub), "provision_env": str(tmp_path / name), "provision_bundle": "/srv/bundle",
                "provision_environment": {"HOST": name, "CALLS": str(calls), "VERDICT": verdict},
            }
            for name, verdict in verdicts.items()
        }  # fmt: skip
        before = site.results.read_text() if site.results.exists() else None
        ran = site.types(
            "ansible-playbook gpuenv.fleet.provision -i hosts.yml", *options, hosts=hosts, former=before
        )
        return ran, [line.split()[0] for line in calls.read_text().splitlines() if " create " in line]

    return run


def test_a_wave_that_fails_stops_the_next_and_results_are_merged(waves, site, tmp_path):
    bad = dict.fromkeys("abcd", "fails")
    ran, tried = waves(bad)
    assert tried == ["a"] and ran.code == 2, "a first environment is removed"
    assert not (tmp_path / "a").exists(), "a first environment is removed"
    assert {h: (r["verdict"], r["ok"]) for h, r in ran.hosts.items()} == {
        "a": ("fails", False), **dict.fromkeys("bcd", ("planned", False))
    }  # fmt: skip
    assert ran.hosts["a"]["hint"] == "reboot" and "an earlier wave failed" in ran.hosts["b"]["cause"]
    ran, tried = waves(bad | {"c": "works"}, "--limit", "c,d", "-e", "provision_max_fail=100")
    assert sorted(tried) == ["c", "d"]
    past = {host: [p["verdict"] for p in found] for host, found in ran.document["history"].items()}
    assert past == {"a": ["fails"], "b": ["planned"], "c": ["works", "planned"], "d": ["fails", "planned"]}
    assert {h: r["verdict"] for h, r in ran.hosts.items()} == {h: found[0] for h, found in past.items()}
    assert ran.table[0] == "2 hosts: 1 fails, 1 works" and "3 of 4 not ok" in ran.page


MEMBER = """#!/bin/sh
case $1 in
detect) printf '%s' "$MACHINE" ;;
create) echo "$HOST" >>"$CALLS"; printf '%s' "$CREATED" ;;
esac
"""
WORKS = {
    "plan": None, "environment": {"changed": True}, "verdict": {"verdict": "works", "stages": [], "hint": None}
}  # fmt: skip
BROKEN_OFF = {"error": {"code": 9, "message": "nvidia-cufft broke off", "hint": None, "findings": []}}
A100, V100, FERMI = ("8.0", "580.95.05"), ("7.0", "470.256.02"), ("2.0", "390.157")


def target(gpu, driver):
    """What `gpuenv detect --json` says of a host."""
    gpus = [{"capability": gpu, "name": None}]
    found = {"platform": "linux-x86_64", "glibc": "2.35", "driver": driver, "driver_os": "linux",
             "driver_cuda": None, "gpus": gpus, "forward_compat": None}  # fmt: skip
    return {"schema": "gpuenv.machine/1", "target": found}


@pytest.fixture(scope="module")
def members(site, tmp_path_factory):
    """Runs the role on hosts with a stand-in of gpuenv, and the real one on the controller. Returns the run, and the
    hosts that were built."""
    folder = tmp_path_factory.mktemp("members")
    member, calls, index = folder / "gpuenv", folder / "calls", Index()
    member.write_text(MEMBER)
    member.chmod(0o755)
    words = ["--python", "3.11", "--index", "pypi", "--plans", "fewest"]
    asked = Command(folder / "asked")
    for name, machines in (("one", [A100]), ("two", [A100, V100])):
        (asked.work / name).mkdir()
        for number, (gpu, driver) in enumerate(machines):
            (asked.work / name / f"{number}.json").write_text(json.dumps(target(gpu, driver)))
        ran = asked("resolve", "-f", "torch", *words, "--target", name, "--json")
        index.add_plan(ran.json["plans"][0]["plan"])

    def run(hosts, created=WORKS, more=()):
        """Each host answers with its machine, and as `created` says when it shall build."""
        calls.write_text("")
        own = {
            name: {
                "ansible_connection": "local", "ansible_python_interpreter": sys.executable, "install_bundle": "",
                "provision_gpuenv": str(member), "provision_env": str(folder / name),
                "provision_frameworks": ["torch"], "provision_lock_arguments": words,
                "provision_environment": {
                    "HOST": name, "CALLS": str(calls), "MACHINE": json.dumps(machine),
                    "CREATED": json.dumps(BROKEN_OFF if name == "sick" else created),
                },
            }
            for name, machine in hosts.items()
        }  # fmt: skip
        tasks = [{"name": "Role", "ansible.builtin.import_role": {"name": "gpuenv.fleet.provision"}}]
        plays = [{"name": "Play", "hosts": "all", "gather_facts": False, "tasks": tasks}]
        (site.folder / "own.yml").write_text(yaml.safe_dump(plays))
        ran = site.types("ansible-playbook own.yml -i hosts.yml", hosts=own | dict(more))
        return ran, sorted(calls.read_text().split())

    with serving(index):
        site.env |= packages_from(index)
        yield run


@pytest.fixture(scope="module")
def first(members, tmp_path_factory):
    """One host breaks off in the middle of a build, one has no plan, one a driver that does not work, and one cannot
    be reached at all."""
    broken = detected_machine(tmp_path_factory.mktemp("broken"), DRIVERS["broken"], {}, driver="580.65.06")
    hosts = {"new": target(*A100), "sick": target(*A100), "fermi": target(*FERMI), "broken": broken}
    gone = {"ansible_host": "127.0.0.1", "ansible_port": 9, "ansible_connection": "ssh"}
    ran, built = members(hosts, more={"gone": gone})
    assert built == ["new", "sick"], ran.out
    return ran


def test_a_host_that_fails_stops_no_other_and_says_why(first):
    assert first.code == 4 or first.code == 2
    assert {h: (r["verdict"], r["class"], r["ok"]) for h, r in first.hosts.items()} == {
        "new": ("works", "sm80-r580", True), "sick": ("error", "sm80-r580", False),
        "fermi": ("no_plan", "sm20-r390", False), "broken": ("no_plan", None, False), "gone": ("unreachable", None, False),
    }  # fmt: skip
    assert first.hosts["sick"]["cause"] == "nvidia-cufft broke off"
    assert "libraries (580.65.06) and the loaded kernel module" in first.hosts["broken"]["cause"]
    assert "torch" in first.hosts["fermi"]["cause"] and first.hosts["fermi"]["hint"]
    assert "Connection refused" in first.hosts["gone"]["cause"]
    assert {h for h, counts in first.recap.items() if counts["failed"]} == {
        "sick",
        "broken",
        "fermi",
        "gone",
    }
    assert "new" in first.changed and not {"sick", "fermi"} & {*first.changed}


def test_the_last_screen_is_one_table(first):
    screen = first.out.rpartition("TASK [")[2]
    assert screen.count("HOST ") == 1 and "PLAY RECAP" in screen
    lines = first.table
    assert lines[0].startswith("5 hosts: ")
    assert lines[1].split() == ["HOST", "CLASS", "PLAN", "VERDICT", "CAUSE", "SECONDS"]
    named = [line.split()[0] for line in lines[2:] if line[:1].strip()]
    assert set(named[:4]) == {"sick", "broken", "gone", "fermi"} and named[4:] == ["new"]
    assert first.document["schema"] == "gpuenv.fleet-results/1"
    assert [h["host"] for h in first.document["hosts"]] == named
    assert first.page.count("<tr>") == 6 and "4 of 5 not ok" in first.page


def test_the_role_takes_no_host_back_without_consent(members, first, site):
    """A V100 with an old driver joins an A100. Both could share only an older torch."""
    before = site.locks()
    assert before
    ran, built = members({"new": target(*A100), "old": target(*V100)})
    assert ran.code == 2 and built == [] and site.locks() == before
    for row in ran.hosts.values():
        assert "hosts would go back: torch " in row["cause"] and "(new" in row["cause"]
        assert "--allow-downgrade permits it" in row["hint"]
    assert ran.table[0] == "2 hosts: 2 error"
