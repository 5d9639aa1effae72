"""The roles in plays of one's own, on hosts that have no gpuenv: what a play does when nothing works."""

import sys

import pytest
import yaml


@pytest.fixture
def play(site):
    """Runs a play with a role on two hosts without gpuenv."""

    def run(role, **more):
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
        return site.types("ansible-playbook own.yml -i hosts.yml", hosts=hosts)

    return run


@pytest.mark.parametrize("role", ["provision", "check"])
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
    assert ran.code == 2 and "This play has serial. Plan all hosts in a play without it" in ran.out
    assert not list(site.folder.glob("pylock.*"))
