"""A placement as lines of text: node by node, free before and after, and why this one. Pure.

The dry run prints it. The obvious other choice is what a person would do by hand: fill the node with the most
free GPUs, then the next."""

from __future__ import annotations

from collections.abc import Sequence

from echelon.model.engine.cluster import Cluster, free_gpus
from echelon.model.job import Job
from echelon.model.open_shape import Shares, numbers
from echelon.model.plan import Plan
from echelon.model.world import members
from echelon.placement.explain import counted
from echelon.placement.instead import fits
from echelon.placement.open import choose_now, models_to_choose_from, most_on_one_node, sizes_now
from echelon.placement.shares import Chosen

_ROWS = 16  # nodes that are drawn; the others are counted
_PARTS = ("zone", "block", "rack", "NVLink domain")  # of the network, in the order of Node.domains


def draw(job: Job, plan: Plan, cluster: Cluster) -> list[str]:
    """The nodes with free GPUs, what the run takes of each, and why; nothing for a run without GPUs."""
    taken: dict[str, int] = {}
    ranks: dict[str, list[str]] = {}
    for member, seat in zip(members(plan.world), plan.placement.seats, strict=True):
        taken[seat.node] = taken.get(seat.node, 0) + len(seat.gpus)
        ranks.setdefault(seat.node, []).append(str(member.worker))
    if not any(taken.values()) or "" in taken:
        return []
    free = {node.name: free_gpus(node) for node in cluster.nodes if node.gpus}
    shown = sorted(free, key=lambda name: (-taken.get(name, 0), -free[name], name))
    used = sum(1 for name in shown if taken.get(name))
    rows = [("node", "free", "takes", "left", "", "workers")]
    for name in shown[: max(_ROWS, used)]:
        takes = taken.get(name, 0)
        bar = "#" * takes + "." * (free[name] - takes)
        rows.append(
            (
                name,
                str(free[name]),
                str(takes or ""),
                str(free[name] - takes),
                bar,
                ", ".join(ranks.get(name, [])),
            )
        )
    more = len(shown) - len(rows) + 1
    lines = _table(rows)
    if more:
        lines.append(f"  and {more} nodes more, of which it takes nothing")
    return [*lines, *(f"  {why}" for why in _reasons(job, cluster))]


def _reasons(job: Job, cluster: Cluster) -> list[str]:
    if job.shape is None or job.shape.gpus is not None or job.shape.workers is not None:
        return []
    chosen = choose_now(job.shape, job.resources, cluster)
    if chosen is None:
        return []
    shares = [share for _, share in chosen.shares]
    total = sum(shares)
    why = [f"why: {counted(total)} as {_written(shares)} within {_span(chosen)}"]
    several = len(models_to_choose_from(job.resources, cluster)) > 1
    of_model = f" of {chosen.model}" if several and chosen.model else ""
    if len(shares) == 1:
        why[0] += ", which is never split"
    else:
        largest, free = most_on_one_node(job.shape, job.resources, cluster)
        lacks = f"has {total} free" if free < total else f"can give {total}"
        why[0] += f": no node {lacks} (at most {largest}); {len(shares)} nodes are the fewest"
        if job.shape.shares == "equal":
            why[0] += " with equal shares"
    if job.shape.shares == "largest-first":
        filled = (
            f"as --shares largest-first says, of the nodes{of_model} within {_span(chosen)} the one that can "
            "give the most GPUs is filled, then the next"
        )
        return why if len(shares) == 1 else [*why, filled]
    usual: Shares = "largest-first" if job.shape.shares == "equal" else "equal"
    other = choose_now(job.shape, job.resources, cluster, shares=usual, number=total)
    if other is None and usual == "equal":
        why.append(f"not in equal shares: {counted(total)} cannot be divided so over these nodes")
    if other is not None and sorted(other.shares) != sorted(chosen.shares):
        why.append(f"not {_written([share for _, share in other.shares])}: {_against(chosen, other)}")
    return why


def why_not_more(job: Job, plan: Plan, cluster: Cluster) -> str:
    """Why a run that asks for a range of GPUs gets fewer than the most; "" for any other."""
    shape, total = job.shape, sum(len(seat.gpus) for seat in plan.placement.seats)
    if shape is None or not shape.least <= total < shape.most or job.roles:
        return ""
    got = f"{counted(total)} of {shape.least} to {shape.most}: "
    if shape.gpus is not None or shape.workers is not None:
        most_such = numbers(shape)[0]
        if total == most_such:
            return ""
        gpus = shape.gpus or most_such // (shape.workers or 1)
        if fits(shape, job.resources, most_such // gpus, gpus, cluster):
            return f"{got}{most_such} would be spread over more of the network"
        return f"{got}{most_such} are not free now for such workers"
    chosen = choose_now(shape, job.resources, cluster)
    most = sizes_now(shape, job.resources, cluster)[-1:]
    if chosen is None or not most:
        return ""
    such = " in equal shares" if shape.shares == "equal" else ""
    fit = f"no more than {most[0]} can be had now{such}" if most[0] < shape.most else ""
    wider = choose_now(shape, job.resources, cluster, number=most[0])
    if most[0] == total or wider is None:
        return got + fit
    written = _written([share for _, share in wider.shares])
    apart = f"{most[0]}, as {written}, would be spread over {_span(wider)}; these are within {_span(chosen)}"
    return got + "; ".join(filter(None, (fit, apart)))


def _against(chosen: Chosen, other: Chosen) -> str:
    """The first point of the order of choice in which the other is worse."""
    if other.span > chosen.span:
        return "it would span more of the network"
    if len(other.shares) > len(chosen.shares):
        return f"it would need {len(other.shares)} nodes"
    if other.added > chosen.added:
        return "it would break up GPUs that larger runs could use"
    if not _is_equal(other) and _is_equal(chosen):
        return "its shares differ (--shares allows that), and it leaves no more GPUs together"
    if _is_equal(other) and not _is_equal(chosen):
        return "it leaves no more GPUs together, and has fewer of its own on one node"
    return "it is no better, and this one leaves nodes with more free GPUs alone"


def _is_equal(chosen: Chosen) -> bool:
    return len({share for _, share in chosen.shares}) == 1


def _span(chosen: Chosen) -> str:
    if chosen.span == 0:
        return "one node"
    return f"one {_PARTS[len(chosen.domain) - 1]}" if chosen.domain else "the cluster"


def _written(shares: Sequence[int]) -> str:
    return f"[{', '.join(map(str, shares))}]" if len(shares) <= 8 else f"{len(shares)} x {shares[0]}"


def _table(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    return [
        ("  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))).rstrip()
        for row in rows
    ]
