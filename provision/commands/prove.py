"""Prove what `create` and its like built: the stages before the commit, those after it, and the verdict that is kept."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

from ..config.options import get_cache_dir
from ..detect import machine_for_verdict
from ..environment import state
from ..errors import GpuenvError
from ..model import Event, Machine, Verdict, as_plain, from_plain
from ..system.cache import move_bytecode
from .job import BuildJob
from .verify import (
    Examination,
    PlannedChecks,
    add_later_stages,
    can_prove,
    make_options,
    plan_checks,
    run_project_checks,
    run_verification,
)


def read_kept_verdict(job: BuildJob, machine: Machine) -> Verdict | None:
    """Return the kept verdict on an environment if nothing changed since, otherwise a new one.

    Return None if verification is off or this machine cannot prove it.
    """
    checks = _plan_checks(job).digest
    under = state.list_circumstances(job.env, state.lock_digest(job.lock), machine, checks)
    kept = None if job.verify else state.find_valid_verdict(job.env, under)
    if kept is not None or job.verify is False or not can_prove(job.lock, job.machine, job.emit):
        return kept
    return with_later_stages(job, prove(job, job.env))


def _plan_checks(job: BuildJob) -> PlannedChecks:
    """Return the checks of the environment's own project, or none if they are turned off."""
    return plan_checks(job.env, make_options(job.choices, quick=job.quick), of_project=job.checks)


def with_later_stages(job: BuildJob, verdict: Verdict) -> Verdict:
    """Add the stages after the commit to a verdict, and keep it in the environment. They roll nothing back."""
    planned, options = _plan_checks(job), make_options(job.choices, quick=job.quick)
    env = state.read_environment(job.env, changed=True)
    examined = Examination(env=env, lock=job.lock, choices=job.choices, options=options)
    whole = add_later_stages(examined, verdict, job.emit)
    whole = run_project_checks(examined, whole, planned, job.emit)
    if whole.verdict == "fails" != verdict.verdict:
        stage = next(s.stage for s in whole.stages if s.status == "fail")
        text = (
            f"{job.env} was kept: its frameworks passed. A failure in stage {stage} does not cause a rollback"
        )
        job.emit(Event(kind="warning", stage="verify", text=text))
    if not job.quick:
        under = state.list_circumstances(
            job.env, state.lock_digest(job.lock), machine_for_verdict(), planned.digest
        )
        state.keep_verdict(job.env, whole, under)
    return whole


def prove(job: BuildJob, prefix: Path) -> Verdict:
    """Prove the environment at `prefix`, and keep the verdict in it.

    `prefix` may be a draft of the environment. Everything shown and kept names the final place.
    """

    def settled(text: str) -> str:
        return text.replace(str(prefix), str(job.env))

    def emit(event: Event) -> None:
        job.emit(dataclasses.replace(event, text=settled(event.text)))

    try:
        with move_bytecode(get_cache_dir(job.choices), job.env, prefix):
            env = state.read_environment(prefix, changed=True)
            examined = Examination(
                env=env,
                lock=job.lock,
                choices=job.choices,
                options=make_options(job.choices, quick=job.quick),
            )
            verdict = run_verification(examined, emit)
    except GpuenvError as error:
        error.message, error.hint = settled(error.message), error.hint and settled(error.hint)
        raise
    verdict = _at_place(verdict, prefix, job.env)
    if not job.quick:
        under = state.list_circumstances(prefix, state.lock_digest(job.lock), machine_for_verdict())
        state.keep_verdict(prefix, verdict, under)
    return verdict


def _at_place(verdict: Verdict, prefix: Path, env: Path) -> Verdict:
    """Return the verdict with the path of the draft replaced by the environment's final path."""
    old, new = (json.dumps(str(p))[1:-1] for p in (prefix, env))
    return from_plain(Verdict, json.loads(json.dumps(as_plain(verdict)).replace(old, new)))
