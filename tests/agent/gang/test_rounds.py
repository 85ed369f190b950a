"""Which checkpoints the leader calls safe, whatever the order in which it hears of them."""

from __future__ import annotations

from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.properties import examples

from echelon.agent.gang.rounds import GONE, KEPT, NONE, PENDING, Rounds, mark_of

Message = dict[str, Any]


def says(entry: str, state: str, version: str = "", number: int | None = None, **more: int) -> Message:
    told: Message = {"entry": entry, "state": state, "version": version, "born": 0, "since": 0}
    return {**told, "number": number, **more}


def told_safe(entry: str, at: int = 1, **parts: str) -> Message:
    parts = {name[1:]: version for name, version in parts.items()}
    return {"entry": entry, "parts": parts, "at": at, "files": 1, "size": 10}


def order_of(rounds: Rounds) -> list[tuple[object, ...]]:
    return [(each["say"], each["entry"], each.get("parts")) for each in rounds.to_keeper]


def test_one_worker_needs_no_question() -> None:
    rounds = Rounds(1, "ckpt")
    rounds.told(0, says("a", KEPT, "v"))
    assert rounds.outbox == []
    assert order_of(rounds) == [("safe", "a", {"0": "v"})]
    rounds.confirmed({"entry": "a", "checkpoint": told_safe("a", w0="v")})
    assert rounds.events == [{"kind": "checkpoint", "path": "ckpt/a", "size": 10, "files": 1}]
    assert rounds.newest() == told_safe("a", w0="v")


def test_it_is_safe_when_all_have_answered() -> None:
    rounds = Rounds(3, "ckpt")
    rounds.told(1, says("a", KEPT, "v1"))
    (question,) = rounds.outbox
    rounds.told(0, says("a", NONE, number=question["number"]))  # type: ignore[arg-type]
    rounds.told(2, says("a", PENDING, "v2", question["number"]))  # type: ignore[arg-type]
    assert order_of(rounds) == []
    rounds.told(2, says("a", KEPT, "v2"))
    assert order_of(rounds) == [("safe", "a", {"1": "v1", "2": "v2"})]


def test_a_pod_that_came_later_cannot_know_what_the_lost_one_wrote() -> None:
    rounds = Rounds(2, "ckpt")
    rounds.told(0, says("a", KEPT, "v", born=1))
    (question,) = rounds.outbox
    rounds.told(1, says("a", NONE, number=question["number"], since=2))  # type: ignore[arg-type]
    assert order_of(rounds) == []


def test_the_newest_is_never_forgotten() -> None:
    rounds = Rounds(1, "ckpt")
    rounds.meet_keeper([told_safe("a", at=1, w0="v"), told_safe("b", at=2, w0="v")])
    rounds.told(0, says("b", GONE))
    assert order_of(rounds) == []
    rounds.told(0, says("a", GONE))
    assert order_of(rounds) == [("forget", "a", None)]
    rounds.to_keeper.clear()
    rounds.told(0, says("c", KEPT, "v"))
    rounds.confirmed({"entry": "c", "checkpoint": told_safe("c", at=3, w0="v")})
    assert order_of(rounds)[-1] == ("forget", "b", None), "it is not the newest any more"


def test_an_older_one_that_follows_is_not_told() -> None:
    """What is told last is what a run would go on from."""
    rounds = Rounds(1, "ckpt")
    for entry, at in (("new", 2), ("old", 1)):
        rounds.told(0, says(entry, KEPT, "v"))
        rounds.confirmed({"entry": entry, "checkpoint": told_safe(entry, at=at, w0="v")})
    assert [event["path"] for event in rounds.events] == ["ckpt/new"]


def test_nothing_becomes_safe_while_a_generation_is_prepared() -> None:
    rounds = Rounds(1, "ckpt")
    rounds.meet_keeper([told_safe("a", w0="v")])
    assert rounds.freeze() == {"entry": "a", "mark": mark_of(told_safe("a", w0="v"))}
    rounds.told(0, says("b", KEPT, "v"))
    assert order_of(rounds) == []
    rounds.thaw()
    rounds.told(0, says("b", KEPT, "v"))
    assert order_of(rounds) == [("safe", "b", {"0": "v"})]


def test_what_was_whole_needs_no_question_when_another_keeper_has_it() -> None:
    """A pod that was lost meanwhile could not answer."""
    rounds = Rounds(3, "ckpt")
    rounds.meet_keeper([told_safe("a", w0="v", w1="v")])
    rounds.meet_keeper([])
    assert rounds.newest() is None
    rounds.told(0, says("a", KEPT, "v"))
    assert order_of(rounds) == []
    rounds.told(1, says("a", KEPT, "v"))
    assert order_of(rounds) == [("safe", "a", {"0": "v", "1": "v"})]
    assert rounds.outbox == []


