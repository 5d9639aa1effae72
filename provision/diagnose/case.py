"""One failure: its text and what is known beside it, and the causes that judges propose for it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from pathlib import Path

from ..model import (
    Confidence,
    Device,
    Evidence,
    FailureCause,
    GpuMemoryHolder,
    Machine,
    Plan,
    Profiles,
    Request,
    Target,
    Verdict,
)
from ..model.values import Value
from ..system.kernels import find_run_mode
from .facts import Facts, get_name
from .lines import Line, Raised, ShellCommand, read_commands, read_exceptions
from .messages import Messages

_SHORT, _WIDTH = 1200, 400  # lines, and characters of each, that are read as one text


class Ran(Value):
    """The end of a program that gpuenv ran, and its environment. None means unknown. All sizes are in bytes.

    `signal` is the signal that ended it; 128 + n of a shell counts too. `oom_kills` counts the processes that
    the kernel killed when memory ran out, and `oom_source` names the counter. `address_space` and `open_files`
    are its limits, or None. `memory` is that of the machine or its container. `env` is its environment, and `folders` are
    those of its own modules.
    """

    signal: str | None = None
    oom_kills: int | None = None
    oom_source: str | None = None
    address_space: int | None = None
    open_files: int | None = None
    memory: int | None = None
    made_by_gpuenv: bool = False
    env: Path | None = None
    folders: Sequence[Path] = ()


class Installed(Value):
    """The environment at `path`: the versions of its distributions, its Python, and the device it was made for.

    `made_by_gpuenv` is true if gpuenv made it. `why` says what names the environment.
    """

    path: str
    why: str
    versions: Mapping[str, str] = field(default_factory=dict)
    python: str | None = None
    device: Device | None = None
    made_by_gpuenv: bool = False


class Circumstances(Value):
    """The machine, the environment and the program of a failure, as far as they are known.

    `is_named` is true if the user named the machine of the texts. `device` is that of the environment: with "cpu", no
    cause requires a GPU. `holders` lists the processes that use the memory of the machine's GPUs; it is called only if
    they matter. `ran` is the program that gpuenv just ran on `machine`, `installed` the environment that the texts are
    probably from.

    `resolve` makes plans for fixes with versions: no stage imports another.
    """

    resolve: Callable[[Request, Target, Profiles], Plan] | None = None
    machine: Machine | None = None
    verdict: Verdict | None = None
    is_named: bool = False
    device: Device | None = None
    holders: Callable[[], Sequence[GpuMemoryHolder]] | None = None
    ran: Ran | None = None
    installed: Installed | None = None

    @property
    def is_of_machine(self) -> bool:
        """Whether the texts are of `machine`, so that its facts prove causes."""
        return self.is_named or self.ran is not None


class Case(Value):
    """What the judges compare: the lines, messages and facts of the text, the tables, and the circumstances.

    `added` is the evidence of the facts that the text itself does not have. `plans` are those that resolve made for the
    target of the text.
    """

    lines: Sequence[Line]
    facts: Facts
    profiles: Profiles
    circumstances: Circumstances
    added: set[Evidence] = field(default_factory=set)
    plans: dict[Request, Plan] = field(default_factory=dict)

    @functools.cached_property
    def causes(self) -> dict[str, FailureCause]:
        return {c.cause: c for c in self.profiles.causes}

    @functools.cached_property
    def excluded(self) -> frozenset[str]:
        """The causes that an environment for the CPU cannot have: frameworks print there that they find no GPU."""
        of_cpu = self.circumstances.device == "cpu"
        return frozenset(c.cause for c in self.profiles.causes if of_cpu and c.about_gpu)

    @functools.cached_property
    def messages(self) -> Messages:
        return Messages(self.lines, self.profiles)

    @functools.cached_property
    def text(self) -> str:
        """The beginnings of the first lines, as one line."""
        return " ".join(line.text[:_WIDTH] for line in self.lines[:_SHORT])

    @functools.cached_property
    def exceptions(self) -> list[Raised]:
        return read_exceptions(self.lines)

    @functools.cached_property
    def commands(self) -> list[ShellCommand]:
        return read_commands(self.lines)

    def names_other_driver(self) -> bool:
        """Return whether the text has another driver than the machine, so that it is of another machine."""
        machine = self.circumstances.machine
        return machine is not None and self.facts.first("driver") not in (None, machine.target.driver)

    @property
    def capability(self) -> str | None:
        """The text's GPU, by its number or the name of its board."""
        return self.facts.first("capability") or self.facts.first("board_capability")

    @functools.cached_property
    def cuda_built(self) -> str | None:
        """The CUDA of the framework's build, from the text or from its release on the default index."""
        if stated := self.facts.first("cuda_build"):
            return stated
        for name in ("torch", "tensorflow"):
            key = (name, self.facts.first(name), "pypi")
            found = {b.cuda for b in self.profiles.builds if (b.framework, b.version, b.index) == key}
            if len(cudas := found - {None}) == 1:
                return cudas.pop()
        return None

    def runs_any(self, kernels: Sequence[str], capability: str) -> bool:
        """Return whether a GPU runs any of the kernels."""
        return find_run_mode(tuple(kernels), capability, self.profiles.tegra) is not None

    def find_driver_floor(self, cuda: str) -> str | None:
        """Return the oldest driver for a CUDA on the text's system."""
        windows = self.facts.holds("os=windows") or self.facts.holds("os=wsl")
        return self.profiles.find_driver_floor(cuda, windows=windows)

    def find_message(self, *names: str) -> tuple[Evidence, ...]:
        """Return the first lines of the first of these messages that the text has."""
        return next((found for name in names if (found := self.messages.find((f"@{name}",)))), ())

    def find_condition(self, condition: str) -> tuple[Evidence, ...]:
        """Return the lines of a condition: a message of the text, or a fact that is true."""
        if condition in self.messages:
            return self.find_message(condition)
        return self.facts.find_lines(get_name(condition)) if self.facts.holds(condition) else ()


