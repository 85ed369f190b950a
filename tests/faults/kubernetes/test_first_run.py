"""A first run on a cluster: what travels is said, what is missing is known before anything exists, and the
dry run says the same.
"""

from __future__ import annotations

import hashlib
import os
import signal
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from testbed.kubectl import Kubectl
from tests.faults.kubernetes.terminal import KINDS, Terminal
from tests.faults.kubernetes.test_pods import newest_pod

from echelon.engines.kubernetes.doctor.rights import MINIMAL_ROLE
from echelon.errors import CannotShip, RunLost, Unavailable, Unplaceable

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

User = Callable[[str, Sequence[dict[str, Any]]], Kubectl]

SENT = """
import hashlib, pathlib
print(hashlib.sha256(pathlib.Path("weights.bin").read_bytes()).hexdigest(), flush=True)
"""
LARGE = """
import hashlib, os, pathlib, time
restart = os.environ["ECHELON_RESTART"]
print(restart, hashlib.sha256(pathlib.Path("weights.bin").read_bytes()).hexdigest(), flush=True)
if restart == "0":
    time.sleep(600)
"""


def nothing_was_made(terminal: Terminal) -> bool:
    return all(
        each.startswith(("configmap/kube-root-ca", "secret/default"))
        for each in terminal.kubectl("get", KINDS, "-o", "name").split()
    )


def test_a_file_that_stayed_here(terminal: Terminal) -> None:
    terminal.write("train.py", "print(open('data/a.csv').read())")
    terminal.write(".gitignore", "data/\n*.ckpt\n")
    terminal.write(".env", "TOKEN=hunter2")
    terminal.write("old.ckpt", "")
    (terminal.folder / "data").mkdir()
    terminal.write("data/a.csv", "1,2,3")

    dry = terminal.call("run", "--dry-run", "--name", "first", "--image", terminal.image, "train.py")
    assert dry.returncode == 0, dry.stderr
    assert "2 ignored by .gitignore" in dry.stdout
    assert "stays here   .env, data/, old.ckpt" in dry.stdout
    assert terminal.image in dry.stdout
    assert "apiVersion" not in dry.stdout
    objects = terminal.call(
        "run", "--dry-run", "-o", "yaml", "--name", "first", "--image", terminal.image, "train.py"
    )
    assert "apiVersion: batch/v1" in objects.stdout
    assert nothing_was_made(terminal)

    command = terminal.train("first", "train.py")
    assert command.wait() == 1, command
    assert "ships 3 files" in command.said, command
    assert "2 ignored by .gitignore" in command.said
    assert ".env looks like a secret" in command.said
    assert "--include data/ ships it" in command.said
    assert "--include data/ ships it" in terminal.call("status", "first").stdout
    assert "--include data/ ships it" in terminal.call("wait", "first").stderr
    assert terminal.train("second", "--include", "data/", "train.py").wait() == 0
    for run in ("first", "second"):
        terminal.check_removal(run)


def test_what_is_missing_is_known_before_anything_exists(terminal: Terminal, user: User) -> None:
    """None of these starts a pod."""
    terminal.write("hello.py", "print('hello')")
    terminal.kubectl.create(
        {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": "small"},
            "spec": {"hard": {"pods": "3"}},
        }
    )
    missing = {
        "volume claim nowhere": ("--mount", "pvc:nowhere/x:/data"),
        "ConfigMap nothing": ("--mount", "configmap:nothing:/conf"),
        "Secret hidden": ("--mount", "secret:hidden:/keys"),
        "Secret pull": ("--pull-secret", "pull"),
        "service account nobody": ("--service-account", "nobody"),
        "priority class urgent": ("--priority-class", "urgent"),
        "storage class gold": ("--output", "new:1Gi:gold"),
    }
    flags = [word for words in missing.values() for word in words]
    for dry in ([], ["--dry-run"]):
        done = terminal.call("run", *dry, "--name", "lacks", "--image", terminal.image, *flags, "hello.py")
        assert done.returncode == Unavailable.exit_code, done.stderr
        for what in missing:
            assert f"{what} does not exist" in done.stderr
    for words, wanted in (
        (["--node-selector", "disktype=ssd"], "no node has disktype=ssd"),
        (["-n", "4"], "quota small allows 3 pods in all, and the run's 4 workers need 4"),
    ):
        done = terminal.call("run", "--name", "lacks", "--image", terminal.image, *words, "hello.py")
        assert done.returncode == Unplaceable.exit_code, done.stderr
        assert wanted in done.stderr
    assert nothing_was_made(terminal)

    # What may not be read is unknown: a Role without these rights submits the run.
    kinds = {"secrets", "serviceaccounts", "resourcequotas", "persistentvolumeclaims"}
    rules = [rule for rule in MINIMAL_ROLE if not kinds.intersection(rule["resources"])]
    blind = terminal.as_user(user("cid", rules))
    flags = [
        "--mount",
        "secret:hidden:/keys",
        "--service-account",
        "nobody",
        "--priority-class",
        "urgent",
        "-n",
        "4",
    ]
    done = blind.call("run", "--dry-run", "--name", "lacks", "--image", terminal.image, *flags, "hello.py")
    assert done.returncode == 0, done.stderr


