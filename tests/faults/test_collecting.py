"""Faults at random while a command collects a run's results: the API server is away, a pod is deleted, the
time to linger is over, the command is killed or stands still, two collect at once, the disk at home is full,
the keeper is killed.

The command's own code decides here, over pods that are folders (`test_results_home`) and time that is told.
Afterwards everything is at home, noted and released; or the error names what is not, with its own exit code,
and whatever may still come is left where it is."""

from __future__ import annotations

import contextlib
import random
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import PATIENCE
from tests.engines.kubernetes.small import stored
from tests.faults import test_results_home as pods_as_folders
from tests.faults.test_results_home import KEEPER, Fault, Killed, absent, at_random, full_disk

from echelon.agent.hold import Hold
from echelon.engines.kubernetes import control, names, objects
from echelon.engines.kubernetes.files import reconnect
from echelon.engines.kubernetes.files.reconnect import Channel, Opener
from echelon.engines.kubernetes.files.results import collecting, gather, seen
from echelon.engines.kubernetes.files.results.shards import Shard
from echelon.engines.kubernetes.files.transfer import fetch_tree
from echelon.engines.kubernetes.follow.keeper import KeeperView
from echelon.engines.kubernetes.follow.view import View
from echelon.engines.kubernetes.record import Stored
from echelon.engines.machine import Submissions
from echelon.errors import ResultsIncomplete, Unreachable
from echelon.model.event import Event
from echelon.model.run import RunRef

FAULTS = ("away", "break", "delete", "full", "keeper", "kill", "late", "linger", "stop", "twice")
REF = RunRef(engine="k8s", name="demo")
END = Event(kind="finished", at=4.0, outcome="succeeded", exit_code=0)
HOLD, KEEP = 300.0, 86400.0  # seconds that workers, and the keeper, wait for a client
AT_WORK = 60.0
FOR_EVER = 1_000_000


