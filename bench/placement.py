"""What placement costs on a large cluster, and what it is worth: jobs of a real cluster, replayed.

The second part needs a trace, which is not part of this project: Microsoft's Philly
(github.com/msr-fiddle/philly-traces, CC-BY-4.0) as a table with the columns timestamp, duration and num_gpus,
given as `--trace FILE` or in ECHELON_TRACE.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random

from echelon.model.engine.cluster import Cluster, Gpu, Node
from echelon.model.resources import Resources
from echelon.placement.place import best_of_range
from echelon.placement.shares import Index, Shares, Site, Wish, choose, index
from measure import bootstrap, rivals
from measure.figures import Figure, Line, Target, align, show
from measure.replay import Order, Policy, replay
from measure.trace import DAY, Job, nodes_for, read_trace, windows, with_odd_sizes

NODES = 10_000
GPUS = 8
ROUNDS = 30
ASKED: tuple[tuple[Shares, int, Target | None], ...] = (
    ("equal", 6, Target(limit=1, sense="at most", of="figure")),
    ("equal", 64, Target(limit=1, sense="at most", of="figure")),
    ("equal", 256, Target(limit=1, sense="at most", of="figure")),
    ("any", 6, None),
    ("any", 64, None),
    ("any", 256, Target(limit=50, sense="at most", of="figure")),
)
RANGE = (128, 256)
IN_A_RANGE = Target(limit=100, sense="at most", of="figure")
LOADS = (0.8, 0.95)
BLOCK = 5 * DAY
MANY = 8  # more GPUs than this are a large job
# What users get is the first of these. The others show what it would be worth to wait for one node.
AT_ONCE = "ours, split at once"
NEVER_SPLIT = "ours, never split what one node could hold"
ANY_SHARES = "ours, never split, --shares any"
WAITS, LARGE, SPREAD = "wait", "wait of jobs > 8", "nodes per multi-GPU job"

RIVALS: dict[str, Policy] = {
    "largest free first (the naive rule)": rivals.largest_first,
    "pod by pod, fullest first (MostAllocated)": rivals.pod_by_pod,
    "Kueue, host preferred": rivals.few_hosts,
    "Kueue, host required up to 8, then preferred": rivals.one_host_up_to(GPUS),
}
OURS: dict[str, Policy] = {
    AT_ONCE: rivals.ours(),
    NEVER_SPLIT: rivals.ours(whole=GPUS),
    ANY_SHARES: rivals.ours("any", whole=GPUS),
}
POLICIES = OURS | RIVALS
ORDERS: dict[str, tuple[Order, str]] = {
    "whoever fits, oldest first": ("whoever fits", AT_ONCE),
    "strictly by age": ("strict", AT_ONCE),
    "by age, with backfill by time limits": ("backfill", AT_ONCE),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--trace", type=Path, default=os.environ.get("ECHELON_TRACE"), help="the trace's table"
    )
    parser.add_argument("--windows", type=int, default=4, help="windows of thirty days to replay (default 4)")
    parser.add_argument(
        "--limit", type=float, default=2.0, help="time limits declared, as times the duration"
    )
    given = parser.parse_args()
    _show_costs()
    if given.trace is None:
        print("No replay: give a trace with --trace FILE (ECHELON_TRACE); see the docstring of this script.")
        return
    _show_replay(windows(read_trace(Path(given.trace)), given.windows), given.limit)


# What it costs


def _show_costs() -> None:
    sites = list(_busy_sites())
    there = index(sites)
    lines = [
        Line(
            figure=_timed(f"{shares} shares, {number} GPUs", partial(_ask, there, number, shares)),
            target=target,
        )
        for shares, number, target in ASKED
    ]
    least, most = RANGE
    every: tuple[Shares, ...] = ("equal", "any")
    lines += [
        Line(
            figure=_timed(
                f"{shares} shares, {least}..{most} GPUs", partial(_ask, there, most, shares, least)
            ),
            target=IN_A_RANGE,
        )
        for shares in every
    ]
    lines.append(Line(figure=_timed("the histogram itself", lambda: index(sites))))
    show(f"A decision on {NODES:,} nodes, the histogram given; processor time", lines)
    cluster = Cluster(nodes=tuple(map(_as_node, sites)))
    fixed = {f"{least}..{most} GPUs, 2 for each worker": [(Resources(gpus=2), least // 2, most // 2)]}
    for workers in (32, 4):
        fixed[f"up to {most} GPUs for {workers} workers"] = [
            (Resources(gpus=each), workers, workers) for each in range(most // workers, 0, -1)
        ]
    show(
        f"Equal workers on {NODES:,} nodes, all of it; processor time",
        [
            Line(figure=_timed(name, partial(best_of_range, sizes, cluster)), target=IN_A_RANGE)
            for name, sizes in fixed.items()
        ],
    )


def _busy_sites() -> Iterator[Site]:
    """Few GPUs are free, in many small pieces; on half of the nodes CPUs may be too few for all of them."""
    random = Random(1)
    for number in range(NODES):
        free = random.choices(range(GPUS + 1), weights=(6000, 2500, 900, 300, 150, 80, 40, 20, 10))[0]
        yield Site(
            name=f"n{number:05}", free=free, usable=min(free, random.choice((free, random.randint(0, GPUS))))
        )


def _as_node(site: Site) -> Node:
    gpus = tuple(Gpu(id=str(each), holder=None if each < site.free else "another") for each in range(GPUS))
    return Node(name=site.name, cpus=64, memory=2.0**38, free_cpus=64, free_memory=2.0**38, gpus=gpus)


def _ask(there: Index, number: int, shares: Shares, least: int = 0) -> object:
    found = choose(there, Wish(least=least or number, most=number, shares=shares))
    assert found is not None
    return found


def _timed(name: str, call: Callable[[], object]) -> Figure:
    samples = []
    for _ in range(ROUNDS):
        began = time.process_time_ns()
        call()
        samples.append((time.process_time_ns() - began) / 1e6)
    return Figure(name=name, samples=samples, unit="ms")


# What it is worth


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """One replay: which window, at which load, under what."""

    name: str
    window: int
    load: float
    order: Order
    policy: str
    limit: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """What a replay gave: minutes and counts, summed by blocks of days."""

    case: Case
    figures: dict[str, dict[bootstrap.Block, tuple[float, int]]]


def _replay(work: tuple[Case, Sequence[Job]]) -> Found:
    case, jobs = work
    nodes = nodes_for(jobs, case.load, GPUS)
    done = replay(jobs, nodes, POLICIES[case.policy], order=case.order, limit=case.limit)
    blocks = [((case.window, int(each.job.arrival // BLOCK)), each) for each in done]
    return Found(
        case=case,
        figures={
            WAITS: bootstrap.sums((block, each.waited / 60) for block, each in blocks),
            LARGE: bootstrap.sums(
                (block, each.waited / 60) for block, each in blocks if each.job.gpus > MANY
            ),
            SPREAD: bootstrap.sums((block, each.nodes) for block, each in blocks if each.job.gpus > 1),
        },
    )


def _show_replay(trace: Sequence[Sequence[Job]], limit: float) -> None:
    odd = [with_odd_sizes(jobs, seed) for seed, jobs in enumerate(trace)]
    placing = [_case(name, "whoever fits", name, limit) for name in POLICIES]
    queueing = [_case(name, order, policy, limit) for name, (order, policy) in ORDERS.items()]
    with ProcessPoolExecutor() as pool:
        found = [
            list(pool.map(_replay, [(each, jobs[each.window]) for each in _spread(cases, len(jobs))]))
            for jobs, cases in ((trace, placing), (odd, placing), (trace, queueing))
        ]
    number = sum(map(len, trace))
    sizes = [nodes_for(jobs, load, GPUS) for jobs in trace for load in LOADS]
    print(
        f"{number:,} jobs of {len(trace)} windows on {min(sizes)} to {max(sizes)} nodes with {GPUS} GPUs;"
        f" means in minutes at load {LOADS[0]:g} / {LOADS[1]:g}; [95 % interval of a difference]\n"
        "Only placing is compared: all rows have the same order, in which a job may be overtaken for ever"
    )
    _print_table("The trace's jobs; whoever fits starts, the oldest first", found[0], judged=True)
    _print_table("The same with 3, 5, 6 and 12 GPUs where jobs have several", found[1], judged=True)
    _print_table(f"Ours in other queues; time limits are {limit:g} times what jobs take", found[2])


def _case(name: str, order: Order, policy: str, limit: float) -> Case:
    return Case(name=name, window=0, load=0.0, order=order, policy=policy, limit=limit)


def _spread(cases: Sequence[Case], count: int) -> list[Case]:
    return [
        Case(name=case.name, window=window, load=load, order=case.order, policy=case.policy, limit=case.limit)
        for case in cases
        for window in range(count)
        for load in LOADS
    ]


def _print_table(title: str, found: Sequence[Found], *, judged: bool = False) -> None:
    names = list(dict.fromkeys(each.case.name for each in found))
    rows = [["", WAITS, LARGE, SPREAD, *(["the first minus it"] if judged else [])]]
    for name in names:
        cells = [
            " / ".join(f"{bootstrap.mean(_merged(found, name, load, figure)):{form}}" for load in LOADS)
            for figure, form in ((WAITS, ".0f"), (LARGE, ".0f"), (SPREAD, ".2f"))
        ]
        rows.append(
            [
                name,
                *cells,
                *([_difference(found, AT_ONCE, name) if name != AT_ONCE else ""] if judged else []),
            ]
        )
    print(title)
    print("\n".join(align(rows)), flush=True)
    if judged:
        print("\n".join(_verdicts(found)))
    print()


def _verdicts(found: Sequence[Found]) -> Iterator[str]:
    """Whether the mean wait is above that of the best rival beyond the interval: the target is what users
    get, and the other rules of ours are told beside it. A wide interval proves little: it is printed.
    """
    for load in LOADS:
        best = min(RIVALS, key=lambda name: bootstrap.mean(_merged(found, name, load, WAITS)))
        yield f"  load {load:g}, mean wait not above the best of the others ({best}):"
        for name in OURS:
            one, other = (_merged(found, each, load, WAITS) for each in (name, best))
            low, high = bootstrap.interval(one, other)
            holds, above = ("holds", "not above") if low <= 0 else ("MISSED", "above")
            apart = f"{bootstrap.mean(one) - bootstrap.mean(other):+.0f} [{low:.0f}, {high:.0f}]"
            yield f"    {name}: {holds if name == AT_ONCE else above}, {apart}"


def _difference(found: Sequence[Found], ours: str, name: str) -> str:
    parts = []
    for load in LOADS:
        one, other = (_merged(found, each, load, WAITS) for each in (ours, name))
        low, high = bootstrap.interval(one, other)
        parts.append(f"{bootstrap.mean(one) - bootstrap.mean(other):+.0f} [{low:.0f}, {high:.0f}]")
    return " / ".join(parts)


def _merged(
    found: Sequence[Found], name: str, load: float, figure: str
) -> dict[bootstrap.Block, tuple[float, int]]:
    return {
        block: sums
        for each in found
        if each.case.name == name and each.case.load == load
        for block, sums in each.figures[figure].items()
    }


if __name__ == "__main__":
    main()
