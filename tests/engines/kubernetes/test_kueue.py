"""`--local-queue`: the Job that Kueue admits, and what is refused before there is one."""

from __future__ import annotations

import json
from typing import Literal

import pytest
from tests.engines.kubernetes.api_server import ApiServer
from tests.engines.kubernetes.rendered import SHIPPED, cluster, record_of
from tests.engines.kubernetes.stand_in import StandIn, refuses, says

from echelon.engines.kubernetes import control, names, objects, record
from echelon.engines.kubernetes.client.api import Api
from echelon.engines.kubernetes.prerequisites.namespace import check_queue
from echelon.engines.kubernetes.render import dialects
from echelon.engines.kubernetes.render.dialects import job as dialect
from echelon.engines.kubernetes.render.manifests import owner_reference
from echelon.engines.kubernetes.render.payload import map_names
from echelon.errors import Unavailable
from echelon.model.job import Job
from echelon.model.meaning import to_job
from echelon.model.run import RunRef
from echelon.model.settings import Settings
from echelon.placement import NoRoom
from echelon.planning import fit

KINDS = {
    "kind": "APIResourceList",
    "resources": [{"name": "localqueues", "kind": "LocalQueue", "namespaced": True}],
}


def in_queue(name: str | None = "team") -> Job:
    return to_job(
        Settings(script="t.py", workers=2, gpus=1, framework="plain", image="x", local_queue=name),
        name="demo",
    )


def test_its_job_is_suspended_and_carries_the_queues_name() -> None:
    for wanted, queue in ((in_queue(), "team"), (in_queue(None), None)):
        plan = fit(wanted, cluster())
        assert not isinstance(plan, NoRoom)
        (made,) = dialect.render(record_of(wanted), plan, SHIPPED)
        assert made["spec"]["suspend"] is (queue is not None)
        assert made["metadata"]["labels"].get("kueue.x-k8s.io/queue-name") == queue


@pytest.mark.parametrize("kind", ["job", "pytorchjob", "tfjob"])
def test_one_that_waits_is_deleted_by_a_stop_and_its_record_stays(
    kind: Literal["job", "pytorchjob", "tfjob"],
) -> None:
    """Kueue suspends a job that is started without its quota, so that it would not end."""
    said = Settings(script="t.py", workers=2, framework="plain", image="x", local_queue="team", job_kind=kind)
    wanted, server = to_job(said, name="demo"), ApiServer()
    known = server.api.create(record.new(record_of(wanted), SHIPPED))
    ref = RunRef(engine="k8s", name="demo", namespace="team")
    plan = fit(wanted, cluster())
    assert not isinstance(plan, NoRoom)
    own = {"labels": {names.RUN: "demo"}, "ownerReferences": [owner_reference(known)]}
    server.api.create(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": map_names("demo", SHIPPED)[0], **own}}
    )
    server.api.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "other"}})
    for each in ("Secret", "Service"):
        server.api.create({"apiVersion": "v1", "kind": each, "metadata": {"name": "demo", **own}})
    stored = record.read(known, ref)
    (made,) = dialects.named(kind).render(stored.run, plan, SHIPPED)
    (job,) = [server.api.create(made)]
    objects.tie_record(server.api, stored, [job])
    assert server.objects["ConfigMap", "demo"]["metadata"]["ownerReferences"]

    control.end_run(server.api, stored, [job])
    assert {*server.objects} == {("ConfigMap", "demo"), ("ConfigMap", "other")}
    assert not server.objects["ConfigMap", "demo"]["metadata"]["ownerReferences"]
    control.end_run(server.api, stored, [job])


def test_without_kueue_it_is_refused(api: Api, stand_in: StandIn) -> None:
    stand_in.answer_with(refuses(404, "NotFound", "the server could not find the requested resource"))
    with pytest.raises(Unavailable, match="Kueue is not installed"):
        check_queue(api, in_queue())


@pytest.mark.parametrize("versions", [["v1beta2"], ["v1beta2", "v1beta1"]])
def test_without_that_queue_it_is_refused(api: Api, stand_in: StandIn, versions: list[str]) -> None:
    """The newest version that the cluster serves is asked, which is found out once."""
    *absent, served = versions
    kinds = says(200, json.dumps(KINDS).encode())
    missing = refuses(404, "NotFound", "the server could not find the requested resource")
    no_queue = refuses(404, "NotFound", 'localqueues "team" not found')
    stand_in.answer_with(*[missing for _ in absent], kinds, no_queue, no_queue)
    for _ in range(2):
        with pytest.raises(Unavailable, match="no LocalQueue team in namespace"):
            check_queue(api, in_queue())
    queue = f"/apis/kueue.x-k8s.io/{served}/namespaces/{api.namespace}/localqueues/team"
    asked = [path.partition("?")[0] for path in stand_in.paths()]
    assert asked == [*(f"/apis/kueue.x-k8s.io/{version}" for version in versions), queue, queue]


def test_with_it_all_is_well_and_without_the_flag_nothing_is_asked(api: Api, stand_in: StandIn) -> None:
    there = {"kind": "PartialObjectMetadata", "metadata": {"name": "team"}}
    stand_in.answer_with(says(200, json.dumps(KINDS).encode()), says(200, json.dumps(there).encode()))
    check_queue(api, in_queue())
    asked = len(stand_in.seen)
    check_queue(api, in_queue(None))
    assert len(stand_in.seen) == asked
