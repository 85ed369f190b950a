"""The simulator of `bench/placement.py`: waiting times worked out by hand, and rules that always hold."""

from __future__ import annotations

from random import Random

import pytest
from bench.measure import bootstrap, rivals
from bench.measure.replay import Nodes, Order, Policy, replay
from bench.measure.trace import DAY, Job, nodes_for, read_trace, windows, with_odd_sizes

from echelon.placement.shares import Site, Wish, choose, index

POLICIES: dict[str, Policy] = {
    "ours": rivals.ours(),
    "whole": rivals.ours(whole=8),
    "any": rivals.ours("any"),
    "naive": rivals.largest_first,
    "pods": rivals.pod_by_pod,
    "preferred": rivals.few_hosts,
    "required": rivals.one_host_up_to(8),
}
ORDERS: tuple[Order, ...] = ("whoever fits", "strict", "backfill")


def waits(jobs: list[Job], policy: str = "ours", nodes: int = 1, **more) -> dict[float, float]:
    return {each.job.arrival: each.waited for each in replay(jobs, nodes, POLICIES[policy], **more)}


def some_jobs(seed: int, count: int = 60) -> list[Job]:
    random = Random(seed)
    arrivals = sorted(random.sample(range(1000), count))
    return [Job(at, random.randint(1, 200), random.choice((1, 1, 1, 2, 3, 4, 8, 12))) for at in arrivals]


def test_a_job_waits_until_enough_is_free() -> None:
    jobs = [Job(0, 100, 6), Job(10, 50, 4), Job(20, 5, 2)]
    assert waits(jobs, order="whoever fits") == {0: 0, 10: 90, 20: 0}
    assert waits(jobs, order="strict") == {0: 0, 10: 90, 20: 80}


def test_backfill_lets_those_go_first_that_end_in_time() -> None:
    """By the first one's limit the second could start at 200. The third ends before that, the fourth not."""
    jobs = [Job(0, 100, 6), Job(10, 50, 4), Job(20, 5, 2), Job(30, 150, 2)]
    assert waits(jobs, order="backfill", limit=2.0) == {0: 0, 10: 90, 20: 0, 30: 70}


def test_what_one_node_could_hold_waits_for_it_or_is_split() -> None:
    jobs = [Job(0, 100, 5), Job(1, 50, 5), Job(2, 10, 6)]
    assert waits(jobs, "ours", nodes=2) == {0: 0, 1: 0, 2: 0}
    assert waits(jobs, "whole", nodes=2) == {0: 0, 1: 0, 2: 49}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("policy", POLICIES)
def test_no_gpu_is_given_twice_and_every_job_runs(policy: str, order: Order) -> None:
    for seed in range(5):
        jobs = some_jobs(seed)
        done = replay(jobs, 3, POLICIES[policy], order=order)
        assert sorted(each.job.arrival for each in done) == [job.arrival for job in jobs]
        changes = [
            change
            for each in done
            for start in [each.job.arrival + each.waited]
            for change in ((start, each.job.gpus), (start + each.job.duration, -each.job.gpus))
        ]
        used = 0
        for _, change in sorted(changes):
            used += change
            assert 0 <= used <= 24
        assert all(each.waited >= 0 for each in done)


def test_ours_is_asked_what_the_real_index_would_say() -> None:
    """Nodes are kept in classes as they change; a fresh index of the same nodes has the same answer."""
    random = Random(1)
    nodes = Nodes((f"n{number:02}", 8) for number in range(12))
    running = []
    for _ in range(300):
        size = random.choice((1, 2, 3, 6, 12, 16))
        given = POLICIES["ours"](nodes, size)
        fresh = index(Site(name=name, free=free, usable=free) for name, free in nodes.free.items())
        found = choose(fresh, Wish(least=size, most=size))
        assert (None if found is None else found.shares) == given
        if given is not None:
            nodes.take(given)
            running.append(given)
        if running and (given is None or random.random() < 0.5):
            nodes.release(running.pop(random.randrange(len(running))))
    assert nodes.total == sum(nodes.free.values())


@pytest.mark.parametrize("policy", POLICIES)
def test_a_policy_gives_what_is_asked_and_no_more_than_is_free(policy: str) -> None:
    random = Random(2)
    for _ in range(300):
        nodes = Nodes((f"n{number}", random.randint(0, 8)) for number in range(6))
        size = random.choice((1, 2, 3, 5, 6, 8, 12, 16, 24))
        given = POLICIES[policy](nodes, size)
        if given is None:
            assert policy in ("ours", "whole", "required") or nodes.total < size
        else:
            assert sum(share for _, share in given) == size
            assert all(0 < share <= nodes.free[name] for name, share in given)
            assert len({name for name, _ in given}) == len(given)


def test_the_rivals_choose_as_they_are_known_to() -> None:
    nodes = Nodes(zip("abc", (5, 3, 2), strict=True))
    assert rivals.largest_first(nodes, 6) == [("a", 5), ("b", 1)]
    assert rivals.pod_by_pod(nodes, 6) == [("c", 2), ("b", 3), ("a", 1)]
    assert rivals.few_hosts(nodes, 7) == [("a", 5), ("c", 2)]
    assert rivals.few_hosts(nodes, 2) == [("c", 2)]
    assert rivals.one_host_up_to(8)(nodes, 6) is None


def test_windows_are_cut_from_the_busy_part_of_a_trace(tmp_path) -> None:
    path = tmp_path / "trace.csv"
    quiet = [f"2017-01-0{day} 00:00:00,10.0,1,10.0,x" for day in (1, 2)]
    busy = [
        f"2017-{2 + day // 28:02}-{1 + day % 28:02} 00:00:00,864.0,4,1,x"
        for day in range(56)
        for _ in range(100)
    ]
    path.write_text("\n".join(["timestamp,duration,num_gpus,gpu_time,cluster", *busy, *quiet]))
    jobs = read_trace(path)
    assert (jobs[0].arrival, len(jobs)) == (0.0, 5602)
    first, last = windows(jobs, 2)
    assert len(first) == len(last) == 3000
    assert first[0].arrival == last[0].arrival == 0
    assert nodes_for(first, 0.5, 8) == 1  # 3,000 jobs of 864 s with 4 GPUs: 4 GPUs all the time
    odd = with_odd_sizes(first)
    assert {job.gpus for job in odd} == {3, 5, 6, 12}
    assert all(abs(job.duration * job.gpus - 4 * 864) < 1e-6 for job in odd)
    assert last[-1].arrival < 30 * DAY


def test_the_interval_of_a_difference_has_it() -> None:
    random = Random(3)
    values = [(number % 20, random.random()) for number in range(2000)]
    one = bootstrap.sums(values)
    other = bootstrap.sums((block, value + 0.1) for block, value in values)
    assert bootstrap.mean(one) - bootstrap.mean(other) == pytest.approx(-0.1)
    low, high = bootstrap.interval(one, other, draws=200)
    assert low == pytest.approx(-0.1)
    assert high == pytest.approx(-0.1)
    noisy = bootstrap.sums((block, value + random.gauss(0, 1)) for block, value in values)
    low, high = bootstrap.interval(one, noisy, draws=200)
    assert low < 0 < high
