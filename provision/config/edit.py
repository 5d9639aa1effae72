"""Edit the packages of gpuenv.yaml or pyproject.toml in place, so that everything else stays as written."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import DataError, UsageError
from ..model import FRAMEWORK_ALIASES, PROJECT_FRAMEWORKS, ProjectConfig
from ..requirements.quote import parse_requirement, quote_text, take_first_line
from ..system.files import Draft, resolve, suggest_fix, write_file
from . import file
from .file import parse_config, read_bytes


class NotEditableError(Exception):
    """The text cannot be edited automatically."""


def edit_table(text: str, old: Sequence[str], new: Sequence[str | None]) -> str:
    """Return the text with the entries changed from `old` to `new`. None in `new` removes an entry.

    Raises NotEditableError.
    """
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    is_crlf = 0 < text.count("\r\n") == text.count("\n")
    try:
        document: Any = tomlkit.parse(text.replace("\r\n", "\n") if is_crlf else text)
        table = document["tool"]["gpuenv"]
        if "packages" not in table:
            table["packages"] = tomlkit.array()
        entries = table["packages"]
        _change(entries, old, new)
        changed = tomlkit.dumps(document)
    except (TOMLKitError, LookupError, TypeError, ValueError, AttributeError) as error:
        raise NotEditableError from error
    return changed.replace("\n", "\r\n") if is_crlf else changed


def _change(entries: Any, old: Sequence[str], new: Sequence[str | None]) -> None:
    for i in reversed(range(len(old))):
        if new[i] is None:
            del entries[i]
        elif new[i] != old[i]:
            entries[i] = new[i]
    for entry in new[len(old) :]:
        entries.append(entry)


def add_packages(path: Path, requirements: Sequence[str]) -> ProjectConfig:
    """Write requirements into `packages`, as `merge_packages` does.

    Returns the edited project. A file that has all of them is not written. The new text is parsed again before it is
    written. Keeps the file, and raises UsageError for a requirement that cannot be a package and a file that cannot be
    written, and DataError for one that is invalid or cannot be edited.
    """
    wanted = {_validate_package(text): text for text in requirements}
    data = read_bytes(path)
    before = parse_config(path.name, data)
    _refuse_several(path.name, before.packages, list(wanted))
    entries: list[str | None] = [*merge_packages(before.packages, list(wanted.values()))]
    by_hand = "write it by hand: " + ", ".join(f"packages: {json.dumps([t])}" for t in wanted.values())
    return _rewrite(path, data, before, entries, by_hand)


def drop_packages(path: Path, names: Sequence[str]) -> ProjectConfig:
    """Remove packages from `packages`, as `add_packages` adds them. Raises DataError."""
    data = read_bytes(path)
    before = parse_config(path.name, data)
    entries = [None if parse_package_name(text) in names else text for text in before.packages]
    by_hand = f"remove {', '.join(names)} from packages by hand"
    return _rewrite(path, data, before, entries, by_hand)


def parse_package_name(text: str) -> str:
    """Return the normalized name of a requirement. Raises ValueError."""
    from packaging.utils import canonicalize_name

    return str(canonicalize_name(parse_requirement(text).name))


def _rewrite(
    path: Path, data: bytes, before: ProjectConfig, entries: Sequence[str | None], by_hand: str
) -> ProjectConfig:
    """Write the file with new `entries`: the old ones in order, None for a removed one, then the added ones."""
    meant = dataclasses.replace(before, packages=tuple(text for text in entries if text is not None))
    if meant == before:
        return before
    edited = edit_table if path.name == file.PYPROJECT else _edit_yaml
    try:
        changed = edited(data.decode("utf-8"), before.packages, entries)
        good = parse_config(path.name, changed.encode()) == meant
    except (DataError, NotEditableError):
        good = False
    if not good:
        raise DataError(f"{path.name} cannot be edited automatically; nothing was changed", hint=by_hand)
    try:
        write_files({path: changed.encode()})
    except OSError as error:
        raise UsageError(
            f"{path} cannot be written: {error.strerror}", hint=suggest_fix(error, "check its permissions")
        ) from error
    return meant


def _validate_package(text: str) -> str:
    """Return the normalized name of a requirement that `packages` may list. Raises UsageError."""
    try:
        name = parse_package_name(text)
    except ValueError as error:
        raise UsageError(
            f"{quote_text(text)!r} is not a requirement: {take_first_line(error)}",
            hint="write it as numpy>=1.26",
        ) from error
    if problem := file.LISTS["packages"].problem(text):
        raise UsageError(f"{quote_text(text)!r}: {problem}")
    framework = FRAMEWORK_ALIASES.get(name, name)
    if framework in PROJECT_FRAMEWORKS and name != "tensorflow-cpu":  # no plan chooses that package
        raise UsageError(
            f"{framework} is a framework. gpuenv selects its build and the packages that are compiled for it",
            hint=f'add it to the project\'s file as frameworks: ["{framework}"], then run gpuenv create',
        )
    return name


def merge_packages(have: Sequence[str], wanted: Sequence[str]) -> list[str]:
    """Return the requirements with the wanted ones in the places of their names, or behind.

    A wanted one without a bound keeps the bound that is there.
    """
    names = [parse_package_name(text) for text in have]
    by_name = {parse_package_name(text): text for text in wanted}
    merged = [
        _keep_bound(text, by_name[name]) if name in by_name else text
        for name, text in zip(names, have, strict=True)
    ]
    return [*merged, *(text for name, text in by_name.items() if name not in names)]


def _keep_bound(old_text: str, new_text: str) -> str:
    old, new = parse_requirement(old_text), parse_requirement(new_text)
    if new.specifier or new.url:
        return new_text
    if new.extras <= old.extras and str(new.marker) == str(old.marker):
        return old_text
    old.extras, old.marker = old.extras | new.extras, new.marker
    return str(old)


def _refuse_several(file: str, packages: Sequence[str], wanted: Sequence[str]) -> None:
    """Raise DataError for a wanted package with several entries."""
    names = [parse_package_name(text) for text in packages]
    for name in wanted:
        if names.count(name) > 1:
            raise DataError(
                f"{file} has {name} more than once, with different markers",
                hint="change these entries by hand",
            )


def _edit_yaml(text: str, old: Sequence[str], new: Sequence[str | None]) -> str:
    """Return the YAML text with the entries changed from `old` to `new`. None in `new` removes an entry."""
    import yaml

    root: Any = yaml.compose(text, Loader=yaml.SafeLoader)  # the marks of a node count characters
    pairs = root.value if root is not None and root.id == "mapping" else []
    pair = next((p for p in pairs if p[0].value == "packages"), None)
    written = [entry and json.dumps(entry, ensure_ascii=False) for entry in new]
    added = [entry for entry in written[len(old) :] if entry]
    if pair is None:
        indent = " " * root.start_mark.column if pairs else ""
        return _insert_rows(text, len(text), f"{indent}  - ", added, f"{indent}packages:")
    key, node = pair
    start, end = node.start_mark.index, node.end_mark.index
    if node.id == "scalar":  # nothing, or null
        if start < end:
            return f"{text[:start]}[{', '.join(added)}]{text[end:]}"
        return _insert_rows(text, key.end_mark.index, " " * (key.start_mark.column + 2) + "- ", added)
    changes = [
        (item.start_mark.index, item.end_mark.index, after)
        for item, before, entry, after in zip(node.value, old, new, written, strict=False)
        if after is not None and before != entry
    ]
    changes += _remove_entries(text, node, [i for i in range(len(old)) if new[i] is None])
    last = node.value[-1].end_mark.index if node.value else start + 1
    if added and node.flow_style:
        changes.append((last, last, ", ".join(["", *added] if node.value else added)))
    elif added:
        text = _insert_rows(text, last, " " * node.start_mark.column + "- ", added)
    for start, end, after in sorted(changes, reverse=True):
        text = text[:start] + after + text[end:]
    return text


def _remove_entries(text: str, node: Any, gone: Sequence[int]) -> Iterator[tuple[int, int, str]]:
    """Yield what removes entries: whole lines, or in a flow list the entry and a comma."""
    for i in gone:
        start, end = node.value[i].start_mark.index, node.value[i].end_mark.index
        if not node.flow_style:
            start, end = text.rfind("\n", 0, start) + 1, text.find("\n", end) + 1 or len(text)
        elif any(kept not in gone for kept in range(i)):
            start = node.value[i - 1].end_mark.index
        elif i + 1 < len(node.value):
            end = node.value[i + 1].start_mark.index
        yield start, end, ""


def _insert_rows(text: str, index: int, mark: str, entries: Sequence[str], *before: str) -> str:
    """Return the text with a row for each entry after the line of an index."""
    newline = "\r\n" if "\r\n" in text else "\n"
    end = text.find("\n", index) + 1 or len(text)
    lead = newline if text[:end] and text[end - 1] != "\n" else ""
    rows = [*before, *(mark + entry for entry in entries)]
    return text[:end] + lead + newline.join(rows) + newline + text[end:]


def write_files(contents: Mapping[Path, bytes]) -> None:
    """Write files by renaming, with their old permissions, and restore them all if one fails. Raises OSError.

    A link is followed inside the file's folder and rejected if it leads out of it.
    """
    replaced: list[tuple[Path, bytes | None]] = []
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
                replaced.append((place, old))
        except BaseException:
            for place, old in reversed(replaced):
                if old is None:
                    place.unlink(missing_ok=True)
                else:
                    write_file(place, old)
            raise
