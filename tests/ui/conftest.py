"""A real server on loopback for the tests of the dashboard."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import PATIENCE, wait_until
from tests.ui.client import Client, engine_with, training

from echelon.engines.base import Engine
from echelon.engines.memory.engine import MemoryEngine
from echelon.ui.server import Server


@pytest.fixture
def serve() -> Iterator[Callable[..., Client]]:
    """Start a dashboard of an engine."""
    with ExitStack() as stack:

        def start(engine: Engine, **more: Any) -> Client:
            server = Server(engine, **more)
            thread = threading.Thread(target=server.run, name="dashboard", daemon=True)
            thread.start()
            stack.callback(thread.join, PATIENCE)
            stack.callback(server.stop)
            made = Client(server)

            def answers() -> bool:
                return made.get("/")[0] == 200

            wait_until(answers, "the dashboard to answer")
            return made

        yield start


@pytest.fixture
def trained() -> MemoryEngine:
    """An engine with a run that has ended."""
    return engine_with(fm=training)


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """A results folder beside a file that is none of it."""
    folder = tmp_path / "results"
    (folder / "ckpt").mkdir(parents=True)
    (folder / "ckpt" / "model.pt").write_bytes(b"weights")
    (tmp_path / "secret").write_text("of nobody's concern")
    (folder / "link").symlink_to(tmp_path / "secret")
    (folder / "folder").symlink_to(tmp_path)
    return folder
