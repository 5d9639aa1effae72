#!/usr/bin/python
"""The verdict on an environment."""

from __future__ import annotations

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpuenv.fleet.plugins.module_utils.gpuenv import (
    ARGUMENTS,
    class_in,
    fail,
    lock_in,
    plan_in,
    row_of_error,
    row_of_verdict,
    run,
)

DOCUMENTATION = r"""
module: gpuenv_verify
short_description: Prove an environment
description:
  - Runs C(gpuenv verify). It fails where the environment does not do what it was made for.
extends_documentation_fragment: gpuenv.fleet.gpuenv
attributes:
  check_mode:
    description: Changes nothing.
    support: full
options:
  path:
    description: The environment.
    type: path
    required: true
  locked:
    description: Fail where the environment is not as its lock has it.
    type: bool
    default: true
  quick:
    description: Try driver, runtime, libraries and cuDNN only.
    type: bool
    default: false
  host:
    description: The name of the host in the lock, for its class.
    type: str
    default: ""
  arguments:
    description: More options of C(gpuenv verify).
    type: list
    elements: str
    default: []
"""

EXAMPLES = r"""
- name: Prove the environment
  gpuenv.fleet.gpuenv_verify:
    path: /opt/envs/torch
"""

RETURN = r"""
result:
  description: The row of this host in the table of the fleet.
  returned: always
  type: dict
verdict:
  description: The C(gpuenv.verdict/1) document.
  returned: success
  type: dict
"""


def main():
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "locked": {"type": "bool", "default": True},
            "quick": {"type": "bool", "default": False},
            "host": {"type": "str", "default": ""},
            "arguments": {"type": "list", "elements": "str", "default": []},
            **ARGUMENTS,
        },
        supports_check_mode=True,
    )
    params = module.params
    plan, kind = plan_in(params["path"]), {"class": class_in(lock_in(params["path"]), params["host"])}
    flags = [f for f, on in (("--locked", params["locked"]), ("--quick", params["quick"])) if on]
    answer = run(module, ["verify", params["path"], *flags, *params["arguments"]], folder=module.tmpdir)
    if answer.error:
        fail(module, dict(row_of_error(answer, plan, answer.seconds), **kind))
    result = dict(row_of_verdict(answer.document, answer.code == 0, plan, answer.seconds), **kind)
    if not result["ok"]:
        fail(module, result)
    module.exit_json(changed=False, result=result, verdict=answer.document)


if __name__ == "__main__":
    main()
