"""What a framework's process proved, as the verdict tells it: devices, convolutions, versions, times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..model import ConvolutionResult, DeviceVerdict, FrameworkVerdict, LibraryFile
from . import loaded, probe
from .layers import number


def verdict(
    name: str,
    told: probe.Told,
    device: str,
    libraries: tuple[LibraryFile, ...],
    devices: Sequence[Mapping[str, Any]],
) -> FrameworkVerdict:
    saw = told.last("framework") or {}
    known = {d["index"]: d for d in devices}
    rows = told.all("convolution")
    verdicts = []
    for index in [-1] if device == "cpu" else [d["index"] for d in saw.get("devices", ())]:
        mine: Mapping[str, Any] = next((d for d in saw.get("devices", ()) if d["index"] == index), {})
        low = known.get(index, {})
        verdicts.append(
            DeviceVerdict(
                index=index,
                uuid=mine.get("uuid") or low.get("uuid"),
                name=mine.get("name") or low.get("name"),
                capability=mine.get("capability") or low.get("capability"),
                convolutions=tuple(_convolution(r) for r in rows if r["device"] == index),
            )
        )
    main = next((x for x in libraries if x.soname.startswith("libcudnn.so")), None)
    return FrameworkVerdict(
        name=name,
        version=saw.get("version"),
        cuda=saw.get("cuda"),
        cudnn_built=number(saw.get("cudnn_built")),
        cudnn_loaded=(loaded.three(main.version) if main else None) or number(saw.get("cudnn")),
        devices=tuple(verdicts),
        libraries=libraries,
    )


def _convolution(r: Mapping[str, Any]) -> ConvolutionResult:
    return ConvolutionResult(
        case=r["case"],
        dtype=r["dtype"],
        pass_=r["which"],
        max_error=r["error"],
        tolerance=r["tolerance"],
        ok=r["ok"],
    )


def times(told: probe.Told) -> dict[str, float]:
    """Seconds per stage: from its first begin to the next stage's, or to the last record. What a framework
    that was imported ahead of its turn waited is nobody's time."""
    starts: dict[str, float] = {}
    for r in told.all("begin"):
        starts.setdefault(r["stage"], r["at"])
    if not starts:
        return {}  # it ended before its first stage, as where a module on PYTHONPATH breaks it
    ends = [*list(starts.values())[1:], told.records[-1]["at"] if told.records else 0.0]
    waited = sum(r["seconds"] for r in told.all("waited"))
    return {
        stage: end - start - (waited if stage == "framework" else 0.0)
        for (stage, start), end in zip(starts.items(), ends, strict=True)
    }
