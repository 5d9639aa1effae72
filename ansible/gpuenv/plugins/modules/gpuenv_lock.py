#!/usr/bin/python
"""The fewest plans for many hosts, and their locks."""

from __future__ import annotations

import json
import os
import shutil

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpuenv.fleet.plugins.module_utils.gpuenv import (
    ARGUMENTS,
    fail,
    packages_of,
    row_of_error,
    run,
    words_of,
)

_INDEX = "hosts.json"  # the class, the plan and the lock of each host
_LARGEST = 16 << 20  # bytes of a file that check mode copies

DOCUMENTATION = r"""
module: gpuenv_lock
short_description: Lock the fewest plans that serve all hosts
description:
  - Runs C(gpuenv lock) for the machines of all hosts. It is meant for the controller.
  - Writes C(pylock.CLASS.toml) for each plan into O(folder), and which host gets which into C(hosts.json).
  - Versions of locks that are there already are preferred.
extends_documentation_fragment: gpuenv.fleet.gpuenv
attributes:
  check_mode:
    description: The locks are solved in a copy of the files of O(folder).
    support: full
  diff_mode:
    description: The packages of each lock, a line each.
    support: full
options:
  machines:
    description: The C(gpuenv.machine/1) document of each host, by the name of the host.
    type: dict
    required: true
  folder:
    description: The folder of the locks. C(gpuenv.yaml) and requirement files there are used.
    type: path
    required: true
  frameworks:
    description: Frameworks, as C(torch>=2.6). Not needed where C(gpuenv.yaml) names them.
    type: list
    elements: str
    default: []
  packages:
    description: Packages beside the frameworks.
    type: list
    elements: str
    default: []
  arguments:
    description: More options of C(gpuenv lock).
    type: list
    elements: str
    default: []
  replan:
    description:
      - With V(false) nothing is planned. Each host gets the lock that C(hosts.json) of O(folder) names.
      - The fewest plans for some of the hosts can be other ones than those for all of them.
    type: bool
    default: true
"""

EXAMPLES = r"""
- name: Lock the fewest plans
  gpuenv.fleet.gpuenv_lock:
    machines:
      node1: "{{ hostvars.node1.ansible_facts.gpuenv }}"
      node2: "{{ hostvars.node2.ansible_facts.gpuenv }}"
    folder: /srv/fleet
    frameworks: [torch]
  delegate_to: localhost
  run_once: true
"""

RETURN = r"""
hosts:
  description: The class, the plan in words and the lock file of each host that has a plan.
  returned: success
  type: dict
unserved:
  description: C(reason) and C(hint) of each host that has no plan.
  returned: success
  type: dict
locks:
  description: The text of each lock, by its file name.
  returned: success
  type: dict
fleet:
  description: The C(gpuenv.fleet/1) document.
  returned: where O(replan) is true
  type: dict
"""


def main():
    module = AnsibleModule(
        argument_spec={
            "machines": {"type": "dict", "required": True},
            "folder": {"type": "path", "required": True},
            "frameworks": {"type": "list", "elements": "str", "default": []},
            "packages": {"type": "list", "elements": "str", "default": []},
            "arguments": {"type": "list", "elements": "str", "default": []},
            "replan": {"type": "bool", "default": True},
            **ARGUMENTS,
        },
        supports_check_mode=True,
    )
    folder = module.params["folder"]
    if not os.path.isdir(folder):
        module.fail_json(msg=f"the folder of the locks is missing: {folder}")
    if not module.params["machines"]:
        module.exit_json(changed=False, hosts={}, unserved={}, locks={}, fleet=None)
    if module.params["replan"]:
        plan(module, folder)
    reuse(module, folder)


