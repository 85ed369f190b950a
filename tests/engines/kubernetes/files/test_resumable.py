"""Whether a run that has ended can go on from what it has made, and what is said where it cannot."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.engines.kubernetes.small import stored

from echelon.agent.gang.rounds import mark_of
from echelon.agent.keep.entries import read
from echelon.engines.kubernetes.files.resumable import check_results, resumable_code
from echelon.engines.kubernetes.record import Stored
from echelon.engines.machine import Fetched, SafeCheckpoints
from echelon.errors import StateTrouble
from echelon.model.pods.pod import Keeper, Output, PodOptions

KEEPS = PodOptions(keeper=Keeper(keep=600.0, size=1 << 30), checkpoints="ckpt")
HOME = Path("runs/demo")
CAME = Fetched(path="runs/demo")
LOST = Fetched(path="runs/demo", missing=("worker 0: its files not fetched: the keeper is gone",))


def run(options: PodOptions) -> Stored:
    record = stored()
    return replace(record, run=replace(record.run, job=replace(record.run.job, pod=options)))


@pytest.mark.parametrize(
    ("options", "own", "safe", "said"),
    [
        (PodOptions(), CAME, None, "not on a volume but in runs/demo"),
        (PodOptions(output=Output(claim="x", path="")), None, None, None),
        (replace(KEEPS, output=Output(claim="x", path="")), None, None, None),
        (KEEPS, None, None, "were not brought to this machine"),
        (KEEPS, Fetched(), None, None),  # it never ran
        (KEEPS, CAME, None, "its keeper, which had its safe checkpoints, is gone or had none"),
        (KEEPS, LOST, None, "worker 0: its files not fetched"),
        (KEEPS, CAME, SafeCheckpoints(path="runs/demo"), None),  # none was safe: it begins anew
        (KEEPS, CAME, SafeCheckpoints(path="runs/demo", parts={0: {}}), None),
        (KEEPS, CAME, SafeCheckpoints(path="/nowhere", parts={0: {"s": ("v", "m", 1)}}), "as it was fetched"),
    ],
)
def test_the_answer(
    options: PodOptions, own: Fetched | None, safe: SafeCheckpoints | None, said: str | None
) -> None:
    if said is None:
        check_results(run(options), HOME, own, safe)
        return
    with pytest.raises(StateTrouble, match=said) as refused:
        check_results(run(options), HOME, own, safe)
    assert refused.value.hint


def test_one_that_is_whole_is_enough(tmp_path: Path) -> None:
    (tmp_path / "ckpt").mkdir()
    (tmp_path / "ckpt/step-1").write_bytes(b"x")
    found = read(str(tmp_path / "ckpt"), "step-1")
    assert found is not None
    mark = mark_of({"parts": {"0": found.version}})
    parts = {0: {"step-1": (found.version, mark, 1), "step-2": ("gone", "m", 2)}}
    check_results(run(KEEPS), HOME, LOST, SafeCheckpoints(path=str(tmp_path), parts=parts))


def test_its_code_is_on_the_machine_that_submitted_it() -> None:
    record = stored()
    shipped = replace(record, run=replace(record.run, job=replace(record.run.job, snapshot=True)))
    with pytest.raises(StateTrouble, match="only the machine that submitted it has its code"):
        resumable_code(shipped, None)
    bundle = resumable_code(shipped, b"code")
    assert bundle is not None
    assert bundle.data == b"code"
    assert resumable_code(run(KEEPS), None) is None
