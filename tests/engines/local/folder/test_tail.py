"""Output files read as one stream of lines while they are being written."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.properties import examples

from echelon.engines.local.folder.rundir import RunDir
from echelon.engines.local.folder.tail import follow_logs, recent_output
from echelon.engines.results import RECENT, recent_lines
from echelon.model.output.log import LogLine, each_line


@pytest.fixture
def folder(tmp_path: Path) -> RunDir:
    return RunDir(tmp_path)


def write(folder: RunDir, worker: int, text: str, failures: int = 0) -> None:
    with folder.worker_log(worker, failures).open("a") as file:
        file.write(text)


def read(folder: RunDir, is_last_look: Callable[[], bool]) -> Iterator[LogLine]:
    return each_line(follow_logs(folder, is_last_look, 0))


def test_what_lies_there_comes_in_the_order_of_time(folder: RunDir) -> None:
    write(folder, 0, "1.000 1 [0] a\n3.000 2 [0] c\n")
    write(folder, 1, "2.000 1e [1] b\n2.500 2 [event] {}\n4.000 3 [1] d\n")
    lines = list(read(folder, lambda: True))
    assert [(line.text, line.rank, line.worker, line.stream) for line in lines] == [
        ("a", 0, 0, "stdout"), ("b", 1, 1, "stderr"), ("c", 0, 0, "stdout"), ("d", 1, 1, "stdout"),
    ]  # fmt: skip


def test_no_output_yet(folder: RunDir) -> None:
    assert list(read(folder, lambda: True)) == []


def test_what_comes_later_and_whoever_comes_later(folder: RunDir) -> None:
    looks = 0

    def is_last_look() -> bool:
        nonlocal looks
        looks += 1
        if looks == 2:
            write(folder, 0, "ne\n2.000 2 [0] two\n")
        if looks == 3:
            write(folder, 1, "3.000 1 [1] another worker\n")
            write(folder, 0, "4.000 1 [0] replaced\n", failures=1)
        return looks == 5

    write(folder, 0, "1.000 1 [0] o")
    lines = read(folder, is_last_look)
    assert [line.text for line in lines] == ["one", "two", "replaced", "another worker"]


def test_all_that_was_written_before_the_last_look_is_told(folder: RunDir) -> None:
    """The end is known before the look begins, so nothing written before the end is missed."""

    def is_last_look() -> bool:
        write(folder, 0, "1.000 1 [0] last words\n")
        return True

    assert [line.text for line in read(folder, is_last_look)] == ["last words"]


def test_words_of_the_agent_itself_and_garbage(folder: RunDir) -> None:
    folder.worker_log(3, 0).write_bytes(b"Fatal Python error\n\xff\xfe\n[0 x 1] no\n1.0 1 [9] \xff\n")
    lines = list(read(folder, lambda: True))
    assert [(line.text, line.rank, line.worker) for line in lines] == [
        ("Fatal Python error", None, 3), ("\\xff\\xfe", None, 3), ("[0 x 1] no", None, 3), ("\\xff", 9, 3),
    ]  # fmt: skip


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    max_examples=examples(50),
)
@given(
    st.lists(st.text(st.characters(exclude_characters="\n\r", exclude_categories=["Cs"])), max_size=10),
    st.lists(st.integers(0, 400), max_size=6),
)
def test_however_the_bytes_arrive_the_lines_are_the_same(
    folder: RunDir, texts: list[str], cuts: list[int]
) -> None:
    whole = "".join(f"{n // 3}.000 {n} [0] {text}\n" for n, text in enumerate(texts)).encode()
    ends = sorted({min(cut, len(whole)) for cut in cuts} | {len(whole)})
    file = folder.worker_log(0, 0)
    file.write_bytes(b"")
    written = 0

    def is_last_look() -> bool:
        nonlocal written
        with file.open("ab") as out:
            out.write(whole[written : ends[0]])
        written = ends.pop(0)
        return not ends

    assert [line.text for line in read(folder, is_last_look)] == texts


def test_the_last_lines_of_a_worker(folder: RunDir) -> None:
    write(folder, 0, "1.000 1 [0] of a worker that was replaced\n")
    write(folder, 0, "".join(f"2.000 {number} [0] line {number}\n" for number in range(9999)), failures=1)
    write(folder, 0, "3.000 9999 [event] {}\n3.000 9999 [0] one that is still being wri", failures=1)
    write(folder, 1, "1.000 1 [1] the only one\n")
    found = list(recent_output(folder, 0) or ())
    assert found[-1].text == "line 9998"
    assert [line.sequence for line in found] == list(range(9999 - len(found), 9999))
    assert RECENT / 40 < len(found) < 9999
    assert [line.text for line in recent_output(folder, 1) or ()] == ["the only one"]
    assert recent_output(folder, 2) is None


def test_the_last_lines_among_the_results(tmp_path: Path) -> None:
    (tmp_path / "rank-3.log").write_bytes(b"x" * RECENT + b"\n1%\r2%\r3%\nend\n")
    *_, bar, end, _ = recent_lines(tmp_path, 1, [2, 3])
    assert (bar.text, end.text, end.rank, end.worker) == ("1%\r2%\r3%", "end", 3, 1)
