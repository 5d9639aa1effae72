"""The solver: the first of several questions that has an answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from . import places, waiting
from .places import plain_url


async def solve(request: dict[str, Any]) -> dict[str, Any]:
    """The first of `attempts` that solves, with the refusal of the first one where it does not. Versions
    of `prefer` (addresses of packages) stay where they can."""
    from rattler import Client, Gateway, SourceConfig

    rc = request["rc"]
    config = places.config(rc)
    action: Any = "force-cache-only" if request["offline"] else "cache-or-fetch"
    gateway = Gateway(
        cache_dir=Path(request["cache"]) / "repodata",
        client=Client.from_config(config),
        default_config=SourceConfig(cache_action=action),
    )
    channels = places.channels(request, config)
    shown = [plain_url(c.base_url) for c in channels]
    waiting.awaited.update(shown)
    waiting.tell("reading", channels=shown)
    missing = []
    for name in request["names"]:
        held = await gateway.query(channels, request["subdirs"], [name], recursive=False)
        missing += [] if any(held) else [name]
    answer: dict[str, Any] = {"missing": missing, "channels": shown}
    asking = _Asking(gateway, channels, request["subdirs"], _priority(rc))
    if request["attempts"] and request["prefer"]:
        asking.locked = await _preferred(asking, request["prefer"])
    for attempt in request["attempts"]:
        if set(attempt.get("names", ())) & set(missing):
            continue
        outcome = await asking.attempt(attempt)
        if isinstance(outcome, list):
            return answer | {"label": attempt["label"], "records": outcome}
        answer.setdefault("refusal", outcome)
    return answer


def _priority(rc: dict[str, Any]) -> Any:
    """conda's channel_priority; strict, as conda-forge recommends, where nothing is configured."""
    from rattler.channel.channel_priority import ChannelPriority

    told = rc.get("channel_priority")
    word = {True: "flexible", False: "disabled", None: "strict"}.get(told, str(told).lower())
    words = {"strict": ChannelPriority.Strict, "flexible": ChannelPriority.Flexible,
             "disabled": ChannelPriority.Disabled}  # fmt: skip
    if word not in words:
        raise places.ConfigurationError(
            f"channel_priority in .condarc is {told}: not strict, flexible or disabled"
        )
    return words[word]


async def _preferred(asking: _Asking, urls: list[str]) -> list[Any]:
    """The channels' records of these packages; those that are gone are not preferred."""
    wanted = set(urls)
    names = sorted({url.rsplit("/", 1)[1].rsplit("-", 2)[0] for url in urls})
    held = await asking.gateway.query(asking.channels, asking.subdirs, names, recursive=False)
    return [record for of_channel in held for record in of_channel if plain_url(record.url) in wanted]


class _Asking:
    """What all attempts have in common."""

    def __init__(self, gateway: Any, channels: list[Any], subdirs: Any, priority: Any) -> None:
        self.gateway, self.channels, self.subdirs, self.priority = gateway, channels, subdirs, priority
        self.locked: list[Any] = []

    async def attempt(self, attempt: dict[str, Any]) -> list[dict[str, Any]] | str:
        """The records of a solution, or the solver's words why there is none."""
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
                [rattler.MatchSpec(s) for s in attempt["specs"]],
                gateway=self.gateway,
                platforms=self.subdirs,
                locked_packages=self.locked,
                virtual_packages=virtual,
                channel_priority=self.priority,
                constraints=[rattler.MatchSpec(c) for c in attempt["constraints"]],
            )
        except SolverError as error:
            return str(error)
        return [as_plain(r) for r in records]


def as_plain(record: Any) -> dict[str, Any]:
    """A record as JSON, without credentials."""
    return {
        "name": record.name.normalized,
        "version": str(record.version),
        "build": str(record.build),
        "subdir": record.subdir,
        "url": plain_url(record.url),
        "channel": plain_url(record.channel or ""),
        "sha256": record.sha256.hex() if record.sha256 else None,
        "md5": record.md5.hex() if record.md5 else None,
        "size": record.size,
        "depends": list(record.depends),
    }