def test_runs_that_wait(terminal: Terminal, user: User) -> None:
    """They are stopped, not lost. Without the right to list events, what is waited for is said, and `get`
    does not wait with it. A default image that cannot be pulled, since the nodes here reach no registry, ends
    the run, and the user is told to name one.
    """
    rules = [rule for rule in MINIMAL_ROLE if "events" not in rule["resources"]]
    rules.append({"apiGroups": [""], "resources": ["persistentvolumeclaims"], "verbs": ["get", "list"]})
    dan = terminal.as_user(user("dan", rules))
    dan.write("hello.py", "print('hello')")
    unnamed = terminal.start("run", "--name", "unnamed", "hello.py")
    image = "registry.invalid/nobody/nothing:1"
    command = dan.start("run", "--name", "pulls", "--image", image, "hello.py")
    command.wait_for(f"image {image}")
    command.process.send_signal(signal.SIGINT)
    assert command.wait() == 128 + signal.SIGINT, command
    assert "stopped after" in command.said, command
    assert "lost" not in command.said, command
    assert dan.status("pulls")["state"] == "stopped"

    terminal.kubectl.create(
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "unbound"},
            "spec": {
                "storageClassName": "absent",
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}},
            },
        }
    )
    waits = dan.start("run", "--name", "waits", "--output", "pvc:unbound", "--image", dan.image, "hello.py")
    waits.wait_for("volume claim unbound")
    fetched = dan.call("get", "waits")
    assert fetched.returncode == Unavailable.exit_code, fetched.stderr
    assert "volume claim unbound is Pending, not Bound" in fetched.stderr
    stopped = dan.call("stop", "waits")
    assert stopped.stdout.startswith("waits stopped"), stopped
    assert waits.wait() != 0, waits
    assert "lost" not in waits.said, waits

    assert unnamed.wait() == RunLost.exit_code, unnamed
    assert "name one that the nodes can pull with --image" in unnamed.said
    status = terminal.status("unnamed")
    assert status["state"] == "failed"
    assert "the default, cannot be pulled" in status["reason"]
    for run in ("pulls", "waits", "unnamed"):
        terminal.check_removal(run)


def test_code_that_is_too_large_for_configmaps(terminal: Terminal, shared_class: str) -> None:
    """Refused with the way out; through a volume it reaches every worker, one that replaces another too."""
    (terminal.folder / "weights.bin").write_bytes(os.urandom(6 << 20))
    terminal.write("train.py", LARGE)
    for flags in (["-d", "--restarts", "1"], ["--restarts", "1"], ["--dry-run", "--restarts", "1"]):
        refused = terminal.call("run", "--name", "large", "--image", terminal.image, *flags, "train.py")
        assert refused.returncode == CannotShip.exit_code, refused.stderr
        assert "--code-volume pvc:NAME" in refused.stderr
    assert nothing_was_made(terminal)

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
    command = terminal.train(
        "large", "-n", "2", "--restarts", "1", "--code-volume", "pvc:shelf/code", "train.py"
    )
    digest = hashlib.sha256((terminal.folder / "weights.bin").read_bytes()).hexdigest()
    command.wait_for(f" 0 {digest}", 2)
    terminal.kubectl("delete", "pod", newest_pod(terminal, "large", 1), "--wait=false")
    assert command.wait() == 0, command
    assert sorted(command.lines) == [f"[{rank}] {restart} {digest}" for rank in (0, 1) for restart in (0, 1)]
    terminal.check_removal("large")


def test_larger_code_is_sent_to_the_leader_and_copied_by_the_others(terminal: Terminal, user: User) -> None:
    (terminal.folder / "weights.bin").write_bytes(os.urandom(8 << 20))
    terminal.write("train.py", SENT)
    flags = ["--name", "sent", "--image", terminal.image, "-n", "2"]
    dry = terminal.call("run", "--dry-run", *flags, "train.py")
    assert "sent to worker 0 when it has started" in dry.stdout, dry.stderr
    rules = [rule for rule in MINIMAL_ROLE if "pods/exec" not in rule["resources"]]
    refused = terminal.as_user(user("noexec", rules)).call("run", *flags, "train.py")
    assert refused.returncode == CannotShip.exit_code, refused.stderr
    assert "pods/exec" in refused.stderr
    assert nothing_was_made(terminal)

    command = terminal.train("sent", "-n", "2", "train.py")
    assert command.wait() == 0, command
    assert "of code to worker 0" in command.said
    digest = hashlib.sha256((terminal.folder / "weights.bin").read_bytes()).hexdigest()
    assert sorted(command.lines) == [f"[{rank}] {digest}" for rank in (0, 1)]
    terminal.check_removal("sent")


def test_larger_code_of_a_detached_run_is_sent_before_the_command_leaves(terminal: Terminal) -> None:
    (terminal.folder / "weights.bin").write_bytes(os.urandom(6 << 20))
    terminal.write("train.py", SENT)
    left = terminal.call("run", "-d", "--name", "sent", "--image", terminal.image, "-n", "2", "train.py")
    assert left.returncode == 0, left.stderr
    assert left.stdout == "sent\n"
    assert "of code to worker 0" in left.stderr
    waited = terminal.call("wait", "sent")
    assert waited.returncode == 0, waited.stderr
    digest = hashlib.sha256((terminal.folder / "weights.bin").read_bytes()).hexdigest()
    assert terminal.call("logs", "sent").stdout.count(digest) == 2
    terminal.check_removal("sent")
