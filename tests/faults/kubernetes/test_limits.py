"""What a cluster allows and what it does not: memory, images, quotas, the `restricted` level, a root file
system that nobody may write to, and a user id that is nobody's.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from testbed.fixtures import Target
from testbed.patience import FACTOR
from tests.faults.kubernetes.terminal import Terminal, flag_path

from testbed import registry

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

WHO = """
import os, pathlib
out = pathlib.Path(os.environ["ECHELON_OUTPUT"], "mine")
out.write_text(os.environ["ECHELON_RANK"])
try:
    pathlib.Path("/here").write_text("")
    root = "open"
except OSError:
    root = "closed"
print("user", os.getuid(), "root", root, flush=True)
"""


# The command line with a shorter time: it waits for two minutes for an image that is not there.
GIVES_UP_SOONER = f"""
from echelon.engines.kubernetes.diagnose import PATIENCE
PATIENCE["image"] = {40.0 * FACTOR}
from echelon.cli.main import main
main()
"""


def test_too_little_memory(terminal: Terminal) -> None:
    terminal.write(
        "greedy.py", "import time\nprint('up', flush=True)\nx = b'x' * (200 << 20)\ntime.sleep(60)\n"
    )
    command = terminal.train("greedy", "--memory", "64Mi:64Mi", "greedy.py")
    assert command.wait() == 128 + signal.SIGKILL, command
    assert "out of memory, the limit is 64Mi" in command.said, command
    status = terminal.status("greedy")
    assert (status["state"], status["exit_code"]) == ("failed", 137)
    assert "64Mi" in status["root_cause"]["summary"], status
    terminal.check_removal("greedy")


def test_an_image_that_does_not_exist(own_cluster: Target, terminal: Terminal) -> None:
    """Told while it is waited for; then the run is given up, and the cluster with it left clean."""
    terminal.write("hello.py", "print('hello')")
    image = f"{registry.start()}/nobody/nothing:1"
    words = ("run", "--name", "no-image", "--image", image, "-n", "2", "hello.py")
    command = terminal.start(*words, program=("-c", GIVES_UP_SOONER))
    command.wait_for(f"image {image} does not exist")
    assert command.process.poll() is None, command
    status = terminal.status("no-image")
    assert status["state"] == "starting"
    assert "does not exist" in status["reason"]
    assert command.wait(300) != 0, command
    assert command.lines == []
    status = terminal.status("no-image")
    assert status["state"] == "failed"
    assert f"image {image} does not exist" in status["reason"]
    terminal.check_removal("no-image")


def test_a_quota_that_is_used_up(terminal: Terminal) -> None:
    """Told once, with the numbers; when there is room again the run goes on by itself."""
    terminal.kubectl.create(
        {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": "small"},
            "spec": {"hard": {"pods": "2"}},
        },
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "other"},
            "spec": {
                "schedulingGates": [{"name": "test/never"}],  # it takes room, and no time to start
                "containers": [{"name": "a", "image": terminal.image}],
            },
        },
    )
    terminal.write("hello.py", "print('hello')")
    terminal.kubectl.wait_for(
        lambda: (
            terminal.kubectl.get("resourcequota", "small").get("status", {}).get("used", {}).get("pods")
            == "1"
        ),
        "the quota",
    )
    command = terminal.train("tight", "-n", "2", "hello.py")
    command.wait_for("quota")
    assert "small" in command.said, command
    terminal.kubectl("delete", "pod", "other", "--grace-period=0", "--force")
    assert command.wait(600) == 0, command  # the Job controller tries again after 10, 20, 40, ... seconds
    assert sorted(command.lines) == ["[0] hello", "[1] hello"]
    assert command.said.count("quota small has no room") == 1, command
    terminal.check_removal("tight")


def test_a_restricted_namespace(own_cluster: Target, terminal: Terminal) -> None:
    terminal.kubectl(
        "label", "namespace", terminal.kubectl.namespace, "pod-security.kubernetes.io/enforce=restricted"
    )
    terminal.write("who.py", WHO)
    command = terminal.train("strict", "-n", "2", "--memory", "256Mi", "who.py")
    assert command.wait() == 0, command
    assert sorted(command.lines) == [f"[{rank}] user 1000 root closed" for rank in range(2)]
    assert terminal.read("strict", "worker-1/mine") == "1"
    terminal.check_removal("strict")


@contextmanager
def every_pod_changed(terminal: Terminal, admin: Target, *changes: str) -> Iterator[None]:
    """An administrator's policy that changes every pod of the namespace, whatever its maker says."""
    name = f"{terminal.kubectl.namespace}-policy"
    kind, binding = "MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"
    version = "admissionregistration.k8s.io/v1"
    if "mutatingadmissionpolicies" not in admin.kubectl("get", "--raw", f"/apis/{version}"):
        pytest.skip(f"this Kubernetes has no {kind} of {version}")
    pods = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    here = {"matchLabels": {"kubernetes.io/metadata.name": terminal.kubectl.namespace}}
    admin.kubectl.create(
        {
            "apiVersion": version,
            "kind": kind,
            "metadata": {"name": name},
            "spec": {
                "matchConstraints": {"resourceRules": [pods]},
                "failurePolicy": "Fail",
                "reinvocationPolicy": "Never",
                "mutations": [
                    {"patchType": "JSONPatch", "jsonPatch": {"expression": f"[{', '.join(changes)}]"}}
                ],
            },
        },
        {
            "apiVersion": version,
            "kind": binding,
            "metadata": {"name": name},
            "spec": {"policyName": name, "matchResources": {"namespaceSelector": here}},
        },
    )
    try:
        probe = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "probe"},
            "spec": {
                "securityContext": {},
                "containers": [{"name": "a", "image": "a", "securityContext": {}}],
            },
        }

        def changed() -> bool:
            import json

            made = terminal.kubectl(
                "create", "--dry-run=server", "-o", "json", "-f", "-", stdin=json.dumps(probe)
            )
            return "readOnlyRootFilesystem" in made

        terminal.kubectl.wait_for(changed, "the policy to be in force")
        yield
    finally:
        for each in (binding, kind):
            admin.kubectl("delete", each, name)


FAILS_ONCE = f"""
import sys, time
if os.environ["ECHELON_RESTART"] == "0":
    while not os.path.exists("{flag_path("fail")}"):
        time.sleep(0.1)
    sys.exit(1)
"""


def test_nobodys_user_and_a_read_only_root(own_cluster: Target, terminal: Terminal) -> None:
    """Clusters force both on every pod; results, output and a restart work all the same."""
    terminal.write("who.py", WHO + FAILS_ONCE)
    add = 'JSONPatch{{op: "add", path: "/spec/{}", value: {}}}'
    with every_pod_changed(
        terminal,
        own_cluster,
        add.format("containers/0/securityContext/readOnlyRootFilesystem", "true"),
        add.format("securityContext/runAsUser", "23456"),
        add.format("securityContext/runAsGroup", "23457"),
    ):
        command = terminal.train("nobody", "-n", "2", "--restarts", "1", "who.py")
        command.wait_for("user 23456", 2)  # the other one is stopped by the failure, and may say no more then
        terminal.raise_flag(terminal.pods("nobody")[0]["metadata"]["name"], "fail")
        assert command.wait() == 0, command
    assert sorted(command.lines) == [f"[{rank}] user 23456 root closed" for rank in (0, 0, 1, 1)]
    assert terminal.read("nobody", "worker-1/mine") == "1"
    terminal.check_removal("nobody")
