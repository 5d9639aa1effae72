"""Documentation of the arguments that all modules have."""

from __future__ import annotations


class ModuleDocFragment:
    """Found by ansible-doc under the name of this file."""

    DOCUMENTATION = r"""
options:
  executable:
    description: The program gpuenv, as a path or as a name on PATH.
    type: str
    default: gpuenv
  environment:
    description: Variables for gpuenv. They are shown in logs.
    type: dict
    default: {}
  secrets:
    description:
      - Variables for gpuenv that hold credentials, as E(PIP_INDEX_URL) with a password.
      - Their values appear in no log and in no result.
    type: dict
    default: {}
author:
  - gpuenv developers (@gpuenv)
"""
