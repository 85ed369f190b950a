"""What only the memory engine does: play a script. What all engines do is in the conformance suite."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import PATIENCE

from echelon.admission import admit
from echelon.engines.memory.engine import MemoryEngine
from echelon.engines.memory.script import Act, one_node
from echelon.errors import RunTimedOut
from echelon.handle import Run
from echelon.model.job import Job, Role
from echelon.model.plan import Plan
from echelon.model.resources import Resources
from echelon.model.run import RunRef
from echelon.submit import Prepared, submit


def start(engine: MemoryEngine, script: str = "train.py", *, name: str = "the-run", **more: Any) -> Run:
    return submit(Prepared(job=Job(name=name, script=script, framework="plain", **more)), engine)


def test_a_run_is_over_when_it_was_started() -> None:
    run = start(MemoryEngine({"train.py": Act(lines=("one", "two"))}), workers=2)
    assert run.status().state == "succeeded"
    assert [(line.rank, line.text) for line in run.logs()] == [(0, "one"), (0, "two"), (1, "one"), (1, "two")]


def test_each_rank_has_its_own_act_at_each_start() -> None:
    asked = []

    def program(rank: int, restart: int) -> Act:
        asked.append((rank, restart))
        return Act(error="OSError: not yet") if restart < 2 else Act()

    run = start(MemoryEngine({"train.py": program}), workers=2, procs=2, restarts=5)
    assert asked == [(rank, restart) for restart in range(3) for rank in range(4)]
    assert (run.status().state, run.status().restarts) == ("succeeded", 2)


@pytest.mark.parametrize(
    ("act", "code", "words"),
    [
        (Act(error="ValueError: no"), 1, "rank 0 exited with code 1: ValueError: no"),
        (Act(error="ValueError: no", exit_code=9), 9, "rank 0 exited with code 9: ValueError: no"),
        (Act(exit_code=7), 7, "rank 0 exited with code 7"),
        (Act(exit_code=-9), 137, "rank 0 was killed by SIGKILL: out of memory?"),
        (Act(exit_code=4, lasts=True), 4, "rank 0 exited with code 4"),
    ],
)
def test_failing(act: Act, code: int, words: str) -> None:
    status = start(MemoryEngine({"train.py": act})).status()
    assert (status.state, status.exit_code, status.reason) == ("failed", code, words)


@pytest.mark.parametrize(
    "job",
    [
        Job(name="a", script="/somewhere/train.py", framework="plain"),
        Job(name="b", script="{code}/train.py", framework="plain"),
        Job(name="c", module="package.train", framework="plain"),
        Job(name="d", command=("./train", "--fast"), framework="plain"),
    ],
)
def test_a_program_is_found_by_what_the_job_runs(job: Job) -> None:
    said = Act(lines=("found",))
    engine = MemoryEngine({"train.py": said, "package.train": said, "train": said})
    assert [line.text for line in submit(Prepared(job=job), engine).logs()] == ["found"]


def test_a_program_that_no_script_tells_of() -> None:
    status = start(MemoryEngine({"train.py": Act()}), "trian.py").status()
    assert (status.state, status.exit_code) == ("failed", 127)
    assert "trian.py" in (status.reason or "")


def test_the_line_moves_when_something_ends_if_somebody_sees_to_it() -> None:
    acts = {"train.py": Act(), "lasts.py": Act(lasts=True)}
    alone = MemoryEngine(acts, cluster=one_node(gpus=1))
    looked_after = MemoryEngine(acts, cluster=one_node(gpus=1), admit=admit)
    one = Resources(gpus=1)
    for engine, state in ((alone, "queued"), (looked_after, "succeeded")):
        first = start(engine, "lasts.py", name="first", resources=one)
        waiting = [start(engine, name=f"number-{number}", resources=one) for number in range(40)]
        assert {run.status().state for run in waiting} == {"queued"}
        first.stop()
        assert {run.status().state for run in waiting} == {state}
    assert isinstance(admit(RunRef(engine="memory", name="number-0"), alone), Plan)


def test_roles_hold_devices_too() -> None:
    engine = MemoryEngine({"train.py": Act(lasts=True)}, cluster=one_node(gpus=2), admit=admit)
    chief = Role(name="chief", workers=1, resources=Resources(gpus=2))
    first = start(engine, name="first", roles=(chief,))
    second = start(engine, name="second", roles=(chief,))
    assert engine.cluster().waiting == ("second",)
    assert {gpu.holder for gpu in engine.cluster().nodes[0].gpus} == {"first"}
    first.stop()
    assert second.status().state == "running"


def test_a_follower_waits_for_another_thread() -> None:
    engine = MemoryEngine({"train.py": Act(lines=("ready",), lasts=True)})
    run = start(engine)
    with pytest.raises(RunTimedOut):
        run.wait(timeout=0)
    seen: list[str] = []
    told = threading.Event()

    def follow() -> None:
        for event in run.events():
            seen.append(event.kind)
            told.set()

    thread = threading.Thread(target=follow)
    thread.start()
    assert told.wait(PATIENCE)
    run.stop()
    thread.join(PATIENCE)
    assert not thread.is_alive()
    assert seen[-1] == "finished"


def test_a_follower_is_let_go_when_the_run_is_removed() -> None:
    engine = MemoryEngine()
    ref = engine.record(Job(name="never-started", script="train.py", framework="plain"), None)
    events = engine.events(ref, follow=True)
    assert next(events).kind == "recorded"
    engine.remove(ref)
    assert list(events) == []


def test_results_of_all_ranks_and_restarts_come_together(tmp_path: Path) -> None:
    def program(rank: int, restart: int) -> Act:
        files = {f"{restart}/{rank}.txt": b"x", "last.txt": f"{rank} {restart}".encode()}
        return Act(lines=(f"try {restart}",), files=files, exit_code=1 if restart == 0 else 0)

    engine = MemoryEngine({"train.py": program})
    run = start(engine, workers=2, restarts=1, results="elsewhere")
    assert set(engine.results) == {"elsewhere"}
    fetched = run.get(".", to=tmp_path / "all")
    assert sorted(str(path.relative_to(fetched)) for path in fetched.rglob("*.*")) == [
        "0/0.txt", "0/1.txt", "1/0.txt", "1/1.txt", "last.txt", "logs/rank-0.log", "logs/rank-1.log",
    ]  # fmt: skip
    assert (fetched / "last.txt").read_text() == "1 1"
    assert (fetched / "logs" / "rank-1.log").read_text() == "try 0\ntry 1\n"


def test_each_thing_happens_at_a_time_of_its_own() -> None:
    engine = MemoryEngine({"train.py": Act(lines=("one", "two"))})
    run = start(engine, workers=3)
    times = [event.at for event in run.events()]
    assert times == sorted(set(times))
    assert [line.at for line in run.logs()] == sorted({line.at for line in run.logs()})
