#!/usr/bin/python
"""The results of all hosts as a table, a document and a page."""

from __future__ import annotations

import json
import os
import time

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpuenv.fleet.plugins.module_utils.gpuenv import (
    ARGUMENTS,
    fail,
    program,
    row_of_error,
    run,
)

_SCHEMA = "gpuenv.fleet-results/1"
_MOST = 10  # results that are kept of a host

DOCUMENTATION = r"""
module: gpuenv_report
short_description: Write the results of all hosts
description:
  - Runs C(gpuenv report --hosts). It is meant for the controller.
  - The file O(json) keeps the last ten results of each host.
extends_documentation_fragment: gpuenv.fleet.gpuenv
attributes:
  check_mode:
    description: The table is returned, and no file is written.
    support: full
options:
  rows:
    description: A row for each host, as the filter P(gpuenv.fleet.rows#filter) makes them.
    type: list
    elements: dict
    required: true
  json:
    description: The file for the C(gpuenv.fleet-results/1) document.
    type: path
  html:
    description: The file for the page.
    type: path
  merge:
    description: Keep the results of other hosts that are in O(json). The page has all, the table these rows.
    type: bool
    default: false
  columns:
    description: The width of the table.
    type: int
    default: 110
"""

EXAMPLES = r"""
- name: Write the results
  gpuenv.fleet.gpuenv_report:
    rows: "{{ ansible_play_hosts_all | gpuenv.fleet.rows(hostvars, ['provision_built'], provision_planned) }}"
    html: /srv/fleet/results.html
  delegate_to: localhost
  run_once: true
"""

RETURN = r"""
table:
  description: The lines of the table.
  returned: success
  type: list
  elements: str
bad:
  description: The cause for each host that is not ok.
  returned: success
  type: dict
"""


def main():
    module = AnsibleModule(
        argument_spec={
            "rows": {"type": "list", "elements": "dict", "required": True},
            "json": {"type": "path"},
            "html": {"type": "path"},
            "columns": {"type": "int", "default": 110},
            "merge": {"type": "bool", "default": False},
            **ARGUMENTS,
        },
        supports_check_mode=True,
    )
    rows = module.params["rows"]
    html = module.params["html"] if not module.check_mode else None
    words = ["report", "--hosts", "-", *(["--output", html, "--force"] if html else [])]
    answer = run(module, words, stdin=json.dumps(_with_former(module.params, rows)))
    if answer.error:
        fail(module, row_of_error(answer))
    if module.params["json"] and not module.check_mode:
        _write(module, module.params["json"], json.dumps(answer.document, indent=1) + "\n")
    bad = {r["host"]: r["cause"] or r["verdict"] for r in rows if not r["ok"]}
    module.exit_json(
        changed=False, table=_table(module, json.dumps({"schema": _SCHEMA, "hosts": rows})), bad=bad
    )


def _with_former(params, rows):
    """The document of these rows, with the results of former runs."""
    try:
        with open(params["json"] or "", encoding="utf-8") as file:
            former = json.load(file)
    except (OSError, ValueError):  # the first run
        former = {"hosts": []}
    named = {row["host"] for row in rows}
    kept = [row for row in former["hosts"] if row["host"] not in named] if params["merge"] else []
    past, now = former.get("history", {}), time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    history = {row["host"]: past.get(row["host"], []) for row in kept}
    for row in rows:
        this = {"when": now, "verdict": row["verdict"], "ok": row["ok"]}
        history[row["host"]] = [this, *past.get(row["host"], [])][:_MOST]
    return {"schema": _SCHEMA, "hosts": rows + kept, "history": history}


def _table(module, text):
    """The lines for people."""
    variables = {"COLUMNS": str(module.params["columns"])}
    words = [program(module), "report", "--hosts", "-"]
    _, out, _ = module.run_command(
        words, data=text, environ_update=variables, binary_data=True, check_rc=True
    )
    return out.splitlines()


def _write(module, path, text):
    """Write a file in one step."""
    draft = os.path.join(module.tmpdir, "results.json")
    with open(draft, "w", encoding="utf-8") as file:
        file.write(text)
    module.atomic_move(draft, path)


if __name__ == "__main__":
    main()
