"""One of a run's workers is told to go in a real cluster: the ranks of all have time to save, and the run
goes on when its seat is filled again."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pytest
from testbed.fixtures import Target
from tests.conftest import wait_until
from tests.faults.kubernetes.terminal import PATIENCE, Command, Terminal

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

SAVES = """
import json, os, signal, sys, time
signals = []
signal.signal(signal.SIGTERM, lambda *_: signals.append(time.time()))
rank, restart = os.environ["RANK"], os.environ["ECHELON_RESTART"]
print(f"up {restart}", flush=True)
if restart != "0":
    sys.exit(0)
while not signals:
    time.sleep(0.05)
time.sleep(float(sys.argv[1]))
notice = json.load(open(os.environ["ECHELON_NOTICE"]))
print("saved", json.dumps(dict(notice, rank=rank, signals=len(signals), at=signals[0])), flush=True)
"""


def check_saved(command: Command, ranks: int, victim: int) -> None:
    told = [json.loads(text.partition("saved ")[2]) for text in command.lines if "saved " in text]
    assert sorted(each["rank"] for each in told) == [str(rank) for rank in range(ranks)], told
    assert {(each["reason"], each["who"], each["signals"]) for each in told} == {
        ("leave", f"worker {victim}", 1)
    }
    assert max(each["at"] for each in told) - min(each["at"] for each in told) < 3.0  # of the same machine


def test_a_worker_is_preempted_and_all_ranks_save(
    own_cluster: Target, terminal: Terminal, real_nodes: list[str], give_gpus: Callable[..., None]
) -> None:
    """One GPU on each of two nodes; what preempts takes one of them for a while."""
    for node in real_nodes[:2]:
        give_gpus(node, 1)
    kubectl = terminal.kubectl
    high = f"{kubectl.namespace}-high"
    kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
    kubectl.create({**kind, "metadata": {"name": high}, "value": 1000})
    try:
        terminal.write("train.py", SAVES)
        words = ("-n", "2", "--gpus", "1", "--restarts", "1", "--grace", "30s", "train.py", "20")
        command = terminal.train("humble", *words)
        command.wait_for("up 0\n", 2)
        limits = {"resources": {"limits": {"nvidia.com/gpu": "1"}}}
        container = {"name": "proud", "image": terminal.image, "command": ["sleep", "1"], **limits}
        pod = {"containers": [container], "priorityClassName": high, "restartPolicy": "Never"}
        kubectl.create({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "proud"}, "spec": pod})
        command.wait_for(" must leave: it was preempted on ")
        command.wait_for("saved ", 2)
        done = ("get", "pod", "proud", "-o", "jsonpath={.status.phase}")
        wait_until(lambda: kubectl(*done) == "Succeeded", "what has preempted to end", PATIENCE)
        kubectl("delete", "pod", "proud")
        assert command.wait() == 0, command
        victim = 0 if "worker 0 must leave" in command.said else 1
        check_saved(command, 2, victim)
        status = terminal.status("humble")
        assert (status["restarts"], status["restarts_spared"]) == (1, 1)
        terminal.check_removal("humble")
    finally:
        kubectl("delete", "priorityclass", high)


@pytest.mark.core
def test_the_pod_of_the_only_worker_is_deleted_and_no_restart_is_counted(terminal: Terminal) -> None:
    terminal.write("train.py", SAVES)
    command = terminal.train("only", "--restarts", "1", "train.py", "1")
    command.wait_for("up 0\n")
    (pod,) = terminal.pods("only")
    terminal.kubectl("delete", "pod", pod["metadata"]["name"], "--wait=false")
    assert command.wait() == 0, command
    # The agent's event may be read before the deletion is seen, which then says more.
    assert re.search(r"worker 0 must leave: .+; all ranks have 10 s to end", command.said), command
    check_saved(command, 1, 0)
    status = terminal.status("only")
    assert (status["restarts"], status["restarts_spared"]) == (1, 1)
    terminal.check_removal("only")
