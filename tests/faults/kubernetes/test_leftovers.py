"""What Kubernetes does with a run by itself: `kubectl delete job`, and the time to live after the end. Both
leave nothing, since everything belongs to the Jobs."""

from __future__ import annotations

import pytest
from tests.faults.kubernetes.terminal import Terminal

pytestmark = [pytest.mark.cluster, pytest.mark.slow]


def test_the_job_is_deleted(terminal: Terminal) -> None:
    """Of a run that has ended, and of one that goes on: whoever follows it hears what happened."""
    terminal.write("hello.py", "print('hello')")
    terminal.write("sleeps.py", "import time\nprint('up', flush=True)\ntime.sleep(600)\n")
    ended, going = terminal.train("ended", "-n", "2", "hello.py"), terminal.train("going", "sleeps.py")
    assert ended.wait() == 0, ended
    going.wait_for("up\n")
    terminal.kubectl("delete", "job", "ended", "going", "--wait=false")
    terminal.wait_for_nothing("ended")
    terminal.wait_for_nothing("going")
    assert going.wait() != 0, going
    assert "Traceback" not in going.said, going
    gone = terminal.call("status", "ended")
    assert gone.returncode != 0
    assert "'ended'" in gone.stderr


def test_a_short_time_to_live(terminal: Terminal) -> None:
    terminal.write("hello.py", "print('hello')")
    command = terminal.train("brief", "--ttl", "30s", "-n", "2", "hello.py")
    assert command.wait() == 0, command
    assert sorted(command.lines) == ["[0] hello", "[1] hello"]
    terminal.wait_for_nothing("brief", 120)
