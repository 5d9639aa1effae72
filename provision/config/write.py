"""Write gpuenv.yaml and the Makefile for a project."""

from __future__ import annotations

import json
import os
import re
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import UsageError
from ..model import FRAMEWORKS, InitDecision, InitResult, WrittenFile
from ..requirements.folder import FolderFindings
from ..requirements.quote import quote_text, suggest_version
from ..requirements.scan import Scan
from ..system.files import suggest_fix
from ..templates import fill, read
from .edit import write_files
from .env import find_in_folder
from .file import CONFIG_NAME, read_config, read_document

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..model import Profiles


BEGIN = "# >>> gpuenv >>>"
# The order in which make searches for its file
NAMES = ("GNUmakefile", "makefile", "Makefile")
_RULES = {"env": "create", "verify": "verify", "lock": "lock"}
_MOST_INCLUDED = 50
_WARNING = " WARNING: only this machine has this path. On others: make env GPUENV_FROM=ADDRESS"


def find_makefile(folder: Path) -> Path:
    """Return the file that make reads in a folder, or the path for a new one."""
    return next((folder / name for name in NAMES if (folder / name).exists()), folder / "Makefile")


def extend_makefile(gpuenv_from: str, remarks: list[str], path: Path, old: bytes) -> tuple[bytes | None, str]:
    """Return a Makefile with gpuenv's part, None if it had the part already, and what `init` says of it.

    A target that exists, there or in an included file, is called gpuenv-... here. `gpuenv_from` is the default of
    GPUENV_FROM: an address or a path without quotes, `$` and backslashes. The template rejects a plain word, because pip
    would install any package of that name from an index.
    """
    text = old.decode("latin-1")  # every byte is one character and is written back unchanged
    if BEGIN in text:
        return None, "already has gpuenv's part"
    taken = set().union(*map(list_targets, [text, *_read_includes(path.parent, text)]))
    rules: dict[str, str] = {}
    for target, command in _RULES.items():
        name = _choose_free_name(target, taken)
        if name != target:
            remarks.append(f"{path.name} has a target {target} already: gpuenv's target is {name}")
        rules[name] = f"{name}: ; $(GPUENV) {command}"
    warning = ""
    if not gpuenv_from:
        remarks.append(f"GPUENV_FROM in {path.name} is empty: set it for machines without gpuenv")
    elif gpuenv_from.startswith(("/", "file:")):  # a clone on another machine does not have it
        warning = _WARNING
        remarks.append(
            f"{path.name} installs gpuenv from a path on this machine. On others: make env GPUENV_FROM=git+https://HOST/gpuenv"
        )
    # latin-1 restores the bytes of the path, as for the rest of the file
    source = os.fsencode(gpuenv_from).decode("latin-1").replace("#", "\\#")
    lines = (
        read("init.mk").replace("@targets@", " ".join(rules)).replace("@rules@", "\n".join(rules.values()))
    )
    lines = lines.replace("@source@", source).replace(" \n", "\n").replace("@warning@", warning)
    newline = "\r\n" if "\r\n" in text else "\n"
    # start with an empty line, because a final backslash would join the next line
    lead = "" if not text else newline if text.endswith("\n") else newline * 2
    data = old + (lead + lines.replace("\n", newline)).encode("latin-1")
    return data, ", ".join(f"make {target}" for target in rules)


def _choose_free_name(target: str, taken: set[str]) -> str:
    if target not in taken:
        return target
    names = [f"gpuenv-{target}", *(f"gpuenv-{target}-{n}" for n in range(2, len(taken) + 3))]
    return next(name for name in names if name not in taken)


def list_targets(text: str) -> set[str]:
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


_COMPUTES = "computes its requirements: lock runs it"


def render_config(signs: FolderFindings, frameworks: Sequence[tuple[str, str]]) -> str:
    """Return the text of a gpuenv.yaml with the frameworks, each with its origin, and the findings.

    Raises UsageError for invalid values of --framework.
    """
    lists = {"frameworks": frameworks, "requirements": signs.requirements.items(), "packages": signs.packages.items()}  # fmt: skip
    rows = {
        key: "\n".join(
            f"- {json.dumps(text, ensure_ascii=False)}{_comment(origin)}" for text, origin in pairs
        )
        for key, pairs in lists.items()
    }
    keys = ("project", "extras", "groups", "python", "cuda", "device", "find_links")
    text = fill(
        "init.yaml",
        {key: getattr(signs, key) for key in keys}
        | {f"of_{key}": _comment(signs.origins.get(key)) for key in ("python", "cuda", "device")}
        | rows
        | {
            "not_installed": quote_text(signs.not_installed or ""),
            "computed": _comment(signs.computed and f"{signs.computed} {_COMPUTES}"),
            "undeclared": [
                quote_text(package or f"{module} (its package is unknown)") + _comment(where)
                for module, (package, where) in signs.undeclared.items()
            ],
            "open": [
                *map(quote_text, signs.remarks),
                *(
                    quote_text(f"{name} is not listed" + (f" ({by})" if by else ""))
                    for name, by in signs.left.items()
                ),
            ],
        },
    )
    if mistakes := read_document(CONFIG_NAME, text.encode())[1]:
        raise UsageError(
            f"--framework: {'; '.join(mistake for _, mistake in mistakes)}",
            hint=f"name {', '.join(FRAMEWORKS[:-1])} or {FRAMEWORKS[-1]}, each once, such as --framework 'torch>=2.6'",
        )
    return text


def _comment(text: str | None) -> str:
    return f"  # {quote_text(text)}" if text else ""


_IGNORED = ".venv/"
_MOST_BYTES = 8 << 20


