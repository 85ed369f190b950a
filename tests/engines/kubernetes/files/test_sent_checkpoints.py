"""A run that ended goes on from the checkpoints that its keeper had: these come home, and are sent to the
keeper of its next start. Real agents, keepers and copies on loopback."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.agent.keepers import SIZE, RunKeeper
from tests.agent.pods import Pods, pods_here
from tests.conftest import wait_until
from tests.engines.kubernetes.local_pod import Pod

from echelon.engines.kubernetes import names
from echelon.engines.kubernetes.files.results.gather import place_of
from echelon.engines.kubernetes.files.sent_checkpoints import Shipment
from echelon.engines.kubernetes.files.transfer import fetch_tree
from echelon.engines.machine import SafeCheckpoints
from echelon.model.pods.pod import Keeper, PodOptions

WORKERS = 2
# Every rank writes a part of each checkpoint, and checks all that it finds.
TRAINS = """
import os, pathlib, sys, time
folder = pathlib.Path({folder!r})
ckpt = pathlib.Path(os.environ["ECHELON_OUTPUT"]) / "ckpt"
ckpt.mkdir(parents=True, exist_ok=True)
rank = int(os.environ["ECHELON_RANK"])
for path in sorted(ckpt.glob("step-*/*")):
    assert path.read_bytes() == path.name.encode() * 50_000, path
    print("found", path.relative_to(ckpt), flush=True)
if (ckpt / "latest").exists():
    print("latest is", os.readlink(ckpt / "latest"), flush=True)
print("began", flush=True)
(ckpt / {step!r}).mkdir(exist_ok=True)
(ckpt / {step!r} / str(rank)).write_bytes(str(rank).encode() * 50_000)
if rank == 0 and not (ckpt / "latest").exists():
    (ckpt / "latest").symlink_to({step!r})
while not (folder / "go").exists():
    time.sleep(0.02)
