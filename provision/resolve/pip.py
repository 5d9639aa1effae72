"""Write the commands with which pip or uv installs the builds of a plan into an environment. Pure.

Wheels and their extras bring their own requirements, so the commands name only the frameworks, and what the plan adds
to them: one release of cuDNN for the GPUs, and one of CUDA's libraries. Builds of different indexes are different
commands: with two indexes pip would take dependencies from either, and uv from the first that has the name.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from ..index.config import pytorch_address, pytorch_packages
from ..model import Build, Plan, PlannedBuild, Profiles, requirement_name
from .choice import is_planned

OPENED_BY_TENSORFLOW = ("cublas", "cuda_runtime", "cudnn", "cufft", "cusolver", "cusparse")
"""The folders of nvidia/ whose libraries TensorFlow needs to use a GPU: gpu/dso_loader.cc, TryDlopenCUDALibraries."""

# The extras of a package that require its CUDA libraries. torch requires its own without one.
EXTRAS = {"jax": "cuda{major}", "tensorflow": "and-cuda", "onnxruntime-gpu": "cuda,cudnn"}
# uv prefers UV_DEFAULT_INDEX and the default of uv.toml to --index-url.
_INDEX = {"pip": "--index-url", "uv": "--default-index"}
_PLAIN = re.compile(r"[\w.,:=+/@%-]+")
# What a shell expands within double quotes.
_EXPANDED = re.compile(r"[\"$`\\!]")


def install_lines(
    tool: str, plan: Plan, known: Profiles, indexes: Mapping[str, str], links: Iterable[str] = ()
) -> tuple[str, ...]:
    """Return the commands of pip or uv (`tool`) that install a plan's builds and packages, in their order.

    `indexes` are the addresses of "pytorch" and, unless it is the installer's own, of "pypi". `links` are the folders
    of wheels that are used in place of an index. The environment must have the plan's Python.
    """
    theirs = pytorch_packages(plan)
    frameworks = {
        index: [word for b in plan.builds if b.index == index for word in _words(b, plan, known)]
        for index in dict.fromkeys(b.index for b in plan.builds)
    }
    torch = [p for p in plan.packages if requirement_name(p) in theirs]
    others = [p for p in plan.packages if p not in torch]
    lines: list[list[str]] = []
    if first := frameworks.pop("pytorch", []):
        words = [*first, *torch, _INDEX[tool], pytorch_address(indexes["pytorch"], plan)]
        lines.append(words)
    if rest := [*(word for words in frameworks.values() for word in words), *others]:
        options = [part for link in links for part in ("--find-links", link)]
        options += ["--no-index"] if "find-links" in frameworks else []
        if "pypi" in indexes and "--no-index" not in options:
            options += [_INDEX[tool], indexes["pypi"]]
        # The first command's builds once more, so that no package can replace them.
        lines.append([*first, *rest, *options])
    start = ["pip", "install"] if tool == "pip" else ["uv", "pip", "install"]
    return tuple(" ".join(map(_quote, dict.fromkeys([*start, *words]))) for words in lines)


def pip_gaps(plan: Plan, known: Profiles) -> Iterator[str]:
    """Yield what gpuenv does for a plan with pip's commands, and they do not."""
    paged = {name for page in known.pages for name in page.packages}
    for need in map(Requirement, plan.packages):
        if canonicalize_name(need.name) in paged and not need.url:
            yield f"pip builds {need.name} from source: gpuenv lock searches the page of its wheels for this build"
    for build in plan.builds:
        row = find_row(build, plan, known)
        if build.framework != "tensorflow" or row is None or not _extras(build, plan, row):
            continue
        if unsearched := [name for name in OPENED_BY_TENSORFLOW if name not in row.searched]:
            yield (
                f"tensorflow {build.version} does not search the folder of {' and '.join(unsearched)} that pip installs, and "
                "finds no GPU without it: gpuenv create links its libraries, or set LD_LIBRARY_PATH"
            )


def _words(build: PlannedBuild, plan: Plan, known: Profiles) -> list[str]:
    """Return the requirement of a framework with its extras, then the pins that its wheel does not state."""
    row = find_row(build, plan, known)
    pin, *requirements = build.requirements
    name, _, release = pin.partition("===")
    extras = _extras(build, plan, row) if row else ""
    # The PyTorch index has one release with several labels, and == would accept each of them for a build without one.
    equal = "===" if build.index == "pytorch" and "+" not in release else "=="
    added = (r.replace("===", "==") for r in requirements if row is None or r not in row.requires)
    return [f"{name}[{extras}]{equal}{release}" if extras else f"{name}{equal}{release}", *added]


def _extras(build: PlannedBuild, plan: Plan, row: Build) -> str:
    if plan.device == "cpu" or not build.cuda or not row.requires:
        return ""
    return EXTRAS.get(build.package_name, "").format(major=build.cuda.partition(".")[0])


def find_row(build: PlannedBuild, plan: Plan, known: Profiles) -> Build | None:
    """Return the profile row of a planned build. Wheels of a folder have that of the index with the same label."""
    label = build.requirements[0].partition("+")[2] or None
    rows = (b for b in known.builds if (b.platform, b.local) == (plan.platform, label))
    return next((b for b in rows if is_planned(b, build)), None)


def _quote(word: str) -> str:
    """Return a word for a shell: with double quotes where they are enough, as they are for Windows too."""
    if _PLAIN.fullmatch(word):
        return word
    return shlex.quote(word) if _EXPANDED.search(word) else f'"{word}"'
