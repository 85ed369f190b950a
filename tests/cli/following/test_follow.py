"""Ctrl-C on a run that cannot be stopped: nobody is kept at a terminal whose cluster does not answer."""

from __future__ import annotations

import signal
import subprocess
import sys

from tests.conftest import PATIENCE

SCRIPT = """
import time
from echelon.cli.following.follow import stopping_on_signals
from echelon.errors import Unreachable

class Away:
    name = "fm"
    def stop(self, *, signal, wait):
        raise Unreachable("nobody answers", hint="is it running?")

with stopping_on_signals(Away()):
    print("ready", flush=True)
    for _ in range(6000):
        time.sleep(0.1)  # a signal that comes right before a sleep is heard after it
"""


def test_what_cannot_be_stopped_is_left_alone() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        assert "stopping" in process.stderr.readline()
        assert "nobody answers (is it running?); once more leaves it alone" in process.stderr.readline()
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) != 0
        assert "KeyboardInterrupt" in process.stderr.read()
