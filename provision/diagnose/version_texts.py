"""Read version numbers: local labels, digits without dots, single integers."""

from __future__ import annotations

import re

from ..model import FRAMEWORK_ALIASES, Evidence, normalize_name
from .facts import Facts

VERSION = r"v?(\d{1,4}\.\d{1,4}(?:\.\d{1,4})?(?:\.?(?:dev|rc|post|a|b)\d{1,10})?)(\+[\w.]{1,30})?"


def package(facts: Facts, name: str, version: str, local: str | None, where: Evidence) -> None:
    name = normalize_name(name)
    if name.endswith("-gpu"):
        facts.add("gpu_package", name, where)
    elif name == "tensorflow-cpu":
        facts.add("cpu_build", "yes", where)
    facts.add(name if name == "jaxlib" else FRAMEWORK_ALIASES.get(name, name), version, where)
    _read_local(facts, local or "", where)


def _read_local(facts: Facts, local: str, where: Evidence) -> None:
    """Read a local version label: +cu121, +cuda11.cudnn86, +cpu."""
    local = local.lstrip("+").lower()
    if local.startswith("cpu"):
        facts.add("cpu_build", "yes", where)
    if match := re.match(r"cu(?:da)?(\d{2,3})", local):
        facts.add("cuda_build", dotted(match.group(1)), where)
    if match := re.search(r"cudnn(\d{2,3})", local):
        facts.add("cudnn_built", f"{match.group(1)[0]}.{match.group(1)[1:]}", where)


def dotted(digits: str) -> str:
    """Return digits with dots: "121" as CUDA 12.1, "92" as 9.2, "11" as 11."""
    if len(digits) == 2:
        return digits if digits[0] == "1" and digits != "10" else f"{digits[0]}.{digits[1]}"
    return f"{digits[:-1]}.{digits[-1]}"


def spelled(number: str, *, cuda: bool = False) -> str:
    """Return a version number of one integer with dots."""
    n = int(number)
    if cuda:
        return f"{n // 1000}.{n % 1000 // 10}"
    return (
        f"{n // 10000}.{n % 10000 // 100}.{n % 100}"
        if n >= 90000
        else f"{n // 1000}.{n % 1000 // 100}.{n % 100}"
    )
