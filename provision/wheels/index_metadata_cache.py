"""Cache of index metadata: lists of a package's files, and requirements of wheels.

Lists are valid while their server allows it. Requirements are stored by the sha256 of the wheel.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from urllib.parse import unquote, urlsplit

from packaging.metadata import parse_email

from ..errors import LockError
from ..index import pytorch_index, uv_config
from ..index.http import Http, Response
from ..index.pip_config import default_index, pip_configuration
from ..index.remote_wheels import metadata, read_local_metadata
from ..index.simple_api import ACCEPT, File, parse_links, parse_project, project_url
from ..model import PackageSources
from ..system import process, trust
from ..system.cache import cache_folder
from .cache_and_disk import own_cache

_LONGEST = 600.0
"""The most seconds for which a list of files is cached. Its server states how long it is valid."""


@dataclass
class IndexMetadata:
    """Lists of files and requirements, from the indexes of the configuration. `tries` and `timeout` (seconds) are those
    of a request."""

    sources: PackageSources
    tries: int = 2
    timeout: float = 20.0

    def files(self, name: str, index: str | None = None) -> list[File]:
        """Return the files of a package on the indexes of a solve. `index` is the only index to use.

        All of pip's extra indexes are used together. uv's are used in order, until one has the package. Raises
        LockError if an index does not answer.
        """
        files: list[File] = []
        for place in [index] if index else self._places:
            files += self.page(project_url(place, name))
            if files and not self.sources.extra:
                break
        return files

    def requirements(self, file: File) -> tuple[str, ...] | None:
        """Return the Requires-Dist of a wheel, or None if they cannot be read."""
        if file.url.startswith("file:"):
            return _parse_requirements(read_local_metadata(Path(unquote(urlsplit(file.url).path))))
        kept = cache_folder(self._cache, "requirements") / f"{file.sha256}.json" if file.sha256 else None
        if kept and (known := _read_remembered(kept)) is not None:
            return known
        try:
            requirements = _parse_requirements(metadata(self._http, file))
        except LockError:
            return None
        if kept:
            _keep(kept, json.dumps(requirements))
        return requirements

    def digest(self, name: str, index: str | None = None) -> str:
        """Return a digest of the lists of a package's files. Raises LockError if an index does not answer."""
        digest = hashlib.sha256()
        for place in [index] if index else self._places:
            answer = self._read_page(project_url(place, name))
            digest.update(f"{place} {len(answer.body) if answer else None}\n".encode())
            digest.update(answer.body if answer else b"")
        return digest.hexdigest()

    def page(self, url: str) -> list[File]:
        """Return the files that a page links to, or [] for a missing page. Raises LockError for an unreadable one."""
        answer = self._read_page(url)
        return parse_project(answer) if answer else []

    def links(self, url: str) -> list[str]:
        """Return the addresses that a page links to. Raises LockError for an unreadable one."""
        answer = self._read_page(url)
        return parse_links(answer) if answer else []

    def _read_page(self, url: str) -> Response | None:
        """Return the list at an address, or None if it is missing. It is read once in a run."""
        if url not in self.sources.pages:
            answer = self._read_page_once(url)
            kind = answer.headers.get("content-type", "") if answer else ""
            self.sources.pages[url] = (answer.url, kind, answer.body) if answer else None
        if (known := self.sources.pages[url]) is None:
            return None
        final, kind, body = known
        return Response(200, {"content-type": kind}, body, final)

    def _read_page_once(self, url: str) -> Response | None:
        """Read the list at an address, from the cache while its server allows it."""
        if url.startswith("file:"):
            return self._http.get(url, missing_ok=True)
        kept = cache_folder(self._cache, "pages") / f"{hashlib.sha256(url.encode()).hexdigest()}.json"
        answer = _read_recent(kept)
        if answer is None:
            answer = self._http.get(url, accept=ACCEPT, missing_ok=True)
            if answer and (seconds := _find_seconds_to_keep(answer)):
                until = time.time() + min(seconds, _LONGEST)
                page = {"until": until, "url": answer.url, "body": answer.body.decode("utf-8", "replace")}
                _keep(kept, json.dumps(page))
        return answer

    @cached_property
    def _places(self) -> list[str]:
        environ = process.environ()
        more = map(uv_config.address, uv_config.extra_indexes(uv_config.variables(environ)))
        default = self.sources.default or default_index(environ, cache_dir=self._cache)
        places = dict.fromkeys([*self.sources.extra, *more, default])
        return [p for p in places if not pytorch_index.is_one(p, self.sources.pytorch)]

    @cached_property
    def _http(self) -> Http:
        return Http(pip_configuration(process.environ()), tries=self.tries, timeout=self.timeout)

    @cached_property
    def _cache(self) -> Path:
        return own_cache(self.sources)


def _parse_requirements(text: str) -> tuple[str, ...]:
    return tuple(parse_email(text)[0].get("requires_dist", ()))


def _read_remembered(path: Path) -> tuple[str, ...] | None:
    try:
        return tuple(str(text) for text in json.loads(trust.read_cached(path)))
    except (OSError, ValueError):
        return None


def _find_seconds_to_keep(answer: Response) -> int:
    """Return the seconds for which the response may be cached (RFC 9111, Cache-Control: max-age)."""
    control = answer.headers.get("cache-control", "")
    age = re.search(r"\bmax-age=(\d{1,9})", control)
    return int(age[1]) if age and not re.search(r"no-cache|no-store|must-revalidate", control) else 0


def _read_recent(path: Path) -> Response | None:
    """Return the cached response of an index if it is still valid, else None."""
    try:
        kept = json.loads(trust.read_cached(path))
        if not time.time() < float(kept["until"]) < time.time() + _LONGEST:
            return None
        return Response(200, {}, str(kept["body"]).encode(), str(kept["url"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _keep(path: Path, text: str) -> None:
    """Store what was read. The cache is optional."""
    trust.write_cached(path, text)
