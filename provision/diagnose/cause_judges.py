"""The list of functions that derive causes from facts and tables."""

from __future__ import annotations

from . import (
    hardware,
    judge_address_space,
    judge_import_order,
    judge_installs,
    judge_kernel_module,
    judge_machine,
    judge_system_libraries,
    judge_windows_dlls,
    libraries,
    packages,
    processes,
)
from .candidates import Judge

JUDGES: tuple[Judge, ...] = (
    judge_machine.driver,
    judge_machine.memory,
    judge_machine.reserved_memory,
    judge_kernel_module.other_kernel,
    hardware.kernels,
    hardware.platform,
    libraries.cudnn_pair,
    libraries.cudnn_missing,
    libraries.cuda_missing,
    libraries.listed,
    libraries.unopened,
    judge_windows_dlls.procedure,
    judge_windows_dlls.zlib,
    judge_installs.jax_build,
    judge_installs.pins,
    judge_installs.tried_releases,
    judge_installs.emptied,
    judge_installs.known_bad,
    judge_system_libraries.missing,
    packages.half_removed,
    packages.module,
    packages.damaged,
    processes.killed,
    processes.memory,
    judge_address_space.limited,
    processes.open_files,
    processes.crash,
    judge_import_order.import_order,
    judge_import_order.works_alone,
)
