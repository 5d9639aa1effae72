"""How two locks of one environment differ: what a change of packages takes out and puts in."""

from __future__ import annotations

from dataclasses import dataclass

from ..model import Lock, Package


@dataclass(frozen=True)
class Difference:
    """What a new lock takes out of an environment (names) and puts in."""

    out: tuple[str, ...]
    into: tuple[Package, ...]

    def __bool__(self) -> bool:
        return bool(self.out or self.into)


def difference(old: Lock, new: Lock) -> Difference:
    """What leads from one lock to another. A package that changes is taken out too: wheels of NVIDIA's
    share folders, and a file must go with its old owner before the new one brings it."""
    before, after = {p.name: _identity(p) for p in old.packages}, {p.name: _identity(p) for p in new.packages}
    out = tuple(n for n in before if before[n] != after.get(n))
    return Difference(out=out, into=tuple(p for p in new.packages if after[p.name] != before.get(p.name)))


def _identity(package: Package) -> tuple[str, str, bool]:
    held = package.url if package.unhashed else package.sha256 or package.url
    return package.version, held, package.editable


def changed_packages(old: Lock, new: Lock) -> list[str]:
    """What a change does, in words: "numpy 1.26.4 -> 2.1.0"."""
    before, after = {p.name: p.version for p in old.packages}, {p.name: p.version for p in new.packages}
    names = sorted(before.keys() | after.keys())
    return [
        f"{n} {before[n]} -> {after[n]}" if n in before and n in after else
        f"+{n} {after[n]}" if n in after else f"-{n} {before[n]}"
        for n in names if before.get(n) != after.get(n)
    ]  # fmt: skip
