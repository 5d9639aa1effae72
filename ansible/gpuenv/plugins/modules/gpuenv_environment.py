#!/usr/bin/python
"""An environment that is built from a lock, and proved."""

from __future__ import annotations

import os
import time

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpuenv.fleet.plugins.module_utils.gpuenv import (
    ARGUMENTS,
    fail,
    lock_in,
    packages_of,
    plan_in,
    row,
    row_of_error,
    row_of_verdict,
    run,
    words_of,
)

DOCUMENTATION = r"""
module: gpuenv_environment
short_description: Build an environment from a lock and prove it
description:
  - Runs C(gpuenv create --locked). gpuenv builds all or nothing. What fails its proof is rolled back - the environment that was there
    comes back, and a first one is removed.
  - An environment that was built from the lock and has not changed since is left alone.
extends_documentation_fragment: gpuenv.fleet.gpuenv
attributes:
  check_mode:
    description: Checks the lock against the host, and what would change. The verdict is C(planned) then.
    support: full
  diff_mode:
    description: The packages of the lock, a line each.
    support: full
options:
  path:
    description: The environment.
    type: path
    required: true
  lock:
    description: The text of the lock. Not needed with O(bundle).
    type: str
  bundle:
    description: A folder that C(gpuenv bundle) made, as the host sees it. Its lock for the machine is installed, without a network.
    type: path
  proof:
    description:
      - V(full) grades convolutions in every framework on every GPU, in the build.
      - V(quick) tries driver, runtime, libraries and cuDNN, in the build.
      - V(none) proves nothing.
    type: str
    choices: [full, quick, none]
    default: full
  recreate:
    description: Build anew where the environment cannot change in place. The old one stays until the new one is proved.
    type: bool
    default: true
  repair:
    description: Put back what was changed since the build.
    type: bool
    default: true
  arguments:
    description: More options of C(gpuenv create), as C(--offline).
    type: list
    elements: str
    default: []
"""

EXAMPLES = r"""
- name: Build the environment
  gpuenv.fleet.gpuenv_environment:
    path: /opt/envs/torch
    lock: "{{ lookup('ansible.builtin.file', 'pylock.sm90-r580.toml') }}"
"""

RETURN = r"""
result:
  description: The row of this host in the table of the fleet.
  returned: always
  type: dict
verdict:
  description: The C(gpuenv.verdict/1) document, where a proof ran or a former one still holds.
  returned: success
  type: dict
"""


_REPAIRABLE = ("replaced", "removed", "modified", "overwritten")
"""The kinds of changes since the build that `gpuenv repair` puts back. The driver and the GPUs are others."""


def _changes(document):
    """What was changed in an environment since the build, and can be put back."""
    return [c for c in (document or {}).get("drift", ()) if c["kind"] in _REPAIRABLE]


class Environment:
    """The environment of a run of this module."""

    def __init__(self, module):
        self.module = module
        self.path, self.proof = module.params["path"], module.params["proof"]
        self.was_there = os.path.exists(os.path.join(self.path, ".gpuenv"))
        self.words = ["--bundle", module.params["bundle"]]
        before = packages_of(lock_in(self.path))
        after = before
        if not module.params["bundle"]:
            lock = os.path.join(module.tmpdir, "pylock.toml")
            with open(lock, "w", encoding="utf-8") as file:
                file.write(module.params["lock"])
            self.words = ["--locked", "--lock", lock]
            after = packages_of(module.params["lock"])
        self.differs = before != after
        header = self.path if before else "/dev/null"
        self.diff = {"before_header": header, "after_header": self.path, "before": before, "after": after}
        self.plan, self.changed, self.verdict = None, False, None
        self.began = time.monotonic()

    def run(self, *words):
        """Run gpuenv away from any project; an error ends the module."""
        return self.sound(run(self.module, list(words), folder=self.module.tmpdir))

    def sound(self, answer):
        """Return the answer, or end the module with its error."""
        if answer.error:
            self.fail(row_of_error(answer, self.plan, self.seconds))
        return answer

    def create(self, *more):
        """Run `gpuenv create` with the lock, anew where it cannot change in place."""
        words = ["create", self.path, *self.words, *self.module.params["arguments"], *more]
        answer = run(self.module, words, folder=self.module.tmpdir)
        if self.module.params["recreate"] and answer.advises("--recreate"):
            return self.run(*words, "--recreate")
        return self.sound(answer)

    @property
    def seconds(self):
        return time.monotonic() - self.began

    def fail(self, result):
        fail(self.module, result, changed=self.changed, diff=self.diff)

    def finish(self, result):
        """End the module with a row. gpuenv keeps a first environment that fails, which nobody should use."""
        if not result["ok"]:
            if not self.was_there and os.path.exists(self.path):
                self.run("remove", self.path)
                self.changed = False
            self.fail(result)
        self.module.exit_json(changed=self.changed, diff=self.diff, result=result, verdict=self.verdict)

    def judge(self, answer, verdict):
        """Keep the verdict that a run ended with, and return its row."""
        self.verdict = verdict
        if verdict is None:
            return row("unproven", ok=True, plan=self.plan, seconds=self.seconds)
        return row_of_verdict(verdict, answer.code == 0, self.plan, self.seconds)


_PROOFS = {"full": [], "quick": ["--quick"], "none": ["--no-verify"]}


def foresee(env):
    """What would be done, without doing it."""
    foreseen = env.create("--dry-run").document
    env.plan = words_of(foreseen)
    # Without the text of its lock a bundle is compared by the frameworks.
    env.changed = env.differs or env.plan != plan_in(env.path)
    if not env.changed:
        answer = env.run("verify", env.path, *(["--quick"] if env.proof != "full" else []))
        env.changed = bool(_changes(answer.document)) and env.module.params["repair"]
        if not env.changed:
            env.finish(env.judge(answer, answer.document))
    env.finish(row("planned", ok=True, plan=env.plan, seconds=env.seconds))


def build(env):
    """Build, repair and prove."""
    answer = env.create(*_PROOFS[env.proof])
    made = answer.document
    env.plan, env.changed = words_of(made["plan"]), bool((made["environment"] or {}).get("changed"))
    verdict = made["verdict"]
    changes = _changes(verdict or made["environment"])
    if changes and env.module.params["repair"]:
        env.diff = _with_changes(env.diff, changes)
        answer = env.run("repair", env.path, *_PROOFS[env.proof])
        env.changed, verdict = True, answer.document["verdict"]
    if env.module.params["bundle"]:
        env.diff["after"] = packages_of(lock_in(env.path))
    env.finish(env.judge(answer, verdict))


def _with_changes(diff, changes):
    """A diff that also has what was changed since the build."""
    return dict(diff, before=diff["before"] + "".join("changed: {}\n".format(c["text"]) for c in changes))


def main():
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "lock": {"type": "str"},
            "bundle": {"type": "path"},
            "proof": {"type": "str", "choices": ["full", "quick", "none"], "default": "full"},
            "recreate": {"type": "bool", "default": True},
            "repair": {"type": "bool", "default": True},
            "arguments": {"type": "list", "elements": "str", "default": []},
            **ARGUMENTS,
        },
        required_one_of=[["lock", "bundle"]],
        supports_check_mode=True,
    )
    env = Environment(module)
    if module.check_mode:
        foresee(env)
    build(env)


if __name__ == "__main__":
    main()
