"""How uv is asked for a solution: the plan's pins, the project's needs beside them, one platform."""

from __future__ import annotations

import contextlib
import functools
import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from ..errors import LockError
from ..index import pytorch, refusal, uv, uv_config
from ..index.http import Http
from ..index.pipconf import pip_configuration
from ..index.simple import holdings
from ..index.uv import without_credentials
from ..model import Need, Plan, Sources
from ..system import process
from ..system.redaction import redact
from .build_failure import explain_in_solve
from .source_builds import SourceBuilds, build_refused
from .upload_times import UploadTimes

_UV_PLATFORM = {"linux-x86_64": "x86_64", "linux-aarch64": "aarch64", "windows-x86_64": "x86_64"}
_TIMEOUT = 900.0


@dataclass
class Ask:
    """One question to uv: a folder for its files, and which packages may be built from source; nothing else is
    ever built."""

    scratch: Path
    plan: Plan
    sources: Sources
    python: str | None
    needs: tuple[Need, ...]
    builds: SourceBuilds
    pinned: dict[str, str] = field(default_factory=dict)
    git_logins: tuple[str, ...] = ()

    def solved(self, pins: list[str], prefer: Mapping[str, str]) -> tuple[str, str]:
        """The same solution twice: annotated with the indexes, and with addresses and hashes. What is named for
        the PyTorch index and comes along of something else is asked for by itself: uv binds nothing else."""
        annotated, solved = self._solved(pins, prefer)
        if stray := self._stray(annotated, pins):
            return self._solved([*pins, *stray], prefer)
        return annotated, solved

    def _stray(self, annotated: str, pins: list[str]) -> list[str]:
        found = {canonicalize_name(row.partition("==")[0]) for row in annotated.splitlines() if "==" in row}
        bound = _bound_to_pytorch(self.plan, pins, self.needs)
        return [n for n in pytorch.named_for(self.plan) if n in found and n not in bound]

    def _solved(self, pins: list[str], prefer: Mapping[str, str]) -> tuple[str, str]:
        source = self.source(pins)
        if prefer:
            # First exactly as it was, which is mostly possible. What uv calls preferences are not enough:
            # with several indexes it was seen to leave a version that fits (ml-dtypes, 0.13.8).
            held = self.scratch / "held.txt"
            held.write_text("".join(f"{n}=={v}\n" for n, v in prefer.items()), encoding="utf-8")
            with contextlib.suppress(LockError):
                return self._both(source, "--constraints", str(held))
        kept = self.scratch / "before.txt"
        kept.write_text("".join(f"{n}=={v}\n" for n, v in prefer.items()), encoding="utf-8")
        return self._both(source, "--output-file", str(kept))

    def _both(self, source: Path, *more: str) -> tuple[str, str]:
        """The annotated form by a solve, the other by the pins that it found, and afterwards: what the first has
        put into uv's cache is not asked for twice."""
        annotated = self.compiled(source, "requirements.txt", *more)
        same = self.scratch / "same.txt"
        rows = [row for row in annotated.splitlines() if re.match(r"[A-Za-z0-9._-]+==", row)]
        same.write_text("\n".join(rows), encoding="utf-8")
        return annotated, self.compiled(source, "pylock.toml", "--constraints", str(same))

    def source(self, pins: list[str]) -> Path:
        """A pyproject.toml with the pins, each PyTorch-index package bound to that index alone; uv binds
        only what this very file names."""
        named = pytorch.named_for(self.plan)
        pins = [
            *pins,
            *(n.text for n in self.needs if n.name in named and n.name != "torch" and not n.constraint),
        ]
        own = [n for n in self.needs if n.index and n.name and n.name not in named and not n.constraint]
        pins += [n.text for n in own]
        self.pinned = {str(canonicalize_name(Requirement(p).name)): p for p in pins}
        lines = [
            "[project]",
            'name = "gpuenv-plan"',
            'version = "0"',
            f'requires-python = "=={self.plan.python}.*"',
            f"dependencies = {json.dumps(pins)}",
        ]
        bound = _bound_to_pytorch(self.plan, pins, self.needs)
        urls = dict.fromkeys(n.index for n in own if n.index)
        indexes = {f"project-{number}": url for number, url in enumerate(urls)}
        names = {url: name for name, url in indexes.items()}
        if bound:
            indexes["pytorch"] = pytorch.address(self.sources.pytorch, self.plan)
        for name, url in indexes.items():
            lines += ["[[tool.uv.index]]", f'name = "{name}"', f"url = {json.dumps(url)}", "explicit = true"]
        chosen = {canonicalize_name(n.name or ""): names[n.index or ""] for n in own} | dict.fromkeys(
            bound, "pytorch"
        )
        lines += [
            "[tool.uv.sources]",
            *(f'{name} = {{ index = "{index}" }}' for name, index in chosen.items()),
        ]
        path = self.scratch / "pyproject.toml"
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return path

    def compiled(self, source: Path, form: str, *more: str) -> str:
        """The solution. uv is asked again where it may build what it refused to build, or leave it out."""
        while True:
            try:
                text = self._compiled(source, form, *more)
            except LockError as error:
                if error.unbuilt is None:
                    raise
                self.builds.allow_unread(error.unbuilt, error, self.needs)
            else:
                if not self.builds.learn(text, self.needs, self.plan):
                    return text

    @functools.cached_property
    def _times(self) -> UploadTimes:
        return UploadTimes(self.sources, self.plan)

    def _compiled(self, source: Path, form: str, *more: str) -> str:
        words = [
            "pip", "compile", str(source), *self._files(), "--format", form, "--no-header",
            "--emit-index-annotation", *self.builds.options(), *self.builds.stated_options(self.needs, self.scratch),
            "--python-version", self.plan.python or "", *self._times.options(),
            "--python-platform", _uv_platform(self.plan.platform, self.plan.target.glibc), *more,
        ]  # fmt: skip
        output = Path(more[1]) if more[:1] == ("--output-file",) else None
        before = output.read_text(encoding="utf-8") if output else ""
        settings = uv.Settings(
            only_wheels=only_files(self.sources), git_logins=self.git_logins, timeout=_TIMEOUT
        )
        done = uv.run_uv(words, self.sources, python=self.python or sys.executable, settings=settings)
        text = output.read_text(encoding="utf-8") if output else done.stdout
        if output:
            output.write_text(before, encoding="utf-8")  # else uv would prefer what it has just found
        if self._times.learn(done.stderr):
            return self._compiled(source, form, *more)
        if done.ok:
            return text
        asked = [*self.pinned.values(), *(n.text for n in self.needs if n.name)]
        self.builds.note_refusal(done.stderr, asked, self.sources)
        raise failure(done, self.sources, self.needs)

    def _override(self, need: Need) -> str:
        """Return an override as a line. What the plan pins stays pinned, also against what others require."""
        return self.pinned.get(str(canonicalize_name(need.name or "")), need.text)

    def _files(self) -> list[str]:
        """The project's needs as files beside the pins."""
        needs, limits = self.scratch / "needs.in", self.scratch / "limits.in"
        told = self.builds.kept(self.needs)
        lines = (f"-e {n.local}" if n.editable and n.local else n.text for n in told if not n.constraint)
        text = "".join(f"{line}\n" for line in lines)
        bare, self.git_logins = without_credentials(text)
        needs.write_text(bare, encoding="utf-8")
        bounds = "".join(n.text + "\n" for n in self.needs if n.constraint and not n.override)
        limits.write_text(bounds, encoding="utf-8")
        files = [str(needs), "--constraints", str(limits)] if self.needs else []
        if overrides := [self._override(n) for n in self.needs if n.override]:
            (self.scratch / "overrides.txt").write_text("\n".join(overrides) + "\n", encoding="utf-8")
            files += ["--overrides", str(self.scratch / "overrides.txt")]
        if unread := self.builds.overrides():
            (self.scratch / "unread.txt").write_text(unread, encoding="utf-8")
            files += ["--overrides", str(self.scratch / "unread.txt")]
        return files


