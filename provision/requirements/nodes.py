"""A small, strict YAML: a tree with the line of each key."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ..system.untrusted import find_conflict

MAX_BYTES = 1 << 20
MAX_DEPTH = 12
_QUOTES = ("'", '"')


@dataclass(kw_only=True, slots=True)
class YamlNode:
    """A scalar (`text`), a list (`items`) or a mapping (`pairs`, in the order of the file).

    `taken_for` is the type that YAML gives a scalar that is not `quoted`: number, date, yes or no, nothing. `path` is
    the path of its key, which the reader of a file sets.
    """

    kind: str
    line: int
    text: str = ""
    taken_for: str | None = None
    quoted: bool = False
    path: str = ""
    items: list[YamlNode] = field(default_factory=list)
    pairs: list[tuple[YamlNode, YamlNode]] = field(default_factory=list)


class NotReadError(Exception):
    """A text that cannot be parsed: the message, with the line if it is known."""

    path = ""

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


def decode_yaml(data: bytes) -> str:
    """Decode a YAML file. Raises NotReadError for a file that is too large or not UTF-8."""
    if len(data) > MAX_BYTES:
        raise NotReadError(f"the file has {len(data)} bytes, the limit is {MAX_BYTES}")
    if line := find_conflict(data):
        raise NotReadError("merge conflict markers: keep one side of each conflict", line)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise NotReadError(f"the byte {data[error.start]:#04x} is not UTF-8", line) from error


def parse_yaml(text: str) -> YamlNode | None:
    """Parse the document of a text, or return None for an empty text. Raises NotReadError."""
    import yaml

    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        return _build(yaml.parse(text, Loader=loader))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        reason = getattr(error, "problem", None) or getattr(error, "reason", None) or str(error)
        if (
            mark
            and text.splitlines()[mark.line : mark.line + 1]
            and text.splitlines()[mark.line][mark.column : mark.column + 1] == "\t"
        ):
            reason = "a tab: lines are indented with spaces"
        raise NotReadError(f"not YAML: {reason}", mark.line + 1 if mark else None) from error
    except (RecursionError, ValueError) as error:
        raise NotReadError(f"not YAML: {type(error).__name__}") from error


def _build(events: Iterator[Any]) -> YamlNode | None:
    """Build the tree from single events, so that deep or repeated content is never built."""
    import yaml

    root: YamlNode | None = None
    documents = 0
    for event in events:
        line = event.start_mark.line + 1
        if isinstance(event, yaml.DocumentStartEvent):
            documents += 1
            if documents > 1:
                raise NotReadError("a second document begins here; gpuenv reads only one", line)
        elif isinstance(event, yaml.NodeEvent):
            root = _build_node(event, events, 1)
    return root


def _build_node(event: Any, events: Iterator[Any], depth: int) -> YamlNode:
    import yaml

    line = event.start_mark.line + 1
    if isinstance(event, yaml.AliasEvent):
        raise NotReadError(f"the alias *{event.anchor} is not supported: write the value itself", line)
    if event.anchor is not None:
        raise NotReadError(f"the anchor &{event.anchor} is not supported: write the value itself", line)
    if event.tag is not None:
        raise NotReadError(f"the tag {event.tag} is not supported", line)
    if isinstance(event, yaml.ScalarEvent):
        taken = None
        if event.implicit[0]:  # only a plain scalar can be a number
            tag = _resolver().resolve(yaml.ScalarNode, event.value, (True, False))
            taken = _TAKEN_FOR.get(tag)
        quoted = event.style in _QUOTES
        return YamlNode(kind="scalar", line=line, text=event.value, taken_for=taken, quoted=quoted)
    if depth > MAX_DEPTH:
        raise NotReadError(f"lists and tables are nested more than {MAX_DEPTH} deep", line)
    node = YamlNode(kind="list" if isinstance(event, yaml.SequenceStartEvent) else "table", line=line)
    while not isinstance(inner := next(events), (yaml.SequenceEndEvent, yaml.MappingEndEvent)):
        item = _build_node(inner, events, depth + 1)
        if node.kind == "list":
            node.items.append(item)
        else:
            node.pairs.append((item, _build_node(next(events), events, depth + 1)))
    return node


@functools.cache
def _resolver() -> Any:
    import yaml

    return yaml.resolver.Resolver()
