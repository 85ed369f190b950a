"""Daemons that end: when they may be started again."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from testbed.processes import start_time
from tests.conftest import PATIENCE, wait_until

from echelon.errors import Unavailable
from testbed import cluster, controlplane, processes

# Linux: `exit`, not `exit_group`; what is left is a process whose first thread has ended.
FIRST_THREAD_ENDS = """
import ctypes, threading, time
threading.Thread(target=time.sleep, args=(600,)).start()
libc = ctypes.CDLL(None)
libc.syscall(93 if __import__("platform").machine() == "aarch64" else 60, 0)
"""


def test_a_process_with_a_thread_left_has_not_ended() -> None:
    process = subprocess.Popen([sys.executable, "-c", FIRST_THREAD_ENDS])
    try:
        stat = Path(f"/proc/{process.pid}/stat")
        wait_until(lambda: stat.read_text().rpartition(") ")[2][0] == "Z", "its first thread to end")
        assert start_time(process.pid)
    finally:
        process.kill()
    wait_until(lambda: not start_time(process.pid), "all of it to end")
    assert process.wait(PATIENCE) == -9
    assert not start_time(process.pid)


@pytest.fixture
def daemons(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for daemons of this test; they are ended afterwards."""
    for module in (processes, controlplane):
        monkeypatch.setattr(module, "LOGS", tmp_path / "logs")
    monkeypatch.setattr(processes, "PROCESSES", tmp_path / "processes")
    yield tmp_path
    processes.stop([record.name for record in processes.recorded()], now=True)


@pytest.mark.parametrize("falls", [1, 2])
def test_a_kubelet_that_ends_while_it_starts_is_started_again(
    daemons: Path, monkeypatch: pytest.MonkeyPatch, falls: int
) -> None:
    """A shell stands in for the kubelet: real ones get in each other's way by chance."""
    starts = daemons / "starts"
    program = f'echo x >> "$0"; [ $(wc -l < "$0") -gt {falls} ] && exec sleep 600; exit 1'
    processes.start("kubelet-node-x", ["/bin/sh", "-c", program, starts])

    def nodes() -> dict[str, str]:
        begun = len(starts.read_text().splitlines()) if starts.exists() else 0
        return {"node-x": str(begun > falls)}

    monkeypatch.setattr(cluster, "_nodes_ready", nodes)
    cluster._wait_ready("node-x")
    assert len(starts.read_text().splitlines()) == falls + 1


def test_a_kubelet_that_always_ends_is_named_with_its_log(
    daemons: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    processes.start("kubelet-node-x", ["/bin/sh", "-c", "echo no such socket; exit 1"])
    monkeypatch.setattr(cluster, "_nodes_ready", dict)
    with pytest.raises(Unavailable, match="kubelet-node-x ended\\nno such socket"):
        cluster._wait_ready("node-x")
    log = (daemons / "logs" / "kubelet-node-x.log").read_text()
    assert log.splitlines() == ["no such socket"] * cluster.KUBELET_STARTS
