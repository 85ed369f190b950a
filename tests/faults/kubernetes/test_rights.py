"""People with few rights: the minimal Role is enough for everything but placement; without `pods/exec` the
user is told beforehand, and results on a volume work.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import yaml
from testbed.kubectl import Kubectl, Refused
from tests.faults.kubernetes.terminal import Terminal
from tests.faults.kubernetes.test_pods import PATIENT, newest_pod

from echelon.engines.kubernetes.doctor.rights import FULL_ROLE, MINIMAL_ROLE

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

User = Callable[[str, Sequence[dict[str, Any]]], Kubectl]
WRITES = """
import os, pathlib
pathlib.Path(os.environ["ECHELON_OUTPUT"], "made").write_text("by " + os.environ["ECHELON_RANK"])
print("hello", flush=True)
"""


def test_the_minimal_role(terminal: Terminal, user: User) -> None:
    kubectl = user("ann", MINIMAL_ROLE)
    with pytest.raises(Refused, match="forbidden"):
        kubectl.get("nodes")
    ann = terminal.as_user(kubectl)
    ann.write("writes.py", WRITES)
    ann.write("patient.py", PATIENT)

    command = ann.train("first", "-n", "2", "--restarts", "1", "writes.py")
    assert command.wait() == 0, command
    assert ann.read("first", "made") == "by 0"
    assert "Traceback" not in command.said

    lost = ann.train("lost", "-n", "2", "--restarts", "1", "patient.py", "1")
    lost.wait_for("up 0\n", 2)
    terminal.kubectl("delete", "pod", newest_pod(terminal, "lost", 1), "--wait=false")
    assert lost.wait() == 0, lost

    done = ann.call(
        "run", "-d", "--linger", "2m", "--name", "second", "--image", ann.image, "patient.py", "1"
    )
    assert done.returncode == 0, done.stderr
    follower = ann.start("logs", "-f", "second")
    follower.wait_for("up 0\n")
    assert ann.status("second")["state"] == "running"
    assert "second" in ann.call("ps").stdout
    stopped = ann.call("stop", "second")
    assert (stopped.returncode, stopped.stderr) == (0, "")
    assert "second stopped" in stopped.stdout
    assert follower.wait() == 0, follower

    done = ann.call("run", "-d", "--linger", "2m", "--name", "third", "--image", ann.image, "writes.py")
    assert done.returncode == 0, done.stderr
    assert ann.call("wait", "third").returncode == 0
    fetched = ann.call("get", "third", "made", "--to", "elsewhere")
    assert fetched.returncode == 0, fetched.stderr
    assert (ann.folder / "elsewhere" / "made").read_text() == "by 0"
    assert ann.call("logs", "third").stdout == "hello\n"
    for run in ("first", "lost", "second", "third"):
        ann.check_removal(run)


def test_without_exec(terminal: Terminal, user: User, shared_class: str) -> None:
    """Results cannot be fetched from workers: that is said before anything runs, with the way out."""
    rules = [rule for rule in MINIMAL_ROLE if rule["resources"] != ["pods/exec"]]
    bob = terminal.as_user(user("bob", rules))
    bob.write("writes.py", WRITES)
    bob.write("patient.py", PATIENT)
    command = bob.train("bare", "writes.py")
    assert command.wait() == 123, command
    assert "--output" in command.said, command
    assert "results in" not in command.said
    assert "worker 0: 2 files, " in command.said
    assert "not fetched: you may not create pods/exec" in command.said
    again = bob.call("get", "bare")
    assert (again.returncode, again.stdout) == (123, ""), again.stderr
    assert "worker 0: 2 files" in again.stderr
    assert not (bob.folder / "runs/bare/made").exists()
    terminal.kubectl.wait_for(
        lambda: all(pod["status"]["phase"] != "Running" for pod in terminal.pods("bare")),
        "no worker to linger",
    )
    assert "Traceback" not in command.said
    assert bob.status("bare")["state"] == "succeeded"
    assert bob.call("logs", "bare").stdout == "hello\n"
    plain = bob.train(
        "plain", "-n", "2", "--", "echo", "hello"
    )  # which has made nothing but logs, which come
    assert plain.wait() == 0, plain

    terminal.kubectl.create(
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "shelf"},
            "spec": {
                "storageClassName": shared_class,
                "accessModes": ["ReadWriteMany"],
                "resources": {"requests": {"storage": "1Gi"}},
            },
        }
    )
    kept = bob.train("kept", "-n", "2", "--output", "pvc:shelf/kept", "writes.py")
    assert kept.wait() == 0, kept
    assert "Traceback" not in kept.said

    stopped = bob.call(
        "run", "-d", "--output", "pvc:shelf/x", "--name", "ends", "--image", bob.image, "patient.py", "1"
    )
    assert stopped.returncode == 0, stopped.stderr
    bob.start("logs", "-f", "ends").wait_for("up 0\n")
    stopped = bob.call("stop", "ends")
    assert stopped.returncode == 0, stopped.stderr
    assert "ends stopped" in stopped.stdout
    interrupted = bob.train("broken", "--output", "pvc:shelf/y", "patient.py", "1")
    interrupted.wait_for("up 0\n")
    interrupted.process.send_signal(signal.SIGINT)
    assert interrupted.wait() == 130, interrupted
    assert "its ranks get SIGTERM, not SIGINT: " in interrupted.said, interrupted

    forgotten = bob.call("rm", "kept")
    assert (forgotten.returncode, forgotten.stdout) == (0, "kept\n"), forgotten.stderr
    assert "results of kept stay on pvc:shelf/kept" in forgotten.stderr
    for run in ("bare", "plain", "ends", "broken"):
        bob.check_removal(run)
    assert terminal.kubectl.find("pvc", "shelf") is not None  # a user's volume is never removed

    # What an administrator applies grants all that was missing in the namespace.
    manifests = list(yaml.safe_load_all(bob.call("doctor", "--role").stdout))
    assert [each["kind"] for each in manifests] == [
        "Role",
        "RoleBinding",
        "ClusterRole",
        "ClusterRoleBinding",
    ]
    assert {"apiGroups": [""], "resources": ["pods/exec"], "verbs": ["get", "create"]} in manifests[0][
        "rules"
    ]
    terminal.kubectl.apply(*manifests[:2])
    left = yaml.safe_load_all(bob.call("doctor", "--role").stdout)
    assert [each["kind"] for each in left] == ["ClusterRole", "ClusterRoleBinding"]


@pytest.mark.core
def test_without_exec_the_volume_of_a_run_keeps_its_results(terminal: Terminal, user: User) -> None:
    """It cannot be read without that right: no success is reported, and nothing deletes the only copy."""
    rules = [rule for rule in FULL_ROLE if rule["resources"] != ["pods/exec"]]
    bob = terminal.as_user(user("bob", rules))
    bob.write("writes.py", WRITES)
    command = bob.train("vol", "--output", "new:16Mi", "writes.py")
    assert command.wait() == 123, command
    assert "results in" not in command.said
    assert "they are on the volume claim vol-results, and you may not create pods/exec" in command.said
    for words in (("get", "vol"), ("wait", "vol")):
        done = bob.call(*words)
        assert done.returncode == 123, done.stderr
        assert "volume claim vol-results" in done.stderr
    assert not (bob.folder / "runs/vol/made").exists()
    for someone in (bob, terminal):
        removed = someone.call("rm", "vol")
        assert (removed.returncode, removed.stdout) == (115, "")
        assert "are on the volume claim vol-results" in removed.stderr
        assert "--force" in removed.stderr
    fetched = terminal.call("get", "vol")  # with the right to it
    assert fetched.returncode == 0, fetched.stderr
    assert bob.read("vol", "made") == "by 0"
    bob.check_removal("vol")
    assert terminal.kubectl.find("pvc", "vol-results") is None
