"""What becomes of a server's no: which error, in whose words, with what to do about it."""

from __future__ import annotations

import json

import pytest
from tests.engines.kubernetes.stand_in import POD, StandIn, refuses, says

from echelon.engines.kubernetes.client.api import AlreadyThere, Api, Conflict, Gone, Invalid, NotThere
from echelon.errors import Denied, EchelonError, Refused, Unreachable


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        (refuses(404, "NotFound", 'pods "p" not found'), NotThere, 'pods "p" not found'),
        (refuses(409, "AlreadyExists", 'pods "p" already exists'), AlreadyThere, "already exists"),
        (refuses(409, "Conflict", "the object has been modified"), Conflict, "modified"),
        (refuses(410, "Expired", "too old resource version"), Gone, "too old"),
        (refuses(422, "Invalid", "spec: Required value"), Invalid, "spec: Required value"),
        (refuses(413, "RequestEntityTooLarge", "limit is 3145728"), Refused, "larger than"),
        (says(413, b"too large"), Refused, "larger than"),
        (refuses(403, "Forbidden", 'pods "p" is forbidden: exceeded quota: q'), Refused, "exceeded quota"),
        (refuses(400, "BadRequest", 'admission webhook "w" denied the request'), Refused, "webhook"),
        (refuses(405, "MethodNotAllowed", "not allowed"), Refused, "not allowed"),
        (says(403, b"<html>blocked by policy</html>"), Denied, "403 Forbidden"),
        (says(302, b"", Location="https://login.example"), Unreachable, "sends us elsewhere"),
        (says(200, b"<html>please log in</html>"), Unreachable, "does not answer as an API server"),
        (says(404, b"404 page not found"), NotThere, "404 page not found"),
        (says(418, b"<b>teapot</b>"), Refused, "418 teapot"),
    ],
)
def test_refusals(api: Api, stand_in: StandIn, answer: object, kind: type, words: str) -> None:
    stand_in.answer_with(answer)  # type: ignore[arg-type]
    with pytest.raises(EchelonError) as caught:
        api.create(POD)
    assert type(caught.value) is kind
    assert words in caught.value.message
    assert len(stand_in.seen) == 1


@pytest.mark.parametrize("refusal", [(409, "Conflict"), (422, "Invalid")])
@pytest.mark.parametrize(
    ("there", "kind"), [("the-old", None), ("a-new", NotThere), (None, NotThere), ("hidden", None)]
)
def test_a_change_of_an_object_that_was_made_anew(
    api: Api, stand_in: StandIn, refusal: tuple[int, str], there: str | None, kind: type | None
) -> None:
    """A uid in a change is a precondition: servers refuse another as a conflict, or as invalid. A refusal for
    another reason stays what it is.
    """
    found = says(200, {**POD, "metadata": {"name": "p", "uid": there}})
    if there is None:
        found = refuses(404, "NotFound", "not found")
    elif there == "hidden":
        found = refuses(403, "Forbidden", "no")
    stand_in.answer_with(refuses(*refusal, "no"), found)
    with pytest.raises(EchelonError) as caught:
        api.patch("Pod", "p", {"metadata": {"labels": {"a": "b"}}}, uid="the-old")
    assert type(caught.value) is (kind or (Conflict if refusal[0] == 409 else Invalid))
    assert json.loads(stand_in.seen[0].body) == {"metadata": {"labels": {"a": "b"}, "uid": "the-old"}}


def test_kubernetes_words_for_a_missing_right(api: Api, stand_in: StandIn) -> None:
    words = (
        'jobs.batch is forbidden: User "system:serviceaccount:team:ann" cannot create resource "jobs" '
        'in API group "batch" in the namespace "team"'
    )
    stand_in.answer_with(refuses(403, "Forbidden", words))
    with pytest.raises(Denied) as caught:
        api.create({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}})
    user = "system:serviceaccount:team:ann"
    assert caught.value.message == f"you (user {user}) may not create jobs.batch in namespace team"
    assert "kubectl -n team create role echelon-create-jobs-batch --verb=create --resource=jobs.batch" in (
        caught.value.hint
    )
    assert "--serviceaccount=team:ann" in caught.value.hint


def test_a_cluster_wide_right(api: Api, stand_in: StandIn) -> None:
    words = 'nodes is forbidden: User "bob" cannot list resource "nodes" in API group "" at the cluster scope'
    stand_in.answer_with(refuses(403, "Forbidden", words))
    with pytest.raises(Denied) as caught:
        api.list("Node")
    assert caught.value.message == "you (user bob) may not list nodes"
    assert "create clusterrole " in caught.value.hint
    assert "--user=bob" in caught.value.hint


def test_somebody_who_has_shown_nothing(api: Api, stand_in: StandIn) -> None:
    words = 'pods is forbidden: User "system:anonymous" cannot list resource "pods" in API group ""'
    stand_in.answer_with(refuses(403, "Forbidden", words))
    with pytest.raises(Denied, match="does not accept you"):
        api.list("Pod")
