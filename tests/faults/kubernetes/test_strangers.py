"""Strangers on a real cluster: another namespace floods the gang's port while the gang forms, and another
container of the pod, or another user in the worker's own, is after its control socket.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from testbed.kubectl import Kubectl
from tests.conftest import wait_until
from tests.faults.kubernetes.terminal import Terminal
from tests.faults.kubernetes.test_pods import PATIENT, newest_pod

from echelon.engines.kubernetes import names

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

STRANGER = 4242  # a user id that nobody has
# Holds as many connections as the leader lets strangers have, and more; some say nothing, others anything.
FLOOD = """
import itertools, os, socket, sys, time
held = []
for number in itertools.count(1):
    try:
        sock = socket.create_connection((sys.argv[1], int(sys.argv[2])), 5)
        if number % 2:
            sock.sendall(os.urandom(200) + b"\\n")
        held.append(sock)
    except OSError:
        time.sleep(0.01)
    if len(held) > 700:
        held.pop(0).close()
    if number % 1000 == 0:
        print("opened", number, flush=True)
"""
# What a program tries that is not the agent's user, or not in its container.
TRIES = """
import json, os, socket, sys
if len(sys.argv) > 2:
    try:
        os.setuid(int(sys.argv[2]))
    except PermissionError:
        sys.exit(print("another user denied"))
def connect(path):
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(path)
        sock.sendall(b'{"order": "stop", "signal": "SIGKILL"}\\n')
        return sock.recv(100)
path, agent = sys.argv[1], (open("/proc/1/task/1/children").read().split() or ["1"])[0]
tries = {
    "socket": lambda: connect(path),
    "socket of the other": lambda: connect("/proc/1/root" + path),
    "secret": lambda: open("/proc/1/root/echelon/secret/gang", "rb").read(),
    "environment": lambda: open("/proc/1/environ", "rb").read(),
    "signal": lambda: os.kill(int(agent), 9),
}
for name, attempt in tries.items():
    try:
        attempt()
        print(name, "worked")
    except (FileNotFoundError, ProcessLookupError):
        print(name, "not there")
    except PermissionError:
        print(name, "denied")
print("tried", flush=True)
"""


@pytest.fixture
def elsewhere(terminal: Terminal) -> Iterator[Kubectl]:
    """Another namespace."""
    name = f"{terminal.kubectl.namespace}-other"
    terminal.kubectl.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    inside = terminal.kubectl.within(name)
    inside.wait_for(lambda: inside.find("serviceaccount", "default"), "the default service account")
    yield inside
    terminal.kubectl("delete", "namespace", name, "--wait=false")


def test_the_gang_forms_while_another_namespace_floods_its_port(
    terminal: Terminal, elsewhere: Kubectl
) -> None:
    terminal.write("patient.py", PATIENT)
    command = terminal.train("mine", "-n", "3", "--restarts", "1", "patient.py", "1")
    command.wait_for("up 0\n", 3)
    host = f"mine.{terminal.kubectl.namespace}.svc"
    container = {
        "name": "flood",
        "image": terminal.image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["python3", "-c", FLOOD, host, str(names.PORT)],
    }
    spec = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": [container]}
    elsewhere.create({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "flood"}, "spec": spec})

    def opened() -> int:
        pod = elsewhere.find("pod", "flood")
        begun = pod is not None and pod["status"]["phase"] == "Running"
        return elsewhere("logs", "flood").count("opened") if begun else 0

    wait_until(lambda: opened() >= 2, "the flood", 120)
    assert terminal.status("mine")["state"] == "running"
    terminal.kubectl("delete", "pod", newest_pod(terminal, "mine", 1), "--wait=false")
    assert command.wait() == 0, command
    assert opened() >= 2
    assert terminal.status("mine")["restarts"] == 1
    for worker, path in enumerate(("rank-0", "worker-1/rank-1", "worker-2/rank-2")):
        assert terminal.read("mine", path) == f"result of {worker}"


def results_of(said: str) -> dict[str, str]:
    lines = [line for line in said.splitlines() if line and line != "tried"]
    return dict(map(_parted, lines))


def _parted(line: str) -> tuple[str, str]:
    outcome = next(each for each in ("worked", "not there", "denied") if line.endswith(each))
    return line.removesuffix(outcome).strip(), outcome


def test_the_control_socket_is_out_of_reach_for_other_containers_and_users(terminal: Terminal) -> None:
    terminal.write("patient.py", PATIENT)
    command = terminal.train("mine", "patient.py", "1")
    command.wait_for("up 0\n")
    pod = newest_pod(terminal, "mine", 0)

    def attack(name: str, **more: object) -> dict[str, str]:
        """Add a container to the pod, which tries everything."""
        spy = {"name": name, "image": terminal.image, "imagePullPolicy": "IfNotPresent", **more}
        spy["command"] = ["python3", "-c", TRIES, names.CONTROL]
        change = {"spec": {"ephemeralContainers": [spy]}}
        terminal.kubectl.patch("pod", pod, change, kind="strategic", subresource="ephemeralcontainers")

        def tried() -> bool:
            found = terminal.kubectl.get("pod", pod)["status"].get("ephemeralContainerStatuses") or []
            return any(each["name"] == name and "terminated" in each["state"] for each in found)

        wait_until(tried, f"container {name}", 120)
        return results_of(terminal.kubectl("logs", pod, "-c", name))

    own = attack("beside")  # as the agent's user, in a container of its own
    assert own["socket"] == "not there"
    assert own["socket of the other"] == "not there"
    other = {"runAsUser": STRANGER, "runAsGroup": STRANGER}
    inside = attack("inside", targetContainerName=names.CONTAINER, securityContext=other)
    assert inside == {
        "socket": "not there",
        "socket of the other": "denied",
        "secret": "denied",
        "environment": "denied",
        "signal": "denied",
    }
    shell = ("exec", pod, "-c", names.CONTAINER, "--")
    said = terminal.kubectl(*shell, "python3", "-c", TRIES, names.CONTROL, str(STRANGER))
    assert results_of(said) == {"another user": "denied"}, "the container has no right to become one"
    assert terminal.status("mine")["state"] == "running"
    stopped = terminal.call("stop", "mine")
    assert stopped.returncode == 0, stopped.stderr
    command.wait()
    assert "stopped by" in json.dumps(terminal.status("mine"))
