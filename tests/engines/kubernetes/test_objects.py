"""That the objects of a run are made, adopted and removed, whatever is there already."""

from __future__ import annotations

import json
from dataclasses import replace
from http.server import BaseHTTPRequestHandler

import pytest
from tests.engines.kubernetes.rendered import CASES, SHIPPED, Case, objects_of, planned
from tests.engines.kubernetes.small import stored
from tests.engines.kubernetes.stand_in import Answer, StandIn, refuses, says
from tests.engines.kubernetes.typed import typed

from echelon.engines.kubernetes import names, objects
from echelon.engines.kubernetes.client.api import Api, NotThere, Object
from echelon.engines.kubernetes.client.login.access import Access
from echelon.engines.kubernetes.ownership.belonging import Identity, describe_left, marked
from echelon.engines.kubernetes.ownership.between import Between, Made
from echelon.engines.kubernetes.render import dialects, manifests
from echelon.engines.kubernetes.render.manifests import Started
from echelon.engines.kubernetes.render.payload import map_names
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
    there = thing(uid="old", owner="the-record") if owner else marked(thing(uid="old"), "the-record")
    stand_in.answer_with(THERE, says(200, there))
    assert objects.create(api, thing(), owner, made_for="the-record")["metadata"]["uid"] == "old"
    assert deeds(stand_in) == ["POST", "GET"]


def test_what_does_not_go_with_the_record_says_for_which_one_it_was_made(api: Api, stand_in: StandIn) -> None:
    stand_in.answer_with(says(201, thing(uid="new")))
    objects.create(api, thing(), made_for="the-record")
    about = json.loads(stand_in.seen[0].body)["metadata"]
    assert about["annotations"] == {names.RECORD_UID: "the-record"}
    assert "ownerReferences" not in about


@pytest.mark.parametrize("kind", ["Job", "PersistentVolumeClaim"])
@pytest.mark.parametrize("mark", ["", "another-record"])
def test_what_another_run_of_the_name_has_left_is_neither_taken_nor_deleted(
    api: Api, stand_in: StandIn, kind: str, mark: str
) -> None:
    there = thing(kind, uid="old")
    stand_in.answer_with(THERE, says(200, marked(there, mark) if mark else there))
    with pytest.raises(Refused, match="of another run that was called 'demo'"):
        objects.create(api, thing(kind), made_for="the-record")
    assert deeds(stand_in) == ["POST", "GET"]


def test_what_went_with_the_record_of_an_earlier_run_is_waited_for(api: Api, stand_in: StandIn) -> None:
    orphan = thing("Secret", uid="old", owner="an-earlier-record")
    stand_in.answer_with(THERE, says(200, orphan), says(200, {}), says(201, thing("Secret", uid="new")))
    assert objects.create(api, thing("Secret"), OWNER)["metadata"]["uid"] == "new"
    assert json.loads(stand_in.seen[2].body)["preconditions"] == {"uid": "old"}


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
    return manifests.started_objects(run, plan, SHIPPED, dialects.named("trainjob"), at=1.0)


NOT_SEEN = refuses(403, "Forbidden", "admission webhook denied the request: no such runtime")


def test_what_a_job_is_made_from_belongs_to_the_record_and_comes_first(api: Api, stand_in: StandIn) -> None:
    """Its controller may refuse the job for a moment: it has not seen the runtime."""
    stand_in.answer_with(says(201, thing()), NOT_SEEN, NOT_SEEN, says(201, thing(uid="new")))
    made = objects.create_first(api, train_job(), stored())
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
        objects.create_first(api, train_job(), stored())
    stand_in.answer_with(refuses(403, "Forbidden", "exceeded quota"))
    with pytest.raises(Refused, match="quota"):
        objects.create_first(api, replace(train_job(), beside=[]), stored())


def test_a_record_goes_with_its_jobs(api: Api, stand_in: StandIn) -> None:
    objects.tie_record(api, stored(started=False), [thing(uid="job-1")])
    about = json.loads(stand_in.seen[0].body)["metadata"]
    (owner,) = about["ownerReferences"]
    assert (owner["kind"], owner["uid"]) == ("Job", "job-1")
    objects.tie_record(api, stored(), [thing(uid="1")])
    objects.tie_record(api, stored(), [])
    assert deeds(stand_in) == ["PATCH"]


