"""A call in a fork of this process, with a deadline that holds also where no signal ends the call."""

from __future__ import annotations

import os
import pickle
import select
import time
import traceback
from collections.abc import Callable, Collection
from typing import Generic, NamedTuple, TypeVar

from ...errors import GpuenvError
from .children import die_with_parent, end_family, signal_name

T = TypeVar("T")


class Called(NamedTuple, Generic[T]):
    """How a call ended: with an answer, by a signal ("SIGSEGV"), or not in time. `stuck` are processes that no signal
    ends."""

    answer: T | None = None
    signal: str | None = None
    stuck: Collection[int] = ()


def call(work: Callable[[], T], seconds: float) -> Called[T]:
    """Return what a call in a fork returns. Raises what it raises. No process of the fork outlives this one."""
    die_with, until = die_with_parent(), time.monotonic() + seconds
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if die_with:
                die_with()
            os.close(reading)
            _write(writing, work)
        finally:
            os._exit(1)
    os.close(writing)
    data = b""
    with os.fdopen(reading, "rb", 0) as pipe:
        while select.select([pipe], [], [], max(until - time.monotonic(), 0.0))[0]:
            if not (chunk := pipe.read(1 << 16)):
                break
            data += chunk
        else:
            return Called(stuck=end_family(child))
    if not data:
        return Called(signal=signal_name(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])))
    end_family(child)
    answer = pickle.loads(data)  # noqa: S301  # from a fork of this process
    if isinstance(answer, BaseException):
        raise answer
    return Called(answer)


def _write(writing: int, work: Callable[[], object]) -> None:
    """Write the answer of a call, or its exception, and end."""
    try:
        answer: object = work()
    except BaseException as error:  # noqa: BLE001  # the other process raises it
        if not isinstance(error, GpuenvError):
            traceback.print_exc()
        answer = error
    with os.fdopen(writing, "wb") as pipe:
        pickle.dump(answer, pipe)
