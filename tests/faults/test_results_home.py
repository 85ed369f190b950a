"""The end of a run with faults at random: connections break, pods are deleted, the keeper or the client is
killed, another client fetches at the same time, the disk at home is full. Afterwards everything is at home,
or what is returned names exactly what is not.

Agents are real processes that send over pipes; only the cluster between them and the client is not there.
"""

from __future__ import annotations

import contextlib
import errno
import random
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tests.conftest import PATIENCE
from tests.engines.kubernetes.local_pod import Local

from echelon.agent.files import landing, receiver
from echelon.agent.files.manifest import manifest_of
from echelon.agent.files.sender import Sender
from echelon.agent.keep.exchange import socket_wire, take
from echelon.bundle.zipapp import agent_archive
from echelon.engines.kubernetes import names
from echelon.engines.kubernetes.client.api import NotThere
from echelon.engines.kubernetes.files import reconnect
from echelon.engines.kubernetes.files.reconnect import Channel, Opener
from echelon.engines.kubernetes.files.results.gather import Gathered, gather, place_of
from echelon.engines.kubernetes.files.results.shards import Shard
from echelon.errors import Unreachable
from echelon.model.copy import Manifest

FAULTS = ("break", "delete", "kill", "full", "twice", "keeper")
KEEPER = "keeper"
DISK_FULL = OSError(errno.ENOSPC, "No space left on device")


class Killed(BaseException):
    """The client is gone."""


@dataclass
class Fault:
    """What goes wrong, and after how many bytes of a connection."""

    kind: str
    after: int


@dataclass
class Cluster:
    """The pods of a run, each a folder; `faults` strike one connection each, in turn. Of the workers in
    `kept`, the keeper has a copy.
    """

    folder: Path
    archive: Path
    workers: int
    kept: set[int] = field(default_factory=set)
    deleted: set[str] = field(default_factory=set)
    faults: list[Fault] = field(default_factory=list)

    def output(self, pod: str) -> Path:
        return self.folder / pod

    def shards(self) -> list[Shard]:
        found = []
        for worker in range(self.workers):
            about = manifest_of(str(self.output(f"pod-{worker}")))
            about.update(worker=worker, root=names.OUTPUT)
            pod = self.pod_of(worker)
            gone = pod in self.deleted
            found.append(
                Shard(
                    worker=worker,
                    stated={names.OUTPUT: Manifest(**about)},
                    pod=None if gone else pod,
                    kept=worker in self.kept,
                    why="its pod is gone" if gone else "",
                    lost=gone,
                )
            )
        return found

    def pod_of(self, worker: int) -> str:
        return KEEPER if worker in self.kept else f"pod-{worker}"

    def reach(self, pod: str) -> Opener:
        @contextlib.contextmanager
        def opened(words: Sequence[str]) -> Iterator[Channel]:
            if pod in self.deleted:
                raise NotThere(f"pod {pod!r} has ended", hint="")
            fault = self.faults.pop(0) if self.faults else None
            action, root, *rest = words
            place = self.output(pod)
            if pod == KEEPER:
                place /= str(Path(root).relative_to(names.KEPT))
            command = ["python3", "-I", str(self.archive), "files", action, str(place), *rest]
            cuts = ("away", "break", "delete", "kill", "stop", KEEPER)
            cut = fault.after if fault is not None and fault.kind in cuts else None
            channel = Local(command, cut)
            try:
                yield channel
            except Unreachable:
                if fault is not None and fault.kind in ("delete", pod):
                    self.deleted.add(pod)
                if fault is not None and fault.kind == "kill":
                    raise Killed from None
                raise
            finally:
                channel.close()

        return opened


def fetch(cluster: Cluster, home: Path) -> Gathered | None:
    """One client, from its start to its end; None if it was killed."""
    try:
        return gather(cluster.shards(), [names.OUTPUT], home, cluster.reach)
    except Killed:
        return None


def absent(cluster: Cluster, home: Path, worker: int) -> set[str]:
    """The files of a worker that are not at home as they are in its pod."""
    source = cluster.output(f"pod-{worker}")
    found = set()
    for path in source.rglob("*"):
        name = str(path.relative_to(source))
        there = home / place_of(worker, name)
        if path.is_symlink():
            continue
        if path.is_file() and not (there.is_file() and there.read_bytes() == path.read_bytes()):
            found.add(name)
    return found


def check(cluster: Cluster, home: Path, outcome: Gathered) -> None:
    """All that is not named as missing is at home; what is named is not."""
    missing = {each.worker: each for each in outcome.missing}
    for worker in range(cluster.workers):
        lacking = absent(cluster, home, worker)
        if worker not in missing:
            assert lacking == set(), f"worker {worker} is taken for complete"
        elif missing[worker].names:
            assert set(missing[worker].names) == lacking
            assert missing[worker].files == len(lacking)
        assert worker not in missing or missing[worker].why


