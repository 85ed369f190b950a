"""Lines, events and metrics of a run that is made of runs."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from tests.conftest import PATIENCE, wait_until
from tests.observation.pipelines import Pipeline

from echelon.engines.memory.engine import MemoryEngine
from echelon.engines.memory.script import Act
from echelon.errors import Denied, InvalidJob
from echelon.model.event import Event, RootCause
from echelon.model.output.log import LogBlock, LogLine, each_line
from echelon.model.output.metric import Metric
from echelon.model.run import RunRef


def told(lines: Iterable[LogLine | LogBlock]) -> list[tuple[str, str]]:
    return [(line.part, line.text) for line in each_line(lines)]


class Reader:
    """Reads a stream in a thread, as who follows it does."""

    def __init__(self, stream: Iterator[Any]) -> None:
        self.items: list[Any] = []
        self._thread = threading.Thread(target=self._read, args=(stream,), daemon=True)
        self._thread.start()

    def _read(self, stream: Iterator[Any]) -> None:
        for item in stream:
            self.items.append(item)

    def end(self) -> list[Any]:
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()
        return self.items


def over() -> Pipeline:
    """One of three steps, the last of which was never reached."""
    pipeline = Pipeline("load", "train", "last")
    pipeline.begin("train", Act(lines=("loss=2", "loss=1")), workers=2)
    pipeline.end("train")
    pipeline.begin("load", Act(lines=("loaded 3 rows", "rows=3")))
    pipeline.end("load")
    pipeline.change("last", state="not-reached")
    pipeline.finish()
    return pipeline


@pytest.mark.core
def test_what_is_there_comes_one_step_after_the_other() -> None:
    run = over().run
    load = [("load", "loaded 3 rows"), ("load", "rows=3")]
    train = [("train", "loss=2"), ("train", "loss=1")]
    assert run.has_steps
    assert told(run.logs()) == load + train * 2
    assert told(run.logs(follow=True)) == load + train * 2
    assert [(line.part, line.rank) for line in run.logs(rank=1)] == [("train", 1)] * 2
    assert next(map(str, run.logs(rank=1))) == "[train 1] loss=2"
    assert next(map(str, run.logs())) == "[load] loaded 3 rows"
    assert told(run.raw_logs()) == load + train * 2


def test_the_last_lines_are_those_of_the_whole_in_the_order_of_time() -> None:
    run = over().run
    assert told(run.logs(tail=3)) == [("train", "loss=1"), ("load", "loaded 3 rows"), ("load", "rows=3")]
    assert told(run.logs(tail=0)) == []
    assert told(run.logs(tail=0, follow=True)) == []
    assert len(told(run.logs(tail=10**30))) == 6
    since = next(run.logs(tail=2)).at
    assert told(run.logs(since=since)) == [("load", "loaded 3 rows"), ("load", "rows=3")]


def test_metrics_have_their_step_and_the_run_s_end_comes_last() -> None:
    run = over().run
    found = run.metrics()
    assert list(found)[:2] == ["part", "time"]
    assert list(zip(found["part"], found["rank"], found["value"], strict=True)) == [
        ("load", 0, 3.0),
        ("train", 0, 2.0),
        ("train", 0, 1.0),
        ("train", 1, 2.0),
        ("train", 1, 1.0),
    ]
    assert run.metrics("rows", rank=0)["part"] == ["load"]
    for follow in (False, True):
        items = list(run.observe(follow=follow))
        assert sum(isinstance(item, Metric) for item in items) == 5
        kinds = [item.kind for item in items if isinstance(item, Event)]
        assert (kinds[0], kinds.count("steps"), kinds.count("finished")) == ("recorded", 6, 1)
        assert isinstance(items[-1], Event)
        assert items[-1].kind == "finished"
        assert not any(isinstance(item, Metric) for item in run.observe(follow=follow, metrics=False))
        assert not any(isinstance(item, Event) for item in run.observe(follow=follow, events=False))


@pytest.mark.core
def test_steps_are_read_beside_each_other_as_soon_as_they_begin() -> None:
    pipeline = Pipeline("load", "left", "right")
    lines = Reader(pipeline.run.logs(follow=True))
    items = Reader(pipeline.run.observe(follow=True))
    for step in ("load", "left", "right"):
        pipeline.begin(step)
    for step in ("right", "left", "load"):
        pipeline.write(step, f"value=1 of {step}")
        wait_until(lambda step=step: lines.items and lines.items[-1].part == step, f"the line of {step}")
    for step in ("right", "left", "load"):
        pipeline.end(step)
    pipeline.write("", "a warning of the executor")
    pipeline.finish()
    assert told(lines.end()) == [
        ("right", "value=1 of right"),
        ("left", "value=1 of left"),
        ("load", "value=1 of load"),
        ("", "a warning of the executor"),
    ]
    measured = [item.part for item in items.end() if isinstance(item, Metric)]
    assert sorted(map(str, measured)) == ["left", "load", "right"]
    assert items.items[-1].kind == "finished"


def test_who_comes_later_reads_what_is_over_before_what_goes_on() -> None:
    pipeline = Pipeline("load", "train", "last")
    pipeline.begin("load", Act(lines=("loaded",)))
    pipeline.end("load")
    pipeline.begin("train")
    pipeline.write("train", "one", "two")
    all_of_it = Reader(pipeline.run.logs(follow=True))
    last = Reader(pipeline.run.logs(follow=True, tail=2))
    none = Reader(pipeline.run.logs(follow=True, tail=0))
    wait_until(lambda: (len(all_of_it.items), len(last.items)) == (3, 2), "what is there")
    pipeline.write("train", "three")
    wait_until(lambda: (len(all_of_it.items), len(last.items), len(none.items)) == (4, 3, 1), "what comes")
    pipeline.end("train")
    pipeline.begin("last", Act(lines=("end",)))
    pipeline.end("last")
    pipeline.finish()
    train = [("train", "one"), ("train", "two"), ("train", "three")]
    assert told(all_of_it.end()) == [("load", "loaded"), *train, ("last", "end")]
    assert told(last.end()) == [*train, ("last", "end")]
    assert told(none.end()) == [("train", "three"), ("last", "end")]


def test_a_line_in_pieces_is_put_together_for_each_step() -> None:
    pipeline = Pipeline("left", "right")
    pipeline.begin("left")
    pipeline.begin("right")
    pieces = Reader(pipeline.run.raw_logs())
    pipeline.write("left", "ha", unfinished=True)
    pipeline.write("right", "a whole line")
    wait_until(lambda: pieces.items, "the whole line")
    pipeline.write("left", "lf")
    for step in ("left", "right"):
        pipeline.end(step)
    pipeline.finish()
    assert told(pieces.end()) == [("right", "a whole line"), ("left", "half")]


@pytest.mark.parametrize("how", ["begin", "resume"])
def test_a_step_that_is_started_again_is_read_again_and_nothing_twice(how: str) -> None:
    pipeline = Pipeline("train")
    lines = Reader(pipeline.run.logs(follow=True))
    metrics = Reader(pipeline.run.observe(follow=True, events=False))
    pipeline.begin("train", Act(lines=("try=1",), error="ValueError: bad luck"))
    wait_until(lambda: len(lines.items) == 2 and metrics.items, "the first try")
    pipeline.end("train", "failed")
    getattr(pipeline, how)("train", Act(lines=("try=2",)))
    pipeline.end("train")
    pipeline.finish()
    assert told(lines.end()) == [
        ("train", "try=1"),
        ("train", "ValueError: bad luck"),
        ("train", "try=2"),
    ]
    assert [item.value for item in metrics.end()] == [1.0, 2.0]


def test_one_that_was_resumed_has_the_lines_of_the_steps_that_it_kept() -> None:
    pipeline = Pipeline("load", "train")
    pipeline.begin("load", Act(lines=("loaded",)))
    pipeline.end("load")
    pipeline.finish()
    ref = RunRef(engine="memory", name=pipeline.name)
    pipeline.engine.reopen(ref, pipeline.run.job())
    pipeline.change("load", state="kept", run="")
    pipeline.begin("train", Act(lines=("trained",)))
    pipeline.end("train")
    pipeline.finish()
    assert told(pipeline.run.logs()) == [("load", "loaded"), ("train", "trained")]
    assert told(pipeline.run.raw_logs(earlier=True)) == [("load", "loaded"), ("train", "trained")]
    assert told(pipeline.run.raw_logs()) == [("train", "trained")]
    assert [start.part for start in pipeline.run.later_starts()] == [""]


def test_restarts_are_those_of_the_steps_too() -> None:
    pipeline = Pipeline("train")
    acts = {0: Act(error="ValueError: bad luck"), 1: Act(lines=("again",))}
    pipeline.begin("train", lambda _, restart: acts[restart], restarts=1)
    pipeline.end("train")
    pipeline.finish()
    (start,) = pipeline.run.later_starts()
    assert start.part == "train"
    assert "bad luck" in start.why


def test_a_step_that_was_removed_is_left_out() -> None:
    pipeline = over()
    pipeline.engine.remove(RunRef(engine="memory", name="book-1-train"))
    assert {line.part for line in pipeline.run.logs()} == {"load"}
    assert {line.part for line in pipeline.run.logs(tail=3, follow=True)} == {"load"}
    assert set(pipeline.run.metrics()["part"]) == {"load"}
    assert len(list(pipeline.run.raw_logs())) == 2


@pytest.fixture
def denied(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the step `train` writes cannot be read."""
    logs = MemoryEngine.logs

    def read(engine: MemoryEngine, ref: RunRef, **how: Any) -> Iterator[LogLine]:
        if ref.name == "book-1-train":
            raise Denied("not for you")
        return logs(engine, ref, **how)

    monkeypatch.setattr(MemoryEngine, "logs", read)


