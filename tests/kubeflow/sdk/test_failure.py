"""The line that raised, from a rank's last lines."""

from __future__ import annotations

import pytest

from echelon.kubeflow.sdk.failure import line_of

OWN = ['  File "/home/ann/train.py", line 9, in train', "    raise KeyError(name)", "KeyError: 'x'"]
LIBRARY = ['  File "/usr/lib/python3/dist-packages/torch/nn.py", line 3, in forward', "    return f(x)"]
BEGIN = "Traceback (most recent call last):"


@pytest.mark.parametrize(
    ("tail", "expected"),
    [
        ([], None),
        (["killed"], None),
        ([BEGIN, *OWN], "line 9 of train.py, in train: raise KeyError(name)"),
        ([BEGIN, *OWN[:2], *LIBRARY, "ValueError"], "line 9 of train.py, in train: raise KeyError(name)"),
        ([BEGIN, *LIBRARY, "ValueError"], "line 3 of nn.py, in forward: return f(x)"),
        ([BEGIN, *LIBRARY, "E", "", "During:", "", BEGIN, *OWN], "line 9 of train.py, in train: raise KeyE"),
        ([f"[rank1]:{each}" for each in (BEGIN, *OWN)], "line 9 of train.py, in train: raise KeyError(name)"),
        ([OWN[0].replace("ann", ".echelon"), OWN[1]], "in train: raise KeyError(name)"),
        (['  File "train.py", line 2', "    x = (", "SyntaxError"], "line 2 of train.py, in train.py: x = ("),
        ([OWN[0]], "line 9 of train.py, in train"),
    ],
)
def test_the_innermost_line_of_the_users_own(tail: list[str], expected: str | None) -> None:
    found = line_of(tail)
    assert found is not None if expected else found is None
    assert (found or "").startswith(expected or "")
