"""A node dies under a run: it goes on elsewhere while a restart is left; else it ends and names the node."""

from __future__ import annotations

import json
from typing import Any

import pytest
from testbed.fixtures import Target
from tests.conftest import wait_until
from tests.faults.kubernetes.terminal import Command, Terminal
from tests.faults.kubernetes.test_pods import PATIENT

from testbed import cluster as whole

pytestmark = [pytest.mark.cluster, pytest.mark.slow]


def test_a_node_dies(own_cluster: Target, terminal: Terminal, spare_node: str, real_nodes: list[str]) -> None:
    """Two runs at once: one worker of each is on the node that dies, the other is not."""
    terminal.write("patient.py", PATIENT)
    kept, spared = [name for name in real_nodes if name != spare_node][:2]
    kubectl = own_cluster.kubectl
    label = f"{terminal.kubectl.namespace}/here"
    try:
        kubectl("label", "node", kept, spare_node, f"{label}=yes")
        # Of the two cores of a node, a worker of the first run takes more than half, so that its other worker
        # must be on another node; one of the second run fits in beside each. The scheduler begins with worker
        # 0: the first run loses worker 1, the second its leader.
        started: dict[str, Command] = {}
        for name, restarts, cores, nodes in (
            ("goes-on", "1", "1.1", [kept, spare_node]),
            ("ends", "0", "0.8", [spare_node, kept]),
        ):
            terminal.write("patch.json", json.dumps(_prefers(nodes[0])))
            here = ("--cpus", cores, "--node-selector", f"{label}=yes", "--pod-patch", "patch.json")
            started[name] = terminal.train(name, "-n", "2", "--restarts", restarts, *here, "patient.py", "1")
            started[name].wait_for("up 0\n", 2)
            assert _nodes(terminal, name) == nodes
        kubectl("label", "node", spared, f"{label}=yes")
        whole.kill_node(spare_node)

        assert started["ends"].wait() != 0, started["ends"]
        assert f"node {spare_node}" in started["ends"].said, started["ends"]
        status = terminal.status("ends")
        assert status["state"] == "failed"
        assert f"node {spare_node}" in status["reason"], status
        assert started["goes-on"].wait() == 0, started["goes-on"]
        assert f"node {spare_node}" in started["goes-on"].said, started["goes-on"]
        assert terminal.status("goes-on")["restarts"] == 1
    finally:
        for name in (kept, spared, spare_node):
            kubectl("label", "node", name, f"{label}-")
    # That worker 0 was lost is known once the cluster deletes its pod: its results are not given up before.
    wait_until(lambda: _is_removed(terminal, "ends"), "the lost worker's results to be given up", 120)
    terminal.wait_for_nothing("ends")
    terminal.check_removal("goes-on")  # though Kubernetes itself would wait for the dead node for ever


def _prefers(node: str) -> dict[str, Any]:
    """A pod template's preference for a node."""
    named = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
    wish = {"weight": 100, "preference": {"matchExpressions": [named]}}
    return {
        "spec": {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [wish]}}}
    }


def _nodes(terminal: Terminal, run: str) -> list[str]:
    """The nodes of a run's pods, worker by worker."""
    pods = sorted(terminal.pods(run), key=lambda pod: str(pod["metadata"]["name"]))
    return [pod["spec"]["nodeName"] for pod in pods]


def _is_removed(terminal: Terminal, run: str) -> bool:
    terminal.call("get", run)
    return terminal.call("rm", run).returncode == 0
