"""Run the verification of an environment, for `verify` and `create`."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .. import verify
from ..config import options as where
from ..config.options import Choices
from ..model import Emit
from .verdict_inputs import machine_for_verdict

if TYPE_CHECKING:
    from ..model import Environment, Lock, Machine, Verdict


def run_verification(
    emit: Emit,
    env: Environment,
    lock: Lock | None,
    choices: Choices,
    begun: verify.EarlyProbes | None = None,
    **options: Any,
) -> Verdict:
    """Return the verdict on an environment, compared with its lock if it has one."""
    from ..config import rows

    wanted = make_options(choices, options)
    read = begun.machine.result if begun and begun.machine else functools.cache(make_lock_reader(wanted))
    here = read().target if wanted.locked else None
    known = rows.load_for_verdict(choices).cudnn
    baseline = verify.Baseline(lock=lock, releases=known, target=here, read_machine=read)
    verdict = verify.verify(env, wanted, baseline, emit=emit, early_probes=begun)
    loose = tuple(f"{p.name} {p.version} ({p.url})" for p in lock.packages if p.unhashed) if lock else ()
    if verdict.findings:
        from . import insert_rebuild_commands

        verdict = insert_rebuild_commands.add_rebuild_commands(verdict, env, lock)
    return dataclasses.replace(verdict, unhashed=loose, made_for=lock.plan.device if lock else None)


def make_lock_reader(options: verify.Options) -> Callable[[], Machine]:
    """Return a function that reads this machine's driver and GPUs within the time limit of a stage."""
    return lambda: machine_for_verdict(seconds=min(options.timeout, 30.0))


def make_options(choices: Choices, settings: dict[str, Any]) -> verify.Options:
    """Return the options of the verify stage, with the cache folder for files that must stay out of the
    environment."""
    return verify.Options(cache_dir=where.get_cache_dir(choices), **settings)
