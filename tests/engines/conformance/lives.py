"""How runs live and end, and what they are heard to say."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from tests.conftest import wait_until
from tests.engines.conformance.harness import (
    PATIENCE,
    Harness,
    by_rank,
    check_unchanged,
    ref_of,
    start,
    statuses,
    wait_for_lines,
    wait_for_state,
)
from tests.engines.programs import LINES

from echelon.errors import (
    RunExists,
    RunTimedOut,
)
from echelon.handle import Run
from echelon.model.event import Event, RankEnd
from echelon.model.job import Role
from echelon.model.output.log import each_line, whole_lines
from echelon.model.output.metric import Metric
from echelon.model.resources import Resources
from echelon.model.status import FINAL
from echelon.submit import Prepared, submit


class LifeConformance:
    """How runs live and end, and what they are heard to say."""

    # The life of a run

    @pytest.mark.core
    def test_what_was_measured(self, harness: Harness) -> None:
        """It is in the lines, and among the events, on every engine; reading it again gives the same."""
        run = start(harness, "measures.py", workers=2)
        followed = list(run.observe(follow=True))
        kinds = [item.kind for item in followed if isinstance(item, Event)]
        assert (kinds[0], kinds[-1]) == ("recorded", "finished")
        assert followed[-1] in [item for item in followed if isinstance(item, Event)]
        measured = [item for item in followed if isinstance(item, Metric)]
        assert sorted((item.rank, item.step, item.value) for item in measured) == [
            (rank, step, 1 / step) for rank in (0, 1) for step in (1, 2, 4)
        ]
        assert {item.name for item in measured} == {"loss"}
        assert all(item.at > 0 for item in measured)
        run.wait(PATIENCE)
        columns = run.metrics("loss", rank=1)
        assert (columns["step"], columns["value"]) == ([1, 2, 4], [1.0, 0.5, 0.25])
        progress = run.status().progress
        assert progress is not None
        assert (progress.rank, progress.step, progress.metrics) == (0, 4, {"loss": 0.25})
        recent = [line for line in harness.engine.recent(ref_of(run), 1) if line.rank is not None]
        assert {(line.rank, line.worker) for line in recent} == {(1, 1)}

    @pytest.mark.core
    def test_a_run_that_ends_well(self, harness: Harness) -> None:
        engine = harness.engine
        run = start(harness, "talks.py", workers=2)
        followed = list(engine.events(ref_of(run), follow=True, timeout=PATIENCE))
        states = [status.state for status in statuses(run, iter(followed), engine)]
        assert list(dict.fromkeys(states)) == ["recorded", "starting", "running", "succeeded"], followed
        assert states == sorted(states, key=list(dict.fromkeys(states)).index), "no way back"
        status = run.wait(PATIENCE)
        assert (status.state, status.exit_code, status.root_cause, status.restarts) == (
            "succeeded",
            0,
            None,
            0,
        )
        assert status.started is not None
        assert status.ended is not None
        assert status.created <= status.started <= status.ended
        assert [(worker.worker, worker.ranks, worker.state) for worker in status.workers] == [
            (0, (0,), "done"),
            (1, (1,), "done"),
        ]
        check_unchanged(run, status)

    def test_the_end_is_told_once_and_last(self, harness: Harness) -> None:
        engine = harness.engine
        run = start(harness, "talks.py", workers=2)
        followed = [
            event
            for event in engine.events(ref_of(run), follow=True, timeout=PATIENCE)
            if event.kind != "waiting"  # told while it is so, and no part of what has happened
        ]
        assert [event.kind for event in followed].count("finished") == 1
        assert followed[-1].kind == "finished"
        assert list(engine.events(ref_of(run))) == followed
        assert list(run.events()) == followed
        assert [event.at for event in followed[:1]] == [min(event.at for event in followed)]

    def test_following_ends_when_the_run_does(self, harness: Harness) -> None:
        engine = harness.engine
        run = start(harness, "lasts.py", workers=2)
        seen = []
        for event in engine.events(ref_of(run), follow=True, timeout=PATIENCE):
            seen.append(event.kind)
            if seen.count("worker-running") == 2:
                run.stop()
        assert seen[-1] == "finished"

    def test_a_time_limit_ends_the_following_not_the_run(self, harness: Harness) -> None:
        engine = harness.engine
        run = start(harness, "lasts.py")
        wait_for_state(harness, run, "running")
        assert "finished" not in [each.kind for each in engine.events(ref_of(run), follow=True, timeout=0.1)]
        with pytest.raises(RunTimedOut, match="running"):
            run.wait(timeout=0.1)
        assert run.status().state == "running"

    # Output

    @pytest.mark.core
    def test_output_is_complete_and_in_order(self, harness: Harness) -> None:
        run = start(harness, "talks.py", workers=2, procs=2)
        followed = by_rank(run.logs(follow=True))
        assert run.status().state in FINAL, "the output ends when the run does"
        assert set(followed) == {(rank, "stdout") for rank in range(4)}
        for (rank, _), lines in followed.items():
            expected = [f"rank {rank} line {number}" for number in range(LINES)]
            assert [line.text for line in lines] == [*expected, "the end"]
            assert {line.worker for line in lines} == {rank // 2 if rank is not None else None}
            assert [line.sequence for line in lines] == sorted({line.sequence for line in lines})
        assert by_rank(run.logs()) == followed
        assert by_rank(run.logs(follow=True)) == followed
        assert by_rank(whole_lines(each_line(run.raw_logs()))) == followed

    @pytest.mark.core
    def test_output_of_some_ranks(self, harness: Harness) -> None:
        run = start(harness, "talks.py", workers=3)
        run.wait(PATIENCE)
        ref = ref_of(run)
        everything = by_rank(harness.engine.logs(ref))
        some = by_rank(harness.engine.logs(ref, ranks=frozenset({0, 2})))
        assert some == {key: lines for key, lines in everything.items() if key[0] in (0, 2)}
        assert by_rank(harness.engine.logs(ref, ranks=frozenset({1}), follow=True)) == {
            (1, "stdout"): everything[1, "stdout"]
        }
        assert list(harness.engine.logs(ref, ranks=frozenset({3}))) == []
        assert by_rank(run.logs(rank=1)) == {(1, "stdout"): everything[1, "stdout"]}
        assert [line.text for line in run.logs(rank=2, tail=2)] == [f"rank 2 line {LINES - 1}", "the end"]

    def test_output_comes_while_the_run_goes_on(self, harness: Harness) -> None:
        run = start(harness, "lasts.py", workers=2)
        heard = []
        for line in run.logs(follow=True):
            heard.append((line.rank, line.text))
            if len(heard) == 2:
                # Their output may be heard before the word that all of them run.
                wait_until(lambda: run.status().state == "running", "the run to be known to run")
                run.stop()
        assert sorted(heard, key=str) == [(0, "ready"), (1, "ready")]

    def test_the_output_of_each_rank_is_among_the_results(self, harness: Harness, tmp_path: Path) -> None:
        run = start(harness, "talks.py", workers=2)
        run.wait(PATIENCE)
        for rank in range(2):
            text = run.get(f"logs/rank-{rank}.log", to=tmp_path / "fetched").read_text()
            assert text.splitlines() == [line.text for line in run.logs(rank=rank)]

    # Failure

    @pytest.mark.core
    def test_the_first_failure_is_the_cause(self, harness: Harness) -> None:
        run = start(harness, "fails.py", workers=3)
        status = run.wait(PATIENCE)
        assert (status.state, status.exit_code) == ("failed", 3)
        cause = status.root_cause
        assert cause is not None
        assert (cause.rank, cause.worker, cause.exit_code, cause.signal) == (1, 1, 3, None)
        assert cause.error == "ValueError: bad luck"
        assert cause.tail[0] == "about to fail"
        assert cause.tail[-1] == "ValueError: bad luck"
        assert "rank 1" in cause.summary
        assert cause.summary == status.reason
        assert cause.others == ()

    # BUG: agents other than the leader leave with code 0 when the run is over, and the fold takes their
    # worker-ended for "done", even of a worker whose rank failed or was stopped.
    def test_each_worker_of_a_failed_run_says_how_it_ended(self, harness: Harness) -> None:
        status = start(harness, "fails.py", workers=3).wait(PATIENCE)
        assert [worker.state for worker in status.workers] == ["stopped", "failed", "stopped"]
        assert [worker.reason is not None for worker in status.workers] == [False, True, False]

    @pytest.mark.core
    def test_a_rank_killed_by_a_signal(self, harness: Harness) -> None:
        run = start(harness, "is-killed.py")
        status = run.wait(PATIENCE)
        cause = status.root_cause
        assert cause is not None
        assert (status.exit_code, cause.exit_code, cause.signal) == (137, 137, "SIGKILL")
        assert "killed by SIGKILL" in cause.summary
        assert cause.tail == ("so far",)

    def test_who_died_of_it_is_not_the_cause(self, harness: Harness) -> None:
        run = start(harness, "falls-apart.py", procs=3)
        cause = run.wait(PATIENCE).root_cause
        assert cause is not None
        assert (cause.rank, cause.error) == (1, "ValueError: bad luck")
        error = "ConnectionResetError: [Errno 104] Connection reset by peer"
        assert cause.others == (RankEnd(rank=2, worker=0, exit_code=1, error=error, consequence=True),)

    @pytest.mark.core
    def test_a_program_that_does_not_exist(self, harness: Harness) -> None:
        job = dataclasses.replace(harness.job("talks.py"), script=None, command=("./no-such-program",))
        status = submit(Prepared(job=job), harness.engine).wait(PATIENCE)
        assert (status.state, status.exit_code) == ("failed", 127)
        assert status.root_cause is not None
        assert "no-such-program" in status.root_cause.summary

    # Restarts

    @pytest.mark.core
    def test_a_restart_after_a_failure(self, harness: Harness) -> None:
        run = start(harness, "recovers.py", workers=2, restarts=2)
        status = run.wait(PATIENCE)
        assert (status.state, status.exit_code, status.root_cause) == ("succeeded", 0, None)
        assert (status.restarts, status.restarts_allowed) == (1, 2)
        assert [worker.state for worker in status.workers] == ["done", "done"]
        restarts = [event for event in run.events() if event.kind == "restarting"]
        assert [event.restart for event in restarts] == [1]
        assert restarts[0].cause is not None
        assert (restarts[0].cause.rank, restarts[0].cause.error) == (0, "RuntimeError: first try")
        assert "restart 1" in [line.text for line in run.logs(rank=0)]
        assert [line.text for line in run.logs(rank=1)] == ["restart 1"]

    def test_no_restart_is_left(self, harness: Harness) -> None:
        run = start(harness, "keeps-failing.py", restarts=2)
        status = run.wait(PATIENCE)
        assert (status.state, status.exit_code, status.restarts) == ("failed", 1, 2)
        assert status.root_cause is not None
        assert status.root_cause.error == "try 2"
        assert [line.text for line in run.logs()] == ["try 0", "try 1", "try 2"]

    def test_a_time_limit_of_the_job(self, harness: Harness) -> None:
        status = start(harness, "lasts.py", workers=2, timeout=0.5, restarts=1).wait(PATIENCE)
        assert (status.state, status.exit_code, status.restarts) == ("timed-out", RunTimedOut.exit_code, 0)
        assert "0.5 s" in (status.reason or "")

    @pytest.mark.core
    def test_who_serves_ends_with_those_it_serves(self, harness: Harness) -> None:
        servers = (Role(name="ps", workers=1, resources=Resources()),)
        status = start(harness, "serves.py", workers=2, roles=servers).wait(PATIENCE)
        assert (status.state, status.exit_code) == ("succeeded", 0)
        assert [(worker.role, worker.state) for worker in status.workers] == [
            ("worker", "done"),
            ("worker", "done"),
            ("ps", "done"),
        ]

    # Stopping

    @pytest.mark.core
    def test_stopping(self, harness: Harness) -> None:
        run = start(harness, "lasts.py", workers=2)
        wait_for_state(harness, run, "running")
        run.stop()
        run.stop()
        status = run.wait(PATIENCE)
        assert (status.state, status.exit_code, status.root_cause) == ("stopped", 143, None)
        assert "stopped by" in (status.reason or "")
        assert [worker.state for worker in status.workers] == ["stopped", "stopped"]
        events = list(run.events())
        run.stop(now=True)
        assert list(run.events()) == events
        check_unchanged(run, status)

    def test_interrupting(self, harness: Harness) -> None:
        """Every rank gets SIGINT, once, and can save; a harder signal may follow before its time."""
        run = start(harness, "saves.py", workers=2)
        wait_for_state(harness, run, "running")
        wait_for_lines(run, "ready", 2)
        run.stop(signal="SIGINT", wait=False)
        wait_for_lines(run, "saved", 2)
        run.stop(signal="SIGINT", wait=False)
        run.stop()
        status = run.wait(PATIENCE)
        assert (status.state, status.exit_code, status.root_cause) == ("stopped", 143, None)
        assert sorted((line.rank, line.text) for line in run.logs()) == [
            (0, "ready"),
            (0, "saved"),
            (1, "ready"),
            (1, "saved"),
        ]

    def test_stopping_what_has_ended_well(self, harness: Harness) -> None:
        run = start(harness, "talks.py")
        status = run.wait(PATIENCE)
        run.stop()
        run.stop(now=True)
        check_unchanged(run, status)

    def test_stopping_before_anything_runs(self, harness: Harness) -> None:
        run = start(harness, "lasts.py", workers=2)
        run.stop()
        assert run.wait(PATIENCE).state == "stopped"

    def test_killing_ranks_that_refuse_to_stop(self, harness: Harness) -> None:
        run = start(harness, "refuses.py", workers=2)
        wait_for_state(harness, run, "running")
        run.stop(now=True)
        assert run.wait(PATIENCE).state == "stopped"

    @pytest.mark.slow
    def test_stopping_ranks_that_refuse_to(self, harness: Harness) -> None:
        run = start(harness, "refuses.py")
        wait_for_state(harness, run, "running")
        run.stop()
        assert run.wait(PATIENCE).state == "stopped"

    def test_a_run_that_is_only_recorded_can_be_stopped(self, harness: Harness) -> None:
        engine, job = harness.engine, harness.job("talks.py")
        ref = engine.record(job, None)
        Run(ref, engine).stop()
        assert Run(ref, engine).status().state == "stopped"
        with pytest.raises(RunExists):
            engine.record(dataclasses.replace(job, args=("--other",)), None)
        assert submit(Prepared(job=job), engine).wait(PATIENCE).state == "succeeded", "it had never started"
        assert len(engine.runs()) == 1
