"""A lock for a conda environment: the solver's answer compared with the question, and refusals of channels and of
the solver in words."""

from __future__ import annotations

import dataclasses
import fnmatch
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...errors import LockError, ResolveError
from ...model import CondaBuild, Event, FrameworkRequest, Lock, LockedPackage, Plan, PlannedBuild
from ...system.redaction import redact, redact_text
from ...wheels import pylock
from . import engine as channels_door, specs
from .specs import Bounds, Question, Wish

Emit = Callable[[Event], None]
_ASKED = "asked"
Record = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Solution:
    """What the solver took: records as plain values, and what no channel has: frameworks (`lacking`)
    and other packages as they were asked for (`wheels`)."""

    records: tuple[Record, ...]
    channels: tuple[str, ...]
    lacking: tuple[str, ...] = ()
    wheels: tuple[str, ...] = ()


def solve(asked: Question, emit: Emit, alternatives: Sequence[tuple[str, Question]] = ()) -> Solution:
    """Ask the solver. Raises LockError where a channel does not answer, ResolveError where nothing
    fits, with the reason and the first of `alternatives` (a sentence and its question) that would."""
    emit(Event(kind="start", stage="lock", text="reading the channels and solving"))
    answer = _ask(
        asked, [_wish(_ASKED, asked), *(_wish(label, other) for label, other in alternatives)], emit
    )
    missing = set(answer["missing"])
    if "python" in missing:
        raise LockError(
            f"the channels have no python for {channels_door.subdir(asked.target.platform)}: {', '.join(answer['channels'])}",
            hint="add a channel that has one: --channel conda-forge",
        )
    if answer.get("label") != _ASKED:
        raise of_solver(asked, answer)
    records = tuple(answer["records"])
    emit(Event(kind="done", stage="lock", text=f"{len(records)} conda packages", done=len(records)))
    absent = tuple(p for p in asked.request.packages if specs.package_spec(p).split()[0] in missing)
    return Solution(
        records=records, channels=tuple(answer["channels"]), lacking=tuple(answer["lacking"]), wheels=absent
    )


def _wish(label: str, asked: Question) -> Wish:
    frameworks = [
        (one, specs.rows_of(one.name, asked.request.device, asked.rows)) for one in asked.request.frameworks
    ]
    packages = [*(specs.package_spec(p) for p in asked.request.packages), "pip"]
    return specs.wish(label, asked.request, frameworks, asked.bounds, asked.virtual, packages, asked.limits)


def _ask(asked: Question, wishes: Sequence[Wish], emit: Emit) -> dict[str, Any]:
    def told(event: Mapping[str, Any]) -> None:
        if event["event"] == "note":
            emit(Event(kind="note", stage="lock", text=event["text"]))

    request = {
        "channels": list(asked.channels),
        "subdirs": [channels_door.subdir(asked.target.platform), "noarch"],
        "attempts": [w.plain() for w in wishes],
        "prefer": list(asked.prefer),
        "cache": str(channels_door.cache_dir(asked.cache_dir)),
        "offline": asked.offline,
    }
    answer = channels_door.ask("solve", request, told, LockError)
    if "error" in answer:
        raise of_channel(answer["error"], asked.channels)
    return answer


# --- from records to a plan and a lock -----------------------------------------------------------


def lock(asked: Question, solution: Solution) -> Lock:
    """The plan that a solution amounts to, and its lock. Raises LockError where the solver took
    another variant than was asked for."""
    by_name = {r["name"]: r for r in solution.records}
    builds = []
    for wanted in asked.request.frameworks:
        if wanted.name in solution.lacking:
            continue
        builds.append(_planned(wanted, asked, solution, by_name))
    notes = ()
    major = next((b.cuda.split(".")[0] for b in builds if b.cuda), None)
    plan = Plan(
        builds=tuple(builds), python=_minor(by_name["python"]["version"]), platform=asked.target.platform,
        manager="conda", device=asked.request.device, target=asked.target, cuda_major=major,
        cudnn=next((b.cudnn for b in builds if b.cudnn), None), packages=asked.request.packages, notes=notes,
    )  # fmt: skip
    return Lock(
        manager="conda", target=asked.target, plan=plan, packages=tuple(map(as_package, solution.records))
    )


