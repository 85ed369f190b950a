"""The same plan as a job of Kubeflow's: taken by the real definitions and by the rules of its webhook, and
read back as what it is.
"""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.engines.kubernetes.render.dialects.judging import check_ending, condition, definition
from tests.engines.kubernetes.render.test_manifests import check_parent_is_named, dump
from tests.engines.kubernetes.rendered import CASES, SHIPPED, Case, planned, task_of
from tests.engines.kubernetes.typed import as_pod

from echelon.agent.task import Task
from echelon.engines.kubernetes import names
from echelon.engines.kubernetes.render import dialects, manifests
from echelon.engines.kubernetes.state.workers import container_name, worker_of
from echelon.errors import InvalidJob
from echelon.model.meaning import to_job
from echelon.model.pods.pod import parse_job_kind
from echelon.model.settings import Settings

GOLDEN = Path(__file__).parents[1] / "golden"
WRITTEN = {
    "pytorchjob": Case(
        said=Settings(
            name="fm",
            script="train.py",
            workers=3,
            procs=2,
            restarts=2,
            framework="torch",
            image="my/torch:2",
            job_kind="pytorchjob",
        )
    ),
    "tfjob": Case(
        said=Settings(
            name="ps-run",
            module="pkg.train",
            workers=2,
            roles={"chief": 1, "ps": 1, "evaluator": 1},
            framework="tensorflow",
            code="pvc:work/project",
            image="my/tensorflow:2",
            job_kind="tfjob",
        )
    ),
    "mpijob": Case(
        said=Settings(
            name="rings",
            script="train.py",
            workers=3,
            procs=2,
            restarts=1,
            framework="mpi",
            image="my/mpi:4",
            job_kind="mpijob",
        )
    ),
}
CONTAINERS = {"pytorchjob": "pytorch", "tfjob": "tensorflow", "mpijob": "worker"}
QUEUED = ("pytorchjob", "tfjob")  # those that can wait in a queue of Kueue's
LEADS = ("Master", "Chief", "Launcher")
OPERATORS = {
    "pytorchjob": ("training-operator", "crds/kubeflow.org_pytorchjobs.yaml"),
    "tfjob": ("training-operator", "crds/kubeflow.org_tfjobs.yaml"),
    "mpijob": (
        "job-controllers",
        "github.com/kubeflow/mpi-operator/manifests/base/kubeflow.org_mpijobs.yaml",
    ),
}


def rendered(case: Case, **options: Any) -> list[dict[str, Any]]:
    record, plan = planned(case)
    dialect = dialects.named(record.job.pod.job_kind)
    return manifests.render(record, plan, case.shipped, dialect, **options)


def job_of(case: Case) -> dict[str, Any]:
    (found,) = (each for each in rendered(case) if each["apiVersion"].startswith("kubeflow.org/"))
    return found


def specs_of(job: dict[str, Any]) -> dict[str, Any]:
    (found,) = (value for key, value in job["spec"].items() if key.endswith("ReplicaSpecs"))
    return dict(found)


def as_kind(case: Case, kind: Any) -> Case:
    queue = "team" if kind in QUEUED else None
    said = replace(
        case.said, job_kind=kind, roles=None, local_queue=queue, image=case.said.image or "my/image:1"
    )
    return replace(case, said=said)


# Whatever can be said of pods, in each kind; roles are the kinds' own.
ALL = WRITTEN | {
    f"{name} as {kind}": as_kind(CASES[name], kind) for name in ("everything", "kept") for kind in WRITTEN
}


@pytest.mark.parametrize("name", ALL)
def test_all_that_is_made_for_a_step_names_its_parent(name: str) -> None:
    check_parent_is_named(ALL[name])