# --- candidates --------------------------------------------------------------------------------

LIKELY, FAINT = 66, 22
"""How a weight is read, in the judges and in the rows of failures.yaml. It is no probability: it orders the causes that
one text allows, and those of one confidence.

- 88 to 98: proof. Two facts contradict each other, such as a driver and the minimum of a CUDA, or a program names the cause.
- from LIKELY: the words are mostly of this cause. 80 and more have a second sign, such as the place.
- 40 to 65: words of several causes, the likelier first.
- from FAINT: a guess, for a text that shows nothing else. A cause below it is not worth a line.
- 0: a fact contradicts the cause (`rule_out`).

`confidence` overrides the scale where the words alone do not decide.
"""


class Candidate(Value, kw_only=False):
    """A cause that a text allows, and its evidence. LIKELY says how `weight` is read.

    Weight 0 is a veto: the cause is shown only if another candidate is certain. `title` replaces that of the cause. `slots` are
    values that only this candidate has: they fill its title and fix, and its fix can require them.
    """

    cause: str
    weight: int
    confidence: Confidence
    evidence: tuple[Evidence, ...]
    title: str | None = None
    slots: Mapping[str, str] = field(default_factory=dict)


def candidate(
    cause: str,
    weight: int,
    evidence: Iterable[Evidence],
    title: str | None = None,
    *,
    confidence: Confidence | None = None,
    **slots: str | None,
) -> Candidate:
    """Return a candidate. Its weight says whether it is likely, unless `confidence` does. A slot of None is unknown."""
    sure = confidence or ("likely" if weight >= LIKELY else "possible")
    known = {name: value for name, value in slots.items() if value is not None}
    return Candidate(cause, weight, sure, tuple(dict.fromkeys(evidence)), title, known)


def rule_out(*causes: str) -> list[Candidate]:
    """Return candidates that rule causes out, because a fact contradicts them."""
    return [candidate(cause, 0, ()) for cause in causes]
