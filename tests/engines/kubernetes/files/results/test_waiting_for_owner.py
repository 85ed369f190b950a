"""A take-over waits for an owner that fetches, as long as it lives and has something to fetch; it says so."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest
from tests.engines.kubernetes.small import stored

from echelon.engines.base import TakeOver
from echelon.engines.kubernetes.files.results import waiting_for_owner
from echelon.engines.kubernetes.files.results.waiting_for_owner import Wanted, wait_for_owner
from echelon.engines.kubernetes.record import Stored
from echelon.errors import ResultsIncomplete, RunTimedOut
from echelon.model.pods.pod import parse_output

FETCHED = {"at": 5.0, "host": "theirs", "path": "/home/ann/runs/demo"}
CLAIM = {"holder": "their-host/of-boot-1/77/abc", "until": 4e9}


class Claim:
    """A claim that is free at the n-th try."""

    held = False

    def __init__(self, free_at: int) -> None:
        self.tried, self.free_at = 0, free_at

    def take(self) -> bool:
        self.tried += 1
        return self.tried >= self.free_at

    def release(self) -> None:
        pass


Look = Callable[..., Claim]


@pytest.fixture
def look(monkeypatch: pytest.MonkeyPatch) -> Look:
    """Wait while the record, and what workers hold, are so at one look after another."""
    said: list[str] = []

    def waited(
        seen: list[dict[str, Any]], free_at: int = 10, *, until: float | None = None, output: str = ""
    ) -> Claim:
        there, now = iter(seen), dict[str, Any]()

        def read_now(*_: object) -> Stored:
            now.clear()
            now.update(next(there))
            found = stored(collected=now.get("collected"), tender=now.get("tender", CLAIM))
            if not output:
                return found
            job = replace(
                found.run.job, pod=replace(found.run.job.pod, output=parse_output(output, "output"))
            )
            return replace(found, run=replace(found.run, job=job))

        monkeypatch.setattr(waiting_for_owner, "read_alone", read_now)
        monkeypatch.setattr(waiting_for_owner, "are_held", lambda *_: "held" in now)
        monkeypatch.setattr(waiting_for_owner, "_LOOK", 0.0)
        claim = Claim(free_at)
        wanted = Wanted(tender=claim, asked=TakeOver(tell=said.append, until=until))
        wait_for_owner(None, stored().run.ref, wanted)  # type: ignore[arg-type]
        return claim

    waited.said = said  # type: ignore[attr-defined]
    return waited


@pytest.mark.parametrize(
    ("seen", "free_at", "looks", "missing"),
    [
        ([{}, {}, {"collected": FETCHED}], 10, 3, False),  # the owner has fetched them
        ([{"collected": FETCHED, "held": "yes"}] * 2 + [{"collected": FETCHED}], 10, 3, False),
        ([{"collected": FETCHED, "held": "yes"}] * 3, 3, 3, False),  # forged: its workers hold them still
        (
            [{}, {}, {"collected": {**FETCHED, "missing": ["worker 1: gone"]}}],
            10,
            3,
            True,
        ),  # as far as it could
        ([{}, {}, {}], 2, 2, False),  # the owner is gone: its claim is ours
        ([{"collected": FETCHED}], 1, 1, False),  # nobody holds it: what the record says is not believed
    ],
)
def test_it_ends_as_the_owner_does(
    look: Look, seen: list[dict[str, Any]], free_at: int, looks: int, missing: bool
) -> None:
    with pytest.raises(ResultsIncomplete) if missing else nullcontext():
        assert look(seen, free_at).tried == looks


def test_it_says_for_whom_once(look: Look) -> None:
    look([{"held": "yes"}] * 3 + [{"collected": FETCHED}])
    (line,) = look.said  # type: ignore[attr-defined]
    assert line.startswith("waiting for process 77 on their-host, which looks after run demo")


def test_an_owner_that_lives_and_has_nothing_to_fetch_is_not_waited_for(
    look: Look, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting_for_owner, "_SILENCE", 0.0)
    with pytest.raises(ResultsIncomplete, match="nothing holds them any more, and process 77 on their-host"):
        look([{"held": "yes"}, {"held": "yes"}, {}])
    look([{}, {"collected": FETCHED}], output="new:1Gi")  # from a volume it fetches without the workers


def test_what_stays_on_the_users_volume_is_not_waited_for(look: Look) -> None:
    assert look([{}], output="pvc:data/out").tried == 1


def test_the_users_time_limit_holds_here_too(look: Look) -> None:
    with pytest.raises(RunTimedOut, match="process 77 on their-host still fetches its results"):
        look([{"held": "yes"}] * 3, until=0.0)
