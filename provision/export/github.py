"""A GitHub Actions workflow that builds exactly the lock on a machine without a GPU."""

from __future__ import annotations

import json

from ..errors import UsageError
from ..model import Lock
from . import base
from . import subject as s
from .subject import Subject

FORM = "github"


def text(subject: Subject) -> str:
    """The workflow. Strings are JSON, which is YAML. Raises UsageError where no machine fits."""
    s.linux_only(subject, "the workflow")
    lock, env = subject.lock, ".venv"
    default = "gpuenv[conda]" if lock.manager == "conda" else "gpuenv"
    told = [
        ".github/workflows/environment.yml",
        "GPUENV is what pip installs as gpuenv; the repository's variable GPUENV names a git address or a wheel",
    ]
    wheels = [s.oneline(s.file_name(p)) for p in s.local_files(lock)]
    if wheels:
        told.append(
            f"put into ./wheels, as they come from folders of the machine that locked: {', '.join(wheels)}"
        )
    find_links = ["--find-links", "wheels"] if wheels else []
    create = s.create_command(subject, env, subject.lock_file, *find_links)
    check = s.shell("gpuenv", "lock", "--check", *lock_options(subject), *find_links)
    rows = [
        "name: environment",
        "on: [push, pull_request]",
        "permissions:",
        "  contents: read",
        "jobs:",
        "  environment:",
        f"    runs-on: {base.runner(subject)}",
        "    timeout-minutes: 60",
        "    env:",
        f"      GPUENV: ${{{{ vars.GPUENV || '{default}' }}}}",
        *_override(lock),
        "    steps:",
        f"      - uses: {base.action(subject, 'actions/checkout')}",
        "        with:",
        "          persist-credentials: false",
        f"      - uses: {base.action(subject, 'actions/setup-python')}",
        "        with:",
        f"          python-version: {json.dumps(base.gpuenv_python(subject))}",
        f"      - uses: {base.action(subject, 'actions/cache')}",
        "        with:",
        "          path: ~/.cache",
        f"          key: gpuenv-${{{{ runner.os }}}}-${{{{ runner.arch }}}}-${{{{ hashFiles({_in_quotes(subject.lock_file)}) }}}}",
        '      - run: python -m pip install "$GPUENV"',
        "      - name: The lock is still what would be locked now",
        f"        run: {json.dumps(check)}",
        "      - name: Exactly the lock, hashes checked",
        f"        run: {json.dumps(s.shell(*create))}",
        "      - name: What can be proved without a GPU",
        f"        run: {s.shell('gpuenv', 'verify', env, '--device', 'cpu')}",
        "      - run: gpuenv run .venv -- python -c 'print(\"your tests here\")'",
    ]
    if "${{" in s.headline(lock) + check + s.shell(*create):
        # Whoever wrote the lock would else decide what the workflow evaluates, its secrets included.
        raise UsageError("the lock holds an expression of GitHub Actions (${{): it was not made by gpuenv")
    return s.comment(subject, FORM, "", *told) + "\n".join(rows) + "\n"


def lock_options(subject: Subject) -> list[str]:
    """The options of `gpuenv lock` that ask for this lock again. A project's own file says what is wanted;
    otherwise the lock does."""
    lock = subject.lock
    plan = lock.plan
    options = ["--output", subject.lock_file, "--python", plan.python or "", "--device", plan.device]
    options += ["--platform", plan.platform, *(["--glibc", lock.target.glibc] if lock.target.glibc else [])]
    options += s.target_options(lock)
    if subject.project:
        return options
    if lock.manager == "conda":
        options += ["--manager", "conda"]
        for channel in dict.fromkeys(p.index for p in s.conda_packages(lock) if p.index):
            options += ["--channel", channel]
    for build in plan.builds:
        options += ["--framework", f"{build.framework}=={build.version}"]
    cuda = next((b.cuda for b in plan.builds if b.cuda), None)
    options += ["--cuda", cuda] if cuda and lock.manager == "venv" else []
    for package in plan.packages:
        options += ["--with", package]
    return options


def _override(lock: Lock) -> list[str]:
    cuda = s.conda_override(lock)
    return [f"      CONDA_OVERRIDE_CUDA: {json.dumps(cuda)}"] if cuda else []


def _in_quotes(path: str) -> str:
    """A string of GitHub's expressions."""
    return "'" + s.oneline(path).replace("'", "''") + "'"
