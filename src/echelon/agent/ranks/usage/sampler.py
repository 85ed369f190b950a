"""Samples of what a worker's ranks use, one every few seconds while they run: CPU, memory, GPUs.

A sample is a live value: the newest replaces the one before, and none is part of the run's history. Where the
worker has a control group of its own, in a pod, memory is that group's; else it is the sum over its ranks."""

from __future__ import annotations

import os
import time

from echelon.agent.loop import Loop, Timer
from echelon.agent.ranks import cgroups
from echelon.agent.ranks.ranks import Ranks
from echelon.agent.ranks.usage import quiet
from echelon.agent.ranks.usage.gpus import Gpus
from echelon.agent.ranks.usage.looks import Looks, Tree
from echelon.agent.task import Task

TYPE_CHECKING = False  # as mypy reads it; importing `typing` would cost a rank its first milliseconds
if TYPE_CHECKING:
    from typing import Any, Callable

FIRST = 0.5  # seconds after the start of the ranks


class Sampler:
    """Calls `on_sample(sample)` until `end`."""

    def __init__(
        self,
        loop: Loop,
        task: Task,
        ranks: Ranks,
        on_sample: Callable[[dict[str, Any]], object],
    ) -> None:
        self._loop = loop
        self._stall = task.stall
        self._own_group = task.control is not None  # it is a pod's
        self._ranks = ranks
        self._on_sample = on_sample
        env = dict(os.environ, **{key: task.env[key] for key in ("CUDA_VISIBLE_DEVICES",) if key in task.env})
        self._gpus = Gpus(loop, ranks.children, env)
        self._looks = Looks(os.getpid())
        self._clock = _name_of_clock()
        self._last = time.monotonic()
        self._quiet = quiet.Quiet(self._last)
        self._before: dict[int | None, float] = {}
        self._waited: dict[int | None, float] = {}
        self._expected = min(FIRST, quiet.pause(self._stall, 0.0))
        self._gpus.ask()
        self._asked = self._last  # when the GPUs were
        self._timer: Timer = loop.call_later(self._expected, self._sample)

    def end(self) -> None:
        """Take no more samples."""
        self._timer.cancel()
        self._on_sample = lambda _sample: None

    def _sample(self) -> None:
        began, now = time.thread_time(), time.monotonic()
        pids = self._ranks.pids()
        trees = self._looks.look(pids, self._gpus.pids)
        passed = max(now - self._last, 0.001)
        cpus = {
            rank: max(0.0, tree.seconds - self._before.get(rank, 0.0)) / passed
            for rank, tree in trees.items()
        }
        # One that computes on a machine with too much to do gets little of it, but waits for more.
        wanted = {
            rank: cpus[rank] + max(0.0, tree.waited - self._waited.get(rank, tree.waited)) / passed
            for rank, tree in trees.items()
        }
        self._before = {rank: tree.seconds for rank, tree in trees.items()}
        self._waited = {rank: tree.waited for rank, tree in trees.items()}
        unseen = bool(pids) and not trees  # where there is no /proc, a rank may compute
        busy = unseen or quiet.computes(wanted.values(), [gpu["busy"] for gpu in self._gpus.newest])
        idle = self._quiet.note(now, self._expected, busy, self._ranks.printed, self._ranks.waits_for_keys())
        self._last = now
        self._on_sample(self._described(trees, cpus, idle, now))
        if now - self._asked >= quiet.pause_for_gpus(self._stall):
            self._asked = now
            self._gpus.ask()
        self._expected = quiet.pause(self._stall, time.thread_time() - began)
        self._timer = self._loop.call_later(self._expected, self._sample)

    def _described(
        self, trees: dict[int | None, Tree], cpus: dict[int | None, float], idle: float, now: float
    ) -> dict[str, Any]:
        printed = self._ranks.printed_at()
        in_use = cgroups.memory_in_use() if self._own_group else None
        return {
            "at": round(time.time(), 3),
            "clock": self._clock,
            "ranks": [
                {
                    "rank": rank,
                    "cpus": round(cpus[rank], 3),
                    "memory": tree.resident,
                    "processes": tree.processes,
                    "silent": round(self._quiet.silent(now, printed.get(rank, 0.0)), 3),
                }
                for rank, tree in sorted((item for item in trees.items() if item[0] is not None))
            ],
            "cpus": round(sum(cpus.values()), 3),
            "memory": sum(tree.resident for tree in trees.values()) if in_use is None else in_use,
            "memory_limit": cgroups.memory_limit_bytes() if self._own_group else None,
            "gpus": self._gpus.newest,
            "idle": round(idle, 3),
            "silent": round(self._quiet.silent(now, self._ranks.printed), 3),
        }


def _name_of_clock() -> str:
    """What workers on one machine, also in several pods, have in common, and with no other; "" where the
    kernel does not tell.
    """
    try:
        with open("/proc/sys/kernel/random/boot_id", "rb") as file:
            return file.read(8).decode("ascii", "replace")
    except OSError:
        return ""
