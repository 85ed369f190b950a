"""How a cluster is printed: its nodes, their GPUs, who uses them, and copies to and from its volumes."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from echelon.cli.printing.render import data, table
from echelon.cli.printing.say import say, style
from echelon.cli.printing.words import duration, state
from echelon.model.display import some_of
from echelon.model.engine.cluster import name_devices
from echelon.model.resources import format_memory

if TYPE_CHECKING:
    from echelon.model.copy import OpenCopy
    from echelon.model.engine.usage import ClusterRun, ClusterUsage, Holder, NodeUse

_NAMED = 3  # users or nodes that a cell names before it counts the rest
_AROUND = 9  # lines on the screen that are not rows of nodes or runs
_HEADS = 3  # those that the table of holders adds


def copies(found: Sequence[OpenCopy]) -> None:
    """The table of active copies, below that of runs."""
    now = time.time()
    say("")
    table(
        ("COPY", "STATE", "VOLUME", "AGE", "OWNER"),
        [
            (
                each.name,
                state(each.state),
                f"{'to' if each.writes else 'from'} pvc:{each.volume}",
                duration(now - each.created),
                each.owner or "-",
            )
            for each in found
        ],
    )


def cluster_usage(found: ClusterUsage, format_: str) -> None:
    """The cluster, its GPUs and who uses them. A terminal gets what fits on it, a pipe gets all."""
    if format_ != "text":
        data(found, format_)
        return
    nodes, holders, runs = _shares_of_screen(found) if sys.stdout.isatty() else (None, None, None)
    if found.nodes is None:
        say("nodes: unknown; you may not list them (`echelon doctor --on k8s` says what is missing)")
    else:
        say(_headline(found.nodes))
        if found.devices:
            say(f"by resource claims (DRA), which --gpus does not ask for: {name_devices(found.devices)}")
        say()
        _rows(
            ("NODE", "STATE", "MODEL", "GPUS", "USED", "FREE", "CPUS", "MEMORY", "USED BY"),
            [_node_row(each) for each in found.nodes],
            nodes,
            "nodes",
        )
    if found.holders:
        say()
        rows = [_holder_row(each, time.time()) for each in sorted(found.holders, key=_idle_first)]
        _rows(("NODE", "HELD BY", "POD", "GPUS", "FOR", "STATE"), rows, holders, "holders")
    say()
    if found.runs:
        heads = ("RUN", "STATE", "WORKERS", "CPUS", "MEMORY", "GPUS", "NODES")
        _rows(heads, [_run_row(each) for each in found.runs], runs, "runs")
    else:
        say("no runs")


def _shares_of_screen(found: ClusterUsage) -> tuple[int, int, int]:
    """How many rows of nodes, holders and runs fit: what the latter do not need is for nodes."""
    room = max(6, shutil.get_terminal_size().lines - _AROUND - (_HEADS if found.holders else 0))
    part = room // 3 if found.holders else room // 2
    holders, runs = min(len(found.holders), room // 3), min(len(found.runs), part)
    return room - holders - runs, holders, runs


def _headline(nodes: tuple[NodeUse, ...]) -> str:
    total = sum(each.gpus for each in nodes)
    used = [each.gpus_used for each in nodes if each.gpus_used is not None]
    taken = f"{sum(used)} used, {_free_now(nodes)} free" if len(used) == len(nodes) else "free: unknown"
    return f"{len(nodes)} node{'s' * (len(nodes) != 1)}, {total} GPU{'s' * (total != 1)}" + (
        f": {taken}" if total else ""
    )


def _free_now(nodes: tuple[NodeUse, ...]) -> int:
    """GPUs that a run could have: of nodes that take workers."""
    return sum(each.gpus - (each.gpus_used or 0) for each in nodes if each.state == "ready")


def _node_row(each: NodeUse) -> tuple[str, ...]:
    free = None if each.gpus_used is None else each.gpus - each.gpus_used
    memory = "?" if each.memory_used is None else format_memory(each.memory_used)
    return (
        each.node,
        style(each.state, fg="green" if each.state == "ready" else "yellow"),
        each.model or "-",
        str(each.gpus or "-"),
        "-" if not each.gpus else "?" if each.gpus_used is None else str(each.gpus_used),
        "-" if not each.gpus else "?" if free is None else style(str(free), fg="green" if free else None),
        f"{'?' if each.cpus_used is None else f'{each.cpus_used:g}'} of {each.cpus:g}",
        f"{memory} of {format_memory(each.memory)}",
        _users(each.users or {}),
    )


def _run_row(each: ClusterRun) -> tuple[str, ...]:
    return (
        each.name,
        state(each.state),
        str(each.workers or "-"),
        f"{each.cpus:g}",
        format_memory(each.memory),
        str(each.gpus or "-"),
        some_of(each.nodes, _NAMED) or "-",
    )


_IDLE = {
    "lingering": "idle: its run is over, its results are not fetched",
    "keeping": "idle: keeps its run's results, without GPUs",
}


def _idle_first(each: Holder) -> tuple[bool, str]:
    return each.state != "lingering", each.node


def _holder_row(each: Holder, now: float) -> tuple[str, ...]:
    text = _IDLE.get(each.state, each.state)
    return (
        each.node,
        each.name,
        each.pod or "-",
        str(each.gpus or "-"),
        "?" if each.since is None else duration(max(0.0, now - each.since)),
        style(text, fg="yellow") if each.state in _IDLE else state(each.state),
    )


def _users(users: Mapping[str, int]) -> str:
    """Who has GPUs here, those with the most first."""
    most = sorted(users.items(), key=lambda each: (-each[1], each[0]))
    return some_of([f"{name} ({count})" for name, count in most], _NAMED)


def _rows(heads: tuple[str, ...], rows: list[tuple[str, ...]], room: int | None, what: str) -> None:
    shown = rows if room is None else rows[:room]
    table(heads, shown)
    if len(shown) < len(rows):
        say(f"and {len(rows) - len(shown)} more {what}; -o json shows all")
