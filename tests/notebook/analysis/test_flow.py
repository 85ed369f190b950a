from __future__ import annotations

import pytest

from echelon.notebook.analysis.cells import InvalidNotebook
from echelon.notebook.analysis.flow import names_needed

THERE = {"lr", "model", "log", "train"}


@pytest.mark.parametrize(
    ("text", "needed"),
    [
        ("print(lr)", {"lr"}),
        ("model = wrap = 1\nmodel", set()),  # bound first: what the notebook has is not needed
        ("model = train(model)", {"model", "train"}),
        ("lr += 1", {"lr"}),
        ("if lr:\n    model = 1\nmodel", {"lr", "model"}),
        ("def f():\n    return model", {"model"}),
        ("for lr in range(3):\n    print(lr)", set()),
        ("from math import *\nprint(sin(lr))", {"lr"}),
        ("def (", set()),
    ],
)
def test_names(text: str, needed: set[str]) -> None:
    assert names_needed(text, THERE) == needed


def test_a_name_that_nothing_defines() -> None:
    with pytest.raises(InvalidNotebook, match="line 2: 'rate' is not defined"):
        names_needed("lr\nprint(rate)", THERE)
