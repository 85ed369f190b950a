"""Workers that give their results to a keeper when the run ends: real processes on loopback."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.agent.keepers import WRITES, RunKeeper, start_run
from tests.agent.pods import Pods
from tests.conftest import need_python, wait_until

from echelon.agent.files.manifest import manifest_of
from echelon.agent.task import LEFT_FOR_GOOD, RANK_FAILED, RUN_OVER

Make = Callable[..., RunKeeper]


@pytest.fixture
def make(pods: Pods) -> Iterator[Make]:
    made: list[RunKeeper] = []

    def keeper(**more: Any) -> RunKeeper:
        made.append(RunKeeper(pods, number=len(made), **more))
        return made[-1]

    yield keeper
    for each in made:
        each.close()


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and not path.is_symlink()
    }


def notes(pods: Pods) -> list[str]:
    return [event["reason"] for event in pods.events(0) if event["kind"] == "unkept"]


def check_kept(pods: Pods, keeper: RunKeeper, *workers: int) -> None:
    for worker in workers:
        own, kept = pods.place(worker) / "output", keeper.folder(worker)
        assert contents(kept) == contents(own)
        assert (kept / "latest").readlink() == Path("deep/part-0")
        (stated,) = keeper.kept()[worker]["manifests"]
        assert stated["root"] == str(own)
        assert {**manifest_of(str(kept)), "root": str(own), "worker": worker} == stated
        assert keeper.kept()[worker]["left_out"] == [["pipe", "a pipe"]]


@pytest.mark.parametrize("version", ["3.8", "3.11"])
def test_workers_leave_when_the_keeper_has_their_results(pods: Pods, make: Make, version: str) -> None:
    python = need_python(version)
    start_run(pods, WRITES, workers=3, agent=python)
    keeper = make()
    keeper.start(python=python)
    assert [pods.code(worker) for worker in range(3)] == [0, 0, 0]
    check_kept(pods, keeper, 0, 1, 2)
    told = keeper.state()
    assert [event["outcome"] for event in told if event["kind"] == "verdict"] == ["succeeded"]
    ended = {event["worker"]: event for event in told if event["kind"] == "worker-ended"}
    assert set(ended) == {0, 1, 2}
    assert all(event["manifests"][0]["files"] == 4 for event in ended.values())
    assert {event["worker"] for event in pods.events(0) if event["kind"] == "worker-kept"} == {0, 1, 2}
    assert keeper.process is not None
    assert keeper.process.poll() is None, "it holds them"
    assert keeper.order("release").returncode == 0
    assert keeper.code() == 0


FAILS_WHEN_ALL_HAVE_WRITTEN = """
import time
place = pathlib.Path({folder!r})
(place / ("written-" + os.environ["ECHELON_RANK"])).touch()
while len(list(place.glob("written-*"))) < 2:
    time.sleep(0.02)
