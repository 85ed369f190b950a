"""What a keeper's log says, to a client that reads nothing else."""

from __future__ import annotations

import json
from dataclasses import replace

from tests.engines.kubernetes.small import stored
from tests.engines.kubernetes.stand_in import StandIn, says

from echelon.engines.kubernetes import control
from echelon.engines.kubernetes.client.api import Api, Object
from echelon.engines.kubernetes.follow.keeper import KeeperView, is_keeper, keeping, replay
from echelon.model.copy import LeftOut
from echelon.model.output.log import EventLine, parse_line
from echelon.model.pods.pod import Keeper


def line(number: int, **event: object) -> EventLine:
    found = parse_line(f"1.000 {number} [event] {json.dumps({'at': 1.0, **event})}".encode(), 0)
    assert isinstance(found, EventLine)
    return found


STATED = {"root": "/out", "files": 2, "size": 10, "digest": "d", "worker": 1}


def test_what_it_vouches_for_and_until_when() -> None:
    lines = [
        line(0, kind="state", events=[]),
        line(1, kind="worker-kept", worker=1, manifests=[STATED], left_out=[["pipe", "a pipe"]]),
        line(2, kind="state", events=[{"kind": "verdict", "at": 1.0, "outcome": "succeeded"}]),
        line(3, kind="keeping", until=99.0),
    ]
    found = replay("keeper", lines)
    assert found.kept[1].manifests["/out"].files == 2
    assert found.kept[1].left_out == (LeftOut(path="pipe", why="a pipe"),)
    assert found.until == 99.0
    assert [each.payload for each in found.told] == [lines[2].payload]
    (event,) = keeping(found, at=2.0)
    assert (event.workers, event.until) == ((1,), 99.0)


def test_what_it_saved_of_a_lost_worker_and_that_all_came_after_that() -> None:
    saved = line(0, kind="worker-kept", worker=1, manifests=[STATED], only="checkpoints")
    assert replay("keeper", [saved]).kept[1].only_checkpoints
    assert not replay("keeper", [saved, line(1, kind="worker-kept", worker=1)]).kept[1].only_checkpoints


def test_odd_lines_are_passed_over() -> None:
    odd = [
        line(0, kind="worker-kept", worker="one"),
        line(0, kind="worker-kept", manifests=[STATED]),
        line(0, kind="worker-kept", worker=1, left_out=[["one"]]),
        line(0, kind="keeping", until=1e30),
        line(0, kind="something-new", worker=1),
    ]
    assert replay("keeper", odd) == KeeperView(pod="keeper")
    assert keeping(KeeperView(pod="keeper"), at=1.0) == []


def owned(name: str, uid: str, *, controller: bool = False) -> Object:
    owner = {"kind": "ConfigMap", "name": "x", "uid": uid, **({"controller": True} if controller else {})}
    return {"kind": "Job", "metadata": {"name": name, "uid": "the-job", "ownerReferences": [owner]}}


def test_only_what_belongs_to_the_record_is_its_keeper() -> None:
    """A run that is called RUN-keeper has a Job of that name, too."""
    mine = stored()
    assert is_keeper(owned("demo-keeper", mine.uid), mine)
    assert not is_keeper(owned("demo-keeper", "another-record"), mine)
    assert not is_keeper({"metadata": {"name": "demo-keeper"}}, mine)


def test_a_job_of_that_name_which_is_not_ours_is_not_ended(api: Api, stand_in: StandIn) -> None:
    mine = stored()
    job = replace(mine.run.job, pod=replace(mine.run.job.pod, keeper=Keeper()))
    mine = replace(mine, run=replace(mine.run, job=job))
    stand_in.answer_with(says(200, owned("demo-keeper", "another-record")))
    control.end_keeper(api, mine)
    control.release_keeper(api, mine, [])
    assert {seen.method for seen in stand_in.seen} == {"GET"}
    stand_in.answer_with(says(200, owned("demo-keeper", mine.uid)))
    control.end_keeper(api, mine)
    assert stand_in.seen[-1].method == "PATCH"
