"""Runs whose number of workers changes, with real processes: workers are killed, told to leave, and come."""

from __future__ import annotations

import os
import re
import signal
import textwrap
from importlib.util import find_spec
from pathlib import Path

import pytest
from tests.conftest import PATIENCE, wait_until
from tests.faults.test_kill import ended

import echelon
from echelon.engines.local.folder.events import read_events
from echelon.engines.local.folder.store import RunStore
from echelon.model.event import Event

EXAMPLE = Path(__file__).parents[2] / "examples" / "elastic" / "train.py"
RANK = """
    import os, pathlib, signal, sys, time
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    names = ("RANK", "WORLD_SIZE", "ECHELON_WORKER", "ECHELON_WORKERS", "ECHELON_SEAT", "ECHELON_RESTART")
    print(*(os.environ[name] for name in names), flush=True)
    while not pathlib.Path("enough").exists():
        time.sleep(0.02)
"""


def agent_of(run: echelon.Run, worker: int) -> int:
    pid = run.status().workers[worker].pid
    assert pid is not None
    return pid


def happened(run: echelon.Run, home: Path) -> list[Event]:
    """What has happened so far; `run.events()` would wait for the end."""
    return list(read_events(RunStore(home).dir(run.name)))


def sizes(run: echelon.Run) -> list[tuple[int, ...]]:
    return [event.workers or () for event in run.events() if event.kind == "resized"]


def lines(run: echelon.Run) -> set[str]:
    return {line.text for line in run.logs() if re.fullmatch(r"[\d ]+", line.text)}


def up(run: echelon.Run, restart: int, members: tuple[int, ...]) -> None:
    """Wait for the ranks of these seats, and see what they were told."""
    count = len(members)
    wanted = {f"{at} {count} {at} {count} {seat} {restart}" for at, seat in enumerate(members)}
    wait_until(lambda: wanted <= lines(run), f"{wanted} to be up, not {lines(run)}")


@pytest.mark.core
def test_a_worker_that_is_lost_and_one_that_comes(home: Path) -> None:
    Path("rank.py").write_text(textwrap.dedent(RANK))
    run = echelon.run("rank.py", workers="1..3", settle="0.5s")
    up(run, 0, (0, 1, 2))
    os.kill(agent_of(run, 1), signal.SIGKILL)
    up(run, 1, (0, 2))
    up(run, 2, (0, 1, 2))  # the supervisor has replaced it
    status = run.status()
    assert (status.members, status.restarts, status.restarts_spared) == ((0, 1, 2), 2, 2)
    Path("enough").touch()
    status = ended(run, home)
    assert (status.state, sizes(run)) == ("succeeded", [(0, 1, 2), (0, 2), (0, 1, 2)])
    reasons = [event.reason for event in run.events() if event.kind == "resized"]
    assert reasons == [None, "worker 1 has left", "worker 1 has joined"]
    ones = [line.text for line in run.logs(rank=1)]
    assert [text for text in ones if text.startswith("---")] == [
        "--- restart 1: rank 1 of 2, on worker 2 ---",
        "--- restart 2: rank 1 of 3, on worker 1 ---",
    ]
    assert (Path(run.get("logs/rank-1.log")).read_text().splitlines()) == ones


@pytest.mark.slow
def test_all_that_come_and_go_cost_no_restart(home: Path) -> None:
    Path("rank.py").write_text(textwrap.dedent(RANK))
    run = echelon.run("rank.py", workers="2..4", settle="0.5s")
    up(run, 0, (0, 1, 2, 3))
    for worker, signal_number in ((3, signal.SIGTERM), (2, signal.SIGKILL), (1, signal.SIGTERM)):
        before = run.status().restarts
        os.kill(agent_of(run, worker), signal_number)
        wait_until(
            lambda before=before: (
                run.status().restarts > before and run.status().members == (0, 1, 2, 3)  # type: ignore[misc]
            ),
            "all to take part again",
        )
        up(run, run.status().restarts, (0, 1, 2, 3))
    Path("enough").touch()
    status = ended(run, home)
    assert (status.state, status.restarts - status.restarts_spared) == ("succeeded", 0)
    assert all(len(each) >= 2 for each in sizes(run))


@pytest.mark.slow
def test_the_loss_of_the_leader_costs_a_restart_as_ever(home: Path) -> None:
    Path("rank.py").write_text(textwrap.dedent(RANK))
    run = echelon.run("rank.py", workers="1..2", settle="0.5s", restarts=1)
    up(run, 0, (0, 1))
    os.kill(agent_of(run, 1), signal.SIGTERM)
    wait_until(lambda: (run.status().restarts, run.status().members) == (2, (0, 1)), "it to grow back")
    os.kill(agent_of(run, 0), signal.SIGKILL)
    up(run, 3, (0, 1))
    status = run.status()
    assert (status.restarts, status.restarts_spared) == (3, 2)
    Path("enough").touch()
    assert ended(run, home).state == "succeeded"


