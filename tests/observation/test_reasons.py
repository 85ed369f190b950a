"""What a run is doing, as a table: how it stands, what its workers use, and what is said of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from echelon.model.engine.sample import GpuSample, Lateness, RankSample, Samples, WorkerSample
from echelon.model.engine.usage import RunUsage, usage_of
from echelon.model.event import RootCause
from echelon.model.output.progress import Progress
from echelon.model.state import State
from echelon.model.status import Status, WorkerStatus
from echelon.observation.reasons import Reason, reasons, slow_ranks
from echelon.observation.standing import Start

NOW = 10_000.0
BEGAN = NOW - 200


def status(state: State, reason: str | None = None, **fields: Any) -> Status:
    workers = tuple(
        WorkerStatus(worker=number, ranks=(number,), state="running", node=f"node-{number}")
        for number in range(4)
    )
    made = Status(
        name="fm",
        uri="local://fm",
        state=state,
        reason=reason,
        created=NOW - 500,
        started=BEGAN,
        workers=workers,
    )
    return replace(made, **fields)


def late(waits: float, last: float = 0.0, mean: float = 0.02, **more: Any) -> Lateness:
    return Lateness(collectives=300, last=last, mean=mean, waits=waits, **more)


def samples(*known: Lateness | None, gpus: dict[int, GpuSample] | None = None, **of_worker: Any) -> Samples:
    """A worker for each rank, with how late it comes."""
    return Samples(
        workers=tuple(
            WorkerSample(
                worker=number,
                at=NOW,
                ranks=(RankSample(rank=number, cpus=1.0, memory=1, late=each),),
                gpus=(gpus[number],) if gpus and number in gpus else (),
                **of_worker,
            )
            for number, each in enumerate(known)
        )
    )


NOTHING = (None, None, None, None)
SLOW = (late(0.004), late(0.006), late(0.31, last=0.97, mean=0.038), late(0.0))
WELL = GpuSample(gpu="0", clock=1980, clock_most=1980)


def said(stands: Status, seen: Samples | None = None, **more: Any) -> tuple[Reason, ...]:
    return reasons(stands, usage_of(stands, seen or Samples()), NOW, **more)


CAUSE = RootCause(
    summary="rank 1 exited with code 1: OutOfMemoryError: CUDA out of memory",
    worker=1,
    rank=1,
    error="OutOfMemoryError: CUDA out of memory",
    hint="a smaller batch",
    tail=("Traceback", "OutOfMemoryError: CUDA out of memory"),
)
KILLED = RootCause(
    summary="rank 1 was killed by SIGKILL", worker=1, rank=1, signal="SIGKILL", tail=("step=3",)
)


@pytest.mark.parametrize(
    ("stands", "kind", "text", "more"),
    [
        (
            status("recorded"),
            "recorded",
            "it was recorded and never started",
            {"hint": "submit it again, or `echelon rm fm`"},
        ),
        (
            status("queued", "needs 8 GPUs, 4 are free"),
            "queued",
            "it waits in the queue for 8 m 20 s: needs 8 GPUs, 4 are free",
            {},
        ),
        (
            status("queued", "no process looks after it; `echelon wait fm` does", trouble="untended"),
            "queued",
            "it waits in the queue for 8 m 20 s: no process looks after it; `echelon wait fm` does",
            {"trouble": "untended"},
        ),
        (status("starting"), "starting", "its workers have been starting for 3 m 20 s", {}),
        (
            status("starting", "worker 1 pulls my/torch", trouble="pulling"),
            "pulling",
            "its workers have been starting for 3 m 20 s: worker 1 pulls my/torch",
            {"trouble": "pulling"},
        ),
        (
            status("starting", "no node has 8 free GPUs", trouble="unschedulable"),
            "pending",
            "its workers have been starting for 3 m 20 s: no node has 8 free GPUs",
            {"trouble": "unschedulable"},
        ),
        (
            status("restarting", "rank 1 exited with code 1", restarts=2, restarts_allowed=3),
            "restarting",
            "it starts again, restart 2 of 3: rank 1 exited with code 1",
            {},
        ),
        (
            status("stopping", "stopped by ann"),
            "stopping",
            "it is being stopped: stopped by ann",
            {},
        ),
        (
            status(
                "running",
                "stuck for 10 m: rank 1 never called all_reduce 6",
                trouble="stuck",
                places=("rank 1: load",),
            ),
            "stuck",
            "stuck for 10 m: rank 1 never called all_reduce 6",
            {"details": ("rank 1: load",), "hint": "`--stall 10m` ends or restarts such a run"},
        ),
        (
            status("running", "quiet for 10 m: rank 0 is in fit (train.py:3)", trouble="quiet"),
            "quiet",
            "quiet for 10 m: rank 0 is in fit (train.py:3)",
            {},
        ),
        (
            status("running", "worker 3 was evicted", trouble="evicted"),
            "pending",
            "worker 3 was evicted",
            {"trouble": "evicted"},
        ),
        (status("running"), "running", "it has run for 3 m 20 s, and nothing is seen that keeps it", {}),
        (
            status("running", progress=Progress(rank=0, at=NOW, step=30, steps=100)),
            "running",
            "it has run for 3 m 20 s, and nothing is seen that keeps it: 30/100",
            {},
        ),
        (status("succeeded", ended=NOW), "succeeded", "it succeeded after 8 m 20 s", {}),
        (
            status("failed", CAUSE.summary, root_cause=CAUSE, ended=NOW),
            "failed",
            f"it failed after 8 m 20 s: {CAUSE.summary}",
            {"details": ("first to fail: rank 1 (worker 1)",), "hint": "a smaller batch", "ranks": (1,)},
        ),
        (
            status("failed", KILLED.summary, root_cause=KILLED, ended=NOW),
            "failed",
            f"it failed after 8 m 20 s: {KILLED.summary}",
            {"details": ("first to fail: rank 1 (worker 1)", "its last lines:", "  step=3"), "ranks": (1,)},
        ),
        (
            status("timed-out", "the time limit of 30 s has passed", ended=NOW),
            "timed-out",
            "it ran out of time after 8 m 20 s: the time limit of 30 s has passed",
            {"hint": "`echelon resume fm` starts it again in its results"},
        ),
        (
            status("stopped", "stopped by ann", ended=NOW),
            "stopped",
            "it was stopped after 8 m 20 s: stopped by ann",
            {"hint": "`echelon resume fm` starts it again in its results"},
        ),
        (
            status("lost", "its supervisor was killed", ended=NOW),
            "lost",
            "it was lost after 8 m 20 s: its supervisor was killed",
            {"hint": "`echelon resume fm` starts it again in its results"},
        ),
        (
            status("damaged", "its record cannot be read", created=0.0),
            "damaged",
            "its record cannot be read",
            {},
        ),
    ],
)
def test_how_a_run_stands(stands: Status, kind: str, text: str, more: dict[str, Any]) -> None:
    (found,) = said(stands)
    assert found == Reason(kind=kind, text=text, **more)  # type: ignore[arg-type]


def test_a_file_that_did_not_travel_has_the_advice_of_the_folder() -> None:
    (found,) = said(status("failed", "no file", ended=NOW), advice="--include data")
    assert found.hint == "--include data"


def test_what_a_run_that_is_over_still_has_and_lacks() -> None:
    stands = status("succeeded", ended=NOW, held_until=NOW + 60, missing=("worker 1: lost",))
    assert [(each.kind, each.text) for each in said(stands)] == [
        ("holding", "it keeps its place until its results are fetched"),
        ("missing", "some of its results are lost"),
        ("succeeded", "it succeeded after 8 m 20 s"),
    ]


def test_a_rank_that_the_others_wait_for() -> None:
    (found,) = said(status("running"), samples(*SLOW))
    assert (found.kind, found.ranks) == ("slow", (2,))
    assert found.text == (
        "rank 2 comes last in 97% of collectives, 38 ms late; the others wait for it 31% of the time"
    )
    assert found.details == ("it is a rank of worker 2 on node-2",)


THROTTLED = GpuSample(gpu="0", clock=1095, clock_most=1980, temperature=91, slowed=("HW thermal slowdown",))
LOW = GpuSample(gpu="0", clock=1200, clock_most=1980)
AT_ITS_LIMIT = GpuSample(gpu="0", clock=1900, clock_most=1980, slowed=("SW power cap",))


@pytest.mark.parametrize(
    ("gpu", "because"),
    [
        (THROTTLED, ": its GPU is throttled (HW thermal slowdown, 91 °C), at 1,095 of 1,980 MHz"),
        (LOW, ": the clock of its GPU is at 1,200 of 1,980 MHz, that of the others is higher"),
        (
            replace(LOW, slowed=("SW power cap",)),
            ": its GPU is throttled (SW power cap), at 1,200 of 1,980 MHz",
        ),
        (AT_ITS_LIMIT, ""),
        (WELL, ""),
    ],
)
def test_a_gpu_that_makes_it_late(gpu: GpuSample, because: str) -> None:
    gpus = {0: WELL, 1: WELL, 2: gpu, 3: WELL}
    (found,) = said(status("running"), samples(*SLOW, gpus=gpus))
    assert found.text.endswith(f"31% of the time{because}")


def test_a_throttled_gpu_of_which_no_rank_is_known_to_be_late() -> None:
    gpus = {0: WELL, 1: THROTTLED, 2: AT_ITS_LIMIT, 3: LOW}
    (found,) = said(status("running"), samples(*NOTHING, gpus=gpus))
    assert found.kind == "throttled"
    assert found.text == (
        "GPU 0 of worker 1 on node-1 is throttled (HW thermal slowdown, 91 °C), at 1,095 of 1,980 MHz"
    )


def usage(*known: Lateness | None) -> RunUsage:
    stands = status("running")
    numbers = range(len(known))
    workers = tuple(WorkerStatus(worker=number, ranks=(number,), state="running") for number in numbers)
    return usage_of(replace(stands, workers=workers), samples(*known))


@pytest.mark.parametrize(
    ("known", "slow"),
    [
        ([late(0.31), late(0.0)], (0,)),
        ([late(0.31), late(0.28)], ()),  # in turn: neither is
        ([late(0.03), late(0.0)], ()),  # too little to be worth a word
        ([late(0.12)], ()),
        ([late(0.12, mean=0.0005), late(0.0)], ()),  # as the kernel lets it run
        ([late(0.12), late(0.04)], ()),
        ([None, None], ()),
        ([late(0.044), late(0.02), late(0.023), late(0.037)], ()),  # as of ranks that are alike (`even-4`)
        ([late(0.01), late(0.2), late(0.01), late(0.21), *[late(0.01)] * 4], (3, 1)),  # on one bad node
        ([late(0.1), late(0.1), late(0.1), *[late(0.0)] * 5], ()),
        ([late(0.4, mean=0.002, same_clock=False), late(0.0, same_clock=False)], ()),  # clocks may say so
        ([late(0.4, mean=0.02, same_clock=False), late(0.0, same_clock=False)], (0,)),
    ],
)
def test_which_ranks_are_slow(known: list[Lateness | None], slow: tuple[int, ...]) -> None:
    assert slow_ranks(usage(*known)) == slow


def test_what_costs_most_comes_first() -> None:
    stands = status("running", "stuck for 10 m: rank 1", trouble="stuck")
    starts = [Start(at=NOW - 120, why="restart 1: it failed"), Start(at=NOW - 60, why="restart 2: it failed")]
    seen = samples(*SLOW, gpus={0: THROTTLED}, memory=95 << 20, memory_limit=100 << 20)
    found = said(stands, seen, starts=starts)
    assert [each.kind for each in found] == ["stuck", "slow", "throttled", *["memory"] * 4, "restarts"]
    assert found[3].text == "worker 0 uses 95 MiB of the 100 MiB of memory that it may have"
    assert found[-1].text == "it was started again 2 times, the last time 1 m 0 s ago"
    assert found[-1].details == ("restart 1: it failed", "restart 2: it failed")


def test_samples_of_before_say_nothing_of_a_run_that_is_over() -> None:
    assert [each.kind for each in said(status("succeeded", ended=NOW), samples(*SLOW))] == ["succeeded"]
