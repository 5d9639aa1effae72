"""The package facts that `init` uses, and its findings in a folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from provision.model import FRAMEWORKS, CondaName, ImportName

from ..quote_for_messages_and_parse_requirement import quote_text


@dataclass(frozen=True, kw_only=True, slots=True)
class PackageFacts:
    """Facts about packages, and the rows of profiles/package_names.yaml by name.

    `companions` maps a package that comes with a framework's build to the framework. `stack` are packages that the plan
    chooses.
    """

    companions: Mapping[str, str] = field(default_factory=dict)
    stack: frozenset[str] = frozenset()
    imports: Mapping[str, ImportName] = field(default_factory=dict)
    conda: Mapping[str, CondaName] = field(default_factory=dict)

    @property
    def wheels(self) -> frozenset[str]:
        """Return the normalized names of packages with a row, frameworks and companions."""
        from packaging.utils import canonicalize_name

        packages = [row.package for row in self.imports.values()]
        packages += [row.package for row in self.conda.values() if row.package]
        return frozenset(map(canonicalize_name, [*packages, *FRAMEWORKS, *self.companions]))


@dataclass(kw_only=True, slots=True)
class FolderFindings:
    """The findings in a folder.

    `frameworks` maps a framework to its origin, `packages` a requirement to its origin, and `suggested` a requirement to
    the reason. `bounds` are bounds of frameworks from files that gpuenv.yaml does not list. `named` maps a normalized name
    to its requirement in a file, `unlisted` a normalized name to the file that gpuenv.yaml does not list. `bounded` are
    frameworks with bounds in a listed file. `cuda_origin` is the origin of
    the CUDA. `not_installed` is the reason for taking dependencies without the project.
    `imported` maps a third-party module to the programs that import it at their top level.
    """

    frameworks: dict[str, str] = field(default_factory=dict)
    bounds: dict[str, str] = field(default_factory=dict)
    requirements: list[str] = field(default_factory=list)
    project: str | None = None
    not_installed: str | None = None
    python: str | None = None
    cuda: str | None = None
    cuda_origin: str = ""
    device: str | None = None
    find_links: list[str] = field(default_factory=list)
    packages: dict[str, str] = field(default_factory=dict)
    suggested: dict[str, str] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)
    named: dict[str, str] = field(default_factory=dict)
    unlisted: dict[str, str] = field(default_factory=dict)
    bounded: set[str] = field(default_factory=set)
    imported: dict[str, str] = field(default_factory=dict)

    def framework_texts(self) -> list[tuple[str, str]]:
        """Return the frameworks as requirements, each with its origin."""
        return [(name + self.bounds.get(name, ""), origin) for name, origin in self.frameworks.items()]


def list_first(files: list[str]) -> str:
    """Return the first of several files and the number of others, as text."""
    unique = list(dict.fromkeys(files))
    more = f" and {len(unique) - 1} more" if len(unique) > 1 else ""
    return quote_text(unique[0]) + more
