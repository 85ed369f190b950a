"""Daemons that end: when they may be started again."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from testbed.processes import start_time
from tests.conftest import PATIENCE, wait_until

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
