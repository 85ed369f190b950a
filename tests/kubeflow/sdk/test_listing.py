"""`list_jobs` of both clients, beside records that cannot be read."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from echelon.cli import main
from echelon.kubeflow import TrainerClient, TrainingClient
from echelon.kubeflow.sdk.trainer_types import TrainJob


def _newer(path: Path) -> None:
    record = json.loads(path.read_text())
    path.write_text(json.dumps({**record, "schema": 99, "job": {**record["job"], "procs": {"auto": 1}}}))


DAMAGES: Mapping[str, Callable[[Path], object]] = {
    "gone": lambda path: path.unlink(),
    "noise": lambda path: path.write_bytes(b"\x00\xff{"),
    "newer": _newer,
}


@pytest.mark.parametrize("client", [TrainingClient, TrainerClient])
def test_a_record_that_cannot_be_read_is_left_out_with_a_note(
    home: Path, capsys: pytest.CaptureFixture[str], client: type[TrainingClient | TrainerClient]
) -> None:
    assert main.call(["run", "--name", "whole", "--framework", "torch", "--", "true"]) == 0
    (whole,) = home.glob("**/whole/record.json")
    for name, damage in DAMAGES.items():
        shutil.copytree(whole.parent, whole.parent.parent / name)
        damage(whole.parent.parent / name / "record.json")
    capsys.readouterr()
    jobs = client(on="local").list_jobs()
    names = [each.name if isinstance(each, TrainJob) else each.metadata.name for each in jobs]
    assert names == ["whole"]
    told = capsys.readouterr().err
    assert all(f"job {name} is not listed: " in told for name in DAMAGES)
