"""The table of what every judge says of how a run stands, and of what they contradict each other in.

`golden/answers.txt` has a line for all cases of which the same is said, written anew with
ECHELON_WRITE_GOLDEN=1; `contradictions.py` has the reasons for which judges may say different things."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from tests.conftest import PATIENCE
from tests.engines.kubernetes.state.answers import GOES_ON, JUDGES, OneRun, answers, at_one_moment
from tests.engines.kubernetes.state.contradictions import CAUSES, cause_of, differs, rightly, status_is_wrong
from tests.engines.kubernetes.state.evidence import NOW, REF, all_cases, case_of
from tests.engines.kubernetes.state.facts import Facts, all_facts

from echelon.engines.kubernetes.follow.follow import follow_events
from echelon.engines.kubernetes.follow.mirror import Mirrors

GOLDEN = Path(__file__).parent / "golden"
Told = Mapping[Facts, Mapping[str, str]]
_SHOWN = 3


@pytest.fixture(scope="module")
def told() -> Iterator[Told]:
    """What all judges say of every case."""
    with pytest.MonkeyPatch.context() as patch:
        at_one_moment(patch, NOW)
        yield {case.facts: answers(case) for case in all_cases()}


@pytest.mark.slow
def test_what_everybody_says_of_every_case(told: Told) -> None:
    groups: dict[str, list[Facts]] = defaultdict(list)
    for facts, said in told.items():
        groups[" ".join(f"{judge}={said[judge]}" for judge in JUDGES)].append(facts)
    lines = [f"# {len(told)} cases: what is said, of how many, and of which, for example"]
    for group, cases in sorted(groups.items(), key=lambda each: (-len(each[1]), each[0])):
        lines += [f"{len(cases)} {group}", *(f"    {facts}" for facts in cases[:_SHOWN])]
    _check("answers.txt", lines)


@pytest.mark.slow
def test_status_tells_the_end_that_was_decided(told: Told) -> None:
    """Of records that nobody has forged. It may not know yet."""
    known = {facts: right for facts in told if (right := rightly(facts)) and facts.end in ("-", right)}
    assert len(known) > 1000
    wrong = {facts for facts, right in known.items() if told[facts]["status"] not in (right, "on")}
    assert {str(facts) for facts in wrong if not status_is_wrong(facts)} == set()
    assert len(wrong) > 0


@pytest.mark.slow
def test_all_say_the_same_but_for_known_causes(told: Told) -> None:
    needed = set()
    for facts, said in told.items():
        for judge in JUDGES:
            if judge != "actions" and differs(judge, said):
                cause = cause_of(facts, judge, said)
                assert cause is not None, f"{judge} contradicts status, and nobody knows why: {facts}: {said}"
                needed.add((cause.name, judge))
    assert needed == {(each.name, judge) for each in CAUSES for judge in each.judges}


def test_whatever_contradicts_has_a_known_cause() -> None:
    """A few cases of every kind; the others are looked at above."""
    with pytest.MonkeyPatch.context() as patch:
        at_one_moment(patch, NOW)
        for facts in list(all_facts())[::101]:
            said = answers(case_of(facts))
            for judge in JUDGES:
                known = judge == "actions" or not differs(judge, said) or cause_of(facts, judge, said)
                assert known, f"{judge} contradicts status: {facts}: {said}"


def _check(name: str, lines: list[str]) -> None:
    text = "\n".join(lines).rstrip() + "\n"
    if os.environ.get("ECHELON_WRITE_GOLDEN"):
        GOLDEN.mkdir(exist_ok=True)
        (GOLDEN / name).write_text(text)
    assert (GOLDEN / name).read_text() == text


# What `wait` says is concluded as `follow_events` does; here is that it does so.

FOLLOWED = {
    "started/-/-/- + running + over-failed,done": "failed",
    "started/-/-/- + running + running,running + logs told-succeeded,-": "succeeded",
    "started/-/-/- + failed-policy + none,no-leader": "failed",
    "started/-/succeeded/- + running + none,running + logs -,alone-failed": "failed",
    "started/-/succeeded/- + running + none,running + keeper told-failed": "failed",
    "started/-/-/- + running + none,running + logs -,alone-failed": "failed",
    "started/-/-/- + running + none,running + keeper told-failed": "failed",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FOLLOWED)
def test_a_follower_concludes_what_the_table_says(name: str) -> None:
    (facts,) = (each for each in all_facts() if str(each) == name)
    case = case_of(facts)
    patience = 6.0 if FOLLOWED[name] == GOES_ON else PATIENCE
    with pytest.MonkeyPatch.context() as patch:
        at_one_moment(patch, NOW)
        assert answers(case)["late"] == FOLLOWED[name]
        events = follow_events(OneRun(case).api, REF, patience, Mirrors())
        end = next((each for each in events if each.kind == "finished"), None)
    assert (end.outcome if end is not None else GOES_ON) == FOLLOWED[name]
