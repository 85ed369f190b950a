"""What a function says that it returns."""

from __future__ import annotations

import dataclasses
import io
import types
from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol, TypedDict

import numpy as np
import pytest

from echelon.errors import CannotShip
from echelon.function.returns import check_return


@dataclasses.dataclass
class Result:
    loss: float


class Pair(NamedTuple):
    left: int


class Losses(TypedDict):
    train: float


class Sized(Protocol):
    size: int


def says(annotation: Any) -> Any:
    def train() -> None: ...

    train.__annotations__["return"] = annotation
    return train


@pytest.mark.parametrize(
    "annotation",
    [
        None,
        int,
        dict[str, list[float]],
        set[int],
        np.ndarray,
        np.float32,
        Losses,
        Any,
        object,
        Sized,
        "Unknown",
        int | str,
    ],
)
def test_what_may_be_plain_data(annotation: Any) -> None:
    check_return(says(annotation), remote=True)
    check_return(says(annotation), remote=False)


@pytest.mark.parametrize(
    ("annotation", "hint"),
    [
        (Result, "asdict"),
        (Result | None, "asdict"),
        (list[Result], "asdict"),
        (Pair, "a plain list, tuple or dict"),
        (Iterator[int], "return numbers"),
        (type(print), "return numbers"),
    ],
)
def test_what_a_pickle_may_hold_comes_back_from_this_machine_alone(annotation: Any, hint: str) -> None:
    check_return(says(annotation), remote=False)
    with pytest.raises(CannotShip, match="which cannot come back") as refused:
        check_return(says(annotation), remote=True)
    assert hint in refused.value.hint


@pytest.mark.parametrize("annotation", [io.TextIOWrapper, types.ModuleType, types.GeneratorType])
@pytest.mark.parametrize("remote", [True, False])
def test_what_comes_back_from_nowhere(annotation: Any, remote: bool) -> None:
    with pytest.raises(CannotShip, match="'train' says that it returns a"):
        check_return(says(annotation), remote=remote)
