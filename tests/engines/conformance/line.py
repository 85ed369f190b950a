"""That runs which do not fit wait for their turn, and no device is shared."""

from __future__ import annotations

import pytest
from tests.conftest import wait_until
from tests.engines.conformance.harness import (
    PATIENCE,
    Harness,
    gpus,
    plan_of,
    start,
    statuses,
    wait_for_state,
)

from echelon.admission import Queued, admit
from echelon.engines.base import Taken
from echelon.errors import (
    NoRoomNow,
    RunExists,
    StateTrouble,
)
from echelon.handle import Run
from echelon.model.plan import Plan
from echelon.model.resources import Amount, Resources
from echelon.model.run import RunRef
from echelon.submit import Prepared, submit


class LineConformance:
    """That runs which do not fit wait for their turn, and no device is shared."""

    # The line

    @pytest.mark.core
    def test_a_run_that_does_not_fit_now_waits(self, harness: Harness) -> None:
        harness.provide_gpus(2)
        engine = harness.engine
        first = start(harness, "lasts.py", name="first", workers=2, resources=gpus(1))
        second = start(harness, "talks.py", name="second", resources=gpus(1))
        status = second.status()
        assert status.state == "queued"
        assert "GPU" in (status.reason or "")
        assert "first" in (status.reason or "")
        assert engine.cluster().waiting == ("second",)
        assert next(summary for summary in engine.runs() if summary.name == "second").state == "queued"
        with pytest.raises(NoRoomNow):
            submit(
                Prepared(job=harness.job("talks.py", name="third", resources=gpus(1))), engine, no_wait=True
            )
        assert len(engine.runs()) == 2
        with pytest.raises(RunExists):
            start(harness, "talks.py", name="second", resources=gpus(1))
        first.stop()
        assert second.wait(PATIENCE).state == "succeeded"
        states = [status.state for status in statuses(second, second.events(), engine)]
        assert list(dict.fromkeys(states)) == ["recorded", "queued", "starting", "running", "succeeded"]
        assert engine.cluster().waiting == ()

    def test_the_first_in_line_is_served_first(self, harness: Harness) -> None:
        harness.provide_gpus(2)
        first = start(harness, "lasts.py", name="first", resources=gpus(1))
        second = start(harness, "talks.py", name="second", resources=gpus(2))
        third = start(
            harness, "talks.py", name="third", resources=gpus(1)
        )  # it would fit, but is not the first
        assert "behind second" in (third.status().reason or "")
        assert harness.engine.cluster().waiting == ("second", "third")
        urgent = start(harness, "talks.py", name="urgent", priority=1, resources=gpus(2))
        assert harness.engine.cluster().waiting == ("urgent", "second", "third")
        urgent.stop()
        first.stop()
        ends = [run.wait(PATIENCE) for run in (first, second, third)]
        assert [status.state for status in ends] == ["stopped", "succeeded", "succeeded"]
        begun = [status.started or 0.0 for status in ends]
        assert begun == sorted(begun)

    def test_who_leaves_the_line_never_runs(self, harness: Harness) -> None:
        harness.provide_gpus(1)
        first = start(harness, "lasts.py", name="first", resources=gpus(1))
        second = start(harness, "talks.py", name="second", resources=gpus(1))
        third = start(harness, "talks.py", name="third", resources=gpus(1))
        with pytest.raises(StateTrouble, match="has not ended"):
            second.remove()
        second.stop()
        assert second.wait(PATIENCE).state == "stopped"
        assert list(second.logs()) == []
        first.stop()
        assert third.wait(PATIENCE).state == "succeeded"
        assert "admitted" not in [event.kind for event in second.events()]
        second.remove()
        assert [summary.name for summary in harness.engine.runs()] == ["third", "first"]

    def test_cpus_are_waited_for_too(self, harness: Harness) -> None:
        nodes = harness.engine.cluster(gpus=False).nodes
        free = sorted(node.free_cpus for node in nodes)
        if free[-1] - free[0] >= 1:
            pytest.skip("equal workers cannot take every CPU of nodes that have unequal numbers of them free")
        every_cpu = Resources(cpus=Amount(request=free[0]))
        first = start(harness, "lasts.py", name="first", workers=len(nodes), resources=every_cpu)
        second = start(harness, "talks.py", name="second", resources=Resources(cpus=Amount(request=1)))
        status = second.status()
        assert status.state == "queued"
        assert "CPU" in (status.reason or "")
        first.stop()
        assert second.wait(PATIENCE).state == "succeeded"

    def test_no_device_is_shared(self, harness: Harness) -> None:
        harness.provide_gpus(3)
        engine = harness.engine
        runs = [start(harness, "lasts.py", name=name, resources=gpus(1)) for name in ("one", "two", "three")]
        for run in runs:
            wait_for_state(harness, run, "running")
        mine = {run.name: run.status().workers[0].gpus for run in runs}
        assert len(set(mine.values())) == 3
        holders = {gpu.id: gpu.holder for node in engine.cluster().nodes for gpu in node.gpus}
        assert sorted(map(str, holders.values())) == sorted(mine)
        if harness.names_devices:
            assert {name: (id_,) for id_, name in holders.items()} == mine
        for run in runs:
            run.stop()
            run.wait(PATIENCE)

        def holders_left() -> set[str | None]:
            return {gpu.holder for node in engine.cluster().nodes for gpu in node.gpus} - {None}

        wait_until(lambda: not holders_left(), "the devices to be free")

    def test_what_another_run_took_meanwhile(self, harness: Harness) -> None:
        harness.provide_gpus(1)
        engine = harness.engine
        jobs = [harness.job("lasts.py", name=name, resources=gpus(1)) for name in ("quick", "slow")]
        plans = [plan_of(job, engine) for job in jobs]  # both were told that the GPU is free
        quick, slow = [engine.record(job, None, plan) for job, plan in zip(jobs, plans, strict=True)]
        engine.start(quick, plans[0])
        with pytest.raises(Taken):
            engine.start(slow, plans[1])
        assert engine.read(slow).plan is None
        outcome = admit(slow, engine, plans[1])
        assert isinstance(outcome, Queued)
        assert "quick" in outcome.reason
        assert Run(slow, engine).status().state == "queued"

    def test_a_detached_run_that_lost_the_race_for_its_place_is_not_left_waiting(
        self, harness: Harness, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Another run takes the GPU between the look and the start, and no process stays to retry."""
        harness.provide_gpus(1)
        engine = harness.engine
        start_run, quick = engine.start, []

        def start_late(ref: RunRef, plan: Plan) -> None:
            monkeypatch.setattr(engine, "start", start_run)
            quick.append(start(harness, "lasts.py", name="quick", resources=gpus(1)))
            start_run(ref, plan)

        monkeypatch.setattr(engine, "start", start_late)
        slow = submit(
            Prepared(job=harness.job("talks.py", name="slow", resources=gpus(1))), engine, stays=False
        )
        assert slow.status().state in ("queued", "starting")
        quick[0].stop()
        wait_until(lambda: slow.status().state == "succeeded", "the run that nobody waits for")
