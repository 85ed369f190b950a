"""How much a keeper promises to take."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from echelon.agent.keep.room import BLOCK, MOST_FILES, NO_SPACE, SPARE, TOO_LARGE, TOO_MANY, Room

FREE = 1 << 60


def test_what_fits_is_promised_until_it_is_full() -> None:
    room = Room(1 << 20)
    assert not room.refuse(0, files=1, size=500_000, free=FREE)
    assert room.refuse(1, files=1, size=500_000, free=FREE) == TOO_LARGE
    assert not room.refuse(2, files=1, size=100_000, free=FREE)
    room.forget(0)
    assert not room.refuse(1, files=1, size=500_000, free=FREE)


def test_who_comes_again_counts_once() -> None:
    room = Room(1 << 20)
    assert not any(room.refuse(0, files=1, size=900_000, free=FREE) for _ in range(3))


def test_a_disk_with_less_room_than_the_keeper_was_given() -> None:
    assert Room(1 << 30).refuse(0, files=1, size=2000, free=1000) == NO_SPACE


def test_so_many_files_come_at_a_time_and_no_more() -> None:
    """Each of them needs memory of the keeper, which has a limit."""
    room = Room(1 << 50)
    assert room.refuse(0, files=MOST_FILES + 1, size=1, free=FREE) == TOO_MANY
    assert not room.refuse(0, files=MOST_FILES, size=1, free=FREE)
    assert room.enter(MOST_FILES - 10)
    assert not room.enter(11)
    assert room.enter(10)
    room.leave(MOST_FILES - 10)
    assert room.enter(MOST_FILES - 10)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 50), st.integers(0, 1 << 20))))
def test_the_limit_of_its_folder_is_never_reached(offers: list[tuple[int, int, int]]) -> None:
    room, held = Room(1 << 20), {}
    for worker, files, size in offers:
        held.pop(worker, None)
        if not room.refuse(worker, files=files, size=size, free=FREE):
            held[worker] = size + files * BLOCK
    assert sum(held.values()) <= (1 << 20) - (1 << 20) // SPARE
