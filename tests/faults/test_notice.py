"""SIGTERM to agents of this machine: the run goes on, and no restart is counted."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from tests.conftest import wait_until
from tests.faults.test_kill import ended

import echelon

AGAIN = "test $ECHELON_RESTART = 2 || { trap 'exit 0' TERM; echo up; while :; do sleep 0.05; done; }"


@pytest.mark.slow
@pytest.mark.parametrize(("workers", "victim"), [(1, 0), (2, 0), (2, 1)])
def test_an_agent_that_is_told_to_leave_twice_costs_no_restart(home: Path, workers: int, victim: int) -> None:
    run = echelon.run(command=["sh", "-c", AGAIN], workers=workers, restarts=1)
    for restart in range(2):
        wait_until(
            lambda restart=restart: (run.status().state, run.status().restarts) == ("running", restart),  # type: ignore[misc]
            "all ranks to run",
        )
        wait_until(
            lambda restart=restart: sum(line.text == "up" for line in run.logs()) == (restart + 1) * workers,  # type: ignore[misc]
            "all ranks to be up",
        )
        pid = run.status().workers[victim].pid
        assert pid is not None
        os.kill(pid, signal.SIGTERM)
    status = ended(run, home)
    assert (status.state, status.restarts, status.restarts_spared) == ("succeeded", 2, 2), status.root_cause
    notices = [event.worker for event in run.events() if event.kind == "notice"]
    assert notices == [victim, victim]


@pytest.mark.slow
def test_without_restarts_the_run_ends_and_has_not_succeeded(home: Path) -> None:
    run = echelon.run(command=["sh", "-c", AGAIN], workers=2)
    wait_until(lambda: [line.text for line in run.logs()] == ["up", "up"], "all ranks to be up")
    pid = run.status().workers[1].pid
    assert pid is not None
    os.kill(pid, signal.SIGTERM)
    status = ended(run, home)
    assert (status.state, status.exit_code) == ("failed", 117)
    assert status.root_cause is not None
    assert status.root_cause.kind == "worker-left"
    assert {worker.state for worker in status.workers} <= {"stopped", "lost"}
