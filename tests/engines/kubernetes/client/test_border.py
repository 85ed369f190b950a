"""Which objects of the API server are let in; `test_hostile_objects` garbles every field of them."""

from __future__ import annotations

from echelon.engines.kubernetes.client.border import admit


def test_an_object_without_a_name_is_none() -> None:
    assert admit("Pod", {"metadata": {"uid": "7"}}) is None
    assert admit("Pod", {"metadata": {"name": "a"}}) == {
        "metadata": {"name": "a", "uid": "a"},
        "spec": {},
        "status": {},
    }


def test_the_answer_to_who_am_i_has_no_name() -> None:
    answer = {"metadata": {"creationTimestamp": None}, "status": {"userInfo": {"username": "ann"}}}
    assert admit("SelfSubjectReview", answer) == answer
