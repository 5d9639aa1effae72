"""`Value`: the base class of frozen values, which makes a class in an eighth of the time.

The standard library compiles six methods from text for each dataclass, and a command imports a hundred of them. Here
all classes share their methods. `fields`, `replace` and `is_dataclass` of the standard library work with both.
"""

import dataclasses
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

__all__ = ["Value"]

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform

    @dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(dataclasses.field,))
    class Value:
        """A frozen value. `class Pair(Value, kw_only=False)` takes its fields by position too.

        SCHEMA names its JSON document. FORMS has patterns of fields that `from_plain` compares, and EXAMPLES valid texts.
        """

        __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]
        SCHEMA: ClassVar[str]
        FORMS: ClassVar[dict[str, str]]
        EXAMPLES: ClassVar[dict[str, str]]

        def __init_subclass__(cls, *, kw_only: bool = True) -> None: ...

else:

    class Value:
        """A frozen value."""

        FORMS = EXAMPLES = MappingProxyType({})

        def __init_subclass__(cls, *, kw_only: bool = True) -> None:
            dataclasses.dataclass(init=False, repr=False, eq=False, match_args=False, kw_only=kw_only)(cls)
            fields = dataclasses.fields(cls)
            cls._names = frozenset(f.name for f in fields)
            cls._positional = tuple(f.name for f in fields if not f.kw_only)
            cls._compared = tuple(f.name for f in fields if f.compare)
            cls._defaults = {f.name: f.default for f in fields if f.default is not dataclasses.MISSING}
            cls._makers = {
                f.name: f.default_factory for f in fields if f.default_factory is not dataclasses.MISSING
            }
            for name in cls._defaults.keys() & vars(cls).keys():  # only values have fields
                delattr(cls, name)

        def __init__(self, *words: Any, **given: Any) -> None:
            if words:
                given.update(zip(self._positional[: len(words)], words, strict=True))
            values = self._defaults | given
            for name, make in self._makers.items():
                if name not in given:
                    values[name] = make()
            if values.keys() != self._names:
                wrong = ", ".join(sorted(values.keys() ^ self._names))
                raise TypeError(f"{type(self).__name__}: missing or unknown: {wrong}")
            vars(self).update(values)

        def _key(self) -> tuple[Any, ...]:
            return tuple([getattr(self, name) for name in self._compared])

        def __eq__(self, other: object) -> bool:
            return self._key() == other._key() if type(other) is type(self) else NotImplemented

        def __hash__(self) -> int:
            return hash(self._key())

        def __repr__(self) -> str:
            values = ", ".join(f"{name}={value!r}" for name, value in self._values().items())
            return f"{type(self).__name__}({values})"

        def __reduce__(self) -> tuple[Any, ...]:
            """Return what pickle and copy call: they would set the fields of a frozen value."""
            return partial(self.__class__, **self._values()), ()

        def _values(self) -> dict[str, Any]:
            return {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}

        def __setattr__(self, name: str, _value: object = None) -> None:
            raise dataclasses.FrozenInstanceError(f"{type(self).__name__}.{name} is frozen")

        __delattr__ = __setattr__
