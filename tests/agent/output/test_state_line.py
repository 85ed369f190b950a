"""What a leader repeats of its log tells as much as the whole of it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.agent.pods import Pods
from tests.properties import examples

from echelon.agent.output.sink import Sink
from echelon.agent.output.state_line import History
from echelon.model.event import Event
from echelon.model.output.log import may_be_event
from echelon.model.status import Status, WorkerStatus, fold

WORKERS = 3
CAUSE = {"summary": "rank 1 exited with code 3"}


def story(draw: st.DrawFn) -> list[dict[str, Any]]:
    """A run as it can go: some generations, in each of which workers start, run, fail or are lost."""
    events: list[dict[str, Any]] = []

    def happens(kind: str, **fields: Any) -> None:
        events.append({"kind": kind, "at": float(len(events)), **fields})

    for worker in draw(st.permutations(range(WORKERS))):
        happens("worker-started", worker=worker)
    for restart in range(draw(st.integers(1, 4))):
        if restart:
            happens("restarting", restart=restart, cause=CAUSE)
        for worker in draw(st.permutations(range(WORKERS))):
            if draw(st.booleans()):
                happens("note", worker=worker, reason="a word")
            happens("worker-running", worker=worker, restart=restart, pids={str(worker): 7})
        for _ in range(draw(st.integers(0, 2))):
            happens("still", reason=f"quiet {len(events)}", trouble="quiet", places=["rank 0: fit"])
            if draw(st.booleans()):
                happens("moving")
        if draw(st.booleans()):
            happens("checkpoint", path=f"ckpt/{len(events)}", size=10, files=1)
        if draw(st.booleans()):
            happens("notice", worker=draw(st.integers(0, WORKERS - 1)), reason="told to leave", grace=10.0)
        lost = set()
        for worker in draw(st.lists(st.integers(0, WORKERS - 1), max_size=6)):
            match draw(st.sampled_from(["ended", "told", "stopped", "failed", "lost"])):
                case "ended":
                    happens("rank-ended", worker=worker, rank=worker, exit_code=0, reason=None)
                case "told":
                    happens("rank-ended", worker=worker, rank=worker, exit_code=0, reason=None, told=True)
                case "stopped":
                    happens("rank-ended", worker=worker, rank=worker, exit_code=143, reason=None)
                case "failed":
                    reason = f"failed {len(events)}"
                    happens("rank-ended", worker=worker, rank=worker, exit_code=3, reason=reason)
                case _:
                    happens("worker-lost", worker=worker, reason=f"gone {len(events)}")
                    lost.add(worker)
        if draw(st.booleans()):
            happens("failed", cause=CAUSE)
        for worker in lost:
            if draw(st.booleans()):
                happens("worker-started", worker=worker)
    if draw(st.booleans()):
        happens("stopping", reason="enough")
    if draw(st.booleans()):
        happens("verdict", outcome="failed", exit_code=3, cause=CAUSE)
        for worker in draw(st.permutations(range(WORKERS))):
            happens("worker-ended", worker=worker, exit_code=draw(st.sampled_from([0, 193])))
    return events[: draw(st.integers(0, len(events)))]


def status(events: list[dict[str, Any]]) -> Status:
    begin = Status(
        name="r", uri="u", state="starting", workers=tuple(WorkerStatus(worker=n) for n in range(WORKERS))
    )
    return fold(begin, [msgspec.convert(event, Event) for event in events])


@settings(max_examples=examples(200), deadline=None)
@given(events=st.composite(story)())
def test_folding_what_is_kept_gives_what_folding_everything_gives(events: list[dict[str, Any]]) -> None:
    history = History()
    for event in events:
        history.note(event)
    kept = history.events()
    # When ranks ran first is known while the log has it; its state line has the newest start.
    assert replace(status(kept), trained_first=None) == replace(status(events), trained_first=None)
    assert len(kept) <= 6 * WORKERS + 5
    times: list[Any] = [event["at"] for event in kept]
    assert times == sorted(times)


def test_it_does_not_grow_with_the_run() -> None:
    history = History()
    for restart in range(1000):
        history.note({"kind": "restarting", "restart": restart})
        for worker in range(10):
            history.note({"kind": "worker-running", "worker": worker, "restart": restart})
            history.note({"kind": "note", "worker": worker, "reason": "x"})
    assert len(history.events()) == 11


def test_a_leader_that_talks_much_tells_now_and_then_how_the_run_stands(pods: Pods) -> None:
    pods.script("for number in range(60000): print('a line of some length', number)", repeat_state=True)
    pods.start(0)
    assert pods.code(0) == 0
    states = [event for event in pods.events() if event["kind"] == "state"]
    volume = sum(len(line) + 1 for line in pods.log(0))
    assert volume > 3 << 20
    assert volume // (1 << 20) - 1 <= len(states) <= volume // (1 << 20)
    assert [event["kind"] for event in states[-1]["events"]] == ["worker-started", "worker-running"]
    assert "state" not in [event["kind"] for event in states[-1]["events"]]


def test_the_last_line_of_every_log_counts_those_before_it(pods: Pods) -> None:
    """A log that was turned over right after the end still tells that there was more, and how much."""
    pods.script("print('a line')", workers=2, hold=600, repeat_state=True)
    pods.start_all()
    for worker in range(2):
        pods.wait_for("worker-ended", worker, of=worker)
    assert pods.order(0, "release").returncode == 0
    for worker in range(2):
        assert pods.code(worker) == 0
        assert pods.kinds(worker)[-1] == "state"
        assert pods.log(worker)[-1].partition(b" ")[2].startswith(b"1 [event] ")
    states = [event["events"] for event in pods.events() if event["kind"] == "state"]
    assert states
    # The leader's own, all of them: a member's, which has no verdict, is no news for it.
    assert all("verdict" in [event["kind"] for event in each] for each in states)


def test_only_when_it_is_asked_to(pods: Pods) -> None:
    pods.script("print('x' * 1000, end='\\n' * 3000)\nprint('y' * 3000000)")
    pods.start(0)
    assert pods.code(0) == 0
    assert "state" not in pods.kinds()


def test_a_large_state_is_told_less_often(tmp_path: Any) -> None:
    with (tmp_path / "log").open("wb") as file:
        sink = Sink(None, file.fileno())  # type: ignore[arg-type]  # a file never blocks
        state = {"kind": "state", "events": ["x" * 500_000]}
        sink.remind(lambda: max(1 << 20, 8 * sink.pass_on(dict(state))), 1 << 20)
        for _ in range(1200):
            sink.lines(b" [0] ", [b"y" * 10_000], 0.0)
    lines = (tmp_path / "log").read_bytes().splitlines()
    told = [number for number, line in enumerate(lines) if may_be_event(line)]
    assert len(told) == 3  # after 1 MB, and then every 4
    assert json.loads(lines[told[0]].partition(b"] ")[2]) == state
