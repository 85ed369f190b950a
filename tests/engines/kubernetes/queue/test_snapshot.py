"""Jobs as the queue's policy sees them: what a user writes into a Job moves no other run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from tests.engines.kubernetes.rendered import SHIPPED, cluster, record_of
from tests.engines.kubernetes.typed import typed

from echelon.admission import plan_anywhere
from echelon.engines.kubernetes import ledger, names, shapes
from echelon.engines.kubernetes.nodes.inventory import Seen
from echelon.engines.kubernetes.queue import snapshot
from echelon.engines.kubernetes.record import Waiting
from echelon.engines.kubernetes.render.dialects import InQueue
from echelon.engines.kubernetes.render.dialects import job as dialect
from echelon.engines.kubernetes.render.manifests import started_objects
from echelon.model.job import Job
from echelon.model.meaning import to_job
from echelon.model.plan import Plan
from echelon.model.settings import Settings
from echelon.placement import NoRoom
from echelon.planning import fit

MADE = 1767225600.0  # 2026-01-01


def job(**more: Any) -> Job:
    return to_job(
        Settings(script="t.py", workers=2, gpus=1, framework="plain", image="x", **more), name="demo"
    )


def first_job(wanted: Job, *, created: float = MADE) -> tuple[dict[str, Any], Plan]:
    plan = fit(wanted, cluster())
    assert not isinstance(plan, NoRoom)
    run = replace(record_of(wanted), created=created)
    (made,) = started_objects(run, plan, SHIPPED, dialect).jobs
    made["metadata"] |= {
        "namespace": "team",
        "uid": "1",
        "resourceVersion": "7",
        "creationTimestamp": "2026-01-01T00:00:00Z",
    }
    made["metadata"]["annotations"] |= ledger.queued(made, [Waiting(at=MADE, reason="no room")], at=MADE)[
        "metadata"
    ]["annotations"]
    return made, plan


def waiting(wanted: Job, notes: Mapping[str, str] | None = None, *, created: float = MADE) -> InQueue:
    made, _ = first_job(wanted, created=created)
    made["metadata"]["annotations"] |= notes or {}
    found = dialect.in_queue(typed(dialect.Shape, [made])[0])
    assert found is not None
    return found


def test_a_run_that_waits() -> None:
    wanted = job(priority=2)
    found = snapshot.queued_run(waiting(wanted), wanted)
    assert found is not None
    assert (found.name, found.namespace, found.gpus, found.priority) == ("team/demo", "team", 2, 2)
    assert (found.since, found.noted) == (MADE, "no room")
    assert found.user == record_of(wanted).owner


@pytest.mark.parametrize(
    ("created", "since"), [(0.0, MADE - 5), (MADE - 3, MADE - 3), (MADE + 900, MADE + 5)]
)
def test_the_age_of_a_run_is_the_api_servers(created: float, since: float) -> None:
    wanted = job()
    found = snapshot.queued_run(waiting(wanted, created=created), wanted)
    assert found is not None
    assert found.since == since


def test_without_its_record_a_run_is_as_its_jobs_describe_it() -> None:
    wanted = job(timeout="1h")
    found = snapshot.queued_run(waiting(wanted), None)
    assert found is not None
    assert (found.gpus, found.job.timeout, found.job.workers) == (2, 3600.0, 2)
    assert found.world is not None
    assert snapshot.queued_run(waiting(wanted, {names.PLAN: "anything"}), None) is None


def test_who_holds_what_and_until_when() -> None:
    made, _ = first_job(job(timeout="1h"))
    made["spec"]["suspend"] = False
    made["metadata"]["annotations"] |= {names.ADMITTED: "1000"}
    (found,) = snapshot.holding_runs(seen_with(made), "mine")
    assert (found.name, found.gpus, found.ends) == ("team/demo", 2, 4600.0)
    del made["metadata"]["annotations"][names.NODES]
    (found,) = snapshot.holding_runs(seen_with(made), "mine")
    assert found.gpus == 2, "workers without a planned node count too"
    assert snapshot.unplaced_runs(seen_with(made), "mine") == []


def seen_with(*jobs: dict[str, Any], bound: int = 0, all_namespaces: bool = True) -> Seen:
    """These Jobs, and so many pods on nodes of the first."""
    read = typed(dialect.Shape, list(jobs))
    pods = [
        {
            "metadata": {
                "name": f"p{index}",
                "namespace": "team",
                "labels": {names.JOB_NAME: "demo", names.COMPLETION_INDEX: str(index), names.RUN: "demo"},
            },
            "spec": {"nodeName": "a", "containers": []},
            "status": {"phase": "Running"},
        }
        for index in range(bound)
    ]
    return Seen(
        nodes=[],
        pods=typed(shapes.Occupant, pods),
        places=[place for each in read for place in dialect.places(each)],
        in_kueue=[found for each in read if (found := dialect.in_kueue(each)) is not None],
        all_namespaces=all_namespaces,
    )


def left_to_the_scheduler(wanted: Job) -> dict[str, Any]:
    """The Job of a detached run that fits no node now."""
    plan = plan_anywhere(wanted)
    (made,) = dialect.render(record_of(wanted), plan, SHIPPED)
    made["metadata"] |= {"namespace": "team", "uid": "1", "creationTimestamp": "2026-01-01T00:00:00Z"}
    return made


def test_a_detached_run_waits_for_the_scheduler_and_holds_what_its_pods_on_nodes_have() -> None:
    made = left_to_the_scheduler(job())
    for bound, holds, reason in (
        (0, 0, "the scheduler has no node for 2 workers yet"),
        (1, 1, "the scheduler has no node for 1 worker yet"),
        (2, 2, ""),
    ):
        seen = seen_with(made, bound=bound)
        assert sum(each.gpus for each in snapshot.holding_runs(seen, "mine")) == holds
        waits = snapshot.unplaced_runs(seen, "mine")
        assert [each.reason for each in waits] == ([reason] if reason else [])
        assert sum(each.gpus for each in waits) == 2 - holds
    unseen = seen_with(made, all_namespaces=False)
    assert snapshot.unplaced_runs(unseen, "mine") == [], "their pods may not be listed"
    assert len(snapshot.unplaced_runs(unseen, "team")) == 1


def test_a_run_that_kueue_has_not_admitted_is_told_with_its_queue() -> None:
    made = left_to_the_scheduler(job(local_queue="gold"))
    (waits,) = snapshot.runs_in_kueue(seen_with(made))
    assert (waits.name, waits.position, waits.gpus, waits.since) == ("team/demo", 0, 2, MADE)
    assert waits.reason == "in Kueue's queue gold"
    assert snapshot.unplaced_runs(seen_with(made), "mine") == []
    made["spec"]["suspend"] = False
    assert snapshot.runs_in_kueue(seen_with(made)) == []


def test_a_run_that_somebody_else_has_suspended_is_not_in_the_queue() -> None:
    made, _ = first_job(job())
    made["metadata"]["annotations"][names.ADMITTED] = str(MADE + 1)
    assert dialect.in_queue(typed(dialect.Shape, [made])[0]) is None


def test_jobs_that_see_the_same_have_the_same_view() -> None:
    asked: list[str] = []

    def nodes_with(selector: str) -> list[shapes.Node]:
        asked.append(selector)
        return []

    seen = Seen(nodes=[], pods=[], places=[])
    view = snapshot.views_of(seen, nodes_with)
    assert view(job()) is view(job(timeout="1h"))
    chosen = job(node_selector={"zone": "a"})
    assert view(chosen) is view(chosen)
    assert view(chosen) is not view(job())
    assert asked == ["zone=a"]
    hidden = snapshot.views_of(replace(seen, nodes=None), nodes_with)
    assert not hidden(job()).known


def test_a_run_that_may_not_wait_is_not_admitted_again() -> None:
    back = ledger.queued(
        {"metadata": {"resourceVersion": "7"}}, [Waiting(at=2.0, reason="no node", admitted=1.0)], at=2.0
    )
    found = waiting(job(), back["metadata"]["annotations"])
    assert found.again
    assert snapshot.queued_run(found, job()) is not None
    hasty = replace(job(), no_wait=True)
    assert snapshot.queued_run(found, hasty) is None
    assert snapshot.queued_run(waiting(job()), hasty) is not None, "it was not admitted yet"
