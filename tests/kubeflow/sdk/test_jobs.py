"""Jobs suspended and resumed: what is done to their runs."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from echelon.engines.memory.engine import MemoryEngine
from echelon.engines.memory.script import Act
from echelon.errors import InvalidJob
from echelon.kubeflow.sdk.jobs import Selection, carry_out, find_change, find_pods, read_logs
from echelon.kubeflow.sdk.shape import Shape, as_document
from echelon.model.engine.traits import Traits
from echelon.model.job import Job, Role
from echelon.model.pods.pod import Output, PodOptions
from echelon.model.resources import Resources
from echelon.model.run import RunRef
from echelon.submit import Prepared, submit

CURRENT: dict[str, Any] = {
    "kind": "PyTorchJob",
    "metadata": {"name": "a", "labels": {"team": "x"}, "creationTimestamp": 1},
    "spec": {
        "runPolicy": {"backoffLimit": 0, "suspend": False},
        "pytorchReplicaSpecs": {
            "Master": {"replicas": 1, "template": {"spec": {"containers": [{"name": "pytorch"}]}}}
        },
    },
    "status": {"conditions": []},
}


def test_a_job_is_suspended_and_resumed() -> None:
    job = Shape(deepcopy(CURRENT))
    assert find_change(CURRENT, as_document(job)) is None
    job.spec.run_policy.suspend = True
    suspended = as_document(job)
    assert find_change(CURRENT, suspended) == "suspend"
    assert find_change(suspended, {"spec": {"runPolicy": {"suspend": False}}}) == "resume"


def test_what_a_shown_template_lacks_is_no_change() -> None:
    given = deepcopy(CURRENT)
    given["metadata"] |= {"creationTimestamp": 7, "resourceVersion": "3"}
    given["status"] = None
    pod = given["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]
    pod["volumes"] = [{"name": "v"}]
    pod["containers"][0]["ports"] = [{"containerPort": 1}]
    assert find_change(CURRENT, given) is None


@pytest.mark.parametrize(
    ("given", "path"),
    [
        ({"spec": {"pytorchReplicaSpecs": {"Master": {"replicas": 2}}}}, "Master.replicas"),
        ({"spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 2}}}}, "pytorchReplicaSpecs.Worker"),
        ({"spec": {"runPolicy": {"suspend": True, "activeDeadlineSeconds": 9}}}, "activeDeadlineSeconds"),
        ({"spec": {"runPolicy": {"suspend": "yes"}}}, "runPolicy.suspend"),
        ({"metadata": {"labels": {"team": "y"}}}, "metadata.labels.team"),
        ({"kind": "TFJob"}, "kind"),
        ("a", "job"),
    ],
)
def test_all_else_is_refused_by_its_path(given: Any, path: str) -> None:
    with pytest.raises(InvalidJob) as refused:
        find_change(CURRENT, given)
    assert refused.value.field.endswith(path)


class Remote(MemoryEngine):
    """Its workers write their results to a volume, or lose them."""

    traits = Traits(place="a remote engine", remote=True)


def test_a_run_that_could_not_go_on_is_not_suspended() -> None:
    lost = Job(name="lost", script="train.py", framework="plain")
    run = submit(Prepared(job=lost), Remote({"train.py": Act(lasts=True)}))
    with pytest.raises(InvalidJob, match="ends the run for good: its results are on no volume"):
        carry_out("suspend", run, lost)
    assert run.status().state == "running"
    kept = Job(name="lost", script="train.py", framework="plain", pod=PodOptions(output=Output(claim="a")))
    carry_out("suspend", run, kept)
    assert run.status().state == "stopped"
    carry_out("suspend", run, kept)
    carry_out(None, run, kept)
    assert run.status().state == "stopped"


class Pods(Remote):
    """Its workers are pods, which take a few looks to be made."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.manifests: Any = self
        self.looks = 0

    def pods(self, _ref: RunRef) -> dict[int, dict[str, Any]]:
        self.looks += 1
        own = {"metadata": {"name": "a-0-xyz", "labels": {"team": "vision"}}}
        return {0: own, 1: {"metadata": {"name": "a-1-xyz"}}} if self.looks > 1 else {}


def test_pods_have_the_labels_that_programs_read() -> None:
    engine = Pods({"train.py": Act(lasts=True)})
    run = submit(Prepared(job=Job(name="a", script="train.py", framework="torch", workers=2)), engine)
    engine.looks = 5
    ref = RunRef(engine="memory", name=run.name)
    first, second = (pod for _, pod in find_pods(engine, ref, Selection()))
    assert first.metadata.labels["team"] == "vision"
    assert first.metadata.labels["training.kubeflow.org/job-role"] == "master"
    assert second.metadata.labels["training.kubeflow.org/replica-type"] == "worker"
    assert second.metadata.labels["training.kubeflow.org/replica-index"] == "0"


def test_the_lines_of_pods_that_were_not_there_yet(capsys: pytest.CaptureFixture[str]) -> None:
    """Kubeflow's guide has the logs right after the job."""
    engine = Pods({"train.py": Act(lines=("at work",))})
    run = submit(Prepared(job=Job(name="a", script="train.py", framework="torch", workers=2)), engine)
    ref = RunRef(engine="memory", name=run.name)
    assert read_logs(engine, ref, Selection(is_master=True), follow=True) == {"a-0-xyz": "at work\n"}
    assert capsys.readouterr().out == "[Pod a-0-xyz]: at work\n"
    engine.looks = -9
    assert read_logs(engine, ref, Selection(is_master=True), follow=False) == {"a-master-0": "at work\n"}


@pytest.mark.parametrize(("chiefs", "masters"), [(1, ["chief"]), (0, ["worker"])])
def test_a_tfjob_has_one_master(chiefs: int, masters: list[str]) -> None:
    """Its Chief, else its first Worker."""
    chief = Role(name="chief", workers=1, resources=Resources())
    job = Job(name="a", script="train.py", framework="tensorflow", workers=2, roles=(chief,) * chiefs)
    engine = MemoryEngine({"train.py": Act(lasts=True)})
    run = submit(Prepared(job=job), engine)
    pods = find_pods(engine, RunRef(engine="memory", name=run.name), Selection(is_master=True))
    assert [pod.metadata.labels["training.kubeflow.org/replica-type"] for _, pod in pods] == masters
