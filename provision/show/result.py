"""Show what commands made, changed, listed or wrote, as text."""

from __future__ import annotations

import os
import shlex
from collections import Counter
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..model import WHEEL_NAMES, format_bytes, name_few
from ..system.redaction import clean
from .plan import show_plan
from .terminal import Screen, count, show_table
from .verdict import show_verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..model import (
        Bundle,
        BundlePlan,
        CacheUsage,
        CreateResult,
        EnvironmentList,
        ExportResult,
        FleetResults,
        InitResult,
        IssueReport,
        ListedEnvironment,
        PackageChange,
        Preview,
        ProfileTable,
        ProfileTables,
        RemoveResult,
        RepairResult,
        RestoredPackage,
    )

_LISTED = 6
"""More files than these are counted."""


def show_created(screen: Screen, result: CreateResult) -> None:
    if result.plan:
        show_plan(screen, result.plan, drifted=_find_drifted(result))
    if result.environment:
        made = _describe_update(result.packages) or "built"
        words = made if result.environment.changed else "up to date, nothing was rebuilt"
        screen.wrapped(f"{result.environment.path}: {words}", indent="    ", first="")
    if result.verdict:
        show_verdict(screen, result.verdict)
    elif result.environment:
        where = " on a machine that has the GPU" if result.plan and result.plan.device == "cuda" else ""
        path = shlex.quote(result.environment.path)
        screen.wrapped(f"unproven. To verify, run `gpuenv verify {path}`{where}", first="")


def _describe_update(packages: Sequence[PackageChange]) -> str:
    """Return what was added, removed and changed: "added tqdm 4.70.1; removed einops 0.8.2"."""
    added = [f"{p.name} {p.after}" for p in packages if not p.before]
    removed = [f"{p.name} {p.before}" for p in packages if not p.after]
    other = [f"{p.name} {p.before} -> {p.after}" for p in packages if p.before and p.after]
    parts = (("added", added), ("removed", removed), ("changed", other))
    return "; ".join(f"{verb} {name_few(names, 6)}" for verb, names in parts if names)


def _find_drifted(result: CreateResult) -> dict[str, str]:
    """Return the frameworks whose installed version differs from the lock, with the command that restores it."""
    changes = (
        *(result.verdict.drift if result.verdict else ()),
        *(result.environment.drift if result.environment else ()),
    )
    path = shlex.quote(result.environment.path) if result.environment else ""
    return {
        WHEEL_NAMES.get(
            c.name, c.name
        ): f"{c.locked} in the lock, {c.found or 'none'} installed: gpuenv repair {path}"
        for c in changes
        if c.kind in ("replaced", "removed")
    }


def show_repaired(screen: Screen, result: RepairResult) -> None:
    """Show what was restored, removed and kept, then the verdict."""
    for package in result.packages:
        screen.wrapped(_describe_restored(screen, package), indent=" " * 12, first="  restored  ")
    for gone in result.removed:
        screen.wrapped(f"{gone.name} {gone.version}: {gone.why}", indent=" " * 12, first="  removed   ")
    if result.left:
        names = ", ".join(f"{p.name} {p.version}" for p in result.left)
        screen.wrapped(f"{names}: not in the lock", indent=" " * 12, first="  left      ")
    if result.environment and not (result.packages or result.removed):
        screen.line(f"{result.environment.path}: nothing to repair: it matches its lock")
    elif result.environment:
        more = f", {len(result.removed)} removed" if result.removed else ""
        screen.line(f"{result.environment.path}: {count(len(result.packages), 'package')} restored{more}")
    if result.verdict:
        show_verdict(screen, result.verdict)


def _describe_restored(screen: Screen, package: RestoredPackage) -> str:
    if package.had is None:
        return f"{package.name} {package.now}, which was missing"
    if package.had != package.now:
        return f"{package.name} {package.had} -> {screen.colour(package.now, 'bold')}"
    what = f"{package.name} {package.now}"
    return f"{what}: {package.why.removeprefix(what + ' ').replace(f' of {what}', '')}"


def show_bundle(screen: Screen, bundle: Bundle) -> None:
    """Show the purpose of a bundle, its files and its notes."""
    for plan in bundle.plans:
        screen.wrapped(f"{plan.lock}: {_describe_bundle(plan)}", indent="    ", first="")
        classes = ", ".join(f"{c.id} ({count(len(c.hosts), 'host')})" for c in plan.classes)
        screen.wrapped(f"for {classes}", indent="    ", first="  ")
    if not bundle.plans:
        screen.wrapped(_describe_bundle(bundle), first="")
    total = sum(f.size or 0 for f in bundle.files)
    archives = dict.fromkeys(p.archive.version for p in bundle.plans or (bundle,) if p.archive)
    python = f"with Python {', '.join(archives)}" if archives else "without a Python"
    screen.line(f"{len(bundle.files)} files, {format_bytes(total)}, {python}")
    if screen.verbose:
        for file in bundle.files:
            screen.line(f"  {file.path}")
    for note in bundle.notes:
        screen.wrapped(f"note: {note}", indent="    ", first="  ")