sys.exit(3 if rank == 0 else 0)
"""


class Start:
    """One start of a run, with its keeper."""

    def __init__(self, pods: Pods, step: str, *, earlier: int) -> None:
        self.pods = pods
        text = TRAINS.format(folder=str(pods.folder), step=step)
        pods.script(text, workers=WORKERS, hold=600.0, keep=600.0, repeat_state=True, earlier=earlier)
        for worker in reversed(range(WORKERS)):
            output = pods.folder / f"{worker}.0" / "output"
            pods.start(worker, kept=[str(output)], checkpoints=str(output / "ckpt"))
        self.keepers: list[RunKeeper] = []
        self.keep()

    def keep(self) -> RunKeeper:
        keeper = RunKeeper(self.pods, number=len(self.keepers))
        self.keepers.append(keeper)
        keeper.start(checkpoints="/nowhere/ckpt", kept=["/nowhere"])
        return keeper

    def said(self, text: str, *workers: int) -> None:
        for worker in workers or range(WORKERS):
            wait_until(lambda worker=worker: text in self.pods.said(worker), f"worker {worker}: {text}")  # type: ignore[misc]

    def end(self, safe: str) -> None:
        paths = lambda: [each["path"] for each in self.pods.events(0) if each["kind"] == "checkpoint"]  # noqa: E731
        wait_until(lambda: f"ckpt/{safe}" in paths(), f"{safe} to be safe: {paths()}")
        (self.pods.folder / "go").touch()
        self.keepers[-1].wait_kept(*range(WORKERS))

    def fetch(self, home: Path) -> SafeCheckpoints:
        """Bring the results home, and note what the keeper has stated."""
        keeper, pod = self.keepers[-1], Pod(self.pods.archive)
        for worker in range(WORKERS):
            place = str(keeper.folder(worker))
            fetch_tree(pod.open, place, home, move=lambda path, worker=worker: place_of(worker, path))  # type: ignore[misc]
        parts = {
            worker: {name: (version, mark, at) for name, (version, mark, at) in event["parts"].items()}
            for worker, event in keeper.kept().items()
        }
        return SafeCheckpoints(path=str(home), parts=parts)

    def close(self) -> None:
        for keeper in self.keepers:
            keeper.close()


@pytest.fixture
def starts() -> Iterator[Any]:
    with ExitStack() as stack:

        def start(step: str, *, earlier: int) -> Start:
            made = Start(stack.enter_context(pods_here()), step, earlier=earlier)
            stack.callback(made.close)
            return made

        yield start


def shipment(safe: SafeCheckpoints) -> Shipment:
    options = PodOptions(keeper=Keeper(keep=600.0, size=SIZE), checkpoints="ckpt")
    return Shipment(options, safe)


def send(start: Start, safe: SafeCheckpoints, monkeypatch: pytest.MonkeyPatch, *breaks: int) -> None:
    """Send what is safe to the newest keeper; connections break."""
    keeper, sent = start.keepers[-1], shipment(safe)
    monkeypatch.setattr(names, "KEPT", str(keeper.place / "kept"))
    pod = Pod(start.pods.archive)
    pod.breaks = list(breaks)
    sent.send(pod.open, lambda _now: None)
    wait_until(lambda: keeper.order(*sent.order()).returncode == 0, "the keeper to take them")
    assert keeper.order(*sent.order()).returncode == 0, "said again it is so still"


def test_all_workers_of_the_next_start_get_the_union_of_what_was_safe(
    starts: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    first = starts("step-1", earlier=0)
    first.said("began")
    first.end("step-1")
    safe = first.fetch(home)
    assert (home / "ckpt/step-1/0").exists()
    assert (home / "worker-1/ckpt/step-1/1").exists()
    first.close()

    second = starts("step-2", earlier=1)
    second.pods.wait_for("worker-started", of=1)
    keeper = second.keepers[-1]
    wait_until(lambda: keeper.order("stock", '{"mark": "0"}').returncode == 1, "the keeper to answer")
    assert not second.pods.said(0), "no rank starts before they are there"
    keeper.close()  # another one takes its place, and has nothing
    second.keep()
    send(second, safe, monkeypatch, 20_000, 120_000)
    second.said("began")
    for rank in range(WORKERS):
        second.said(f"found step-1/{rank}")
    second.said("latest is step-1")
    restored = [each for each in second.pods.events(0) if each["kind"] == "restored"]
    assert {(each["worker"], each["path"]) for each in restored} == {
        (worker, path) for worker in range(WORKERS) for path in ("ckpt/step-1", "ckpt/latest")
    }

    second.end("step-2")  # what it goes on from stays, beside what it makes
    again = second.fetch(home)
    third = starts("step-3", earlier=2)
    send(third, again, monkeypatch)
    third.said("began")
    for step in ("step-1", "step-2"):
        for rank in range(WORKERS):
            third.said(f"found {step}/{rank}")


def test_a_run_of_which_nothing_was_safe_begins_anew(starts: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    start = starts("step-1", earlier=1)
    send(start, SafeCheckpoints(path=""), monkeypatch)
    start.said("began")
    assert not any("found" in line for worker in range(WORKERS) for line in start.pods.said(worker))
    refused = start.pods.order(0, "stock")
    assert (refused.returncode, refused.stderr) == (1, "a worker keeps no checkpoints of others\n")


@pytest.mark.slow
def test_what_was_changed_meanwhile_is_not_taken(
    starts: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By another hand, between the look at home and the transfer."""
    home = tmp_path / "home"
    first = starts("step-1", earlier=0)
    first.said("began")
    first.end("step-1")
    safe = first.fetch(home)
    sent = shipment(safe)
    (home / "worker-1/ckpt/step-1/1").write_bytes(b"torn")
    second = starts("step-2", earlier=1)
    keeper = second.keepers[-1]
    monkeypatch.setattr(names, "KEPT", str(keeper.place / "kept"))
    wait_until(lambda: keeper.order(*sent.order()).returncode == 1, "the keeper to answer")
    sent.send(Pod(second.pods.archive).open, lambda _now: None)
    for _ in range(5):
        assert keeper.order(*sent.order()).returncode == 1
    assert not second.pods.said(0)
    assert "0 safe checkpoints" in shipment(safe).describe()
    shutil.rmtree(home)
    assert json.loads(shipment(safe).order()[1])["links"] == []
