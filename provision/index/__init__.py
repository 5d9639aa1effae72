"""The one door to HTTP: indexes, wheels read in parts, sizes, and pip's configuration.

Names are looked up when they are used: most commands want pip's configuration and no HTTP client.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .addresses import Addresses, address_of, with_credentials
    from .fetching import Wanted, digests, download, is_right, part
    from .http import AT_ONCE, Http, Response
    from .links import find_links, wheel_named
    from .pipconf import PipConfig, default_index, parse_pip_conf, pip_configuration, pip_files
    from .reachable import NETWORK_HINT, connection_error
    from .simple import File, parse_project, project_files
    from .stock import holdings
    from .wheels import RangeFile, local_metadata, member, metadata, metadata_of, open_wheel

_HOME = {
    "AT_ONCE": "http",
    "Addresses": "addresses",
    "File": "simple",
    "NETWORK_HINT": "reachable",
    "address_of": "addresses",
    "connection_error": "reachable",
    "Http": "http",
    "PipConfig": "pipconf",
    "RangeFile": "wheels",
    "Response": "http",
    "Wanted": "fetching",
    "default_index": "pipconf",
    "digests": "fetching",
    "download": "fetching",
    "find_links": "links",
    "is_right": "fetching",
    "holdings": "stock",
    "local_metadata": "wheels",
    "member": "wheels",
    "metadata": "wheels",
    "metadata_of": "wheels",
    "open_wheel": "wheels",
    "part": "fetching",
    "parse_pip_conf": "pipconf",
    "parse_project": "simple",
    "pip_configuration": "pipconf",
    "pip_files": "pipconf",
    "project_files": "simple",
    "wheel_named": "links",
    "with_credentials": "addresses",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{_HOME[name]}", __name__), name)


__all__ = [
    "AT_ONCE",
    "NETWORK_HINT",
    "Addresses",
    "File",
    "Http",
    "PipConfig",
    "RangeFile",
    "Response",
    "Wanted",
    "address_of",
    "connection_error",
    "default_index",
    "digests",
    "download",
    "find_links",
    "holdings",
    "is_right",
    "local_metadata",
    "member",
    "metadata",
    "metadata_of",
    "open_wheel",
    "parse_pip_conf",
    "parse_project",
    "part",
    "pip_configuration",
    "pip_files",
    "project_files",
    "wheel_named",
    "with_credentials",
]