def _describe_bundle(plan: Bundle | BundlePlan) -> str:
    return f"{', '.join(plan.frameworks)} for {plan.device}: Python {plan.python}, {plan.target.words}"


def show_listing(screen: Screen, listing: EnvironmentList) -> None:
    """Show a table with a row for each environment."""
    if not listing.environments:
        screen.line("no environments of gpuenv on this machine")
        return
    home = screen.environ.get("HOME", "").rstrip("/")
    rows = []
    for env in listing.environments:
        is_below = home and f"{env.path}/".startswith(f"{home}/")
        rows.append((f"~{env.path[len(home) :]}" if is_below else env.path, *_make_cells(env)))
    show_table(screen, ("ENVIRONMENT", "MADE FOR", "PYTHON", "VERDICT", "SIZE"), rows, whole=True)


def _make_cells(env: ListedEnvironment) -> tuple[str, str, str, str]:
    builds = [f"{f.name} {f.version}" for f in env.frameworks]
    builds += [f"CUDA {env.cuda}"] if env.cuda else ["CPU"] if builds else []
    builds += [f"cuDNN {env.cudnn}"] if env.cudnn else []
    builds += ["conda"] if env.manager == "conda" else []
    verdict = "works, CPU" if env.verdict == "cpu" else env.verdict or "-"
    size = "?" if env.bytes is None else format_bytes(env.bytes)
    if env.bytes is not None and env.shared_bytes:
        size += f", frees {format_bytes(env.bytes - env.shared_bytes)}"
    return ", ".join(builds), env.python or "?", f"{verdict} {(env.verified or '')[:10]}".rstrip(), size


def show_removal(screen: Screen, result: RemoveResult) -> None:
    """Show one sentence for each environment."""
    for env in result.removed:
        kept = env.bytes - env.freed_bytes
        sentence = f"{env.path}: removed, {format_bytes(env.freed_bytes)} freed"
        if kept > 0:
            sentence += f"; {format_bytes(kept)} are shared with a cache or another environment and stay"
        screen.wrapped(sentence, indent="  ", first="")
        for kernel in env.kernels:
            screen.wrapped(f"Jupyter kernel {kernel}: removed", indent="    ", first="  ")


def show_preview(screen: Screen, preview: Preview) -> None:
    """Show one line for each path and package, then the sizes, and that nothing was changed."""
    for package in preview.packages:
        screen.wrapped(_describe_change(package), indent="      ", first="  ")
    for verb, paths in (("write", preview.writes), ("remove", preview.removes)):
        if len(paths) > _LISTED and preview.path:
            screen.line(f"would {verb} {len(paths)} files in {_shorten_path(preview.path)}")
            continue
        for path in paths:
            screen.line(f"would {verb} {_shorten_path(path)}")
    counted = len(preview.writes) > _LISTED
    if preview.path and not counted and preview.path not in (*preview.writes, *preview.removes):
        changed = "would change" if preview.packages else "would not change"
        screen.line(f"{changed} {_shorten_path(preview.path)}")
    if preview.download_bytes:
        free = f"; {format_bytes(preview.free_bytes)} free" if preview.free_bytes is not None else ""
        screen.line(f"would download up to {format_bytes(preview.download_bytes)}{free}")
    if preview.freed_bytes is not None:
        screen.line(f"would free {format_bytes(preview.freed_bytes)}")
    for note in preview.notes:
        screen.wrapped(f"note: {note}", indent="  ", first="")
    screen.line("dry run: nothing was changed")


def _describe_change(package: PackageChange) -> str:
    size = f" ({format_bytes(package.size)})" if package.size else ""
    if package.before is None:
        return f"+ {package.name} {package.after}{size}"
    if package.after is None:
        return f"- {package.name} {package.before}"
    if package.before == package.after:
        return f"~ {package.name} {package.after}, installed again{size}"
    return f"~ {package.name} {package.before} -> {package.after}{size}"


def _shorten_path(path: str) -> str:
    """Return a path relative to the current folder if it is below it."""
    here = str(Path.cwd())
    return os.path.relpath(path, here) if path.startswith(here + os.sep) else path


def show_export(screen: Screen, value: ExportResult) -> None:
    """Show the text without changes, or the path of the file."""
    if value.path is None:
        screen.out.write(clean(value.text))
        screen.out.flush()
    else:
        screen.line(clean(f"{value.path}: written ({value.format})"))


_MOST_LINES = 11
"""The lines of `init` with the next step left out."""


def shorten_list(head: str, values: Sequence[str], columns: int) -> str:
    """Return a head and the first values in one line, with the number of the others."""
    text = head + ", ".join(values)
    for shown in range(len(values) - 1, -1, -1):
        if len(text) <= columns:
            return text
        more = f" and {len(values) - shown} more" if shown else ""
        text = head + (", ".join(values[:shown]) or values[0]) + more
    return text if len(text) <= columns else text[: columns - 3] + "..."


