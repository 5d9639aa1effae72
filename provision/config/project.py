"""What gpuenv.yaml and the project's requirement files say, combined with the options of a command."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from .. import __version__
from ..errors import DataError, UsageError
from ..index.config import is_pytorch
from ..model import (
    Lock,
    PackageSources,
    Profiles,
    ProjectConfig,
    ProjectRequirements,
    ProjectTarget,
    Target,
    as_plain,
    from_plain,
)
from ..requirements.nodes import NotReadError
from ..requirements.tree import find_root, refuse_outside
from ..system import process, trust, untrusted
from ..system.redaction import find_secrets
from .env import locate_project_file
from .file import (
    CONFIG_NAME,
    PYPROJECT,
    TABLE,
    YAML_NAMES,
    parse_config,
    read_bytes,
    read_table_of,
    remove_table,
)
from .grants import read_user_grants
from .options import HOW_TO_DESCRIBE, NONE, Choices, get_cache_dir

_CACHE_FORMAT = "1"
_TABLE_MARK = f"#{TABLE}"


def name_watched_file(config: Path) -> str:
    """Return the name of a project's file for `digest_files`. Of a pyproject.toml only `tool.gpuenv` counts."""
    return f"{config}{_TABLE_MARK}" if config.name == PYPROJECT else str(config)


def digest_files(files: Sequence[str], *, exact: bool = False) -> str:
    """Return the sha256 of files: their names and bytes in order, and the reason for a file that cannot be read.

    In a project's file only the keys that decide packages count, not comments and checks. With `exact` its bytes
    count, as in version 0.1.0. In a pyproject.toml with a table `tool.gpuenv` the other tables count. Names are
    relative to the common folder, so that a checkout elsewhere has the same digest.
    """
    total = hashlib.sha256(f"{_CACHE_FORMAT} {len(files)}".encode())
    shared = os.path.commonpath([Path(f).absolute().parent for f in files]) if files else ""
    for file in files:
        name = os.path.relpath(Path(file).absolute(), shared)
        try:
            path = Path(file.removesuffix(_TABLE_MARK))
            data = untrusted.read_bytes(path)
            counted = data if exact else _select_deciding(path, data, of_table=file.endswith(_TABLE_MARK))
            content = hashlib.sha256(counted).hexdigest()
        except (OSError, ValueError) as error:  # a name with a NUL character raises ValueError
            content = type(error).__name__
        total.update(f"\0{name}\0{content}".encode("utf-8", "surrogateescape"))
    return total.hexdigest()


def _select_deciding(path: Path, data: bytes, *, of_table: bool) -> bytes:
    """Return the part of a file that decides packages: in a valid project file every key but the checks."""
    if path.name == PYPROJECT and not of_table:
        return _select_other_tables(data)
    if path.name not in YAML_NAMES and not of_table:
        return data
    try:
        values = as_plain(dataclasses.replace(read_cached_config(path, None, data), checks=()))
    except DataError:
        return data
    nothing = as_plain(ProjectConfig())  # a key of a later version must not change the digest
    stated = {key: value for key, value in values.items() if value != nothing[key]}
    return json.dumps(stated, sort_keys=True).encode()


def _select_other_tables(data: bytes) -> bytes:
    """Return the tables of a pyproject.toml other than `tool.gpuenv`, or all bytes without that table."""
    try:
        if read_table_of(data) is None:
            return data
        return json.dumps(remove_table(data), sort_keys=True, default=str).encode()
    except NotReadError:
        return data


_READ: dict[str, ProjectConfig] = {}
"""The projects that this process has parsed, by the key of their bytes."""


def read_cached_config(path: Path, cache_dir: Path | None, data: bytes | None = None) -> ProjectConfig:
    """Return the project of a file from the cache, or parse the file and cache it. Raises DataError.

    The cache in `cache_dir` is JSON by the hash of the file's bytes, which avoids importing the YAML parser. `data`
    are the bytes if the caller has read them.
    """
    data = read_bytes(path) if data is None else data
    form = PYPROJECT if path.name == PYPROJECT else ""
    key = hashlib.sha256(f"{_CACHE_FORMAT} {__version__}\0{form}".encode() + data).hexdigest()
    # A file with a password must not be copied into the cache.
    has_secret = bool(find_secrets(data.decode("utf-8", "replace")))
    kept = cache_dir / f"project-{key}.json" if cache_dir and not has_secret else None
    config = _READ.get(key) or (_read_cache(kept) if kept else None)
    if config is None:
        config = parse_config(path.name, data)
        if kept:
            trust.write_cached(kept, json.dumps(as_plain(config), separators=(",", ":")))
    _READ[key] = config
    return config


def _read_cache(path: Path) -> ProjectConfig | None:
    """Return the cached project, or None if it is missing or damaged. The caller then writes it again."""
    try:
        return from_plain(ProjectConfig, json.loads(trust.read_cached(path)))
    except (OSError, ValueError, TypeError, RecursionError):
        return None