@pytest.mark.usefixtures("denied")
def test_a_step_that_cannot_be_read_does_not_keep_the_others_from_it() -> None:
    run = over().run
    refused = ("train", "its output cannot be read: not for you")
    assert told(run.logs()) == [("load", "loaded 3 rows"), ("load", "rows=3"), refused]
    items: list[Any] = []
    with pytest.raises(Denied):
        items.extend(run.observe())
    assert [item.part for item in items if isinstance(item, Metric)] == ["load"]
    assert items[-1].kind == "finished"


@pytest.mark.usefixtures("denied")
def test_nor_does_it_while_they_go_on() -> None:
    pipeline = Pipeline("train", "load")
    pipeline.begin("train")
    lines = Reader(pipeline.run.logs(follow=True))
    wait_until(lambda: lines.items, "what is wrong")
    items, read = pipeline.run.observe(follow=True), []
    read.append(next(items))
    pipeline.begin("load", Act(lines=("rows=3",)))
    pipeline.end("load")
    pipeline.end("train")
    pipeline.finish()
    assert told(lines.end()) == [("train", "its output cannot be read: not for you"), ("load", "rows=3")]
    with pytest.raises(Denied):
        read.extend(items)
    assert [item.part for item in read if isinstance(item, Metric)] == ["load"]
    assert isinstance(read[-1], Event)
    assert read[-1].kind == "finished"


