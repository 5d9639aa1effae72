"""Runs uv to solve a plan's pins and a project's requirements for one platform."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import re
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from ..environment.gpuenv_cache import cache_folder
from ..errors import LockError
from ..index import pytorch_index, uv
from ..index.uv import without_credentials
from ..model import UV_LOCK_FORMAT, PackageSources, Plan, RequirementLine
from ..system import grants, process, scratch_folders, trust
from . import early_solve
from .allowed_source_builds import SourceBuilds
from .apply_exclude_newer import UploadTimes
from .cache_and_disk import own_cache
from .solve_failure import TIMEOUT, failure
from .uv_question import UvQuestion
from .uv_solution import parse_versions

_UV_PLATFORM = {"linux-x86_64": "x86_64", "linux-aarch64": "aarch64", "windows-x86_64": "x86_64"}


@dataclass
class Ask:
    """One question to uv, with a folder for its files and the packages that may be built from source.

    Nothing else is built. `pins` are those of the last run. `bound` are packages with their only index. With `cached`
    only uv's cache is used. `seconds` has the duration of each run of uv.
    """

    scratch: Path
    plan: Plan
    sources: PackageSources
    python: str | None
    needs: tuple[RequirementLine, ...]
    builds: SourceBuilds
    pins: list[str] = field(default_factory=list)
    pinned: dict[str, str] = field(default_factory=dict)
    bound: dict[str, str] = field(default_factory=dict)
    git_logins: tuple[str, ...] = ()
    cached: bool = False
    seconds: list[float] = field(default_factory=list)

    def solved(self, pins: list[str], prefer: Mapping[str, str]) -> str:
        """Return the solution with addresses and hashes, as a pylock.toml.

        uv takes only named packages from the PyTorch index. So its packages that others require are solved once more,
        by name.
        """
        text = self._solve(pins, prefer)
        if stray := self._find_stray(text, pins):
            return self._solve([*pins, *stray], prefer)
        return text

    def annotated(self, text: str) -> str:
        """Return a solution with annotations of indexes and requirers. Raises LockError."""
        with scratch_folders.scratch("lock") as scratch:
            again = dataclasses.replace(self, scratch=scratch)
            return again._solve_again(again.source(self.pins), parse_versions(text), "requirements.txt")  # noqa: SLF001

    def _find_stray(self, text: str, pins: list[str]) -> list[str]:
        versions, bound = parse_versions(text), _find_bound_to_pytorch(self.plan, pins, self.needs)
        return [n for n in pytorch_index.list_index_packages(self.plan) if n in versions and n not in bound]

    def _solve(self, pins: list[str], prefer: Mapping[str, str]) -> str:
        source = self.source(pins)
        if not prefer:
            return self.compiled(source, UV_LOCK_FORMAT)
        # First with exactly the previous versions, which is mostly possible. uv's preferences are not enough: with
        # several indexes uv was seen to drop a version that fits (ml-dtypes, 0.13.8).
        constraints = self.scratch / "held.txt"
        constraints.write_text(_format_pins(prefer), encoding="utf-8")
        with contextlib.suppress(LockError):
            return self.compiled(source, UV_LOCK_FORMAT, "--constraints", str(constraints))
        kept = self.scratch / "before.txt"
        kept.write_text(_format_pins(prefer), encoding="utf-8")
        text = self.compiled(source, "requirements.txt", "--output-file", str(kept))
        return self._solve_again(source, parse_versions(text), UV_LOCK_FORMAT)

    def _solve_again(self, source: Path, versions: Mapping[str, str], form: str) -> str:
        """Return the same solution in another form. uv's cache has everything for it, unless it is not writable."""
        same = self.scratch / "same.txt"
        same.write_text(_format_pins(versions), encoding="utf-8")
        cached = dataclasses.replace(self, cached=True)
        with contextlib.suppress(LockError):
            return cached.compiled(source, form, "--constraints", str(same))
        return self.compiled(source, form, "--constraints", str(same))

    def source(self, pins: list[str]) -> Path:
        """Write a pyproject.toml with the pins and return its path. Packages of the PyTorch index are bound to that
        index alone.

        uv binds only packages that this file names.
        """
        self.pins = pins
        named = pytorch_index.list_index_packages(self.plan)
        pins = [
            *pins,
            *(n.text for n in self.needs if n.name in named and n.name != "torch" and not n.constraint),
        ]
        indexed = [n for n in self.needs if n.index and n.name and n.name not in named and not n.constraint]
        pins += [n.text for n in indexed]
        self.pinned = {str(canonicalize_name(Requirement(p).name)): p for p in pins}
        lines = [
            "[project]",
            'name = "gpuenv-plan"',
            'version = "0"',
            f'requires-python = "=={self.plan.python}.*"',
            f"dependencies = {json.dumps(pins)}",
        ]
        bound = _find_bound_to_pytorch(self.plan, pins, self.needs)
        urls = dict.fromkeys(n.index for n in indexed if n.index)
        indexes = {f"project-{number}": url for number, url in enumerate(urls)}
        names = {url: name for name, url in indexes.items()}
        # uv sends UV_INDEX_PYTORCH_PASSWORD to the index of this name, which a project can replace.
        pytorch = "pytorch" if grants.is_own_origin(self.sources.pytorch or "") else "gpuenv-pytorch"
        if bound:
            indexes[pytorch] = pytorch_index.address(self.sources.pytorch, self.plan)
        for name, url in indexes.items():
            lines += ["[[tool.uv.index]]", f'name = "{name}"', f"url = {json.dumps(url)}", "explicit = true"]
        chosen = {canonicalize_name(n.name or ""): names[n.index or ""] for n in indexed} | dict.fromkeys(
            bound, pytorch
        )
        self.bound = {str(name): indexes[index] for name, index in chosen.items()}
        lines += [
            "[tool.uv.sources]",
            *(f'{name} = {{ index = "{index}" }}' for name, index in chosen.items()),
        ]
        path = self.scratch / "pyproject.toml"
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return path

    def compiled(self, source: Path, form: str, *more: str) -> str:
        """Return the solution. uv runs again if a build that it refused is allowed, or its package omitted."""
        while True:
            try:
                text = self._compile_once(source, form, *more)
            except LockError as error:
                if error.unbuilt is None:
                    raise
                self.builds.allow_unread(error.unbuilt, error, self.needs)
            else:
                if not self.builds.learn(parse_versions(text), self.needs, self.plan):
                    return text

    @functools.cached_property
    def _times(self) -> UploadTimes:
        return UploadTimes(self.sources, self.plan)

    def _compile_once(self, source: Path, form: str, *more: str) -> str:
        words = [
            "pip", "compile", str(source), *self._write_files(), "--format", form, "--no-header",
            "--emit-index-annotation", *self.builds.options(), *self.builds.stated_options(self.needs, self.scratch),
            "--python-version", self.plan.python or "", *self._times.options(),
            "--python-platform", _find_uv_platform(self.plan.platform, self.plan.target.glibc, self.sources), *more,
        ]  # fmt: skip
        settings = uv.Settings(
            builds=self._builds, only_wheels=only_files(self.sources), git_logins=self.git_logins, timeout=TIMEOUT,
            variables={"UV_OFFLINE": "1"} if self.cached else {},
        )  # fmt: skip
        question = UvQuestion(
            words=words, folder=self.scratch, sources=self.sources, settings=settings, bound=self.bound
        )
        memory = self.builds.refusals if self._needs_releases_only else None
        if memory and (log := memory.recall(question)):
            raise self._explain_refusal(log)
        if self.builds.refusals and not self.builds.refusals.runs_uv:
            raise LockError("uv has not solved these requirements yet")
        text, done = self._run(question, Path(more[1]) if more[:1] == ("--output-file",) else None)
        if self._times.learn(done.stderr):
            return self._compile_once(source, form, *more)
        if done.ok:
            return text
        if self.cached:
            raise LockError("uv's cache is incomplete")
        error = self._explain_refusal(done.stderr, done)
        if memory and (error.contradiction or error.absent):
            memory.remember(question, done.stderr)
        raise error

    def _run(self, question: UvQuestion, output: Path | None) -> tuple[str, process.Finished]:
        """Run uv, and return its solution with what it printed. An early answer saves the run."""
        before = output.read_text(encoding="utf-8") if output else ""
        began, python = time.monotonic(), self.python or sys.executable
        repeats = UV_LOCK_FORMAT in question.words and question.is_stable and self._needs_releases_only
        if repeats and (early := early_solve.answer(question, python)):
            done, seconds = early
        else:
            done = uv.run_uv(question.words, self.sources, python=python, settings=question.settings)
            seconds = time.monotonic() - began
        self.seconds.append(seconds)
        if repeats and done.ok:
            early_solve.note(question, python)
        text = output.read_text(encoding="utf-8") if output else done.stdout
        if output:
            output.write_text(before, encoding="utf-8")  # otherwise uv would prefer this solution
        return text, done

    @property
    def _builds(self) -> bool:
        """Return whether uv may run build code to learn requirements."""
        stated = self.builds.stated
        return bool(self.builds.allowed and (stated is None or stated.unstated))

    @property
    def _needs_releases_only(self) -> bool:
        """Return whether no folder, commit or build code affects the answer."""
        return not (self._builds or any(n.local or n.vcs or n.name is None for n in self.needs))

    def _explain_refusal(self, log: str, done: process.Finished | None = None) -> LockError:
        """Return the error of a refusal. Without a run of uv it is the refusal of an earlier run of gpuenv."""
        requirements = [*self.pinned.values(), *(n.text for n in self.needs if n.name)]
        self.builds.note_refusal(log, requirements, self.sources)
        return failure(done or _refused(log), self.sources, self.needs, self.builds.archives)

    def _make_override(self, need: RequirementLine) -> str:
        """Return an override as a line. The plan's pins stay, also against requirements of other packages."""
        return self.pinned.get(str(canonicalize_name(need.name or "")), need.text)

    def _write_files(self) -> list[str]:
        """Write the project's needs into files beside the pins, and return their options."""
        needs, limits = self.scratch / "needs.in", self.scratch / "limits.in"
        readable = self.builds.kept(self.needs)
        lines = (f"-e {n.local}" if n.editable and n.local else n.text for n in readable if not n.constraint)
        text = "".join(f"{line}\n" for line in lines)
        bare, self.git_logins = without_credentials(text)
        needs.write_text(bare, encoding="utf-8")
        bounds = "".join(n.text + "\n" for n in self.needs if n.constraint and not n.override)
        limits.write_text(bounds, encoding="utf-8")
        files = [str(needs), "--constraints", str(limits)] if self.needs else []
        overrides = [self._make_override(n) for n in self.needs if n.override]
        # Both packages install the module onnxruntime, and many packages require the one for the CPU.
        overrides += ["onnxruntime; python_version < '0'"] * ("onnxruntime-gpu" in self.pinned)
        if overrides:
            (self.scratch / "overrides.txt").write_text("\n".join(overrides) + "\n", encoding="utf-8")
            files += ["--overrides", str(self.scratch / "overrides.txt")]
        if unread := self.builds.overrides():
            (self.scratch / "unread.txt").write_text(unread, encoding="utf-8")
            files += ["--overrides", str(self.scratch / "unread.txt")]
        return files