def plan(module, folder):
    """Plan the machines, and write the locks."""
    before = _files_of(folder)
    work = _copy(module, folder) if module.check_mode else folder
    answer = run(module, _words(module.params), stdin=_lines(module.params["machines"]), folder=work)
    if answer.error:
        fail(module, row_of_error(answer))
    found = answer.document
    after = _files_of(work)
    written = {one["file"]: after[one["file"]] for one in found["locks"]}
    answers = {"hosts": _hosts(found), "unserved": _unserved(found["fleet"])}
    index = json.dumps(answers, indent=1, sort_keys=True) + "\n"
    changed = sorted(name for name, text in written.items() if before.get(name) != text)
    if before.get(_INDEX) != index:
        changed.append(_INDEX)
        if not module.check_mode:
            _write(module, os.path.join(folder, _INDEX), index)
    shown = [(name, before.get(name, ""), dict(written, **{_INDEX: index})[name]) for name in changed]
    diff = [_diff(*one) for one in shown]
    module.exit_json(changed=bool(changed), locks=written, fleet=found["fleet"], diff=diff, **answers)


def reuse(module, folder):
    """Give each machine the lock that it has had."""
    files = _files_of(folder)
    try:
        known = json.loads(files.get(_INDEX, "{}"))
    except ValueError as error:
        module.fail_json(msg=f"{os.path.join(folder, _INDEX)}: {error}")
    names = sorted(module.params["machines"])
    hosts = {n: known["hosts"][n] for n in names if known.get("hosts", {}).get(n, {}).get("file") in files}
    new = {
        "reason": f"no lock is known for this host in {folder}", "hint": "plan all hosts", "class": None
    }  # fmt: skip
    unserved = {n: known.get("unserved", {}).get(n, new) for n in names if n not in hosts}
    locks = {one["file"]: files[one["file"]] for one in hosts.values()}
    module.exit_json(changed=False, hosts=hosts, unserved=unserved, locks=locks, fleet=None)


def _words(params):
    """The command line of gpuenv."""
    named = [w for name in params["frameworks"] for w in ("--framework", name)]
    named += [w for name in params["packages"] for w in ("--with", name)]
    return ["lock", "--target", "-", *named, *params["arguments"]]


def _lines(machines):
    """The machines as JSON lines, in the order of the names."""
    return "".join(json.dumps(dict(machines[name], host=name)) + "\n" for name in sorted(machines))


def _files_of(folder):
    """The text of each lock in a folder, and of the file that says which host gets which."""
    found = {}
    for name in sorted(os.listdir(folder)):
        if name == _INDEX or (name.startswith("pylock.") and name.endswith(".toml")):
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                found[name] = file.read()
    return found


def _copy(module, folder):
    """A folder with copies of the files of another one."""
    work = os.path.join(module.tmpdir, "locks")
    os.mkdir(work)
    for name in os.listdir(folder):
        path = os.path.join(folder, name)
        if os.path.isfile(path) and os.path.getsize(path) <= _LARGEST:
            shutil.copy(path, work)
    return work


def _hosts(found):
    classes = {c["id"]: c["hosts"] for c in found["fleet"]["classes"]}
    return {
        host: {"class": name, "plan": words_of(plan["plan"]), "file": one["file"]}
        for one in found["locks"]
        for plan in [found["fleet"]["plans"][one["plan"]]]
        for name in plan["classes"]
        for host in classes[name]
    }


def _unserved(fleet):
    classes = {c["id"]: c["hosts"] for c in fleet["classes"]}
    found = {}
    for one in fleet["unserved"]:
        why = {"reason": one["reason"], "hint": one["hint"]}
        if one["host"]:
            found[one["host"]] = dict(why, **{"class": None})
        for name in one["classes"]:
            found.update((host, dict(why, **{"class": name})) for host in classes[name])
    return found


def _diff(name, before, after):
    if name != _INDEX:
        before, after = packages_of(before), packages_of(after)
    return {
        "before_header": name if before else "/dev/null", "after_header": name, "before": before, "after": after
    }  # fmt: skip


def _write(module, path, text):
    """Write a file in one step."""
    draft = os.path.join(module.tmpdir, "hosts.json")
    with open(draft, "w", encoding="utf-8") as file:
        file.write(text)
    module.atomic_move(draft, path)


if __name__ == "__main__":
    main()
