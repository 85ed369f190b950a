"""Values are what `dataclass(frozen=True, kw_only=True, slots=True)` makes: each test tries both."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError, asdict, dataclass, field, fields, is_dataclass, replace
from typing import Any, ClassVar

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from echelon.values import frozen

Decorator = Callable[[type], Any]
_DATACLASS: Decorator = dataclass(frozen=True, kw_only=True, slots=True)
decorated = pytest.mark.parametrize("decorate", [frozen, _DATACLASS], ids=["frozen", "dataclass"])


def _point(decorate: Decorator) -> Any:
    @decorate
    class Point:
        """A place."""

        kind: ClassVar[str] = "point"
        x: int
        y: int = 2
        tags: list[str] = field(default_factory=list)
        seen: int = field(default=0, compare=False)
        token: str = field(default="", repr=False, metadata={"help": "not shown"})

        def sum(self) -> int:
            return self.x + self.y

    return Point


def _inherited(decorate: Decorator) -> Any:
    @decorate
    class Named(_point(decorate)):  # type: ignore[misc]
        """A place with a name."""

        y: int = 3
        name: str

        def __repr__(self) -> str:
            return self.name

    return Named


@decorated
def test_what_it_holds(decorate: Decorator) -> None:
    kind = _point(decorate)
    made = kind(x=1)
    assert (made.x, made.y, made.tags, made.seen, made.token, made.kind) == (1, 2, [], 0, "", "point")
    assert made.sum() == 3
    assert made.tags is not kind(x=1).tags
    assert not hasattr(made, "__dict__")
    assert repr(kind(x=1, token="secret")).endswith("Point(x=1, y=2, tags=[], seen=0)")


@decorated
def test_no_object_changes(decorate: Decorator) -> None:
    made = _point(decorate)(x=1)
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'x'"):
        made.x = 2
    with pytest.raises(FrozenInstanceError, match="cannot delete field 'x'"):
        del made.x
    with pytest.raises((FrozenInstanceError, TypeError)):
        made.other = 2


@decorated
@pytest.mark.parametrize(
    ("names", "message"),
    [
        ({}, "missing 1 required keyword-only argument: 'x'"),
        ({"x": 1, "z": 2}, "unexpected keyword argument 'z'"),
    ],
)
def test_wrong_fields(decorate: Decorator, names: dict[str, int], message: str) -> None:
    kind = _point(decorate)
    for _ in range(2):  # the first object is made in another way
        with pytest.raises(TypeError, match=rf"Point.__init__\(\).*{message}"):
            kind(**names)
    with pytest.raises(TypeError, match="positional argument"):
        kind(1)


@decorated
def test_equal_when_they_hold_the_same(decorate: Decorator) -> None:
    kind, other = _point(decorate), _point(decorate)
    assert kind(x=1, seen=1) == kind(x=1, seen=2)
    assert kind(x=1) != kind(x=2)
    assert kind(x=1) != other(x=1)
    assert kind(x=1) != 1
    assert hash(kind(x=1, tags=(), seen=1)) == hash(kind(x=1, tags=(), seen=2))
    with pytest.raises(TypeError, match="unhashable"):
        hash(kind(x=1, tags=[]))


@decorated
def test_a_value_without_fields(decorate: Decorator) -> None:
    @decorate
    class Nothing:
        """Holds nothing."""

    assert Nothing() == Nothing()
    assert len({Nothing(), Nothing()}) == 1


@decorated
def test_fields_of_a_base_class_and_own_methods(decorate: Decorator) -> None:
    kind = _inherited(decorate)
    made = kind(name="here", x=1)
    assert [each.name for each in fields(kind)] == ["x", "y", "tags", "seen", "token", "name"]
    assert (made.y, repr(made)) == (3, "here")


@decorated
def test_the_functions_of_dataclasses(decorate: Decorator) -> None:
    kind = _point(decorate)
    made = kind(x=1, tags=["a"])
    assert replace(made, y=5) == kind(x=1, y=5, tags=["a"])
    assert asdict(made) == {"x": 1, "y": 2, "tags": ["a"], "seen": 0, "token": ""}
    assert is_dataclass(kind)
    assert {each.name: dict(each.metadata) for each in fields(made)}["token"] == {"help": "not shown"}


@decorated
@given(x=st.integers(-(2**53), 2**53), tags=st.lists(st.text()))
def test_as_json(decorate: Decorator, x: int, tags: list[str]) -> None:
    kind = _point(decorate)
    made = kind(x=x, tags=tags)
    assert msgspec.json.decode(msgspec.json.encode(made), type=kind) == made
    assert msgspec.json.decode(b'{"x": 1}', type=kind) == kind(x=1)


class _Here:
    """A value that pickle finds by its name."""

    Frozen = _point(frozen)
    Frozen.__qualname__ = "_Here.Frozen"


def test_copies() -> None:
    made = _Here.Frozen(x=1, tags=["a"])
    for copied in (copy.copy(made), copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
        assert copied == made
    assert copy.deepcopy(made).tags is not made.tags
