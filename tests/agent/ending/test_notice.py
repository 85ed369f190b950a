"""One worker is told to leave, and the ranks of all have notice: by SIGTERM, once, and by a file."""

from __future__ import annotations

import json
import re
import signal
import sys
import time
from typing import Any

import pytest
from testbed.patience import FACTOR
from tests.agent.pods import UP, Pods
from tests.conftest import wait_until

from echelon.agent.task import INTERRUPTED, LEFT_FOR_GOOD, RUN_OVER

SAVES = """
import json, os, signal, sys, time
signals = []
signal.signal(signal.SIGTERM, lambda *_: signals.append(time.time()))
if os.environ["ECHELON_RESTART"] == "1":
    sys.exit(print("again", flush=True))
print("up", flush=True)
while not signals:
    time.sleep(0.01)
time.sleep(%s)
notice = json.load(open(os.environ["ECHELON_NOTICE"]))
told = dict(notice, first=signals[0], signals=len(signals))
os.write(1, ("saved %%s\\n" %% json.dumps(told)).encode())
"""
POLLS = """
import json, os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.environ["ECHELON_RESTART"] == "1":
    sys.exit(print("again", flush=True))
print("up", flush=True)
while not os.path.exists(os.environ["ECHELON_NOTICE"]):
    time.sleep(0.01)
os.write(1, b"saved " + open(os.environ["ECHELON_NOTICE"], "rb").read() + b"\\n")
"""
STUBBORN = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + UP


def saved(pods: Pods, worker: int) -> list[dict[str, Any]]:
    """What the ranks of a worker have read and seen when they had saved."""
    return [json.loads(line[6:]) for line in pods.said(worker) if line.startswith("saved ")]


def all_saved(pods: Pods, victim: int, grace: float, *workers: int) -> None:
    """All ranks of these workers had the same notice, once and at the same moment."""
    told = [each for worker in workers for each in saved(pods, worker)]
    assert [(each["reason"], each["who"]) for each in told] == [("leave", f"worker {victim}")] * len(workers)
    assert [each["signals"] for each in told] == [1] * len(workers)
    first, last = min(each["first"] for each in told), max(each["first"] for each in told)
    assert last - first < 0.5 * FACTOR
    for each in told:
        assert each["deadline"] == pytest.approx(each["first"] + grace, abs=1.0 * FACTOR)


@pytest.mark.core
@pytest.mark.parametrize("victim", [0, 1])
def test_all_ranks_save_when_one_worker_is_told_to_leave(pods: Pods, victim: int) -> None:
    grace = 4.0 * FACTOR
    pods.script(SAVES % 2.0, workers=2, grace=grace)
    pods.start_all()
    pods.wait_up(0, 1)
    pods.processes[victim].terminate()
    codes = [pods.code(0), pods.code(1)]
    assert codes[victim] in (LEFT_FOR_GOOD, 0)
    assert codes[0] == (RUN_OVER if victim else LEFT_FOR_GOOD)
    all_saved(pods, victim, grace, 0, 1)
    cause = pods.last_words()["cause"]
    assert (cause["kind"], cause["worker"]) == ("worker-left", victim)
    assert pods.last_words()["outcome"] == "failed"  # though every rank has exited with 0
    (notice,) = (event for event in pods.events() if event["kind"] == "notice")
    assert (notice["worker"], notice["grace"]) == (victim, grace)
    ends = [event for event in pods.events() if event["kind"] == "rank-ended"]
    assert [(event["exit_code"], event["told"]) for event in ends] == [(0, True)] * 2


@pytest.mark.soak
@pytest.mark.parametrize("round_", range(20))
def test_a_handler_that_takes_20_of_30_seconds_finishes_on_every_rank(pods: Pods, round_: int) -> None:
    pods.script(SAVES % 20.0, workers=3, grace=30.0)
    pods.start_all()
    pods.wait_up(0, 1, 2)
    pods.processes[round_ % 3].terminate()
    for worker in range(3):
        pods.code(worker)
    all_saved(pods, round_ % 3, 30.0, 0, 1, 2)


