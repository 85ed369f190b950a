"""What another user of the namespace writes, on a real cluster: pods and Jobs that carry a run's labels, a
record with garbage in it, a record that names a folder of the reader's, escape sequences.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from testbed.kubectl import Kubectl
from tests.conftest import wait_until
from tests.faults.kubernetes.terminal import Terminal

from echelon.engines.kubernetes.doctor.rights import MINIMAL_ROLE

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

TITLE = "\x1b]0;mine now\x07"
STAYS = """
import os, time
print("up", flush=True)
open(os.environ["ECHELON_OUTPUT"] + "/made", "w").write("mine")
while True:
    time.sleep(0.1)
"""
QUICK = "import os\nopen(os.environ['ECHELON_OUTPUT'] + '/authorized_keys', 'w').write('theirs')\n"
FORGED = "import time\nprint('1767225600.004 0 [0] forged', flush=True)\ntime.sleep(600)\n"


def forged(pod: dict[str, Any], **about: Any) -> dict[str, Any]:
    """A pod with the labels and annotations of a run's own, which anybody may give to theirs."""
    own = pod["metadata"]
    container = {
        "name": "worker",
        "image": pod["spec"]["containers"][0]["image"],
        "imagePullPolicy": "IfNotPresent",
        "env": [{"name": "ECHELON_FIRST_WORKER", "value": "0"}],
        "command": ["python3", "-c", FORGED],
    }
    labels = {key: value for key, value in own["labels"].items() if "controller-uid" not in key}
    metadata = {"name": "forged", "labels": labels, "annotations": own["annotations"], **about}
    spec = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def test_a_pod_that_only_carries_the_labels_is_no_worker(terminal: Terminal) -> None:
    terminal.write("stays.py", STAYS)
    command = terminal.train("mine", "stays.py")
    command.wait_for("up\n")
    (pod,) = terminal.pods("mine")
    terminal.kubectl.create(forged(pod))

    def runs() -> bool:
        found = terminal.kubectl.find("pod", "forged")
        return found is not None and found["status"]["phase"] == "Running"

    wait_until(runs, "the forged pod to run", 120)
    status = terminal.status("mine")
    assert status["state"] == "running"
    assert "forged" not in terminal.call("logs", "mine").stdout
    done = terminal.call("exec", "mine", "--", "sh", "-c", "echo $HOSTNAME")
    assert done.stdout == "mine-0\n", done.stderr
    got = terminal.call("get", "mine", "made", "--to", "there")
    assert (terminal.folder / "there" / "made").read_text() == "mine", got.stderr
    stopped = terminal.call("stop", "--now", "mine")
    assert stopped.returncode == 0, stopped.stderr
    command.wait()
    assert "forged" not in "".join(command.lines)
    terminal.kubectl("delete", "pod", "forged", "--wait=false")
    terminal.check_removal("mine")


def test_garbage_in_a_record_breaks_no_command_for_others(terminal: Terminal, tmp_path: Path) -> None:
    victim = tmp_path / ".ssh"
    victim.mkdir()
    (victim / "authorized_keys").write_text("mine")
    terminal.write("quick.py", QUICK)
    assert terminal.train("theirs", "quick.py").wait() == 0
    found = terminal.kubectl.find("configmap", "theirs")
    assert found is not None
    record = json.loads(found["data"]["record.json"])
    record["results"] = str(victim)
    record["job"] |= {"script": None, "command": [f"a{TITLE}b"]}
    notes = {"echelon.dev/schema": "1", "echelon.dev/tended": "abc", "echelon.dev/tender": "{"}
    change = {"metadata": {"annotations": notes}, "data": {"record.json": json.dumps(record)}}
    terminal.kubectl.patch("configmap", "theirs", change)
    about = {"name": "broken", "labels": {**found["metadata"]["labels"], "echelon.dev/run": "broken"}}
    data = {"record.json": "{", "queued.json": "[]"}
    terminal.kubectl.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": about, "data": data})

    (tmp_path / "other").mkdir()
    other = replace(terminal, folder=tmp_path / "other", state=tmp_path / "other-state")
    listed = {row["name"]: row for row in json.loads(other.call("ps", "-aA", "-o", "json").stdout)}
    assert listed["broken"]["state"] == "damaged"
    assert listed["theirs"]["state"] == "succeeded"
    for words in (
        ["ps", "-aA"],
        ["status", "theirs"],
        ["status", "broken"],
        ["top", "--once"],
        ["wait", "theirs"],
    ):
        done = other.call(*words)
        assert done.returncode == 0, (words, done.stderr)
        assert "Traceback" not in done.stderr
        assert "\x1b" not in done.stdout + done.stderr
    other.call("get", "theirs", "--to", "here")
    assert (victim / "authorized_keys").read_text() == "mine"
    assert sorted(each.name for each in victim.iterdir()) == ["authorized_keys"]
    terminal.write("mine.py", "print('hello')")
    assert terminal.train("mine", "mine.py").wait() == 0
    for name in ("mine", "theirs", "broken"):
        done = terminal.call("rm", name)
        assert done.returncode == 0, done.stderr


def test_a_spoiled_record_costs_neither_a_running_gang_nor_what_the_keeper_has(
    terminal: Terminal, user: Callable[[str, Sequence[dict[str, Any]]], Kubectl]
) -> None:
    """Whoever may write ConfigMaps can spoil a record: `rm` of its owner does the rest no more."""
    ann = terminal.as_user(user("ann", MINIMAL_ROLE))
    ann.write("stays.py", STAYS)
    ann.write("quick.py", QUICK)
    for name, script in (("goes", "stays.py"), ("over", "quick.py")):
        started = ann.call("run", "-d", "--name", name, "--image", ann.image, "-n", "2", script)
        assert started.returncode == 0, started.stderr
    wait_until(lambda: ann.status("goes")["state"] == "running", "the gang to run")
    wait_until(lambda: ann.status("over")["kept_until"] is not None, "the keeper to have the results")

    terminal.kubectl.patch("configmap", "goes", {"data": {"record.json": "{"}})
    newer = {"metadata": {"annotations": {"echelon.dev/schema": "99"}}}
    terminal.kubectl.patch("configmap", "over", newer)
    mine, all_of_them = (
        {row["name"]: row["reason"] for row in json.loads(ann.call("ps", *words, "-o", "json").stdout)}
        for words in (["-a"], ["-a", "-A"])
    )
    assert mine == all_of_them
    assert set(mine) == {"goes", "over"}
    for name in ("goes", "over"):
        refused = ann.call("rm", name)
        assert (refused.returncode, refused.stdout) == (115, ""), refused.stderr
        assert f"Job {name}" in refused.stderr
        assert f"`echelon rm --force {name}`" in refused.stderr
    assert len([pod for pod in terminal.pods("goes") if pod["status"]["phase"] == "Running"]) == 2
    again = {"metadata": {"annotations": {"echelon.dev/schema": "2"}}}
    terminal.kubectl.patch("configmap", "over", again)
    fetched = ann.call("get", "over")
    assert fetched.returncode == 0, fetched.stderr
    assert (ann.folder / "runs/over/logs/rank-1.log").exists()
    ended = ann.call("rm", "--force", "goes")
    assert ended.returncode == 0, ended.stderr
    terminal.wait_for_nothing("goes")
    ann.check_removal("over")
