"""Files for TensorBoard: as TensorBoard reads them, also after they were cut off."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.metrics.event_files import event as expected_event
from tests.metrics.event_files import record
from tests.tracking.conftest import FACTS

from echelon.metrics.event_files import EventFile, EventFiles
from echelon.model.output.metric import Metric
from echelon.tracking.sink import Away, Numbering, Rejected
from echelon.tracking.tensorboard import EventFolder, event, framed

METRICS = [
    Metric("loss", 0.5, 1e9, rank=0, step=1),
    Metric("loss", 1e300, 1e9 + 1, rank=0, step=2),
    Metric("val/acc", 0.25, 1e9 + 2, rank=1, step=300),
    Metric("loss", 2.0, 1e9, rank=0, step=1, part="prepare"),
]


def written(folder: Path, metrics: list[Metric] = METRICS) -> EventFolder:
    sink, numbering = EventFolder(folder), Numbering()
    sent = sink.open(FACTS)
    points = [numbering.point(each) for each in metrics]
    sink.send([point for point in points if point.number > sent.get(point.key, 0)], {})
    return sink


def files(folder: Path) -> list[Path]:
    return sorted(folder.glob("tracking/**/*.echelon"))


def test_a_record_is_as_specified() -> None:
    point = Numbering().point(METRICS[0])
    assert framed(event(point)) == record(expected_event("loss", 0.5, at=1e9, step=1))


def test_a_folder_for_each_rank_that_says_how_much_it_has(tmp_path: Path) -> None:
    sink = written(tmp_path)
    assert [str(path.parent.relative_to(tmp_path / "tracking")) for path in files(tmp_path)] == [
        "prepare/rank-0",
        "rank-0",
        "rank-1",
    ]
    assert sink.open(FACTS) == {"0": 2, "1": 1, "prepare/0": 1}
    found = [scalar for path in files(tmp_path) for scalar in EventFile(path).read()]
    assert [(each.tag, each.value, each.at, each.step) for each in found] == [
        ("loss", 2.0, 1e9, 1),
        ("loss", 0.5, 1e9, 1),
        ("loss", float("inf"), 1e9 + 1, 2),
        ("val/acc", 0.25, 1e9 + 2, 300),
    ]


def test_what_was_cut_off_is_written_again(tmp_path: Path) -> None:
    written(tmp_path)
    path = files(tmp_path)[1]
    whole = path.read_bytes()
    for size in range(0, len(whole), 7):
        path.write_bytes(whole[:size])
        written(tmp_path)
        assert path.read_bytes() == whole
    path.write_bytes(whole + b"\xff" * 40)
    written(tmp_path)
    assert path.read_bytes() == whole


def test_its_own_files_are_no_metrics_of_the_run(tmp_path: Path) -> None:
    sink = written(tmp_path)
    (tmp_path / "tb").mkdir()
    (tmp_path / "tb" / "events.out.tfevents.1").write_bytes(record(expected_event("loss", 1.0)))
    (metric,) = EventFiles(tmp_path).read()
    assert metric.source == "tb"
    assert not sink.wants(metric)


def test_a_folder_that_leads_elsewhere_or_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "tracking").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Away, match="is a link"):
        written(tmp_path / "a")
    (tmp_path / "b").write_text("no folder")
    with pytest.raises(Away, match=r"Not a directory: .*/b/tracking"):
        written(tmp_path / "b")
    with pytest.raises(Rejected, match="1,000 bytes"):
        written(tmp_path, [Metric("x" * 2000, 1.0, 0.0, rank=0)])


@pytest.mark.slow
def test_tensorboard_itself_reads_them(tmp_path: Path) -> None:
    written(tmp_path)
    program = """
import sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
for folder in sys.argv[1:]:
    found = EventAccumulator(folder)
    found.Reload()
    for tag in found.Tags()["scalars"]:
        print([(tag, each.step, each.value, each.wall_time) for each in found.Scalars(tag)])
"""
    folders = [str(path.parent) for path in files(tmp_path)[1:]]
    done = subprocess.run(
        [sys.executable, "-c", program, *folders], capture_output=True, text=True, check=True, timeout=300
    )
    assert done.stdout.splitlines() == [
        f"[('loss', 1, 0.5, {1e9}), ('loss', 2, inf, {1e9 + 1})]",
        f"[('val/acc', 300, 0.25, {1e9 + 2})]",
    ]
