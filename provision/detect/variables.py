"""The environment variables that matter to a GPU environment, without their secrets."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ..system.redaction import redact_text

NAMES = frozenset(
    (
        "CUDA_DEVICE_ORDER",
        "CUDA_HOME",
        "CUDA_MODULE_LOADING",
        "CUDA_PATH",
        "CUDA_ROOT",
        "CUDA_VISIBLE_DEVICES",
        "CONDA_PREFIX",
        "LD_LIBRARY_PATH",
        "LD_PRELOAD",
        "NVIDIA_DRIVER_CAPABILITIES",
        "NVIDIA_REQUIRE_CUDA",
        "NVIDIA_VISIBLE_DEVICES",
        "PYTHONHOME",
        "PYTHONPATH",
        "PYTHONNOUSERSITE",
        "VIRTUAL_ENV",
        "SLURM_JOB_ID",
        "TRITON_PTXAS_PATH",
    )
)
PREFIXES = (
    "CONDA_OVERRIDE_",
    "CUDNN_",
    "JAX_",
    "NCCL_",
    "PYTORCH_",
    "TF_",
    "TORCH_",
    "XLA_",
)
# Terraform's, not TensorFlow's.
OTHERS = ("TF_CLI_", "TF_DATA_DIR", "TF_LOG", "TF_TOKEN_", "TF_VAR_", "TF_WORKSPACE")
SECRET = re.compile(r"TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL|API_?KEY|PRIVATE", re.IGNORECASE)


def redacted(name: str, value: str) -> str:
    """Return a value with the credentials of its addresses hidden, all of it where the name is a secret's."""
    if SECRET.search(name):
        return "***"
    return redact_text(value, stars=True)


def read_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that matter, sorted by name."""
    return {
        name: redacted(name, value)
        for name, value in sorted(environ.items())
        if name in NAMES or (name.startswith(PREFIXES) and not name.startswith(OTHERS))
    }
