"""The judge over every combination of what can be found of a run: more evidence changes no end that lacks
nothing, and what all logs leave open lacks nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice

import pytest
from tests.engines.kubernetes.state.evidence import Case, agents_lines, all_cases

from echelon.engines.kubernetes.follow.logs import is_last_line
from echelon.engines.kubernetes.state import workers
from echelon.engines.kubernetes.state.history import LeaderEvents, since_last_gap
from echelon.engines.kubernetes.state.standing import Evidence, Source, Standing, Told, standing
from echelon.model.output.log import parse_line


def looks(case: Case) -> Iterator[tuple[str, Evidence]]:
    """What is known after each of the steps in which everything that can be read is read."""
    known = Evidence(
        stored=case.stored,
        jobs=case.jobs,
        pods=case.pods,
        waiting=case.waiting,
        keeper=case.keeper_lines is not None,
    )
    yield "objects", known
    if case.leader_lines is not None:
        lines = [parse_line(each, 0) for each in case.leader_lines]
        over = any(is_last_line(each, 0) for each in lines[-3:])
        yield "last lines", replace(known, told=Told(has_lines=bool(lines), over=over))
    leader, asked, first = LeaderEvents(), set[Source](), False
    sources: list[tuple[Source, int, Sequence[bytes] | None]] = [
        ("leader", 0, case.leader_lines),
        ("peers", 1, case.peer_lines),
        ("keeper", 0, case.keeper_lines),
    ]
    for source, worker, raw in sources:
        old = [pod for pod in workers.leader_pods(case.pods)[:-1] if source == "leader"]
        for pod in old:
            for line in since_last_gap(
                parse_line(each, 0) for each in agents_lines(case, pod.metadata.name) or ()
            ):
                list(leader.read(line, case.pods))
        heard = since_last_gap(parse_line(each, worker) for each in raw or ())
        for line in heard:
            list(leader.read(line, case.pods))
        if source == "leader":
            leader.told = replace(leader.told, has_lines=bool(heard))
            first = leader.told.has_lines
        asked.add(source)
        yield source, replace(known, told=replace(leader.told, has_lines=first), asked=frozenset(asked))


def gist(found: Standing) -> str | None:
    return None if found.end is None else found.end.outcome


def agree(case: Case) -> bool:
    """Whether the agents say the same: there is one verdict, and they have it of each other. Of a leader that
    was killed after it, the next one fails by itself.
    """
    facts = case.facts
    said = {facts.told, facts.peers, facts.keeper, facts.leader.replace("over", "told", 1)}
    told = {each.partition("-")[2] for each in said if each.startswith(("told-", "alone-"))}
    well = facts.leader.startswith("killed") or facts.leader == "bare-0" or facts.jobs == "complete"
    told |= {"succeeded"} if well else set()
    told -= {"failed"} if facts.leader == "killed-refailed" and facts.told == "told-failed" else set()
    later = facts.told == "goes-on" and facts.leader in ("running", "replaced")
    # A leader tells the keeper after its own last line.
    early = facts.told == "decided" and facts.leader == "running" and facts.keeper.startswith("told-")
    return len(told) <= 1 and not (told and later) and not early


@pytest.mark.parametrize("every", [17, pytest.param(1, marks=pytest.mark.slow)])
def test_more_evidence_changes_nothing_that_lacks_nothing(every: int) -> None:
    wrong = []
    for case in filter(agree, islice(all_cases(), 0, None, every)):
        settled: tuple[str, Standing] | None = None
        found = standing(Evidence(stored=case.stored), case.now)
        for step, known in looks(case):
            found = standing(known, case.now)
            if settled is not None and gist(found) != gist(settled[1]):
                wrong.append(f"{case.id}: {gist(settled[1])} by {settled[0]}, {gist(found)} by {step}")
                break
            if settled is None and not found.lacks:
                settled = step, found
        if found.lacks:
            wrong.append(f"{case.id}: lacks {found.lacks} when all is read")
    assert not wrong, f"{len(wrong)}:\n" + "\n".join(wrong[:40])
