"""Inputs of diagnose beside the texts: tables, rules, and the place of the failure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..model import Device, GpuMemoryHolder, Machine, Plan, Profiles, Request, Target, Verdict
from .context import Installed
from .how_run_program_ended import Ran

Advise = Callable[[Request, Target], Plan]
Serves = Callable[[Sequence[str], str], bool]


@dataclass(frozen=True, kw_only=True, slots=True)
class Knowledge:
    """The profiles, and the rules of `resolve`, which is another stage and so passed in.

    `serves(kernels, capability)` returns whether a GPU runs any of the kernels. `advise` makes a plan for the
    target of the text or machine, for fixes with versions.
    """

    profiles: Profiles
    serves: Serves
    advise: Advise | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Circumstances:
    """The machine, the environment and the program of a failure, as far as they are known.

    `here` is true if the program ran on `machine` just now, `is_named` if the user named the machine of the texts.
    `device` is that of the environment: with "cpu", no cause requires a GPU. `holders` lists the processes that use
    the memory of the machine's GPUs; it is called only if they matter. `ran` is how the program ended, if gpuenv ran
    it. `installed` is the environment that the texts are probably from.
    """

    machine: Machine | None = None
    verdict: Verdict | None = None
    here: bool = False
    is_named: bool = False
    device: Device | None = None
    holders: Callable[[], Sequence[GpuMemoryHolder]] | None = None
    ran: Ran | None = None
    installed: Installed | None = None

    @property
    def is_of_machine(self) -> bool:
        """Whether the texts are of `machine`, so that its facts prove causes."""
        return self.here or self.is_named
