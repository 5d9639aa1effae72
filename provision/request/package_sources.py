"""Read where packages come from: configuration, options, a bundle or a project's files."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from ..errors import GrantError, MissingVariableError, UsageError
from ..model import AvailableWheels, Lock, PackageSources, Profiles
from ..system import grants, process
from . import project_options as inproject, upload_limits
from .load_profiles import load_all
from .shared_options import Choices
from .user_grants import read_user_grants


def read_sources(c: Choices, data: Profiles | None = None) -> PackageSources:
    """Return the package sources of pip's and uv's configuration and of the options. Raises LockError,
    UsageError."""
    from ..index import pytorch_index, uv_config
    from ..index.pip_config import pip_configuration

    read_user_grants(c)
    of_uv = uv_config.variables(process.environ())
    no_build = c.no_build or uv_config.is_on(of_uv.get("UV_NO_BUILD"))
    only_binary = (*c.only_binary, *of_uv.get("UV_NO_BUILD_PACKAGE", "").split())
    if c.bundle:
        return dataclasses.replace(_of_bundle(c), no_build=no_build, only_binary=only_binary)
    config = pip_configuration(process.environ())
    for place in c.find_links:
        if not Path(place).exists():
            raise UsageError(f"--find-links {place}: no such folder", hint="check the path")
    configured = [p for p in config.find_links if "://" in p or Path(p).exists()]
    where = list_index_addresses(c, data or load_all(c))
    extra = [u for u in config.extra_index_urls if not pytorch_index.is_one(u, where["pytorch"])]
    return PackageSources(
        default=where.get("pypi") or config.index_url,
        extra=() if where.get("pypi") == c.index else tuple(extra),
        find_links=tuple(dict.fromkeys([*(str(Path(p).absolute()) for p in c.find_links), *configured])),
        pytorch=where["pytorch"],
        cert=config.cert,
        proxy=config.proxy,
        timeout=config.timeout,
        trusted=config.trusted_hosts,
        no_index=config.no_index,
        offline=c.offline,
        cache_dir=str(c.cache_dir.absolute()) if c.cache_dir else None,
        no_build=no_build,
        only_binary=only_binary,
        exclude_newer=limit.cutoff if (limit := upload_limits.read_limit(c)) else None,
        exclude_newer_except=limit.excepted if limit else (),
    )


def _of_bundle(c: Choices) -> PackageSources:
    """Return the sources of a bundle: its wheels, and no index. The configuration of pip and uv does not
    apply."""
    assert c.bundle
    wheels = c.bundle / "wheels"
    return PackageSources(
        find_links=(str(wheels),) if wheels.is_dir() else (), offline=True, no_index=True,
        cache_dir=str(c.cache_dir.absolute()) if c.cache_dir else None,
    )  # fmt: skip


def read_locked_sources(c: Choices, lock: Lock) -> PackageSources:
    """Return the sources of a lock's packages: the configuration, and indexes and folders of the project's
    files.

    Unreadable files name none; the lock decides what is installed. Raises LockError, UsageError.
    """
    data = load_all(c)
    sources = read_sources(c, data)
    if c.bundle:
        return sources
    try:
        demands = inproject.read_requirements(c, data, lock.target)
    except MissingVariableError as error:
        if any(error.variable in grants.names_in(f"{p.url} {p.index}") for p in lock.packages):
            raise
        return sources
    except GrantError:
        raise
    except UsageError:
        return sources
    return inproject.merge_sources(sources, c, demands)


def list_index_addresses(c: Choices, data: Profiles) -> dict[str, str]:
    """Return the URLs of indexes that differ from those of pip and uv.

    The order is --index, GPUENV_INDEX_PYPI and GPUENV_INDEX_PYTORCH, gpuenv.yaml, then the profiles. The PyTorch index
    always has a URL.
    """
    from ..index import pytorch_index

    environ = process.environ()
    addresses = {row.index: row.url for row in data.indexes} | c.indexes
    named = {name: environ.get(f"GPUENV_INDEX_{name.upper()}") for name in ("pypi", "pytorch")}
    if "://" in c.index:
        named |= (
            {"pytorch": pytorch_index.base_of(c.index)}
            if pytorch_index.is_one(c.index)
            else {"pypi": c.index}
        )
    return addresses | {name: url for name, url in named.items() if url}


def list_available_wheels(s: PackageSources) -> AvailableWheels:
    """Return the local wheels, and whether no others can be used."""
    from ..index.wheel_folders import find_links

    folders = [p for p in s.find_links if "://" not in p]
    return AvailableWheels(wheels=find_links(folders), only_wheels=s.offline or s.no_index)
