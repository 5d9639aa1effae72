#!/usr/bin/python
"""The machine as gpuenv detects it."""

from __future__ import annotations

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpuenv.fleet.plugins.module_utils.gpuenv import ARGUMENTS, fail, row_of_error, run

DOCUMENTATION = r"""
module: gpuenv_facts
short_description: Detect driver, GPUs and CUDA libraries of a host
description:
  - Runs C(gpuenv detect) and sets its document as the fact C(gpuenv).
  - A driver that does not work is no failure here. It is in the document, and the host then gets no plan.
extends_documentation_fragment: gpuenv.fleet.gpuenv
attributes:
  check_mode:
    description: Changes nothing.
    support: full
"""

EXAMPLES = r"""
- name: Detect the machine
  gpuenv.fleet.gpuenv_facts:
    executable: /opt/gpuenv/bin/gpuenv
- name: Show the driver
  ansible.builtin.debug:
    var: ansible_facts.gpuenv.target.driver
"""

RETURN = r"""
ansible_facts:
  description: The fact C(gpuenv), a C(gpuenv.machine/1) document.
  returned: success
  type: dict
seconds:
  description: The time that detecting took.
  returned: success
  type: float
result:
  description: The row of this host in the table of the fleet.
  returned: failure
  type: dict
"""


def main():
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    answer = run(module, ["detect"])
    if answer.error:
        fail(module, row_of_error(answer, seconds=answer.seconds))
    module.exit_json(
        changed=False, ansible_facts={"gpuenv": answer.document}, seconds=round(answer.seconds, 1)
    )


if __name__ == "__main__":
    main()
