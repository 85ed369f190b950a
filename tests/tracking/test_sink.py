from __future__ import annotations

import pytest

from echelon.metrics.reader import MetricReader
from echelon.model.output.log import LogLine
from echelon.model.output.metric import Metric
from echelon.tracking.sink import Numbering, key_of


def steps(*texts: str, name: str = "loss") -> list[int]:
    reader, numbering = MetricReader(), Numbering()
    found = []
    for text in texts:
        for metric in reader.read(LogLine(worker=0, rank=0, stream="stdout", at=0.0, text=text)):
            point = numbering.point(metric)
            if metric.name.lower() == name:
                found.append(point.step)
    return found


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["step=10 loss=1", "step=20 loss=1"], [10, 20]),
        (["epoch=1 loss=1", "epoch=2 loss=1"], [1, 2]),
        (["loss=1", "loss=1"], [1, 2]),
        # Steps that begin anew in each epoch are counted on.
        (
            [f"Train Epoch: {epoch} [{step}/40 (1%)] Loss: 1" for epoch in (1, 2, 3) for step in (0, 20)],
            [0, 20, 40, 60, 80, 100],
        ),
        # After a restart from a checkpoint a step is what it was.
        (["step=10 loss=1", "step=20 loss=1", "step=10 loss=1", "step=20 loss=1"], [10, 20, 10, 20]),
        # Steps that go on over the epochs stay as they are, although how many there are is known.
        ([f"step {step}/100 epoch={1 + step // 50} loss=1" for step in (25, 50, 75)], [25, 50, 75]),
    ],
)
def test_where_a_value_lies(texts: list[str], expected: list[int]) -> None:
    assert steps(*texts) == expected


def test_a_value_of_each_epoch_does_not_stand_at_one_place() -> None:
    texts = []
    for epoch in (1, 2):
        texts += [f"Train Epoch: {epoch} [{step}/40 (1%)] Loss: 1" for step in (0, 20)]
        texts.append("accuracy=0.5")
    assert steps(*texts, name="accuracy") == [20, 60]


def test_each_rank_and_each_folder_is_counted_for_itself() -> None:
    numbering = Numbering()
    metrics = [
        Metric("loss", 1.0, 0.0, rank=0),
        Metric("loss", 1.0, 0.0, rank=1),
        Metric("lr", 1.0, 0.0, rank=0),
        Metric("loss", 1.0, 0.0, source="tb"),
        Metric("loss", 1.0, 0.0, source="tb", part="train"),
    ]
    assert [numbering.point(each).number for each in metrics] == [1, 1, 2, 1, 1]
    assert len({key_of(each) for each in metrics}) == 4
