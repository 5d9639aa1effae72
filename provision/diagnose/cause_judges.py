"""The list of functions that derive causes from facts and tables."""

from __future__ import annotations

from . import (
    judge_address_space,
    judge_build,
    judge_import_order,
    judge_installs,
    judge_kernel_module,
    judge_libraries,
    judge_limits_and_crashes,
    judge_machine,
    judge_missing_and_damaged,
    judge_system_libraries,
    judge_windows_dlls,
)
from .candidates import Judge

JUDGES: tuple[Judge, ...] = (
    judge_machine.driver,
    judge_machine.memory,
    judge_machine.reserved_memory,
    judge_kernel_module.other_kernel,
    judge_build.kernels,
    judge_build.platform,
    judge_libraries.cudnn_pair,
    judge_libraries.cudnn_missing,
    judge_libraries.cuda_missing,
    judge_libraries.listed,
    judge_libraries.unopened,
    judge_windows_dlls.procedure,
    judge_windows_dlls.zlib,
    judge_installs.jax_build,
    judge_installs.pins,
    judge_installs.tried_releases,
    judge_installs.emptied,
    judge_installs.known_bad,
    judge_system_libraries.missing,
    judge_missing_and_damaged.half_removed,
    judge_missing_and_damaged.module,
    judge_missing_and_damaged.damaged,
    judge_limits_and_crashes.killed,
    judge_limits_and_crashes.memory,
    judge_address_space.limited,
    judge_limits_and_crashes.open_files,
    judge_limits_and_crashes.crash,
    judge_import_order.import_order,
    judge_import_order.works_alone,
)