@pytest.mark.slow
def test_a_rank_that_fails_ends_the_run(home: Path) -> None:
    command = ["sh", "-c", "test $RANK = 1 && exit 7; exec sleep 60"]
    run = echelon.run(command=command, workers="1..3")
    status = ended(run, home)
    assert (status.state, status.exit_code, status.restarts) == ("failed", 7, 0)


@pytest.mark.slow
def test_below_the_fewest_it_waits_and_says_so(home: Path) -> None:
    Path("rank.py").write_text(textwrap.dedent(RANK))
    run = echelon.run("rank.py", workers="2..3", settle="0.5s")
    up(run, 0, (0, 1, 2))
    for worker in (1, 2):
        os.kill(agent_of(run, worker), signal.SIGKILL)
    waits = "it waits for workers: 1 is there, and it needs 2"
    wait_until(
        lambda: waits in [event.reason for event in happened(run, home)], "it to say what it waits for"
    )
    wait_until(lambda: run.status().members == (0, 1, 2), "it to start again")
    Path("enough").touch()
    assert ended(run, home).state == "succeeded"


@pytest.mark.slow
def test_the_value_of_a_function_is_that_of_the_last_start(home: Path) -> None:
    def train(where: str) -> tuple[int, int]:
        import os
        import time
        from pathlib import Path

        while os.environ["ECHELON_RESTART"] == "0" or not Path(where).exists():
            time.sleep(0.02)
        return int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])

    run = echelon.run(train, args=[str(Path("enough").absolute())], workers="1..3", settle="10m")
    wait_until(lambda: run.status().state == "running", "all ranks to run")
    os.kill(agent_of(run, 2), signal.SIGKILL)
    wait_until(lambda: (run.status().restarts, run.status().state) == (1, "running"), "two ranks to run")
    Path("enough").touch()
    assert ended(run, home).state == "succeeded"
    assert run.results() == [(0, 2), (1, 2)]


def losses(run: echelon.Run) -> dict[int, float]:
    """What rank 0 has printed: the loss of a step, of one that was trained twice the last."""
    found = (re.fullmatch(r"step=(\d+) loss=([\d.]+)", line.text) for line in run.logs(rank=0))
    return {int(each[1]): float(each[2]) for each in found if each}


def start_example(steps: int, **more: object) -> echelon.Run:
    args = ["--checkpoint_path", "{output}/ckpt", "--steps", str(steps)]
    return echelon.run(EXAMPLE, args=args, **more)  # type: ignore[arg-type]


def has_trained(run: echelon.Run, restart: int) -> bool:
    """Whether a few steps were taken since that restart."""
    texts = [line.text for line in run.logs(rank=0)]
    marks = [at for at, text in enumerate(texts) if text.startswith(f"--- restart {restart}:")]
    since = texts[marks[0] :] if marks else [] if restart else texts
    return sum(text.startswith("step=") for text in since) > 2


@pytest.mark.slow
def test_the_loss_of_the_example_continues_through_changes_of_size(home: Path) -> None:
    if find_spec("torch") is None:
        pytest.skip("needs PyTorch")
    run = start_example(1_000_000, workers="1..3", settle="1d", grace="60s")
    wait_until(lambda: has_trained(run, 0), "three to train", 4 * PATIENCE)
    os.kill(agent_of(run, 2), signal.SIGTERM)
    wait_until(lambda: has_trained(run, 1), "two to train", 4 * PATIENCE)
    os.kill(agent_of(run, 1), signal.SIGKILL)
    wait_until(lambda: has_trained(run, 2), "the others to train", 4 * PATIENCE)
    run.stop()
    run.wait(4 * PATIENCE)
    disturbed = losses(run)
    starts = [line.text for line in run.logs(rank=0) if "processes train from" in line.text]
    assert [text.partition(" ")[0] for text in starts[:2]] == ["3", "2"]
    firsts = [int(text.rpartition(" ")[2]) for text in starts]
    assert len(firsts) == 3
    assert 0 < firsts[1] <= firsts[2]  # it has saved when it had notice; what was killed had none

    last = max(disturbed)
    alone = start_example(last + 1, workers=1)
    alone.wait(4 * PATIENCE)
    expected = losses(alone)
    compared = disturbed.keys() & expected.keys()
    assert len(compared) > 2
    assert all(disturbed[step] == pytest.approx(expected[step], abs=0.02) for step in compared)
