"""That the objects of a run are made, adopted and removed, whatever is there already."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from tests.engines.kubernetes.rendered import CASES, SHIPPED, Case, objects_of, planned
from tests.engines.kubernetes.small import stored
from tests.engines.kubernetes.stand_in import Answer, StandIn, refuses, says

from echelon.engines.kubernetes import names, objects
from echelon.engines.kubernetes.client.access import Access
from echelon.engines.kubernetes.client.api import Api, NotThere, Object
from echelon.engines.kubernetes.render import dialects, manifests
from echelon.engines.kubernetes.render.manifests import Started
from echelon.errors import Refused

THERE = refuses(409, "AlreadyExists", 'jobs "demo" already exists')
OWNER = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "demo", "uid": "the-record"}}


@pytest.fixture
def api(access: Access) -> Api:
    return Api(access, "ours", patience=0.1)


def thing(
    kind: str = "Job", *, run: str | None = "demo", uid: str = "", owner: str = "", **more: str
) -> Object:
    about: Object = {"name": "demo", "labels": {names.RUN: run} if run else {}, **more}
    if uid:
        about["uid"] = uid
    if owner:
        about["ownerReferences"] = [{"kind": "ConfigMap", "name": "demo", "uid": owner}]
    return {"apiVersion": "batch/v1" if kind == "Job" else "v1", "kind": kind, "metadata": about}


def deeds(stand_in: StandIn) -> list[str]:
    return [seen.method for seen in stand_in.seen]


def deleted(stand_in: StandIn) -> list[str]:
    return [seen.path.rpartition("/namespaces/ours/")[2] for seen in stand_in.seen if seen.method == "DELETE"]


def test_what_is_not_there_is_made(api: Api, stand_in: StandIn) -> None:
    stand_in.answer_with(says(201, thing(uid="new")))
    assert objects.create(api, thing(), OWNER)["metadata"]["uid"] == "new"
    (owner,) = json.loads(stand_in.seen[0].body)["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"]) == ("ConfigMap", "the-record")


@pytest.mark.parametrize("owner", [None, OWNER])
def test_what_is_there_of_the_same_run_is_taken(api: Api, stand_in: StandIn, owner: Object | None) -> None:
    stand_in.answer_with(THERE, says(200, thing(uid="old", owner="the-record")))
    assert objects.create(api, thing(), owner)["metadata"]["uid"] == "old"
    assert deeds(stand_in) == ["POST", "GET"]


@pytest.mark.parametrize("owner", [None, OWNER])
def test_what_is_somebody_elses_is_left_alone(api: Api, stand_in: StandIn, owner: Object | None) -> None:
    """A Job of the user's own may have the name of a run."""
    stand_in.answer_with(THERE, says(200, thing(run=None, uid="theirs")))
    with pytest.raises(Refused, match="not echelon's") as caught:
        objects.create(api, thing(), owner)
    assert "--name" in caught.value.hint
    assert deeds(stand_in) == ["POST", "GET"]


@pytest.mark.parametrize("owner", [None, OWNER])
def test_what_is_on_its_way_out_is_waited_for(api: Api, stand_in: StandIn, owner: Object | None) -> None:
    leaving = thing(uid="old", owner="the-record", deletionTimestamp="2026-01-01T00:00:00Z")
    stand_in.answer_with(THERE, says(200, leaving), says(200, {}), says(201, thing(uid="new")))
    assert objects.create(api, thing(), owner)["metadata"]["uid"] == "new"
    assert deeds(stand_in) == ["POST", "GET", "DELETE", "POST"]


def test_what_went_between_two_looks_is_made(api: Api, stand_in: StandIn) -> None:
    stand_in.answer_with(THERE, refuses(404, "NotFound", "gone"), says(201, thing(uid="new")))
    assert objects.create(api, thing(), OWNER)["metadata"]["uid"] == "new"


def train_job() -> Started:
    run, plan = planned(Case(said=replace(CASES["plain"].said, job_kind="trainjob", image="my/image:1")))
    return manifests.started_objects(run, plan, SHIPPED, dialects.named("trainjob"))


NOT_SEEN = refuses(403, "Forbidden", "admission webhook denied the request: no such runtime")


def test_what_a_job_is_made_from_belongs_to_the_record_and_comes_first(api: Api, stand_in: StandIn) -> None:
    """Its controller may refuse the job for a moment: it has not seen the runtime."""
    stand_in.answer_with(says(201, thing()), NOT_SEEN, NOT_SEEN, says(201, thing(uid="new")))
    (made,) = objects.create_jobs(api, train_job(), stored())
    assert made["metadata"]["uid"] == "new"
    sent = [json.loads(seen.body) for seen in stand_in.seen]
    assert [each["kind"] for each in sent] == ["TrainingRuntime", "TrainJob", "TrainJob", "TrainJob"]
    (owner,) = sent[0]["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"]) == ("ConfigMap", "the-record")
    assert "ownerReferences" not in sent[-1]["metadata"]


