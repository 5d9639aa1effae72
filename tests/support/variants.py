"""Wheels with variants (PEP 825) for the index on loopback."""

from __future__ import annotations

import json
from importlib import metadata
from pathlib import Path

from loopback import Index, wheel_bytes

SCHEMA = "https://variants-schema.wheelnext.dev/peps/825/v0.1.1.json"


def nvidia(cuda: str, *kernels: str) -> dict:
    """The properties of a variant for a CUDA."""
    return {"nvidia": {"cuda_version_lower_bound": [cuda], "sm_arch": list(kernels)}}


TRIAL = {
    "cu126": nvidia("12.6", "70_real", "75_real", "80_real", "86_real", "90_real"),
    "cu130": nvidia("13.0", "75_real", "80_real", "86_real", "90_real", "100_real", "120_real"),
    "null": {},
}
"""Three variants between which a mixed host and a driver of CUDA 12.8 decide."""


def table(variants: dict) -> str:
    """The text of variants.json, or of one wheel's variant.json."""
    provider = {
        "plugin-api": "nvidia_variant_provider.plugin:NvidiaVariantPlugin",
        "requires": ["nvidia-variant-provider>=0.0.1,<1.0.0"],
    }
    return json.dumps(
        {"$schema": SCHEMA, "default-priorities": {"namespace": ["nvidia"]}, "providers": {"nvidia": provider},
         "variants": variants}
    )  # fmt: skip


def add_variants(
    index: Index, name: str, version: str, variants=TRIAL, *, requires=(), tag="py3-none-any", files=None
) -> None:
    """Add a release with a wheel for each variant. Each says in its module which one it is."""
    wheels = index.wheels.setdefault(name, {})
    stem = f"{name.replace('-', '_')}-{version}"
    for label, properties in variants.items():
        also = {**(files or {}), f"{stem}.dist-info/variant.json": table({label: properties})}
        wheels[f"{stem}-{tag}-{label}.whl"] = wheel_bytes(
            name, version, requires, f"LABEL = {label!r}\n", also
        )
    wheels[f"{stem}-variants.json"] = table(variants).encode()


def add_real(index: Index, name: str, variants=TRIAL) -> str:
    """Add variants of a package as it is installed here, and return its version."""
    found = metadata.distribution(name)
    sources = [f for f in found.files or () if f.parts[0] == name and f.suffix == ".py"]
    files = {str(f): Path(f.locate()).read_bytes() for f in sources}
    add_variants(index, name, found.version, variants, files=files)
    return found.version
