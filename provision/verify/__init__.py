"""Stage verify: the verdict on any environment, proved by running probes inside it.

A chain of seven stages; the first that fails is the cause and the later ones are skipped. Stages 1, 2
and 4 run in one child without any framework, 5 to 7 in one child per framework, 3 reads files. When
something failed that the user's settings could have caused, the settings are searched for the culprit.
An environment that has a lock is held against it: what has changed since is an eighth stage. The stage
`packages` (package `packages/`) is no part of the proof: it follows in `commands/package_and_check_stages.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .begun import Begun, begin
from .locate import locate
from .options import Options, device_of

# Until the first child is at work all that is imported is time that is lost; what is needed later than
# `begin` is imported while the children answer.
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..model import CudnnRelease, Environment, Event, Finding, Lock, Machine, Outcome, Target, Verdict
    from .state import Run

_PROOFS = ("runtime", "cudnn", "framework", "convolution")
"""The stages that run something of the environment. Without one that passed there is no verdict of success."""
_WITHOUT_FRAMEWORK = (
    "Install a framework there, or make an environment: gpuenv create {env} --framework torch."
)

__all__ = ["Begun", "Options", "begin", "child_environ", "locate", "verify"]


def verify(
    env: Environment,
    options: Options,
    *,
    lock: Lock | None = None,
    releases: Sequence[CudnnRelease] = (),
    target: Target | None = None,
    machine: Callable[[], Machine] | None = None,
    emit: Callable[[Event], None],
    begun: Begun | None = None,
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
    from . import drifted
    from .state import prepare

    run = prepare(begun, options, lock, releases, emit)
    run.read_machine = begun.machine.result if begun.machine else machine
    if options.quick:
        _layers(run)
        if run.device == "cpu":
            from . import perframework

            perframework.imports(run)
    else:
        from . import peers, perframework

        with perframework.ahead(run):
            _layers(run)
            peers.stage(run)
            perframework.stages(run)
    drifted.stage(run, target)
    return _verdict(run)


def child_environ(begun: Begun, options: Options) -> dict[str, str]:
    """The variables of children that import packages."""
    from . import state

    return state.child_environ(begun, options)


def _layers(run: Run) -> None:
    """Stages 1 to 4: they are a GPU's."""
    if run.device != "cpu":
        from . import lowlevel

        return lowlevel.stages(run)
    run.begun.drop()
    run.read_ahead()
    for stage in ("driver", "runtime", "libraries", "cudnn"):
        run.skip(stage, "the device is cpu")
    return None


def _verdict(run: Run) -> Verdict:
    from ..model import Verdict
    from . import address_space, layers
    from .later_stages import merge_causes

    outcome: Outcome = "cpu" if run.device == "cpu" else "works"
    if not any(s.stage in _PROOFS and s.status == "pass" for s in run.stages):
        outcome = "unproven"
    bad = ("fail", "warn") if run.options.strict else ("fail",)
    if any(s.status in bad for s in run.stages):
        outcome = "wrong" if run.wrong else "fails"
    order = {"certain": 0, "likely": 1, "possible": 2}
    full = run.told is not None and layers.low_memory(run.told) is not None
    found = address_space.explained(run.stages, run.findings, full=full)
    findings = merge_causes(sorted(found, key=lambda f: order[f.confidence]))
    return Verdict(
        env=run.env.path,
        python=run.env.python,
        verdict=outcome,
        stages=tuple(run.stages),
        frameworks=tuple(run.verdicts),
        findings=findings,
        hint=_hint(run, outcome, findings),
        drift=run.drift,
    )


def _hint(run: Run, outcome: Outcome, findings: Sequence[Finding]) -> str | None:
    """One sentence: what to do."""
    if outcome in ("works", "cpu"):
        return None
    if findings and findings[0].fix:
        return findings[0].fix
    first = next((s for s in run.stages if s.status == "fail"), None)
    if first is None and outcome == "unproven":
        if run.found.frameworks:
            return "Nothing of the environment was run; verify without --quick runs its framework."
        return _without_framework(run.env)
    if first is None:
        return "Only warnings stand against it; verify without --strict accepts them."
    if first.stage == "framework" and not run.found.frameworks:
        return _without_framework(run.env)
    return f"The {first.stage} stage failed: {first.detail}. Run gpuenv diagnose --env {run.env.path}."


def _without_framework(env: Environment) -> str:
    """Return what to do about an environment without a framework. Where another tool made it, create would refuse its
    path."""
    import shlex

    return _WITHOUT_FRAMEWORK.format(env=shlex.quote(env.path) if env.made_by_gpuenv else "NEW")
