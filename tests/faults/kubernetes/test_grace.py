"""What runs below a shell in a pod has the time that its pod has: to save, when the pod is deleted."""

from __future__ import annotations

import pytest
from tests.faults.kubernetes.terminal import Terminal

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

# It saves for longer than ranks have by default.
SAVES = """
import signal, sys, time
def save(*_):
    print("saving", flush=True)
    time.sleep(13)
    print("saved", flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
print("up", flush=True)
time.sleep(3600)
"""


@pytest.mark.core
def test_a_pods_longer_time_is_its_ranks(terminal: Terminal) -> None:
    terminal.write("train.py", SAVES)
    terminal.write("train.sh", "python3 train.py | tee copy.txt\n")
    terminal.write("patch.yaml", "spec: {terminationGracePeriodSeconds: 80}\n")
    command = terminal.train("saves", "--pod-patch", "patch.yaml", "--", "bash", "train.sh")
    command.wait_for("up\n")
    (pod,) = terminal.pods("saves")
    assert pod["spec"]["terminationGracePeriodSeconds"] == 80
    terminal.kubectl("delete", "pod", pod["metadata"]["name"], "--wait=false")
    assert command.wait() != 0, command
    assert [line for line in command.lines if line in ("saving", "saved")] == ["saving", "saved"], command
    terminal.check_removal("saves")


def test_a_stop_has_its_own_time_and_says_what_it_killed(terminal: Terminal) -> None:
    terminal.write("train.py", SAVES)
    terminal.write("train.sh", "python3 train.py\ntrue\n")
    command = terminal.train("slow", "--grace", "40s", "--", "bash", "train.sh")
    command.wait_for("up\n")
    (pod,) = terminal.pods("slow")
    assert pod["spec"]["terminationGracePeriodSeconds"] == 60
    terminal.call("stop", "--grace", "1s", "slow")
    assert command.wait() == 143, command
    assert str(terminal.status("slow")["reason"]).endswith("rank 0 still ran after 1 s and was killed")
    terminal.check_removal("slow")