def make(folder: Path, chance: random.Random) -> Cluster:
    archive = folder / "agent.pyz"
    archive.write_bytes(agent_archive())
    cluster = Cluster(folder=folder, archive=archive, workers=chance.randint(1, 3))
    for worker in range(cluster.workers):
        output = cluster.output(f"pod-{worker}")
        (output / "logs").mkdir(parents=True)
        (output / "logs" / f"rank-{worker}.log").write_bytes(chance.randbytes(chance.randint(0, 3000)))
        for number in range(chance.randint(0, 6)):
            path = output / chance.choice(("", "deep", "deep/er")) / f"part-{number}"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(chance.randbytes(chance.choice((0, 10, 5000, 400_000))))
        (output / "link").symlink_to(output / "logs")
        if chance.random() < 0.5:
            cluster.kept.add(worker)
            hand_over(output, cluster.output(KEEPER) / str(worker))
    return cluster


def hand_over(output: Path, folder: Path) -> None:
    """Give a worker's results to the keeper, in the conversation in which workers do it."""
    mine, theirs = socket.socketpair()

    def give() -> None:
        with theirs:
            wire = socket_wire(theirs)
            wire.write(offer=[manifest_of(str(output))])
            Sender(wire, str(output)).run()

    worker = threading.Thread(target=give)
    worker.start()
    with mine:
        assert take(socket_wire(mine), str(folder), 1 << 30) is not None
    worker.join(PATIENCE)


@contextlib.contextmanager
def full_disk(after: int) -> Iterator[None]:
    """The disk at home takes so many bytes."""
    left, write = after, landing.write_all

    def limited(file: int, data: bytes) -> None:
        nonlocal left
        left -= len(data)
        if left < 0:
            raise DISK_FULL
        write(file, data)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(receiver, "write_all", limited)
        yield


def attempt(cluster: Cluster, home: Path, fault: Fault | None) -> None:
    if fault is not None and fault.kind == "twice":
        outcomes: list[Gathered | None] = []
        other = threading.Thread(target=lambda: outcomes.append(fetch(cluster, home)))
        other.start()
        outcomes.append(fetch(cluster, home))
        other.join(2 * PATIENCE)
        assert len(outcomes) == 2
        for outcome in outcomes:
            assert outcome is not None
            check(cluster, home, outcome)
        return
    cluster.faults = [fault] if fault is not None and fault.kind != "full" else []
    with full_disk(fault.after) if fault is not None and fault.kind == "full" else contextlib.nullcontext():
        outcome = fetch(cluster, home)
    if outcome is not None:
        check(cluster, home, outcome)
    if fault is None:
        assert outcome is not None
        assert {cluster.pod_of(each.worker or 0) for each in outcome.missing} <= cluster.deleted
        assert all(each.lost for each in outcome.missing), "what is left can never come"


def story(folder: Path, faults: list[Fault], seed: int) -> None:
    cluster, home = make(folder, random.Random(seed)), folder / "home"
    for fault in faults:
        attempt(cluster, home, fault)
    attempt(cluster, home, None)
    for worker in range(cluster.workers):
        if cluster.pod_of(worker) not in cluster.deleted:
            assert absent(cluster, home, worker) == set()
            assert (home / place_of(worker, "link")).is_symlink()


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconnect, "FIRST_DELAY", 0.01)


Story = Callable[..., None]


def at_random(
    kinds: Sequence[str], *, most: int, examples: int, shrink: bool = True
) -> Callable[[Story], Story]:
    """Have a story told so many times, each with other faults, at most so many, and another seed. A story
    that fails is looked at for its least form, unless each takes too long for that.
    """
    fault = st.builds(Fault, kind=st.sampled_from(kinds), after=st.integers(0, 1_000_000))
    faults = st.lists(fault, min_size=1, max_size=most)
    quiet = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large]
    phases = tuple(Phase) if shrink else (Phase.generate,)
    chosen = settings(max_examples=examples, deadline=None, suppress_health_check=quiet, phases=phases)
    return lambda test: chosen(given(faults=faults, seed=st.integers(0, 2**32))(test))


@at_random(FAULTS, most=3, examples=8)
def test_everything_is_at_home_or_named(
    tmp_path_factory: pytest.TempPathFactory, faults: list[Fault], seed: int
) -> None:
    story(tmp_path_factory.mktemp("end"), faults, seed)


@pytest.mark.soak
@at_random(FAULTS, most=3, examples=300)
def test_everything_is_at_home_or_named_many_times(
    tmp_path_factory: pytest.TempPathFactory, faults: list[Fault], seed: int
) -> None:
    story(tmp_path_factory.mktemp("end"), faults, seed)


@pytest.mark.parametrize("kind", FAULTS)
def test_each_fault_by_itself(tmp_path: Path, kind: str) -> None:
    """Early enough to strike for certain, and later, in the middle of a file."""
    for number, after in enumerate((0, 2000, 300_000)):
        folder = tmp_path / str(number)
        folder.mkdir()
        story(folder, [Fault(kind=kind, after=after)], seed=11 + number)
