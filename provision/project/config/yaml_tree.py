"""A small YAML file as a tree with line numbers, read from events: no tags, no aliases, no surprises.

YAML turns an unquoted 3.10 into the number 3.1 and `no` into false; here a scalar keeps its text, and
what YAML would have made of it, so that the reader can refuse it with a sentence.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

MAX_BYTES = 1 << 20
MAX_DEPTH = 12


@dataclass(kw_only=True, slots=True)
class Node:
    """A scalar (`text`; `taken_for` is number, date, yes or no, nothing, where YAML would take it for that),
    a list (`items`) or a mapping (`pairs`, in the order of the file)."""

    kind: str
    line: int
    text: str = ""
    taken_for: str | None = None
    items: list[Node] = field(default_factory=list)
    pairs: list[tuple[Node, Node]] = field(default_factory=list)


class NotReadError(Exception):
    """The text is no YAML that is read here: the sentence, with the line where one is known."""

    def __init__(self, text: str, line: int | None = None) -> None:
        super().__init__(text)
        self.text, self.line = text, line


_TAKEN_FOR = {
    "tag:yaml.org,2002:int": "a number",
    "tag:yaml.org,2002:float": "a number",
    "tag:yaml.org,2002:bool": "yes or no",
    "tag:yaml.org,2002:null": "nothing",
    "tag:yaml.org,2002:timestamp": "a date",
}


def decode(data: bytes) -> str:
    """The text of a YAML file. Raises NotReadError for one that is too large, or not UTF-8."""
    if len(data) > MAX_BYTES:
        raise NotReadError(f"the file has {len(data)} bytes; {MAX_BYTES} is the most that is read")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise NotReadError(f"the byte {data[error.start]:#04x} is no UTF-8", line) from error


def tree(text: str) -> Node | None:
    """The one document of a text; None where it is empty. Raises NotReadError."""
    import yaml

    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        return _built(yaml.parse(text, Loader=loader))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        said = getattr(error, "problem", None) or getattr(error, "reason", None) or str(error)
        raise NotReadError(f"not YAML: {said}", mark.line + 1 if mark else None) from error
    except (RecursionError, ValueError) as error:
        raise NotReadError(f"not YAML: {type(error).__name__}") from error


def _built(events: Iterator[Any]) -> Node | None:
    """The tree of the events, one at a time, so that nothing deep or repeated is ever built."""
    import yaml

    root: Node | None = None
    open_nodes: list[Node] = []
    keys: list[Node | None] = []
    documents = 0
    for event in events:
        line = event.start_mark.line + 1
        if isinstance(event, yaml.DocumentStartEvent):
            documents += 1
            if documents > 1:
                raise NotReadError("a second document begins here; one is read", line)
        elif isinstance(event, yaml.AliasEvent):
            raise NotReadError(f"the alias *{event.anchor} is not followed; write the value out", line)
        elif isinstance(event, (yaml.SequenceEndEvent, yaml.MappingEndEvent)):
            open_nodes.pop()
            keys.pop()
        elif isinstance(event, yaml.NodeEvent):
            node = _node(event, line)
            if not open_nodes:
                root = node
            elif open_nodes[-1].kind == "list":
                open_nodes[-1].items.append(node)
            elif (key := keys[-1]) is None:
                keys[-1] = node
            else:
                open_nodes[-1].pairs.append((key, node))
                keys[-1] = None
            if node.kind != "scalar":
                open_nodes.append(node)
                keys.append(None)
            if len(open_nodes) > MAX_DEPTH:
                raise NotReadError(f"lists and tables are nested more than {MAX_DEPTH} deep", line)
    return root


def _node(event: Any, line: int) -> Node:
    import yaml

    if event.anchor is not None:
        raise NotReadError(f"the anchor &{event.anchor} is not read; write the value out", line)
    if event.tag is not None:
        raise NotReadError(f"the tag {event.tag} is not read", line)
    if isinstance(event, yaml.SequenceStartEvent):
        return Node(kind="list", line=line)
    if isinstance(event, yaml.MappingStartEvent):
        return Node(kind="table", line=line)
    taken = None
    if event.implicit[0]:  # a plain scalar: only these are taken for numbers
        resolver: Any = yaml.resolver.Resolver()
        tag = resolver.resolve(yaml.ScalarNode, event.value, (True, False))
        taken = _TAKEN_FOR.get(tag)
    return Node(kind="scalar", line=line, text=event.value, taken_for=taken)
