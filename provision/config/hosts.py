"""The targets of a fleet: hosts from a file, and the named targets of gpuenv.yaml."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import MachineError, UsageError
from ..model import Device, FleetHost, Machine, Profiles, Target, UnservedHosts, from_plain
from ..system import trust
from .options import STDIN, Choices
from .project import apply_project
from .target import MachineReader, complete_driver, read_request_target

_MOST = 16 << 20  # bytes per line
_HINT = "write one with `gpuenv detect --json`"
_OF_ONE_TARGET = ("driver", "driver_os", "gpu", "gpus", "platform", "glibc")
_NAMED_CHOICES = ("python", "cuda", "manager", "device")
_KNOWN_SCHEMAS = (None, Machine.SCHEMA, Target.SCHEMA)


@dataclass(frozen=True)
class FleetHosts:
    """Hosts that are planned with the same options. Targets of gpuenv.yaml can have their own options."""

    choices: Choices
    hosts: list[FleetHost]


@dataclass
class _Reading:
    """The hosts that were read so far. A target that many hosts have is checked and stored once."""

    choices: Choices
    look: MachineReader
    data: Profiles
    named: dict[str, Target] = field(default_factory=dict)
    left_out: list[UnservedHosts] = field(default_factory=list)
    parts: dict[tuple[object, ...], FleetHosts] = field(default_factory=dict)
    targets: dict[str, Target] = field(default_factory=dict)

    def add(self, name: str, target: Target, device: Device, choices: Choices) -> None:
        """Add a host. A host that is listed twice with the same target counts once. Raises UsageError."""
        if name in self.named:
            if self.named[name] != target:
                raise UsageError(
                    f"--target: the host {name!r} is listed twice, with different targets",
                    hint="remove one of the two documents",
                )
            return
        self.named[name] = target
        key = tuple(getattr(choices, n) for n in _NAMED_CHOICES)
        self.parts.setdefault(key, FleetHosts(choices, [])).hosts.append(
            FleetHost(name=name, target=target, device=device)
        )

    def add_document(self, data: Any, name: str, origin: str) -> None:
        """Add the host of a document, which is a machine or a target and may name its `host`.

        Only the target of a machine is read. Raises UsageError.
        """
        if not isinstance(data, dict):
            raise UsageError(
                f"--target {origin}: expected a JSON object, got {type(data).__name__}", hint=_HINT
            )
        host = data.pop("host", name)
        if not isinstance(host, str) or not host.isprintable() or not host.strip() or len(host) > 255:
            raise UsageError(f"--target {origin}: host {host!r:.80} is not a host name", hint=_HINT)
        if data.get("schema") not in _KNOWN_SCHEMAS:
            raise UsageError(
                f"--target {origin}: {data['schema']!r:.60} is not {Machine.SCHEMA!r}", hint=_HINT
            )
        is_machine = data.get("schema") == Machine.SCHEMA
        try:
            target = self._target(data.get("target") if is_machine else data)
            device = self._device(data, target) if is_machine else _device_of(self.choices, target)
        except ValueError as error:
            raise UsageError(f"--target {origin} is not a valid target: {error}", hint=_HINT) from error
        except MachineError as error:
            self.left_out.append(UnservedHosts(hosts=1, host=host, reason=error.message, hint=error.hint))
            return
        self.add(host, target, device, self.choices)

    def _target(self, data: Any) -> Target:
        key = json.dumps(data, sort_keys=True)
        if key not in self.targets:
            self.targets[key] = complete_driver(from_plain(Target, data, "target"), self.data)
        return self.targets[key]

    def _device(self, data: dict[str, Any], target: Target) -> Device:
        """Return the device of a machine. A machine with a broken NVIDIA driver is never planned for the CPU.

        Raises MachineError, ValueError.
        """
        driver = data.get("driver")
        works = target.driver and target.gpus and not (isinstance(driver, dict) and driver.get("problem"))
        if works or self.choices.device != "auto":
            return _device_of(self.choices, target)
        return self.look.judge_device("auto", from_plain(Machine, data))[0]


def _device_of(choices: Choices, target: Target) -> Device:
    if choices.device != "auto":
        return "cpu" if choices.device == "cpu" else "cuda"
    return "cuda" if target.driver or target.gpus else "cpu"


def read_hosts(
    targets: Sequence[Path], choices: Choices, data: Profiles, look: MachineReader
) -> tuple[list[FleetHosts], list[UnservedHosts]]:
    """Return the hosts by the options that they are planned with, and the hosts that cannot be planned.

    Raises UsageError.
    """
    for name in _OF_ONE_TARGET:
        if getattr(choices, name):
            raise UsageError(
                f"--{name.replace('_', '-')} describes one machine, but --target names several",
                hint=f"leave --{name.replace('_', '-')} out, or give one --target",
            )
    reading = _Reading(apply_project(choices), look, data)
    for path in targets:
        if str(path) == STDIN:
            for number, line in enumerate(_lines(), 1):
                _read_line(reading, line, number)
        elif path.is_dir():
            for file in _files(path):
                _read_file(reading, file)
        elif path.exists():
            _read_file(reading, path)
        else:
            _read_named(reading, path, choices)
    if not reading.named and not reading.left_out:
        raise UsageError("--target names no host", hint=_HINT)
    return list(reading.parts.values()), reading.left_out


def _files(folder: Path) -> list[Path]:
    files = sorted(p for p in folder.iterdir() if p.suffix == ".json")
    if not files:
        raise UsageError(f"--target {folder}: the folder has no .json file", hint=_HINT)
    return files


def _read_file(reading: _Reading, path: Path) -> None:
    try:
        data = json.loads(trust.read_project(path))
    except OSError as error:
        raise UsageError(f"--target {path}: {error.strerror}", hint=_HINT) from error
    except json.JSONDecodeError as error:
        raise UsageError(f"--target {path} is not JSON (line {error.lineno})", hint=_HINT) from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"--target {path} is not a valid target: {error}", hint=_HINT) from error
    name = path.stem if path.stem not in reading.named else str(path)
    reading.add_document(data, name, str(path))


def _lines() -> Iterator[bytes]:
    """Yield the lines of standard input, each of bounded length. Raises UsageError."""
    while line := sys.stdin.buffer.readline(_MOST + 1):
        if len(line) > _MOST:
            raise UsageError(
                f"--target -: a line is longer than {_MOST >> 20} MiB", hint="write one document per line"
            )
        yield line


def _read_line(reading: _Reading, line: bytes, number: int) -> None:
    if not line.strip():
        return
    try:
        data = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"--target -: line {number} is not JSON: {error}", hint=_HINT) from error
    reading.add_document(data, f"line-{number}", f"-: line {number}")


def _read_named(reading: _Reading, name: Path, choices: Choices) -> None:
    """Add a target of gpuenv.yaml with its own Python, CUDA, device and manager. Raises UsageError."""
    merged = apply_project(dataclasses.replace(choices, target=name))
    _, target = read_request_target(merged, reading.data, reading.look)
    device = _device_of(merged, target)
    named_choices = {n: getattr(merged, n) for n in _NAMED_CHOICES}
    reading.add(str(name), target, device, dataclasses.replace(reading.choices, **named_choices))
