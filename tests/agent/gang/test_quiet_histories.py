"""Trainings of hours in milliseconds: whatever goes on is not called stuck, and what hangs is, by its name.

Histories are random, and a model of them says which ranks wait for which. Times are those of a fake clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as profile
from hypothesis import strategies as st
from tests.agent.gangs import NOW, running
from tests.properties import examples

from echelon.agent.gang.decisions import Gang
from echelon.agent.gang.stillness import SAID_AFTER
from echelon.agent.ranks.usage.quiet import Quiet

SAMPLED = 30.0  # seconds between two samples
STALL = 600.0


@dataclass
class Training:
    """Ranks that call one collective after the other, as their agents see them."""

    ranks: int
    stall: float | None
    records: bool = True  # whether torch has a recorder
    called: dict[int, int] = field(default_factory=dict)
    called_at: float = NOW
    printed: dict[int, float] = field(default_factory=dict)
    works: dict[int, float] = field(
        default_factory=dict
    )  # until when each has to do, before the next collective
    debugged: set[int] = field(default_factory=set)
    now: float = NOW
    steps: int = 0

    def __post_init__(self) -> None:
        self.gang: Gang = running(self.ranks, **({} if self.stall is None else {"stall": self.stall}))
        self.called = dict.fromkeys(range(self.ranks), 0)
        self.printed = dict.fromkeys(range(self.ranks), NOW)
        self.works = dict.fromkeys(range(self.ranks), NOW)
        self.counters = {rank: Quiet(NOW) for rank in range(self.ranks)}
        self.said: list[Mapping[str, Any]] = []

    def train(self, seconds: float, step: float, prints_every: float | None) -> None:
        """All go on, a collective each `step` seconds."""
        end = self.now + seconds
        while self.now < end:
            self._pass(SAMPLED)
            done = min(self.called.values())
            if self.now >= max(self.works.values()) and not self.debugged:
                many = max(1, int(SAMPLED / step))
                self.called, self.called_at = dict.fromkeys(self.called, done + many), self.now
                self.works = dict.fromkeys(self.works, self.now + max(step, SAMPLED))
            if prints_every is not None and self.now - max(self.printed.values()) >= prints_every:
                self.printed[0] = self.now
            self._sample()

    def wait_for(self, odd: int, seconds: float, *, prints: bool = False) -> None:
        """The others are in the next collective, and `odd` is elsewhere for so long."""
        done = min(self.called.values())
        self.called, self.called_at = {rank: done + (rank != odd) for rank in self.called}, self.now
        end = self.now + seconds
        while self.now < end and self.gang.phase == "running":
            self._pass(SAMPLED)
            if prints:
                self.printed[odd] = self.now
            self._sample(computes=odd)
        self.called, self.called_at = dict.fromkeys(self.called, done + 1), self.now

    def sleep(self, seconds: float) -> None:
        """The machine, or the whole cluster, is suspended: the clock goes on and nobody looks."""
        self.now += seconds
        self.works = {rank: until + seconds for rank, until in self.works.items()}
        self._sample()

    def debug(self, rank: int, seconds: float) -> None:
        """One rank is at the prompt of pdb, and the others wait for it."""
        self.debugged.add(rank)
        self.wait_for(rank, seconds)
        self.debugged.discard(rank)

    def _pass(self, seconds: float) -> None:
        self.now += seconds
        self.steps += 1

    def _sample(self, computes: int | None = None) -> None:
        for rank, quiet in self.counters.items():
            busy = rank not in self.debugged and (computes is None or rank == computes or rank % 2 == 0)
            idle = quiet.note(self.now, SAMPLED, busy, self.printed[rank])
            silent = quiet.silent(self.now, self.printed[rank])
            sample = {"idle": idle, "silent": silent, "ranks": [{"rank": rank, "silent": silent}]}
            self.gang.sampled(rank, sample, self.now)
        for worker, order in [each for each in self.gang.outbox if each[1]["say"] == "look"]:
            assert worker is not None
            self.gang.looked(worker, 0, order["number"], {str(worker): self._look(worker)}, self.now)
        self.gang.outbox.clear()
        self.said += [each for each in self.gang.events if each["kind"] in ("still", "note", "failed")]
        self.gang.events.clear()

    def _look(self, rank: int) -> dict[str, Any]:
        """As `looking.look` tells it: in the collective that it has called, or where it works."""
        called, done = self.called[rank], min(self.called.values())
        waits = called > done
        look: dict[str, Any] = {
            "state": "S",
            "place": "all_reduce (train.py:9)" if waits else f"evaluate (train.py:{20 + self.steps % 7})",
            "collective": waits,
            "trace": 1 if waits else self.steps,
        }
        if rank in self.debugged:
            look.update(debugged=True, place="readline (train.py:12)", trace=3)
        if self.records:
            calls = {str(called): ["all_reduce", "[8]", "float32", self.called_at]}
            group = {"ranks": list(range(self.ranks)), "called": called, "done": done, "calls": calls}
            look.update(recorder={"rank": rank, "groups": {"0": group}}, at=self.now)
        return look


def _ranks(training: Training, which: int) -> int:
    return which % training.ranks


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[Any, ...]]:
    """What happens, piece by piece: no wait is as long as the time after which it would be a hang."""
    seconds = st.floats(1.0, 2400.0)
    short = st.floats(1.0, STALL - 30)
    which = st.integers(0, 7)
    every = st.one_of(st.none(), st.floats(5.0, 1200.0))
    return draw(
        st.lists(
            st.one_of(
                st.tuples(st.just("train"), seconds, st.floats(0.05, 400.0), every),
                st.tuples(st.just("wait"), which, short, st.just(value=False)),
                st.tuples(st.just("wait"), which, seconds, st.just(value=True)),
                st.tuples(st.just("sleep"), st.floats(60.0, 40_000.0)),
                st.tuples(st.just("debug"), which, seconds),
            ),
            min_size=1,
            max_size=4,
        )
    )


def _live(training: Training, history: list[tuple[Any, ...]]) -> None:
    for what, *how in history:
        if what == "train":
            training.train(*how)
        elif what == "sleep":
            training.sleep(*how)
        elif what == "debug":
            training.debug(_ranks(training, how[0]), how[1])
        else:
            training.wait_for(_ranks(training, how[0]), how[1], prints=how[2])


@given(history=histories(), ranks=st.integers(2, 5), acts=st.booleans(), records=st.booleans())
@profile(max_examples=examples(150))
def test_what_goes_on_is_never_called_stuck(
    history: list[tuple[Any, ...]], ranks: int, acts: bool, records: bool
) -> None:
    training = Training(ranks, STALL if acts else None, records)
    _live(training, history)
    assert training.gang.phase == "running", training.said
    assert [each for each in training.said if each.get("trouble") == "stuck"] == []


@given(
    history=histories(),
    ranks=st.integers(2, 5),
    odd=st.integers(0, 7),
    acts=st.booleans(),
    records=st.booleans(),
)
@profile(max_examples=examples(60))
def test_what_hangs_after_it_is_called_stuck_by_the_rank_that_is_waited_for(
    history: list[tuple[Any, ...]], ranks: int, odd: int, acts: bool, records: bool
) -> None:
    training = Training(ranks, STALL if acts else None, records)
    _live(training, history)
    odd, before = _ranks(training, odd), len(training.said)
    training.steps = 0
    training._pass = lambda seconds: setattr(training, "now", training.now + seconds)  # type: ignore[method-assign] # it stands still
    training.wait_for(odd, 3 * max(STALL, SAID_AFTER))
    stuck = training.said[before:]
    assert stuck, "it is said"
    assert f"rank {odd} " in str(stuck[-1]["reason"])
    assert (training.gang.phase == "stopping") == acts


# BUG: two of three looks had seen the second wait, and the silence was that of both.
@pytest.mark.parametrize("stall", [STALL, None])
def test_two_waits_that_together_take_too_long_are_none(stall: float | None) -> None:
    training = Training(2, stall)
    for _ in range(5):
        training.wait_for(0, 390.0)
    assert (training.gang.phase, training.said) == ("running", [])


@pytest.mark.parametrize("records", [True, False])
@pytest.mark.parametrize("stall", [STALL, None])
def test_an_epoch_of_three_minutes_without_a_print(stall: float | None, records: bool) -> None:
    training = Training(4, stall, records)
    for _ in range(20):  # an hour
        training.train(180.0, 0.2, None)
        training.printed[0] = training.now
    assert (training.gang.phase, training.said) == ("running", [])


# BUG: the last sample of a rank that has exited says for ever that it has just printed.
@pytest.mark.parametrize("stall", [STALL, None])
def test_a_rank_that_has_exited_is_not_waited_for_in_vain(stall: float | None) -> None:
    training = Training(3, stall)
    training.train(60.0, 1.0, 5.0)
    training.printed[2] = training.now
    training._sample()
    training.gang.ended_well(0, 2, 60.0, training.now)
    training.gang.done(2, 0, training.now)
    del training.counters[2]
    training.wait_for(2, 2 * STALL)
    assert "rank 2 had exited 0 before all_reduce" in str(training.said[-1]["reason"])


def test_a_rank_of_torchrun_s_that_prints_is_not_waited_for_in_vain() -> None:
    """Of it alone no silence is known."""
    training = Training(2, STALL)
    training.train(60.0, 1.0, 5.0)
    gang, looks = training.gang, {rank: training._look(rank) for rank in range(2)}
    for look in looks.values():
        group = look["recorder"]["groups"]["0"]
        group.update(ranks=[0, 1, 2], called=group["called"] + 1)
    group = looks[0]["recorder"]["groups"]["0"]
    odd = {**looks[0], "recorder": {"rank": 2, "groups": {"0": {**group, "called": group["done"]}}}}
    for _ in range(400):
        training.now += SAMPLED
        for worker in range(2):
            silent = training.now - NOW if worker == 0 else 1.0
            ranks = [{"rank": worker, "silent": silent}]
            gang.sampled(worker, {"idle": 0.0, "silent": silent, "ranks": ranks}, training.now)
        for asked, order in [each for each in gang.outbox if each[1]["say"] == "look"]:
            told = {"0": looks[0]} if asked == 0 else {"1": looks[1], "2": odd}
            gang.looked(asked or 0, 0, order["number"], told, training.now)
        gang.outbox.clear()
    assert gang.phase == "running"
