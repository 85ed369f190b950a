"""Agents that are started together are as much by themselves as those that are started one by one."""

from __future__ import annotations

import contextlib
import errno
import importlib.machinery
import itertools
import json
import os
import sys
from pathlib import Path

import pytest
from tests.conftest import PATIENCE, wait_until

import echelon
from echelon.agent import several
from echelon.engines.local.agents import Order, start_together
from echelon.engines.local.folder.rundir import RunDir
from echelon.engines.local.folder.store import RunStore

SLEEPS = "import time\nprint('up', flush=True)\ntime.sleep(600)"


def started(run: echelon.Run) -> dict[int, int]:
    """The agents of a run whose ranks are about to start, by worker."""
    pids: dict[int, int] = {}
    for event in run.events():
        if event.kind == "worker-started" and event.worker is not None and event.pid is not None:
            pids[event.worker] = event.pid
        if event.kind == "worker-running":
            return pids
    pytest.fail(f"no worker runs: {run.status()}")


def descriptors(pid: int) -> set[str]:
    """What a process has open beside its standard streams."""
    found = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            if int(entry.name) > 2:
                found.add(str(entry.readlink()))
    return found


def folder_of(run: echelon.Run, home: Path) -> RunDir:
    return RunStore(home).dir(run.name)


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_each_agent_has_what_is_its_own_and_nothing_else(home: Path) -> None:
    Path("script.py").write_text(SLEEPS)
    run = echelon.run("script.py", workers=3)
    try:
        pids = started(run)
        supervisor = json.loads(folder_of(run, home).supervisor.read_bytes())["pid"]
        assert sorted(pids) == [0, 1, 2]
        assert {parent_of(pid) for pid in pids.values()} == {supervisor}
        assert [os.getsid(pid) for pid in pids.values()] == list(pids.values())
        sockets = [{each for each in descriptors(pid) if each.startswith("socket:")} for pid in pids.values()]
        assert all(sockets)
        for mine, another in itertools.combinations(sockets, 2):
            assert not mine & another
        lock = str(folder_of(run, home).supervisor_lock)
        assert not any(lock in descriptors(pid) for pid in pids.values())
    finally:
        run.stop(now=True)
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids.values()), "all agents to end")


@pytest.mark.parametrize(
    "fault",
    [
        "lambda *_: []",  # no more processes could be made
        "lambda task, orders, real=agents.start_together: real(task, orders[:1])",  # ... than one
    ],
)
def test_agents_that_did_not_start_together_start_one_by_one(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    (tmp_path / "faulty").mkdir()
    (tmp_path / "faulty" / "sitecustomize.py").write_text(
        f"from echelon.engines.local import agents\nagents.start_together = {fault}\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "faulty"))
    Path("script.py").write_text("import os; print('rank', os.environ['ECHELON_RANK'])")
    run = echelon.run("script.py", workers=3)
    status = run.wait(2 * PATIENCE)
    assert status.state == "succeeded", (status, folder_of(run, home).supervisor_log.read_text())
    assert sorted(line.text for line in run.logs()) == ["rank 0", "rank 1", "rank 2"]


@pytest.mark.parametrize("most", [0, 1])
def test_when_no_more_processes_can_be_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    made: list[int] = []

    def fork() -> int:
        if len(made) >= most:
            raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
        made.append(1234)
        return made[-1]

    monkeypatch.setattr(os, "fork", fork)
    orders = [
        Order(options={}, descriptors=[], log=tmp_path / f"log-{number}", environment={}) for number in (0, 1)
    ]
    assert [agent.pid for agent in start_together(tmp_path / "task.json", orders)] == made
    assert len(made) == most


def test_what_an_agent_imports_is_pythons_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if it had been started with `-I -S`: a user's path may hold a module named `json`."""
    monkeypatch.setattr(sys, "path", ["", "/home/user/project", *sys.path, "/opt/modules"])
    several._isolate()
    assert not {"", "/home/user/project", "/opt/modules"}.intersection(sys.path)
    assert not any("site-packages" in path for path in sys.path)
    for name in ("json", "zlib", "echelon"):
        assert importlib.machinery.PathFinder.find_spec(name, sys.path) is not None or (
            name in sys.builtin_module_names
        )