def again(pods: Pods, *victims: int) -> None:
    """Others come in place of those that were told to leave, and the run goes on to its end."""
    for victim in victims:
        assert pods.code(victim) == INTERRUPTED
    for victim in victims:
        pods.start(victim, failures=1, env={"ECHELON_FAILURES": "0", "ECHELON_EVICTIONS": "1"})
    assert [pods.code(worker) for worker in (0, 1)] == [0, 0]
    assert [pods.said(worker)[-1] for worker in (0, 1)] == ["again", "again"]
    assert pods.last_words()["outcome"] == "succeeded"
    (restart,) = (event for event in pods.events() if event["kind"] == "restarting")
    assert (restart["restart"], restart["spared"]) == (1, 1)


@pytest.mark.parametrize("victims", [(0,), (1,), (0, 1)])
@pytest.mark.parametrize("script", [SAVES % 1.0, POLLS])
def test_with_restarts_the_run_goes_on_when_the_seats_are_filled(
    pods: Pods, victims: tuple[int, ...], script: str
) -> None:
    pods.script(script, workers=2, restarts=1, grace=10.0 * FACTOR)
    pods.start_all()
    pods.wait_up(0, 1)
    for victim in victims:
        pods.processes[victim].terminate()
    wait_until(lambda: all(saved(pods, worker) for worker in (0, 1)), "all ranks to have saved")
    told = [saved(pods, worker)[0] for worker in (0, 1)]
    assert {each["reason"] for each in told} == {"leave"}
    assert {each.get("signals", 1) for each in told} == {1}
    again(pods, *victims)


def test_a_rank_that_ignores_sigterm_is_killed_at_the_deadline_and_that_is_said(pods: Pods) -> None:
    grace = 2.0 * FACTOR
    pods.script(STUBBORN, workers=2, grace=grace)
    pods.start_all()
    pods.wait_up(0, 1)
    began = time.monotonic()
    pods.processes[1].terminate()
    assert pods.code(0) == RUN_OVER
    assert grace <= time.monotonic() - began < grace + 10 * FACTOR
    notes = {event["reason"] for event in pods.events() if event["kind"] == "note"}
    assert notes == {f"rank {rank} still ran after {grace:g} s and was killed" for rank in (0, 1)}
    assert pods.last_words()["cause"]["kind"] == "worker-left"


def test_a_member_whose_leader_does_not_answer_stops_its_ranks_itself(pods: Pods) -> None:
    pods.script(SAVES % 0.1, workers=2, restarts=1, grace=10.0 * FACTOR, lost_after=60.0)
    pods.start_all()
    pods.wait_up(0, 1)
    pods.processes[0].send_signal(signal.SIGSTOP)
    pods.processes[1].terminate()
    assert pods.code(1) == INTERRUPTED
    (told,) = saved(pods, 1)
    assert (told["reason"], told["who"], told["signals"]) == ("leave", "worker 1", 1)
    pods.processes[0].send_signal(signal.SIGCONT)
    wait_until(lambda: saved(pods, 0), "the other rank to have saved")


def test_one_that_leaves_while_there_is_no_leader_is_no_member_of_the_next_one(pods: Pods) -> None:
    """Its loss, when it has saved, would otherwise be a failure of what the next leader prepares."""
    pods.script(SAVES % (3.0 * FACTOR), workers=2, restarts=1, grace=20.0 * FACTOR)
    pods.start_all()
    pods.wait_up(0, 1)
    pods.processes[1].terminate()
    pods.processes[0].kill()
    pods.processes[0].wait()
    pods.start(0, failures=1)
    assert pods.code(1) == INTERRUPTED
    pods.start(1, failures=1, env={"ECHELON_FAILURES": "0", "ECHELON_EVICTIONS": "1"})
    assert [pods.code(worker) for worker in (0, 1)] == [0, 0]
    assert pods.said(1) == ["again"]


