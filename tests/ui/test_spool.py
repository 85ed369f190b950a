"""Lines on disk: found by number, rank and text, whatever they contain."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echelon.model.output.log import LogBlock, LogLine
from echelon.ui import spool as spools
from echelon.ui.spool import LONGEST, LineQuery, Selection, Spool


def line(text: str, rank: int | None = 0) -> LogLine:
    return LogLine(text=text, at=1.5, worker=rank or 0, rank=rank)


TEXTS = ["abc", "äb", "", "aB\tc", "x" * 50, "loss=0.51 step 3", "Loss=-1.5", "2 B", "1e-05"]


@given(
    st.lists(st.tuples(st.sampled_from(TEXTS), st.sampled_from([None, 0, 1]))),
    st.sampled_from(["", "ab", "B", "ä", "zzz", "0.5", "s=1", "LOSS=", "=-", "-", "1 s", "b\ta"]),
    st.sampled_from([None, 0, 1]),
    st.integers(1, 5),
    st.sampled_from([1, 2, 3, 4096]),
    st.sampled_from([0, 30, 8192]),
    st.sampled_from([1, 20, 1 << 20]),
)
def test_it_finds_what_a_plain_look_finds(
    lines: list[tuple[str, int | None]],
    search: str,
    rank: int | None,
    limit: int,
    block: int,
    outline: int,
    span: int,
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spools, "BLOCK", block)
        patch.setattr(spools, "_LONGEST_OUTLINE", outline)
        patch.setattr(spools, "_SPAN", span)
        find_all(lines, search, rank, limit)


def find_all(lines: list[tuple[str, int | None]], search: str, rank: int | None, limit: int) -> None:
    spool = Spool()
    for text, who in lines:
        spool.append(line(text, who))
    expected = [
        number
        for number, (text, who) in enumerate(lines)
        if search.lower() in text.lower() and (rank is None or who == rank)
    ]
    wanted = LineQuery(rank, search)
    assert [row.number for row in spool.last(limit, wanted)] == expected[-limit:]
    found, start = [], 0
    while start < spool.count:
        rows, start = spool.since(start, limit, wanted)
        found += [row.number for row in rows]
        assert all(row.text == lines[row.number][0] and row.rank == lines[row.number][1] for row in rows)
    assert found == expected
    spool.close()


def test_blocks_whose_outline_lacks_a_text_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    spool = Spool()
    for number in range(10 * spools.BLOCK):
        spool.append(line("the needle" if number == 5 else f"step {number} loss={1 / (number + 1):.4f}"))
    read: list[int] = []
    plain = os.pread

    def pread(file: int, size: int, at: int) -> bytes:
        read.append(size)
        return plain(file, size, at)

    monkeypatch.setattr(os, "pread", pread)
    assert [row.number for row in spool.last(3, LineQuery(search="Needle"))] == [5]
    assert len(read) == 2  # the block, and the line that is shown
    spool.close()


def test_many_lines_and_long_ones() -> None:
    spool = Spool()
    for number in range(20_000):
        spool.append(line(f"line {number}"))
    spool.append(line("x" * (LONGEST + 7)))
    assert [row.number for row in spool.last(3, LineQuery(search="LINE 1999"))] == [19997, 19998, 19999]
    assert [row.number for row in spool.last(2, LineQuery(), before=10)] == [8, 9]
    assert spool.last(1, LineQuery())[0].text.endswith("... (7 more characters)")
    spool.close()
    spool.append(line("late"))  # of a follower that does not know yet


LINES = st.lists(st.tuples(st.sampled_from(["abc", "xyz", "aBc"]), st.sampled_from([0, 1])), max_size=30)


def fill(spool: Spool, lines: list[tuple[str, int]]) -> None:
    for text, rank in lines:
        spool.append(line(text, rank))


@given(LINES, LINES, st.sampled_from(["", "ab", "zz"]), st.sampled_from([None, 0, 1]))
def test_it_has_what_a_plain_look_finds(
    before: list[tuple[str, int]], after: list[tuple[str, int]], search: str, rank: int | None
) -> None:
    spool = Spool()
    fill(spool, before)
    selection = Selection(spool, LineQuery(rank, search))
    fill(spool, after)
    while True:
        selection.look(moment=0.0)
        if selection.complete:
            break
    expected = [
        number
        for number, (text, who) in enumerate([*before, *after])
        if search in text.lower() and rank in (None, who)
    ]
    rows = selection.rows(selection.first, selection.end)
    assert [row.number for row in rows] == expected
    assert selection.rows(selection.end - 2, selection.end + 5) == rows[-2:]
    assert selection.rows(selection.end, selection.end + 1) == []
    spool.close()


def test_the_last_ones_are_there_at_once_and_keep_their_places() -> None:
    spool = Spool()
    for number in range(3):  # each is a block of the search
        rest = "\n".join(f"line {number}" for _ in range(spools.BLOCK - 1))
        spool.append(LogBlock(first=line(f"first of {number}"), rest=rest))
    selection = Selection(spool, LineQuery(search="FIRST"))
    selection.look(moment=0.0)
    assert (selection.first, selection.end, selection.complete) == (-1, 0, False)
    assert [row.text for row in selection.rows(-1, 0)] == ["first of 2"]
    spool.append(line("first of all that come"))
    selection.look(moment=0.0)
    selection.look(moment=0.0)
    assert (selection.first, selection.end, selection.complete) == (-3, 1, True)
    assert [row.text for row in selection.rows(-1, 1)] == ["first of 2", "first of all that come"]
    assert selection.rows(-3, -2)[0].number == 0
    spool.close()


def test_a_page_that_is_full_is_told_at_once_and_what_is_not_wanted_is_not_searched() -> None:
    spool = Spool()
    for _ in range(3):
        spool.append(LogBlock(first=line("a"), rest="\n".join("a" for _ in range(spools.BLOCK - 1))))
    selection = Selection(spool, LineQuery(search="a"))
    selection.look(moment=60.0)
    assert (selection.first, selection.complete) == (-spools.BLOCK, False)
    selection.look(moment=60.0, unwanted=lambda: True)
    assert (selection.first, selection.complete) == (-2 * spools.BLOCK, False)
    selection.look(moment=60.0)
    assert (selection.first, selection.complete) == (-3 * spools.BLOCK, True)
    spool.close()
