"""Stage verify: the verdict on any environment, proved by running probes inside it.

A chain of seven stages; the first that fails is the cause and the later ones are skipped. Stages 1, 2
and 4 run in one child without any framework, 5 to 7 in one child per framework, 3 reads files. When
something failed that the user's settings could have caused, the settings are searched for the culprit.
An environment that has a lock is held against it: what has changed since is an eighth stage. The stage
`packages` (package `packages/`) is no part of the proof: it follows in `commands/later_stages.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .locate import locate
from .options import Options, device_of
from .prefetch import Prefetch, begin

# Until the first child is at work all that is imported is time that is lost; what is needed later than
# `begin` is imported while the children answer.
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..model import CudnnRelease, Environment, Event, Lock, Machine, Target, Verdict
    from .verification import Verification


__all__ = ["Options", "Prefetch", "begin", "child_environ", "locate", "verify"]


def verify(
    env: Environment,
    options: Options,
    *,
    lock: Lock | None = None,
    releases: Sequence[CudnnRelease] = (),
    target: Target | None = None,
    machine: Callable[[], Machine] | None = None,
    emit: Callable[[Event], None],
    begun: Prefetch | None = None,
) -> Verdict:
    """Prove an environment, or name the layer that is broken. `target` is this machine, to be held
    against the lock's; `machine` reads its driver and GPUs, which the environment's reports must agree with;
    `begun` is what was asked already (`begin`).

    Raises UsageError for a device or framework that cannot be meant, and where the environment's
    Python does not even start. Everything else that can go wrong is the verdict.
    """
    if begun is None:
        with begin(env, options, driver=device_of(options, lock)[0] != "cpu") as started:
            return verify(
                env,
                options,
                lock=lock,
                releases=releases,
                target=target,
                machine=machine,
                emit=emit,
                begun=started,
            )
    from .drift.judge_drift import judge_drift
    from .make_verdict import make_verdict
    from .verification import prepare

    run = prepare(begun, options, lock, releases, emit)
    run.read_machine = begun.machine.result if begun.machine else machine
    if options.quick:
        _layers(run)
        if run.device == "cpu":
            from . import run_frameworks

            run_frameworks.import_frameworks(run)
    else:
        from . import check_gpus, run_frameworks

        with run_frameworks.import_early(run):
            _layers(run)
            check_gpus.run_peers(run)
            run_frameworks.run_frameworks(run)
    judge_drift(run, target)
    return make_verdict(run)


def child_environ(begun: Prefetch, options: Options) -> dict[str, str]:
    """The variables of children that import packages."""
    from . import verification

    return verification.child_environ(begun, options)


def _layers(run: Verification) -> None:
    """Stages 1 to 4: they are a GPU's."""
    if run.device != "cpu":
        from . import run_lowlevel

        return run_lowlevel.run_lowlevel(run)
    run.begun.drop()
    run.read_ahead()
    for stage in ("driver", "runtime", "libraries", "cudnn"):
        run.skip(stage, "the device is cpu")
    return None
