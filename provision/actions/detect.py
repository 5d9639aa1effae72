"""`gpuenv detect`: describe this machine."""

from __future__ import annotations

from pathlib import Path

from ..model import Emit, Event, Machine, VariantProperties, drop_event
from ..model.declare import option
from ..model.values import Value
from ..system.trust import secure_cache


class DetectOptions(Value):
    """The options of `detect`."""

    variant_properties: bool = option(
        False, help="Print what a provider of wheel variants reports for this machine."
    )


def detect(options: DetectOptions, emit: Emit = drop_event) -> Machine | VariantProperties:
    """Return this machine: driver, GPUs, Pythons, CUDA and cuDNN files; or the properties for wheel variants."""
    import platformdirs

    from .. import detect

    machine = detect.detect(cache=secure_cache(Path(platformdirs.user_cache_dir("gpuenv"))))
    return _list_properties(machine, emit) if options.variant_properties else machine


def _list_properties(machine: Machine, emit: Emit) -> VariantProperties:
    from packaging.version import Version

    from ..index.variants import list_provided

    cuda = machine.driver.cuda
    every = sorted({g.capability for g in machine.gpus if g.capability}, key=Version, reverse=True)
    if not cuda:
        text = "no driver of NVIDIA can be used, so a variant provider reports nothing"
        emit(Event("note", "detect", text))
    if every[1:]:
        text = f"a variant provider speaks of {every[0]} only, and not of {', '.join(every[1:])}: gpuenv chooses variants for all GPUs"
        emit(Event("note", "detect", text))
    return VariantProperties(
        cuda=cuda, capability=every[0] if every else None, left_out=tuple(every[1:]),
        properties=tuple(list_provided(cuda, every)) if cuda else (),
    )  # fmt: skip
