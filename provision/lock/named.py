"""Read the packages that the user and the project name beside the frameworks."""

from __future__ import annotations

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from ..index.wheel_names import applies, cpython_markers
from ..model import FRAMEWORKS, RequestContext, RequirementLine
from ..model.values import Value
from ..requirements.quote import try_requirement
from ..system.versions import is_exact


class NamedPackage(Value):
    """A named package with its bounds, and the lines that state them.

    `index` is the only index that has it, or None for the configured ones.
    """

    name: str
    specifier: str = ""
    extras: tuple[str, ...] = ()
    named_by: str = ""
    bounded_by: tuple[str, ...] = ()
    index: str | None = None

    @property
    def text(self) -> str:
        """The requirement."""
        extras = f"[{','.join(self.extras)}]" if self.extras else ""
        return f"{self.name}{extras}{self.specifier}"

    @property
    def is_exact(self) -> bool:
        """Whether the bounds allow one version only."""
        return is_exact(self.specifier)


def read_named_packages(context: RequestContext) -> tuple[NamedPackage, ...]:
    """Return the packages of --with, gpuenv.yaml and the project's files that come from an index.

    Several lines on one package are merged.
    """
    frameworks = {*FRAMEWORKS, *(b.package for b in context.profiles.builds if b.package)}
    environment = cpython_markers(context.target.platform, context.request.python)
    asked = (RequirementLine(text=p, name=p, origin=p) for p in context.request.packages)
    lines: dict[str, list[tuple[Requirement, RequirementLine]]] = {}
    for line in (*asked, *context.requirements.lines):
        need = try_requirement(line.text) if line.name and not (line.is_direct or line.override) else None
        if need and applies(need.marker, environment):
            lines.setdefault(str(canonicalize_name(need.name)), []).append((need, line))
    packages = []
    for name, rows in lines.items():
        asking = [(need, line) for need, line in rows if not line.constraint]
        if asking and name not in frameworks:
            bounds = ",".join(str(need.specifier) for need, _ in rows if need.specifier)
            packages.append(NamedPackage(
                name=name, specifier=str(SpecifierSet(bounds)), extras=tuple(sorted({e for need, _ in asking for e in need.extras})),
                named_by=asking[0][1].origin, bounded_by=tuple(dict.fromkeys(line.origin for need, line in rows if need.specifier)),
                index=next((line.index for _, line in asking if line.index), None),
            ))  # fmt: skip
    return tuple(packages)