def _planned(
    wanted: FrameworkRequest, asked: Question, solution: Solution, by_name: Mapping[str, Record]
) -> PlannedBuild:
    rows = specs.rows_for(wanted.name, asked.request.device, solution.channels, asked.rows)
    row = next(r for r in rows if r.package in by_name)
    record = by_name[row.package]
    if not fnmatch.fnmatch(record["build"], row.build):
        raise LockError(
            f"the plan is for {asked.request.device}; the solver took {record['name']} {record['version']} "
            f"{record['build']}",
            hint="ask for other versions, or name another channel",
        )
    cuda, cudnn = made_with(record, by_name, asked.rows) if asked.request.device == "cuda" else (None, None)
    _assert_spoken(wanted, cuda, asked.bounds)
    names = (row.package, *(n for n in row.along if n in by_name))
    pins = tuple(f"{by_name[n]['name']} {by_name[n]['version']} {by_name[n]['build']}" for n in names)
    return PlannedBuild(
        framework=wanted.name, version=record["version"], cuda=cuda, cudnn=cudnn,
        index=channel_name(record["channel"]), requirements=pins,
    )  # fmt: skip


def _assert_spoken(wanted: FrameworkRequest, cuda: str | None, bounds: Bounds) -> None:
    spoken = [int(n) for n in (bounds.cuda or "").split(".") if n]
    if cuda and spoken and [int(n) for n in cuda.split(".")] > spoken:
        raise LockError(
            f"{wanted.name} came with CUDA {cuda}; the driver speaks {bounds.cuda}",
            hint="ask for an older CUDA: --cuda MAJOR.MINOR",
        )


def made_with(
    record: Record, by_name: Mapping[str, Record], rows: Sequence[CondaBuild]
) -> tuple[str | None, str | None]:
    """CUDA ("12.9") and cuDNN of a build: of its row, else of the packages taken along."""
    row = next(
        (r for r in rows if r.version == record["version"] and r.package == record["name"]
         and fnmatch.fnmatch(record["build"], r.build)), None,
    )  # fmt: skip
    cuda = row.cuda if row else None
    for name in specs.CUDA_NAMES:
        if cuda is None and name in by_name:
            cuda = ".".join(by_name[name]["version"].split(".")[:2])
    cudnn = (row.cudnn or "").removeprefix("==") or None if row else None
    for name in specs.CUDNN_NAMES:
        if cudnn is None and name in by_name:
            cudnn = by_name[name]["version"]
    return cuda, cudnn


def channel_name(url: str) -> str:
    """The short name of a channel ("conda-forge") where the address ends in one."""
    return url.rstrip("/").rsplit("/", 1)[-1] if "://" in url else url


def as_package(record: Record) -> LockedPackage:
    return pylock.check_file_name(LockedPackage(
        name=record["name"], version=record["version"], url=record["url"], sha256=record["sha256"],
        md5=record["md5"], index=record["channel"].rstrip("/") or None, size=record["size"],
        depends=tuple(record["depends"]),
    ))  # fmt: skip


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


def build_of(package: LockedPackage) -> str:
    """The build string, which the file name ends with."""
    stem = package.url.rsplit("/", 1)[-1].removesuffix(".conda").removesuffix(".tar.bz2")
    return stem.rsplit("-", 1)[-1]


def is_conda(package: LockedPackage) -> bool:
    return package.url.endswith((".conda", ".tar.bz2"))


def with_wheels(lock_: Lock, wheels: Sequence[LockedPackage], builds: Sequence[PlannedBuild]) -> Lock:
    """A lock with wheels on top, which brought these builds."""
    plan = dataclasses.replace(lock_.plan, builds=(*lock_.plan.builds, *builds))
    return dataclasses.replace(lock_, plan=plan, packages=(*lock_.packages, *wheels))


