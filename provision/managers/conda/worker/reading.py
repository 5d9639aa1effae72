"""Files that only the engine reads and writes: pixi.lock, and the index of a channel."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .solving import as_plain


async def pixi(request: dict[str, Any]) -> dict[str, Any]:
    """The conda packages of one environment and platform of a pixi.lock, and what else it names."""
    from rattler import LockFile

    read = LockFile.from_path(Path(request["path"]))
    environment = read.default_environment() or next((e for _, e in read.environments()), None)
    if environment is None:
        raise ValueError("it holds no environment")
    platform = next((p for p in environment.platforms() if str(p.name) == request["subdir"]), None)
    if platform is None:
        names = " ".join(str(p.name) for p in environment.platforms())
        raise ValueError(f"it holds no packages for {request['subdir']} (only {names})")
    records = environment.conda_repodata_records_for_platform(platform) or []
    return {"records": [as_plain(r) for r in records]}


async def index(request: dict[str, Any]) -> dict[str, Any]:
    """Make a folder of packages a channel."""
    from rattler.index import index_fs

    folder = Path(request["folder"])
    (folder / "noarch").mkdir(parents=True, exist_ok=True)
    await index_fs(folder, write_zst=False, write_shards=False, force=True)
    return {"indexed": str(folder)}
