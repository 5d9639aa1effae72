"""`dataclass` for frozen values, which makes a class in an eighth of the time.

The standard library compiles six methods from text for each class, and a command imports a hundred of them. Here all
classes share their methods. `fields`, `replace` and `is_dataclass` of the standard library work with both.
"""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

__all__ = ["dataclass"]

if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(*, frozen: bool, kw_only: bool = False, slots: bool = False) -> Callable[[type], type]:
        """Return a decorator for a frozen class."""
        assert frozen

        def make(cls: Any) -> type:
            for name in _METHODS.keys() - vars(cls).keys():
                setattr(cls, name, _METHODS[name])
            cls = dataclasses.dataclass(
                init=False, repr=False, eq=False, match_args=False, kw_only=kw_only, slots=slots
            )(cls)
            fields = dataclasses.fields(cls)
            cls._fields = tuple(f.name for f in fields)
            cls._names = frozenset(cls._fields)
            cls._positional = tuple(f.name for f in fields if not f.kw_only)
            cls._compared = tuple(f.name for f in fields if f.compare)
            cls._defaults = {f.name: f.default for f in fields if f.default is not dataclasses.MISSING}
            cls._makers = {
                f.name: f.default_factory for f in fields if f.default_factory is not dataclasses.MISSING
            }
            return cls

        return make


def _init(self: Any, *words: Any, **given: Any) -> None:
    if words:
        given.update(zip(self._positional[: len(words)], words, strict=True))
    values = self._defaults | given
    for name, make in self._makers.items():
        if name not in given:
            values[name] = make()
    if values.keys() != self._names:
        wrong = ", ".join(sorted(values.keys() ^ self._names))
        raise TypeError(f"{type(self).__name__}: missing or unknown: {wrong}")
    put = object.__setattr__
    for name, value in values.items():
        put(self, name, value)


def _compared(self: Any) -> tuple[Any, ...]:
    return tuple([getattr(self, name) for name in self._compared])


def _eq(self: Any, other: object) -> bool:
    return _compared(self) == _compared(other) if type(other) is type(self) else NotImplemented


def _hash(self: Any) -> int:
    return hash(_compared(self))


def _repr(self: Any) -> str:
    return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)!r}' for name in self._fields)})"


def _reduce(self: Any) -> tuple[Any, ...]:
    """Return what pickle and copy call: they would set the fields of a frozen value."""
    return partial(self.__class__, **{name: getattr(self, name) for name in self._fields}), ()


def _refuse(self: Any, name: str, _value: object = None) -> None:
    raise dataclasses.FrozenInstanceError(f"{type(self).__name__}.{name} is frozen")


_METHODS = {
    "__init__": _init, "__eq__": _eq, "__hash__": _hash, "__repr__": _repr, "__reduce__": _reduce, "__setattr__": _refuse, "__delattr__": _refuse,
}  # fmt: skip
