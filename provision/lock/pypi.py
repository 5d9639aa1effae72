"""A lock for a venv: the plan's pins solved by uv for the target's Python and platform.

uv decides what else is needed; what the plan decided is asserted afterwards, so that a CUDA plan
never ends in a CPU wheel and no environment gets two cuDNN packages.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from .. import index, process
from ..errors import LockError
from ..index import uv
from ..model import Event, Lock, Package, Plan, Sources
from .pylock import file_name
from .solved import parse_annotations, parse_pylock

_UV_PLATFORM = {"linux-x86_64": "x86_64", "linux-aarch64": "aarch64", "windows-x86_64": "x86_64"}
_TIMEOUT = 900.0


def lock(plan: Plan, sources: Sources, emit: Callable[[Event], None], *, python: str | None = None) -> Lock:
    """Solve a plan's pins into a lock.

    `python` is an interpreter for uv to start from; any will do. Raises LockError when the index
    does not answer (`unreachable`), the pins contradict each other, or the result is not the plan.
    """
    emit(Event(kind="start", stage="lock", text="solving the packages that go with the plan"))
    with tempfile.TemporaryDirectory(prefix="gpuenv-lock-") as scratch:
        source = _source(Path(scratch), plan, sources)
        uv.program()  # found once, here: sysconfig, which it asks, is not safe to begin in two threads
        with ThreadPoolExecutor(2) as pool:  # one form tells the addresses, the other the indexes
            forms = ("requirements.txt", "pylock.toml")
            annotated, solved = pool.map(lambda f: _compile(plan, sources, source, f, python), forms)
    packages = _with_indexes(parse_pylock(solved, plan), parse_annotations(annotated))
    packages = _with_sizes(packages, sources)
    _assert_is_plan(plan, packages)
    emit(Event(kind="done", stage="lock", text=f"{len(packages)} packages", done=len(packages)))
    return Lock(manager="venv", target=plan.target, plan=plan, packages=packages)


# --- what uv is asked ------------------------------------------------------------------------


def _source(scratch: Path, plan: Plan, sources: Sources) -> Path:
    """A pyproject.toml with the pins, each PyTorch-index package bound to that index alone."""
    pins = list(dict.fromkeys(r for b in plan.builds for r in b.requirements))
    pins += [p for p in plan.packages if p not in pins]
    if not sources.offline or _has_wheel(sources, "pip"):
        pins.append("pip")
    lines = [
        "[project]",
        'name = "gpuenv-plan"',
        'version = "0"',
        f'requires-python = "=={plan.python}.*"',
        f"dependencies = {json.dumps(pins)}",
    ]
    bound = _bound_to_pytorch(plan)
    if bound:
        lines += ["[[tool.uv.index]]", 'name = "pytorch"', f"url = {json.dumps(_pytorch_url(plan, sources))}"]
        lines += ["explicit = true", "[tool.uv.sources]"]
        lines += [f'{name} = {{ index = "pytorch" }}' for name in bound]
    path = scratch / "pyproject.toml"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def _has_wheel(sources: Sources, name: str) -> bool:
    folders = [p for p in sources.find_links if "://" not in p and Path(p).exists()]
    return any(w.name == name for w in index.find_links(folders))


def _bound_to_pytorch(plan: Plan) -> list[str]:
    """Torch and its companions where the plan took torch from the PyTorch index."""
    if not any(b.index == "pytorch" for b in plan.builds):
        return []
    names = ["torch", *(Requirement(p).name for p in plan.packages)]
    return [n for n in names if n in ("torch", "torchvision", "torchaudio")]


def _pytorch_url(plan: Plan, sources: Sources) -> str:
    build = next(b for b in plan.builds if b.index == "pytorch")
    local = next((r.partition("+")[2] for r in build.requirements if r.startswith("torch===")), "")
    return f"{sources.pytorch.rstrip('/')}/{local}" if local else sources.pytorch


def _compile(plan: Plan, sources: Sources, source: Path, form: str, python: str | None) -> str:
    argv = [
        uv.program(), "pip", "compile", str(source), "--format", form, "--no-header", "--emit-index-annotation",
        "--only-binary", ":all:", "--python-version", plan.python or "", "--quiet",
        "--python-platform", _uv_platform(plan.platform, plan.target.glibc),
    ]  # fmt: skip
    if python:
        argv += ["--python", python]
    env = uv.environment(sources, process.environ(), only_wheels=sources.offline)
    done = process.run(argv, env=env, cwd=source.parent, timeout=_TIMEOUT)
    if not done.ok:
        raise _refusal(done, sources)
    return done.stdout


def _uv_platform(platform: str, glibc: str | None) -> str:
    """Uv's name for the platform, with the highest glibc that it knows and the target has."""
    machine = _UV_PLATFORM[platform]
    if platform.startswith("windows"):
        return f"{machine}-pc-windows-msvc"
    helped = process.run([uv.program(), "pip", "compile", "--help"], timeout=30).stdout
    known = {int(m) for m in re.findall(rf"{machine}-manylinux_2_(\d+)", helped)}
    fitting = [m for m in known if m <= int((glibc or "2.17").split(".")[1])]
    if not fitting:
        raise LockError(
            f"glibc {glibc} is older than any platform that can be solved for (oldest 2.{min(known)})",
            hint="use a newer system or a container",
        )
    return f"{machine}-manylinux_2_{max(fitting)}"


