"""Texts of provision/ that propose commands in backticks, read from its source."""

import ast
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "provision"
# The stages that give fixes, and the text that names a compiler.
PLACES = ("detect", "diagnose", "verify", "actions/resolve.py")
# It checks the rows of profiles, and names their keys.
NO_FIXES = PACKAGE / "diagnose" / "rules.py"

# An example of each expression inside a command.
EXAMPLES = {
    "framework": "torch", "minor": "2.8", "name": "NAME", "row.package": "tensorboard", "row.deb": "libgl1",
    "rpm": "mesa-libGL", "package": "nvidia-cudnn-cu12", "wanted": "9.1.0", "above": "10",
    "first": "libportaudio.so.2", "slots['pip']": "pip", "slots['cu']": "cu12", "match[2]": "nproc_per_node", "row.command": "docker run",
    "row.gives": "--gpus all", "' '.join(names)": "NCCL_P2P_LEVEL", "' '.join(packages[:_SHOWN])": "filetype", "_name_program()": "gpuenv", "option": "target", "value": "node.json",
}  # fmt: skip


def texts_in_code():
    """The texts of the stages, without docstrings and patterns, with an example of each expression."""
    for place in PLACES:
        path = PACKAGE / place
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            if file != NO_FIXES:
                yield from _texts(ast.parse(file.read_text(encoding="utf-8")))


def _texts(node):
    left = [node]
    while left:
        match left.pop():
            case ast.JoinedStr(values=values):
                yield "".join(map(_fill, values))
            case ast.Constant(value=str(text)):
                yield text
            case ast.Expr(value=ast.Constant()) | ast.Call(func=ast.Attribute(value=ast.Name(id="re"))):
                pass  # a docstring, a pattern
            case other:
                left += ast.iter_child_nodes(other)


def _fill(part):
    if isinstance(part, ast.Constant):
        return part.value
    return EXAMPLES.get(ast.unparse(part.value), "{" + ast.unparse(part.value) + "}")
