"""The installed variants of wheels (PEP 825), compared with the driver and the GPUs of this machine."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from packaging.version import Version

from ..environment.distributions import list_distributions
from ..index.variants import NVIDIA, cuda_of, kernels_of, parse_variants
from ..model import Evidence
from ..system import untrusted
from ..system.kernels import how_they_run
from .state import Judgement, Verification

_FILE = "variant.json"


def judge_variants(run: Verification) -> None:
    """Add the stage `variants` if an installed package is a variant and the GPUs are known."""
    saw = run.lowlevel.values("driver") if run.lowlevel else {}
    if not saw.get("devices"):
        return
    labels: list[str] = []
    unfit: list[Evidence] = []
    for one in (d for site in run.paths.sites for d in list_distributions(site)):
        path = one.folder / _FILE
        if not path.is_file():
            continue
        try:
            text = untrusted.read_text(path)
            labels.append(f"{one} {next(iter(parse_variants(text)))}")
            unfit += [Evidence(f"{labels[-1]} {why}", str(path)) for why in _why_not(text, saw)]
        except (OSError, ValueError, StopIteration):
            unfit.append(Evidence(f"the properties of {one} cannot be read", str(path)))
    if unfit:
        more = f", and {len(unfit) - 1} more" if len(unfit) > 1 else ""
        run.add("variants", Judgement("warn", unfit[0].text + more, tuple(unfit)))
    elif labels:
        run.add("variants", Judgement("pass", f"for the GPUs of this machine: {', '.join(sorted(labels))}"))


def _why_not(text: str, saw: Mapping[str, Any]) -> Iterator[str]:
    """Yield why a variant is not for the driver and the devices that the stage driver saw. Its file lists the namespaces of all variants of its release."""
    (properties,) = parse_variants(text).values()
    cuda, kernels = cuda_of(properties), kernels_of(properties)
    speaks = saw.get("cuda")
    if cuda and speaks and Version(cuda).major > Version(speaks).major:
        yield f"is for CUDA {cuda}; the driver supports CUDA {speaks}"
    for gpu in saw["devices"]:
        if kernels and gpu["capability"] and not how_they_run(kernels, gpu["capability"], frozenset()):
            yield f"has no kernels for {gpu['name']} ({gpu['capability']}); built for {' '.join(kernels)}"
    if not cuda and NVIDIA in json.loads(text).get("default-priorities", {}).get("namespace", ()):
        yield "is the build without CUDA of a package that has variants for GPUs"
