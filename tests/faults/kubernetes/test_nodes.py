"""A node dies under a run: it goes on elsewhere while a restart is left; else it ends and names the node."""

from __future__ import annotations

import pytest
from testbed.fixtures import Target
from tests.faults.kubernetes.terminal import Command, Terminal
from tests.faults.kubernetes.test_pods import PATIENT

from testbed import cluster as whole

pytestmark = [pytest.mark.cluster, pytest.mark.slow]


def test_a_node_dies(own_cluster: Target, terminal: Terminal, spare_node: str, real_nodes: list[str]) -> None:
    """Two runs at once: one worker of each is on the node that dies, the other is not."""
    terminal.write("patient.py", PATIENT)
    label = f"{terminal.kubectl.namespace}/here"
    kept, spared = [name for name in real_nodes if name != spare_node][:2]
    kubectl = own_cluster.kubectl
    try:
        kubectl("label", "node", kept, spare_node, f"{label}=yes")
        # Of the two cores of a node, a worker of the first run takes more than half, so that its other worker
        # must be on another node; one of the second run fits in beside each.
        started: dict[str, Command] = {}
        for name, restarts, cores in (("goes-on", "1", "1.1"), ("ends", "0", "0.8")):
            here = ("--cpus", cores, "--node-selector", f"{label}=yes")
            started[name] = terminal.train(name, "-n", "2", "--restarts", restarts, *here, "patient.py", "1")
            started[name].wait_for("up 0\n", 2)
        places = {name: {pod["spec"]["nodeName"] for pod in terminal.pods(name)} for name in started}
        assert all(spare_node in nodes for nodes in places.values()), places
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
    for name in started:  # though Kubernetes itself would wait for the dead node for ever
        terminal.check_removal(name)