OTHER_PYTHONS = re.compile(
    r"(?<![A-Za-z0-9._-])([A-Za-z0-9._-]{1,200})[<>=!~]\S{0,200} has no wheels with a matching Python \w{1,20} tag"
)
"""A package that has wheels for other Pythons only, and no source archive."""
_NO_WHEEL = re.compile(r"Wheels are required for `([A-Za-z0-9._-]+)`")


def only_files(sources: Sources) -> bool:
    """Whether folders and pages of wheels are all there is: offline, an index's answers in the cache would
    name files that cannot be had."""
    return sources.no_index or (sources.offline and bool(sources.find_links))


def _bound_to_pytorch(plan: Plan, pins: Sequence[str], needs: Sequence[Need]) -> list[str]:
    """What is asked for by name of the packages that the plan takes from the PyTorch index."""
    names = {canonicalize_name(Requirement(p).name) for p in pins} | {n.name for n in needs}
    return [n for n in pytorch.named_for(plan) if n in names]


@functools.cache
def _uv_platform(platform: str, glibc: str | None) -> str:
    """Uv's name for the platform, with the highest glibc that it knows and the target has."""
    machine = _UV_PLATFORM[platform]
    if platform.startswith("windows"):
        return f"{machine}-pc-windows-msvc"
    helped = uv.run_uv(["pip", "compile", "--help"], Sources(), python=None).stdout
    known = {int(m) for m in re.findall(rf"{machine}-manylinux_2_(\d+)", helped)}
    fitting = [m for m in known if m <= int((glibc or "2.17").split(".")[1])]
    if not fitting:
        raise LockError(
            f"glibc {glibc} is older than any platform that can be solved for (oldest 2.{min(known)})",
            hint="use a newer system or a container",
        )
    return f"{machine}-manylinux_2_{max(fitting)}"


