"""gpuenv's part of a Makefile, between two lines that mark it; the rest stays as it is, byte for byte."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path

BEGIN = "# >>> gpuenv >>> (`gpuenv init` wrote the lines down to the next mark)"
END = "# <<< gpuenv <<<"
# The order in which make looks for its file
NAMES = ("GNUmakefile", "makefile", "Makefile")
_RULES = (
    ("env", "create $({})", "build this project's environment and verify it"),
    ("verify", "verify $({})", "verify it again"),
    ("lock", "lock", "write the lock of exactly these packages"),
)
TOOL = ".gpuenv-tool"
_TOOL_PROGRAM = f"{TOOL}/bin/gpuenv"
# A word is no source: pip would install whatever an index has under that name.
_ASSERT_SOURCE = (
    "from='$(GPUENV_FROM)'; "
    'case "$$from" in *://*) ;; */*) test -e "$${from%%\\[*}" ;; *) false ;; esac || '
    "{ echo \"gpuenv is not on PATH, and GPUENV_FROM='$$from' is neither an address nor an existing path: "
    'make GPUENV_FROM=ADDRESS, or the path of a wheel or checkout of gpuenv" >&2; exit 1; }'
)
_MAKE_TOOL = (
    f"@{_ASSERT_SOURCE}",
    f"python3 -m venv {TOOL}",
    f"@echo '*' > {TOOL}/.gitignore",
    f"{TOOL}/bin/pip install --quiet --disable-pip-version-check '$(GPUENV_FROM)'",
)
_MOST_INCLUDED = 50


@dataclass(kw_only=True, slots=True)
class Part:
    """What was made of a Makefile: its new bytes (None where gpuenv's part is there already), and remarks."""

    data: bytes | None
    targets: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)


def found(folder: Path) -> Path:
    """The file that make reads in a folder, or the one that is to be written."""
    return next((folder / name for name in NAMES if (folder / name).exists()), folder / "Makefile")


def with_part(path: Path, data: bytes, gpuenv_from: str = "") -> Part:
    """A Makefile with gpuenv's part at its end. A target that the file, or one that it includes, has already
    is named gpuenv-... here; a variable ENV that it uses for something else is left alone. `gpuenv_from` is
    the default of GPUENV_FROM: an address or a path without quotes, `$` and backslashes."""
    text = data.decode("latin-1")  # any byte is a character, and goes back as it came
    if BEGIN.partition(" (")[0] in text:
        return Part(data=None)
    part = Part(data=None)
    sources = [text, *_included(path.parent, text)]
    taken = set().union(*map(_targets, sources))
    variable = "ENV"
    if any(re.search(r"(?m)^[^#\n]*(\bENV\b\s*(\?|\+|::?:?)?=|\$[({]ENV\b)", s) for s in sources):
        variable = "GPUENV_ENV"
        part.remarks.append(f"{path.name} uses ENV for something of its own: the folder is $(GPUENV_ENV)")
    inline = any(".RECIPEPREFIX" in s for s in sources)  # then a tab does not begin a command
    rows: list[str] = []
    for target, command, says in _RULES:
        name = _free(target, taken)
        if name != target:
            part.remarks.append(f"{path.name} has {target} already: gpuenv's target is {name}")
        part.targets.append(name)
        line, needs = f"$(GPUENV) {command.format(variable)}", f"{name}: $(filter {_TOOL_PROGRAM},$(GPUENV))"
        rows += [f"{needs} ; {line}"] if inline else [f"{needs} ## {says}", f"\t{line}"]
        rows.append("")
    rows += _tool_rule(inline=inline)
    head = [BEGIN, f"{variable} ?= .venv", *_gpuenv_variables(gpuenv_from),
            "", f".PHONY: {' '.join(part.targets)}", ""]  # fmt: skip
    newline = "\r\n" if "\r\n" in text else "\n"
    # an empty line first: the last line may end with a backslash, which joins the next one to it
    lead = "" if not text else newline if text.endswith("\n") else newline * 2
    part.data = data + (lead + newline.join([*head, *rows, END]) + newline).encode("latin-1")
    return part


def _gpuenv_variables(gpuenv_from: str) -> list[str]:
    """Return the lines that find gpuenv: GPUENV as the user sets it, the one on PATH, or the private one."""
    # latin-1 gives back the bytes of the path, as it does for the rest of the file
    value = os.fsencode(gpuenv_from).decode("latin-1").replace("#", "\\#")
    return [
        f"# Where gpuenv is not on PATH it is installed into {TOOL} from this address, wheel or checkout.",
        f"GPUENV_FROM ?= {value}".rstrip(),
        "ifndef GPUENV",
        f"GPUENV := $(shell command -v gpuenv >/dev/null 2>&1 && echo gpuenv || echo {_TOOL_PROGRAM})",
        "endif",
    ]


def _tool_rule(*, inline: bool) -> list[str]:
    """Return the rule that makes the private gpuenv."""
    if inline:
        return [
            f"{_TOOL_PROGRAM}: ; " + " && ".join([_MAKE_TOOL[0], *(x.lstrip("@") for x in _MAKE_TOOL[1:])])
        ]
    return [f"{_TOOL_PROGRAM}:", *(f"\t{line}" for line in _MAKE_TOOL)]


def _free(target: str, taken: set[str]) -> str:
    if target not in taken:
        return target
    names = [f"gpuenv-{target}", *(f"gpuenv-{target}-{n}" for n in range(2, len(taken) + 3))]
    return next(name for name in names if name not in taken)


def _targets(text: str) -> set[str]:
    """The names in a Makefile's rules, those that targets need among them: a file or a pattern may stand
    for such a name so far. Rather one too many than one too few."""
    names: set[str] = set()
    in_define = False  # a variable's lines are no rules
    for line in re.sub(r"\\\r?\n", " ", text).splitlines():
        first = line.split(maxsplit=1)[:1]
        in_define = first == ["define"] or (in_define and first != ["endef"])
        if line[:1] == "\t" or in_define:
            continue
        rule = line.partition("#")[0].partition(";")[0]
        if re.match(r"[^=:]+::?(?![:=])", rule):
            names.update(re.split(r"[:|\s]+", rule))
    return names


def _included(folder: Path, text: str) -> list[str]:
    """The texts of files that a Makefile includes by a plain name, and of those that they include."""
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