@dataclass
class Ending:
    """A run that is over, its pods, and the commands that collect from them."""

    pods: pods_as_folders.Cluster
    home: Path
    now: float = 0.0
    away: int = 0  # calls that the API server will not answer
    holds: dict[str, Hold] = field(default_factory=dict)
    at_work: set[str] = field(default_factory=set)  # clients that say so
    late: int = -1  # what happens when all of it is here
    said: bool = False  # the record says that results were fetched
    released: bool = False
    lock: threading.RLock = field(default_factory=threading.RLock)

    def __post_init__(self) -> None:
        for worker in range(self.pods.workers):
            pod = self.pods.pod_of(worker)
            self.holds[pod] = Hold(KEEP if pod == KEEPER else HOLD, self.now)

    # Time, as agents count it

    def pass_time(self, seconds: float) -> None:
        """All stands still meanwhile, clients too."""
        with self.lock:
            self.now += seconds
            self.leave()

    def leave(self) -> None:
        self.pods.deleted |= {pod for pod, hold in self.holds.items() if hold.is_over(self.now)}

    # What the command does

    def call(self) -> None:
        """A request of the command to the API server."""
        with self.lock:
            if self.away > 0:
                self.away -= 1
                self.pass_time(20.0)
                raise Unreachable("the API server does not answer", hint="")

    def renew(self) -> None:
        """The clients say that they are at work, as they do all the while."""
        with self.lock:
            for client in self.at_work:
                for pod, hold in self.holds.items():
                    if not self.away and pod not in self.pods.deleted:
                        hold.renew(self.now, client, AT_WORK)

    @contextlib.contextmanager
    def working(self, *_: object) -> Iterator[None]:
        client = threading.current_thread().name
        with self.lock:
            self.at_work.add(client)
            self.renew()
        try:
            yield
        finally:
            with self.lock:
                self.at_work.discard(client)

    def release(self, *_: object) -> None:
        with self.lock:
            for worker in range(self.pods.workers):
                if self.pods.pod_of(worker) not in self.pods.deleted:
                    assert absent(self.pods, self.home, worker) == set(), f"worker {worker} is let go"
            self.released = True
            for hold in self.holds.values():
                hold.release(threading.current_thread().name)
            self.leave()

    def reach(self, *_: object) -> Callable[[str], Opener]:
        def opener_of(pod: str) -> Opener:
            @contextlib.contextmanager
            def opened(words: Sequence[str]) -> Iterator[Channel]:
                self.call()
                self.renew()
                fault = self.pods.faults[0] if self.pods.faults else None
                with self.pods.reach(pod)(words) as channel:
                    try:
                        yield channel
                    except Unreachable:
                        if fault is not None and fault.kind == "stop":
                            self.pass_time(fault.after % 1000)
                        if fault is not None and fault.kind == "away":
                            self.away = (1, 3, FOR_EVER)[fault.after % 3]
                        raise

            return opened

        return opener_of

    def see(self, *_: object) -> Any:
        self.call()
        keeper = KeeperView(pod=None if KEEPER in self.pods.deleted else KEEPER) if self.pods.kept else None
        shards = self.pods.shards()

        class Seen(seen.Seen):
            def shards(self) -> list[Shard]:
                return shards

        return Seen(view=View(stored=self.record(), jobs=[], pods=[]), events=(END,), keeper=keeper)

    # A connection to the API server

    def record(self) -> Stored:
        return stored(collected={"at": 5.0, "host": "here", "path": str(self.home)} if self.said else None)

    def may(self, *_: object, **__: object) -> bool:
        self.call()
        return True

    def patch(self, *_: object, **__: object) -> None:
        self.call()
        self.said = True

    def come_home(self, *_: object) -> None:
        """All of it is here, and neither the cluster nor the workers know it."""
        late, self.late = self.late, -1
        if late < 0:
            return
        self.away = (1, 3, FOR_EVER)[late % 3]
        if late % 2:
            raise Killed

    def read_record(self, *_: object) -> Any:
        self.call()
        return self.record()


def collect(ending: Ending) -> ResultsIncomplete | Unreachable | Killed | None:
    """One command, in a process of its own, from its start to its end; returns what it ends with."""
    try:
        collecting.collect_results(ending, Submissions(), REF, None)  # type: ignore[arg-type]
    except (ResultsIncomplete, Unreachable, Killed) as error:
        return error
    return None


def check(ending: Ending, outcome: ResultsIncomplete | Unreachable | Killed | None) -> None:
    """What the command says is true."""
    lacking = {worker: absent(ending.pods, ending.home, worker) for worker in range(ending.pods.workers)}
    noted = Submissions().fetched(stored().uid, stored().run.created)
    if isinstance(outcome, Killed):
        return
    if outcome is None:
        assert not any(lacking.values()), "it exits with 0"
        assert noted is not None
        return
    if isinstance(outcome, Unreachable):
        assert noted is not None
        assert "are in " in outcome.message
        assert noted.missing or not any(lacking.values())
        return
    assert outcome.exit_code == 123
    told = {
        int(each[1]): each[2]
        for each in re.finditer(r"worker (\d+): ((?:(\d+) files?)?[^;]*)", outcome.message)
    }
    if told:
        assert {worker for worker, files in lacking.items() if files} <= set(told), outcome.message
    else:
        assert "were not fetched: the API server does not answer" in outcome.message
    for worker, text in told.items():
        count = re.match(r"(\d+) files?", text)
        assert count is None or int(count[1]) >= len(lacking[worker]), outcome.message
        if "(" in text and count is not None:
            assert int(count[1]) == len(lacking[worker]), outcome.message
    there = {worker for worker in lacking if ending.pods.pod_of(worker) not in ending.pods.deleted}
    if any(lacking[worker] for worker in there):
        assert not ending.released
        assert noted is None