def failure(done: process.Finished, sources: Sources, needs: Sequence[Need] = ()) -> LockError:
    log = uv.redacted(done.stderr)
    if done.timed_out:
        return LockError(
            f"solving the packages took longer than {_TIMEOUT:.0f} s", log=log,
            hint="try again, or bound the packages that it went through",
        )  # fmt: skip
    if stored := refusal.storage(log):
        return LockError(stored.message, hint=stored.hint, log=log)
    if page := _PAGE.search(log):
        return LockError(
            f"the page of wheels {page[1]} cannot be read", log=log,
            hint="where it is of wheels compiled against a build, there may be none for this one: name an older "
            "framework; else check the network and --find-links",
        )  # fmt: skip
    configured = " or ".join(map(redact, filter(None, (sources.default, *sources.extra))))
    if refused := refusal.refused(log, configured=configured or None):
        of_torch = (refused.address or "").startswith(redact(sources.pytorch or "-").rstrip("/"))
        kind = ("pytorch" if of_torch else "pypi") if refused.silent else None
        return LockError(refused.message, hint=refused.hint, log=log, unreachable=kind)
    if unbuilt := explain_in_solve(log, needs):
        return unbuilt
    if "No solution found" in log or "unsatisfiable" in log:
        name = refusal.absent(log)
        held = _held(name, sources)
        if absent := _ABSENT.search(log):
            return _absent(absent[1], needs, log, held)
        told = "the packages of this plan cannot be solved together"
        told = f"no version of {name} would do: {'; '.join(held)}" if held else told
        lines = _lines_named(log, needs)
        told += f": see {', '.join(lines)}" if lines else ""
        return LockError(
            told, log=log, contradiction=True, no_wheel=_lacking(log),
            hint="loosen one of the requirements that the lines above name",
        )  # fmt: skip
    if (refused_build := build_refused(log)) is not None:
        return LockError(f"{refused_build or 'a package'} was not built", log=log, unbuilt=refused_build)
    first = next((x.removeprefix("error: ") for x in log.splitlines() if x.startswith("error")), "")
    return LockError(f"the packages could not be solved: {first}", log=log, hint="mend what the log names")


_PAGE = re.compile(r"Failed to read `--find-links` URL: (\S+)")
_ABSENT = re.compile(
    r"(?<![A-Za-z0-9._-])([A-Za-z0-9._-]+) was not found in the (?:package registry|provided package locations)"
)


def _absent(name: str, needs: Sequence[Need], log: str, held: Sequence[str]) -> LockError:
    where = next((f" ({n.origin})" for n in needs if n.name == canonicalize_name(name)), "")
    said = f": {'; '.join(held)}" if held else ""
    return LockError(
        f"no index and no folder of wheels has a package {name}{where}{said}", log=log, absent=str(canonicalize_name(name)),
        hint="check the name, or where packages come from: --index, --find-links, pip's configuration",
    )  # fmt: skip


def _held(name: str | None, sources: Sources) -> list[str]:
    """What each index has of a package that the solver could not find."""
    if name is None or sources.offline or sources.no_index:
        return []
    environ = process.environ()
    default = sources.default or uv_config.default_index(uv_config.variables(environ))
    http = Http(pip_configuration(environ), tries=1, timeout=10.0)
    return holdings(http, [*([default] if default else []), *sources.extra], name)


def _lacking(log: str) -> str | None:
    found = _NO_WHEEL.search(log) or OTHER_PYTHONS.search(" ".join(log.split()))
    return str(canonicalize_name(found[1])) if found else None


def _lines_named(log: str, needs: Sequence[Need]) -> list[str]:
    """The project's lines whose packages the solver's reasons name."""
    because = canonicalize_name(" ".join(log.split()).replace(".", "-").replace("_", "-"))
    return [
        f"{n.text} ({n.origin})"
        for n in needs
        if n.name and re.search(rf"(?<![a-z0-9-]){re.escape(canonicalize_name(n.name))}(?![a-z0-9])", because)
    ][:5]
