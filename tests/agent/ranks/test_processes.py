"""The tree of processes below one: real children, in a process of its own that has no others."""

from __future__ import annotations

import subprocess
import sys

import pytest

_BELOW = """
import os, subprocess, sys, time
from echelon.agent.ranks import processes

looked = []
parent_and_state = processes._parent_and_state
def counted(pid):
    looked.append(pid)
    return parent_and_state(pid)
processes._parent_and_state = counted

def seen():
    looked.clear()
    return processes.descendants(os.getpid()), bool(looked)

print(seen())
nested = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'input()'])"
child = subprocess.Popen([sys.executable, "-c", nested], stdin=subprocess.PIPE)
while len(seen()[0]) < 2:
    time.sleep(0.01)
print(seen()[0][0] == child.pid, len(seen()[0]))
print(len(processes.descendants(os.getpid(), but={child.pid})), len(processes.descendants(child.pid)))
child.stdin.close()
os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
print(seen())
child.wait()
print(seen())
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux shows the tree")
def test_what_is_below_and_that_nothing_is_looked_at_where_there_is_no_child() -> None:
    done = subprocess.run([sys.executable, "-c", _BELOW], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["([], False)", "True 2", "0 1", "([], True)", "([], False)"]
