"""Ranks that a launcher starts are taken in by the agents: their lines, their ends and their failures."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.agent.conftest import AGENT, Agents
from tests.agent.remote.launched import describe, lines, mpi, start_all, verdict
from tests.conftest import PATIENCE, wait_until

from echelon.agent.ranks.sockets import socket_for
from echelon.agent.task import START_RANK
from echelon.model.plan import Launch

# As mpirun does: ranks of worker 0 as children, the others through the remote shell; when one fails, it ends
# all others and itself.
LAUNCHER = """
import os, shlex, signal, subprocess, sys, time
hosts = [None, None, "worker-1", "worker-2", "worker-2", "worker-2"]
running = []
for rank, host in enumerate(hosts):
    if host is None:
        running.append(subprocess.Popen(sys.argv[1:], env=dict(os.environ, PMI_RANK=str(rank))))
    else:
        line = "PMI_RANK=%d exec %s" % (rank, shlex.join(sys.argv[1:]))
        running.append(subprocess.Popen(["ssh", host, line]))
print("the launcher itself", flush=True)
while True:
    codes = [each.poll() for each in running]
    if any(codes):
        for each in running:
            each.terminate()
        sys.exit([each.wait() for each in running] and 1)
    if all(code == 0 for code in codes):
        sys.exit(0)
    time.sleep(0.01)
"""
RANK = "import os, sys, time; rank = int(os.environ['PMI_RANK'])\n"


@pytest.fixture
def launched(agents: Agents, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., None]:
    def run(script: str, **more: object) -> None:
        (tmp_path / "launcher.py").write_text(LAUNCHER)
        (tmp_path / "rank.py").write_text(RANK + script)
        argv = (sys.executable, "launcher.py", START_RANK, sys.executable, "rank.py")
        describe(agents, Launch(argv=argv, per="leader"), **more)
        start_all(agents, monkeypatch)

    return run


@pytest.fixture
def control() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:  # a short name: a socket's must be
        yield f"{folder}/control"


def test_each_rank_has_its_lines_on_its_worker(agents: Agents, launched: Callable[..., None]) -> None:
    launched(
        "print(rank, os.environ['ECHELON_RANK'], os.environ['ECHELON_WORKER'])\n"
        "print('error', rank, file=sys.stderr)\n"
    )
    assert verdict(agents)["outcome"] == "succeeded"
    workers = [0, 0, 1, 2, 2, 2]
    assert lines(agents) == [
        (None, 0, "the launcher itself"),
        *(
            (rank, worker, text)
            for rank, worker in enumerate(workers)
            for text in (f"{rank} {rank} {worker}", f"error {rank}")
        ),
    ]
    logs = agents.folder / "out/logs"
    assert (logs / "rank-4.log").read_text() == "4 4 2\nerror 4\n"
    assert (logs / "launcher.log").read_text() == "the launcher itself\n"


def test_an_mpirun_that_hangs_across_machines_is_told_of_at_the_start(
    agents: Agents, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Debian 12 has it."""
    said = "HYDRA build details:\\n    Version:                                 4.0.2\\n"
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "mpirun").write_text(f"#!/bin/sh\nprintf '{said}'\n")
    (tmp_path / "bin" / "mpirun").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    (tmp_path / "launcher.py").write_text(LAUNCHER)
    describe(agents, replace(mpi(("x",)), argv=(sys.executable, "launcher.py", START_RANK, "true")))
    start_all(agents, monkeypatch)
    assert verdict(agents)["outcome"] == "succeeded", agents.verdict()
    (note,) = [event["reason"] for event in agents.events(0) if event["kind"] == "note"]
    assert note.startswith("MPICH 4.0.2 hangs in MPI_Finalize")


def test_much_output_arrives_whole(agents: Agents, launched: Callable[..., None]) -> None:
    launched("for number in range(100_000): print('line', number)\n")
    assert verdict(agents)["outcome"] == "succeeded"
    expected = "".join(f"line {number}\n" for number in range(100_000))
    for rank in range(6):
        assert (agents.folder / f"out/logs/rank-{rank}.log").read_text() == expected


def test_the_rank_that_failed_is_the_cause_not_those_that_the_launcher_ended(
    agents: Agents, launched: Callable[..., None]
) -> None:
    launched(
        "open('ready-%d' % rank, 'w')\n"
        "while sum(name.startswith('ready-') for name in os.listdir()) < 6: time.sleep(0.02)\n"
        "if rank == 4: raise ValueError('a sample is broken')\n"
        "time.sleep(600)\n"
    )
    cause = verdict(agents)["cause"]
    assert (cause["kind"], cause["rank"], cause["worker"], cause["exit_code"]) == ("rank", 4, 2, 1)
    assert cause["summary"] == "rank 4 exited with code 1: ValueError: a sample is broken"


def test_a_killed_rank_is_the_cause(agents: Agents, launched: Callable[..., None]) -> None:
    launched("open('pid-%d' % rank, 'w').write(str(os.getpid())); time.sleep(600)\n")
    wait_until(
        lambda: sum(bool(each.read_text()) for each in agents.folder.glob("pid-*")) == 6, "the ranks' start"
    )
    os.kill(int((agents.folder / "pid-2").read_text()), signal.SIGKILL)
    cause = verdict(agents)["cause"]
    assert (cause["rank"], cause["worker"], cause["signal"]) == (2, 1, "SIGKILL")
    for each in agents.folder.glob("pid-*"):
        assert not Path("/proc", each.read_text()).exists()


def test_ranks_get_their_time_to_save_when_the_run_is_stopped(
    agents: Agents, launched: Callable[..., None], control: str
) -> None:
    launched(
        "import signal\n"
        "def save(*_):\n"
        "    time.sleep(0.5); print('saved', flush=True); sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, save)\n"
        "print('ready', flush=True)\n"
        "time.sleep(600)\n",
        control=control,
    )
    wait_until(lambda: sum(text == "ready" for _, _, text in lines(agents)) == 6, "the ranks' start")
    subprocess.run([sys.executable, str(AGENT), "control", control, "stop"], check=True)
    assert verdict(agents)["outcome"] == "stopped"
    assert sum(text == "saved" for _, _, text in lines(agents)) == 6


def test_without_an_agent_the_command_runs_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    command = [sys.executable, "-I", "-S", str(AGENT), "rank", str(tmp_path), str(tmp_path / "secret")]
    for env in ({}, {"PMI_RANK": "3"}):
        done = subprocess.run(
            [*command, "sh", "-c", "echo here; exit 4"],
            capture_output=True,
            env={**os.environ, **env},
            timeout=PATIENCE,
            check=False,
        )
        assert (done.returncode, done.stdout) == (4, b"here\n")


def test_a_rank_finds_the_socket_of_its_worker() -> None:
    names = ["launcher.sock", "ranks-0-2.sock", "ranks-2-1.sock", "ranks-3-3.sock", "bin"]
    assert [socket_for(rank, names) for rank in (1, 2, 5)] == [
        "ranks-0-2.sock",
        "ranks-2-1.sock",
        "ranks-3-3.sock",
    ]
    assert socket_for(9, ["ranks-2-1.sock"]) == "ranks-2-1.sock"  # a launcher may put it anywhere
    assert socket_for(0, ["bin"]) is None
