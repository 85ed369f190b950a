"""The code of a cluster's run: its digest is in the record, the archive on the machine that submitted it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from testbed.kubectl import Object
from tests.engines.kubernetes.small import record_object
from tests.engines.kubernetes.stand_in import StandIn, says

from echelon.engines.abilities import ShippedCode
from echelon.engines.kubernetes.abilities.shipped import ShippedRuns
from echelon.engines.kubernetes.client.api import Api
from echelon.engines.machine import SMALL_CODE, Submissions
from echelon.model.run import RunRef

REF = RunRef(engine="k8s", name="demo")


def recorded(**about: Any) -> Object:
    found = record_object(**about)
    found["metadata"] |= {"labels": {"echelon.dev/run": "demo"}, "resourceVersion": "17"}
    return found


@pytest.fixture
def known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Submissions:
    monkeypatch.setenv("ECHELON_HOME", str(tmp_path))
    made = Submissions()
    made.remember("some-uid", tmp_path)
    return made


def test_what_was_shipped(api: Api, stand_in: StandIn, known: Submissions) -> None:
    shipped = recorded(shipped={"agent": 1, "code": 4, "digest": "ab"})
    stand_in.answer_with(says(200, shipped), says(200, shipped), says(200, recorded()))
    runs = ShippedRuns(lambda: api, known)
    assert runs.code(REF) == ShippedCode(digest="ab")  # another machine has submitted it
    known.keep_code(shipped["metadata"]["uid"], b"code")
    assert runs.code(REF) == ShippedCode(digest="ab", archive=b"code")
    assert runs.code(REF) is None


@pytest.mark.parametrize(("size", "stays"), [(SMALL_CODE, True), (SMALL_CODE + 1, False)])
def test_a_small_archive_outlives_the_success_of_its_run(known: Submissions, size: int, stays: bool) -> None:
    known.keep_code("some-uid", bytes(size))
    known.forget_code("some-uid")
    assert known.code_of("some-uid") is None
    assert (known.code_that_ran("some-uid") is not None) == stays
    known.forget("some-uid")
    assert known.code_that_ran("some-uid") is None