raise SystemExit(3)
"""


def test_a_failed_run_hands_over_too_and_the_keeper_knows_why_it_failed(pods: Pods, make: Make) -> None:
    start_run(pods, WRITES + FAILS_WHEN_ALL_HAVE_WRITTEN.format(folder=str(pods.folder)))
    keeper = make()
    keeper.start()
    assert pods.code(0) == RUN_OVER
    assert pods.code(1) in (0, RANK_FAILED)  # whose rank was the first to fail
    check_kept(pods, keeper, 0, 1)
    (verdict,) = [event for event in keeper.state() if event["kind"] == "verdict"]
    assert (verdict["outcome"], verdict["exit_code"]) == ("failed", 3)


def test_a_keeper_that_comes_while_results_are_held(pods: Pods, make: Make) -> None:
    start_run(pods, WRITES)
    pods.wait_for("holding")
    keeper = make()
    keeper.start()
    assert [pods.code(worker) for worker in range(2)] == [0, 0]
    check_kept(pods, keeper, 0, 1)


def test_a_client_that_fetches_keeps_no_worker_whose_results_the_keeper_has(pods: Pods, make: Make) -> None:
    """It goes on at the keeper."""
    start_run(pods, WRITES)
    pods.wait_for("holding")
    for worker in (0, 1):
        assert pods.order(worker, "fetch", json.dumps({"client": "a", "seconds": 300})).returncode == 0
    keeper = make()
    keeper.start()
    assert [pods.code(worker) for worker in range(2)] == [0, 0]
    check_kept(pods, keeper, 0, 1)


def test_without_a_keeper_workers_hold_as_ever_and_say_so(pods: Pods, make: Make) -> None:
    start_run(pods, WRITES)
    wait_until(lambda: len(notes(pods)) == 2, "both to say so")
    assert all("holds its results itself: the run's keeper is not there" in note for note in notes(pods))
    assert pods.order(0, "release").returncode == 0
    assert [pods.code(worker) for worker in range(2)] == [0, 0]


def test_the_gang_does_not_wait_for_its_keeper_nor_miss_it(pods: Pods, make: Make) -> None:
    """It comes, is killed, and another comes, while ranks run."""
    gate = pods.folder / "gate"
    start_run(pods, f"import os, time\nwhile not os.path.exists({str(gate)!r}): time.sleep(0.05)\n" + WRITES)
    first = make()
    first.start()
    pods.wait_for("worker-running")
    wait_until((first.place / "state" / "c").exists, "the keeper")
    first.close()
    second = make()
    second.start()
    wait_until((second.place / "state" / "c").exists, "the second keeper")
    gate.touch()
    assert [pods.code(worker) for worker in range(2)] == [0, 0]
    assert "restarting" not in pods.kinds()
    check_kept(pods, second, 0, 1)


def test_results_that_are_too_large_stay_with_their_worker(pods: Pods, make: Make) -> None:
    """The small ones are taken all the same, and their worker goes; the leader stays for the others."""
    large = "if os.environ['ECHELON_WORKER'] == '1': (output / 'large').write_bytes(os.urandom(3_000_000))\n"
    start_run(pods, WRITES + large, workers=3)
    keeper = make(size=2_000_000)
    keeper.start()
    assert pods.code(2) == 0
    keeper.wait_kept(0, 2)
    wait_until(lambda: notes(pods), "worker 1 to say so")
    full = "more than fits into the keeper (--keep TIME:SIZE)"
    assert notes(pods) == [f"worker 1 holds its results itself: {full}"]
    assert pods.processes[1].poll() is None
    assert pods.processes[0].poll() is None
    assert set(keeper.kept()) == {0, 2}
    assert pods.order(0, "release").returncode == 0
    assert [pods.code(worker) for worker in (0, 1)] == [0, 0]
    assert keeper.process is not None
    assert keeper.process.poll() is None, "it holds what it has"


def test_a_keeper_killed_in_the_middle_is_replaced_by_another(pods: Pods, make: Make) -> None:
    """The first is stopped as soon as something comes, so that it dies in the middle for certain."""
    large = "(output / 'large').write_bytes(os.urandom(200_000_000))\n"
    start_run(pods, WRITES + large, workers=2)
    first = make()
    first.start()
    wait_until(lambda: any((first.place / "kept").rglob("*")), "something to come")
    assert first.process is not None
    first.process.send_signal(signal.SIGSTOP)
    done = set(first.kept())
    assert len(done) < 2, "it was faster"
    first.close()
    second = make()
    second.start()
    for worker in {0, 1} - done:
        second.wait_kept(worker)
    assert [pods.code(worker) for worker in range(2)] == [0, 0]
    for worker in set(second.kept()):
        assert contents(second.folder(worker)) == contents(pods.place(worker) / "output")


def test_a_keeper_with_another_secret_gets_nothing(pods: Pods, make: Make) -> None:
    start_run(pods, WRITES)
    (pods.folder / "other").write_text("another secret")
    keeper = make()
    keeper.start(secret=str(pods.folder / "other"))
    wait_until(lambda: len(notes(pods)) == 2, "both to say so")
    assert contents(keeper.place / "kept") == {}
    assert pods.order(0, "release").returncode == 0
    assert [pods.code(worker) for worker in range(2)] == [0, 0]


def test_a_run_without_results_needs_no_keeper_any_more(pods: Pods, make: Make) -> None:
    """Its ranks never ran: there is nothing to wait for. Its leader may leave before there is a keeper."""
    start_run(pods, WRITES, bundle={"path": "/nowhere", "digest": "x", "target": "/nowhere"})
    assert pods.code(0) == RUN_OVER
    keeper = make(keep=2.0)
    keeper.start()
    assert keeper.code() == 0
    assert keeper.kept() == {}


def test_a_keeper_that_has_nothing_leaves_with_the_run(pods: Pods, make: Make) -> None:
    start_run(pods, WRITES)
    keeper = make(size=1000)
    keeper.start()
    wait_until(lambda: len(notes(pods)) == 2, "both to be refused")
    assert pods.order(0, "release").returncode == 0
    assert [pods.code(worker) for worker in range(2)] == [0, 0]
    assert keeper.code() == 0
    assert keeper.kept() == {}


def test_its_time_is_over(pods: Pods, make: Make) -> None:
    start_run(pods, WRITES)
    pods.wait_for("holding")  # a keeper's time passes until it meets a leader: there is one
    keeper = make(keep=10.0)
    keeper.start()
    assert [pods.code(worker) for worker in range(2)] == [0, 0]
    assert keeper.code() == 0
    assert "keeping" in [event["kind"] for event in keeper.events()]


def test_a_client_that_fetches_from_the_keeper_is_waited_for(pods: Pods, make: Make) -> None:
    start_run(pods, WRITES)
    keeper = make(keep=600.0)
    keeper.start()
    keeper.wait_kept(0, 1)
    assert keeper.order("fetch", json.dumps({"client": "a", "seconds": 300})).returncode == 0
    assert keeper.order("release", json.dumps({"client": "b"})).returncode == 0
    assert keeper.process is not None
    assert keeper.process.poll() is None
    assert keeper.order("release", json.dumps({"client": "a"})).returncode == 0
    assert keeper.code() == 0


def test_a_worker_that_is_told_to_leave_hands_over_first(pods: Pods, make: Make) -> None:
    """SIGTERM, as when its pod is deleted, comes while its results are on the way."""
    large = "(output / 'large').write_bytes(os.urandom(60_000_000))\n"
    start_run(pods, WRITES + large, workers=1)
    keeper = make()
    keeper.start()
    wait_until(lambda: any((keeper.place / "kept").rglob("*")), "something to come")
    os.kill(pods.processes[0].pid, signal.SIGTERM)
    assert pods.code(0) == 0
    keeper.wait_kept(0)
    assert contents(keeper.folder(0)) == contents(pods.place(0) / "output")


def test_a_leader_that_is_told_to_leave_leaves_everything_with_the_keeper(pods: Pods, make: Make) -> None:
    """Its pod is deleted while ranks run: the run is over, and nothing of it is lost."""
    up = "import time\nprint('up', flush=True)\ntime.sleep(600)\n"
    start_run(pods, WRITES + up)
    keeper = make()
    keeper.start()
    pods.wait_up(0, 1)
    wait_until((keeper.place / "state" / "c").exists, "the keeper")
    wait_until(lambda: keeper.order("fetch").returncode == 0, "the keeper to answer")
    pods.processes[0].send_signal(signal.SIGTERM)
    assert pods.code(0) == LEFT_FOR_GOOD, "no leader has to replace it"
    assert pods.code(1) == 0
    check_kept(pods, keeper, 0, 1)
    told = [event for event in keeper.state() if event["kind"] == "verdict"]
    assert [event["cause"]["kind"] for event in told] == ["worker-left"]


def test_who_has_handed_over_waits_for_a_leader_that_knows_how_the_run_ended(pods: Pods, make: Make) -> None:
    """Killed, the leader cannot tell the one that replaces it; its member can."""
    start_run(pods, WRITES + "(output / 'large').write_bytes(os.urandom(100_000_000))\n")
    pods.wait_for("worker-ended", of=1)
    pods.wait_for("holding")
    pods.processes[0].kill()
    pods.processes[0].wait()
    keeper = make()
    keeper.start()
    pods.start(0, failures=1, kept=[])
    assert pods.code(1) == 0
    assert pods.code(0) == 0
    assert set(keeper.kept()) == {1}
    assert [event["outcome"] for event in keeper.state() if event["kind"] == "verdict"] == ["succeeded"]
