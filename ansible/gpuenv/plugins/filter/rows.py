"""The rows of a fleet's table, from what the tasks of its hosts registered. Imports nothing of Ansible."""

from __future__ import annotations

from ansible_collections.gpuenv.fleet.plugins.module_utils.gpuenv import row

DOCUMENTATION = r"""
name: rows
short_description: The rows of the table of a fleet
description: Makes one row for each host, of the first task that failed on it or the last one that has a result.
positional: hostvars, registered, plan
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
  registered:
    description: The names of registered variables, in the order of their tasks.
    type: list
    elements: str
    required: true
  plan:
    description: What M(gpuenv.fleet.gpuenv_lock) returned.
    type: dict
"""

EXAMPLES = r"""
rows: "{{ ansible_play_hosts_all | gpuenv.fleet.rows(hostvars, ['check_verified']) }}"
"""

RETURN = r"""
_value:
  description: A row for each host.
  type: list
  elements: dict
"""


def rows(hosts, hostvars, registered, plan=None):
    """Return a row for each host."""
    plan = plan or {}
    return [_row(host, _values(hostvars, host, registered), plan) for host in hosts]


def _values(hostvars, host, names):
    known = hostvars[host]
    return [known[name] for name in names if name in known]


def _row(host, values, plan):
    made = _outcome(host, values, plan)
    mine = plan.get("hosts", {}).get(host) or plan.get("unserved", {}).get(host) or {}
    return {
        "host": str(host), "class": made.get("class") or mine.get("class"), "plan": made["plan"] or mine.get("plan"),
        **{name: made[name] for name in ("verdict", "ok", "cause", "hint", "seconds")},
    }  # fmt: skip


def _outcome(host, values, plan):
    """The first failure; else why there is no plan; else the last result."""
    for value in values:
        if value.get("unreachable"):
            return row("unreachable", cause=value.get("msg"))
        if value.get("failed"):
            return value.get("result") or row("error", cause=value.get("msg"))
    if host in plan.get("unserved", {}):
        why = plan["unserved"][host]
        return row("no_plan", cause=why["reason"], hint=why["hint"])
    if plan.get("failed"):
        hint = (plan.get("result") or {}).get("hint")
        return row("error", cause="no plan was made: {}".format(plan.get("msg")), hint=hint)
    results = [value["result"] for value in values if value.get("result")]
    if results:
        return dict(results[-1])
    if values and values[-1].get("skipped"):
        return row("planned", cause="not built: too many hosts of an earlier wave failed")
    return row("unreachable", cause="no task ran on this host")


class FilterModule:
    """Found by Ansible under this name."""

    def filters(self):
        return {"rows": rows}
