"""Add gpuenv's part to a Makefile between two marks, and keep every other byte."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path

from ...templates import read

BEGIN = "# >>> gpuenv >>> (written by `gpuenv init`, up to the end mark)"
END = "# <<< gpuenv <<<"
# The order in which make searches for its file
NAMES = ("GNUmakefile", "makefile", "Makefile")
_RULES = (
    ("env", "create $({})", "create and verify this project's environment"),
    ("verify", "verify $({})", "verify the environment again"),
    ("lock", "lock", "lock the exact packages"),
)
TOOL = ".gpuenv-tool"
_TOOL_PROGRAM = f"{TOOL}/bin/gpuenv"
_OF_ONE_MACHINE = (
    "# WARNING: this path is on one machine. Elsewhere `make env` needs an address or a wheel of the project."
)
_MOST_INCLUDED = 50


@dataclass(kw_only=True, slots=True)
class MakefilePart:
    """A Makefile with gpuenv's part (`data` is None if it had the part already), and remarks."""

    data: bytes | None
    targets: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)


def find_makefile(folder: Path) -> Path:
    """Return the file that make reads in a folder, or the path for a new one."""
    return next((folder / name for name in NAMES if (folder / name).exists()), folder / "Makefile")


def add_part(path: Path, data: bytes, gpuenv_from: str = "") -> MakefilePart:
    """Append gpuenv's part to a Makefile.

    A target that exists, there or in an included file, is called gpuenv-... here. A variable ENV with another use is
    not touched. `gpuenv_from` is the default of GPUENV_FROM: an address or a path without quotes, `$` and backslashes.
    """
    text = data.decode("latin-1")  # every byte is one character and is written back unchanged
    if BEGIN.partition(" (")[0] in text:
        return MakefilePart(data=None)
    part = MakefilePart(data=None)
    sources = [text, *_read_includes(path.parent, text)]
    taken = set().union(*map(_list_targets, sources))
    variable = "ENV"
    if any(re.search(r"(?m)^[^#\n]*(\bENV\b\s*(\?|\+|::?:?)?=|\$[({]ENV\b)", s) for s in sources):
        variable = "GPUENV_ENV"
        part.remarks.append(
            f"{path.name} already uses the variable ENV, so the variable for the environment is GPUENV_ENV"
        )
    inline = any(".RECIPEPREFIX" in s for s in sources)  # a tab does not start a command then
    rows: list[str] = []
    for target, command, says in _RULES:
        name = _choose_free_name(target, taken)
        if name != target:
            part.remarks.append(f"{path.name} has a target {target} already: gpuenv's target is {name}")
        part.targets.append(name)
        line, needs = f"$(GPUENV) {command.format(variable)}", f"{name}: $(filter {_TOOL_PROGRAM},$(GPUENV))"
        rows += [f"{needs} ; {line}"] if inline else [f"{needs} ## {says}", f"\t{line}"]
        rows.append("")
    rows += _write_tool_rule(inline=inline)
    head = [BEGIN, f"{variable} ?= .venv", *_write_variables(gpuenv_from),
            "", f".PHONY: {' '.join(part.targets)}", ""]  # fmt: skip
    newline = "\r\n" if "\r\n" in text else "\n"
    # start with an empty line, because a final backslash would join the next line
    lead = "" if not text else newline if text.endswith("\n") else newline * 2
    part.data = data + (lead + newline.join([*head, *rows, END]) + newline).encode("latin-1")
    return part


def _write_variables(gpuenv_from: str) -> list[str]:
    """Return the lines that find gpuenv: the GPUENV of the user, gpuenv on PATH, or a private one."""
    # latin-1 restores the bytes of the path, as for the rest of the file
    value = os.fsencode(gpuenv_from).decode("latin-1").replace("#", "\\#")
    return [
        f"# Without gpuenv on PATH, make installs it into {TOOL} from this address, wheel or checkout.",
        *([_OF_ONE_MACHINE] if is_of_one_machine(gpuenv_from) else []),
        f"GPUENV_FROM ?= {value}".rstrip(),
        "ifndef GPUENV",
        f"GPUENV := $(shell command -v gpuenv >/dev/null 2>&1 && echo gpuenv || echo {_TOOL_PROGRAM})",
        "endif",
    ]


def is_of_one_machine(gpuenv_from: str) -> bool:
    """Return whether a source is an absolute path, which a clone on another machine does not have."""
    return gpuenv_from.startswith(("/", "file:"))


def _write_tool_rule(*, inline: bool) -> list[str]:
    """Return the rule that installs the private gpuenv.

    It rejects a plain word, because pip would install any package of that name from an index. Interrupted, venv would print
    a traceback, so that it is started without the signal.
    """
    first, *lines = read("make-tool.sh").splitlines()
    if inline:
        return [f"{_TOOL_PROGRAM}: ; " + " && ".join([first, *(line.lstrip("@") for line in lines)])]
    return [f"{_TOOL_PROGRAM}:", *(f"\t{line}" for line in (first, *lines))]


def _choose_free_name(target: str, taken: set[str]) -> str:
    if target not in taken:
        return target
    names = [f"gpuenv-{target}", *(f"gpuenv-{target}-{n}" for n in range(2, len(taken) + 3))]
    return next(name for name in names if name not in taken)


def _list_targets(text: str) -> set[str]:
    """Return the names in a Makefile's rules, prerequisites included. An extra name does no harm."""
    names: set[str] = set()
    in_define = False  # the lines of a variable are not rules
    for line in re.sub(r"\\\r?\n", " ", text).splitlines():
        first = line.split(maxsplit=1)[:1]
        in_define = first == ["define"] or (in_define and first != ["endef"])
        if line[:1] == "\t" or in_define:
            continue
        rule = line.partition("#")[0].partition(";")[0]
        if re.match(r"[^=:]+::?(?![:=])", rule):
            names.update(re.split(r"[:|\s]+", rule))
    return names


def _read_includes(folder: Path, text: str) -> list[str]:
    """Return the texts of files that a Makefile includes by a plain name, and of their includes."""
    texts: list[str] = []
    todo, seen = [text], set[Path]()
    while todo and len(texts) < _MOST_INCLUDED:
        for names in re.findall(r"(?m)^ *[-s]?include[ \t]+([^#\r\n]+)", todo.pop()):
            for name in names.split():
                path = folder / name
                try:
                    if path in seen or "$" in name or not path.is_file():
                        continue
                    seen.add(path)
                    texts.append(path.read_bytes()[: 1 << 20].decode("latin-1"))
                except (OSError, ValueError):
                    continue
                todo.append(texts[-1])
    return texts
