"""Stage verify: the verdict on an environment, from probes that run inside it.

Seven stages run in order. The first that fails is the cause, and the later ones are skipped. Stages 1, 2 and 4
run in one child without a framework. Stage 3 reads files. Stages 5 to 7 run in one child per framework. If a
stage fails, the user's settings are searched for the culprit. An environment with a lock gets an eighth stage:
its differences from the lock. The stage `packages` is not part of the proof: `commands/verify_packages.py` runs
it afterwards.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..environment.locate import locate_environment
from .early_probes import EarlyProbes, begin
from .options import Baseline, Options, device_of

# Imports delay the start of the first child. So modules that are needed after `begin` are imported later, while the
# children run.
if TYPE_CHECKING:
    from collections.abc import Callable

    from ..model import Environment, Event, Verdict
    from .verification_state import Verification


__all__ = ["Baseline", "EarlyProbes", "Options", "begin", "child_environ", "locate_environment", "verify"]

NO_BASELINE = Baseline()


def verify(
    env: Environment,
    options: Options,
    baseline: Baseline = NO_BASELINE,
    *,
    emit: Callable[[Event], None],
    early_probes: EarlyProbes | None = None,
) -> Verdict:
    """Prove an environment, or name the layer that is broken. `early_probes` is the result of `begin`.

    Raise UsageError for an unknown device or framework, and if the environment's Python does not start. Every other
    failure is part of the verdict.
    """
    if early_probes is None:
        with begin(env, options, driver=device_of(options, baseline.lock)[0] != "cpu") as started:
            return verify(env, options, baseline, emit=emit, early_probes=started)
    from .drift.judge_drift import judge_drift
    from .make_verdict import make_verdict
    from .verification_state import prepare

    run = prepare(early_probes, options, baseline, emit)
    if options.quick:
        _run_layers(run)
        if run.device == "cpu":
            from . import run_frameworks

            run_frameworks.import_frameworks(run)
    else:
        from . import run_frameworks, several_gpus

        with run_frameworks.import_early(run):
            _run_layers(run)
            several_gpus.run_peers(run)
            run_frameworks.run_frameworks(run)
    judge_drift(run)
    return make_verdict(run)


def child_environ(early_probes: EarlyProbes, options: Options) -> dict[str, str]:
    """Return the variables of children that import packages."""
    from . import verification_state

    return verification_state.child_environ(early_probes, options)


def _run_layers(run: Verification) -> None:
    """Run stages 1 to 4, which need a GPU."""
    if run.device != "cpu":
        from . import run_lowlevel

        return run_lowlevel.run_lowlevel(run)
    run.early_probes.drop()
    run.read_ahead()
    for stage in ("driver", "runtime", "libraries", "cudnn"):
        run.skip(stage, "not needed on the CPU")
    return None
