"""Controllers that tests use side by side: one at a time of those that need the same port."""

from __future__ import annotations

import threading
from functools import partial
from pathlib import Path

import pytest
from testbed.locking import holders
from tests.conftest import PATIENCE, wait_until

from testbed import controllers


def test_two_that_need_the_same_port_take_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    running: set[str] = set()

    def start(name: str) -> None:
        running.add(name)
        done.append(f"start {name}")

    def stop(name: str) -> None:
        if name in running:
            running.remove(name)
            done.append(f"stop {name}")

    monkeypatch.setattr(controllers, "STATE", tmp_path)
    monkeypatch.setattr(controllers, "start", start)
    monkeypatch.setattr(controllers, "stop", stop)
    left = threading.Event()

    def use(name: str) -> None:
        with controllers.using(name):
            left.wait(PATIENCE)

    second = threading.Thread(target=partial(use, "mpi-operator"), daemon=True)
    with controllers.using("tekton"), controllers.using("jobset"):
        second.start()
        wait_until(lambda: bool(holders(tmp_path / "controllers-mpi-operator.starting")), "the second one")
        assert done == ["start tekton", "start jobset"]
    wait_until(lambda: "start mpi-operator" in done, "its turn")
    assert done.index("stop tekton") < done.index("start mpi-operator")
    left.set()
    second.join(PATIENCE)
    assert not running
