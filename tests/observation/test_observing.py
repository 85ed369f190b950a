"""Events and metrics of a run as one stream."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import PATIENCE, wait_until
from tests.metrics.event_files import event, record

from echelon.engines.memory.engine import MemoryEngine
from echelon.engines.memory.script import Act, Program
from echelon.errors import Denied, InvalidJob, Unreachable
from echelon.handle import Run
from echelon.model.event import Event
from echelon.model.job import Job
from echelon.model.output.log import LogLine
from echelon.model.output.metric import Metric
from echelon.observation.observing import Merged
from echelon.submit import Prepared, submit


def test_an_error_of_one_source_is_raised() -> None:
    def fails() -> Iterator[Sequence[int]]:
        yield [1]
        raise Unreachable("gone")

    stream = iter(Merged([fails, lambda: iter(())]))
    assert next(stream) == 1
    with pytest.raises(Unreachable):
        next(stream)


def test_a_stream_that_is_left_lets_its_sources_go() -> None:
    gone = threading.Event()

    def endless() -> Iterator[Sequence[int]]:
        try:
            while True:
                yield [1]
        finally:
            gone.set()

    stream = iter(Merged([endless]))
    next(stream)
    stream.close()  # type: ignore[attr-defined]
    wait_until(gone.is_set, "the source to end")
    assert gone.wait(PATIENCE)


def test_a_source_may_be_added_while_the_others_are_read() -> None:
    stream: Merged[int] = Merged([lambda: iter([[1], [2]])])
    found = []
    for item in stream:
        found.append(item)
        if item < 5:
            stream.add(lambda item=item: iter([[item * 10]]))
    assert sorted(found) == [1, 2, 10, 20]


def test_a_slow_reader_keeps_the_sources_waiting() -> None:
    made = 0

    def endless() -> Iterator[Sequence[int]]:
        nonlocal made
        while True:
            made += 1
            yield [made]

    stream = iter(Merged([endless]))
    assert [next(stream) for _ in range(1000)] == list(range(1, 1001))
    assert made < 1100
    stream.close()  # type: ignore[attr-defined]


def start(act: Program, **more: Any) -> Run:
    job = Job(name="fm", script="train.py", framework="plain", **more)
    return submit(Prepared(job=job), MemoryEngine({"train.py": act}))


@pytest.mark.parametrize("follow", [False, True])
def test_the_end_comes_last(follow: bool) -> None:
    run = start(Act(lines=("step=1 loss=2", "text", "loss=1")), workers=2)
    items = list(run.observe(follow=follow))
    assert [(item.rank, item.value, item.step) for item in items if isinstance(item, Metric)] == [
        (0, 2.0, 1),
        (0, 1.0, 1),
        (1, 2.0, 1),
        (1, 1.0, 1),
    ]
    kinds = [item.kind for item in items if isinstance(item, Event)]
    assert (kinds[0], kinds[-1], kinds.count("finished")) == ("recorded", "finished", 1)
    assert isinstance(items[-1], Event)
    assert not any(isinstance(item, Metric) for item in run.observe(follow=follow, metrics=False))


def test_files_of_another_run_in_the_same_folder_are_none_of_it(tmp_path: Path) -> None:
    run = start(Act(), results=str(tmp_path))
    created = run.status().created
    (tmp_path / "a.tfevents").write_bytes(record(event("old", 1.0, at=created - 3600)))
    (tmp_path / "b.tfevents").write_bytes(record(event("new", 1.0, at=created + 1)))
    assert run.metrics()["name"] == ["new"]
    assert [item.name for item in run.observe(follow=True, events=False) if isinstance(item, Metric)] == [
        "new"
    ]


def test_a_pattern_of_a_record_is_checked_when_it_is_read() -> None:
    run = start(Act(lines=("a=1",)), metric_patterns=(r"a=(?P<b>\d)",))
    assert run.metrics()["name"] == ["b"]
    with pytest.raises(InvalidJob):
        run.metrics(pattern=r"(?P<a>(\d+)*)")


def test_how_far_a_run_has_come() -> None:
    run = start(Act(lines=("Epoch 3/10", "12/24 ━━━ 1s 100ms/step - loss: 0.5"), lasts=True), workers=2)
    progress = run.status().progress
    assert progress is not None
    assert (progress.rank, progress.epoch, progress.epochs, progress.step) == (0, 3.0, 10, 12)
    assert (progress.done, progress.metrics) == (0.25, {"loss": 0.5})
    assert progress.left == pytest.approx(18.0)
    assert run.status(progress=False).progress is None
    assert "progress  epoch 3/10, 12/24, 25%, 10/s, 18 s left, loss 0.5" in repr(run.status())
    run.stop()
    ended = run.status().progress
    assert ended is not None
    assert (ended.done, ended.rate, ended.left) == (0.25, None, None)


def test_the_lowest_rank_that_tells_it(monkeypatch: pytest.MonkeyPatch) -> None:
    run = start(lambda rank, _: Act(lines=(f"step {rank}/8",) if rank in (2, 3, 7) else ()), workers=8)
    progress = run.status().progress
    assert progress is not None
    assert (progress.rank, progress.step) == (2, 2)

    def denied(*_: object) -> Iterator[LogLine]:
        raise Denied("not for you")

    monkeypatch.setattr(MemoryEngine, "recent", denied)
    assert (run.status().progress, run.status().state) == (None, "succeeded")


def test_a_run_that_tells_nothing_of_it() -> None:
    assert start(Act(lines=("hello", "port: 8080")), workers=2).status().progress is None