def test_a_run_whose_record_is_tied_has_its_keeper(api: Api, stand_in: StandIn) -> None:
    """Also one whose client was killed when the Jobs were made: upkeep ties its record."""
    run, plan = planned(CASES["kept"])
    (job,) = [each for each in objects_of(CASES["kept"]) if each["metadata"]["name"] == run.ref.name][-1:]
    job["metadata"]["uid"] = "job-1"
    untied = replace(stored(started=False), run=replace(run, plan=plan), shape=plan)
    objects.tie_record(api, untied, [job])
    assert deeds(stand_in) == ["POST", "PATCH"]
    assert json.loads(stand_in.seen[0].body)["metadata"]["name"] == f"{run.ref.name}-keeper"


def test_jobs_of_a_run_that_was_removed_meanwhile_go_too(api: Api, stand_in: StandIn) -> None:
    stand_in.answer_with(refuses(404, "NotFound", "no such ConfigMap"), says(200, {}))
    with pytest.raises(NotThere):
        objects.tie_record(api, stored(started=False), [thing(uid="job-1")])
    assert deeds(stand_in) == ["PATCH", "DELETE"]
    assert json.loads(stand_in.seen[1].body)["preconditions"] == {"uid": "job-1"}


MINE = Identity(run="demo", record="the-record", jobs=frozenset({"job-of-before"}))
PATHS = {
    "Job": "jobs",
    "ConfigMap": "configmaps",
    "Pod": "pods",
    "Secret": "secrets",
    "Service": "services",
    "PersistentVolumeClaim": "persistentvolumeclaims",
    "TrainingRuntime": "trainingruntimes",
}


def called(made: Object, name: str) -> Object:
    return {**made, "metadata": {**made["metadata"], "name": name}}


def holds(*found: Object) -> Answer:
    """A server that has these objects; what is deleted is gone."""
    there = {f"{PATHS[each['kind']]}/{each['metadata']['name']}": each for each in found}

    def answer(handler: BaseHTTPRequestHandler) -> None:
        path, _, query = handler.path.partition("?")
        words = path.rpartition("/namespaces/ours/")[2]
        if handler.command == "DELETE":
            there.pop(words, None)
            says(200, {})(handler)
        elif "/" not in words:
            labelled = [each for key, each in there.items() if key.startswith(words + "/")]
            chosen = [each for each in labelled if each["metadata"]["labels"] or not query]
            says(200, {"kind": "List", "metadata": {}, "items": chosen})(handler)
        elif words in there:
            says(200, there[words])(handler)
        else:
            refuses(404, "NotFound", "gone")(handler)

    return answer


@pytest.mark.parametrize(
    ("dialect", "service"), [("job", "demo"), ("trainjob", "demo-leader"), ("of-a-newer-version", "demo")]
)
def test_the_leaders_service_goes_by_its_name(
    api: Api, stand_in: StandIn, dialect: str, service: str
) -> None:
    own = called(thing("Service", uid="s", owner="the-record"), service)
    stand_in.answer_with(holds(own))
    objects.remove(api, MINE, claim="keep", dialect=dialect)
    assert deleted(stand_in) == [f"services/{service}"]


def test_what_a_job_is_made_from_goes_though_the_record_stays(api: Api, stand_in: StandIn) -> None:
    """Or a run that starts again would be made from what it was made from before."""
    own = [thing(kind, uid=kind, owner="the-record") for kind in ("TrainingRuntime", "Secret")]
    stand_in.answer_with(holds(thing("ConfigMap", uid="the-record"), *own))
    objects.remove(api, MINE, claim="keep", keep_record=True, dialect="trainjob")
    assert deleted(stand_in) == ["trainingruntimes/demo", "secrets/demo"]


def test_pods_of_somebody_elses_job_in_between_are_not_waited_for(api: Api, stand_in: StandIn) -> None:
    """A Job that is called as the Launcher's would be is of another MPIJob: its pod, which has the run's
    labels, stays.
    """
    theirs = called(thing(uid="a-job", run=None), "demo-launcher")
    theirs["metadata"] |= {"ownerReferences": [{"name": "other", "uid": "other", "controller": True}]}
    pod = called(thing("Pod", uid="a-pod"), "demo-launcher-x")
    owner = {"kind": "Job", "name": "demo-launcher", "uid": "a-job", "controller": True}
    pod["metadata"] |= {"ownerReferences": [owner]}
    between = Between(tiers=(tuple(typed(Made, [theirs])),))
    stand_in.answer_with(says(200, {"kind": "PodList", "metadata": {}, "items": [pod]}))
    assert objects._wait_for_pods(api, "run=demo", {("demo", "1")}, between) == []
    assert deeds(stand_in) == ["GET"]


