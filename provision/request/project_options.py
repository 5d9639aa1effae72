"""Merge gpuenv.yaml into the options, and read the project's requirements."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from ..errors import UsageError
from ..model import PackageSources, Profiles, ProjectConfig, ProjectRequirements, Target
from ..project.config.digests_and_cached_config import digest_files, name_watched_file, read_cached_config
from ..project.config.key_forms import CONFIG_NAME
from ..project.tree import find_root, refuse_outside
from ..system import process, untrusted
from . import upload_limits
from .paths_of_environment_and_cache import get_cache_dir
from .project_folder import locate_project_file
from .shared_options import Choices
from .user_grants import read_user_grants

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_DEFAULT_MANAGER = Choices().manager
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
                hint="write one with `gpuenv detect --json`",
            )
        return c
    if c.framework and not named:
        return c
    said = read_cached_config(file, get_cache_dir(c))
    if named:
        c = _merge_target(c, said, named, file)
    return c if c.framework else _merge_project(c, said, file)


def _merge_project(c: Choices, said: ProjectConfig, file: Path) -> Choices:
    """Merge the file into the options. Options override single values; lists are joined."""
    root = file.parent
    _refuse_outside(said, file)
    of_file = root / said.project if said.project and not c.project else None
    return dataclasses.replace(
        c,
        framework=list(said.frameworks),
        with_=[*said.packages, *c.with_],
        requirement=[*(root / r for r in said.requirements), *c.requirement],
        project=c.project or of_file,
        dependencies_only=of_file is not None and not said.install,
        extra=[*said.extras, *c.extra],
        group=[*said.groups, *c.group],
        python=c.python or (said.python if _is_version(said.python) else None),
        python_bounds="" if c.python or _is_version(said.python) else said.python or "",
        cuda=c.cuda or said.cuda,
        manager=said.manager or c.manager if c.manager == _DEFAULT_MANAGER else c.manager,
        device=said.device or c.device if c.device == "auto" else c.device,
        index=said.index or c.index if c.index == "auto" else c.index,
        find_links=[*(_beside(root, f) for f in said.find_links), *c.find_links],
        channel=[*c.channel, *said.channels],
        indexes=said.indexes,
        config=file,
    )


def _refuse_outside(said: ProjectConfig, file: Path) -> None:
    """Raise UsageError if the file names a file or folder that is not in its tree."""
    folders = [place for place in said.find_links if "://" not in place]
    pages = [unquote(place.removeprefix("file://")) for place in said.find_links if place.startswith("file:")]
    direct = [
        unquote(urlsplit(text).path) for text in re.findall(r"@\s*(file:[^\s;]+)", "\n".join(said.packages))
    ]
    for key, places, advice in (
        ("requirements", said.requirements, "name it on the command line with -r"),
        ("project", [said.project] if said.project else [], "name it on the command line with --project"),
        ("find_links", [*folders, *pages], "name it on the command line with --find-links"),
        ("packages", direct, "name it on the command line with --with"),
    ):
        for place in places:
            path = file.parent / Path(place).expanduser()
            refuse_outside(path, [find_root(file.parent)], f"{file.name}, {key}", advice)


def _is_version(python: str | None) -> bool:
    """Return whether `python:` of gpuenv.yaml is a version, such as 3.11, and not bounds, such as >=3.9."""
    return bool(python) and str(python)[0].isdigit()


def _beside(root: Path, place: str) -> str:
    return place if "://" in place else str(root / place)


def _merge_target(c: Choices, said: ProjectConfig, name: str, config: Path) -> Choices:
    target = said.targets.get(name)
    if target is None:
        known = ", ".join(said.targets) or "none"
        raise UsageError(
            f"--target {name}: no such file, and {config.name} has no target of that name",
            hint=f"it has {known}; or write a file with `gpuenv detect --json`",
        )
    words = {f: getattr(target, f) for f in ("driver", "driver_os", "platform", "glibc", "python", "cuda")}
    merged = {k: v for k, v in words.items() if v and not getattr(c, k)}
    if target.device and c.device == "auto":
        merged["device"] = target.device
    if target.manager and c.manager == _DEFAULT_MANAGER:
        merged["manager"] = target.manager
    file = config.parent / target.file if target.file else None
    if file:
        refuse_outside(
            file, [find_root(config.parent)], f"{config.name}, targets.{name}", "name it with --target"
        )
    return dataclasses.replace(c, target=file, gpu=[*c.gpu, *target.gpus], target_name=name, **merged)


def read_requirements(c: Choices, data: Profiles, target: Target) -> ProjectRequirements:
    """Return the requirements of the project's files, and packages named with a URL. Raises UsageError."""
    from packaging.requirements import Requirement

    from ..index.markers_and_tags_of_platform import markers_of

    addressed = [(text, _find_origin(c.config, text)) for text in c.with_ if Requirement(text).url]
    if not (c.requirement or c.project or addressed):
        return ProjectRequirements()
    markers = markers_of(target.platform)
    if c.python:
        markers["python_version"] = ".".join(c.python.split(".")[:2])
    from ..project.requirements.project_requirements import ProjectFiles, read_project_requirements
    from ..project.requirements.sorted_requirements import SortingRules

    files = ProjectFiles(
        requirements=c.requirement, folder=c.project, extras=c.extra, groups=c.group, packages=addressed,
        install=not c.dependencies_only,
    )  # fmt: skip
    rules = SortingRules(markers=markers, stack=list_stack_packages(data))
    return read_project_requirements(files, process.environ(), rules, _companions(data))


