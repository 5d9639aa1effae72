"""The options that commands share, their values checked, and the paths that they mean."""

import dataclasses
import re
import shlex
from collections.abc import Sequence
from dataclasses import field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import UsageError
from ..model import FRAMEWORK_ALIASES, FRAMEWORKS
from ..model.declare import CHOICE, SOURCES, TARGET, make_flag, option
from ..model.values import Value
from ..system import trust

if TYPE_CHECKING:
    from ..model import Target


def make_absolute(env: Path) -> Path:
    """Return the absolute path. Links of the parent are followed; the last part is unchanged."""
    env = Path.cwd() / env.expanduser()
    return env.parent.resolve() / env.name


def get_cache_dir(c: "Choices") -> Path:
    """Return the folder of gpuenv's cache: parsed profiles, pages of indexes and what was read of them."""
    import platformdirs

    default = Path(platformdirs.user_cache_dir("gpuenv")).absolute()
    return trust.secure_cache(make_absolute(c.cache_dir) if c.cache_dir else default)


_MEANT = {"gpu": "cuda", "nvidia": "cuda", "none": "cpu", "virtualenv": "venv", "mamba": "conda"}
"""Words that are no value of an option, and the value that they mean."""
_PYTHON_PLACE = "gpuenv finds the interpreter itself: `gpuenv detect` lists those of this machine"
_DRIVER_PLACE = "nvidia-smi shows it as 'Driver Version'"

NONE = "false"
"""The value of --exclude-newer that lifts a limit of the project."""


def check_values(c: "Choices") -> None:
    """Raise UsageError for an option whose value gpuenv.yaml refuses too. It names the most similar valid value."""
    from .file import TARGET_WORDS, WORDS, ValueForm

    indexes = ValueForm("0,2", pattern=r"\d+(,\d+)*")
    for name, form in (WORDS | TARGET_WORDS | {"gpus": indexes}).items():
        value = getattr(c, name, None)
        if value is None or not (problem := form.problem(value)):
            continue
        flag = make_flag(name)
        if form.words:
            raise UsageError(f"{flag} {value}: {problem}", hint=suggest_value(value, form.words))
        if name == "driver" and re.fullmatch(r"\d{1,2}(\.\d+)?", value):
            raise UsageError(
                f"--driver {value}: this looks like a CUDA version",
                hint=f"{_DRIVER_PLACE}; for a CUDA release: --cuda {value}",
            )
        if name == "python" and value.partition(".")[0] == "2":
            raise UsageError(
                f"--python {value}: gpuenv builds environments for Python 3 only",
                hint="for example: --python 3.12",
            )
        raise UsageError(
            f"{flag} {value}: expected {'indexes' if form is indexes else 'a version'} such as {form.example}",
            hint={"driver": _DRIVER_PLACE, "python": _PYTHON_PLACE}.get(name),
        )


def suggest_value(word: str, allowed: tuple[str, ...] | list[str]) -> str | None:
    """Return the similar valid word as a question, or None."""
    meant = _MEANT.get(re.sub(r"\W?\d+$", "", word.lower()))  # "gpu0", "gpu:0"
    import difflib

    near = [meant] if meant in allowed else difflib.get_close_matches(word, allowed, n=1, cutoff=0.4)
    return f"Did you mean {near[0]}?" if near else None


HOW_TO_DESCRIBE = "run `gpuenv detect --json > machine.json` on that machine"
HOW_TO_LIST = (
    f"{HOW_TO_DESCRIBE}. Several machines go to --target - as lines like "
    '{"host": "node1", "platform": "linux-x86_64", "glibc": "2.35", "driver": "580.65.06", "gpus": [{"capability": "9.0"}]}'
)
STDIN = "-"
"""The value of --target that reads hosts from standard input."""


_of_target, _of_choice, _of_sources = (partial(option, panel=panel) for panel in (TARGET, CHOICE, SOURCES))


