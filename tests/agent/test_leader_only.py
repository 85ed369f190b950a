"""Real agents whose command starts once, on worker 0, with a file that names all workers."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest
from tests.agent.conftest import Agents
from tests.conftest import PATIENCE, wait_until

from echelon.agent.task import RUN_OVER
from echelon.model.output.log import LogLine, parse_line

Write = Callable[[str], str]


def describe(agents: Agents, *argv: str, **more: object) -> None:
    """Three workers; `mpirun` would be started as this is."""
    agents.describe(*argv, workers=3, procs=2)
    agents.task["groups"][0]["launch"].update(per="leader", files={"hostfile": "{hosts}"})
    agents.describe_again(**more)


def printed(agents: Agents, worker: int) -> list[bytes]:
    lines = (parse_line(raw, worker) for raw in agents.output(worker))
    return [line.text.encode() for line in lines if isinstance(line, LogLine) and line.rank is not None]


def start(
    agents: Agents, monkeypatch: pytest.MonkeyPatch, worker: int, address: str, failures: int = 0
) -> None:
    monkeypatch.setenv("ECHELON_POD_IP", address)
    agents.start(worker, failures=failures)


def running(agents: Agents, worker: int) -> list[dict[str, object]]:
    return [
        event
        for event in agents.events(worker)
        if event["kind"] == "worker-running" and event["worker"] == worker
    ]


def test_one_command_for_all_workers(
    agents: Agents, write_script: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = write_script("import sys; print(open(sys.argv[1]).read(), end='')")
    describe(agents, sys.executable, script, "{file:hostfile}")
    for worker in (2, 1, 0):
        start(agents, monkeypatch, worker, f"127.0.0.{worker + 1}")
    assert [agents.processes[worker].wait(PATIENCE) for worker in (0, 1, 2)] == [0, 0, 0]
    assert agents.verdict()["outcome"] == "succeeded"
    assert printed(agents, 0) == [b"127.0.0.1 slots=2", b"127.0.0.2 slots=2", b"127.0.0.3 slots=2"]
    assert printed(agents, 1) == printed(agents, 2) == []
    assert [list(running(agents, worker)[0]["pids"]) for worker in (0, 1, 2)] == [["0"], [], []]  # type: ignore[call-overload]


def test_workers_without_ranks_stay_until_the_run_ends_and_a_restart_writes_the_file_anew(
    agents: Agents, write_script: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = write_script(
        "import os, sys, time\n"
        "print(open(sys.argv[1]).read(), end='', flush=True)\n"
        "while os.environ['ECHELON_RESTART'] == '0' and not os.path.exists('fail'): time.sleep(0.05)\n"
        "sys.exit(os.environ['ECHELON_RESTART'] == '0')\n"
    )
    describe(agents, sys.executable, script, "{file:hostfile}", restarts=1)
    for worker in (0, 1, 2):
        start(agents, monkeypatch, worker, f"127.0.0.{worker + 1}")
    wait_until(lambda: len(printed(agents, 0)) == 3, "the first hostfile")
    assert [agents.processes[worker].poll() for worker in (1, 2)] == [None, None]
    agents.processes[2].kill()  # it has reported done: the command itself notices the loss, and fails
    agents.processes[2].wait()
    (agents.folder / "fail").touch()
    start(agents, monkeypatch, 2, "127.0.0.9", failures=1)
    assert agents.processes[0].wait(PATIENCE) == 0
    assert [agents.processes[worker].wait(PATIENCE) for worker in (1, 2)] == [0, 0]
    assert printed(agents, 0)[3:] == [b"127.0.0.1 slots=2", b"127.0.0.2 slots=2", b"127.0.0.9 slots=2"]
    assert [event["restart"] for event in running(agents, 1)] == [0, 1]
    for worker in (0, 1, 2):
        written = (agents.folder / f"files/worker-{worker}/hostfile").read_text()
        assert written.split() == [b.decode() for line in printed(agents, 0)[3:] for b in line.split()]


def test_a_file_that_cannot_be_written_fails_the_generation(agents: Agents) -> None:
    (agents.folder / "files").write_text("in the way")
    describe(agents, "true")
    for worker in (0, 1, 2):
        agents.start(worker)
    assert agents.processes[0].wait(PATIENCE) == RUN_OVER
    assert "cannot write" in agents.verdict()["cause"]["summary"]


def test_a_run_that_is_stopped_ends_workers_without_ranks_too(agents: Agents, write_script: Write) -> None:
    describe(agents, sys.executable, write_script("import time; time.sleep(600)"), timeout=1.0)
    for worker in (0, 1, 2):
        agents.start(worker)
    assert agents.processes[0].wait(PATIENCE) == RUN_OVER
    assert [agents.processes[worker].wait(PATIENCE) for worker in (1, 2)] == [0, 0]
    assert agents.verdict()["outcome"] == "timed-out"
