"""Solves questions with the engine, reads pixi.lock, and indexes a channel."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from . import channel_access, progress_and_timeouts
from .channel_access import strip_url


async def solve(request: dict[str, Any]) -> dict[str, Any]:
    """Return the first solution of `attempts`, and the explanation if the first attempt failed.

    Packages with an address in `prefer` keep their versions if possible.
    """
    from rattler import Gateway, SourceConfig

    rc = request["rc"]
    config = channel_access.config(rc)
    action: Any = "force-cache-only" if request["offline"] else "cache-or-fetch"
    gateway = Gateway(
        cache_dir=Path(request["cache"]) / "repodata",
        client=channel_access.client(config, request),
        default_config=SourceConfig(cache_action=action),
    )
    channels = channel_access.channels(request, config)
    shown = [strip_url(c.base_url) for c in channels]
    progress_and_timeouts.awaited.update(shown)
    progress_and_timeouts.tell("reading", channels=shown)
    asking = _Solver(gateway, channels, request["subdirs"], _read_priority(rc))
    attempts = request["attempts"]
    missing = await asking.missing(sorted({n for a in attempts for n in _list_names(a)}))
    answer: dict[str, Any] = {"missing": sorted(missing), "channels": shown, "lacking": []}
    if "python" in missing:
        return answer
    if request["prefer"]:
        asking.locked = await asking.preferred(request["prefer"])
    for attempt in attempts:
        specs, lacking = _choose(attempt, missing, {url.rstrip("/").rsplit("/", 1)[-1] for url in shown})
        if attempt is attempts[0]:
            answer["lacking"] = lacking
        elif lacking:
            continue
        outcome = await asking.attempt(attempt, specs, exactly=attempt is attempts[0])
        if isinstance(outcome, list):
            return answer | {"label": attempt["label"], "records": outcome}
        answer.setdefault("refusal", outcome)
    return answer


def _name(spec: str) -> str:
    return spec.split(maxsplit=1)[0]


def _list_names(attempt: dict[str, Any]) -> list[str]:
    """Return every package that an attempt may request."""
    ways = [way for _, ways in attempt["frameworks"] for way in ways]
    return ["python", *map(_name, attempt["packages"]), *(_name(s) for way in ways for s in way["specs"])]


def _choose(attempt: dict[str, Any], missing: set[str], channels: set[str]) -> tuple[list[str], list[str]]:
    """Return the specs that the channels can provide, and the frameworks that they lack."""
    specs, lacking = [attempt["python"]], []
    for framework, ways in attempt["frameworks"]:
        provided = [way for way in ways if way["channel"] in channels] or ways
        way = next((w for w in provided if not missing & set(map(_name, w["specs"]))), None)
        if way is None:
            lacking.append(framework)
        else:
            specs += way["specs"]
    specs += [s for s in attempt["packages"] if _name(s) not in missing]
    return list(dict.fromkeys(specs)), lacking


def _read_priority(rc: dict[str, Any]) -> Any:
    """Return conda's channel_priority. The default is strict, as conda-forge recommends."""
    from rattler.channel.channel_priority import ChannelPriority

    value = rc.get("channel_priority")
    word = {True: "flexible", False: "disabled", None: "strict"}.get(value, str(value).lower())
    words = {"strict": ChannelPriority.Strict, "flexible": ChannelPriority.Flexible,
             "disabled": ChannelPriority.Disabled}  # fmt: skip
    if word not in words:
        raise channel_access.ConfigurationError(
            f"channel_priority in .condarc is {value}: expected strict, flexible or disabled"
        )
    return words[word]


class _Solver:
    """The state that all attempts share."""

    def __init__(self, gateway: Any, channels: list[Any], subdirs: Any, priority: Any) -> None:
        self.gateway, self.channels, self.subdirs, self.priority = gateway, channels, subdirs, priority
        self.locked: list[Any] = []

    async def missing(self, names: list[str]) -> set[str]:
        """Return the names that no channel has."""
        records = await self.gateway.query(self.channels, self.subdirs, names, recursive=False)
        return set(names) - {record.name.normalized for of_channel in records for record in of_channel}

    async def preferred(self, urls: list[str]) -> list[Any]:
        """Return the records of these packages that the channels still have."""
        wanted = set(urls)
        names = sorted({url.rsplit("/", 1)[1].rsplit("-", 2)[0] for url in urls})
        records = await self.gateway.query(self.channels, self.subdirs, names, recursive=False)
        return [record for of_channel in records for record in of_channel if strip_url(record.url) in wanted]

    async def attempt(
        self, attempt: dict[str, Any], specs: list[str], *, exactly: bool
    ) -> list[dict[str, Any]] | str:
        """Return the records of a solution, or the solver's explanation.

        With `exactly` the preferred packages are tried unchanged first.
        """
        if exactly and self.locked:
            records = await self._solved(attempt, specs, pinned=self.locked)
            if isinstance(records, list):
                return records
        return await self._solved(attempt, specs)

    async def _solved(
        self, attempt: dict[str, Any], specs: list[str], pinned: list[Any] | None = None
    ) -> list[dict[str, Any]] | str:
        import rattler
        from rattler.exceptions import SolverError

        virtual = [
            rattler.GenericVirtualPackage(
                rattler.PackageName(v["name"]), rattler.Version(v["version"]), rattler.BuildString(v["build"])
            )
            for v in attempt["virtual"]
        ]
        try:
            records = await rattler.solve(
                self.channels,
                [rattler.MatchSpec(s) for s in specs],
                gateway=self.gateway,
                platforms=self.subdirs,
                locked_packages=self.locked,
                pinned_packages=pinned,
                virtual_packages=virtual,
                channel_priority=self.priority,
                constraints=[rattler.MatchSpec(c) for c in attempt["constraints"]],
            )
        except SolverError as error:
            return str(error)
        return [as_plain(r) for r in records]


def as_plain(record: Any) -> dict[str, Any]:
    """Return a record as JSON without credentials."""
    return {
        "name": record.name.normalized,
        "version": str(record.version),
        "build": str(record.build),
        "subdir": record.subdir,
        "url": strip_url(record.url),
        "channel": strip_url(record.channel or ""),
        "sha256": record.sha256.hex() if record.sha256 else None,
        "md5": record.md5.hex() if record.md5 else None,
        "size": record.size,
        "depends": list(record.depends),
    }


async def pixi(request: dict[str, Any]) -> dict[str, Any]:
    """Return the conda packages of an environment and platform of a pixi.lock, and the rest of its list."""
    from rattler import LockFile

    read = LockFile.from_path(Path(request["path"]))
    environment = read.default_environment() or next((e for _, e in read.environments()), None)
    if environment is None:
        raise ValueError("it has no environment")
    platform = next((p for p in environment.platforms() if str(p.name) == request["subdir"]), None)
    if platform is None:
        names = " ".join(str(p.name) for p in environment.platforms())
        raise ValueError(f"it has no packages for {request['subdir']} (only {names})")
    records = environment.conda_repodata_records_for_platform(platform) or []
    return {"records": [as_plain(r) for r in records]}


async def index(request: dict[str, Any]) -> dict[str, Any]:
    """Index a folder of packages as a channel."""
    from rattler.index import index_fs

    folder = Path(request["folder"])
    (folder / "noarch").mkdir(parents=True, exist_ok=True)
    await index_fs(folder, write_zst=False, write_shards=False, force=True)
    return {"indexed": str(folder)}