def test_a_job_that_stays_refused_is_not_tried_for_ever(
    api: Api, stand_in: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(objects, "_SEEN", 0.0)
    stand_in.answer_with(says(201, thing()), NOT_SEEN)
    with pytest.raises(Refused, match="no such runtime"):
        objects.create_jobs(api, train_job(), stored())
    stand_in.answer_with(refuses(403, "Forbidden", "exceeded quota"))
    with pytest.raises(Refused, match="quota"):
        objects.create_jobs(api, replace(train_job(), beside=[]), stored())


def test_a_record_goes_with_its_jobs(api: Api, stand_in: StandIn) -> None:
    objects.tie_record(api, stored(started=False), [thing(uid="job-1")])
    about = json.loads(stand_in.seen[0].body)["metadata"]
    (owner,) = about["ownerReferences"]
    assert (owner["kind"], owner["uid"]) == ("Job", "job-1")
    assert "echelon.dev/started" in about["annotations"]
    objects.tie_record(api, stored(), [thing(uid="1")])
    objects.tie_record(api, stored(), [])
    assert deeds(stand_in) == ["PATCH"]


def test_a_run_whose_record_is_tied_has_its_keeper(api: Api, stand_in: StandIn) -> None:
    """Also one whose client was killed when the Jobs were made: upkeep ties its record."""
    run, plan = planned(CASES["kept"])
    (job,) = [each for each in objects_of(CASES["kept"]) if each["metadata"]["name"] == run.ref.name][-1:]
    job["metadata"]["uid"] = "job-1"
    untied = replace(stored(started=False), run=replace(run, plan=plan))
    objects.tie_record(api, untied, [job])
    assert deeds(stand_in) == ["POST", "PATCH"]
    assert json.loads(stand_in.seen[0].body)["metadata"]["name"] == f"{run.ref.name}-keeper"


def test_jobs_of_a_run_that_was_removed_meanwhile_go_too(api: Api, stand_in: StandIn) -> None:
    stand_in.answer_with(refuses(404, "NotFound", "no such ConfigMap"), says(200, {}))
    with pytest.raises(NotThere):
        objects.tie_record(api, stored(started=False), [thing(uid="job-1")])
    assert deeds(stand_in) == ["PATCH", "DELETE"]
    assert json.loads(stand_in.seen[1].body)["preconditions"] == {"uid": "job-1"}


@pytest.mark.parametrize(
    ("dialect", "service"), [("job", "demo"), ("trainjob", "demo-leader"), ("of-a-newer-version", "demo")]
)
def test_the_leaders_service_goes_by_its_name(
    api: Api, stand_in: StandIn, dialect: str, service: str
) -> None:
    stand_in.answer_with(says(200, {"kind": "List", "metadata": {}, "items": []}))
    objects.remove(api, "demo", keep_claim=True, dialect=dialect)
    (path,) = (seen.path for seen in stand_in.seen if "/services/" in seen.path)
    assert path.endswith(f"/{service}")


def test_what_a_job_is_made_from_goes_though_the_record_stays(api: Api, stand_in: StandIn) -> None:
    """Or a run that starts again would be made from what it was made from before."""
    record = thing("ConfigMap", uid="the-record")
    record["metadata"]["labels"][names.COMPONENT] = names.RECORD
    stand_in.answer_with(
        lambda handler: says(
            200,
            {
                "kind": "List",
                "metadata": {},
                "items": [record] if "/configmaps?" in handler.path else [],
            },
        )(handler)
    )
    objects.remove(api, "demo", keep_claim=True, keep_record=True, dialect="trainjob")
    assert deleted(stand_in) == ["trainingruntimes/demo", "services/demo-leader", "secrets/demo"]


@pytest.mark.parametrize("keep", [True, False])
def test_removing_everything_but_what_is_to_be_kept(api: Api, stand_in: StandIn, keep: bool) -> None:
    left = {"jobs": [thing(uid="job-1")], "configmaps": [thing("ConfigMap", uid="the-record")]}

    def answer(handler: object) -> None:
        path, method = handler.path, handler.command  # type: ignore[attr-defined]
        kind = path.partition("?")[0].rpartition("/")[2]
        chosen: Answer = says(200, {})
        if method == "GET":
            chosen = says(200, {"kind": "List", "metadata": {}, "items": left.pop(kind, [])})
        chosen(handler)  # type: ignore[arg-type]

    stand_in.answer_with(answer)
    objects.remove(api, "demo", keep_claim=keep)
    claim = [] if keep else ["persistentvolumeclaims/demo-results"]
    assert deleted(stand_in) == ["jobs/demo", "configmaps/demo", "services/demo", "secrets/demo", *claim]


def test_what_does_not_go_away_is_named(api: Api, stand_in: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "_GONE", 0.1)
    stuck = thing(uid="job-1")
    stuck["metadata"]["finalizers"] = ["example.org/hold"]
    stand_in.answer_with(says(200, {"kind": "JobList", "metadata": {}, "items": [stuck]}))
    with pytest.raises(Refused, match=r"held by example\.org/hold"):
        objects.remove(api, "demo", keep_claim=True)


@pytest.mark.parametrize("owner", [None, OWNER])
def test_what_is_another_runs_is_left_alone(api: Api, stand_in: StandIn, owner: Object | None) -> None:
    """As the Job of group `ps` of run `x`, for a run that is called `x-ps`."""
    stand_in.answer_with(THERE, says(200, thing(run="other", uid="theirs")))
    with pytest.raises(Refused, match="belongs to run 'other'"):
        objects.create(api, thing(), owner)
    assert deeds(stand_in) == ["POST", "GET"]


def test_the_keeper_of_another_run_is_left_alone(api: Api, stand_in: StandIn) -> None:
    """A run that is called like the keeper of another one is refused; its results would be lost."""
    keeper = thing(run="other", uid="theirs", owner="another-record")
    keeper["metadata"]["labels"][names.COMPONENT] = names.KEEPER
    stand_in.answer_with(THERE, says(200, keeper))
    with pytest.raises(Refused, match="the keeper of run 'other'"):
        objects.create(api, thing())
    assert deeds(stand_in) == ["POST", "GET"]
