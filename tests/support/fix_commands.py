"""The commands in fixes of profiles/failures.yaml and of the stages, and the tables of tests/data/fix_programs.yaml."""

import re
import shlex
from pathlib import Path

import yaml
from fix_texts_in_code import texts_in_code
from known import KNOWN

from provision.profiles.wording import fill_text

FACTS = {
    "driver": "535.129.03", "gpu": "Tesla T4", "cuda_build": "12.4", "floor": "525.60.13", "missing": "libportaudio.so.2",
    "visible": "1", "library_path": "/opt/lib", "cudnn_built": "9.1.0", "cudnn_loaded": "8.9.7", "jax": "0.6.2",
    "release": "torch 2.6.0", "advice": "", "cudnn_upgrade": "", "cudnn_package": "cu12", "cuda": "12.4",
    "name": "torch", "package": "torchvision", "folder": "/opt/lib", "pip": "pip", "python": "3.11", "framework": "torch",
    "index": "https://download.pytorch.org/whl/cu128", "cu": "cu12", "cuda_major": "12",
    "driver_label": "cu128", "installed_label": "cu128", "wanted_label": "cu118", "wanted_wheel": "torch==2.6.0", "proposed_label": "cu126", "missing_cuda": "12",
    "missing_cudnn": "9", "check": "python -c 'import torch'", "module": "tensorboard", "guess": "tensorboard", "deb": "libgl1",
    "rpm": "mesa-libGL", "kept_wheel": "nvidia-nccl-cu12", "two_wheels": "nvidia-nccl-cu11 nvidia-nccl-cu12",
    "symbol_wheel": "nvidia-nccl-cu12", "variable": "XLA_FLAGS", "jaxlib": "0.6.2", "gcc": "gcc-12", "gxx": "g++-12",
    "launch_fixed": "docker run --gpus all ...", "launch_fewer": "torchrun --nproc_per_node=gpu ...",
    "install": "pip install tensorboard", "gpu_build": "pip install tensorboard", "conda_build": "conda list cudnn",
    "libraries": "pip install tensorboard", "create": "gpuenv create --framework torch", "recreate": "gpuenv create .venv --recreate", "upgrade": "pip install -U torch",
    "create_python": "gpuenv create --framework torch --python 3.12", "instead": "", "how": "torch.device('mps')", "t64": "", "others": "", "why": "",
}  # fmt: skip
DATA = Path(__file__).parents[1] / "data" / "fix_programs.yaml"
TABLES = {t["table"]: t["rows"] for t in yaml.safe_load(DATA.read_text(encoding="utf-8"))}
ROWS = TABLES["commands"]
WORDS = {row["text"] for row in TABLES["words"]}

_SETTING = re.compile(r"[A-Z][A-Z0-9_]*=\S*")
_REDIRECTION = re.compile(r"(?<!\S)(?:\d?>&\d|\d?>\s*\S+)")
_PARTS = re.compile(r"\|\||&&|[|;]")
_KERNEL = "6.8.0-45-generic"  # a release of Ubuntu's kernel, in place of $(uname -r)


def fix_texts():
    """Every text of the tables and of the code that proposes something, with its facts filled in."""
    yield from texts_in_code()
    for cause in KNOWN.causes:
        yield fill_text(cause.decides, FACTS)
    for program in KNOWN.programs:
        yield from filter(None, (program.memory, program.workers))
    for row in KNOWN.fixes:
        yield from (fill_text(step, FACTS) for step in row.steps)
    for row in KNOWN.findings:
        if row.fix:
            yield fill_text(row.fix, FACTS)


def is_setting(text):
    """Whether a text is the value of a variable: "TORCH_LOGS=help"."""
    return _SETTING.fullmatch(text) is not None


QUOTED = sorted({c for text in fix_texts() for c in re.findall(r"`([^`]+)`", text)})
COMMANDS = [c for c in QUOTED if c not in WORDS and not is_setting(c)]
OF_PROGRAMS = sorted(
    fill_text(f"> {text}", FACTS).removeprefix("> ")
    for program in KNOWN.programs
    for name in ("install", "gpu_build", "conda_build", "libraries", "check")
    if (text := getattr(program, name))
)
"""The commands of the projects' own installation pages."""
GPUENV = [c for c in COMMANDS if c.startswith("gpuenv ")]


def simple_commands(command):
    """The words of each simple command of a line, without sudo, variables in front and redirections."""
    line = command.replace("$(uname -r)", _KERNEL)
    if line.startswith("export "):
        return [["export"]]
    return [cut for part in split_line(line) if (cut := _without_prefix(part))]


def split_line(line):
    """The words of each simple command of a line, without redirections."""
    lexer = shlex.shlex(_REDIRECTION.sub(" ", line), posix=True, punctuation_chars="|&;")
    lexer.whitespace_split = True
    parts, words = [], []
    for token in [*lexer, ";"]:
        if _PARTS.fullmatch(token):
            parts, words = [*parts, words], []
        else:
            words.append(token)
    return parts


def _without_prefix(words):
    while words and (words[0] == "sudo" or is_setting(words[0])):
        words = words[1:]
    return words


def rows_of(words):
    """The rows whose command begins a simple command, the longest first."""
    found = [r for r in ROWS if words[: len(r["command"].split())] == r["command"].split()]
    return sorted(found, key=lambda r: -len(r["command"]))


def arguments(row, words):
    """The options and the other words that follow a row's command. "-aG" is "-a" and "-G"."""
    options, others = [], []
    for word in words[len(row["command"].split()) :]:
        option = word.partition("=")[0]
        if not word.startswith("-"):
            others.append(word)
        elif option in row.get("options", ()) or option.startswith("--"):
            options.append(option)
        else:
            options += [f"-{letter}" for letter in option[1:]]
    return options, others


CLASSED = [(c, w, rows_of(w)[0]) for c in COMMANDS for w in simple_commands(c) if rows_of(w)]


def checked_by(*checks):
    """The simple commands of a class, as (line, words, row)."""
    return [item for item in CLASSED if item[2]["check"] in checks]
