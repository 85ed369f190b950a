"""That a submission which fails leaves nothing behind, and that what does not fit waits or is refused."""

from __future__ import annotations

import dataclasses
import os
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from echelon.admission import plan_anywhere
from echelon.engines.base import Taken
from echelon.engines.memory.engine import MemoryEngine
from echelon.engines.memory.script import Act, one_node
from echelon.errors import NoRoomNow, RunExists, StateTrouble, Unplaceable, Unreachable
from echelon.model.engine.traits import Traits
from echelon.model.plan import Plan
from echelon.model.run import Record, RunRef, StopSignal
from echelon.model.settings import Settings
from echelon.model.surroundings import Surroundings
from echelon.preparation.prepare import Prepared, prepare
from echelon.submit import Beside, submit


def settle(settings: Settings) -> Prepared:
    here = Surroundings(folder=Path.cwd(), environment=dict(os.environ))
    return prepare(settings, here, Traits(place="this machine"))


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ECHELON_ON", raising=False)
    return tmp_path


def write(name: str, text: str = "print('hi')\n") -> Path:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(text))
    return path


def test_what_never_fits_and_what_does_not_fit_now_leave_nothing() -> None:
    write("stay.py")
    engine = MemoryEngine({"stay.py": Act(lasts=True)}, cluster=one_node(gpus=2))
    with pytest.raises(Unplaceable, match="3 GPUs asked for"):
        submit(settle(Settings(script="stay.py", gpus=3)), engine)
    assert engine.runs() == []
    run = submit(settle(Settings(script="stay.py", gpus=2, name="a")), engine)
    with pytest.raises(NoRoomNow, match="held by a"):
        submit(settle(Settings(script="stay.py", gpus=1)), engine, no_wait=True)
    assert [row.name for row in engine.runs()] == ["a"]
    waiting = submit(settle(Settings(script="stay.py", gpus=1, name="b")), engine)
    assert waiting.status().state == "queued"
    run.stop()


class Late(MemoryEngine):
    """A machine on which somebody is always faster by a moment."""

    def start(self, ref: RunRef, plan: Plan) -> None:
        if ref.name != "other":
            submit(settle(Settings(script="stay.py", gpus=1, name="other")), self)
            raise Taken("other")
        super().start(ref, plan)


def test_somebody_was_faster_and_we_do_not_wait() -> None:
    write("stay.py")
    engine = Late({"stay.py": Act(lasts=True)}, cluster=one_node(gpus=1))
    with pytest.raises(NoRoomNow, match="held by other"):
        submit(settle(Settings(script="stay.py", gpus=1, name="a")), engine, no_wait=True)
    assert [row.name for row in engine.runs()] == ["other"]


class Unattended(Late):
    """The same where nothing retries a queued run but the command that stays with it."""

    traits = dataclasses.replace(MemoryEngine.traits, keeps_queue=False)

    def __init__(self) -> None:
        super().__init__({"stay.py": Act(lasts=True)}, cluster=one_node(gpus=1))
        self.started: dict[str, Plan] = {}

    def start(self, ref: RunRef, plan: Plan) -> None:
        if plan.placement.seats[0].gpus:
            super().start(ref, plan)
        self.started[ref.name] = plan


def test_somebody_was_faster_and_nobody_stays_to_retry() -> None:
    """A detached run ends where one goes that never fitted: it starts, and the scheduler makes it wait."""
    write("stay.py")
    engine = Unattended()
    run = submit(settle(Settings(script="stay.py", gpus=1, name="a")), engine, stays=False)
    assert engine.started[run.name] == plan_anywhere(settle(Settings(script="stay.py", gpus=1, name="a")).job)
    assert [event.kind for event in engine.events(RunRef(engine="memory", name="a"))] == ["recorded"]


def test_a_place_that_is_always_taken_at_the_last_moment_is_not_tried_for_ever() -> None:
    class Disagreeing(MemoryEngine):
        """Its looks show a free GPU, its starts do not."""

        def start(self, _ref: RunRef, _plan: Plan) -> None:
            raise Taken("other")

    write("stay.py")
    engine = Disagreeing({"stay.py": Act(lasts=True)}, cluster=one_node(gpus=1))
    run = submit(settle(Settings(script="stay.py", gpus=1, name="a")), engine)
    assert (run.status().state, run.status().reason) == ("queued", "other takes what it would get")


class Failing(MemoryEngine):
    """A machine that fails at the last step."""

    trouble: BaseException = StateTrouble("the disk is full")

    def start(self, _ref: RunRef, _plan: Plan) -> None:
        raise self.trouble


@pytest.mark.parametrize(
    "trouble", [StateTrouble("the disk is full"), OSError(28, "full"), KeyboardInterrupt()]
)
def test_a_submission_that_fails_half_way_leaves_nothing(trouble: BaseException) -> None:
    write("train.py")
    engine = Failing()
    engine.trouble = trouble
    with pytest.raises(type(trouble)):
        submit(settle(Settings(script="train.py", name="a")), engine)
    assert engine.runs() == []


def test_what_a_submission_brings_along_is_made_when_the_name_is_its_own() -> None:
    write("stay.py")
    engine = MemoryEngine({"stay.py": Act(lasts=True)})
    states: list[str] = []

    def bring() -> None:
        states.extend(row.state for row in engine.runs())

    beside = Beside(named=frozenset({("ConfigMap", "src")}), bring=bring)
    run = submit(settle(Settings(script="stay.py", name="a")), engine, beside=beside)
    assert states == ["recorded"]
    with pytest.raises(RunExists):
        submit(settle(Settings(script="stay.py", name="a")), engine, beside=beside)
    assert states == ["recorded"]
    run.stop()


def test_a_run_for_which_something_cannot_be_brought_along_is_not_left() -> None:
    def bring() -> None:
        raise StateTrouble("a quota is used up")

    write("train.py")
    engine = MemoryEngine()
    with pytest.raises(StateTrouble, match="quota"):
        submit(
            settle(Settings(script="train.py", name="a")),
            engine,
            beside=Beside(named=frozenset(), bring=bring),
        )
    assert engine.runs() == []


class Speechless(MemoryEngine):
    """It starts runs, and then changes nothing more; it may still be looked at, or not."""

    silent = False
    sees = True

    def start(self, ref: RunRef, plan: Plan) -> None:
        super().start(ref, plan)
        self.silent = True
        raise self.lost()

    def stop(self, ref: RunRef, *, signal: StopSignal = "SIGTERM", grace: float | None = None) -> None:
        raise self.lost(ref, signal, grace)

    def remove(
        self, ref: RunRef, tell: Callable[[str], object] = print, *, force: bool = False
    ) -> Sequence[str]:
        raise self.lost(ref, tell, force)

    def read(self, ref: RunRef) -> Record:
        if self.silent and not self.sees:
            raise self.lost()
        return super().read(ref)

    def lost(self, *_asked: object) -> Unreachable:
        return Unreachable("the API server cannot answer now", hint="try again in a moment")


@pytest.mark.parametrize(
    ("sees", "told"),
    [(True, "run 'a' is there, and running"), (False, "whether run 'a' is there is not known")],
)
def test_what_may_run_is_told_and_nobody_is_told_to_try_again(sees: bool, told: str) -> None:
    write("stay.py")
    engine = Speechless({"stay.py": Act(lasts=True)})
    engine.sees = sees
    with pytest.raises(Unreachable) as caught:
        submit(settle(Settings(script="stay.py", name="a")), engine)
    assert told in caught.value.message
    assert "try again" not in str(caught.value)
    assert "`echelon stop a`" in caught.value.hint