@pytest.mark.parametrize("follow", [False, True])
@pytest.mark.parametrize("measured", [False, True])
@pytest.mark.parametrize(
    ("signal", "outcome", "code", "reason"),
    [
        (None, "failed", 1, "step train: bad luck"),
        ("SIGKILL", "lost", 117, "its executor was killed by SIGKILL; `echelon resume` takes it up"),
    ],
)
def test_events_tell_of_the_step_that_failed_and_not_of_its_executor(
    signal: str | None, outcome: str, code: int, reason: str, *, measured: bool, follow: bool
) -> None:
    pipeline = Pipeline("load", "train")
    pipeline.change("load", state="succeeded")
    pipeline.change("train", state="failed", reason="bad luck")
    pipeline.fail(RootCause(summary="rank 0 exited with code 1", signal=signal))
    found = list(pipeline.run.observe(follow=follow, metrics=measured))
    ends = [each for each in found if isinstance(each, Event) and each.kind in ("failed", "finished")]
    assert [(each.reason, each.cause) for each in ends] == [(reason, None)] * 2
    assert (ends[-1].outcome, ends[-1].exit_code) == (outcome, code)
    status = pipeline.run.status()
    assert (status.state, status.reason, status.exit_code) == (outcome, reason, code)


def test_a_step_whose_run_its_executor_could_not_write_down_is_read_too() -> None:
    pipeline = Pipeline("load")
    pipeline.begin("load", Act(lines=("rows=3",)))
    pipeline.end("load", state="recorded", run="")
    pipeline.finish()
    assert told(pipeline.run.logs()) == [("load", "rows=3")]
    assert pipeline.run.metrics()["part"] == ["load"]


