from __future__ import annotations

import struct
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import PATIENCE
from tests.metrics.event_files import event, field, record, varint

from echelon.metrics.event_files import EventFile, EventFiles, Scalar, checksum, find_event_files, scalars

NAME = "events.out.tfevents.1.host"
TORCH = """
from torch.utils.tensorboard import SummaryWriter
import numpy
writer = SummaryWriter("tb/torch")
for step in range(3):
    writer.add_scalar("Loss/train", 1 / 2 ** step, step, walltime=1e9 + step)
    writer.add_scalar("new", step, step, new_style=True)
    writer.add_scalar("double", step, step, new_style=True, double_precision=True)
writer.add_histogram("histogram", numpy.arange(100.0))
writer.add_image("image", numpy.zeros((3, 8, 8)))
writer.add_text("text", "words")
writer.close()
"""
TENSORFLOW = """
import tensorflow as tf
writer = tf.summary.create_file_writer("tb/tf")
with writer.as_default():
    for step in range(3):
        tf.summary.scalar("accuracy", step / 4, step=step)
        tf.summary.histogram("histogram", tf.range(10), step=step)
    tf.summary.text("text", "words", step=1)
    for name, kind in (("half", tf.float16), ("double", tf.float64), ("int", tf.int32), ("long", tf.int64)):
        tf.summary.write(name, tf.constant(-7, kind), step=2 ** 40)
writer.close()
"""


def written(folder: Path, data: bytes) -> Path:
    path = folder / NAME
    path.write_bytes(data)
    return path


def test_the_checksum_of_the_standard() -> None:
    crc = 0xE3069283  # of these digits, in every description of CRC-32C
    assert checksum(b"123456789") == ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


@given(
    st.lists(
        st.tuples(
            st.text(min_size=1, max_size=20), st.floats(width=32, allow_nan=False), st.integers(-5, 2**62)
        )
    )
)
def test_what_is_written_comes_back(entries: list[tuple[str, float, int]]) -> None:
    entries = [each for each in entries if each[0].encode("utf-8", "ignore").decode() == each[0]]
    for tag, value, step in entries:
        assert scalars(event(tag, value, at=12.5, step=step)) == [Scalar(tag, value, 12.5, step)]


def test_a_file_that_grows_is_read_on(tmp_path: Path) -> None:
    whole = b"".join(record(event("loss", step, step=step)) for step in range(4))
    path, found = written(tmp_path, b""), []
    file = EventFile(path)
    for end in range(len(whole) + 1):
        path.write_bytes(whole[:end])
        found += [scalar.step for scalar in file.read()]
    assert found == [0, 1, 2, 3]
    assert list(file.read()) == []


def test_a_damaged_record_is_left_out_and_a_damaged_length_ends_the_file(tmp_path: Path) -> None:
    good, other = record(event("loss", 1.0, step=1)), record(event("loss", 2.0, step=2))
    bad_data = bytearray(good)
    bad_data[-10] ^= 1
    assert [each.step for each in EventFile(written(tmp_path, bytes(bad_data) + other)).read()] == [2]
    bad_length = bytearray(good)
    bad_length[0] ^= 1
    assert list(EventFile(written(tmp_path, bytes(bad_length) + other)).read()) == []


def test_a_length_that_is_a_lie_takes_no_memory(tmp_path: Path) -> None:
    for length in (2**63, 2**40):
        head = struct.pack("<Q", length)
        whole = record(event("loss", 1.0)) + head + struct.pack("<I", checksum(head)) + b"x"
        assert len(list(EventFile(written(tmp_path, whole)).read())) == 1


def test_a_large_record_is_skipped(tmp_path: Path) -> None:
    large = event("loss", 1.0) + field(99, b"x" * 2_000_000)
    data = record(b"") + len_only(large) + record(event("loss", 2.0))
    assert [each.value for each in EventFile(written(tmp_path, data)).read()] == [2.0]


def len_only(data: bytes) -> bytes:
    """A record whose data has a checksum that nobody should need to compute."""
    head = struct.pack("<Q", len(data))
    return head + struct.pack("<I", checksum(head)) + data + b"\0\0\0\0"


@given(st.binary(max_size=200))
def test_anything_is_no_reason_to_fail(data: bytes) -> None:
    assert isinstance(scalars(data), list)
    assert isinstance(scalars(event("loss", 1.0)[:-5] + data), list)
    assert isinstance(scalars(field(5, field(1, field(1, b"a") + field(8, data)))), list)


@given(st.data())
def test_a_flipped_byte_gives_no_wrong_value(data: st.DataObject) -> None:
    import tempfile

    whole = bytearray(record(event("loss", 1.0, step=1)))
    whole[data.draw(st.integers(0, len(whole) - 1))] ^= data.draw(st.integers(1, 255))
    with tempfile.TemporaryDirectory() as folder:
        assert list(EventFile(written(Path(folder), bytes(whole))).read()) == []


def test_numbers_that_never_end_and_times_that_no_calendar_has() -> None:
    assert scalars(b"\xff" * 1000) == []
    assert scalars(varint(1 << 3 | 1) + struct.pack("<d", float("nan")) + event("a", 1.0)[9:])[0].at == 0.0


def test_files_are_found_but_no_links_and_no_pipes(tmp_path: Path) -> None:
    import os

    inside = tmp_path / "results"
    (inside / "tb" / "train").mkdir(parents=True)
    real = written(inside / "tb" / "train", record(event("epoch_loss", 1.0, step=3)))
    (inside / "link.tfevents").symlink_to(written(tmp_path, record(event("secret", 1.0))))
    (inside / "folder").symlink_to(tmp_path)
    os.mkfifo(inside / "pipe.tfevents")
    assert find_event_files(inside) == [real]
    (metric,) = EventFiles(inside).read()
    assert (metric.name, metric.step, metric.rank, metric.source) == ("epoch_loss", 3, None, "tb/train")
    assert list(EventFiles(tmp_path / "nowhere").read()) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "names"),
    [
        (TORCH, {"Loss/train": [1.0, 0.5, 0.25], "new": [0.0, 1.0, 2.0], "double": [0.0, 1.0, 2.0]}),
        (
            TENSORFLOW,
            {"accuracy": [0.0, 0.25, 0.5], "half": [-7.0], "double": [-7.0], "int": [-7.0], "long": [-7.0]},
        ),
    ],
    ids=["torch", "tensorflow"],
)
def test_what_the_real_writers_write(program: str, names: dict[str, list[float]], tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, check=True, timeout=2 * PATIENCE, capture_output=True
    )
    found: dict[str, list[float]] = {}
    for metric in EventFiles(tmp_path).read():
        found.setdefault(metric.name, []).append(metric.value)
        assert metric.at > 9e8
        assert metric.step in (0, 1, 2, 2**40)
    assert found == names
