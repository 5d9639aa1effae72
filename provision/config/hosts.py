"""The targets of a fleet: hosts from a file, and the named targets of gpuenv.yaml."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

from ..errors import MachineError, UsageError
from ..model import (
    Device,
    FleetHost,
    Machine,
    Profiles,
    Target,
    UnservedHosts,
    from_plain,
    name_few,
)
from ..model.values import Value
from ..system import trust
from .options import HOW_TO_DESCRIBE, HOW_TO_LIST, STDIN, Choices
from .project import apply_project
from .target import choose_described_device, complete, read_request_target

_MOST = 16 << 20  # bytes per line
_OF_ONE_TARGET = ("driver", "driver_os", "gpu", "gpus", "platform", "glibc")
_NAMED_CHOICES = ("python", "cuda", "manager", "device")
_KEYS = {
    "host",
    "device",
    "schema",
    *(f.name for f in dataclasses.fields(Target) if f.name != "driver_branch"),
}
_KNOWN_SCHEMAS = (None, Machine.SCHEMA, Target.SCHEMA)


class FleetHosts(Value, kw_only=False):
    """Hosts that are planned with the same options. Targets of gpuenv.yaml can have their own options."""

    choices: Choices
    hosts: list[FleetHost]


@dataclasses.dataclass
class _Reading:
    """The hosts that were read so far. A target that many hosts have is checked and stored once."""

    choices: Choices
    data: Profiles
    named: dict[str, Target] = field(default_factory=dict)
    left_out: list[UnservedHosts] = field(default_factory=list)
    parts: dict[tuple[object, ...], FleetHosts] = field(default_factory=dict)
    targets: dict[str, Target] = field(default_factory=dict)
    without_gpu: dict[str, list[str]] = field(default_factory=dict)
    """The hosts of each reason for the CPU that the machines state."""
    assumed: dict[str, list[str]] = field(default_factory=dict)
    """The hosts that state no glibc, by the one that is assumed."""

    def add(self, name: str, target: Target, device: Device, choices: Choices, *, silent: bool) -> None:
        """Add a host, which may be silent on its glibc. One that is listed twice alike counts once. Raises ValueError."""
        if name in self.named:
            if self.named[name] != target:
                raise ValueError(f"the host {name!r} is listed twice, with different targets")
            return
        self.named[name] = target
        if silent and target.glibc:
            self.assumed.setdefault(target.glibc, []).append(name)
        key = tuple(getattr(choices, n) for n in _NAMED_CHOICES)
        self.parts.setdefault(key, FleetHosts(choices, [])).hosts.append(
            FleetHost(name=name, target=target, device=device)
        )

    def read(self, line: bytes, name: str, origin: str) -> None:
        """Add the host of a document, or list the document as a host without a plan.

        The document is a machine, of which only the target is read, or a target. It may name its `host` and `device`.
        """
        host = origin
        try:
            data, named, device = _parse(line, name)
            is_machine = data.get("schema") == Machine.SCHEMA
            document: Any = data.get("target") if is_machine else data
            if not is_machine and (unknown := sorted({*data} - _KEYS)):
                self.leave_out(
                    host,
                    f"{named}: {unknown[0]}: unknown key (known are {', '.join(sorted(_KEYS))})",
                    "remove it",
                )
                return
            try:
                target = self._target(document)
            except ValueError as error:
                raise ValueError(str(error) if named == name else f"{named}: {error}") from error
            host = named
            wanted = device or self.choices.device
            chosen, reason = choose_described_device(wanted, target, data if is_machine else None)
            if chosen == "cpu":
                self.without_gpu.setdefault(reason, []).append(named)
            host = origin
            self.add(named, target, chosen, self.choices, silent=not document.get("glibc"))
        except json.JSONDecodeError as error:
            where = f" (line {error.lineno})" if b"\n" in line.strip() else ""
            self.leave_out(host, f"it is not JSON{where}", HOW_TO_LIST)
        except (ValueError, RecursionError) as error:
            self.leave_out(host, str(error), HOW_TO_DESCRIBE)
        except MachineError as error:
            self.leave_out(host, error.message, error.hint)

    def leave_out(self, host: str, reason: str, hint: str | None) -> None:
        """List a host without a plan."""
        self.left_out.append(UnservedHosts(hosts=1, host=host, reason=reason, hint=hint))

    def _target(self, data: Any) -> Target:
        key = json.dumps(data, sort_keys=True)
        if key not in self.targets:
            self.targets[key] = complete(from_plain(Target, data), self.data)
        return self.targets[key]


def _parse(text: bytes, name: str) -> tuple[dict[str, Any], str, str | None]:
    """Return a document without its `host` and `device`, and these two. Raises ValueError."""
    data = json.loads(text)
    if not isinstance(data, dict):
        raise ValueError(f"expected a JSON object, got {type(data).__name__}")  # noqa: TRY004  # one kind of error
    host, device = data.pop("host", name), data.pop("device", None)
    if not isinstance(host, str) or not host.isprintable() or not host.strip() or len(host) > 255:
        raise ValueError(f"host {host!r:.80} is not a host name")
    if device not in (None, "auto", "cuda", "cpu"):
        raise ValueError(f"device {device!r:.80} is not auto, cuda or cpu")
    if data.get("schema") not in _KNOWN_SCHEMAS:
        raise ValueError(f"{data['schema']!r:.60} is not {Machine.SCHEMA!r}")
    return data, host, device


def read_hosts(
    targets: Sequence[Path], choices: Choices, data: Profiles
) -> tuple[list[FleetHosts], list[UnservedHosts], tuple[str, ...]]:
    """Return the hosts by the options that they are planned with, the hosts that cannot be planned, and notes.

    Raises UsageError, also where no document is a host.
    """
    for name in _OF_ONE_TARGET:
        if getattr(choices, name):
            raise UsageError(
                f"--{name.replace('_', '-')} describes one machine, but --target names several",
                hint=f"leave --{name.replace('_', '-')} out, or give one --target",
            )
    reading = _Reading(apply_project(choices), data)
    for path in targets:
        if str(path) == STDIN:
            _read_lines(reading)
        elif path.is_dir():
            for file in _files(path):
                _read_file(reading, file)
        elif path.exists():
            _read_file(reading, path)
        else:
            _read_named(reading, path, choices)
    if not reading.named and not any(u.hint not in (HOW_TO_DESCRIBE, HOW_TO_LIST) for u in reading.left_out):
        first = next((f": {u.host}: {u.reason}" for u in reading.left_out), "")
        raise UsageError(f"--target names no host{first}", hint=HOW_TO_DESCRIBE)
    notes = (
        f"{name_few(hosts)}: planned for the CPU. {reason}"
        for reason, hosts in reading.without_gpu.items() if ". " in reason
    )  # fmt: skip
    assumed = (
        f'glibc of {name_few(names)} is not known: {glibc} is assumed. To state it, add a key to the target such as "glibc": "2.35" '
        "(`ldd --version` names it there)"
        for glibc, names in reading.assumed.items()
    )
    return list(reading.parts.values()), reading.left_out, (*notes, *assumed)


def _files(folder: Path) -> list[Path]:
    files = sorted(p for p in folder.iterdir() if p.suffix == ".json")
    if not files:
        raise UsageError(f"--target {folder}: the folder has no .json file", hint=HOW_TO_DESCRIBE)
    return files


def _read_file(reading: _Reading, path: Path) -> None:
    name = path.stem if path.stem not in reading.named else str(path)
    try:
        text = trust.read_project(path)
    except OSError as error:
        reading.leave_out(str(path), error.strerror or "it cannot be read", HOW_TO_DESCRIBE)
    else:
        reading.read(text, name, str(path))


def _read_lines(reading: _Reading) -> None:
    """Read the lines of standard input, each of bounded length."""
    number = 0
    while line := sys.stdin.buffer.readline(_MOST + 1):
        number += 1
        if len(line) > _MOST:
            reading.leave_out(f"line {number}", f"it is longer than {_MOST >> 20} MiB", HOW_TO_DESCRIBE)
            while line and not line.endswith(b"\n"):
                line = sys.stdin.buffer.readline(_MOST)
        elif line.strip():
            reading.read(line, f"line-{number}", f"line {number}")


def _read_named(reading: _Reading, name: Path, choices: Choices) -> None:
    """Add a target of gpuenv.yaml with its own Python, CUDA, device and manager. Raises UsageError."""
    merged = apply_project(dataclasses.replace(choices, target=name))
    _, target = read_request_target(merged, reading.data)
    device, _ = choose_described_device(merged.device, target, None)
    named_choices = {n: getattr(merged, n) for n in _NAMED_CHOICES}
    try:
        own = dataclasses.replace(reading.choices, **named_choices)
        reading.add(str(name), target, device, own, silent=not (merged.glibc or merged.target))
    except ValueError as error:
        raise UsageError(f"--target: {error}", hint="remove one of the two") from error
