"""The one door to HTTP: indexes, wheels read in parts, sizes, and pip's configuration."""

from __future__ import annotations

from .http import AT_ONCE, Http, Response, redact
from .pipconf import PipConfig, default_index, parse_pip_conf, pip_configuration, pip_files
from .simple import File, parse_project, project_files
from .wheels import (
    RangeFile,
    find_links,
    local_metadata,
    member,
    metadata,
    metadata_of,
    open_wheel,
    wheel_named,
)

__all__ = [
    "AT_ONCE",
    "File",
    "Http",
    "PipConfig",
    "RangeFile",
    "Response",
    "default_index",
    "find_links",
    "local_metadata",
    "member",
    "metadata",
    "metadata_of",
    "open_wheel",
    "parse_pip_conf",
    "parse_project",
    "pip_configuration",
    "pip_files",
    "project_files",
    "redact",
    "wheel_named",
]
