"""Which worker's files are expected, where they are, and what is said of those that are missing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.engines.kubernetes.small import RUNNING, WAITING, ended, pod

from echelon.engines.kubernetes.files.results.shards import (
    Missing,
    Shard,
    check_copy,
    describe,
    find_shards,
    incomplete,
    on_volume,
    whole,
    without_right,
)
from echelon.engines.kubernetes.follow.keeper import KeeperView, Kept
from echelon.engines.kubernetes.pods import Pod
from echelon.model.copy import Copied, LeftOut, Manifest
from echelon.model.event import Event
from echelon.model.job import Job
from echelon.model.plan import Launch, Placement, Plan
from echelon.model.pods.pod import Keeper, Output, PodOptions
from echelon.model.run import Record, RunRef
from echelon.model.world import Group, World

PLAN = Plan(
    world=World(groups=(Group(workers=2, procs=1),)),
    launches=(),
    placement=Placement(seats=()),
)
RAN = [Event(kind="worker-running", at=1.0, worker=worker) for worker in range(2)]


def manifest(worker: int, files: int = 3) -> Manifest:
    return Manifest(worker=worker, root="/out", files=files, size=files << 10, digest=f"of {files}")


def stated(*workers: int) -> list[Event]:
    return [Event(kind="worker-ended", at=2.0, worker=each, manifests=(manifest(each),)) for each in workers]


def test_each_worker_that_ran_has_a_shard_in_its_pod() -> None:
    shards = find_shards(PLAN, [*RAN, *stated(0, 1)], [pod(0, state=RUNNING), pod(1, state=RUNNING)])
    assert shards == [
        Shard(worker=each, stated={"/out": manifest(each)}, pod=f"demo-{each}-abcde") for each in range(2)
    ]


@pytest.mark.parametrize(
    ("pods", "why"),
    [
        ([], "its pod is gone"),
        ([pod(1, state=ended(0))], "its pod has ended"),
        ([pod(1, state=RUNNING, deletionTimestamp="2026-01-01T00:00:00Z")], "its pod was deleted"),
        ([pod(1, state=WAITING)], "its pod was replaced"),
    ],
)
def test_a_shard_without_its_pod_is_lost(pods: list[Pod], why: str) -> None:
    shard = find_shards(PLAN, [*RAN, *stated(0, 1)], [pod(0, state=RUNNING), *pods])[1]
    assert (shard.pod, shard.why, shard.lost) == (None, why, True)
    assert describe(whole(shard, shard.why)) == f"worker 1: 3 files, 3 KiB, not fetched: {why}"


@pytest.mark.parametrize(
    ("deletion", "lost"), [({}, False), ({"deletionTimestamp": "2026-01-01T00:00:00Z"}, True)]
)
def test_a_node_that_does_not_respond_may_come_back(deletion: dict[str, Any], lost: bool) -> None:
    """But a pod that was deleted meanwhile is ended when it does."""
    conditions = [{"type": "Ready", "status": "False"}, {"type": "ContainersReady", "status": "True"}]
    away = pod(1, state=RUNNING, status={"conditions": conditions}, **deletion)
    shard = find_shards(PLAN, [*RAN, *stated(0)], [pod(0, state=RUNNING), away])[1]
    assert (shard.pod, shard.lost) == (None, lost)


def test_a_lost_worker_is_not_waited_for() -> None:
    """Its pod may be taken for running for a while yet."""
    events = [*RAN, Event(kind="worker-lost", at=2.0, worker=1, reason="its node is gone"), *stated(0)]
    shard = find_shards(PLAN, events, [pod(0, state=RUNNING), pod(1, state=RUNNING)])[1]
    assert (shard.pod, shard.lost, shard.why) == (None, True, "it was lost: its node is gone")


def test_what_the_record_knows_outlives_the_leader() -> None:
    end = Event(kind="finished", at=3.0, outcome="succeeded", manifests=(manifest(0), manifest(1)))
    shards = find_shards(PLAN, [end], [pod(1, state=RUNNING)])
    assert [(each.pod, each.stated is not None) for each in shards] == [(None, True), ("demo-1-abcde", True)]


def test_without_a_log_pods_that_started_show_that_it_ran() -> None:
    end = Event(kind="finished", at=3.0, outcome="failed")
    assert [each.worker for each in find_shards(PLAN, [end], [pod(1, state=RUNNING)])] == [0, 1]
    assert find_shards(PLAN, [end], [pod(0, state=WAITING)]) == []


def test_a_run_that_never_ran_has_none() -> None:
    began = Event(kind="worker-started", at=1.0, worker=0)
    assert find_shards(PLAN, [began], [pod(0, state=RUNNING)]) == []
    assert find_shards(None, [], []) == []


def copied(now: Manifest | None, *failed: str) -> Copied:
    return Copied(
        target="x",
        files=0,
        size=0,
        there=0,
        manifest=now,
        failed=tuple(LeftOut(path=path, why="is gone") for path in failed),
    )


def test_a_copy_is_checked_against_what_the_worker_stated() -> None:
    assert check_copy(0, manifest(0), copied(manifest(0))) is None
    assert check_copy(0, None, copied(manifest(0))) is None
    assert check_copy(0, manifest(0, 2), copied(manifest(0, 3))) is None, "more was written afterwards"
    fewer = check_copy(0, manifest(0, 3), copied(manifest(0, 1)))
    assert fewer is not None
    assert (fewer.files, fewer.size, fewer.lost) == (2, 2048, True)
    failed = check_copy(0, manifest(0), copied(manifest(0), "a", "b"))
    assert failed is not None
    assert (failed.names, failed.files, failed.lost) == (("a", "b"), 2, False)


def test_the_message_names_a_few_files_and_a_few_workers() -> None:
    names = ("a", "b", "c", "d")
    one = Missing(worker=0, files=4, size=4096, names=names, why="the disk is full")
    assert describe(one) == "worker 0: 4 files, 4 KiB, (a, b, c, ...) not fetched: the disk is full"
    assert describe(Missing(worker=2, why="x")) == "worker 2: its files not fetched: x"
    error = incomplete("demo", [f"worker {number}" for number in range(9)], hint="")
    assert error.message.endswith("worker 4; and 4 more workers")
    assert error.exit_code == 123


def keeper(*workers: int, **more: object) -> KeeperView:
    kept = {each: Kept(manifests={"/out": manifest(each)}) for each in workers}
    return KeeperView(**{"pod": "demo-keeper-x", "kept": kept, **more})  # type: ignore[arg-type]


GIVEN = [Event(kind="worker-kept", at=3.0, worker=worker) for worker in range(2)]


def test_what_the_keeper_has_is_taken_from_it() -> None:
    """Though one of the workers is still there: it leaves at any moment."""
    pods = [pod(0, state=RUNNING), pod(1, state=ended(0))]
    shards = find_shards(PLAN, [*RAN, *stated(0, 1), *GIVEN], pods, keeper(0, 1))
    assert [(each.pod, each.kept) for each in shards] == [("demo-keeper-x", True)] * 2


def test_what_the_keeper_lacks_is_in_its_worker() -> None:
    pods = [pod(0, state=RUNNING), pod(1, state=RUNNING)]
    shards = find_shards(PLAN, [*RAN, *stated(0, 1)], pods, keeper(0))
    assert [(each.pod, each.kept) for each in shards] == [("demo-keeper-x", True), ("demo-1-abcde", False)]


@pytest.mark.parametrize(
    ("found", "why", "lost"),
    [
        (keeper(0), "the keeper that had it is gone", True),
        (
            keeper(pod=None, why="the keeper is gone", lost=True),
            "it is with the keeper, and the keeper is gone",
            True,
        ),
        (
            keeper(pod=None, why="the keeper's node does not respond"),
            "it is with the keeper, and the keeper's node does not respond",
            False,
        ),
    ],
)
def test_a_keeper_that_is_lost_with_what_it_had(found: KeeperView, why: str, lost: bool) -> None:
    pods = [pod(worker, state=ended(0)) for worker in range(2)]
    shard = find_shards(PLAN, [*RAN, *stated(0, 1), *GIVEN], pods, found)[1]
    assert (shard.pod, shard.why, shard.lost) == (None, why, lost)


def test_a_success_of_which_nothing_is_left_had_results() -> None:
    """That its pods, logs and keeper are gone does not mean that there were none."""
    end = Event(kind="finished", at=9.0, outcome="succeeded", exit_code=0)
    shards = find_shards(PLAN, [end], [], KeeperView(why="the keeper is gone", lost=True))
    assert [(each.pod, each.lost) for each in shards] == [(None, True)] * 2
    failed = Event(kind="finished", at=9.0, outcome="failed", exit_code=1)
    assert find_shards(PLAN, [failed], []) == []


def test_of_a_worker_that_is_lost_the_keeper_has_the_safe_checkpoints() -> None:
    """One that is still there, or may come back, may have all the rest."""
    saved = KeeperView(
        pod="demo-keeper-x",
        kept={each: Kept(manifests={"/out": manifest(each, 1)}, only_checkpoints=True) for each in range(2)},
    )
    shards = find_shards(PLAN, RAN, [pod(0, state=RUNNING), pod(1, state=ended(137))], saved)
    assert [(each.pod, each.kept, each.only_checkpoints) for each in shards] == [
        ("demo-0-abcde", False, False),
        ("demo-keeper-x", True, True),
    ]
    assert shards[1].lost
    assert shards[1].why
    assert shards[1].stated == {"/out": manifest(1, 1)}
    rest = Missing(worker=1, why=shards[1].why, lost=True, but_checkpoints=True)
    said = f"worker 1: its files, but for the safe checkpoints, not fetched: {shards[1].why}"
    assert describe(rest) == said


def test_what_the_keeper_has_tells_that_ranks_ran() -> None:
    """A leader that was replaced after the end knows nothing of them."""
    log = [Event(kind="worker-started", at=1.0, worker=0), Event(kind="verdict", at=2.0)]
    shards = find_shards(PLAN, log, [], keeper(1))
    assert [(each.pod, each.kept) for each in shards] == [(None, False), ("demo-keeper-x", True)]


def no_right(*missing: Missing, per: Any = "rank", procs: int = 1, **pod: Any) -> list[str]:
    """What is said of missing results to a user who may not execute in pods; `!` is what is lost."""
    plan = replace(
        PLAN,
        world=World(groups=(Group(workers=2, procs=procs),)),
        launches=(Launch(argv=("x",), per=per),),
    )
    job = Job(name="demo", script="train.py", workers=2, pod=PodOptions(**pod))
    record = Record(ref=RunRef(engine="k8s", name="demo"), job=job, created=1.0, owner="ann", plan=plan)
    return [describe(each) + "!" * each.lost for each in without_right(missing, record)]


DENIED = Missing(worker=1, why="pods is forbidden", files=2, size=2048)
ENDED = Missing(worker=1, why="its pod has ended", files=2, size=2048, lost=True)


def test_what_is_missing_without_the_right_to_fetch() -> None:
    kept = "worker 1: 2 files, 2 KiB, not fetched: you may not create pods/exec"
    assert no_right(DENIED) == [kept]
    assert no_right(DENIED, linger=0.0) == [f"{kept}!"]  # nothing holds the pod
    assert no_right(DENIED, linger=0.0, keeper=Keeper()) == [kept]
    assert no_right(ENDED, linger=0.0) == [f"{kept}, and its pod has ended!"]


@pytest.mark.parametrize(
    ("files", "more", "told"),
    [
        (1, {}, False),
        (2, {}, True),
        (2, {"procs": 2}, False),
        (2, {"procs": 2, "per": "worker"}, True),  # torchrun, which starts them itself, has one log
        (1, {"per": "leader"}, True),
        (None, {}, True),
        (1, {"output": Output(claim="data"), "collect": ("/x",)}, True),  # logs are on the volume
    ],
)
def test_a_log_is_read_without_that_right(files: int | None, more: dict[str, Any], told: bool) -> None:
    assert bool(no_right(replace(ENDED, files=files), **more)) is told


def test_the_claim_is_named() -> None:
    record = Record(ref=RunRef(engine="k8s", name="demo"), job=Job(name="demo"), created=1.0, owner="ann")
    assert describe(on_volume(record)) == (
        "its files not fetched: they are on the volume claim demo-results, and you may not create pods/exec"
    )
