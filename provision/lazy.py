"""`dataclass` that makes the methods of a class when it is first used.

Python takes half a millisecond to make a dataclass. A command imports a hundred and uses ten of them, so that was a
third of the time of its start. Only `slots` is missing, because it needs another class.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

__all__ = ("dataclass",)

if TYPE_CHECKING:  # type checkers know the original
    from dataclasses import dataclass
else:

    def dataclass(cls: type | None = None, /, **options: bool) -> Any:
        """Return the class, to be completed by its first value or the first look at its fields, or such a decorator."""
        if cls is None:
            return lambda cls: dataclass(cls, **options)
        fields = cls.__dataclass_fields__ = _Fields(cls, options)

        def __new__(kind: type, /, *_: Any, **__: Any) -> Any:  # noqa: N807  # a method
            if fields.pending:
                fields.complete()
            return object.__new__(kind)

        cls.__new__ = __new__
        return cls


_completing = threading.RLock()


class _Fields:
    """What `dataclasses.fields`, `replace` and subclasses ask for first."""

    def __init__(self, cls: type, options: dict[str, bool]) -> None:
        self.cls, self.options, self.pending = cls, options, True

    def __get__(self, instance: object, owner: type) -> Any:
        self.complete()
        return owner.__dataclass_fields__  # type: ignore[attr-defined]  # the class has them now

    def complete(self) -> None:
        """Make the class a dataclass, unless another thread has done it."""
        from dataclasses import dataclass

        with _completing:
            if self.pending:
                dataclass(**self.options)(self.cls)
                self.pending = False
