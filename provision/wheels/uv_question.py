"""A question to uv: everything that decides its answer, beside the releases on the indexes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from ..index import uv
from ..model import PackageSources
from ..system import process

_FILES_OF_VERSIONS = ("UV_CONSTRAINT", "UV_OVERRIDE", "UV_EXCLUDE")
"""Settings that name files. Questions with them are not remembered."""


@dataclass(frozen=True, kw_only=True)
class UvQuestion:
    """A question to uv.

    It has the words of the command, the folder with its input files, its settings, and packages with their only
    index.
    """

    words: Sequence[str]
    folder: Path
    sources: PackageSources
    settings: uv.Settings
    bound: Mapping[str, str]

    @property
    def is_stable(self) -> bool:
        """Return whether only lists of files can change the answer."""
        sources = self.sources
        environment = self._environment
        changing = sources.offline or sources.no_index or sources.exclude_newer or self.settings.variables
        named = [*sources.find_links, *environment.get("UV_FIND_LINKS", "").split(",")]
        return not (
            changing
            or any("://" in place for place in named)
            or any(environment.get(n) for n in _FILES_OF_VERSIONS)
        )

    @property
    def _environment(self) -> dict[str, str]:
        return uv.environment(self.sources, process.environ(), self.settings)

    def digest(self) -> str:
        """Return the sha256 of everything that decides the answer beside the releases on the indexes."""
        said = [word.replace(str(self.folder), "") for word in self.words]
        environment = {k: v for k, v in self._environment.items() if k.startswith("UV_")}
        folders = [p for p in environment.get("UV_FIND_LINKS", "").split(",") if p]
        texts = list(self.files().values())
        parts = [metadata.version("uv"), said, texts, environment, dict(self.bound), _list_contents(folders)]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()

    def files(self) -> dict[str, str]:
        """Return the texts of the input files, by name."""
        paths = [Path(word) for word in self.words if word.startswith(str(self.folder))]
        return {path.name: path.read_text(encoding="utf-8") for path in paths if path.is_file()}


def _list_contents(folders: Sequence[str]) -> list[tuple[str, int, int]]:
    """Return names, sizes and times of the files in folders of wheels."""
    files = []
    for folder in map(Path, folders):
        for path in folder.iterdir() if folder.is_dir() else ():
            about = path.stat()
            files.append((str(path), about.st_size, about.st_mtime_ns))
    return sorted(files)
