"""The properties of wheel variants (PEP 825), and those that NVIDIA's variant provider reports for a machine.

A property is "nvidia :: cuda_version_lower_bound :: 12.8". A wheel has several values of a feature, of which one must fit.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping

from packaging.version import Version

Properties = Mapping[str, Mapping[str, tuple[str, ...]]]
"""The values of each feature of each namespace."""
NVIDIA = "nvidia"
LOWER, UPPER, KERNELS = "cuda_version_lower_bound", "cuda_version_upper_bound", "sm_arch"
_ARCH = re.compile(r"(\d{1,2})(\d[af]?)_(real|virtual)")
_MAJORS, _LAST_MINOR = range(11, 16), 20
"""The CUDA releases that the provider knows."""


def parse_variants(text: bytes | str) -> dict[str, Properties]:
    """Return the properties of each label in a variants.json or variant.json. Raises ValueError."""
    try:
        document = json.loads(text)
        return {
            str(label): {
                str(namespace): {
                    str(feature): tuple(map(str, values)) for feature, values in features.items()
                }
                for namespace, features in namespaces.items()
            }
            for label, namespaces in document["variants"].items()
        }
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"no table of variants: {type(error).__name__} at {error}") from error


def cuda_of(properties: Properties) -> str | None:
    """Return the oldest CUDA that a variant is for, or None for a variant without CUDA."""
    bounds = [v for v in properties.get(NVIDIA, {}).get(LOWER, ()) if re.fullmatch(r"\d{1,3}(\.\d{1,3})?", v)]
    oldest = min(bounds, key=Version, default=None)
    return f"{oldest}.0" if oldest and "." not in oldest else oldest


def kernels_of(properties: Properties) -> tuple[str, ...]:
    """Return the kernels of a variant in the form of rows ("9.0", "12.0+PTX")."""
    archs = filter(None, map(_ARCH.fullmatch, properties.get(NVIDIA, {}).get(KERNELS, ())))
    found = (f"{a[1]}.{a[2]}{'+PTX' if a[3] == 'virtual' else ''}" for a in archs)
    return tuple(sorted(found, key=lambda k: (Version(k.removesuffix("+PTX").rstrip("af")), k)))


def list_foreign(properties: Properties) -> list[str]:
    """Return the properties of other namespaces than NVIDIA's, of which gpuenv knows nothing."""
    return [
        f"{namespace} :: {feature} :: {' or '.join(values)}"
        for namespace, features in properties.items()
        if namespace != NVIDIA
        for feature, values in features.items()
    ]


def list_provided(cuda: str, capabilities: Iterable[str]) -> Iterator[str]:
    """Yield what NVIDIA's variant provider says of a machine, the preferred first.

    `cuda` is what its driver supports. The provider speaks for the GPU with the highest capability only, and knows no
    kernels of older majors.
    """
    major, minor = map(int, f"{cuda}.0".split(".")[:2])
    if major not in _MAJORS:
        return
    for other in range(major, _MAJORS[0] - 1, -1):
        last = minor if other == major else _LAST_MINOR
        yield from (f"{NVIDIA} :: {LOWER} :: {other}.{m}" for m in range(last, -1, -1))
        yield f"{NVIDIA} :: {LOWER} :: {other}"
    for other in range(_MAJORS[-1], major - 1, -1):
        first = minor + 1 if other == major else 0
        yield from (f"{NVIDIA} :: {UPPER} :: {other}.{m}" for m in range(_LAST_MINOR, first - 1, -1))
        if other > major:
            yield f"{NVIDIA} :: {UPPER} :: {other}"
    if best := max(capabilities, key=Version, default=None):
        number, minor = map(int, best.split("."))
        yield from (f"{NVIDIA} :: {KERNELS} :: {number}{m}_real" for m in range(minor, -1, -1))
        yield f"{NVIDIA} :: {KERNELS} :: {number}0_virtual"