def show_initialised(screen: Screen, result: InitResult) -> None:
    """Show one line per file, after gpuenv.yaml what was decided in it, and the remarks.

    Without --verbose a key has one line, and few remarks are shown: gpuenv.yaml has all.
    """
    width = max(len(file.path) for file in result.files)
    keys = dict.fromkeys(decision.key for decision in result.decisions)
    for file in result.files:
        detail = f": {file.detail}" if file.detail else ""
        screen.wrapped(f"{file.path:{width}}  {file.done}{detail}", indent=" " * (width + 2), first="")
        for key in keys if file is result.files[0] else ():
            values = [
                d.value + (f" ({d.origin})" if d.origin else "") for d in result.decisions if d.key == key
            ]
            text = f"{key:13} " + ", ".join(values)
            if screen.verbose:
                screen.wrapped(text, indent=" " * 16, first="  ")
            else:
                screen.line("  " + shorten_list(f"{key:13} ", values, screen.columns() - 2))
    most = len(result.notes) if screen.verbose else max(1, _MOST_LINES - len(result.files) - len(keys))
    if len(result.notes) > most:
        most = max(1, most - 1)  # the line with the number of the others
    for note in result.notes[:most]:
        screen.wrapped(note, indent="    ", first="  ")
    if len(result.notes) > most:
        screen.line(f"  {count(len(result.notes) - most, 'more remark')} in gpuenv.yaml")
    if all(file.done == "kept" for file in result.files):
        screen.line("nothing was changed")


def show_cache(screen: Screen, cache: CacheUsage) -> None:
    """Show the folder alone, so that a script can read it, or what was removed from it."""
    if cache.removed_files is None:
        screen.line(cache.path)
        return
    screen.line(
        f"{cache.path}: {count(cache.removed_files, 'file')} removed, {format_bytes(cache.freed_bytes or 0)} freed"
    )


def show_report(screen: Screen, report: IssueReport) -> None:
    """Show the text without changes, so that it can be pasted."""
    screen.line(clean(report.text).rstrip("\n"))


def remark_on_report(screen: Screen, report: IssueReport) -> None:
    """Say what is hidden in the text."""
    if report.hidden:
        text = f"note: hidden in the report: {', '.join(report.hidden)}. Read it before you paste it"
        for row in screen.fold(text, first="", stream=screen.err):
            screen.say(row)


def show_tables(screen: Screen, known: ProfileTables) -> None:
    """Show one row for each file, or each table with its rows if they were requested."""
    if not known.tables:
        screen.line("no new releases: the profiles are up to date with the index")
    elif any(table.rows for table in known.tables):
        for table in known.tables:
            _show_rows(screen, table)
    else:
        screen.wrapped(
            "What gpuenv knows of drivers, GPUs, builds and failures; `gpuenv profiles show NAME` prints the rows and their "
            "sources.", indent="", first="",
        )  # fmt: skip
        rows = []
        for file, tables in groupby(known.tables, key=lambda t: Path(t.file)):
            own = file.parent == Path(known.tables[0].file).parent  # the first are gpuenv's own
            group = list(tables)
            titles = ", ".join(dict.fromkeys(map(_format_title, group)))
            total = f"{sum(map(_count_rows, group)):,}"
            rows.append((file.stem if own else str(file), total, max(t.read for t in group), titles))
        show_table(screen, ("NAME", "ROWS", "UPDATED", "TABLES"), rows, whole=True)


def _show_rows(screen: Screen, table: ProfileTable) -> None:
    screen.line(
        f"{_format_title(table)}: {_count_rows(table)} rows, {'measured' if table.kept == 'measured' else 'kept by hand'}, read {table.read}"
    )
    screen.wrapped(table.source, indent="  ")
    keys = list(dict.fromkeys(key for row in table.rows for key in row))
    cells = [[_format_cell(row.get(key)) for key in keys] for row in table.rows]
    if cells:
        show_table(screen, [key.upper() for key in keys], cells, indent=2)


def _format_title(table: ProfileTable) -> str:
    return " ".join(filter(None, (table.table, table.framework)))


def _count_rows(table: ProfileTable) -> int:
    return len(table.rows) if table.count is None else table.count


def _format_cell(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value))
    return "" if value is None else str(value)


def show_fleet_results(screen: Screen, results: FleetResults) -> None:
    """Show the number of hosts for each result, then all hosts."""
    counts = Counter(h.verdict.replace("_", " ") for h in results.hosts)
    verdicts = ", ".join(f"{number:,} {name}" for name, number in counts.most_common())
    screen.line(count(len(results.hosts), "host") + (f": {verdicts}" if verdicts else ""))
    if results.hosts:
        show_table(
            screen, ("HOST", "CLASS", "PLAN", "VERDICT", "CAUSE", "SECONDS"),
            [
                [h.host, h.class_ or "", h.plan or "", h.verdict.replace("_", " "), h.cause or "",
                 "" if h.seconds is None else f"{h.seconds:.1f}"]
                for h in results.hosts
            ],
            whole=True,
        )  # fmt: skip
