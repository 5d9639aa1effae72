"""Starts the Python of an environment, which runs the environment's code.

Only here is it started by gpuenv. Other modules import this one in functions, so that a command that reads does not load it:
`tests/commands/test_whose_code_runs.py`.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..errors import UsageError
from ..model import Environment
from ..system import process, trust
from ..system.redaction import clean
from .place import suggest_environment

_OF_THE_MACHINE = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN)
_ASK = "import sys; sys.stdout.write('gpuenv %d.%d.%d' % sys.version_info[:3])"


def start(python: str | os.PathLike[str], arguments: Sequence[str], **options: Any) -> process.Finished:
    """Run an environment's Python with arguments, and with the options of `process.run`.

    Raises OSError if it cannot be started, and UntrustedError for root if another user can change it.
    """
    trust.may_start(Path(python), named=True)
    return process.run([os.fspath(python), *arguments], **options)


def ask_version(env: Environment) -> str:
    """Return the version that the Python of an environment prints. Raises UsageError for what is no Python.

    The arguments mean nothing to a program that is not Python. Its output is accepted only if it begins with
    "gpuenv".
    """
    place = Path(env.path if env.manager else env.python)
    try:
        finished = start(env.python, ("-I", "-S", "-B", "-c", _ASK), timeout=30)
    except OSError as error:
        if error.errno in _OF_THE_MACHINE:
            raise
        raise UsageError(
            f"{place} is not a Python interpreter: {error.strerror or error}", hint=suggest_environment(place)
        ) from error
    words = finished.stdout.split()
    if not finished.ok or words[:1] != ["gpuenv"]:
        log = clean(finished.stderr or finished.stdout)[-2000:]
        raise UsageError(
            f"{place} is not a working Python interpreter", hint=suggest_environment(place), log=log or None
        )
    return words[1]
