"""Whatever pods print as events of their agents: no traceback, no write outside, no escape sequence.

A pod's log is its container's to write: a script may print lines that look like an agent's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.engines.kubernetes.hostile import LOG, RUN, TITLE, Shelf, garbled
from tests.engines.kubernetes.test_hostile_objects import CLUSTER, FEW, MANY, check, say, world

__all__ = ["world"]
AT = 1767225600.0
CAUSE = {
    "summary": "rank 0 failed",
    "rank": 0,
    "worker": 0,
    "exit_code": 1,
    "exception": "ValueError: x",
    "others": [{"summary": "rank 1 stopped", "rank": 1, "worker": 0, "consequence": True}],
}
EVENTS: list[Any] = [
    {"kind": "worker-started", "at": AT, "worker": 0, "pid": 1, "node": "node-a", "version": "1"},
    {"kind": "worker-running", "at": AT, "worker": 0, "pids": {"0": 7}},
    {"kind": "worker-lost", "at": AT, "worker": 0, "reason": "x", "disruption": "drained"},
    {"kind": "restarting", "at": AT, "restart": 1, "spared": 1, "cause": CAUSE},
    {
        "kind": "worker-kept",
        "at": AT,
        "worker": 0,
        "manifests": [{"files": 1, "size": 2, "digest": "ab", "root": "/echelon/output", "worker": 0}],
        "left_out": [{"path": "pipe", "why": "a pipe"}],
    },
    {"kind": "checkpoint", "at": AT, "path": "ckpt/step-1", "size": 1 << 40, "files": 4},
    {"kind": "restored", "at": AT, "worker": 0, "path": "ckpt/step-1", "size": 9, "generation": 1},
    {"kind": "holding", "at": AT, "until": AT + 300, "reason": "the keeper is not there"},
    {"kind": "finished", "at": AT, "outcome": "failed", "exit_code": 1, "cause": CAUSE},
]
READING = (
    ["ps", "-a", "-A"],
    ["status", RUN],
    ["status", RUN, "-o", "json"],
    ["logs", RUN],
    ["events", RUN],
    ["events", RUN, "-o", "json"],
    ["metrics", RUN],
    ["queue"],
    ["top", "--once"],
)


OTHERS = (["queue"], ["events", RUN], ["metrics", RUN], ["ps", "-aA", "-o", "json"], ["status", "queued"])


def as_log(events: list[Any]) -> bytes:
    lines = (b"1767225600.001 0 [event] %s\n" % json.dumps(each).encode() for each in events)
    return b"".join(lines) + b"1767225600.004 0 [0] hello\n"


def test_they_are_understood_before_anything_is_garbled(world: Path) -> None:
    code, shown = say(Shelf(CLUSTER, as_log(EVENTS)), "events", RUN)
    assert code == 0
    assert "rank 0 failed" in shown
    for words in READING:
        assert say(Shelf(CLUSTER, LOG), *words)[0] == 0, words


@FEW
@given(objects=garbled(CLUSTER))
def test_objects_that_are_garbled(world: Path, objects: list[Any]) -> None:
    """For the commands that `test_hostile_objects` does not call."""
    for words in OTHERS:
        check(world, *say(Shelf(objects, LOG), *words))


@FEW
@given(events=garbled(EVENTS))
def test_events_that_are_garbled(world: Path, events: list[Any]) -> None:
    log = as_log(events)
    for words in READING:
        check(world, *say(Shelf(CLUSTER, log), *words))


@pytest.mark.soak
@settings(MANY, max_examples=2000)
@given(events=garbled(EVENTS))
def test_events_that_are_garbled_many_times(world: Path, events: list[Any]) -> None:
    log = as_log(events)
    for words in READING:
        check(world, *say(Shelf(CLUSTER, log), *words))


@FEW
@given(lines=st.lists(st.binary(max_size=60) | st.sampled_from([b"[event] {", TITLE.encode()]), max_size=6))
def test_lines_that_are_anything(world: Path, lines: list[bytes]) -> None:
    log = b"".join(b"1767225600.001 0 " + each.replace(b"\n", b"") + b"\n" for each in lines)
    for words in READING[1:6]:
        check(world, *say(Shelf(CLUSTER, log), *words))
