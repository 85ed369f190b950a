"""What following starts, and must end: threads."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

Threads = Callable[..., list[threading.Thread]]


@pytest.fixture
def threads() -> Threads:
    """The threads with such names that the test has started. Commands that other tests called in this process
    may still follow a run: a command's threads end with its process.
    """
    before = set(threading.enumerate())
    return lambda *names: [
        each for each in threading.enumerate() if each.name.startswith(names) and each not in before
    ]