def of_channel(error: Mapping[str, str], channels: Sequence[str]) -> LockError:
    """What the engine said of a channel, as one sentence."""
    text = redact_text(error["text"])
    address = re.search(r"(?:https?|file)://[^\s'\"`)]+", text)
    where = address.group(0).rstrip(":/,") if address else ", ".join(map(redact, channels))
    for pattern, told, hint in _FAULTS:
        if re.search(pattern, text, re.IGNORECASE):
            return LockError(f"{told}: {where}", hint=hint, log=text)
    return LockError(
        f"the conda channels cannot be read: {text.splitlines()[0] if text else error['kind']}: {where}",
        log=text,
        hint="the lines above are the engine's own",
    )


_STRANGE = "open the address in a browser: a login page, a proxy or a broken mirror may stand in between"
_FAULTS = (
    (r"permission denied|os error 13\b", "a file of the channel, or of the cache of conda packages, is another user's",
     "the lines above name it; another cache is named with --cache-dir DIR or RATTLER_CACHE_DIR"),
    (r"URL scheme is not allowed", "a mirror is to be an http address", "name a folder as the channel itself: --channel DIR"),
    (r"\b407\b|proxy auth", "a proxy wants a user and a password on the way to the conda channel",
     "put them into the proxy's address: HTTPS_PROXY, or proxy_servers in .condarc"),
    (r"\b429\b", "the conda channel asks us to come later", "wait some minutes, then run the command again"),
    (r"\b5\d\d [A-Z]", "the conda channel is failing", "try again later, or name a mirror"),
    (r"too many redirects|following redirect", "the conda channel redirects without an end", _STRANGE),
    (r"failed to parse|expected value at|EOF while parsing|trailing characters",
     "the conda channel answered something that is no repodata.json", _STRANGE),
    (r"nothing came for", "the conda channel does not answer in time",
     "check the network, proxies and mirrors; a slow network is given more time by UV_HTTP_TIMEOUT=SECONDS"),
    (r"\b401\b|\b403\b|Unauthorized|Forbidden", "the conda channel refuses us without the right credentials",
     "put them into the auth file that rattler and pixi read (RATTLER_AUTH_FILE), or give the channel's whole address"),
    (r"\b404\b|\b410\b|could not find subdir|no such file", "there is no such conda channel",
     "check the name given with --channel, and channel_alias in .condarc"),
    (r"certificate", "the conda channel's certificate is not trusted",
     "name the file of the authority: ssl_verify in .condarc, or SSL_CERT_FILE"),
    (r"no usable repodata cache",
     "--offline was given, and the channel was never read on this machine",
     "run once with a network, or give a local folder: --channel DIR"),
    (r"error sending request|tcp connect|dns error|timed out|connection", "the conda channel does not answer",
     "check the network, proxies and mirrors of .condarc and of rattler's config.toml, or use --offline"),
    (r"failed to (?:persist|open|create|write|rename|lock)", "the cache of conda packages cannot be used",
     "where something else removed files there, run the command again; another is named with --cache-dir DIR"),
)  # fmt: skip


def of_solver(asked: Question, answer: Mapping[str, Any]) -> ResolveError:
    """The solver's tree, with what it cannot know: this machine, and the change that would help."""
    request, label = asked.request, answer.get("label")
    frameworks = ", ".join(f"{w.name}{w.specifier}" for w in request.frameworks)
    said = [f"{b.name}{b.specifier} ({b.origin})" for b in (*request.bounds, *asked.limits)]
    said += [f"Python {request.requires_python} ({request.python_origin})"] if request.requires_python else []
    frameworks += f" with {', '.join(said)}" if said else ""
    spoken = (
        f", CUDA up to {asked.bounds.cuda}" if asked.bounds.cuda and asked.request.device == "cuda" else ""
    )
    return ResolveError(
        f"no set of conda packages is {frameworks} for {asked.request.device} "
        f"on {specs.in_words(asked.virtual)}{spoken}",
        log=str(answer.get("refusal", "")).strip() or None,
        hint=label
        or "none of the changes that were tried helps; what contradicts what, gpuenv resolve --explain tells",
    )
