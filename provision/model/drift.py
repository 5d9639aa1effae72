"""What changed in an environment since it was built."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

ChangeKind = Literal["replaced", "removed", "modified", "overwritten", "python", "driver", "gpu", "cudnn"]


@dataclass(frozen=True, kw_only=True, slots=True)
class EnvironmentChange:
    """What is not as the lock has it, in a sentence: a package (of another version, gone, changed since
    it was installed, or written over by `by`, which the lock does not name), the Python, the machine's
    driver and GPUs, or the cuDNN that was loaded. `paths` are files that show it."""

    kind: ChangeKind
    name: str
    text: str
    locked: str | None = None
    found: str | None = None
    by: str | None = None
    paths: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class UnlockedPackage:
    """An installed package that the lock does not name. `over` are the locked packages some of whose files
    it lists too, with other bytes; `requires` the names that it requires, those of extras included;
    `conda` says that a channel brought it."""

    name: str
    version: str
    over: tuple[str, ...] = ()
    requires: tuple[str, ...] = ()
    conda: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Drift:
    """How an environment differs from its lock."""

    changes: tuple[EnvironmentChange, ...] = ()
    strangers: tuple[UnlockedPackage, ...] = ()