class Choices(Value):
    """The options of target, build and package sources, as the user wrote them."""

    target: Path | None = _of_target(
        None, help="Plan for another machine: a file of `gpuenv detect --json`, or a target of gpuenv.yaml.",
        complete="targets",
    )  # fmt: skip
    driver: str | None = _of_target(
        None,
        help="Driver of the machine to plan for: a version (535.129.03), or a branch (535) for its first release.",
        complete="drivers",
    )
    driver_os: str | None = _of_target(
        None,
        help="Operating system of the driver given with --driver: linux, or windows for WSL.",
    )
    gpu: list[str] = _of_target(
        list,
        help="GPU to plan for: a name (RTX 4090) or a compute capability (8.9). Repeatable.",
        complete="gpus",
    )
    gpus: str | None = _of_target(None, help="Use only these GPUs of this machine, such as 0,2.")
    platform: str | None = _of_target(
        None,
        help="Platform to plan for: linux-x86_64, linux-aarch64 or windows-x86_64.",
        complete="platforms",
    )
    glibc: str | None = _of_target(None, help="glibc version of the machine to plan for, such as 2.28.")
    python: str | None = _of_target(
        None, help="Python version of the environment, such as 3.11.", complete="pythons"
    )
    python_bounds: str = ""  # of gpuenv.yaml, as ">=3.9"
    framework: list[str] = _of_choice(
        list, "--framework", "-f", help="torch, tensorflow, jax or onnxruntime, with optional bounds: 'torch>=2.6,<2.9'. Repeatable.",
        complete="frameworks",
    )  # fmt: skip
    with_: list[str] = _of_choice(
        list,
        "--with",
        help="Add a package, such as torchvision or flash-attn; nvcc adds the CUDA compiler. Repeatable.",
    )
    requirement: list[Path] = _of_choice(
        list, "--requirement", "-r", help="Add the packages of a requirements file. Repeatable."
    )
    project: Path | None = _of_choice(
        None, help="Add the project in this folder, which has a pyproject.toml."
    )
    extra: list[str] = _of_choice(list, help="Include an extra of --project. Repeatable.")
    group: list[str] = _of_choice(list, help="Include a dependency group of --project. Repeatable.")
    cuda: str | None = _of_choice(
        None, help="CUDA version of the build, such as 12 or 12.6.", complete="cudas"
    )
    index: str = _of_sources("auto", help="Index of the frameworks: auto, pypi, pytorch or a URL.")
    manager: str = _of_choice("venv", help="Kind of environment: venv or conda.", complete="managers")
    channel: list[str] = _of_sources(list, help="conda channel: a name, URL or folder. Repeatable.")
    device: str = _of_choice("auto", help="Device to build for: auto, cuda or cpu.", complete="devices")
    find_links: list[str] = _of_sources(list, help="Folder or page with wheels. Repeatable.")
    offline: bool = _of_sources(False, help="Use no network. Use only the wheels of --find-links.")
    pre: bool = _of_choice(False, help="Allow pre-releases.")
    no_build: bool = _of_sources(False, help="Never build a package from source; use wheels only.")
    only_binary: list[str] = _of_sources(
        list, help="Never build PKG from source; :all: means every package. Repeatable.",
        metavar="PKG",
    )  # fmt: skip
    exclude_newer: str | None = _of_sources(
        None, help="Ignore files uploaded after a date (2026-01-31) or within a duration ('7 days'). The lock stores this limit. Use false to remove it.",
        metavar="DATE|DURATION",
    )  # fmt: skip
    exclude_newer_except: list[str] = _of_sources(
        list, help="Do not apply --exclude-newer to this index: pypi, pytorch or a URL. Repeatable.",
        metavar="INDEX",
    )  # fmt: skip
    profiles: list[Path] = _of_sources(list, help="Folder of profiles that extend gpuenv's own. Repeatable.")
    cache_dir: Path | None = _of_sources(None, help="Folder for the caches of gpuenv and the installer.")
    trust_project: bool = _of_sources(
        False,
        help="Use project files, locks and environments that other users own or can write.",
    )
    # No options of the command line. gpuenv.yaml sets its path, the name of the target and the indexes; `--bundle` the bundle.
    config: Path | None = None
    target_name: str | None = None
    indexes: dict[str, str] = field(default_factory=dict)
    bundle: Path | None = None
    dependencies_only: bool = False  # of gpuenv.yaml: project: {path: ., install: false}
    # Only the options of command lines, as an environment records them.
    typed: dict[str, Any] = field(default_factory=dict)
    # The machine of an environment or a lock, used instead of this one.
    planned: "Target | None" = None
    # The names of all options on the command line, including those with a default value.
    named: frozenset[str] = field(default=frozenset(), compare=False)

    @property
    def elsewhere(self) -> bool:
        """Whether the options describe another machine than this one."""
        return bool(self.target or self.driver or self.gpu or self.planned)

    def explicit(self) -> frozenset[str]:
        """Return the options that the user decides: those named, and those that differ from their default."""
        default = Choices()
        names = [f.name for f in dataclasses.fields(self) if f.name != "named"]
        return self.named | {n for n in names if getattr(self, n) != getattr(default, n)}