def write_project_files(
    folder: Path,
    frameworks: Sequence[str] = (),
    *,
    known: Profiles,
    environ: Mapping[str, str],
    gpuenv_from: str = "",
) -> InitResult:
    """Write the missing files, all or none, without running anything in the folder.

    `gpuenv_from` is the address or path from which `make env` installs a missing gpuenv. Raises UsageError if no
    framework is found, or a file cannot be read or written. Raises DataError for an existing invalid gpuenv.yaml.
    """
    contents: dict[Path, bytes] = {}
    files: list[WrittenFile] = []
    remarks: list[str] = []
    decisions: list[InitDecision] = []
    path = find_in_folder(folder) or folder / CONFIG_NAME
    if path.exists() or path.is_symlink():
        named = read_config(path).frameworks
        files.append(WrittenFile(path=path.name, done="kept", detail="already exists"))
        if frameworks and tuple(frameworks) != named:
            remarks.append(f"{path.name} exists already: add the frameworks to it by hand")
    else:
        findings = Scan(folder=folder, known=known, environ=environ)
        findings.run()
        chosen = _choose_frameworks(frameworks, findings)
        named = tuple(text for text, _ in chosen)
        contents[path] = render_config(findings, chosen).encode()
        files.append(WrittenFile(path=CONFIG_NAME, done="written", detail=""))
        decisions += list_decisions(findings, chosen)
        remarks += findings.remarks
    for path, extend in (
        (find_makefile(folder), partial(extend_makefile, gpuenv_from, remarks)),
        (folder / ".gitignore", _extend_gitignore),
    ):
        old = _read_bytes(path)
        new, detail = extend(path, old or b"")
        if new is not None:
            contents[path] = new
        change = "kept" if new is None else "written" if old is None else "changed"
        files.append(WrittenFile(path=path.name, done=change, detail=detail))
    try:
        write_files(contents)
    except OSError as error:
        raise UsageError(
            f"{folder}: nothing was written: {error.strerror}",
            hint=suggest_fix(error, "check the folder's permissions"),
        ) from error
    return InitResult(
        folder=str(folder),
        frameworks=named,
        files=tuple(files),
        decisions=tuple(decisions),
        notes=tuple(remarks),
    )


def list_decisions(findings: FolderFindings, chosen: Sequence[tuple[str, str]]) -> list[InitDecision]:
    """Return what was decided, each with the file and line that decided it."""
    python, where = findings.python_bounds
    if findings.python:
        python, where = findings.python, findings.origins.get("python", "")
    open_keys = [key for key in ("cuda", "device") if not getattr(findings, key)]
    project = "its dependencies are installed, with their bounds"
    project = f"only its dependencies: {findings.not_installed}" if findings.not_installed else project
    project = f"{findings.computed} {_COMPUTES}" if findings.computed else project
    unknown = dict.fromkeys(package or module for module, (package, _) in findings.undeclared.items())
    rows = [
        ("frameworks", chosen),
        ("requirements", findings.requirements.items()),
        ("project", [(findings.project, project)] if findings.project else []),
        *((key, [(name, "") for name in getattr(findings, key)]) for key in ("extras", "groups")),
        ("packages", findings.packages.items()),
        ("python", [(python, where)]),
        *((key, [(getattr(findings, key), findings.origins.get(key, ""))]) for key in ("cuda", "device")),
        ("left open", [(key, "") for key in (*([] if python else ["python"]), *open_keys)]),
        ("not read", findings.left.items()),
        ("undeclared", [(name, "") for name in unknown]),
    ]
    return [
        InitDecision(key=key, value=value, origin=quote_text(origin))
        for key, pairs in rows
        for value, origin in pairs
        if value
    ]


def _choose_frameworks(frameworks: Sequence[str], findings: FolderFindings) -> list[tuple[str, str]]:
    """Return the frameworks to list: those of the options, else those found. Raises UsageError without any."""
    for text in frameworks:
        if meant := suggest_version(text):
            raise UsageError(
                f"--framework {text!r}: a version follows ==, not @ or =", hint=f"--framework '{meant}'"
            )
    chosen = [_keep_bound(text, findings) for text in frameworks] or findings.framework_texts()
    if not chosen:
        name_one = "gpuenv init --framework torch (or tensorflow, jax, onnxruntime)"
        if refused := findings.refused:  # its file may name one
            refused.hint = f"{refused.hint or 'correct it'}. Or name a framework: {name_one}"
            raise refused
        raise UsageError(
            "no file here names a framework, and no program imports one",
            log="\n".join(findings.remarks[:3]) or None,
            hint=f"{'correct these, or name one' if findings.remarks else 'name one'}: {name_one}",
        )
    return chosen


def _keep_bound(text: str, findings: FolderFindings) -> tuple[str, str]:
    """Return a named framework with its origin: a bare name gets the bounds of files that gpuenv.yaml cannot list."""
    bound = findings.bounds.get(text)
    return (text + bound, findings.frameworks[text]) if bound else (text, "")


def _extend_gitignore(_: Path, old: bytes) -> tuple[bytes | None, str]:
    lines = [line.strip().strip(b"/") for line in old.splitlines()]
    if b".venv" in lines:
        return None, f"already lists {_IGNORED}"
    newline = b"\r\n" if b"\r\n" in old else b"\n"
    lead = b"" if not old or old.endswith(b"\n") else newline
    return old + lead + _IGNORED.encode() + newline, _IGNORED


def _read_bytes(path: Path) -> bytes | None:
    """Return the bytes of a file, or None for a missing file. Raises UsageError."""
    try:
        if path.exists() and not path.is_file():
            raise UsageError(f"{path.name} is not a regular file", hint="move it elsewhere")
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    if len(data) > _MOST_BYTES:
        raise UsageError(
            f"{path.name} is too large to edit ({len(data)} bytes)", hint="add gpuenv's targets by hand"
        )
    return data
