"""Requirements as `--with` and `gpuenv add` take them."""

from __future__ import annotations

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


def others(have: list[str], wanted: list[str]) -> list[str]:
    """The requirements of `have` for packages that `wanted` does not name."""
    names = {canonicalize_name(Requirement(w).name) for w in wanted}
    return [h for h in have if canonicalize_name(Requirement(h).name) not in names]
