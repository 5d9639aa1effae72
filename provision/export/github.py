"""Write a GitHub Actions workflow that builds the lock on a machine without a GPU."""

from __future__ import annotations

import json
from pathlib import PurePosixPath

from ..errors import UsageError
from ..model import find_lock_target
from . import base_images, export_subject_and_shared_texts as s
from .export_subject_and_shared_texts import Subject

FORM = "github"
_ENV = ".venv"


def text(subject: Subject) -> str:
    """Return the workflow. Raises UsageError if no machine fits. Strings are JSON, which is valid YAML."""
    s.linux_only(subject, "the workflow")
    lock = subject.lock
    wheels = [s.oneline(s.file_name(p)) for p in s.local_files(lock)]
    find_links = ["--find-links", "wheels"] if wheels else []
    options = lock_options(subject)
    check = s.shell("gpuenv", "lock", "--check", *options, *find_links) if options else ""
    create = s.shell(*s.create_command(subject, _ENV, subject.lock_file, *find_links))
    if "${{" in s.headline(lock) + check + create + subject.gpuenv.address + subject.gpuenv.wheel:
        # The author of the lock could otherwise make the workflow evaluate expressions, with its secrets.
        raise UsageError("the lock contains an expression of GitHub Actions (${{), which gpuenv never writes")
    wheel, steps = subject.gpuenv.wheel, [".github/workflows/environment.yml"]
    steps += [f"commit {wheel} as well: pip installs gpuenv from it"] if wheel else []
    steps += ["to install gpuenv from another URL or wheel, set the repository variable GPUENV"]
    steps += (
        [f"copy these wheels from the locking machine to ./wheels: {', '.join(wheels)}"] if wheels else []
    )
    rows = [*_job(subject), *_steps(subject, check, create)]
    return s.comment(subject, FORM, "", *steps) + "\n".join(rows) + "\n"


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
    default = _in_quotes(subject.gpuenv.requirement("{0}"))
    value = f"${{{{ vars.GPUENV || format({default}, github.workspace) }}}}"
    tool = '"$RUNNER_TEMP"/gpuenv'
    return [
        "      - run: |",
        f"          python -m venv {tool}",
        *(f"          {row}" for row in s.install_gpuenv(subject.lock, tool, '"$GPUENV"')),
        f'          echo {tool}/bin >> "$GITHUB_PATH"',
        "        env:",
        f"          GPUENV: {json.dumps(value)}",
    ]


def _steps(subject: Subject, check: str, create: str) -> list[str]:
    hashed = f"hashFiles({_in_quotes(subject.lock_file)})"
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
        f"          key: gpuenv-${{{{ runner.os }}}}-${{{{ runner.arch }}}}-${{{{ {hashed} }}}}",
        *_install(subject),
        *_check(check),
        "      - name: Install the lock and check hashes",
        f"        run: {json.dumps(create)}",
        "      - name: Verify without a GPU",
        f"        run: {s.shell('gpuenv', 'verify', _ENV, '--device', 'cpu')}",
        f"      - run: gpuenv run {_ENV} -- python -c 'print(\"your tests here\")'",
    ]


def _check(command: str) -> list[str]:
    if command:
        return [
            "      - name: Check that the lock is up to date",
            f"        run: {json.dumps(command)}",
        ]
    return [
        "      # The lock is for a project and an unnamed machine. With a named target in",
        "      # gpuenv.yaml this workflow can check it: gpuenv lock --check --target NAME",
    ]


def lock_options(subject: Subject) -> list[str]:
    """Return the options of `gpuenv lock` that reproduce this lock, or none.

    A lock of project files (`inputs`) does not name them, so only its own machine can reproduce it.
    """
    lock, plan = subject.lock, subject.lock.plan
    target = find_lock_target(PurePosixPath(subject.lock_file).name)
    if subject.project and target:
        return ["--target", target]
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
    """Return a string literal for GitHub's expressions."""
    return "'" + s.oneline(path).replace("'", "''") + "'"