_DEFAULT = Choices()
# Options that a lock's digest leaves out: where and how gpuenv runs, and the properties of the machine,
# which are in the lock's plan.
_OF_THE_RUN = (
    "cache_dir", "offline", "no_build", "config", "requirement", "project", "profiles", "target",
    "exclude_newer", "exclude_newer_except",
)  # fmt: skip
_OF_THE_PLAN = (
    "driver", "driver_os", "gpu", "gpus", "platform", "glibc", "target_name", "device", "python", "python_bounds",
    "cuda",
)  # fmt: skip


def apply_project(c: Choices) -> Choices:
    """Return the options merged with gpuenv.yaml.

    If a framework is named, only the machine of a named target is merged. Raises DataError, UsageError.
    """
    read_user_grants(c)
    file = locate_project_file()
    named = str(c.target) if c.target and not c.target.exists() else None
    if file is None:
        if named:
            raise UsageError(
                f"--target {named}: no such file, and no {CONFIG_NAME} here that names it",
                hint=f"--target is the file of another machine: {HOW_TO_DESCRIBE}. An environment's folder is given without an option: gpuenv create ENV",
            )
        return c
    if c.framework and not named:
        return c
    config = read_cached_config(file, get_cache_dir(c))
    if named:
        c = _merge_target(c, config, named, file)
    return c if c.framework else _merge_project(c, config, file)


def _merge_project(c: Choices, config: ProjectConfig, file: Path) -> Choices:
    """Merge the file into the options. Options override single values; lists are joined."""
    root = file.parent
    _refuse_outside(config, file)
    of_file = root / config.project if config.project and not c.project else None
    taken = _take_unset(c, config, "device", "manager", "index")
    python, bounds = (config.python, "") if _is_version(config.python) else (None, config.python or "")
    return dataclasses.replace(
        c,
        framework=list(config.frameworks),
        with_=[*config.packages, *c.with_],
        requirement=[*(root / r for r in config.requirements), *c.requirement],
        project=c.project or of_file,
        dependencies_only=of_file is not None and not config.install,
        extra=[*config.extras, *c.extra],
        group=[*config.groups, *c.group],
        python=c.python or python,
        python_bounds="" if c.python else bounds,
        # the CUDA of the project's GPU builds
        cuda=c.cuda or (config.cuda if taken.get("device", c.device) != "cpu" else None),
        find_links=[*(f if "://" in f else str(root / f) for f in config.find_links), *c.find_links],
        channel=[*c.channel, *config.channels],
        indexes=config.indexes,
        config=file,
        **taken,
    )


def _take_unset(c: Choices, config: ProjectConfig | ProjectTarget, *names: str) -> dict[str, Any]:
    """Return what a file says of options that have their default value."""
    return {
        n: value for n in names if (value := getattr(config, n)) and getattr(c, n) == getattr(_DEFAULT, n)
    }


def _refuse_outside(config: ProjectConfig, file: Path) -> None:
    """Raise UsageError if the file names a file or folder that is not in its tree."""
    folders = [place for place in config.find_links if "://" not in place]
    pages = [
        unquote(place.removeprefix("file://")) for place in config.find_links if place.startswith("file:")
    ]
    direct = [
        unquote(urlsplit(text).path) for text in re.findall(r"@\s*(file:[^\s;]+)", "\n".join(config.packages))
    ]
    for key, places, advice in (
        ("requirements", config.requirements, "name it on the command line with -r"),
        ("project", [config.project] if config.project else [], "name it on the command line with --project"),
        ("find_links", [*folders, *pages], "name it on the command line with --find-links"),
        ("packages", direct, "name it on the command line with --with"),
    ):
        for named in places:
            path = file.parent / Path(named).expanduser()
            refuse_outside(path, [find_root(file.parent)], f"{file.name}, {key}", advice)


def _is_version(python: str | None) -> bool:
    """Return whether `python:` of gpuenv.yaml is a version, such as 3.11, and not bounds, such as >=3.9."""
    return bool(python) and str(python)[0].isdigit()


def _merge_target(c: Choices, project: ProjectConfig, name: str, config: Path) -> Choices:
    target = project.targets.get(name)
    if target is None:
        known = f"it has {', '.join(project.targets)}; or " if project.targets else ""
        raise UsageError(
            f"--target {name}: no such file, and {config.name} has no target of that name",
            hint=f"{known}{HOW_TO_DESCRIBE}, or add the target to {config.name}",
        )
    taken = _take_unset(
        c, target, "driver", "driver_os", "platform", "glibc", "python", "cuda", "device", "manager"
    )
    file = config.parent / target.file if target.file else None
    if file:
        refuse_outside(
            file, [find_root(config.parent)], f"{config.name}, targets.{name}", "name it with --target"
        )
    return dataclasses.replace(c, target=file, gpu=[*c.gpu, *target.gpus], target_name=name, **taken)


