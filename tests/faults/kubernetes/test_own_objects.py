"""Nothing is deleted, trusted or written by its name alone, on a real cluster: a user's own objects that are
called like a run's, and records that somebody else has written.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from testbed.kubectl import Kubectl
from tests.conftest import wait_until
from tests.engines.kubernetes.ordinary import claim
from tests.faults.kubernetes.gate import Gate, check_writes
from tests.faults.kubernetes.terminal import Command, Terminal, flag_path, kubeconfig_in

from echelon.admission import plan_anywhere
from echelon.engines.kubernetes import names, record
from echelon.model.event import Event
from echelon.model.job import Job
from echelon.model.pods.pod import Output, PodOptions
from echelon.model.run import Record, RunRef

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

WAITS = f"""
import os, time
print("up", flush=True)
while not os.path.exists({flag_path("go")!r}):
    time.sleep(0.1)
open(os.environ["ECHELON_OUTPUT"] + "/made", "w").write("mine")
"""


def own_things(terminal: Terminal, name: str) -> None:
    """What the user has for a program of their own, which is called like the run."""
    about = {"metadata": {"name": name}, "apiVersion": "v1"}
    terminal.kubectl.create(
        {**about, "kind": "Secret", "stringData": {"password": "hunter2"}},
        {**about, "kind": "Service", "spec": {"ports": [{"port": 80}], "selector": {"app": name}}},
    )


def check_own_things(terminal: Terminal, name: str) -> None:
    assert terminal.kubectl.find("secret", name) is not None
    assert terminal.kubectl.find("service", name) is not None


@pytest.fixture
def gate(namespace: Kubectl, own_cluster: object, tmp_path: Path) -> Iterator[Gate]:
    with Gate(namespace, tmp_path) as opened:
        yield opened


def test_killed_as_it_ships_and_removed(terminal: Terminal, gate: Gate, tmp_path: Path) -> None:
    terminal.write("hello.py", "print('hello')")
    own_things(terminal, "app1")
    through = replace(terminal, kubeconfig=kubeconfig_in(terminal.kubectl, tmp_path / "gate", gate.url))
    gate.watch((2, "before"))
    command = through.start("run", "-d", "--name", "app1", "--image", terminal.image, "hello.py")
    gate.arm(command.process.kill)
    command.wait()
    check_writes(gate.writes, ["POST configmaps", "POST configmaps", "POST secrets", "POST services"], 2)
    removed = terminal.call("rm", "app1")
    assert removed.returncode == 0, removed.stderr
    assert "since run app1 did not make them: Secret app1, Service app1" in removed.stderr
    check_own_things(terminal, "app1")
    assert terminal.kubectl.find("configmap", "app1") is None
    refused = terminal.call("run", "--name", "app1", "--image", terminal.image, "hello.py")
    assert refused.returncode != 0
    assert "not echelon's" in refused.stderr
    check_own_things(terminal, "app1")
    assert terminal.kubectl.find("configmap", "app1") is None, "nothing is left of a submission that failed"


def forged(run: Record, **notes: object) -> dict[str, Any]:
    """A record as a client would write it, and as anybody may."""
    made = record.new(run, record.Shipped())
    made["metadata"]["annotations"] |= {
        f"echelon.dev/{key}": json.dumps(value) for key, value in notes.items()
    }
    return made


@pytest.mark.core
def test_a_record_that_cannot_be_read_takes_nothing_with_it(terminal: Terminal) -> None:
    own_things(terminal, "app1")
    own = {names.RUN: "app1", names.COMPONENT: names.WORKER, names.MANAGED_BY: "echelon"}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "app1", "labels": own}}
    container = {"name": "worker", "image": terminal.image, "command": ["true"]}
    spec = {"suspend": True, "template": {"spec": {"restartPolicy": "Never", "containers": [container]}}}
    terminal.kubectl.create({**job, "spec": spec})
    found = terminal.kubectl.find("job", "app1")
    assert found is not None
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "app1", "uid": found["metadata"]["uid"]}
    about = {"name": "app1", "labels": {**own, names.COMPONENT: names.RECORD}, "ownerReferences": [owner]}
    terminal.kubectl.create(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": about, "data": {"record.json": "{"}}
    )
    listed = terminal.call("ps", "-aA")
    assert "damaged" in listed.stdout
    removed = terminal.call("rm", "app1")
    assert removed.returncode == 0, removed.stderr
    assert "did not make them: Job app1, Secret app1, Service app1" in removed.stderr
    assert terminal.kubectl.find("configmap", "app1") is None
    assert terminal.kubectl.find("job", "app1") is not None
    check_own_things(terminal, "app1")


def test_a_forged_record_takes_no_volume_with_it(terminal: Terminal) -> None:
    terminal.kubectl.create(claim("prod-results"))
    job = Job(name="prod", command=("true",), pod=PodOptions(image="x", output=Output(size=10 << 20)))
    run = Record(ref=RunRef(engine="k8s", name="prod"), job=job, created=1e9, owner="eve", user="eve")
    collected = {"at": 1e9, "host": socket.gethostname(), "path": str(terminal.folder / "runs/prod")}
    made = forged(run, collected=collected)
    made["data"] |= record.finished(Event(kind="finished", at=1e9, outcome="succeeded", exit_code=0))["data"]
    terminal.kubectl.create(made)
    removed = terminal.call("rm", "prod")
    assert removed.returncode == 0, removed.stderr
    assert "did not make them: PersistentVolumeClaim prod-results" in removed.stderr
    assert terminal.kubectl.find("configmap", "prod") is None
    kept = terminal.kubectl.find("pvc", "prod-results")
    assert kept is not None
    assert "deletionTimestamp" not in kept["metadata"]


def train(terminal: Terminal, *, detached: bool) -> Command:
    """A run that is under way and waits for a flag, in the foreground or not."""
    terminal.write("waits.py", WAITS)
    command = terminal.train("mine", *(["-d"] if detached else []), "waits.py")
    if not detached:
        command.wait_for("up\n")
        return command
    assert command.wait() == 0, command
    terminal.kubectl.wait_for(
        lambda: [pod["status"]["phase"] for pod in terminal.pods("mine")] == ["Running"], "the worker"
    )
    return command


@pytest.mark.parametrize("how", ["run", "get"])
def test_results_are_fetched_whatever_the_record_says(terminal: Terminal, how: str) -> None:
    command = train(terminal, detached=how == "get")
    said = {"at": 1e9, "host": socket.gethostname(), "path": str(terminal.folder / "runs/mine")}
    note = {"metadata": {"annotations": {"echelon.dev/collected": json.dumps(said)}}}
    terminal.kubectl.patch("configmap", "mine", note)
    (pod,) = terminal.pods("mine")
    terminal.raise_flag(pod["metadata"]["name"], "go")
    if how == "get":
        terminal.kubectl.wait_for(
            lambda: terminal.status("mine")["state"] == "succeeded", "the end of the run"
        )
        refused = terminal.call("rm", "mine")
        assert "were not fetched yet" in refused.stderr
        done = terminal.call("get", "mine")
        assert done.returncode == 0, done.stderr
    else:
        assert command.wait() == 0, command
    assert terminal.read("mine", "made") == "mine"
    terminal.check_removal("mine")


@pytest.mark.parametrize("how", ["run", "wait"])
def test_a_run_goes_on_whatever_end_the_record_has(terminal: Terminal, how: str) -> None:
    """Its leader says nothing of an end: nobody collects, lets workers go or removes it."""
    command = train(terminal, detached=how == "wait")
    end = Event(kind="finished", at=1e9, outcome="succeeded", exit_code=0)
    said = {"at": 1e9, "host": socket.gethostname(), "path": str(terminal.folder / "runs/mine")}
    note = {"metadata": {"annotations": {"echelon.dev/collected": json.dumps(said)}}}
    terminal.kubectl.patch("configmap", "mine", {**note, "data": record.finished(end)["data"]})
    assert terminal.status("mine")["state"] in ("starting", "running")
    refused = terminal.call("rm", "mine")
    assert "has not ended" in refused.stderr
    waiting = command if how == "run" else terminal.start("wait", "mine")
    early = terminal.call("get", "mine")
    assert not (terminal.folder / "runs/mine/made").exists(), early.stderr
    (pod,) = terminal.pods("mine")
    assert pod["status"]["phase"] == "Running"
    assert waiting.process.poll() is None
    terminal.raise_flag(pod["metadata"]["name"], "go")
    assert waiting.wait() == 0, waiting
    assert terminal.read("mine", "made") == "mine"
    terminal.check_removal("mine")


def listed(terminal: Terminal, run: str) -> dict[str, Any]:
    done = terminal.call("ps", "-a", "-o", "json")
    assert done.returncode == 0, done.stderr
    (found,) = (row for row in json.loads(done.stdout) if row["name"] == run)
    return dict(found)


def test_an_end_that_the_job_contradicts_is_not_believed(terminal: Terminal) -> None:
    """Nothing of the run is alive that could be asked: its Job has failed, by the code of its leader."""
    terminal.write("fails.py", "raise SystemExit(3)")
    command = terminal.train("mine", "fails.py")
    assert command.wait() == 3, command
    end = Event(kind="finished", at=1e9, outcome="succeeded", exit_code=0)
    terminal.kubectl.patch("configmap", "mine", {"data": record.finished(end)["data"]})
    wait_until(lambda: listed(terminal, "mine")["state"] in ("failed", "lost"), "ps to show how it ended")
    assert terminal.status("mine")["state"] == "failed", "its leader's pod is there, and has said so"
    terminal.kubectl("delete", "pods", "--all", "--now")
    assert terminal.status("mine")["state"] == "lost"
    assert listed(terminal, "mine")["state"] == "lost"
    terminal.check_removal("mine")


def test_an_end_that_nothing_but_the_record_tells_is_shown_as_that(terminal: Terminal) -> None:
    terminal.write("hello.py", "print('hello')")
    command = terminal.train("mine", "hello.py")
    assert command.wait() == 0, command
    assert not listed(terminal, "mine")["reason"]
    terminal.kubectl("delete", "job", "mine", "--cascade=orphan")
    row = listed(terminal, "mine")
    assert (row["state"], row["reason"]) == ("succeeded", None)  # `ps` does not look at each such run
    shown = terminal.status("mine")
    assert (shown["state"], shown["reason"]) == (
        "succeeded",
        "only its record says so: its Jobs and pods are gone",
    )
    assert terminal.call("rm", "mine").returncode == 0


def test_a_text_of_200_kb_is_no_answer_of_200_kb(terminal: Terminal) -> None:
    job = Job(name="long", command=("true",), pod=PodOptions(image="x"))
    run = Record(ref=RunRef(engine="k8s", name="long"), job=job, created=1e9, owner="e" * 10**5, user="eve")
    made = forged(run, stop={"at": 1e9, "reason": "\u202e" + "s" * 10**5, "outcome": "failed"})
    text = "\x9b31m" + "r" * 200_000
    end = Event(kind="finished", at=1e9, outcome="failed", exit_code=1, reason=text)
    made["data"] |= record.finished(end, plan=plan_anywhere(replace(job, framework="plain")))["data"]
    terminal.kubectl.create(made)
    for words in (
        ["ps", "-aA"],
        ["ps", "-aA", "-o", "json"],
        ["ps", "-aA", "-o", "yaml"],
        ["status", "long"],
    ):
        done = terminal.call(*words)
        assert done.returncode == 0, done.stderr
        assert "rrrr" in done.stdout
        assert len(done.stdout + done.stderr) < 20_000
        assert not {"\x9b", "\u202e"} & set(done.stdout + done.stderr)
