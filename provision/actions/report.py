"""`gpuenv report`: write a text for an issue, or the results of many hosts as one table."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import platform
import pwd
import re
import socket
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import TypeVar

from .. import __version__, detect
from ..config.env import choose_env_to_read, find_project_env
from ..config.options import STDIN, Choices, make_absolute
from ..config.sources import read_sources
from ..environment import place, record
from ..environment.place import locate_environment
from ..errors import GpuenvError, UsageError
from ..export.pages import fleet_page, write_html_page
from ..index.config import uv_default, uv_extra
from ..model import (
    Emit,
    Event,
    ExportResult,
    FleetResults,
    IssueReport,
    PackageSources,
    drop_event,
    from_plain,
)
from ..model.declare import argument, force_option, option
from ..model.values import Value
from ..report import PersonalData, ReportFacts, write_report
from ..system import process, untrusted
from ..system.files import is_stdout, refuse_to_replace, signed, write_named
from ..system.redaction import clean_line, redact_value

T = TypeVar("T")


class ReportOptions(Value):
    """The options of `report`. Without `env` it covers .venv or the active environment, if there is one."""

    env: Path | None = argument(
        None, metavar="[ENV]", help="Path of the environment. [default: .venv]", complete="environments"
    )
    hosts: Path | None = option(
        None, help="Show the results of many hosts as one table: a gpuenv.fleet-results/1 file, or -."
    )
    output: Path | None = option(None, "--output", "-o", help="With --hosts: also write an HTML page.")
    form: str | None = option(
        None, "--format", metavar="FORMAT", help="With --hosts: prometheus, for a textfile of node_exporter."
    )
    include_checks: bool = option(False, help="Include what the project's checks printed.")
    force: bool = force_option()

    @property
    def takes_stdout(self) -> bool:
        """Whether the page is written to standard output."""
        return self.output is not None and is_stdout(self.output)


def report(options: ReportOptions, emit: Emit = drop_event) -> IssueReport | FleetResults | ExportResult:
    """Return the report on this machine and an environment, without names, addresses and credentials.

    With `hosts` return the results of many hosts, failed ones first, and write them as a page or as metrics.
    """
    output, form = options.output, options.form
    if options.hosts is None:
        if output is not None or form is not None:
            raise UsageError(
                f"{'--format' if form else '--output'} requires --hosts",
                hint="name the results of a fleet: --hosts FILE. To save a report of this machine, redirect standard output",
            )
        return write_report(
            _collect_facts(emit, options.env, include_checks=options.include_checks), _find_personal_data()
        )
    if options.env is not None:
        raise UsageError("ENV and --hosts are both given", hint="give one of them")
    if form not in (None, "prometheus"):
        raise UsageError(f"--format {form}: not prometheus")
    results = _read(options.hosts)
    if form is None:
        if output:
            refuse_to_replace(output, force=options.force)
            write_html_page(output, "--output", lambda footer: fleet_page(results, footer))
            emit(Event("note", "report", f"page written to {output}"))
        return results
    text = write_metrics(results)
    if output is None or options.takes_stdout:
        return ExportResult(format=form, path=None, text=text)
    refuse_to_replace(output, force=options.force)
    write_named(output, "--output", signed(text, "#"))  # in one step: the collector may read at any time
    return ExportResult(format=form, path=str(output), text=text)


def _collect_facts(emit: Emit, env: Path | None, *, include_checks: bool) -> ReportFacts:
    """Return the facts for the report. Raises UsageError if ENV is not an environment."""
    problems: list[str] = []
    path = make_absolute(choose_env_to_read(emit, env))
    ours = place.made_by_gpuenv(path)
    is_active = env is None and path != make_absolute(find_project_env())
    there = ours or env is not None or is_active or path.is_dir()

    def tried(read: Callable[[], T]) -> T | None:
        try:
            return read()
        except GpuenvError as error:
            problems.append(error.message)
            return None

    if there and not ours:
        environment = locate_environment(path) if env else tried(lambda: locate_environment(path))
        path = Path(environment.path) if environment else path
    sources = tried(lambda: read_sources(Choices()))
    return ReportFacts(
        gpuenv=__version__,
        python=platform.python_version(),
        when=f"{datetime.now(timezone.utc):%Y-%m-%d %H:%M} UTC",
        machine=detect.detect(),
        env=str(path) if there else None,
        ours=ours,
        plan=tried(lambda: record.read_plan(path)) if ours else None,
        lock=tried(lambda: record.read_lock(path)) if ours else None,
        verdict=tried(lambda: record.read_verdict(path)) if ours else None,
        verified=record.find_verified_time(path) if ours else None,
        sources=_words(sources) if sources else (),
        include_checks=include_checks,
        problems=tuple(problems),
    )


def _words(sources: PackageSources) -> tuple[str, ...]:
    """Return the kinds of package sources, without their addresses."""
    default = sources.default or uv_default(sources.uv)
    extra = (*sources.extra, *uv_extra(sources.uv))
    lines = [
        f"default   {'an index from the configuration' if default else 'PyPI: no other index is configured'}"
    ]
    if extra:
        lines.append(f"extra     {len(extra)} more from the configuration")
    if sources.find_links:
        lines.append(f"folders   {len(sources.find_links)} with wheels")
    if sources.cert:
        lines.append("cert      a certificate file")
    if sources.no_index:
        lines.append("no-index  the configuration forbids indexes")
    return tuple(lines)


def _find_personal_data() -> PersonalData:
    """Return the names that would identify the owner of this machine."""
    environ = process.environ()
    homes = {environ.get("HOME", "")}
    users = {environ.get(name, "") for name in ("USER", "LOGNAME", "USERNAME", "SUDO_USER", "SLURM_JOB_USER")}
    with contextlib.suppress(KeyError):  # a user id that is not in the user database
        account = pwd.getpwuid(os.getuid())
        homes.add(account.pw_dir)
        users |= {account.pw_name, account.pw_gecos.partition(",")[0]}
    homes |= {os.path.realpath(h) for h in homes if h}
    users |= {Path(h).name for h in homes}
    hosts = {socket.gethostname(), environ.get("HOSTNAME", ""), environ.get("SLURMD_NODENAME", "")}
    return PersonalData(
        homes=tuple(h for h in homes if h),
        users=tuple(u for u in users if u),
        hosts=tuple(h for h in hosts if h),
    )


def _read(file: Path) -> FleetResults:
    shown = f"--hosts {file}"
    hint = f"expected a {FleetResults.SCHEMA} document; docs/reference/fleet.md has its fields"
    try:
        if str(file) == STDIN:
            data = untrusted.read_open(sys.stdin.buffer, file, untrusted.MOST)
        else:
            data = untrusted.read_bytes(file)
        results = from_plain(FleetResults, redact_value(json.loads(data)))
    except OSError as error:
        raise UsageError(f"{shown}: {error.strerror}", hint=hint) from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{shown}: {error}", hint=hint) from error
    if twice := [name for name, count in Counter(h.host for h in results.hosts).items() if count > 1]:
        raise UsageError(f"{shown}: the host {twice[0]!r} is listed twice", hint="list each host once")
    ordered = sorted(results.hosts, key=lambda h: (h.ok, h.class_ or "", h.host))
    return dataclasses.replace(results, hosts=tuple(ordered))


def write_metrics(results: FleetResults) -> str:
    """Return results in the text format of Prometheus."""
    lines = [
        "# HELP gpuenv_host_ok Whether the host has what was asked for.",
        "# TYPE gpuenv_host_ok gauge",
    ]
    for h in results.hosts:
        facts = {"host": h.host, "class": h.class_, "plan": h.plan, "verdict": h.verdict, "cause": h.cause}
        lines.append(f"gpuenv_host_ok{_make_labels(facts)} {int(h.ok)}")
    lines += [
        "# HELP gpuenv_host_result_time_seconds When the host had its last result.",
        "# TYPE gpuenv_host_result_time_seconds gauge",
    ]
    for host, past in sorted(results.history.items()):
        if past:
            seconds = datetime.fromisoformat(past[0].when.replace("Z", "+00:00")).timestamp()
            lines.append(f"gpuenv_host_result_time_seconds{_make_labels({'host': host})} {seconds:.0f}")
    return "\n".join(lines) + "\n"


def _make_labels(facts: Mapping[str, str | None]) -> str:
    quoted = (re.sub(r'([\\"])', r"\\\1", clean_line(value or "", 300)) for value in facts.values())
    return "{" + ",".join(f'{name}="{value}"' for name, value in zip(facts, quoted, strict=True)) + "}"
