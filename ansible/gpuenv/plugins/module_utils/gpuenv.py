"""Runs of gpuenv on a host, and its answers as rows of a table. Imports nothing of Ansible; runs on Python 3.8."""

from __future__ import annotations

import json
import os
import re
import time

ARGUMENTS = {
    "executable": {"type": "str", "default": "gpuenv"},
    "environment": {"type": "dict", "default": {}},
    "secrets": {"type": "dict", "default": {}, "no_log": True},
}
"""The arguments that all modules have."""
_LONGEST = 300  # characters of a cause in a table
_USAGE = 2
_LOCK = os.path.join(".gpuenv", "pylock.toml")  # the lock that an environment was built from


class Answer:
    """How a run of gpuenv ended."""

    def __init__(self, code, document, said, seconds):
        self.code, self.document, self.said, self.seconds = code, document, said, seconds

    @property
    def error(self):
        """The error of a run that reached no value, None of others."""
        return self.document.get("error")

    def advises(self, option):
        """Whether gpuenv refused, and names an option that would do it."""
        return self.code == _USAGE and option in ((self.error or {}).get("hint") or "")


def run(module, words, stdin=None, folder=None):
    """Run gpuenv with --json and return its Answer."""
    name = program(module)
    variables = {k: str(v) for k, v in {**module.params["environment"], **module.params["secrets"]}.items()}
    began = time.monotonic()
    code, out, err = module.run_command(
        [name, *words, "--json"], data=stdin, cwd=folder, environ_update=variables, binary_data=True
    )
    seconds = time.monotonic() - began
    try:
        document = json.loads(out)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        last = [line for line in err.splitlines() if line.strip()][-3:]
        message = "gpuenv {} ended with exit code {}: {}".format(words[0], code, " | ".join(last))
        document = {"error": {"code": code, "message": message, "hint": None, "findings": []}}
    return Answer(code, document, err, seconds)


def program(module):
    """The path of gpuenv. A missing program fails the module."""
    name = os.path.expanduser(module.params["executable"])
    found = name if os.sep in name else module.get_bin_path(name)
    if found is None or not os.access(found, os.X_OK):
        cause = f"gpuenv is missing: there is no program {name}"
        fail(module, row("error", cause=cause, hint="run the role gpuenv.fleet.install first"))
    return found


def fail(module, result, **more):
    """Fail the module with the cause of a row."""
    cause = result["cause"] or "verdict: {}".format(result["verdict"])
    module.fail_json(msg=cause, result=result, **more)


def row(verdict, ok=False, cause=None, hint=None, plan=None, seconds=None):
    """What the table says of a host, without the host."""
    return {
        "verdict": verdict, "ok": ok, "cause": _short(cause), "hint": hint, "plan": plan,
        "seconds": None if seconds is None else round(seconds, 1),
    }  # fmt: skip


def _short(text):
    line = " ".join((text or "").split())
    return (line if len(line) <= _LONGEST else line[: _LONGEST - 4] + " ...") or None


def row_of_error(answer, plan=None, seconds=None):
    """The row of a run that reached no value."""
    error = answer.error
    found = error.get("findings") or []
    cause = "{} ({})".format(error["message"], found[0]["title"]) if found else error["message"]
    return row("error", cause=cause, hint=error.get("hint"), plan=plan, seconds=seconds)


def row_of_verdict(verdict, ok, plan=None, seconds=None):
    """The row of a verdict. `ok` is whether it is what was asked for."""
    return row(
        verdict["verdict"], ok, cause=None if ok else cause_of(verdict), hint=None if ok else verdict.get("hint"),
        plan=plan, seconds=seconds,
    )  # fmt: skip


def cause_of(verdict):
    """Why a verdict is not what it should be, in one line."""
    if verdict.get("findings"):
        return verdict["findings"][0]["title"]
    failed = [s for s in verdict.get("stages", ()) if s["status"] == "fail"]
    if failed:
        about = " ".join(filter(None, (failed[0]["stage"], failed[0].get("framework"))))
        return "{}: {}".format(about, failed[0]["detail"])
    return verdict.get("hint") or "the verdict is {}".format(verdict["verdict"])


def words_of(plan):
    """A plan in words: "torch 2.10.0 (CUDA 12.8)". None without a plan."""
    builds = (plan or {}).get("builds") or []
    return (
        " + ".join(
            "{} {} ({})".format(
                b["framework"], b["version"], "CUDA {}".format(b["cuda"]) if b.get("cuda") else "CPU"
            )
            for b in builds
        )
        or None
    )


def plan_in(env):
    """The plan in words that an environment was built from, None where it has none."""
    try:
        with open(os.path.join(env, ".gpuenv", "plan.json"), encoding="utf-8") as file:
            return words_of(json.load(file))
    except (OSError, ValueError):
        return None


def lock_in(env):
    """The text of the lock that an environment was built from, "" where it has none."""
    try:
        with open(os.path.join(env, _LOCK), encoding="utf-8") as file:
            return file.read()
    except (OSError, ValueError):
        return ""


def packages_of(lock):
    """The packages of a pylock.toml, a line each, for a diff. The file is one that gpuenv wrote."""
    found = re.findall(r'^\[\[packages\]\]\nname = "(.+)"\nversion = "(.+)"$', lock, re.MULTILINE)
    return "".join("{} {}\n".format(*package) for package in sorted(found))


def class_in(lock, host):
    """The class of a host in a lock of a fleet, None where the lock does not list the host."""
    for part in lock.split("[[tool.gpuenv.classes]]")[1:]:
        name = re.search(r'^id = "(.+)"$', part, re.MULTILINE)
        hosts = re.search(r"^hosts = \[(.*?)\]$", part, re.MULTILINE | re.DOTALL)
        if name and hosts and json.dumps(host, ensure_ascii=False) in hosts.group(1):
            return name.group(1)
    return None