@pytest.mark.parametrize("name", WRITTEN)
def test_golden(name: str) -> None:
    text, path = dump(rendered(WRITTEN[name])), GOLDEN / f"{name}.yaml"
    if os.environ.get("ECHELON_WRITE_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text()


@pytest.mark.slow  # builds the operator, where it is not in the cache
@pytest.mark.parametrize("name", ALL)
def test_the_definition_of_its_kind_takes_all_of_it(name: str) -> None:
    defined = definition(*OPERATORS[str(ALL[name].said.job_kind)])
    defined.validate(job_of(ALL[name])["spec"])


@pytest.mark.parametrize("name", ALL)
def test_the_webhook_has_nothing_against_it(name: str) -> None:
    """Its rules, which the testbed's operator does not apply."""
    kind, job = str(ALL[name].said.job_kind), job_of(ALL[name])
    assert re.fullmatch(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?", job["metadata"]["name"])
    specs = specs_of(job)
    assert specs
    for replica_type, spec in specs.items():
        assert spec["replicas"] == 1 if replica_type in LEADS else spec["replicas"] >= 1
        containers = spec["template"]["spec"]["containers"]
        assert [each["name"] for each in containers].count(CONTAINERS[kind]) == 1
        assert all(each["image"] for each in containers)


@pytest.mark.parametrize("name", ALL)
def test_every_pod_is_the_worker_that_the_plan_has(name: str) -> None:
    case = ALL[name]
    record, plan = planned(case)
    job, dialect = job_of(case), dialects.named(str(case.said.job_kind))
    pods = []
    for replica_type, spec in specs_of(job).items():
        for index in range(spec["replicas"]):  # as the controller makes it
            after = replica_type == "Worker" and job["spec"].get("runLauncherAsWorker", False)
            own = {names.REPLICA_INDEX: str(index + after), names.REPLICA_TYPE: replica_type.lower()}
            about = spec["template"]["metadata"]
            about = {**about, "name": "p", "labels": {**about["labels"], **own}}
            pods.append(as_pod({**spec["template"], "metadata": about}))
    assert sorted(map(worker_of, pods)) == list(range(len(pods))) == list(range(dialect.wanted(job)))
    assert {container_name(pod) for pod in pods} == {dialect.CONTAINER}
    selector = dialect.leader_selector(record.job.name).items()
    (leader,) = (pod for pod in pods if selector <= pod.metadata.labels.items())
    assert worker_of(leader) == 0
    task = Task(task_of(record, plan, case.shipped, dialect))
    assert (task.show_failure, task.give_way) == (False, 0.0)


def test_a_lost_leader_ends_the_job_and_others_are_replaced() -> None:
    policies = {each: spec["restartPolicy"] for each, spec in specs_of(job_of(WRITTEN["tfjob"])).items()}
    assert policies == {"Chief": "Never", "Worker": "ExitCode", "PS": "ExitCode", "Evaluator": "ExitCode"}


def test_a_lost_worker_of_an_mpijob_is_not_waited_for() -> None:
    record, plan = planned(WRITTEN["mpijob"])
    policies = {spec["restartPolicy"] for spec in specs_of(job_of(WRITTEN["mpijob"])).values()}
    task = Task(task_of(record, plan, SHIPPED, dialects.named("mpijob")))
    assert (policies, task.replaced, task.restarts) == ({"Never"}, False, 1)


def test_the_mpi_operator_adds_to_the_agents_container() -> None:
    for spec in specs_of(job_of(ALL["everything as mpijob"])).values():
        assert spec["template"]["spec"]["containers"][0]["command"][-1] == names.TASK


def test_a_service_of_the_runs_name_is_left_to_the_mpi_operator() -> None:
    record, plan = planned(WRITTEN["mpijob"])
    (service,) = (each for each in rendered(WRITTEN["mpijob"]) if each["kind"] == "Service")
    assert service["metadata"]["name"] == "rings-leader"
    task = task_of(record, plan, SHIPPED, dialects.named("mpijob"))
    assert task["leader"] == {"host": "rings-leader", "port": names.PORT}


def test_a_single_worker_is_the_master() -> None:
    single = Case(said=replace(WRITTEN["pytorchjob"].said, workers=1))
    assert {name: spec["replicas"] for name, spec in specs_of(job_of(single)).items()} == {"Master": 1}


@pytest.mark.parametrize(
    ("found", "end"),
    [
        ([], None),
        (["Created", "Running"], None),
        (["Created", "Restarting"], None),
        (["Created", "Succeeded"], ("complete", True)),
        (["Created", "Failed"], ("failed", False)),
    ],
)
def test_its_conditions_say_how_it_ended(found: list[str], end: tuple[str, bool] | None) -> None:
    job = job_of(WRITTEN["pytorchjob"]) | {"status": {"conditions": [condition(each) for each in found]}}
    said = dialects.end_of([job])
    assert (None if said is None else (said.outcome, said.final)) == end
    assert dialects.of(job).is_known(job) == bool(found)


def test_a_failure_that_was_taken_back_is_no_end() -> None:
    status = {"conditions": [condition("Failed", "False")]}
    assert dialects.end_of([job_of(WRITTEN["pytorchjob"]) | {"status": status}]) is None


def test_an_mpijob_is_ended_by_suspending_it_for_good() -> None:
    check_ending("mpijob", job_of(WRITTEN["mpijob"]))


@pytest.mark.parametrize(
    ("kind", "more", "why"),
    [
        ("pytorchjob", {"roles": {"ps": 1}}, "has no replicas for the role ps"),
        ("tfjob", {"roles": {"launcher": 1}}, "has no replicas for the role launcher"),
        ("mpijob", {"roles": {"ps": 1}}, "has no replicas for the role ps"),
        ("tfjob", {"total_gpus": 6, "shares": "any", "workers": None}, "has equal workers alone"),
    ],
)
def test_what_a_kind_cannot_express_is_refused(kind: str, more: dict[str, Any], why: str) -> None:
    said = replace(WRITTEN["pytorchjob"].said, job_kind=kind, framework="plain", procs=None, **more)  # type: ignore[arg-type]
    with pytest.raises(InvalidJob, match=why):
        dialects.named(kind).check(to_job(said, name="x"))


def test_uneven_groups_are_refused_by_the_rendering_too() -> None:
    record, plan = planned(Case(said=replace(CASES["everything"].said, job_kind="tfjob", mount=())))
    first = plan.world.groups[0]
    uneven = replace(plan, world=replace(plan.world, groups=(first, replace(first, procs=1))))
    with pytest.raises(InvalidJob, match="other types"):
        dialects.named("tfjob").render(record, uneven, SHIPPED)


@pytest.mark.parametrize("kind", QUEUED)
def test_one_that_kueue_admits_is_suspended_and_carries_the_queues_name(kind: str) -> None:
    for queue in ("team", None):
        made = job_of(replace(WRITTEN[kind], said=replace(WRITTEN[kind].said, local_queue=queue)))
        assert made["metadata"]["labels"].get("kueue.x-k8s.io/queue-name") == queue
        assert made["spec"]["runPolicy"].get("suspend", False) is (queue is not None)
        assert dialects.of(made).is_suspended(made) is (queue is not None)
        for each in specs_of(made).values():
            labels = each["template"]["metadata"]["labels"]
            assert "kueue.x-k8s.io/queue-name" not in labels, "Kueue would take its pods for others"


def test_native_and_a_queue_for_another_kind_are_refused() -> None:
    with pytest.raises(InvalidJob, match="cannot wait in a queue of Kueue's here"):
        parse_job_kind("paddlejob", queue="team")
    with pytest.raises(InvalidJob, match="has nothing to submit"):
        to_job(replace(WRITTEN["tfjob"].said, job_kind="native"), name="x")
