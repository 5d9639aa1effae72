"""Shows a machine as text: driver, GPUs, surroundings, Pythons and libraries."""

from __future__ import annotations

from ..model import Machine
from ..system.redaction import clean
from .terminal_output import Screen
from .verdict import show_finding

_LONG = 160  # container images carry driver requirements of thousands of letters


def show_machine(screen: Screen, machine: Machine) -> None:
    """Show each fact in one line, then the findings."""
    target, driver = machine.target, machine.driver
    glibc = f", glibc {target.glibc}" if target.glibc else ""
    screen.line(f"platform   {target.platform}{glibc}")
    if driver.problem:
        screen.line("driver     " + screen.colour(driver.problem, "red"))
    elif driver.library:
        speaks = f", supports CUDA {driver.cuda}" if driver.cuda else ""
        screen.line(f"driver     {driver.library}{speaks} (from {driver.source})")
    else:
        screen.line("driver     none")
    for gpu in machine.gpus:
        memory = f", {gpu.memory_mib} MiB" if gpu.memory_mib else ""
        mig = f", {len(gpu.mig)} MIG devices" if gpu.mig else ""
        screen.line(f"GPU {gpu.index}      {gpu.name or 'unknown'}, capability {gpu.capability}{memory}{mig}")
    context = machine.context
    words = [w for w, on in (("WSL", context.wsl), ("Colab", context.colab)) if on]
    words += [f"container ({context.container})"] if context.container else []
    words += [f"Slurm {context.slurm}"] if context.slurm else []
    if words:
        screen.line(f"context    {', '.join(words)}")
    for device in machine.hardware:
        screen.line(f"hardware   {device.vendor} {device.device or ''} at {device.address}")
    for python in machine.pythons:
        screen.line(f"Python     {python.version}  {python.path}")
    for library in machine.libraries:
        screen.line(f"library    {library.soname} {library.version or ''}  {library.path}")
    for name, value in machine.environment.items():
        text = clean(f"variable   {name}={value}")
        screen.line(text if len(text) <= _LONG or screen.verbose else text[:_LONG] + " ...")
    for finding in machine.findings:
        show_finding(screen, finding)