class World:
    """Workers that write to one entry, and give what they wrote; messages take their time."""

    def __init__(self, workers: int, draw: Random) -> None:
        self.draw = draw
        self.rounds = Rounds(workers, "ckpt")
        self.wrote: list[int] = [0] * workers  # versions that each has written
        self.gave: list[int] = [0] * workers
        self.lost: set[int] = set()
        self.silent: set[int] = set()  # lost ones that had written, and were never asked
        self.asked: set[int] = set()
        self.on_the_way: list[tuple[int, Message]] = []

    def step(self) -> None:
        worker = self.draw.randrange(len(self.wrote))
        what = self.draw.choice(["write", "give", "give", "hear", "hear", "hear", "lose"])
        if what == "hear" and self.on_the_way:
            self.rounds.told(*self.on_the_way.pop(self.draw.randrange(len(self.on_the_way))))
        elif worker in self.lost:
            return
        elif what == "write":
            self.wrote[worker] += 1
        elif what == "give" and self.wrote[worker]:
            self.gave[worker] = self.wrote[worker]
            self.on_the_way.append((worker, says("a", KEPT, str(self.gave[worker]))))
        elif what == "lose" and self.draw.random() < 0.1:
            self.lost.add(worker)
            if self.wrote[worker] and worker not in self.asked:
                self.silent.add(worker)
        self.answer()

    def answer(self) -> None:
        questions, self.rounds.outbox = self.rounds.outbox, []
        for question in questions:
            for worker in range(len(self.wrote)):
                number = question["number"]
                assert isinstance(number, int)
                version = str(self.wrote[worker])
                self.asked |= {worker} - self.lost
                if worker in self.lost:
                    answer = says("a", NONE, "", number, since=1)  # of the pod that replaces it
                elif self.wrote[worker] == 0:
                    answer = says("a", NONE, "", number)
                elif self.gave[worker] == self.wrote[worker]:
                    answer = says("a", KEPT, version, number)
                else:
                    answer = says("a", PENDING, version, number)
                self.on_the_way.append((worker, answer))


@settings(max_examples=examples(300))
@given(st.integers(1, 4), st.integers(0, 2**32), st.integers(1, 60))
def test_what_is_safe_has_a_given_part_of_each_that_wrote(workers: int, seed: int, steps: int) -> None:
    world = World(workers, Random(seed))
    for _ in range(steps):
        before = len(world.rounds.to_keeper)
        world.step()
        for order in world.rounds.to_keeper[before:]:
            parts = order["parts"]
            assert isinstance(parts, dict)
            assert parts
            assert all(0 < int(version) <= world.gave[int(worker)] for worker, version in parts.items())
            assert not world.silent - {int(worker) for worker in parts}


def test_a_pointer_is_not_safe_before_what_it_may_name() -> None:
    """Worker 0 has given `latest`, and worker 1 not yet its part of what it names."""
    rounds = Rounds(2, "ckpt")
    rounds.told(0, says("step-2", KEPT, "v0"))
    rounds.told(0, says("latest", KEPT, "p", pointer=True))
    step, latest = (each["number"] for each in rounds.outbox)
    rounds.told(1, says("step-2", PENDING, "v1", step))  # type: ignore[arg-type]
    rounds.told(1, says("latest", NONE, number=latest))  # type: ignore[arg-type]
    assert order_of(rounds) == []
    rounds.told(1, says("step-2", KEPT, "v1"))
    assert order_of(rounds) == [("safe", "step-2", {"0": "v0", "1": "v1"}), ("safe", "latest", {"0": "p"})]


def test_what_never_becomes_safe_holds_up_no_pointer_once_a_newer_one_is() -> None:
    rounds = Rounds(2, "ckpt")
    rounds.told(0, says("step-1", KEPT, "v"))
    rounds.told(0, says("step-2", KEPT, "v"))
    rounds.told(0, says("latest", KEPT, "p", pointer=True))
    _torn, step, latest = (each["number"] for each in rounds.outbox)
    rounds.told(1, says("latest", NONE, number=latest))  # type: ignore[arg-type]
    assert order_of(rounds) == []
    rounds.told(1, says("step-2", NONE, number=step))  # type: ignore[arg-type]
    assert [name for _, name, _ in order_of(rounds)] == ["step-2", "latest"]


def test_a_pointer_is_not_what_users_are_shown() -> None:
    rounds = Rounds(1, "ckpt")
    for at, entry in enumerate(("step-1", "latest")):
        rounds.told(0, says(entry, KEPT, "v", pointer=entry == "latest"))
        told = told_safe(entry, at=at, w0="v")
        rounds.confirmed({"entry": entry, "checkpoint": {**told, "pointer": entry == "latest"}})
    assert [each["path"] for each in rounds.events] == ["ckpt/step-1"]
    newest = rounds.newest()
    assert newest is not None
    assert newest["entry"] == "step-1"


def test_what_a_pointer_names_is_not_forgotten_before_its_next_version_is_safe() -> None:
    rounds = Rounds(1, "ckpt")

    def confirm(entry: str, version: str, at: int) -> None:
        rounds.told(0, says(entry, KEPT, version, pointer=entry == "latest"))
        told = {**told_safe(entry, at=at, w0=version), "pointer": entry == "latest"}
        rounds.to_keeper.clear()
        rounds.confirmed({"entry": entry, "checkpoint": told})

    confirm("step-1", "v", 10)
    confirm("latest", "1", 11)
    confirm("step-2", "v", 20)
    rounds.told(0, says("step-1", GONE))
    assert order_of(rounds) == []
    confirm("latest", "2", 21)
    assert [each[:2] for each in order_of(rounds)] == [("forget", "step-1")]


def test_what_is_deleted_before_it_is_safe_is_forgotten() -> None:
    """Else its parts would take the keeper's room for ever. What others wrote to it stays till they do so."""
    rounds = Rounds(2, "ckpt")
    rounds.told(0, says("a", KEPT, "v"))
    rounds.told(0, says("latest", KEPT, "p", pointer=True))
    rounds.told(1, says("latest", NONE, number=rounds.outbox[1]["number"]))  # type: ignore[arg-type]
    assert order_of(rounds) == []
    rounds.told(0, says("a", GONE))
    assert order_of(rounds) == [("forget", "a", None), ("safe", "latest", {"0": "p"})]
    assert rounds.to_keeper[0]["worker"] == 0
    assert not rounds.asks
