"""Write gpuenv's bill of materials in CycloneDX: the requirements locked in release/requirements.txt.

`sbom.py` checks whether release/gpuenv.cdx.json is current, and exits with 1 if not. `--write` writes it. The
wheel contains it in .dist-info/sboms/ (PEP 770). It has no time and no random number, so that the same files
give the same bytes.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import tomli
from cyclonedx.model import Property
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentScope, ComponentType
from cyclonedx.model.license import LicenseExpression
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

ROOT = Path(__file__).resolve().parent.parent
LOCKED = ROOT / "release" / "requirements.txt"
WRITTEN = ROOT / "release" / "gpuenv.cdx.json"


@dataclass
class Pin:
    """A locked requirement with its marker and the packages that require it."""

    name: str
    version: str
    marker: str
    via: list[str] = field(default_factory=list)


def pins(text: str) -> Iterator[Pin]:
    """Yield the pins of a requirements file that `uv pip compile` wrote."""
    for block in re.split(r"^(?=\S)", text, flags=re.MULTILINE):
        match = re.match(r"([A-Za-z0-9._-]+)==([^\s;\\]+)(?:\s*;\s*([^\\\n]+?))?\s*\\?\n", block)
        if match:
            said = block.partition("# via")[2].replace("#", " ")
            via = [w for w in said.split() if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", w)]
            name, version, marker = match.groups()
            yield Pin(name, version, marker or "", via)


def bill(root: Path = ROOT) -> str:
    """Return the bill of materials as JSON."""
    project = tomli.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    code = (root / "provision" / "__init__.py").read_text(encoding="utf-8")
    version = re.findall(r'__version__ = "([^"]+)"', code)[0]
    locked = list(pins((root / "release" / "requirements.txt").read_text(encoding="utf-8")))
    component = Component(
        name="gpuenv", version=version, type=ComponentType.APPLICATION, bom_ref="gpuenv",
        description=project["description"], licenses=[LicenseExpression(project["license"])],
        purl=PackageURL("pypi", None, "gpuenv", version),
    )  # fmt: skip
    bom = Bom()
    bom.metadata.component = component
    bom.metadata.properties.add(Property(name="cdx:reproducible", value="true"))
    components = {_key(pin): _component(pin) for pin in locked}
    bom.components.update(components.values())
    bom.register_dependency(component, [c for p, c in _pairs(locked, components) if "gpuenv" in p.via])
    for pin in locked:
        theirs = [c for p, c in _pairs(locked, components) if pin.name in p.via]
        bom.register_dependency(components[_key(pin)], theirs)
    written = json.loads(JsonV1Dot6(bom).output_as_string())
    del written["serialNumber"], written["metadata"]["timestamp"]
    return json.dumps(written, indent=1, sort_keys=True) + "\n"


def _key(pin: Pin) -> str:
    return f"{pin.name}@{pin.version}"


def _pairs(locked: list[Pin], components: dict[str, Component]) -> Iterator[tuple[Pin, Component]]:
    return ((pin, components[_key(pin)]) for pin in locked)


def _component(pin: Pin) -> Component:
    properties = [Property(name="gpuenv:marker", value=pin.marker)] if pin.marker else []
    return Component(
        name=pin.name, version=pin.version, type=ComponentType.LIBRARY, bom_ref=_key(pin),
        scope=ComponentScope.REQUIRED,
        purl=PackageURL("pypi", None, pin.name, pin.version), properties=properties,
    )  # fmt: skip


def main() -> None:
    """Compare, or write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    fresh = bill()
    if parser.parse_args().write:
        WRITTEN.write_text(fresh, encoding="utf-8")
    elif not WRITTEN.exists() or WRITTEN.read_text(encoding="utf-8") != fresh:
        sys.exit(f"{WRITTEN.relative_to(ROOT)} is out of date: scripts/sbom.py --write")


if __name__ == "__main__":
    main()
