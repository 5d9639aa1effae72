"""`packages` of a project's file, changed in place: all else keeps its bytes. Several files are written all, or none."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from provision.errors import DataError, UsageError
from provision.model import FRAMEWORK_ALIASES, FRAMEWORKS, ProjectConfig
from provision.system.safe_write import Draft, hint_of, resolve, write_file

from ..quoted_text import first_line, requirement, shown
from . import key_forms
from .edit_pyproject import NotEditableError, table_edited
from .gpuenv_yaml import parse_config, read_bytes

# Text to put in place of what stands from one index to another
_Change = tuple[int, int, str]


def add_packages(path: Path, requirements: Sequence[str]) -> ProjectConfig:
    """Write requirements into `packages`, each in place of the entry of its name, else at the end.

    Returns the project as it is then; a file that says all of it already is not written. The new text is
    read again and must say what was meant. Raises UsageError for what is no package, DataError (and
    leaves the file alone) where the file is invalid, cannot be edited or cannot be written.
    """
    wanted = {_name(text): text for text in requirements}
    data = read_bytes(path)
    before = parse_config(path.name, data)
    entries: list[str | None] = [*_merged(path.name, before.packages, wanted)]
    by_hand = "write it by hand: " + ", ".join(f"packages: {json.dumps([t])}" for t in wanted.values())
    return _rewritten(path, data, before, entries, by_hand)


def drop_packages(path: Path, names: Sequence[str]) -> ProjectConfig:
    """Remove the entries of packages from `packages`, as `add_packages` writes them. Raises DataError."""
    data = read_bytes(path)
    before = parse_config(path.name, data)
    entries = [None if name_of(text) in names else text for text in before.packages]
    by_hand = f"remove {', '.join(names)} from packages by hand"
    return _rewritten(path, data, before, entries, by_hand)


def name_of(text: str) -> str:
    """Return the canonical name of a requirement. Raises ValueError."""
    from packaging.utils import canonicalize_name

    return str(canonicalize_name(requirement(text).name))


def _rewritten(
    path: Path, data: bytes, before: ProjectConfig, entries: Sequence[str | None], by_hand: str
) -> ProjectConfig:
    """Write the file with other `entries`: the old ones in their order, None for one that goes, then new ones."""
    meant = dataclasses.replace(before, packages=tuple(text for text in entries if text is not None))
    if meant == before:
        return before
    edited = table_edited if path.name == key_forms.PYPROJECT else _edited
    try:
        changed = edited(data.decode("utf-8"), before.packages, entries)
        good = parse_config(path.name, changed.encode()) == meant
    except (DataError, NotEditableError):
        good = False
    if not good:
        raise DataError(f"{path.name} cannot be edited as it is written; nothing was changed", hint=by_hand)
    try:
        write_all({path: changed.encode()})
    except OSError as error:
        raise DataError(
            f"{path} cannot be written: {error.strerror}", hint=hint_of(error, "check its permissions")
        ) from error
    return meant


def _name(text: str) -> str:
    """The canonical name of a requirement that may stand under packages. Raises UsageError."""
    from packaging.utils import canonicalize_name

    try:
        name = canonicalize_name(requirement(text).name)
    except ValueError as error:
        raise UsageError(
            f"{shown(text)!r} is no requirement: {first_line(error)}", hint="write it as numpy>=1.26"
        ) from error
    if problem := key_forms.LISTS["packages"].problem(text):
        raise UsageError(f"{shown(text)!r}: {problem}")
    framework = FRAMEWORK_ALIASES.get(name, name)
    if framework in FRAMEWORKS and name != "tensorflow-cpu":  # which no plan is about
        raise UsageError(
            f"{framework} is a framework: the plan picks its build, and what is built for the old one changes",
            hint=f'write it in the project\'s file, frameworks: ["{framework}"], then gpuenv create',
        )
    return name


def _merged(file: str, packages: Sequence[str], wanted: dict[str, str]) -> tuple[str, ...]:
    """The entries with the wanted ones in place of those of their names. Raises DataError."""
    names = [name_of(text) for text in packages]
    for name in wanted:
        if names.count(name) > 1:
            raise DataError(
                f"{file} has {name} more than once, with different markers",
                hint="change these entries by hand",
            )
    merged = [wanted.get(name, text) for name, text in zip(names, packages, strict=True)]
    return (*merged, *(text for name, text in wanted.items() if name not in names))


def _edited(text: str, old: Sequence[str], new: Sequence[str | None]) -> str:
    """The text with the entries changed from old to new, which begins with as many."""
    import yaml

    root: Any = yaml.compose(text, Loader=yaml.SafeLoader)  # its marks count characters
    newline = "\r\n" if "\r\n" in text else "\n"
    pairs = root.value if root is not None and root.id == "mapping" else []
    pair = next((p for p in pairs if p[0].value == "packages"), None)
    added = [entry for entry in new[len(old) :] if entry is not None]
    if pair is None:
        indent = " " * root.start_mark.column if pairs else ""
        rows = [f"{indent}packages:", *(f"{indent}  - {_quoted(t)}" for t in added)]
        return text + newline * (bool(text) and not text.endswith("\n")) + newline.join(rows) + newline
    node = pair[1]
    if node.id == "scalar":  # nothing, or null
        if node.start_mark.index < node.end_mark.index:
            return _applied(text, [(node.start_mark.index, node.end_mark.index, _flow(added))])
        indent = " " * (pair[0].start_mark.column + 2)
        return _after_line(text, pair[0].end_mark.index, [f"{indent}- {_quoted(t)}" for t in added], newline)
    changes: list[_Change] = [
        (item.start_mark.index, item.end_mark.index, _quoted(after))
        for item, before, after in zip(node.value, old, new, strict=False)
        if after is not None and before != after
    ]
    changes += _removals(text, node, [i for i, entry in enumerate(new[: len(old)]) if entry is None])
    if added and node.flow_style:
        at = node.value[-1].end_mark.index if node.value else node.start_mark.index + 1
        listed = ", ".join(map(_quoted, added))
        changes.append((at, at, f", {listed}" if node.value else listed))
    elif added:
        indent = " " * node.start_mark.column
        rows = [f"{indent}- {_quoted(t)}" for t in added]
        text = _after_line(text, _last(node), rows, newline)
    return _applied(text, changes)


def _removals(text: str, node: Any, gone: Sequence[int]) -> list[_Change]:
    """Return the changes that take entries out of a list: whole lines, or in a flow list the entry and a comma."""
    changes: list[_Change] = []
    for i in gone:
        start, end = node.value[i].start_mark.index, node.value[i].end_mark.index
        if not node.flow_style:
            line_end = text.find("\n", end)
            changes.append((text.rfind("\n", 0, start) + 1, line_end + 1 if line_end >= 0 else len(text), ""))
        elif any(kept not in gone for kept in range(i)):
            changes.append((node.value[i - 1].end_mark.index, end, ""))
        else:
            after = node.value[i + 1].start_mark.index if i + 1 < len(node.value) else end
            changes.append((start, after, ""))
    return changes


def _last(node: Any) -> int:
    index: int = node.value[-1].end_mark.index
    return index


def _after_line(text: str, index: int, rows: Sequence[str], newline: str) -> str:
    """The text with rows after the line that an index is in."""
    end = text.find("\n", index)
    if end < 0:
        return text + newline + newline.join(rows) + newline
    return text[: end + 1] + newline.join(rows) + newline + text[end + 1 :]


def _applied(text: str, changes: Sequence[_Change]) -> str:
    for start, end, new in sorted(changes, reverse=True):
        text = text[:start] + new + text[end:]
    return text


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _flow(texts: Sequence[str]) -> str:
    return "[" + ", ".join(map(_quoted, texts)) + "]"


def write_all(contents: Mapping[Path, bytes]) -> None:
    """Write files, each by a rename, with the permissions that it had. A link is followed inside the file's
    folder, and refused where it leads out. Where one file fails, the others are as they were. Raises OSError."""
    done: list[tuple[Path, bytes | None]] = []
    with contextlib.ExitStack() as stack:
        drafts = []
        for path, data in contents.items():
            drafts.append((path, stack.enter_context(Draft(path))))
            drafts[-1][1].write(data)
        try:
            for path, draft in drafts:
                place = resolve(path, path.parent)
                old = place.read_bytes() if place.exists() else None
                draft.commit()
                done.append((place, old))
        except BaseException:
            for place, old in reversed(done):
                if old is None:
                    place.unlink(missing_ok=True)
                else:
                    write_file(place, old)
            raise
