"""Export the lock itself: pylock.toml (PEP 751) or conda-lock.yml."""

from __future__ import annotations

from ..errors import UsageError
from . import export_subject_and_shared_texts as s
from .export_subject_and_shared_texts import Subject


def pylock(subject: Subject) -> str:
    """Return the text of a pylock.toml. Raises UsageError for a conda lock."""
    s.venv_only(subject, "pylock", "conda-lock")
    return s.comment(subject, "pylock") + subject.lock_text


def conda_lock(subject: Subject) -> str:
    """Return the text of a conda-lock.yml. Raises UsageError for a lock of wheels.

    conda-lock.yml needs a python package with its hash, which only a solve of the channels can give.
    """
    if subject.lock.manager != "conda":
        raise UsageError(
            "the lock contains only wheels. conda-lock.yml also needs conda packages, at least python",
            hint="create a conda lock with gpuenv lock --manager conda, or export with --format environment.yml",
        )
    return s.comment(subject, "conda-lock") + subject.lock_text
