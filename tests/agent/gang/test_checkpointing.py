"""The first start of a run that was resumed waits for what it goes on from, and not for ever."""

from __future__ import annotations

from typing import Any

import pytest

from echelon.agent.gang.checkpointing import NO_KEEPER, NOT_THERE, SENT_WITHIN, Checkpointing
from echelon.agent.gang.decisions import Gang
from echelon.agent.task import Task


class Keeper:
    """The leader's end of the connection to a keeper."""

    on_shelf: Any = None

    def message(self) -> dict[str, object]:
        return {"say": "keeper"}

    def order(self, message: dict[str, object]) -> None: ...


class Leader:
    """A leader of a gang of one worker, its loop and its clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, earlier: int) -> None:
        self.now = 1000.0
        monkeypatch.setattr("echelon.agent.gang.checkpointing.time.monotonic", lambda: self.now)
        self._calls: list[Any] = []
        raw = {"groups": [{"role": "worker", "workers": 1, "procs": 1, "launch": {}}], "earlier": earlier}
        paths = dict.fromkeys(("run", "cwd", "output", "logs", "reports", "secret"), "x")
        task = Task({"schema": 3, "leader": {"host": "h", "port": 1}, **paths, **raw})
        self.gang = Gang(task, self.now)
        self.keeper = Keeper()
        loop: Any = self
        made: Any = Checkpointing(
            loop,
            1,
            "ckpt",
            self.gang,
            self.keeper,  # type: ignore[arg-type]
            None,  # type: ignore[arg-type]
            lambda _message: None,
            lambda _worker: True,
            resumed=earlier > 0,
        )
        self.checkpoints: Checkpointing = made
        self.gang.joined(0, "127.0.0.1", -1, self.now)
        self.checkpoints.act()

    def call_later(self, _seconds: float, call: Any) -> None:
        self._calls.append(call)

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        calls, self._calls = self._calls, []
        for call in calls:
            call()

    def shelf(self, *, stocked: bool) -> None:
        self.checkpoints.receive_from_keeper({"say": "shelf", "checkpoints": [], "stocked": stocked})

    def cause(self) -> Any:
        assert self.gang.verdict is not None
        return self.gang.verdict["cause"]


def test_it_waits_until_they_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    leader = Leader(monkeypatch, earlier=1)
    leader.shelf(stocked=False)
    for _ in range(10):
        leader.pass_time(SENT_WITHIN - 1)
        leader.checkpoints.receive_from_keeper({"say": "receiving"})
    assert leader.gang.phase == "gathering"
    leader.shelf(stocked=True)
    leader.pass_time(1)
    assert leader.gang.phase == "preparing"


def test_a_run_that_was_not_resumed_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    leader = Leader(monkeypatch, earlier=0)
    leader.shelf(stocked=False)
    leader.pass_time(1)
    assert leader.gang.phase == "preparing"


@pytest.mark.parametrize(("keeper", "patience"), [(True, SENT_WITHIN), (False, NO_KEEPER)])
def test_a_run_to_which_no_command_sends_them_fails(
    monkeypatch: pytest.MonkeyPatch, keeper: bool, patience: float
) -> None:
    leader = Leader(monkeypatch, earlier=1)
    if keeper:
        leader.shelf(stocked=False)
    leader.pass_time(patience)
    assert leader.gang.verdict is None
    leader.pass_time(1)
    assert leader.cause()["exit_code"] == NOT_THERE
    assert "did not arrive" in leader.cause()["summary"]


def test_another_keeper_has_its_full_time(monkeypatch: pytest.MonkeyPatch) -> None:
    leader = Leader(monkeypatch, earlier=1)
    leader.pass_time(NO_KEEPER)
    leader.checkpoints.note_keeper()
    leader.shelf(stocked=False)
    leader.pass_time(SENT_WITHIN)
    assert leader.gang.verdict is None
