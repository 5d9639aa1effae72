"""Parse gpuenv.yaml or [tool.gpuenv] and report every mistake with its line and key."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from provision.errors import DataError
from provision.model import FRAMEWORK_ALIASES, PROJECT_FRAMEWORKS, ProjectConfig, ProjectTarget, is_cpu_build
from provision.system import trust

from ..quote_for_messages_and_parse_requirement import quote_text, take_first_line
from . import key_forms
from .checked_yaml_nodes import Mistakes, read_list, read_table, read_text
from .checks import read_checks
from .pyproject_table import parse_table
from .yaml_tree import MAX_BYTES, NotReadError, YamlNode, decode_yaml, parse_yaml

_KEYS = [f.name for f in fields(ProjectConfig) if f.name not in key_forms.PROJECT[1:]]


def read_config(path: Path) -> ProjectConfig:
    """Read a gpuenv.yaml. Raises DataError with every mistake, each as "file:line: key: the mistake and the advice"."""
    return parse_config(path.name, read_bytes(path))


def read_bytes(path: Path) -> bytes:
    """Return the bytes of a gpuenv.yaml, up to just above the size limit. Raises DataError, UntrustedError."""
    try:
        return trust.read_project(path, MAX_BYTES + 1)
    except OSError as error:
        raise DataError(
            f"{path} cannot be read: {error.strerror}", hint="write one with `gpuenv init`"
        ) from error


def parse_config(name: str, data: bytes) -> ProjectConfig:
    """Parse the bytes of the gpuenv.yaml or pyproject.toml called `name`. Raises DataError."""
    mistakes = Mistakes(name)
    values: dict[str, Any] = {}
    try:
        root = parse_table(data) if name == key_forms.PYPROJECT else parse_yaml(decode_yaml(data))
    except NotReadError as error:
        mistakes.add(error.line, "", error.text)
    else:
        if root is not None and not (root.kind == "scalar" and root.taken_for == "nothing"):
            values = _read_project(root, mistakes)
    if mistakes.found:
        many = len(mistakes.found)
        raise DataError(
            f"{name} is invalid: {many} mistake{'s' * (many > 1)}",
            problems=tuple(mistakes.found),
            hint="see docs/reference/gpuenv-yaml.md for every key",
        )
    return ProjectConfig(**values)


def _read_values(
    table: Mapping[str, YamlNode], words: Mapping[str, key_forms.ValueForm], lists: Mapping[str, key_forms.ValueForm],
    where: str, mistakes: Mistakes,
) -> dict[str, Any]:  # fmt: skip
    """Return the plain keys of a table as fields of its class."""
    values: dict[str, Any] = {}
    for key, node in table.items():
        path = f"{where}{key}"
        if key in words:
            values[key] = read_text(node, path, words[key], mistakes)
        elif key in lists:
            entries = read_list(node, path, lists[key], mistakes)
            if key in ("frameworks", "packages"):
                _check_requirements(key, entries, mistakes)
            values[key] = tuple(text for text, _ in entries)
    return values


def _read_project(root: YamlNode, mistakes: Mistakes) -> dict[str, Any]:
    table = read_table(root, "", _KEYS, mistakes)
    values = _read_values(table, key_forms.WORDS, key_forms.LISTS, "", mistakes)
    if "project" in table:
        values |= _read_folder(table["project"], mistakes)
    if "indexes" in table:
        addresses = read_table(table["indexes"], "indexes", key_forms.INDEXES, mistakes)
        values["indexes"] = _read_values(addresses, key_forms.INDEXES, {}, "indexes.", mistakes)
    if "targets" in table:
        named = read_table(table["targets"], "targets", (), mistakes)
        values["targets"] = {name: _read_target(name, node, mistakes) for name, node in named.items()}
    if "checks" in table:
        values["checks"] = read_checks(table["checks"], mistakes)
    for key in ("extras", "groups"):
        if values.get(key) and "project" not in table:
            mistakes.add(table[key].line, key, 'requires a project: also write project: "."')
    return values


def _read_folder(node: YamlNode, mistakes: Mistakes) -> dict[str, Any]:
    """Read the project's folder: a path, or a table of path and install."""
    if node.kind != "table":
        return {"project": read_text(node, "project", key_forms.PATH, mistakes)}
    table = read_table(node, "project", ("path", "install"), mistakes)
    values: dict[str, Any] = {}
    if "path" in table:
        values["project"] = read_text(table["path"], "project.path", key_forms.PATH, mistakes)
    else:
        mistakes.add(node.line, "project", 'has no path: write {path: ".", install: false}')
    if "install" in table:
        value = table["install"]
        if value.kind == "scalar" and value.text in ("true", "false"):
            values["install"] = value.text == "true"
        else:
            mistakes.add(value.line, "project.install", "expected true or false")
    return values


