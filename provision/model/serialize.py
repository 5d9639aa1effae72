"""Conversion between values and plain data: JSON documents, locks and records."""

import dataclasses
import functools
import re
import types
import typing
from typing import Any, Literal, TypeVar, Union

T = TypeVar("T")


def as_plain(value: Any) -> Any:
    """Return a value as dicts, lists and scalars, without internal fields and empty optional ones.

    Field names become JSON names (`pass_` becomes `pass`).
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = [(f, getattr(value, f.name)) for f in dataclasses.fields(value)]
        kept = [(f.name, part) for f, part in fields if not f.metadata.get("internal")
                and (part or not f.metadata.get("optional"))]  # fmt: skip
        return {name.rstrip("_"): as_plain(part) for name, part in kept}
    if isinstance(value, (tuple, list)):
        return [as_plain(v) for v in value]
    if isinstance(value, dict):
        return {k: as_plain(v) for k, v in value.items()}
    return value


def as_document(value: Any) -> dict[str, Any]:
    """Return `as_plain` of a value with its `schema` as the first key."""
    return {"schema": value.SCHEMA, **as_plain(value)}


def from_plain(cls: type[T], data: Any, where: str = "") -> T:
    """Read a value back from plain data, strictly.

    Raises ValueError with the key path of the first mistake: a missing or unknown key, a scalar of another type, or a
    text that does not match the class's FORMS. A `schema` is allowed, and must be that of the class.
    """
    if not isinstance(data, dict):
        raise ValueError(f"{where or cls.__name__}: expected a table, got {type(data).__name__}")
    data = dict(data)
    schema = data.pop("schema", None)
    if schema is not None and schema != getattr(cls, "SCHEMA", None):
        raise ValueError(f"{where or 'schema'}: {schema!r} is not {getattr(cls, 'SCHEMA', None)!r}")
    hints = _get_hints(typing.cast("Any", cls))
    kwargs = {}
    for field in dataclasses.fields(cls):  # type: ignore[arg-type]  # T is a dataclass by contract
        if field.metadata.get("internal"):
            continue
        key = field.name.rstrip("_")
        path = f"{where}.{key}" if where else key
        if key in data:
            kwargs[field.name] = _convert(hints[field.name], data.pop(key), path)
        elif type(None) in typing.get_args(hints[field.name]):
            kwargs[field.name] = None  # TOML has no null: unknown values are omitted
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise ValueError(f"{path}: missing")
    if data:
        known = ", ".join(kwargs)
        raise ValueError(f"{where + '.' if where else ''}{min(data)}: unknown key (known are {known})")
    value = cls(**kwargs)
    check_forms(value, where)
    return value


@functools.cache
def _get_hints(cls: Any) -> dict[str, Any]:
    """Return the types of a class's fields. Their evaluation takes longer than reading a value, so it is cached."""
    return typing.get_type_hints(cls)


_SHOWN = 60
"""The most characters of a value in a message. A longer one is not cut, because this package cannot redact it."""


def check_forms(value: Any, where: str = "") -> None:
    """Raise ValueError for a text that does not fully match its pattern in the class's FORMS.

    Values read from a file become parts of files and commands, where an additional line would be an additional order.
    """
    for key, form in value.FORMS.items():
        text = getattr(value, key)
        if text is not None and not (isinstance(text, str) and re.fullmatch(form, text, re.ASCII)):
            shown = repr(text) if len(str(text)) <= _SHOWN else f"a text of {len(str(text))} characters"
            such = f" such as {value.EXAMPLES[key]}" if key in value.EXAMPLES else ""
            raise ValueError(f"{where + '.' if where else ''}{key}: {shown} is not a valid value{such}")


def _convert(hint: Any, value: Any, where: str) -> Any:
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (Union, types.UnionType):
        if value is None and type(None) in args:
            return None
        return _convert(next(a for a in args if a is not type(None)), value, where)
    if origin is tuple:
        if not isinstance(value, list):
            raise ValueError(f"{where}: expected a list, got {type(value).__name__}")
        return tuple(_convert(args[0], v, f"{where}[{i}]") for i, v in enumerate(value))
    if origin is dict:
        if not isinstance(value, dict):
            raise ValueError(f"{where}: expected a table, got {type(value).__name__}")
        return {str(k): _convert(args[1], v, f"{where}.{k}") for k, v in value.items()}
    if origin is Literal:
        if value not in args:
            raise ValueError(f"{where}: {value!r} is not one of {', '.join(map(str, args))}")
        return value
    if dataclasses.is_dataclass(hint):
        return from_plain(typing.cast("type[Any]", hint), value, where)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, hint) or (hint is int and isinstance(value, bool)):
        raise ValueError(f"{where}: expected {hint.__name__}, got {type(value).__name__}")
    return value
