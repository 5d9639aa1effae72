"""What `init` knows of packages, and what it found in a folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from provision.model import FRAMEWORKS, CondaName, ImportName

from ..quoted_text import shown


@dataclass(frozen=True, kw_only=True, slots=True)
class Known:
    """What is known of packages: `companions` (a package that comes with a framework's build -> the framework),
    `stack` (distributions that the plan decides), and the rows of profiles/package_names.yaml by name."""

    companions: Mapping[str, str] = field(default_factory=dict)
    stack: frozenset[str] = frozenset()
    imports: Mapping[str, ImportName] = field(default_factory=dict)
    conda: Mapping[str, CondaName] = field(default_factory=dict)

    @property
    def wheels(self) -> frozenset[str]:
        """Canonical names of the distributions that have a row, of the frameworks and their companions."""
        from packaging.utils import canonicalize_name

        packages = [row.package for row in self.imports.values()]
        packages += [row.package for row in self.conda.values() if row.package]
        return frozenset(map(canonicalize_name, [*packages, *FRAMEWORKS, *self.companions]))


@dataclass(kw_only=True, slots=True)
class Signs:
    """What was found: frameworks with where they are named, the files to list in gpuenv.yaml, packages to list
    there (text -> origin), packages to suggest (text -> why), and remarks. `bounds` are those of frameworks
    whose file is not listed; `named` has the packages that a file asks for: canonical name -> the text.
    `unlisted` are those of requirements files that are not listed: canonical name -> the file.
    `cuda_origin` is where the CUDA comes from. `not_installed` is why the project's dependencies are taken without the project.
    `bounded` are the frameworks that a listed file puts bounds on. `imported` are the modules of others that programs
    import at their top level: module -> where."""

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
        """The frameworks as requirements, each with its origin."""
        return [(name + self.bounds.get(name, ""), origin) for name, origin in self.frameworks.items()]


def some(files: list[str]) -> str:
    """The first of some files, and how many more there are."""
    unique = list(dict.fromkeys(files))
    more = f" and {len(unique) - 1} more" if len(unique) > 1 else ""
    return shown(unique[0]) + more
