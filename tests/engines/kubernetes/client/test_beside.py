"""What is done beside: it is under way at once, and what it found or met comes where it is asked for."""

from __future__ import annotations

import threading

import pytest
from tests.conftest import PATIENCE

from echelon.engines.kubernetes.client.beside import beside


def test_it_runs_while_the_caller_goes_on() -> None:
    met = threading.Barrier(2)
    answer = beside(lambda: met.wait(PATIENCE))
    met.wait(PATIENCE)
    assert answer() == answer()


def test_its_error_is_the_callers() -> None:
    answer = beside(lambda: 1 // 0)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            answer()