@pytest.mark.parametrize(
    ("order", "reason"),
    [
        (("stop", '{"reason": "stopped by ann"}'), "stop"),
        pytest.param((), "timeout", marks=pytest.mark.slow),
    ],
)
def test_a_stop_and_a_time_limit_tell_in_the_same_way(
    pods: Pods, order: tuple[str, ...], reason: str
) -> None:
    pods.script(SAVES % 0.1, workers=2, grace=20.0, **({} if order else {"timeout": 12.0 * FACTOR}))
    pods.start_all()
    pods.wait_up(0, 1)
    if order:
        assert pods.order(1, *order).returncode == 0
    assert pods.code(0) == RUN_OVER
    for worker in (0, 1):
        (told,) = saved(pods, worker)
        assert (told["reason"], told["signals"]) == (reason, 1)
        assert told["who"] == ("stopped by ann" if order else None)


def test_a_failure_tells_the_others_who_it_was(pods: Pods) -> None:
    script = "import os, sys\nif os.environ['ECHELON_WORKER'] == '1': sys.exit(3)\n" + SAVES % 0.1
    pods.script(script, workers=2, grace=20.0)
    pods.start_all()
    assert pods.code(0) == RUN_OVER
    (told,) = saved(pods, 0)
    assert (told["reason"], told["who"]) == ("failure", "rank 1")
    assert pods.last_words()["cause"]["exit_code"] == 3


LAUNCHED = """
import os, signal, sys, time
signals = []
signal.signal(signal.SIGTERM, lambda *_: signals.append(1))
os.write(1, b"up\\n")
while not signals:
    time.sleep(0.01)
time.sleep(1.5)
there = os.path.exists(os.environ["ECHELON_NOTICE"])
os.write(1, b"saved %d %d\\n" % (len(signals), there))
"""


def told_once(pods: Pods, victim: int, ranks: int) -> None:
    """One worker is told to leave: each of so many ranks has saved after one signal."""
    wait_until(lambda: sum(pods.said(worker).count("up") for worker in (0, 1)) == ranks, "all ranks")
    pods.processes[victim].terminate()
    for worker in (0, 1):
        pods.code(worker)
    lines = [re.sub(r"^\[\S*\]:?", "", line) for worker in (0, 1) for line in pods.said(worker)]
    assert sorted(line for line in lines if line.startswith("saved")) == ["saved 1 1"] * ranks
    assert pods.last_words()["cause"]["kind"] == "worker-left"


@pytest.mark.slow
@pytest.mark.parametrize("victim", [0, 1])
def test_ranks_below_a_shell(pods: Pods, victim: int) -> None:
    (pods.folder / "below.py").write_text(LAUNCHED)
    line = f"{sys.executable} {pods.folder}/below.py; true"
    pods.describe("bash", "-c", line, workers=2, grace=20.0 * FACTOR)
    pods.start_all()
    told_once(pods, victim, 2)


@pytest.mark.slow
@pytest.mark.parametrize("victim", [0, 1])
def test_ranks_of_torchrun(pods: Pods, victim: int) -> None:
    (pods.folder / "below.py").write_text(LAUNCHED)
    wiring = {
        "PET_NNODES": "2",
        "PET_NPROC_PER_NODE": "2",
        "PET_NODE_RANK": "{worker}",
        "PET_MASTER_ADDR": "{address:0}",
        "PET_MASTER_PORT": "{port:0}",
    }
    launch = {"per": "worker", "wiring": wiring, "ports": "first"}
    argv = (sys.executable, "-m", "torch.distributed.run", str(pods.folder / "below.py"))
    pods.describe(*argv, workers=2, procs=2, grace=40.0 * FACTOR, launch=launch)
    pods.start_all()
    told_once(pods, victim, 4)
