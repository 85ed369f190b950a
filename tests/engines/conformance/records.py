"""That runs exist, start once, are listed and are forgotten."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.engines.conformance.harness import (
    PATIENCE,
    Harness,
    gpus,
    kinds,
    plan_of,
    ref_of,
    start,
    wait_for_state,
)

from echelon.errors import (
    EchelonError,
    InvalidJob,
    RunExists,
    StateTrouble,
    UnknownRun,
    Unplaceable,
)
from echelon.handle import Run
from echelon.model.job import Secret
from echelon.model.run import RunRef, parse_uri
from echelon.submit import Prepared, submit


class RecordConformance:
    """That runs exist, start once, are listed and are forgotten."""

    # Recording

    @pytest.mark.core
    def test_a_recorded_run_exists_and_nothing_runs(self, harness: Harness) -> None:
        engine, job = harness.engine, harness.job("talks.py", workers=2, args=("--some", "argument"))
        ref = engine.record(job, None)
        assert ref.name == job.name
        record = engine.read(ref)
        assert (record.ref, record.job, record.plan) == (ref, job, None)
        status = Run(ref, engine).status()
        assert (status.state, status.name, status.uri) == ("recorded", job.name, str(ref))
        assert status.exit_code is None
        assert status.ended is None
        assert kinds(engine, ref) == ["recorded"]
        assert list(engine.logs(ref)) == []
        (summary,) = engine.runs()
        assert (summary.name, summary.uri, summary.state) == (job.name, str(ref), "recorded")
        assert summary.workers == 2
        assert "talks.py --some argument" in summary.command
        assert summary.created == record.created

    def test_an_identical_submission_that_never_started_is_taken_up(self, harness: Harness) -> None:
        engine, job = harness.engine, harness.job("talks.py")
        ref = engine.record(job, None)
        assert engine.record(job, None) == ref
        assert len(engine.runs()) == 1
        with pytest.raises(RunExists):
            engine.record(dataclasses.replace(job, args=("--other",)), None)
        run = submit(Prepared(job=job), engine)
        assert run.wait(PATIENCE).state == "succeeded"
        assert kinds(engine, ref).count("recorded") == 1

    def test_a_run_that_goes_on_is_not_reopened(self, harness: Harness) -> None:
        engine, job = harness.engine, harness.job("lasts.py")
        run = submit(Prepared(job=job), engine)
        wait_for_state(harness, run, "running")
        with pytest.raises(StateTrouble):
            engine.reopen(ref_of(run), dataclasses.replace(job, resume=True))
        with pytest.raises(StateTrouble, match="it has not ended"):
            run.resume()
        assert run.status().state == "running"
        run.stop(now=True)

    def test_a_run_that_never_started_is_resumed_as_it_is(self, harness: Harness) -> None:
        engine, job = harness.engine, harness.job("talks.py")
        ref = engine.record(job, None)
        engine.reopen(ref, job)
        assert kinds(engine, ref) == ["recorded"]
        assert engine.read(ref).job == job
        assert Run(ref, engine).resume().wait(PATIENCE).state == "succeeded"
        assert kinds(engine, ref).count("recorded") == 1

    @pytest.mark.core
    def test_the_name_of_a_run_is_taken_until_it_is_removed(self, harness: Harness) -> None:
        engine, job = harness.engine, harness.job("lasts.py")
        run = submit(Prepared(job=job), engine)
        wait_for_state(harness, run, "running")
        other = harness.job("talks.py")
        for again in (job, other):
            with pytest.raises(RunExists, match=job.name) as caught:
                submit(Prepared(job=again), engine)
            assert f"rm {job.name}" in caught.value.hint
        run.stop()
        run.wait(PATIENCE)
        for again in (job, other):
            with pytest.raises(RunExists):
                engine.record(again, None)
        assert len(engine.runs()) == 1

    def test_what_never_fits_is_refused_before_it_exists(self, harness: Harness) -> None:
        engine, job = harness.engine, harness.job("talks.py", resources=gpus(10_000))
        with pytest.raises(Unplaceable, match="10000"):
            submit(Prepared(job=job), engine)
        assert list(engine.runs()) == []

    @pytest.mark.core
    def test_a_missing_secret_is_told_before_the_run_exists(self, harness: Harness) -> None:
        engine = harness.engine
        job = harness.job("talks.py", secrets=(Secret(name="ECHELON_NO_SUCH_SECRET"),))
        with pytest.raises(InvalidJob, match="ECHELON_NO_SUCH_SECRET"):
            submit(Prepared(job=job), engine)
        assert list(engine.runs()) == []

    @pytest.mark.core
    def test_a_preview_does_nothing(self, harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("ECHELON_TEST_SECRET", "hunter2")
        engine = harness.engine
        job = harness.job("talks.py", secrets=(Secret(name="ECHELON_TEST_SECRET"),))
        text = engine.preview(job, plan_of(job, engine))
        assert "talks.py" in text
        assert "hunter2" not in text
        assert list(engine.runs()) == []

    # Starting

    def test_starting_again_does_nothing(self, harness: Harness) -> None:
        engine, job = harness.engine, harness.job("talks.py")
        plan = plan_of(job, engine)
        ref = engine.record(job, None)
        for _ in range(3):
            engine.start(ref, plan)
        run = Run(ref, engine)
        assert run.wait(PATIENCE).state == "succeeded"
        engine.start(ref, plan)
        assert kinds(engine, ref).count("admitted") == 1
        assert kinds(engine, ref)[-1] == "finished"
        assert [line.text for line in run.logs()].count("the end") == 1

    # BUG: LocalEngine.queue appends an event after "finished".
    def test_what_was_stopped_does_not_start(self, harness: Harness) -> None:
        engine, job = harness.engine, harness.job("talks.py")
        plan = plan_of(job, engine)
        ref = engine.record(job, None)
        engine.stop(ref)
        events = list(engine.events(ref))
        engine.start(ref, plan)
        engine.queue(ref, "no reason")
        assert Run(ref, engine).wait(PATIENCE).state == "stopped"
        assert list(engine.events(ref)) == events
        assert list(engine.logs(ref)) == []

    # All runs

    @pytest.mark.core
    def test_every_run_the_newest_first(self, harness: Harness) -> None:
        engine = harness.engine
        assert list(engine.runs()) == []
        start(harness, "talks.py", name="zebra").wait(PATIENCE)
        start(harness, "fails.py", name="ant", workers=2).wait(PATIENCE)
        lasting = start(harness, "lasts.py", name="mole", workers=2, procs=2)
        wait_for_state(harness, lasting, "running")
        engine.record(harness.job("talks.py", name="bee"), None)
        summaries = engine.runs()
        assert [(summary.name, summary.state) for summary in summaries] == [
            ("bee", "recorded"),
            ("mole", "running"),
            ("ant", "failed"),
            ("zebra", "succeeded"),
        ]
        assert [summary.workers for summary in summaries] == [1, 2, 2, 1]
        assert [summary.ended is not None for summary in summaries] == [False, False, True, True]
        assert "rank 1" in (summaries[2].reason or "")
        for summary in summaries:
            status = Run(parse_uri(summary.uri, ""), engine).status()
            assert (status.created, status.ended) == (summary.created, summary.ended)

    # Removing

    def test_only_what_has_ended_can_be_removed(self, harness: Harness) -> None:
        engine = harness.engine
        run = start(harness, "lasts.py")
        wait_for_state(harness, run, "running")
        with pytest.raises(StateTrouble, match="has not ended") as caught:
            run.remove()
        assert f"stop {run.name}" in caught.value.hint
        assert run.status().state == "running"
        run.stop()
        run.wait(PATIENCE)
        run.remove()
        assert list(engine.runs()) == []
        with pytest.raises(UnknownRun):
            run.status()

    @pytest.mark.core
    def test_removing_frees_the_name_and_leaves_the_results(self, harness: Harness) -> None:
        run = start(harness, "writes.py")
        run.wait(PATIENCE)
        results = harness.engine.read(ref_of(run)).results
        run.remove()
        assert harness.read_result(results, "notes.txt") == b"all is well"
        with pytest.raises(StateTrouble, match="not empty") as caught:
            start(harness, "talks.py")
        assert "--reuse-results" in caught.value.hint
        assert list(harness.engine.runs()) == []
        again = start(harness, "talks.py", resume=True)
        assert again.wait(PATIENCE).state == "succeeded"
        assert harness.read_result(results, "notes.txt") == b"all is well"
        assert "the end" in [line.text for line in again.logs()]

    def test_results_belong_to_one_run_at_a_time(self, harness: Harness) -> None:
        first = start(harness, "lasts.py", name="first")
        results = harness.engine.read(ref_of(first)).results
        with pytest.raises(StateTrouble, match=r"is in use: run .*first") as caught:
            start(harness, "talks.py", name="second", results=results, resume=True)
        assert "--results" in caught.value.hint
        assert [each.name for each in harness.engine.runs()] == ["first"]
        first.stop()

    def test_a_run_that_never_started_can_be_removed(self, harness: Harness) -> None:
        engine, job = harness.engine, harness.job("talks.py")
        Run(engine.record(job, None), engine).remove()
        assert list(engine.runs()) == []
        assert submit(Prepared(job=job), engine).wait(PATIENCE).state == "succeeded"

    def test_an_unknown_run(self, harness: Harness, tmp_path: Path) -> None:
        engine = harness.engine
        engine.record(harness.job("talks.py", name="mnist-train"), None)
        plan = plan_of(harness.job("talks.py", name="mnist-trian"), engine)
        asked: dict[str, Callable[[RunRef], object]] = {
            "read": engine.read,
            "events": lambda ref: list(engine.events(ref)),
            "following": lambda ref: list(engine.events(ref, follow=True)),
            "logs": lambda ref: list(engine.logs(ref)),
            "queue": lambda ref: engine.queue(ref, "no reason"),
            "start": lambda ref: engine.start(ref, plan),
            "stop": engine.stop,
            "remove": engine.remove,
            "fetch": lambda ref: engine.fetch(ref, ".", tmp_path / "fetched"),
        }
        name = engine.runs()[0].uri.partition("://")[0]
        for what, ask in asked.items():
            with pytest.raises(UnknownRun, match="mnist-trian") as caught:
                ask(RunRef(engine=name, name="mnist-trian"))
            assert "mnist-train" in caught.value.hint, what
            with pytest.raises(UnknownRun) as caught:
                ask(RunRef(engine=name, name="zzz"))
            assert "mnist-train" not in caught.value.hint, what
            assert caught.value.hint, what
        assert [summary.name for summary in engine.runs()] == ["mnist-train"]

    def test_every_refusal_has_a_hint(self, harness: Harness, tmp_path: Path) -> None:
        engine = harness.engine
        ref = engine.record(harness.job("writes.py"), None)
        refusals: list[Callable[[], object]] = [
            lambda: engine.record(harness.job("talks.py"), None),
            lambda: engine.fetch(ref, "../x", tmp_path),
            lambda: engine.read(RunRef(engine=ref.engine, name="nobody")),
            lambda: start(harness, "talks.py", name="large", resources=gpus(10_000)),
        ]
        for refuse in refusals:
            with pytest.raises(EchelonError) as caught:
                refuse()
            assert caught.value.hint