_NO_ANSWER = re.compile(
    r"error sending request|Failed to fetch|dns error|tcp connect|Connection refused|timed out|"
    r"Could not connect|Network connectivity is disabled",
)


def _refusal(done: process.Finished, sources: Sources) -> LockError:
    log = uv.redacted(done.stderr)
    if done.timed_out:
        return LockError(f"solving the packages took longer than {_TIMEOUT:.0f} s", log=log)
    if _NO_ANSWER.search(log):
        address = re.search(r"https?://[^\s`'\")]+", log)
        where = address.group(0) if address else "the package index"
        kind = "pytorch" if sources.pytorch and where.startswith(sources.pytorch.rstrip("/")) else "pypi"
        return LockError(
            f"the package index does not answer: {where}",
            hint="check the network and pip's index-url, or use --offline --find-links DIR",
            log=log,
            unreachable=kind,
        )
    if "No solution found" in log or "unsatisfiable" in log:
        told = "the packages of this plan cannot be solved together"
        return LockError(told, log=log, hint=_first_because(log))
    first = next((x.removeprefix("error: ") for x in log.splitlines() if x.startswith("error")), "")
    return LockError(f"the packages could not be solved: {first}", log=log, hint="mend what the log names")


def _first_because(log: str) -> str:
    line = next((x.strip() for x in log.splitlines() if "Because" in x), "")
    return line or "see the log for the package that is in the way"


# --- what came back --------------------------------------------------------------------------


def _with_indexes(packages: Iterable[Package], indexes: dict[str, str]) -> tuple[Package, ...]:
    import dataclasses

    return tuple(
        dataclasses.replace(p, index=index.redact(indexes[p.name]) if p.name in indexes else None,
                            url=index.redact(p.url))
        for p in packages
    )  # fmt: skip


def _with_sizes(packages: tuple[Package, ...], sources: Sources) -> tuple[Package, ...]:
    """Sizes that the index did not tell, asked by HEAD: how much there is to download is said
    before it is downloaded. A server that refuses the question leaves the size unknown."""
    import dataclasses

    unknown = [p.url for p in packages if p.size is None]
    local = [u for u in unknown if u.startswith("file:")]
    try:
        sizes = index.Http(tries=1, timeout=5.0).sizes(local if sources.offline else unknown)
    except LockError:
        sizes = {}
    return tuple(dataclasses.replace(p, size=p.size or sizes.get(p.url)) for p in packages)


def _assert_is_plan(plan: Plan, packages: tuple[Package, ...]) -> None:
    """Raise LockError unless every pin of the plan is in the lock as it was meant."""
    locked = {p.name: p for p in packages}
    for build in plan.builds:
        for text in build.requirements:
            _assert_pin(locked, text)
        mine = locked[build.framework]
        if plan.device == "cuda" and mine.version.endswith("+cpu"):
            raise LockError(f"the plan wants CUDA {build.cuda}; the solver took {file_name(mine)}")
        known = mine.index is not None and plan.device == "cuda" and build.index == "pytorch"
        if known and "/whl" not in (mine.index or ""):
            raise LockError(f"{build.framework} came from {mine.index}, not from the PyTorch index")
    cudnn = [p for p in packages if re.fullmatch(r"nvidia-cudnn(-cu\d+)?", p.name)]
    if len(cudnn) > 1:
        names = " and ".join(f"{p.name} {p.version}" for p in cudnn)
        raise LockError(
            f"two cuDNN packages would share one folder: {names}",
            hint="put the frameworks in two environments",
        )


def _assert_pin(locked: dict[str, Package], text: str) -> None:
    try:
        need = Requirement(text)
    except InvalidRequirement as error:
        raise LockError(f"the plan's requirement {text!r} cannot be read: {error}") from error
    got = locked.get(canonicalize_name(need.name))
    exact = next((s.version for s in need.specifier if s.operator == "==="), None)
    if got is None:
        raise LockError(f"the plan needs {text}; the solved packages lack it")
    if exact is not None and got.version != exact:
        raise LockError(f"the plan needs {text}; the solver took {got.version}")
    if exact is None and not need.specifier.contains(got.version, prereleases=True):
        raise LockError(f"the plan needs {text}; the solver took {got.version}")
