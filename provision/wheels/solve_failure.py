"""Explains a refused solve by uv's log, and finds its cause."""

from __future__ import annotations

import re
from collections.abc import Sequence

from packaging.utils import canonicalize_name

from ..errors import LockError
from ..index import uv, uv_config, uv_failures
from ..index.http import Http
from ..index.pip_config import pip_configuration
from ..index.simple_api import describe_holdings
from ..model import PackageSources, RequirementLine
from ..system import process
from ..system.redaction import redact
from .allowed_source_builds import build_refused
from .build_failure import explain_in_solve
from .package_named_in_refusal import find_missing_wheel
from .read_source_archives import SourceArchives

TIMEOUT = 900.0
"""The most seconds of one solve."""


def failure(
    done: process.Finished,
    sources: PackageSources,
    needs: Sequence[RequirementLine] = (),
    archives: SourceArchives | None = None,
) -> LockError:
    """Return the error for a run of uv without a solution. `archives` knows the indexes of the packages."""
    log = uv.redacted(done.stderr)
    if done.timed_out:
        return LockError(
            f"solving the packages took longer than {TIMEOUT:.0f} s", log=log,
            hint="try again, or add bounds to the packages in the log above",
        )  # fmt: skip
    if stored := uv_failures.find_storage_failure(log):
        return LockError(stored.message, hint=stored.hint, log=log)
    if page := _PAGE.search(log):
        return LockError(
            f"the page of wheels {page[1]} cannot be read", log=log,
            hint="check the network and --find-links. If the page has no wheels for the selected framework release, "
            "request an older framework",
        )  # fmt: skip
    configured = " or ".join(map(redact, filter(None, (sources.default, *sources.extra))))
    if refused := uv_failures.find_failure(log, configured=configured or None):
        of_torch = (refused.address or "").startswith(redact(sources.pytorch or "-").rstrip("/"))
        kind = ("pytorch" if of_torch else "pypi") if refused.index_unavailable else None
        return LockError(refused.message, hint=refused.hint, log=log, unreachable=kind)
    if unbuilt := explain_in_solve(log, needs):
        return unbuilt
    if "No solution found" in log or "unsatisfiable" in log:
        return _explain_no_solution(log, sources, needs, archives or SourceArchives(sources))
    if (refused_build := build_refused(log)) is not None:
        return LockError(f"{refused_build or 'a package'} was not built", log=log, unbuilt=refused_build)
    first = next((x.removeprefix("error: ") for x in log.splitlines() if x.startswith("error")), "")
    return LockError(
        f"the packages could not be solved: {first}", log=log, hint="correct the problem in the log above"
    )


def _explain_no_solution(
    log: str, sources: PackageSources, needs: Sequence[RequirementLine], archives: SourceArchives
) -> LockError:
    """Return the error for requirements that conflict, or that no index meets."""
    name = uv_failures.find_absent_package(log)
    of_indexes = _read_holdings(name, sources)
    if absent := _ABSENT.search(log):
        return _explain_absent(absent[1], needs, log, of_indexes)
    message = "the packages of this plan conflict with each other"
    message = (
        f"no version of {name} meets all requirements: {'; '.join(of_indexes)}" if of_indexes else message
    )
    lines = _find_named_lines(log, needs)
    message += f": see {', '.join(lines)}" if lines else ""
    return LockError(
        message, log=log, contradiction=True, no_wheel=find_missing_wheel(log, archives),
        hint="relax one of the requirements in the log above",
    )  # fmt: skip


_PAGE = re.compile(r"Failed to read `--find-links` URL: (\S+)")
_ABSENT = re.compile(
    r"(?<![A-Za-z0-9._-])([A-Za-z0-9._-]+) was not found in the (?:package registry|provided package locations)"
)


def _explain_absent(
    name: str, needs: Sequence[RequirementLine], log: str, holdings_of_indexes: Sequence[str]
) -> LockError:
    where = next((f" ({n.origin})" for n in needs if n.name == canonicalize_name(name)), "")
    said = f": {'; '.join(holdings_of_indexes)}" if holdings_of_indexes else ""
    return LockError(
        f"no index or folder of wheels has the package {name}{where}{said}", log=log, absent=str(canonicalize_name(name)),
        hint="check the name, --index, --find-links and pip's configuration",
    )  # fmt: skip


def _read_holdings(name: str | None, sources: PackageSources) -> list[str]:
    """Return the versions on each index of a package that the solver could not find."""
    if name is None or sources.offline or sources.no_index:
        return []
    environ = process.environ()
    default = sources.default or uv_config.default_index(uv_config.variables(environ))
    http = Http(pip_configuration(environ), tries=1, timeout=10.0)
    return describe_holdings(http, [*([default] if default else []), *sources.extra], name)


def _find_named_lines(log: str, needs: Sequence[RequirementLine]) -> list[str]:
    """Return the project's lines whose packages the solver's reasons name."""
    because = canonicalize_name(" ".join(log.split()).replace(".", "-").replace("_", "-"))
    return [
        f"{n.text} ({n.origin})"
        for n in needs
        if n.name and re.search(rf"(?<![a-z0-9-]){re.escape(canonicalize_name(n.name))}(?![a-z0-9])", because)
    ][:5]
