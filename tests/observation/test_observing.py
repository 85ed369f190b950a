"""Events and metrics of a run as one stream."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.metrics.event_files import event, record

from echelon.engines.memory.engine import MemoryEngine
from echelon.engines.memory.script import Act, Program
from echelon.errors import Denied, InvalidJob
from echelon.handle import Run
from echelon.model.event import Event
from echelon.model.job import Job
from echelon.model.output.log import LogLine
from echelon.model.output.metric import Metric
from echelon.submit import Prepared, submit


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
