"""The same plan as a TrainJob and its runtime: taken by the real definitions, that of JobSets among them, and
by the rules of its webhook, and read back as what it is.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.engines.kubernetes.render.dialects.judging import check_ending, condition, definition
from tests.engines.kubernetes.render.test_manifests import check_parent_is_named, dump
from tests.engines.kubernetes.rendered import CASES, Case, planned, task_of
from tests.engines.kubernetes.typed import as_pod

from echelon.agent.task import Task
from echelon.engines.kubernetes import names
from echelon.engines.kubernetes.render import dialects, manifests
from echelon.engines.kubernetes.state.workers import container_name, worker_of
from echelon.errors import InvalidJob
from echelon.model.meaning import to_job
from echelon.model.settings import Settings

GOLDEN = Path(__file__).parents[1] / "golden" / "trainjob.yaml"
WRITTEN = Case(
    said=Settings(
        name="fm",
        script="train.py",
        workers=3,
        procs=2,
        restarts=2,
        framework="torch",
        image="my/torch:2",
        job_kind="trainjob",
    )
)
CRDS = "github.com/kubeflow/trainer/v2/manifests/base/crds/trainer.kubeflow.org_{}s.yaml"
DIALECT = dialects.named("trainjob")


def as_train_job(case: Case) -> Case:
    said = replace(case.said, job_kind="trainjob", local_queue=None, image=case.said.image or "my/image:1")
    return replace(case, said=said)


ALL = {"plain": WRITTEN} | {name: as_train_job(CASES[name]) for name in ("everything", "kept", "roles")}


@pytest.mark.parametrize("name", ALL)
def test_all_that_is_made_for_a_step_names_its_parent(name: str) -> None:
    check_parent_is_named(ALL[name])


def rendered(case: Case) -> dict[str, dict[str, Any]]:
    record, plan = planned(case)
    found = manifests.render(record, plan, case.shipped, DIALECT, **case.options)
    return {each["kind"]: each for each in found}


def jobs_of(case: Case) -> list[dict[str, Any]]:
    found = rendered(case)["TrainingRuntime"]["spec"]["template"]["spec"]["replicatedJobs"]
    return list(found)


def test_golden() -> None:
    record, plan = planned(WRITTEN)
    text = dump(manifests.render(record, plan, WRITTEN.shipped, DIALECT))
    if os.environ.get("ECHELON_WRITE_GOLDEN"):
        GOLDEN.write_text(text)
    assert text == GOLDEN.read_text()


@pytest.mark.slow  # builds the controllers, where they are not in the cache
@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("kind", ["TrainJob", "TrainingRuntime"])
@pytest.mark.parametrize("source", ["job-controllers", "trainer-2.3"])
def test_the_definitions_take_all_of_it(name: str, kind: str, source: str) -> None:
    defined = definition(source, CRDS.format(kind.lower()))
    defined.validate(rendered(ALL[name])[kind]["spec"])


@pytest.mark.parametrize("name", ALL)
def test_the_webhook_has_nothing_against_it(name: str) -> None:
    found, (first, *others) = rendered(ALL[name]), jobs_of(ALL[name])
    about = found["TrainJob"]["spec"]["runtimeRef"]
    assert (about["kind"], about["name"]) == ("TrainingRuntime", found["TrainingRuntime"]["metadata"]["name"])
    assert first["template"]["metadata"]["labels"] == {names.TRAINER_STEP: "trainer"}
    assert "node" in [each["name"] for each in pod_of(first)["spec"]["containers"]]
    assert not any("metadata" in each["template"] for each in others)


def pod_of(job: dict[str, Any]) -> dict[str, Any]:
    return dict(job["template"]["spec"]["template"])


@pytest.mark.parametrize("name", ALL)
def test_every_pod_is_the_worker_that_the_plan_has(name: str) -> None:
    record, plan = planned(ALL[name])
    run, pods = record.job.name, []
    for job in jobs_of(ALL[name]):
        for index in range(job["template"]["spec"]["completions"]):  # as the Job controller makes it
            own = {names.JOB_NAME: f"{run}-{job['name']}-0", names.COMPLETION_INDEX: str(index)}
            about = pod_of(job)["metadata"]
            about = {**about, "name": "p", "labels": {**about["labels"], **own}}
            pods.append(as_pod({**pod_of(job), "metadata": about}))
    job = rendered(ALL[name])["TrainJob"]
    assert sorted(map(worker_of, pods)) == list(range(len(pods))) == list(range(DIALECT.wanted(job)))
    assert {container_name(pod) for pod in pods} == {"node"}
    assert {pod.metadata.labels[names.JOB_NAME] for pod in pods} == set(DIALECT.makers(run, plan.world))
    (leader,) = (pod for pod in pods if DIALECT.leader_selector(run).items() <= pod.metadata.labels.items())
    assert worker_of(leader) == 0
    started = manifests.started_objects(record, plan, ALL[name].shipped, DIALECT, at=1.0)
    task = task_of(record, plan, ALL[name].shipped, DIALECT)
    assert not Task(task).show_failure  # JobSets end with the first Job that fails
    assert task["leader"]["host"] == rendered(ALL[name])["Service"]["metadata"]["name"]
    assert task["leader"]["host"] != run  # which is the JobSet's Service
    assert [each["kind"] for each in (*started.beside, *started.jobs)] == ["TrainingRuntime", "TrainJob"]


@pytest.mark.parametrize(
    ("status", "known", "end"),
    [
        ({}, False, None),
        ({"jobsStatus": []}, False, None),
        ({"jobsStatus": [{"name": "node"}]}, True, None),
        ({"conditions": [condition("Suspended")]}, True, None),
        ({"conditions": [condition("Complete")]}, True, ("complete", True)),
        ({"conditions": [condition("Failed")]}, True, ("failed", False)),
        ({"conditions": [condition("Failed", "False")]}, True, None),
    ],
)
def test_its_status_says_whether_a_controller_runs_it_and_how_it_ended(
    status: dict[str, Any], known: bool, end: tuple[str, bool] | None
) -> None:
    job = rendered(WRITTEN)["TrainJob"] | {"status": status}
    said = dialects.end_of([job])
    assert (None if said is None else (said.outcome, said.final)) == end
    assert dialects.of(job).is_known(job) == known


def test_it_is_ended_by_suspending_it_for_good() -> None:
    check_ending("trainjob", rendered(WRITTEN)["TrainJob"])


def test_unequal_workers_are_refused() -> None:
    said = replace(WRITTEN.said, workers=None, procs=None, total_gpus=6, shares="any", framework="plain")
    with pytest.raises(InvalidJob, match="has equal workers alone"):
        DIALECT.check(to_job(said, name="x"))
    record, plan = planned(WRITTEN)
    first = plan.world.groups[0]
    uneven = replace(plan, world=replace(plan.world, groups=(first, first, first)))
    with pytest.raises(InvalidJob, match="one Job for each role"):
        DIALECT.render(record, uneven, WRITTEN.shipped)