CLAIM = called(thing("PersistentVolumeClaim", uid="claim"), "demo-results")


@pytest.mark.parametrize("end", ["keep", "if-unused", "delete"])
@pytest.mark.parametrize("phase", ["Pending", "Bound"])
def test_removing_everything_but_what_is_to_be_kept(
    api: Api, stand_in: StandIn, end: objects.ClaimEnd, phase: str
) -> None:
    own = [
        marked(thing(uid="job-1"), "the-record"),
        thing("ConfigMap", uid="the-record"),
        thing("Secret", uid="secret", owner="the-record"),
        thing("Service", uid="service", owner="the-record"),
        {**marked(CLAIM, "the-record"), "status": {"phase": phase}},
    ]
    stand_in.answer_with(holds(*own))
    removed = objects.remove(api, MINE, claim=end)
    goes = end == "delete" or (end == "if-unused" and phase == "Pending")
    claim = ["persistentvolumeclaims/demo-results"] if goes else []
    assert deleted(stand_in) == ["jobs/demo", "configmaps/demo", "secrets/demo", "services/demo", *claim]
    assert removed == objects.Removed(claim=not goes)
    gone = [
        json.loads(seen.body)["preconditions"]["uid"] for seen in stand_in.seen if seen.method == "DELETE"
    ]
    assert gone == ["job-1", "the-record", "secret", "service", "claim"][: len(gone)]


def test_a_job_of_an_older_version_is_known_by_the_record_that_belongs_to_it(
    api: Api, stand_in: StandIn
) -> None:
    stand_in.answer_with(holds(thing(uid="job-of-before")))
    objects.remove(api, MINE, claim="keep")
    assert deleted(stand_in) == ["jobs/demo"]


@pytest.mark.parametrize("labels", [True, False])
def test_what_only_has_the_name_or_the_labels_is_left_and_named(
    api: Api, stand_in: StandIn, labels: bool
) -> None:
    """A user's own Secret and Service of the run's name, and whatever a colleague has labelled."""
    run = "demo" if labels else None
    theirs = [
        thing("Job", run="demo", uid="their-job"),
        called(thing("ConfigMap", run="demo", uid="their-map"), "settings"),
        marked(called(thing("Job", run="demo", uid="an-earlier-job"), "demo-ps"), "another-record"),
        called(thing("Pod", run="demo", uid="their-pod"), "pod"),
        thing("Secret", run=run, uid="their-secret"),
        thing("Service", run=run, uid="their-service", owner="another-record"),
        called(thing("PersistentVolumeClaim", run=run, uid="precious"), "demo-results"),
    ]
    stand_in.answer_with(holds(thing("ConfigMap", uid="the-record"), *theirs))
    removed = objects.remove(api, MINE, claim="delete")
    assert deleted(stand_in) == ["configmaps/demo"]
    assert describe_left("demo", removed.left) == (
        "left as they are, since run demo did not make them: Job demo, Job demo-ps, ConfigMap settings, "
        "Secret demo, Service demo, PersistentVolumeClaim demo-results, Pod pod"
    )


def test_only_the_runs_own_payload_is_dropped(api: Api, stand_in: StandIn) -> None:
    bundle = called(thing("ConfigMap", uid="b", owner="the-record"), map_names("demo", SHIPPED)[0])
    stand_in.answer_with(holds(thing("Secret", run=None, uid="theirs"), bundle))
    objects.drop_payload(api, replace(stored(), shipped=SHIPPED))
    assert deleted(stand_in) == [f"configmaps/{map_names('demo', SHIPPED)[0]}"]


def test_what_does_not_go_away_is_named(api: Api, stand_in: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "_GONE", 0.1)
    stuck = marked(thing(uid="job-1"), "the-record")
    stuck["metadata"]["finalizers"] = ["example.org/hold"]

    def answer(handler: BaseHTTPRequestHandler) -> None:
        holds(stuck)(handler)

    stand_in.answer_with(answer)
    with pytest.raises(Refused, match=r"held by example\.org/hold"):
        objects.remove(api, MINE, claim="keep")


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
