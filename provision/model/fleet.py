"""Plans, locks and results of a fleet of hosts, and the manifest of a bundle."""

from dataclasses import field
from typing import ClassVar, Literal

from .machine import Target
from .plan import HostClass, Lock, Plan
from .values import Value
from .words import Device, Manager


class FleetPlan(Value):
    """One plan and the ids of its host classes, those with most hosts first. `hosts` counts their hosts.

    The plan's target has the oldest driver and glibc of the classes, and all their capabilities.
    """

    plan: Plan
    classes: tuple[str, ...]
    hosts: int


class PlanDifference(Value):
    """The reason why two plans cannot be one.

    `plans` are two positions in the list of plans, and `classes` one class of each. `reason` has the objections to
    one plan for both. `would_merge` is the change of hosts that makes one plan of the two.
    """

    plans: tuple[int, ...]
    classes: tuple[str, ...]
    reason: str
    would_merge: str | None = None


class UnservedHosts(Value):
    """Hosts without a plan: classes that no build fits, or one `host` whose driver cannot be used.

    `host` is the line or the file of a document that is no host.
    """

    hosts: int
    reason: str
    hint: str | None = None
    classes: tuple[str, ...] = ()
    host: str | None = None


class VersionCount(Value):
    """Versions of the frameworks and named packages, and the number of hosts that get them."""

    versions: dict[str, str]
    hosts: int


class HeldHosts(Value):
    """Hosts of one plan that others hold back.

    The classes `by` hold back `classes` at `versions`. With more plans most of these get `newer`. `upgrade` is the change of
    drivers or glibc that gives it to all of them in one plan, or None.
    """

    by: tuple[str, ...]
    by_hosts: int
    classes: tuple[str, ...]
    hosts: int
    versions: dict[str, str]
    newer: dict[str, str]
    upgrade: str | None = None


class PlanPrice(Value):
    """What a number of plans gives: hosts by their versions, and those that are held back.

    `chosen` marks the answer. `more` is the number of further plans that makes the held hosts newer, usually 1.
    """

    plans: int
    chosen: bool
    versions: tuple[VersionCount, ...]
    more: int = 0
    held: tuple[HeldHosts, ...] = ()


class Fleet(Value):
    """The plans for many hosts.

    `exact` says that this number of plans is proved to be the best. `at_least` is the number that is proved to be
    necessary. `prices` are those of the fewest plans, of the chosen ones, and of the best for each host.
    """

    SCHEMA = "gpuenv.fleet/1"

    classes: tuple[HostClass, ...]
    plans: tuple[FleetPlan, ...]
    apart: tuple[PlanDifference, ...] = ()
    unserved: tuple[UnservedHosts, ...] = ()
    exact: bool = True
    at_least: int = 0
    prices: tuple[PlanPrice, ...] = ()
    notes: tuple[str, ...] = ()


class FleetLock(Value):
    """The lock of one plan of a fleet, and its file."""

    file: str
    plan: int
    lock: Lock


class FleetLocks(Value):
    """The locks of a fleet, one for each plan."""

    SCHEMA = "gpuenv.fleet-locks/1"

    fleet: Fleet
    locks: tuple[FleetLock, ...]


HostVerdict = Literal[
    "works", "cpu", "unproven", "wrong", "fails", "planned", "no_plan", "error", "unreachable"
]
"""The outcomes of `verify`, and those of earlier steps.

These are `planned` (a dry run), `no_plan` (no build fits the host), `error` (a command ended without a verdict) and
`unreachable`.
"""


class HostResult(Value):
    """The result of one host.

    `ok` says whether the command succeeded. `cause` is the reason for a failure, and `hint` its fix. `seconds` is the
    time of the host's own commands.
    """

    host: str
    verdict: HostVerdict
    ok: bool
    class_: str | None = None
    plan: str | None = None
    cause: str | None = None
    hint: str | None = None
    seconds: float | None = None


class PastResult(Value):
    """What a host had at a time ("2026-01-31T12:00:00Z")."""

    FORMS: ClassVar = {"when": r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"}

    when: str
    verdict: HostVerdict
    ok: bool


class FleetResults(Value):
    """The results of all hosts, failures first, and the last ones of each host, the newest first."""

    SCHEMA = "gpuenv.fleet-results/1"

    hosts: tuple[HostResult, ...]
    history: dict[str, tuple[PastResult, ...]] = field(default_factory=dict)


class BundleFile(Value):
    """A file of a bundle: its path in it (with /), its bytes and hash (None until the file exists)."""

    path: str
    size: int | None = None
    sha256: str | None = None


class BundlePython(Value):
    """An archive of a standalone Python: uv's name for it ("cpython-3.12.16-linux-x86_64-gnu"), version and path."""

    FORMS: ClassVar = {
        "key": r"cpython-[0-9]+\.[0-9]+\.[0-9]+[a-z0-9.]*-linux-[a-z0-9_]+-gnu",
        "version": r"[0-9]+\.[0-9]+\.[0-9]+[a-z0-9.]*",
    }

    key: str
    version: str
    path: str


class BundlePlan(Value):
    """One plan of a bundle for several machines: the file of its lock and the classes of hosts that it serves. The
    other fields are those of Bundle, for this plan."""

    lock: str
    classes: tuple[HostClass, ...]
    target: Target
    device: Device
    frameworks: tuple[str, ...]
    python: str | None
    archive: BundlePython | None = None


class Bundle(Value):
    """The manifest of a bundle for machines without a network: gpuenv-bundle.json.

    `lock` is the file name of its lock, and `gpuenv` the version that made it. `asked` is a digest of its options.
    `complete` says whether every file exists. `python` is the minor version of the environment, and `archive` the
    Python in the bundle.

    A bundle for several machines has `plans`, most hosts first; its other fields describe the first plan. `unserved`
    are the hosts that no build fits.
    """

    SCHEMA = "gpuenv.bundle/1"

    gpuenv: str
    manager: Manager
    lock: str
    target: Target
    device: Device
    frameworks: tuple[str, ...]
    python: str | None
    asked: str
    complete: bool = False
    archive: BundlePython | None = None
    files: tuple[BundleFile, ...] = ()
    notes: tuple[str, ...] = ()
    plans: tuple[BundlePlan, ...] = ()
    unserved: tuple[UnservedHosts, ...] = ()
