"""Which checkpoints at home a run may go on from: only those of which every part is as its keeper had it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from echelon.agent.gang.rounds import mark_of
from echelon.agent.keep.entries import Found
from echelon.agent.keep.room import space_of
from echelon.engines.kubernetes.files.results.safe import Parts, fitting, folder_of, look, one_by_one, whole
from echelon.engines.machine import SafeCheckpoints, Submissions


def found(name: str, version: str, *, at: int = 1, size: int = 10, pointer: bool = False) -> Found:
    return Found(name, version, 1, size, at, pointer=pointer)


TIMES = {"older": 2, "newer": 4, "later": 6, "latest": 0}  # `latest` is a pointer, written at 5


def stated(**entries: Mapping[int, str]) -> SafeCheckpoints:
    """What a keeper states of these checkpoints: by name, the version of each worker's part."""
    parts: dict[int, dict[str, tuple[str, str, int]]] = {}
    for name, versions in entries.items():
        mark = mark_of({"parts": {str(worker): version for worker, version in versions.items()}})
        for worker, version in versions.items():
            parts.setdefault(worker, {})[name] = (version, mark, TIMES.get(name, 1))
    return SafeCheckpoints(path="/home", parts=parts)


def there(**entries: Mapping[int, str]) -> Parts:
    parts: dict[int, dict[str, Found]] = {}
    for name, versions in entries.items():
        for worker, version in versions.items():
            at = TIMES.get(name, 1) or 5
            parts.setdefault(worker, {})[name] = found(name, version, at=at)
    return parts


BOTH = {0: "a", 1: "b"}
ONE = {0: "a"}


@pytest.mark.parametrize(
    ("safe", "home", "expected"),
    [
        (stated(), there(), {}),
        (stated(s=BOTH), there(s=BOTH), {"s": {0, 1}}),
        (stated(s=BOTH), there(s={0: "a"}), {}),  # a part is missing
        (stated(s=BOTH), there(s={0: "a", 1: "torn"}), {}),
        (stated(s=BOTH), there(s=BOTH, other=BOTH), {"s": {0, 1}}),  # of an earlier start, or another's
        (stated(s={0: "a"}), there(s={0: "a", 1: "old"}), {"s": {0}}),  # worker 1 wrote nothing to it
        (stated(s=BOTH, t={0: "c"}), there(s={0: "x", 1: "b"}, t={0: "c"}), {"t": {0}}),
        (stated(newer=ONE, latest=ONE), there(newer=ONE, latest=ONE), {"newer": {0}, "latest": {0}}),
        (stated(newer=ONE, latest=ONE), there(latest=ONE), {}),  # what it names is not here
        (stated(older=ONE, newer=ONE, latest=ONE), there(older=ONE, latest=ONE), {"older": {0}}),
        (
            stated(older=ONE, newer=ONE, latest=ONE),
            there(newer=ONE, latest=ONE),
            {"newer": {0}, "latest": {0}},
        ),
        (
            stated(older=ONE, later=ONE, latest=ONE),
            there(older=ONE, latest=ONE),
            {"older": {0}, "latest": {0}},
        ),  # it was written before that
    ],
)
def test_what_is_whole(safe: SafeCheckpoints, home: Parts, expected: dict[str, set[int]]) -> None:
    assert {name: set(parts) for name, parts in whole(safe, home).items()} == expected


def test_a_part_that_the_keeper_could_not_state_makes_none_of_it_whole() -> None:
    """As when a line of its log is lost: the mark of all parts is not that of those which are known."""
    safe = stated(s=BOTH)
    assert not whole(SafeCheckpoints(path="/home", parts={0: safe.parts[0]}), there(s={0: "a"}))


def names_of(parts: Parts) -> list[tuple[int, str]]:
    return [(worker, each.name) for worker, each in one_by_one(parts)]


def test_the_newest_are_sent_as_far_as_they_fit_and_always_the_newest() -> None:
    checkpoints = {
        f"step-{at}": {0: found(f"step-{at}", "v", at=at, size=1000), 1: found(f"step-{at}", "v", size=1000)}
        for at in range(1, 4)
    }
    checkpoints["latest"] = {0: found("latest", "v", at=9, pointer=True)}
    one = 2 * space_of(1, 1000)
    assert names_of(fitting(checkpoints, 100 * one)) == [
        (0, "latest"),
        *((worker, f"step-{at}") for worker in (0, 1) for at in (1, 2, 3)),
    ]
    assert names_of(fitting(checkpoints, 3 * one)) == [
        (0, "latest"),
        *((worker, f"step-{at}") for worker in (0, 1) for at in (2, 3)),
    ]
    assert names_of(fitting(checkpoints, 1)) == [(0, "latest"), (0, "step-3"), (1, "step-3")]


def test_workers_have_their_folders_at_home(tmp_path: Path) -> None:
    safe = SafeCheckpoints(path=str(tmp_path), parts={0: {}, 1: {}})
    assert folder_of(safe, 0, "ckpt") == tmp_path / "ckpt"
    assert folder_of(safe, 1, "ckpt") == tmp_path / "worker-1/ckpt"
    (tmp_path / "worker-1/ckpt/step-1").mkdir(parents=True)
    (tmp_path / "worker-1/ckpt/step-1/x").write_bytes(b"x")
    assert {worker: set(each) for worker, each in look(safe, "ckpt").items()} == {0: set(), 1: {"step-1"}}
    before = look(safe, "ckpt")[1]["step-1"].version
    os.utime(tmp_path / "worker-1/ckpt/step-1/x", ns=(1, 1))
    assert look(safe, "ckpt")[1]["step-1"].version != before


def test_what_is_noted_of_them_is_read_back_and_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ECHELON_HOME", str(tmp_path))
    noted = stated(s=BOTH, t={1: "c"})
    assert Submissions().safe_of("uid") is None
    Submissions().note_safe("uid", noted)
    assert Submissions().safe_of("uid") == noted
    (tmp_path / "submitted" / "uid.safe.json").write_text('{"path": "/x", "parts": []}')
    assert Submissions().safe_of("uid") is None
    Submissions().note_safe("uid", noted)
    Submissions().forget("uid")
    assert Submissions().safe_of("uid") is None


def test_they_are_remembered_where_they_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ECHELON_HOME", str(tmp_path / "file"))
    known = Submissions()
    known.note_safe("uid", stated(s=BOTH))
    assert known.safe_of("uid") == stated(s=BOTH)
