"""Dataclasses that are completed on first use behave as those of Python."""

import dataclasses
import threading

import pytest

from provision.lazy import dataclass


def make(**options):
    @dataclass(frozen=True, kw_only=True, **options)
    class Point:
        """A point."""

        x: int
        y: int = dataclasses.field(default=2, metadata={"internal": True})

    return Point


def is_pending(cls):
    return not isinstance(vars(cls)["__dataclass_fields__"], dict)


def test_a_class_is_completed_by_its_first_value():
    point = make()
    assert is_pending(point)
    one = point(x=1)
    assert not is_pending(point)
    assert (one.x, one.y, repr(one).partition(".")[2][-17:]) == (1, 2, "<locals>.Point(x=1, y=2)"[-17:])
    assert one == point(x=1, y=2) != point(x=2)
    assert hash(one) == hash(point(x=1))
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.x = 3
    with pytest.raises(TypeError, match="unexpected keyword argument 'z'"):
        point(x=1, z=3)
    assert dataclasses.replace(one, x=5) == point(x=5)


def test_its_fields_complete_it():
    point = make()
    assert dataclasses.is_dataclass(point)
    assert [(f.name, dict(f.metadata)) for f in dataclasses.fields(point)] == [
        ("x", {}),
        ("y", {"internal": True}),
    ]


def test_a_class_completes_those_that_it_extends():
    point = make()

    @dataclass(frozen=True)
    class Space(point):
        z: int = 0

    class Named(Space):
        name = "named"

    assert is_pending(point)
    assert is_pending(Space)
    assert Named(3, x=1) == Named(x=1, y=2, z=3)
    assert [f.name for f in dataclasses.fields(Named)] == ["x", "y", "z"]
    assert not is_pending(point)


def test_options_are_optional():
    @dataclass
    class Count:
        n: int = 0
        kind: str = ""

    count = Count(1, kind="even")
    count.n += 1
    assert count == Count(2, "even")


def test_threads_complete_a_class_once():
    for _ in range(50):
        point, found, start = make(), [], threading.Barrier(4)

        def run(point=point, found=found, start=start):
            start.wait()
            found.append(point(x=1))

        threads = [threading.Thread(target=run) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found == [point(x=1)] * 4
