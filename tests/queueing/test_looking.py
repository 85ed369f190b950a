"""The queue of an engine whose runs are admitted one by one, as `echelon queue` shows it."""

from __future__ import annotations

from dataclasses import replace

from tests.test_admission import job, let_in, machine

from echelon.model.queue import Place
from echelon.queueing.looking import look, standing


def test_position_reason_and_start_of_every_run_that_waits() -> None:
    engine = machine(2)
    let_in(engine, job("holds", 2))
    let_in(engine, job("first", 2))
    let_in(engine, job("urgent", 1, priority=3))
    let_in(engine, job("last", 1))
    found = standing(look(engine), 0.0)
    assert [(each.position, each.name, each.priority, each.gpus) for each in found] == [
        (1, "urgent", 3, 1),
        (2, "first", 0, 2),
        (3, "last", 0, 1),
    ]
    assert [each.reason for each in found] == [
        "waiting for 1 GPU: 0 of 2 free, held by holds",
        "queued behind urgent",
        "queued behind urgent and 1 more",
    ]
    assert [each.earliest for each in found] == [None] * 3, "the run that holds the GPUs has no time limit"


def test_runs_that_wait_elsewhere_come_last_and_have_no_position() -> None:
    engine = machine(1)
    let_in(engine, job("holds", 1))
    let_in(engine, job("first", 1))
    kueue = [
        Place(name=name, position=0, why="elsewhere", reason="in Kueue's queue team", since=since)
        for name, since in (("later", 2.0), ("sooner", 1.0), ("first", 0.0))
    ]
    found = standing(replace(look(engine), elsewhere=kueue), 0.0)
    assert [(each.name, each.position) for each in found] == [("first", 1), ("sooner", 0), ("later", 0)]


def test_nothing_waits() -> None:
    assert standing(look(machine(1)), 0.0) == []
