"""What is settled of a job for pods: requests, and the user's patch."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.engines.kubernetes.rendered import CASES, planned

from echelon.engines.kubernetes.render.dialects import job as job_dialect
from echelon.errors import InvalidJob
from echelon.model.job import Job, Role
from echelon.model.pods.patch import VOLUMES
from echelon.model.resources import Amount, Resources
from echelon.model.settings import Settings
from echelon.preparation.pods import CPUS, MEMORY, settle_pods


def job(**more: object) -> Job:
    return Job(name="fm", script="train.py", **more)  # type: ignore[arg-type]


def test_no_pod_is_without_requests(tmp_path: Path) -> None:
    given = Resources(cpus=Amount(request=2.0, limit=4.0))
    settled = settle_pods(
        job(resources=given, roles=(Role(name="ps", workers=1, resources=Resources()),)), Settings(), tmp_path
    )
    assert (settled.resources.cpus, settled.resources.memory) == (given.cpus, MEMORY)
    assert (settled.roles[0].resources.cpus, settled.roles[0].resources.memory) == (CPUS, MEMORY)


def test_a_patch_is_read_checked_and_applied_last(tmp_path: Path) -> None:
    (tmp_path / "patch.yaml").write_text("spec: {terminationGracePeriodSeconds: 300, dnsPolicy: Default}\n")
    settled = settle_pods(job(), Settings(pod_patch="patch.yaml"), tmp_path)
    record, plan = planned(CASES["plain"])
    record = replace(record, job=replace(record.job, pod=settled.pod))
    (made,) = job_dialect.render(record, plan, CASES["plain"].shipped)
    spec = made["spec"]["template"]["spec"]
    assert (spec["terminationGracePeriodSeconds"], spec["dnsPolicy"]) == (300, "Default")
    assert {*VOLUMES} < {each["name"] for each in spec["volumes"]}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (None, "cannot be read: No such file"),
        ("a: [", "cannot be read: "),
        ("- a", "is not a mapping"),
        ("spec: {restartPolicy: Always}", "must stay as echelon sets it"),
    ],
)
def test_a_patch_that_is_none(tmp_path: Path, text: str | None, problem: str) -> None:
    if text is not None:
        (tmp_path / "patch.yaml").write_text(text)
    with pytest.raises(InvalidJob) as caught:
        settle_pods(job(), Settings(pod_patch="patch.yaml"), tmp_path)
    assert problem in str(caught.value)
