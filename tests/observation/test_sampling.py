"""What a run uses, live, over the memory engine: threads that follow it, and what keeps them from it."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from tests.conftest import wait_until

from echelon.engines.memory.engine import MemoryEngine
from echelon.engines.memory.script import Act
from echelon.errors import Denied, Unavailable
from echelon.handle import Run
from echelon.model.engine.sample import Samples
from echelon.model.job import Job
from echelon.model.run import RunRef
from echelon.submit import Prepared, submit


def start(engine: MemoryEngine, program: str = "computes.py") -> Run:
    job = Job(name="fm", script=program, framework="plain", workers=2)
    return submit(Prepared(job=job), engine)


def engine() -> MemoryEngine:
    return MemoryEngine({"computes.py": Act(lasts=True, cpus=1.5, memory=7), "ends.py": Act()})


def test_what_a_script_says_that_its_ranks_use() -> None:
    run = start(engine())
    usage = run.usage()
    assert [(each.worker, each.state, each.cpus) for each in usage.workers] == [
        (0, "running", 1.5),
        (1, "running", 1.5),
    ]
    with run.samples() as newest:
        wait_until(lambda: newest.of(1), "a sample")
        found = newest.of(1)
        assert found is not None
        assert (found.memory, [each.rank for each in found.ranks]) == (7, [1])
        run.stop()
        wait_until(lambda: newest.of(1) is None, "the end")
    assert newest.trouble is None


def test_a_run_that_has_ended_uses_nothing() -> None:
    run = start(engine(), "ends.py")
    assert [each.cpus for each in run.usage().workers] == [None, None]
    with run.live_usage() as live:
        wait_until(live.ended.is_set, "the end")
        assert live.now().state == "succeeded"


class Forbidding:
    """Samples that the user may not read."""

    def newest(self, _ref: RunRef) -> Samples:
        raise Denied("you may not look")

    def follow(self, _ref: RunRef, _left: threading.Event) -> Iterator[Samples]:
        raise Denied("you may not look")


def test_what_keeps_samples_from_being_read_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    run = start(engine())
    monkeypatch.setattr(MemoryEngine, "sampling", Forbidding())
    with run.live_usage() as live:
        wait_until(lambda: live.trouble, "the trouble")
        assert isinstance(live.trouble, Denied)
    with pytest.raises(Denied):
        run.usage()


def test_an_engine_without_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    run = start(engine())
    monkeypatch.setattr(MemoryEngine, "sampling", None)
    with pytest.raises(Unavailable):
        run.usage()
    with pytest.raises(Unavailable):
        run.live_usage()
    with run.samples() as newest:
        assert newest.of(0) is None
