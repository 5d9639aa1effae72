#!/usr/bin/python
"""gpuenv itself on a host."""

from __future__ import annotations

import glob
import hashlib
import os
import shutil

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpuenv.fleet.plugins.module_utils.gpuenv import fail, row

_MARK = ".source"  # in a finished folder: what it was installed from

DOCUMENTATION = r"""
module: gpuenv_install
short_description: Install gpuenv
description:
  - Installs gpuenv into a virtual environment of its own, from a wheel, an address or a bundle.
  - What gpuenv requires is installed with the hashes of its release, which the wheel lists. A bundle brings its own packages.
  - Each version gets a folder beside O(prefix), which is a link to the one in use. A failed installation leaves it.
options:
  prefix:
    description: The virtual environment, with C(bin/gpuenv) in it.
    type: path
    required: true
  source:
    description:
      - A wheel of gpuenv on the host, or an address that pip takes.
      - Never the bare name, because an index can have another package of that name.
    type: str
  bundle:
    description: A folder on the host that C(gpuenv bundle) made. No network is needed then.
    type: path
  python:
    description: The Python to use, 3.10 or newer.
    type: str
    default: python3
  arguments:
    description: More options of C(pip install).
    type: list
    elements: str
    default: []
  environment:
    description: Variables for pip. They are shown in logs.
    type: dict
    default: {}
  secrets:
    description: Variables for pip that hold credentials. Their values appear in no log and in no result.
    type: dict
    default: {}
author:
  - gpuenv developers (@gpuenv)
attributes:
  check_mode:
    description: Nothing is installed.
    support: full
  diff_mode:
    description: The sources of the old and the new gpuenv.
    support: full
"""

EXAMPLES = r"""
- name: Install gpuenv from a bundle
  gpuenv.fleet.gpuenv_install:
    prefix: /opt/gpuenv
    bundle: /mnt/stick
"""

RETURN = r"""
version:
  description: The version of gpuenv that is in place.
  returned: success, where there is one
  type: str
result:
  description: The row of this host in the table of the fleet.
  returned: failure
  type: dict
"""


class Installation:
    """The folder of one source, and the link to the one in use."""

    def __init__(self, module):
        self.module, self.prefix = module, module.params["prefix"]
        self.requirement, self.options, self.source = _source(module)
        python = module.params["python"]
        name = hashlib.sha256(f"{self.source} {python}".encode()).hexdigest()[:12]
        self.folders = self.prefix + ".versions"
        self.folder = os.path.join(self.folders, name)

    def fail(self, cause, hint=None):
        fail(self.module, row("error", cause=cause, hint=hint))

    def is_in_place(self):
        """Whether the link leads to a finished folder of this source."""
        return (
            os.path.realpath(self.prefix) == os.path.realpath(self.folder) and _read(self.folder) is not None
        )

    def install(self):
        """Make the folder, then the link."""
        if os.path.lexists(self.prefix) and not os.path.islink(self.prefix):
            self.fail(
                f"{self.prefix} is no link that this module made",
                hint="choose another prefix, or remove it",
            )
        if _read(self.folder) is None:
            self._fill()
        draft = self.prefix + ".new"
        if os.path.lexists(draft):
            os.unlink(draft)
        os.symlink(self.folder, draft)
        os.replace(draft, self.prefix)
        for name in os.listdir(self.folders):
            if os.path.join(self.folders, name) != self.folder:
                shutil.rmtree(os.path.join(self.folders, name))

    def _fill(self):
        os.makedirs(self.folders, exist_ok=True)
        python = self.module.params["python"]
        old = "import sys; sys.exit('gpuenv needs Python 3.10 or newer, %s is %d.%d' % ((sys.executable,) + sys.version_info[:2]) if sys.version_info < (3, 10) else 0)"
        self._run([python, "-c", old], f"check {python}")
        self._run([python, "-m", "venv", "--clear", self.folder], "make a virtual environment")
        pip = [os.path.join(self.folder, "bin", "python"), "-m", "pip", "install", "--no-input", "--quiet"]
        pip += ["--disable-pip-version-check", *self.options, *self.module.params["arguments"]]
        if self.module.params["bundle"]:  # its folder has no other packages than those of its manifest
            self._run([*pip, self.requirement], "install gpuenv")
        else:
            self._run([*pip, "--no-deps", self.requirement], "install gpuenv")
            listed = os.path.join(
                self.folder, "lib", "python3*", "site-packages", "provision", "release", "requirements.txt"
            )
            hashed = ["--require-hashes", "--only-binary", ":all:", "-r", *glob.glob(listed)]
            self._run([*pip, *hashed], "install what gpuenv requires")
        with open(os.path.join(self.folder, _MARK), "w", encoding="utf-8") as file:
            file.write(self.source + "\n")

    def _run(self, words, deed):
        params = self.module.params
        variables = {k: str(v) for k, v in {**params["environment"], **params["secrets"]}.items()}
        try:
            code, out, err = self.module.run_command(words, environ_update=variables, handle_exceptions=False)
        except OSError as error:
            code, out, err = 1, "", f"{words[0]}: {error.strerror}"
        if code:
            said = [line for line in (out + err).splitlines() if line.strip()][-3:]
            self.fail(f"could not {deed}: {' | '.join(said)}", hint="give another python, source or bundle")

    def version(self):
        """The version in place, None before the first installation."""
        program = os.path.join(self.prefix, "bin", "gpuenv")
        if not os.path.exists(program):
            return None
        code, out, _ = self.module.run_command([program, "--version"])
        return out.split()[-1] if code == 0 and out.split() else None