def _read_target(name: str, node: YamlNode, mistakes: Mistakes) -> ProjectTarget:
    where = f"targets.{quote_text(name)}"
    if problem := key_forms.TARGET_NAME.problem(name):
        mistakes.add(node.line, where, f"a target's name: {problem}")
    table = read_table(node, where, [f.name for f in fields(ProjectTarget)], mistakes)
    if node.kind == "table" and not node.pairs:
        mistakes.add(node.line, where, "is empty: expected the key `file`, or the keys `driver` and `gpus`")
    doubled = [key for key in key_forms.SAID_BY_FILE if key in table and "file" in table]
    if doubled:
        mistakes.add(
            table[doubled[0]].line,
            f"{where}.{doubled[0]}",
            "the target's `file` states this too: remove one of them",
        )
    values = _read_values(table, key_forms.TARGET_WORDS, key_forms.TARGET_LISTS, f"{where}.", mistakes)
    return ProjectTarget(**values)


def _check_requirements(key: str, entries: list[tuple[str, YamlNode]], mistakes: Mistakes) -> None:
    """Record entries that are not requirements, belong to another list, or repeat a package."""
    from packaging.utils import canonicalize_name

    from ..quote_for_messages_and_parse_requirement import parse_requirement, suggest_version

    seen: dict[str, int] = {}
    for i, (text, node) in enumerate(entries):
        where = f"{key}[{i}]"
        if meant := suggest_version(text):
            mistakes.add(node.line, where, f'{quote_text(text)!r}: a version follows ==: write "{meant}"')
            continue
        if key == "packages" and (belongs := _suggest_folder_key(text)):
            mistakes.add(node.line, where, f"{quote_text(text)!r} is a folder, not a package: {belongs}")
            continue
        try:
            need = parse_requirement(text)
        except ValueError as error:
            hint = "; a requirements file may name paths and addresses" if key == "packages" else ""
            mistakes.add(
                node.line, where, f"{quote_text(text)!r} is not a requirement: {take_first_line(error)}{hint}"
            )
            continue
        name = canonicalize_name(need.name)
        if name in seen and not (key == "packages" and need.marker):
            mistakes.add(node.line, where, f"{name} is already in line {seen[name]}")
        seen.setdefault(name, node.line)
        if problem := _find_misplacement(key, text, name, need):
            mistakes.add(node.line, where, problem)


def _suggest_folder_key(text: str) -> str | None:
    """Return where to write a folder ("-e .", "./library"), or None for any other text."""
    editable = re.fullmatch(r"(?:-e|--editable)[\s=]*(.+)", text)
    place = (editable[1] if editable else text).strip().strip("'\"")
    if "://" in place or not (editable or place.startswith((".", "/"))):
        return None
    if place in (".", "./"):
        return 'for this folder, write project: "."; for its extras, write extras:'
    return f'write "{"-e " if editable else ""}{quote_text(place)}" in a requirements file, and list that file under requirements:'


def _find_misplacement(key: str, text: str, name: str, need: Any) -> str | None:
    """Return why a requirement cannot be in this list, or None."""
    meant = FRAMEWORK_ALIASES.get(name)
    if key == "packages":
        if (name in PROJECT_FRAMEWORKS or meant) and not is_cpu_build(name, need.extras, str(need.specifier)):
            return f'{meant or name} is a framework: write it under frameworks: ["{meant or name}"]'
        return None
    if meant:
        return f"unknown framework {name!r}. Did you mean {meant}?"
    if need.url or need.marker:
        return f"{quote_text(text)!r}: write a framework as a name with bounds, such as torch>=2.6. gpuenv selects the wheel"
    if "+" in str(need.specifier):
        without = str(need.specifier).partition("+")[0]
        return (
            f'gpuenv selects the build. Write "{name}{without}", and to require this CUDA, write cuda: "12.6"'
        )
    return None
