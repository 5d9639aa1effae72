"""The machines of the hosts that were detected. Imports nothing of Ansible."""

from __future__ import annotations

DOCUMENTATION = r"""
name: machines
short_description: The machines of hosts
description: Collects the documents that M(gpuenv.fleet.gpuenv_facts) set as facts.
positional: hostvars
options:
  _input:
    description: The names of the hosts.
    type: list
    elements: str
    required: true
  hostvars:
    description: The variables of all hosts.
    type: dict
    required: true
"""

EXAMPLES = r"""
machines: "{{ ansible_play_hosts | gpuenv.fleet.machines(hostvars) }}"
"""

RETURN = r"""
_value:
  description: The document of each host that has one, by the name of the host.
  type: dict
"""


def machines(hosts, hostvars):
    """Return the documents by the names of the hosts."""
    found = {}
    for host in hosts:
        facts = hostvars[host].get("ansible_facts") or {}
        if "gpuenv" in facts:
            found[str(host)] = facts["gpuenv"]
    return found


class FilterModule:
    """Found by Ansible under this name."""

    def filters(self):
        return {"machines": machines}
