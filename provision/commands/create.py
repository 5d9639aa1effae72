"""`gpuenv create`: build an environment that fits the machine, and prove it."""

from __future__ import annotations

import dataclasses

from ..errors import UsageError
from ..model import CreateResult, Emit, Plan, drop_event
from .create_options import CreateOptions


def create(options: CreateOptions, emit: Emit = drop_event) -> CreateResult | Plan:
    """Build an environment that fits this machine, and prove it. With `dry_run` return the plan."""
    from ..config import options as where, record
    from ..config.env import choose_env_to_change
    from ..config.options import refuse_framework_as_path
    from . import up_to_date

    if options.locked and options.frozen:
        raise UsageError(
            "--locked and --frozen cannot be used together",
            hint="--frozen installs the lock without checking it",
        )
    if not options.choices.framework:
        refuse_framework_as_path(options.env)
    env = choose_env_to_change(emit, options.env)
    if options.adopt:
        from .adopt import adopt

        if options.takes_lock or options.recreate or options.dry_run or options.choices.framework:
            raise UsageError(
                "--adopt takes the packages that are there: it cannot be used with options that choose others",
                hint="gpuenv create --adopt",
            )
        return adopt(emit, where.make_absolute(env), options.choices, options)
    lock, recreate = options.takes_lock, options.recreate
    choices = record.recall_for_create(
        where.make_absolute(env), options.choices, emit, lock=lock, recreate=recreate
    )
    if options.is_plain and (
        there := up_to_date.describe_up_to_date(emit, env, choices, brief=options.brief)
    ):
        return there
    from . import jupyter_kernel

    if options.bundle:
        from ..bundle import install

        if options.lock:
            raise UsageError(
                "--bundle and --lock cannot be used together: a bundle contains its own lock",
                hint="leave one of them out",
            )
        choices, of_bundle = install.open_bundle(options.bundle, choices, emit)
        options = dataclasses.replace(options, lock=of_bundle)
    return jupyter_kernel.create_with_kernel(emit, where.make_absolute(env), choices, options)