def attempt(ending: Ending, fault: Fault | None) -> None:
    kind = fault.kind if fault is not None else ""
    ending.late = fault.after if fault is not None and kind == "late" else -1
    if fault is not None and kind == "linger":
        ending.pass_time(fault.after % 600)
    if fault is not None and kind == "twice":
        outcomes: list[Any] = []
        other = threading.Thread(target=lambda: outcomes.append(collect(ending)), name="another")
        other.start()
        outcomes.append(collect(ending))
        other.join(2 * PATIENCE)
        assert len(outcomes) == 2
        for outcome in outcomes:
            check(ending, outcome)
        return
    ending.pods.faults = [fault] if fault is not None and kind not in ("full", "late", "linger") else []
    with full_disk(fault.after) if fault is not None and kind == "full" else contextlib.nullcontext():
        outcome = collect(ending)
    ending.away = 0
    check(ending, outcome)
    if fault is None:
        lacking = [
            worker for worker in range(ending.pods.workers) if absent(ending.pods, ending.home, worker)
        ]
        assert all(ending.pods.pod_of(worker) in ending.pods.deleted for worker in lacking)
        assert ending.released, "nothing more can come"
        assert (outcome is None) == (not lacking)


def note_and(then: Callable[[], object]) -> Callable[..., None]:
    """What notes on this machine that results are here, and what happens next."""
    note = Submissions.note_fetched

    def noted(self: Submissions, *given: Any) -> None:
        note(self, *given)
        then()

    return noted


def story(folder: Path, faults: list[Fault], seed: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        pods = pods_as_folders.make(folder, random.Random(seed))
        patch.setenv("ECHELON_HOME", str(folder / "state"))
        patch.chdir(folder)
        home = folder / "runs" / "demo"
        Submissions().remember(stored().uid, home)
        ending = Ending(pods=pods, home=home)
        patch.setattr(reconnect, "FIRST_DELAY", 0.01)
        patch.setattr(gather, "fetch_tree", partial(fetch_tree, patience=0.5))
        patch.setattr(collecting, "_NODES_RETURN", -1.0)
        patch.setattr(collecting, "read_record", ending.read_record)
        patch.setattr(collecting, "read_alone", ending.read_record)
        for name in ("see", "see_all"):
            patch.setattr(collecting, name, ending.see)
        patch.setattr(collecting, "reach_pods", ending.reach)
        patch.setattr(collecting, "kept_folders", lambda _: [names.OUTPUT])
        patch.setattr(Submissions, "note_fetched", note_and(ending.come_home))
        patch.setattr(collecting, "_force_to_disk", lambda _: None)
        patch.setattr(control, "at_work", ending.working)
        patch.setattr(control, "release_workers", ending.release)
        for module, name in ((control, "release_keeper"), (objects, "tie_record"), (objects, "drop_payload")):
            patch.setattr(module, name, lambda *_: None)
        for fault in faults:
            attempt(ending, fault)
        attempt(ending, None)


@at_random(FAULTS, most=4, examples=8)
def test_everything_is_at_home_or_named(
    tmp_path_factory: pytest.TempPathFactory, faults: list[Fault], seed: int
) -> None:
    story(tmp_path_factory.mktemp("end"), faults, seed)


@pytest.mark.soak
@at_random(FAULTS, most=4, examples=300)
def test_everything_is_at_home_or_named_many_times(
    tmp_path_factory: pytest.TempPathFactory, faults: list[Fault], seed: int
) -> None:
    story(tmp_path_factory.mktemp("end"), faults, seed)


@pytest.mark.parametrize("kind", FAULTS)
def test_each_fault_by_itself(tmp_path: Path, kind: str) -> None:
    """Early enough to strike for certain, and later, in the middle of a file."""
    for number, after in enumerate((0, 2501, 300_800)):
        folder = tmp_path / str(number)
        folder.mkdir()
        story(folder, [Fault(kind=kind, after=after)], seed=11 + number)
