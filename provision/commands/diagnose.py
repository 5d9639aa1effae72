"""`gpuenv diagnose`: the cause of a failure and its fix."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..errors import UsageError
from ..model import Emit, Findings, drop_event
from ..model.option import argument, group, option
from ..request.options import Choices


@dataclass(frozen=True, kw_only=True)
class DiagnoseOptions:
    """The options of `diagnose`."""

    logs: list[Path] = argument(list, metavar="[LOG...|-]", help="Logs; - reads standard input.")
    env: Path | None = option(None, help="An environment, proved by verify's stages.")
    no_machine: bool = option(False, help="Read the logs alone.")
    machine: Path | None = option(None, help="JSON of `gpuenv detect` from another machine.")
    choices: Choices = group(Choices, "profiles", "cache_dir")


def diagnose(options: DiagnoseOptions, emit: Emit = drop_event) -> Findings:
    """Return the causes of a failure and their fixes, from logs, a machine and an environment."""
    from .. import detect
    from ..request import facts
    from ..request.paths import absolute
    from . import diagnosing

    logs, env, machine = options.logs, options.env, options.machine
    if options.no_machine and machine:
        raise UsageError("--no-machine and --machine contradict each other")
    if options.no_machine and not logs and not env:
        raise UsageError("--no-machine needs a log", hint="gpuenv diagnose LOG --no-machine")
    texts = [(str(path), diagnosing.pieces(path)) for path in logs]
    here = diagnosing.machine_of(machine) if machine else None if options.no_machine else detect.detect()
    verdict = diagnosing.proved(emit, env, options.choices) if env else None
    found = diagnosing.judged(
        texts,
        facts.known(options.choices),
        here,
        verdict,
        device=diagnosing.made_for(absolute(env)) if env else None,
        holders=not (machine or options.no_machine),
    )
    if here and here.context.colab and not machine:
        found = diagnosing.with_later_installs(emit, found)
    return Findings(findings=found)
