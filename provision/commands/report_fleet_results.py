"""`gpuenv report --hosts`: show the results of many hosts as a table and a page."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections import Counter
from pathlib import Path

from ..config.options import STDIN
from ..errors import UsageError
from ..model import Emit, Event, FleetResults, from_plain
from ..system import untrusted
from ..system.files import refuse_to_replace
from ..system.redaction import redact_value
from .write_html_page import write_html_page

_MOST = 64 << 20  # bytes; a hundred thousand hosts take 20 MB


def report_hosts(file: Path, output: Path | None, emit: Emit, *, force: bool) -> FleetResults:
    """Return the results of a `gpuenv.fleet-results/1` document, failed hosts first, and write them as a
    page.

    Raises UsageError.
    """
    results = _read(file)
    if output:
        refuse_to_replace(output, force=force)
        _write(output, results)
        emit(Event(kind="note", stage="report", text=f"page written to {output}"))
    return results


def _read(file: Path) -> FleetResults:
    shown = f"--hosts {file}"
    hint = f"expected a {FleetResults.SCHEMA} document; docs/reference/fleet.md has its fields"
    try:
        text = _stdin() if str(file) == STDIN else untrusted.read_strictly(file, _MOST)
        results = from_plain(FleetResults, redact_value(json.loads(text)))
    except OSError as error:
        raise UsageError(f"{shown}: {error.strerror}", hint=hint) from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{shown}: {error}", hint=hint) from error
    if twice := [name for name, count in Counter(h.host for h in results.hosts).items() if count > 1]:
        raise UsageError(f"{shown}: the host {twice[0]!r} is listed twice", hint="list each host once")
    ordered = sorted(results.hosts, key=lambda h: (h.ok, h.class_ or "", h.host))
    return dataclasses.replace(results, hosts=tuple(ordered))


def _stdin() -> str:
    text = sys.stdin.buffer.read(_MOST + 1)
    if len(text) > _MOST:
        raise ValueError(f"longer than {_MOST >> 20} MiB")
    return text.decode()


def _write(output: Path, results: FleetResults) -> None:
    from ..export.pages import fleet_page

    write_html_page(output, "--output", lambda footer: fleet_page(results, footer))