def only_files(sources: PackageSources) -> bool:
    """Return whether only folders and pages of wheels are used.

    Offline, an index's answers in the cache would name files that are not available.
    """
    return sources.no_index or (sources.offline and bool(sources.find_links))


def _refused(log: str) -> process.Finished:
    return process.Finished(returncode=1, signal=None, timed_out=False, stdout="", stderr=log, report=b"")


def _format_pins(versions: Mapping[str, str]) -> str:
    return "".join(f"{name}=={version}\n" for name, version in versions.items())


def _find_bound_to_pytorch(plan: Plan, pins: Sequence[str], needs: Sequence[RequirementLine]) -> list[str]:
    """Return the packages of the PyTorch index that the plan or the project names."""
    names = {canonicalize_name(Requirement(p).name) for p in pins} | {n.name for n in needs}
    return [n for n in pytorch_index.list_index_packages(plan) if n in names]


@functools.cache
def _find_uv_platform(platform: str, glibc: str | None, sources: PackageSources) -> str:
    """Return uv's name for the platform, with the newest glibc that uv knows and the target has."""
    machine = _UV_PLATFORM[platform]
    if platform.startswith("windows"):
        return f"{machine}-pc-windows-msvc"
    known = {int(m) for m in re.findall(rf"{machine}-manylinux_2_(\d+)", _read_uv_options(sources))}
    fitting = [m for m in known if m <= int((glibc or "2.17").split(".")[1])]
    if not fitting:
        raise LockError(
            f"glibc {glibc} is too old: packages can be solved for glibc 2.{min(known)} or newer",
            hint="use a newer system or a container",
        )
    return f"{machine}-manylinux_2_{max(fitting)}"


def _read_uv_options(sources: PackageSources) -> str:
    """Return uv's help on `uv pip compile`. It is cached by uv's version."""
    kept = cache_folder(own_cache(sources), "uv-help") / f"{metadata.version('uv')}.txt"
    with contextlib.suppress(OSError, ValueError):
        return trust.read_cached(kept).decode()
    text = uv.run_uv(["pip", "compile", "--help"], PackageSources(), python=None).stdout
    trust.write_cached(kept, text)
    return text