def _find_origin(config: Path | None, text: str) -> str:
    """Return the line of gpuenv.yaml that has a package, else the option that names it."""
    try:
        lines = untrusted.read_text(config).splitlines() if config else []
    except OSError:
        lines = []
    number = next((n for n, line in enumerate(lines, 1) if text in line), None)
    return f"{config.name} line {number}" if config and number else f"--with {text}"


def add_python_bounds(demands: ProjectRequirements, c: Choices) -> ProjectRequirements:
    """Return the requirements with the bounds on Python in gpuenv.yaml."""
    if not c.python_bounds:
        return demands
    name = c.config.name if c.config else CONFIG_NAME
    places = [demands.python_origin, f"python in {name}"]
    return dataclasses.replace(
        demands,
        requires_python=",".join(filter(None, (demands.requires_python, c.python_bounds))),
        python_origin=" and ".join(filter(None, places)),
    )


def list_stack_packages(data: Profiles) -> frozenset[str]:
    """Return the distributions that builds require and the plan selects.

    These are the parts of NVIDIA's toolkit, and the pinned requirements of framework builds without their
    companions.
    """
    from packaging.utils import canonicalize_name

    texts = {t for r in data.toolkits for part in r.parts for t in part.split(" ")[1:]}
    texts |= {text for b in data.builds for text in b.requires}  # many rows share few texts
    # Only the names are read: parsing 1,000 requirements takes a tenth of the start of a command.
    names = {start[0] for text in texts if (start := _NAME.match(text))} | {r.package for r in data.cudnn}
    return frozenset(canonicalize_name(n) for n in names)


def _companions(data: Profiles) -> dict[str, str]:
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    companions = {x: b.framework for b in data.builds for x in b.companions}
    return {canonicalize_name(Requirement(x).name): framework for x, framework in companions.items()}


def merge_sources(s: PackageSources, c: Choices, demands: ProjectRequirements) -> PackageSources:
    """Return the package sources with those of the project's files. An index of an option overrides theirs.

    The PyTorch index is left out: the plan decides which build comes from it. Beside the default index it
    would offer other builds of the same versions.
    """
    from ..index import pytorch_index

    extra_urls = [u for u in demands.extra_index_urls if not pytorch_index.is_one(u, s.pytorch)]
    replaced = "://" in c.index or process.environ().get("GPUENV_INDEX_PYPI")
    main = None if replaced else demands.index_url
    if main and pytorch_index.is_one(main, s.pytorch):
        main = None
    return dataclasses.replace(
        s,
        default=main or s.default,
        extra=tuple(dict.fromkeys([*s.extra, *extra_urls])),
        find_links=tuple(dict.fromkeys([*s.find_links, *demands.find_links])),
        no_index=s.no_index or demands.no_index,
        exclude_newer=s.exclude_newer or _limit(c, demands),
        explicit=tuple(dict.fromkeys(n.index for n in demands.needs if n.index)),
    )


def _limit(c: Choices, demands: ProjectRequirements) -> str | None:
    """Return the project's limit on uploads, unless an option or the user's environment has another one."""
    if c.exclude_newer == upload_limits.NONE:
        return None
    return process.environ().get("UV_EXCLUDE_NEWER") or demands.exclude_newer


def list_files(c: Choices, demands: ProjectRequirements) -> list[str]:
    """Return every file that the requirements depend on, for comparison in the next run."""
    config_files = [name_watched_file(c.config)] if c.config else []
    return [*config_files, *dict.fromkeys(demands.files)]


def digest_inputs(c: Choices, files: list[str]) -> str | None:
    """Return a digest of the requirements of a project's files and options on any machine, or None without
    files.

    Device, CUDA and Python are left out, because the plan of a lock has them.
    """
    return _inputs(c, files, (*_OF_THE_RUN, *_OF_THE_PLAN))


def is_same_inputs(digest: str | None, c: Choices, files: list[str]) -> bool:
    """Return whether a lock's digest matches the current requirements.

    Digests of earlier versions match too. One counted every byte of gpuenv.yaml. 0.1.0 also counted the
    options of the machine.
    """
    machine = (*_OF_THE_RUN, *_OF_THE_PLAN)
    known = (_inputs(c, files, machine, exact=True), _inputs(c, files, _OF_THE_RUN, exact=True))
    return digest is not None and digest in (digest_inputs(c, files), *known)


def _inputs(c: Choices, files: list[str], left_out: tuple[str, ...], *, exact: bool = False) -> str | None:
    if not files:
        return None
    counted = {k: v for k, v in as_plain_options(c).items() if k not in left_out} | {"find_links": []}
    for later in (
        "only_binary",
        "python_bounds",
        "dependencies_only",
    ):  # options that version 0.1.0 did not have
        if not counted.get(later):
            counted.pop(later, None)
    counted_text = json.dumps(counted, sort_keys=True) + digest_files(files, exact=exact)
    return hashlib.sha256(counted_text.encode()).hexdigest()


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
