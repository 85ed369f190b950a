"""The cases that judges of a run are tried on: each is another one, and its objects are the run's own."""

from __future__ import annotations

from collections import Counter

from tests.engines.kubernetes.state import facts
from tests.engines.kubernetes.state.evidence import Case, all_cases

CASES = tuple(all_cases())
WITHOUT_PLAN = ("recorded", "waits")


def test_every_word_is_of_some_case_and_no_case_is_there_twice() -> None:
    assert not [each for each, count in Counter(case.id for case in CASES).items() if count > 1]
    for field, words in (
        ("phase", facts.PHASES),
        ("stop", facts.STOPS),
        ("end", facts.ENDS),
        ("fetched", facts.FETCHED),
        ("jobs", facts.JOBS),
        ("leader", facts.LEADERS),
        ("peer", facts.PEERS),
        ("told", facts.TOLD),
        ("peers", facts.PEERS_TOLD),
        ("keeper", facts.KEEPERS),
    ):
        assert {getattr(case.facts, field) for case in CASES} == set(words), field


def test_the_objects_of_a_case_are_its_runs_own() -> None:
    for case in CASES:
        assert (case.stored.end is not None) == (case.facts.end != "-"), case.id
        if case.facts.phase in WITHOUT_PLAN:
            assert not case.jobs, case.id
            assert not case.pods, case.id
        else:
            assert len(case.jobs) == len(case.listed), case.id
            assert {_worker(case, each) for each in ("leader", "peer")} <= {True}, case.id


def _worker(case: Case, which: str) -> bool:
    """Whether the pods of a worker are there as the facts say."""
    node = {"leader": "node-0", "peer": "node-1"}[which]
    found = [each for each in case.pods if each.spec.node_name == node]
    two = ("replaced", "replacing", "killed-replaced", "killed-replacing", "killed-refailed")
    word = getattr(case.facts, which)
    return len(found) == (0 if word == "none" else 2 if word in two else 1)
