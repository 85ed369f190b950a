"""What a client does that cannot send a run's code: the run ends with the reason, unless it ends already."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from testbed.kubectl import Object
from tests.engines.kubernetes.small import RECORD, RUNNING, ended, job, pod_object, record_object
from tests.engines.kubernetes.stand_in import StandIn, says

from echelon.admission import plan_anywhere
from echelon.engines.kubernetes import names
from echelon.engines.kubernetes.client.api import Api
from echelon.engines.kubernetes.files.sending import Sending
from echelon.engines.kubernetes.render.task import write_plan
from echelon.engines.machine import Submissions
from echelon.model.copy import Progress
from echelon.model.run import RunRef

REF = RunRef(engine="k8s", name="demo")
SHIPPED = {"agent": 1, "sent": 9_000_000, "digest": "ab"}


class Quiet:
    """Shows nothing."""

    def update(self, now: Progress) -> None: ...

    def notice(self, text: str) -> None: ...


@pytest.fixture
def sent(api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sending:
    monkeypatch.setenv("ECHELON_HOME", str(tmp_path))  # where no code was kept
    return Sending(lambda: api, Submissions())


def answers(leader: Object | None = None, *, shipped: dict[str, Any] = SHIPPED, **about: Any) -> list[Any]:
    """The record, its Jobs, its pods."""
    record = record_object(shipped=shipped, **about)
    record["metadata"] |= {"labels": {"echelon.dev/run": "demo"}, "resourceVersion": "17"}
    theirs = job()
    theirs["metadata"]["uid"] = "1"
    plan = plan_anywhere(replace(RECORD.job, framework="plain"))
    theirs["metadata"].setdefault("annotations", {})[names.PLAN] = write_plan(plan)
    maker = [{"kind": "Job", "name": "demo", "uid": "1", "controller": True}]
    pods = [leader or pod_object(0, state=RUNNING, ownerReferences=maker)]
    lists = [says(200, {"metadata": {}, "items": items}) for items in ([theirs], pods)]
    return [says(200, record), *lists]


def test_a_run_whose_code_cannot_be_sent_has_failed(sent: Sending, stand_in: StandIn) -> None:
    changed = says(200, {"kind": "Any", "metadata": {"name": "demo"}})
    stand_in.answer_with(answers()[0], *answers(), *answers(), changed, changed)
    sent.deliver(REF, Quiet())
    change, ending = [seen for seen in stand_in.seen if seen.method == "PATCH"]
    assert "/configmaps/demo" in change.path
    assert "/jobs/demo" in ending.path
    stop = json.loads(json.loads(change.body)["metadata"]["annotations"]["echelon.dev/stop"])
    assert stop["outcome"] == "failed"
    assert stop["reason"] == "its code cannot be sent: this machine has not kept it"


def test_a_run_that_is_being_stopped_is_left_alone(sent: Sending, stand_in: StandIn) -> None:
    stop = {"at": 1.0, "reason": "stopped by ann"}
    stand_in.answer_with(answers()[0], *answers(stop=stop), *answers(stop=stop))
    sent.deliver(REF, Quiet())
    assert {seen.method for seen in stand_in.seen} == {"GET"}


def test_a_leader_that_has_ended_gets_nothing(sent: Sending, stand_in: StandIn) -> None:
    stand_in.answer_with(answers()[0], *answers(pod_object(0, state=ended(1))))
    sent.deliver(REF, Quiet())
    assert len(stand_in.seen) == 4


def test_of_a_run_without_such_code_only_the_record_is_read(sent: Sending, stand_in: StandIn) -> None:
    stand_in.answer_with(*answers(shipped={**SHIPPED, "sent": 0}))
    sent.deliver(REF, Quiet())
    assert len(stand_in.seen) == 1


def test_code_is_remembered_where_it_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ECHELON_HOME", str(tmp_path / "file"))
    known = Submissions()
    known.keep_code("some-uid", b"code")
    assert known.code_of("some-uid") == b"code"
    known.forget_code("some-uid")
    assert known.code_of("some-uid") is None