@pytest.mark.core
def test_a_rank_or_worker_that_no_step_has_is_refused() -> None:
    run = over().run
    for read in (run.logs, run.metrics):
        with pytest.raises(InvalidJob, match="rank: 2 is not a rank of any step of run 'book-1'") as refused:
            read(rank=2)
        assert refused.value.hint == "they are numbered 0 to 1"
    with pytest.raises(InvalidJob, match="worker: 7 is not a worker of any step"):
        run.logs(worker=7)
    assert told(run.logs(worker=1)) == [("train", "loss=2"), ("train", "loss=1")]


def test_a_rank_is_not_refused_while_a_step_may_have_it() -> None:
    pipeline = Pipeline("load", "train")
    pipeline.begin("load", Act(lines=("rows=3",)))
    pipeline.end("load")
    assert told(pipeline.run.logs(rank=2)) == []
    pipeline.begin("train", Act(lines=("loss=1",)))
    with pytest.raises(InvalidJob, match="rank: 2 is not a rank of any step"):
        pipeline.run.logs(rank=2)
    assert told(pipeline.run.logs(rank=0)) == [("load", "rows=3"), ("train", "loss=1")]


def test_a_run_without_steps_so_far_and_one_that_is_ordinary() -> None:
    pipeline = Pipeline()
    pipeline.finish()
    assert told(pipeline.run.logs()) == []
    assert pipeline.run.metrics()["part"] == []
    pipeline = Pipeline("alone")
    ordinary = pipeline.begin("alone", Act(lines=("loss=1",)))
    assert not ordinary.has_steps
    assert [line.part for line in ordinary.logs()] == [""]
    assert "part" not in ordinary.metrics()


def test_only_steps_that_go_on_have_a_thread() -> None:
    names = [f"trial{number}" for number in range(100)]
    pipeline = Pipeline(*names, "last")
    for name in names:
        pipeline.begin(name, Act(lines=(f"loss={name}",)))
        pipeline.end(name)
    pipeline.begin("last")
    lines = Reader(pipeline.run.logs(follow=True))
    wait_until(lambda: len(lines.items) == 100, "what is there")
    mine = [thread for thread in threading.enumerate() if thread.name == "observing"]
    assert len(mine) <= 3  # of the events, of the executor's own lines, of the last step
    pipeline.end("last")
    pipeline.finish()
    lines.end()
    wait_until(lambda: not any(thread.is_alive() for thread in mine), "the threads to end")


def test_a_wait_shows_the_lines_of_its_steps(capsys: pytest.CaptureFixture[str]) -> None:
    over().run.wait(show=True)
    assert capsys.readouterr().out.splitlines()[:3] == [
        "[load] loaded 3 rows",
        "[load] rows=3",
        "[train] loss=2",
    ]
