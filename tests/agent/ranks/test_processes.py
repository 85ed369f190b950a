"""The tree of processes below one: real children, in a process of its own that has no others."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from tests.conftest import wait_until

from echelon.agent.ranks import processes

_BELOW = """
import os, subprocess, sys, time
from echelon.agent.ranks import processes

looked = []
parent_and_life = processes._parent_and_life
def counted(pid):
    looked.append(pid)
    return parent_and_life(pid)
processes._parent_and_life = counted

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


# One that has imported numpy or torch has threads: its first one may end before them when it is killed, and
# its children are theirs until they have ended, too.
_FIRST_THREAD_ENDED = """
import ctypes, os, subprocess, sys, threading, time
child = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"])
threading.Thread(target=time.sleep, args=(600,)).start()
print(child.pid, flush=True)
number = {"x86_64": 60, "aarch64": 93}[os.uname().machine]
ctypes.CDLL(None).syscall(number, 0)
"""


@pytest.mark.core
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux shows the tree")
def test_a_process_of_which_one_thread_has_ended_lives_and_its_children_are_seen() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _FIRST_THREAD_ENDED], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            child = int(process.stdout.readline())
            wait_until(lambda: processes.state_of(process.pid) == "Z", "the end of the first thread")
            assert (
                processes.parents_below(os.getpid()).items()
                >= {process.pid: os.getpid(), child: process.pid}.items()
            )
        finally:
            process.kill()


def test_what_comes_to_another_parent_while_all_are_looked_at_is_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    root, parent, child = os.getpid(), 300, 20
    looks = {parent: [""], child: [f"S {parent}", f"S {root}"]}
    monkeypatch.setattr(processes, "_has_children", lambda: True)
    monkeypatch.setattr(processes, "all_processes", lambda: sorted(looks))
    monkeypatch.setattr(processes, "stat_of", lambda pid: looks[pid].pop(0).encode().split())
    assert processes.parents_below(root) == {child: root}
