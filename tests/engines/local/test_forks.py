"""Supervisors that are forks of one process."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from tests.conftest import PATIENCE, wait_until

from echelon.agent.ranks.processes import session_of, stat_of
from echelon.engines.local import forks
from echelon.engines.local.engine import LocalEngine
from echelon.engines.local.folder import rundir
from echelon.engines.local.processes import marked_processes
from echelon.handle import Run
from echelon.model.job import Job
from echelon.preparation.prepare import Prepared
from echelon.submit import submit

LASTS = ("sh", "-c", "until test -e go; do sleep 0.02; done; echo $NAME")


def start(name: str) -> Run:
    job = Job(name=name, command=LASTS, framework="plain", env={"NAME": name})
    return submit(Prepared(job=job), LocalEngine())


def supervisor_of(run: Run) -> int:
    folder = LocalEngine().store.dir(run.name)
    wait_until(lambda: rundir.read_json(folder.supervisor) is not None, "the supervisor")
    return int(str((rundir.read_json(folder.supervisor) or {})["pid"]))


def parent_of(pid: int) -> int:
    return int(stat_of(pid)[1])


def end(*runs: Run) -> None:
    Path("go").touch()
    for run in runs:
        assert run.wait(PATIENCE, show=False).state == "succeeded"
        assert [line.text for line in run.logs()] == [run.name]


@pytest.mark.slow
@pytest.mark.core
def test_each_is_as_if_it_had_been_started_by_itself(home: Path) -> None:
    with forks.forking():
        runs = [start("one"), start("two")]
        supervisors = [supervisor_of(run) for run in runs]
        (parent,) = {parent_of(pid) for pid in supervisors}
        assert parent != os.getpid()
        assert [session_of(pid) for pid in supervisors] == supervisors
        for run, pid, other in zip(runs, supervisors, reversed(supervisors), strict=True):
            found = marked_processes(LocalEngine().store.dir(run.name).path)
            assert pid in found
            assert not {parent, other} & set(found)
        end(*runs)
    os.waitpid(parent, 0)  # it ends by itself
    alone = start("three")
    assert parent_of(supervisor_of(alone)) == os.getpid()
    end(alone)


@pytest.mark.slow
def test_one_that_is_killed_is_replaced_and_its_runs_go_on(home: Path) -> None:
    with forks.forking():
        first = start("one")
        killed = parent_of(supervisor_of(first))
        os.kill(killed, signal.SIGKILL)
        os.waitpid(killed, 0)
        second = start("two")
        other = parent_of(supervisor_of(second))
        assert other != killed
        end(first, second)
    os.waitpid(other, 0)


@pytest.mark.slow
def test_one_that_cannot_be_started_is_an_error_of_the_run(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from echelon.errors import StateTrouble

    def refuse(*_: object, **__: object) -> int:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    with forks.forking(), monkeypatch.context() as patched:
        patched.setattr(os, "posix_spawn", refuse)
        with pytest.raises(StateTrouble, match="temporarily unavailable"):
            start("one")
    assert LocalEngine().names() == []
