"""A GitHub Actions workflow that builds exactly the lock on a machine without a GPU."""

from __future__ import annotations

import json
import re
from pathlib import PurePosixPath

from ..errors import UsageError
from . import base_images, export_source as s
from .export_source import Subject

FORM = "github"
_ENV = ".venv"


def text(subject: Subject) -> str:
    """The workflow. Strings are JSON, which is YAML. Raises UsageError where no machine fits."""
    s.linux_only(subject, "the workflow")
    lock = subject.lock
    wheels = [s.oneline(s.file_name(p)) for p in s.local_files(lock)]
    find_links = ["--find-links", "wheels"] if wheels else []
    asked = lock_options(subject)
    check = s.shell("gpuenv", "lock", "--check", *asked, *find_links) if asked else ""
    create = s.shell(*s.create_command(subject, _ENV, subject.lock_file, *find_links))
    if "${{" in s.headline(lock) + check + create + subject.gpuenv.address:
        # Whoever wrote the lock would else decide what the workflow evaluates, its secrets included.
        raise UsageError("the lock holds an expression of GitHub Actions (${{): it was not made by gpuenv")
    own, told = subject.gpuenv.wheel, [".github/workflows/environment.yml"]
    told += [f"commit {own} too: pip installs gpuenv from it"] if own else []
    told += ["the repository's variable GPUENV names another address or wheel of gpuenv"]
    told += (
        [f"put into ./wheels, as they lie on the machine that locked: {', '.join(wheels)}"] if wheels else []
    )
    rows = [*_job(subject), *_steps(subject, check, create)]
    return s.comment(subject, FORM, "", *told) + "\n".join(rows) + "\n"


def _job(subject: Subject) -> list[str]:
    cuda = s.conda_override(subject.lock)
    return [
        "name: environment",
        "on: [push, pull_request]",
        "permissions:",
        "  contents: read",
        "jobs:",
        "  environment:",
        f"    runs-on: {base_images.runner(subject)}",
        "    timeout-minutes: 60",
        *(["    env:", f"      CONDA_OVERRIDE_CUDA: {json.dumps(cuda)}"] if cuda else []),
    ]


def _install(subject: Subject) -> list[str]:
    """Return the step that installs gpuenv. Its variable is unset in later steps, where it has another meaning."""
    default = _in_quotes(subject.gpuenv.requirement(subject.lock, "{0}"))
    value = f"${{{{ vars.GPUENV || format({default}, github.workspace) }}}}"
    return [
        '      - run: python -m pip install "$GPUENV"',
        "        env:",
        f"          GPUENV: {json.dumps(value)}",
    ]


def _steps(subject: Subject, check: str, create: str) -> list[str]:
    held = f"hashFiles({_in_quotes(subject.lock_file)})"
    return [
        "    steps:",
        f"      - uses: {base_images.action(subject, 'actions/checkout')}",
        "        with:",
        "          persist-credentials: false",
        f"      - uses: {base_images.action(subject, 'actions/setup-python')}",
        "        with:",
        f"          python-version: {json.dumps(base_images.gpuenv_python(subject))}",
        f"      - uses: {base_images.action(subject, 'actions/cache')}",
        "        with:",
        "          path: ~/.cache",
        f"          key: gpuenv-${{{{ runner.os }}}}-${{{{ runner.arch }}}}-${{{{ {held} }}}}",
        *_install(subject),
        *_check(check),
        "      - name: Exactly the lock, hashes checked",
        f"        run: {json.dumps(create)}",
        "      - name: What can be proved without a GPU",
        f"        run: {s.shell('gpuenv', 'verify', _ENV, '--device', 'cpu')}",
        f"      - run: gpuenv run {_ENV} -- python -c 'print(\"your tests here\")'",
    ]


def _check(command: str) -> list[str]:
    if command:
        return [
            "      - name: The lock is still what would be locked now",
            f"        run: {json.dumps(command)}",
        ]
    return [
        "      # The lock was made from a project's files, for a machine without a name. With a named target in",
        "      # gpuenv.yaml it can be checked here as well: gpuenv lock --check --target NAME",
    ]


def lock_options(subject: Subject) -> list[str]:
    """The options of `gpuenv lock` that ask for this lock again; none where only the machine that it was
    made on can: a lock knows that files were asked (`inputs`), not which."""
    lock, plan = subject.lock, subject.lock.plan
    named = re.fullmatch(
        r"pylock\.([^.]+)\.toml|([^.]+)\.conda-lock\.yml", PurePosixPath(subject.lock_file).name
    )
    if subject.project and named:
        return ["--target", named[1] or named[2]]
    if lock.inputs:
        return []
    options = ["--output", subject.lock_file, "--python", plan.python or "", "--device", plan.device]
    options += ["--platform", plan.platform, *(["--glibc", lock.target.glibc] if lock.target.glibc else [])]
    options += s.target_options(lock)
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


def _in_quotes(path: str) -> str:
    """A string of GitHub's expressions."""
    return "'" + s.oneline(path).replace("'", "''") + "'"