def read_requirements(c: Choices, data: Profiles, target: Target) -> ProjectRequirements:
    """Return the requirements of the project's files, and packages named with a URL. Raises UsageError."""
    from packaging.requirements import Requirement

    from ..index.wheel_names import markers_of

    addressed = [(text, _find_origin(c.config, text)) for text in c.with_ if Requirement(text).url]
    if not (c.requirement or c.project or addressed):
        return ProjectRequirements()
    markers = markers_of(target.platform)
    if c.python:
        markers["python_version"] = ".".join(c.python.rstrip("t").split(".")[:2])
    from ..requirements.sort import read_project_requirements

    return read_project_requirements(
        process.environ(), markers, requirements=c.requirement, folder=c.project, extras=c.extra, groups=c.group,
        packages=addressed, known=data,
        install=not c.dependencies_only, base=c.config.absolute().parent if c.config else None,
    )  # fmt: skip


def _find_origin(config: Path | None, text: str) -> str:
    """Return the line of gpuenv.yaml that has a package, else its key."""
    lines = untrusted.read_text(config).splitlines() if config else []
    number = next((n for n, line in enumerate(lines, 1) if text in line), None)
    return f"{config.name} line {number}" if config and number else "packages"


def add_python_bounds(requirements: ProjectRequirements, c: Choices) -> ProjectRequirements:
    """Return the requirements with the bounds on Python in gpuenv.yaml."""
    if not c.python_bounds:
        return requirements
    name = c.config.name if c.config else CONFIG_NAME
    places = [requirements.python_origin, f"python in {name}"]
    return dataclasses.replace(
        requirements,
        requires_python=",".join(filter(None, (requirements.requires_python, c.python_bounds))),
        python_origin=" and ".join(filter(None, places)),
    )


def merge_sources(s: PackageSources, c: Choices, requirements: ProjectRequirements) -> PackageSources:
    """Return the package sources with those of the project's files. An index of an option overrides theirs.

    The PyTorch index is left out: the plan decides which build comes from it. Beside the default index it
    would offer other builds of the same versions.
    """
    extra_urls = [u for u in requirements.extra_index_urls if not is_pytorch(u, s.pytorch)]
    replaced = "://" in c.index or process.environ().get("GPUENV_INDEX_PYPI")
    main = None if replaced else requirements.index_url
    if main and is_pytorch(main, s.pytorch):
        main = None
    limit = (
        process.environ().get("UV_EXCLUDE_NEWER") or requirements.exclude_newer
        if c.exclude_newer != NONE
        else None
    )
    return dataclasses.replace(
        s,
        default=main or s.default,
        extra=tuple(dict.fromkeys([*s.extra, *extra_urls])),
        find_links=tuple(dict.fromkeys([*s.find_links, *requirements.find_links])),
        no_index=s.no_index or requirements.no_index,
        exclude_newer=s.exclude_newer or limit,
        explicit=tuple(dict.fromkeys(n.index for n in requirements.lines if n.index)),
    )


def list_files(c: Choices, requirements: ProjectRequirements) -> list[str]:
    """Return every file that the requirements depend on, for comparison in the next run."""
    config_files = [name_watched_file(c.config)] if c.config else []
    return [*config_files, *dict.fromkeys(requirements.files)]


def digest_inputs(c: Choices, files: list[str], *, as_first: bool = False) -> str | None:
    """Return a digest of the requirements of a project's files and options on any machine, or None without
    files.

    Device, CUDA and Python are left out, because the plan of a lock has them. Version 0.1.0 counted them (`as_first`).
    """
    if not files:
        return None
    left_out = _OF_THE_RUN if as_first else (*_OF_THE_RUN, *_OF_THE_PLAN)
    counted = {k: v for k, v in as_plain_options(c).items() if k not in left_out} | {"find_links": []}
    for later in ("only_binary", "python_bounds", "dependencies_only"):  # that version 0.1.0 did not have
        if not counted.get(later):
            counted.pop(later, None)
    counted_text = json.dumps(counted, sort_keys=True) + digest_files(files, exact=as_first)
    return hashlib.sha256(counted_text.encode()).hexdigest()


def add_inputs(lock: Lock, c: Choices, requirements: ProjectRequirements) -> Lock:
    """Return a lock with the digest of the requirements that it is for."""
    return dataclasses.replace(lock, inputs=digest_inputs(c, list_files(c, requirements)))


def is_same_inputs(digest: str | None, c: Choices, files: list[str]) -> bool:
    """Return whether a lock's digest, also one of version 0.1.0, matches the current requirements."""
    return digest is not None and any(
        digest == digest_inputs(c, files, as_first=first) for first in (False, True)
    )


def as_plain_options(c: Choices) -> dict[str, Any]:
    """Return the options as JSON values."""
    data: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(c), default=str))
    return {k: v for k, v in data.items() if k not in ("typed", "planned", "named", "trust_project")}


def parse_options(data: dict[str, Any]) -> Choices:
    """Return the recorded options of an environment. Raises ValueError for an unknown option."""
    known = {f.name: f for f in dataclasses.fields(Choices)}
    if set(data) - set(known):
        raise ValueError(f"unknown option {min(set(data) - set(known))}")
    paths = {"target", "project", "config", "cache_dir"}
    lists = {"requirement", "profiles"}
    values: dict[str, Any] = {
        k: Path(v) if k in paths and v else [Path(x) for x in v] if k in lists else v for k, v in data.items()
    }
    return Choices(**values)
