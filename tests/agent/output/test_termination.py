"""The verdict cut to what Kubernetes keeps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echelon.agent.output.termination import LIMIT, fit, write

TEXT = st.text(max_size=3000) | st.sampled_from(["é" * 2000, "\ud800" * 100, "\0" * 900, '"' * 3000])
CAUSE = st.fixed_dictionaries(
    {
        "summary": TEXT,
        "worker": st.integers(0, 5),
        "error": st.none() | TEXT,
        "tail": st.lists(st.text(max_size=400), max_size=20),
        "others": st.lists(st.fixed_dictionaries({"rank": st.integers(), "error": TEXT}), max_size=20),
    }
)


def verdict(**cause: Any) -> dict[str, Any]:
    return {"outcome": "failed", "exit_code": 1, "reason": None, "cause": cause}


@given(cause=st.none() | CAUSE, reason=st.none() | TEXT)
def test_it_always_fits_and_can_be_read(cause: dict[str, Any] | None, reason: str | None) -> None:
    words = {"outcome": "failed", "exit_code": 1, "reason": reason, "cause": cause}
    before = json.dumps(words)
    data = fit(words)
    assert len(data) <= LIMIT
    read = json.loads(data)
    assert (read["outcome"], read["exit_code"]) == ("failed", 1)
    assert json.dumps(words) == before  # what is kept elsewhere stays whole
    if cause is not None:
        assert read["cause"]["worker"] == cause["worker"]
        kept = read["cause"]["tail"]
        if kept:
            assert len(read["cause"]["others"]) == len(cause["others"])  # the tail goes first
            assert len(kept) <= len(cause["tail"])


def test_the_last_lines_of_a_tail_are_the_ones_that_stay() -> None:
    lines = [f"{number:0>300}" for number in range(20)]
    read = json.loads(fit(verdict(summary="why", tail=lines, others=[{"rank": 1}])))
    assert read["cause"]["tail"] == lines[-len(read["cause"]["tail"]) :] != lines
    assert (read["cause"]["summary"], read["cause"]["others"]) == ("why", [{"rank": 1}])


def test_what_fits_is_whole() -> None:
    words = verdict(summary="why", tail=["é", "last"])
    assert json.loads(fit(words)) == words


def test_its_first_line_is_for_people(tmp_path: Path) -> None:
    """`kubectl describe pod` shows it as it is."""
    for summary in ("rank 3 failed:\nValueError: boom", "ü" * 3000):
        write(str(tmp_path / "message"), verdict(summary=summary, tail=["x" * 100] * 50))
        data = (tmp_path / "message").read_bytes()
        assert len(data) <= LIMIT
        first, last = data.decode().split("\n")
        assert " ".join(summary.split()).startswith(first)
        assert json.loads(last)["outcome"] == "failed"


@pytest.mark.parametrize("place", [None, "missing/folder/file", "/dev/full"])
def test_no_place_for_them(tmp_path: Path, place: str | None) -> None:
    write(str(tmp_path / place) if place else None, {"reason": "x"})


def test_they_replace_what_was_there_in_place(tmp_path: Path) -> None:
    """The file is a mount: it cannot be renamed over."""
    path = tmp_path / "log"
    path.write_text("x" * 5000)
    before = path.stat().st_ino
    write(str(path), {"reason": "short"})
    assert (path.stat().st_ino, json.loads(path.read_bytes())) == (before, {"reason": "short"})


def test_of_what_is_missing_the_first_sentences_stay() -> None:
    what = [
        f"worker {number}: the log of rank {number} lacks lines: the disk is full" for number in range(90)
    ]
    read = json.loads(fit({"outcome": "succeeded", "exit_code": 0, "cause": None, "missing": what}))
    assert read["outcome"] == "succeeded"
    assert 10 < len(read["missing"]) < 90
    assert read["missing"] == what[: len(read["missing"])]