def _source(module):
    """The requirement, the options of pip, and the text that identifies the source."""
    source, bundle = module.params["source"], module.params["bundle"]
    if bundle:
        wheels = sorted(glob.glob(os.path.join(bundle, "gpuenv", "gpuenv-*.whl")))
        if not wheels:
            fail(module, row("error", cause=f"{bundle} has no gpuenv/gpuenv-*.whl",
                             hint="give a folder that `gpuenv bundle` made"))  # fmt: skip
        folder = os.path.dirname(wheels[-1])
        return _wheel(wheels[-1], ["--no-index", "--find-links", folder])
    if "://" not in source:
        if not os.path.isfile(source) and module.check_mode:
            module.exit_json(changed=True)  # the task that copies it has only said that it would
        if not os.path.isfile(source):
            fail(module, row("error", cause=f"the wheel {source} is missing on the host",
                             hint="give a wheel or an address"))  # fmt: skip
        return _wheel(source, [])
    return f"gpuenv @ {source}", [], source


def _wheel(path, options):
    with open(path, "rb") as file:
        digest = hashlib.sha256(file.read()).hexdigest()
    return (
        f"gpuenv @ file://{os.path.abspath(path)}#sha256={digest}",
        options,
        f"sha256:{digest}",
    )


def _read(folder):
    """The source of a finished folder, None of others."""
    try:
        with open(os.path.join(folder, _MARK), encoding="utf-8") as file:
            return file.read().strip()
    except OSError:
        return None


def main():
    module = AnsibleModule(
        argument_spec={
            "prefix": {"type": "path", "required": True},
            "source": {"type": "str"},
            "bundle": {"type": "path"},
            "python": {"type": "str", "default": "python3"},
            "arguments": {"type": "list", "elements": "str", "default": []},
            "environment": {"type": "dict", "default": {}},
            "secrets": {"type": "dict", "default": {}, "no_log": True},
        },
        mutually_exclusive=[("source", "bundle")],
        required_one_of=[("source", "bundle")],
        supports_check_mode=True,
    )
    found = Installation(module)
    before = _read(module.params["prefix"]) or ""
    changed = not found.is_in_place()
    if changed and not module.check_mode:
        found.install()
    diff = {"before": before and before + "\n", "after": found.source + "\n"} if changed else {}
    module.exit_json(changed=changed, version=found.version(), diff=diff)


if __name__ == "__main__":
    main()