class BuildOptions:
    """What a build asks of the options of its command, which declares those that it has.

    `verify` None proves only what is not proved yet. With `quick` the proof leaves out the frameworks, and is not
    kept. `checks` allows the project's checks to run. With `recreate` the files of the cache are compared with their
    hashes. With `locked` and `frozen` the project's lock decides what is installed.
    """

    verify: bool | None = None
    quick: bool = False
    checks: bool = True
    recreate: bool = False
    locked: bool = False
    frozen: bool = False
    allow_md5: bool = False


_WORD = r"([A-Za-z][A-Za-z0-9_-]*)((?:\[[^\]]*\])?\s*(?:[=<>!~@].*)?)"


def find_framework(word: str) -> str | None:
    """Return the value of --framework that a word means, such as "torch>=2.6", or None."""
    match = re.fullmatch(_WORD, word)
    if not match:
        return None
    name = FRAMEWORK_ALIASES.get(match[1].lower(), match[1].lower())
    return f"{name}{match[2]}" if name in FRAMEWORKS else None


def suggest_options(words: Sequence[str]) -> str | None:
    """Return --framework options for the frameworks in some words, or None."""
    meant_frameworks = [meant for word in words if (meant := find_framework(word))]
    return " ".join(f"--framework {shlex.quote(meant)}" for meant in meant_frameworks) or None


NOT_SHARED = ("target",)
"""The options that commands for several targets declare themselves."""


declare_targets = partial(
    _of_target, list, "--target", complete="targets",
    help="Plan for other machines: a file of `gpuenv detect --json`, a folder of them, - for JSON lines, or a "
    "target of gpuenv.yaml. Repeatable.",
)  # fmt: skip
declare_plans = partial(
    _of_target, None, metavar="N|best|fewest",
    help="Plans for several machines: at most N, best (each host its newest builds), or fewest.  "
    "[default: the fewest that cost no host more than one feature release]",
)  # fmt: skip
"""The options --target and --plans of commands that accept several machines."""


def apply_single_target(choices: Choices, targets: Sequence[Path], plans: str | None) -> Choices | None:
    """Return the options with at most one target, or None if several machines are named.

    One machine has one plan. Raises UsageError for a --plans of another form.
    """
    if plans is not None and not (plans in ("best", "fewest") or re.fullmatch(r"[1-9]\d{0,4}", plans)):
        hint = suggest_value(plans, ("best", "fewest"))
        raise UsageError(f"--plans {plans}: not a number, best or fewest", hint=hint)
    if is_several(targets):
        return None
    if not targets:
        return choices
    return dataclasses.replace(choices, target=targets[0], named=choices.named | {"target"})


def is_several(targets: Sequence[Path]) -> bool:
    """Return whether --target names several machines."""
    return len(targets) > 1 or any(str(t) == STDIN or t.is_dir() for t in targets)


def list_words(targets: Sequence[Path]) -> str:
    """Return the targets as options of a command line."""
    return " ".join(f"--target {shlex.quote(str(t))}" for t in targets)
