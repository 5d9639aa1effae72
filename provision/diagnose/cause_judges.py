"""The list of functions that derive causes from facts and tables."""

from __future__ import annotations

from . import (
    judge_build,
    judge_import_order,
    judge_libraries,
    judge_machine,
    judge_missing_and_damaged,
    judge_process,
    judge_system_libraries,
)
from .candidates import Judge

JUDGES: tuple[Judge, ...] = (
    judge_machine.driver,
    judge_machine.memory,
    judge_build.kernels,
    judge_build.platform,
    judge_libraries.cudnn_pair,
    judge_libraries.cudnn_missing,
    judge_libraries.cuda_missing,
    judge_system_libraries.missing,
    judge_missing_and_damaged.module,
    judge_missing_and_damaged.damaged,
    judge_process.killed,
    judge_process.memory,
    judge_process.open_files,
    judge_process.crash,
    judge_import_order.import_order,
)
