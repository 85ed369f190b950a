"""Lines by their places: what a plain look finds, while lines come and the search goes on."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from echelon.model.output.log import LogBlock, LogLine
from echelon.ui import spool as spools
from echelon.ui.selection import Selection
from echelon.ui.spool import LineQuery, Spool

TEXTS = st.lists(st.tuples(st.sampled_from(["abc", "xyz", "aBc"]), st.sampled_from([0, 1])), max_size=30)


def line(text: str, rank: int | None = 0) -> LogLine:
    return LogLine(text=text, at=1.5, worker=0, rank=rank)


def fill(spool: Spool, lines: list[tuple[str, int]]) -> None:
    for text, rank in lines:
        spool.append(line(text, rank))


@given(TEXTS, TEXTS, st.sampled_from(["", "ab", "zz"]), st.sampled_from([None, 0, 1]))
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
