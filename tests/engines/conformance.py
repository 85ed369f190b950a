"""What every engine must do, whatever it runs on: the engine protocol's words, made exact.

An engine is tested by a subclass with a fixture `harness` (see `test_conformance.py`), which knows how to make jobs that do one of a
few things; `programs.py` has them as scripts. Everything goes the way a user's run goes: through `submit` and `Run`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest

from echelon.admission import Queued, admit, find_plan
from echelon.engines.base import Engine, Taken
from echelon.errors import (
    EchelonError,
    InvalidJob,
    NoRoomNow,
    RunExists,
    RunTimedOut,
    StateTrouble,
    UnknownRun,
    Unplaceable,
)
from echelon.handle import Run
from echelon.model.event import Event, RankEnd
from echelon.model.job import Job, Role, Secret
from echelon.model.log import LogLine
from echelon.model.plan import Plan
from echelon.model.resources import Amount, Resources
from echelon.model.run import RunRef, opening_status, parse_uri
from echelon.model.status import FINAL, Status, apply
from echelon.submit import Prepared, submit
from tests.engines.programs import LINES

PATIENCE = 60.0  # seconds; only a broken engine takes so long


class Harness(Protocol):
    """An engine under test, and what the suite must know of it."""

    engine: Engine

    def job(self, program: str, *, name: str = "the-run", **more: Any) -> Job:
        """A job that runs one of the programs."""
        ...

    def provide_gpus(self, count: int) -> None:
        """From now on the engine has that many GPUs, all of them free."""
        ...

    def read_result(self, results: str, path: str) -> bytes:
        """A result file where it lies, whether the run is still known or not."""
        ...


def start(harness: Harness, program: str, **more: Any) -> Run:
    return submit(Prepared(job=harness.job(program, **more)), harness.engine)


def ref_of(run: Run) -> RunRef:
    return parse_uri(str(run), "no default is needed")


def statuses(run: Run, events: Iterator[Event], engine: Engine) -> Iterator[Status]:
    status = opening_status(engine.read(ref_of(run)))
    for event in events:
        status = apply(status, event)
        yield status


def wait_for_state(harness: Harness, run: Run, state: str) -> Status:
    seen = []
    events = harness.engine.events(ref_of(run), follow=True, timeout=PATIENCE)
    for status in statuses(run, events, harness.engine):
        if status.state == state:
            return status
        seen.append(status.state)
    pytest.fail(f"{run} was never {state}, but {seen}")


def kinds(engine: Engine, ref: RunRef) -> list[str]:
    return [event.kind for event in engine.events(ref)]


def by_rank(lines: Iterator[LogLine]) -> dict[tuple[int | None, str], list[LogLine]]:
    """Ranks write at the same time: only the order of each stream of each is certain."""
    streams: dict[tuple[int | None, str], list[LogLine]] = {}
    for line in lines:
        streams.setdefault((line.rank, line.stream), []).append(line)
    return streams


def plan_of(job: Job, engine: Engine) -> Plan:
    plan = find_plan(job, engine)
    assert isinstance(plan, Plan)
    return plan


def gpus(count: int) -> Resources:
    return Resources(gpus=count)


class EngineConformance:
    """The suite. A subclass gives `harness`."""

    # Recording

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

    def test_a_missing_secret_is_told_before_the_run_exists(self, harness: Harness) -> None:
        engine = harness.engine
        job = harness.job("talks.py", secrets=(Secret(name="ECHELON_NO_SUCH_SECRET"),))
        with pytest.raises(InvalidJob, match="ECHELON_NO_SUCH_SECRET"):
            submit(Prepared(job=job), engine)
        assert list(engine.runs()) == []

    def test_a_preview_does_nothing(self, harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("ECHELON_TEST_SECRET", "hunter2")
        engine = harness.engine
        job = harness.job("talks.py", secrets=(Secret(name="ECHELON_TEST_SECRET"),))
        text = engine.preview(job, plan_of(job, engine))
        assert "talks.py" in text
        assert "hunter2" not in text
        assert list(engine.runs()) == []

    # The life of a run

    def test_a_run_that_ends_well(self, harness: Harness) -> None:
        engine = harness.engine
        run = start(harness, "talks.py", workers=2)
        followed = list(engine.events(ref_of(run), follow=True, timeout=PATIENCE))
        states = [status.state for status in statuses(run, iter(followed), engine)]
        assert list(dict.fromkeys(states)) == ["recorded", "starting", "running", "succeeded"]
        assert states == sorted(states, key=list(dict.fromkeys(states)).index), "no way back"
        status = run.wait(PATIENCE)
        assert (status.state, status.exit_code, status.root_cause, status.restarts) == ("succeeded", 0, None, 0)
        assert status.started is not None
        assert status.ended is not None
        assert status.created <= status.started <= status.ended
        assert [(worker.worker, worker.ranks, worker.state) for worker in status.workers] == [
            (0, (0,), "done"),
            (1, (1,), "done"),
        ]
        assert status == run.status()

    def test_the_end_is_told_once_and_last(self, harness: Harness) -> None:
        engine = harness.engine
        run = start(harness, "talks.py", workers=2)
        followed = list(engine.events(ref_of(run), follow=True, timeout=PATIENCE))
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
                assert run.status().state == "running"
                run.stop()
        assert sorted(heard, key=str) == [(0, "ready"), (1, "ready")]

    def test_the_output_of_each_rank_is_among_the_results(self, harness: Harness, tmp_path: Path) -> None:
        run = start(harness, "talks.py", workers=2)
        run.wait(PATIENCE)
        for rank in range(2):
            text = run.get(f"logs/rank-{rank}.log", to=tmp_path / "fetched").read_text()
            assert text.splitlines() == [line.text for line in run.logs(rank=rank)]

    # Failure

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

    def test_each_worker_of_a_failed_run_says_how_it_ended(self, harness: Harness) -> None:
        status = start(harness, "fails.py", workers=3).wait(PATIENCE)
        assert [worker.state for worker in status.workers] == ["stopped", "failed", "stopped"]
        assert [worker.reason is not None for worker in status.workers] == [False, True, False]

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

    def test_a_program_that_does_not_exist(self, harness: Harness) -> None:
        job = dataclasses.replace(harness.job("talks.py"), script=None, command=("./no-such-program",))
        status = submit(Prepared(job=job), harness.engine).wait(PATIENCE)
        assert (status.state, status.exit_code) == ("failed", 127)
        assert status.root_cause is not None
        assert "no-such-program" in status.root_cause.summary

    # Restarts

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
        assert run.status() == status

    def test_stopping_what_has_ended_well(self, harness: Harness) -> None:
        run = start(harness, "talks.py")
        status = run.wait(PATIENCE)
        run.stop()
        run.stop(now=True)
        assert run.status() == status

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
            engine.record(job, None)

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

    def test_removing_frees_the_name_and_leaves_the_results(self, harness: Harness) -> None:
        run = start(harness, "writes.py")
        run.wait(PATIENCE)
        results = harness.engine.read(ref_of(run)).results
        run.remove()
        assert harness.read_result(results, "notes.txt") == b"all is well"
        with pytest.raises(StateTrouble, match="not empty") as caught:
            start(harness, "talks.py")
        assert "--resume" in caught.value.hint
        assert list(harness.engine.runs()) == []
        again = start(harness, "talks.py", resume=True)
        assert again.wait(PATIENCE).state == "succeeded"
        assert harness.read_result(results, "notes.txt") == b"all is well"
        assert "the end" in [line.text for line in again.logs()]

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

    # Results

    def test_fetching_results(self, harness: Harness, tmp_path: Path) -> None:
        run = start(harness, "writes.py")
        run.wait(PATIENCE)
        to = tmp_path / "fetched"
        weights = bytes(range(256))
        assert run.get("notes.txt", to=to) == to / "notes.txt"
        assert (to / "notes.txt").read_text() == "all is well"
        assert run.get("model/weights.bin", to=to) == to / "weights.bin"
        assert (to / "weights.bin").read_bytes() == weights
        assert run.get("model", to=to) == to / "model"
        assert (to / "model" / "weights.bin").read_bytes() == weights
        everything = tmp_path / "everything"
        assert run.get(".", to=everything) == everything
        assert (everything / "model" / "weights.bin").read_bytes() == weights
        assert (everything / "notes.txt").read_text() == "all is well"
        (to / "notes.txt").write_text("older")
        run.get("notes.txt", to=to)
        assert (to / "notes.txt").read_text() == "all is well"

    def test_results_without_a_target_come_to_where_they_belong(self, harness: Harness) -> None:
        run = start(harness, "writes.py")
        run.wait(PATIENCE)
        assert run.get("model/weights.bin").read_bytes() == bytes(range(256))
        assert (run.get() / "notes.txt").read_text() == "all is well"

    @pytest.mark.parametrize("path", ["../secret.txt", "model/../../secret.txt", "/etc/hostname", ".."])
    def test_nothing_outside_the_results_is_fetched(self, harness: Harness, tmp_path: Path, path: str) -> None:
        engine = harness.engine
        ref = engine.record(harness.job("writes.py"), None)
        outside = Path(engine.read(ref).results).absolute().parent
        outside.mkdir(parents=True, exist_ok=True)
        (outside / "secret.txt").write_text("not yours")
        with pytest.raises(InvalidJob, match="outside the results"):
            engine.fetch(ref, path, tmp_path / "fetched")
        assert not (tmp_path / "fetched").exists()

    def test_a_result_that_is_not_there(self, harness: Harness, tmp_path: Path) -> None:
        run = start(harness, "writes.py")
        run.wait(PATIENCE)
        with pytest.raises(InvalidJob, match="no-such-file"):
            run.get("no-such-file", to=tmp_path / "fetched")
        assert not (tmp_path / "fetched").exists()

    # All runs

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

    # The line

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
            submit(Prepared(job=harness.job("talks.py", name="third", resources=gpus(1))), engine, no_wait=True)
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
        third = start(harness, "talks.py", name="third", resources=gpus(1))  # it would fit, but is not the first
        assert "behind second" in (third.status().reason or "")
        assert harness.engine.cluster().waiting == ("second", "third")
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
        every_cpu = Amount(request=sum(node.cpus for node in harness.engine.cluster(gpus=False).nodes))
        first = start(harness, "lasts.py", name="first", resources=Resources(cpus=every_cpu))
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
        assert {name: (id_,) for id_, name in holders.items()} == mine
        for run in runs:
            run.stop()
            run.wait(PATIENCE)
        assert {gpu.holder for node in engine.cluster().nodes for gpu in node.gpus} == {None}

    def test_what_another_run_took_meanwhile(self, harness: Harness) -> None:
        harness.provide_gpus(1)
        engine = harness.engine
        jobs = [harness.job("lasts.py", name=name, resources=gpus(1)) for name in ("quick", "slow")]
        plans = [plan_of(job, engine) for job in jobs]  # both were told that the GPU is free
        quick, slow = [engine.record(job, None) for job in jobs]
        engine.start(quick, plans[0])
        with pytest.raises(Taken):
            engine.start(slow, plans[1])
        assert engine.read(slow).plan is None
        outcome = admit(slow, engine, plans[1])
        assert isinstance(outcome, Queued)
        assert "quick" in outcome.reason
        assert Run(slow, engine).status().state == "queued"

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
