"""Who uses this machine now: GPUs, CPUs, memory, and the processes of each run. What `echelon top` shows."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from echelon.agent.ranks.processes import descendants, stat_of
from echelon.engines.local import devices
from echelon.engines.local.folder import rundir
from echelon.engines.local.folder.store import RunStore
from echelon.model.engine.usage import GpuUse, MachineRun, MachineUsage
from echelon.model.status import FINAL, RunSummary

_SAMPLE = 0.3  # seconds over which a share of the CPU is measured


class Machine(Protocol):
    """What is asked of the local engine."""

    store: RunStore

    def runs(self) -> Sequence[RunSummary]:
        """Every run."""
        ...

    def gpus_held(self) -> dict[str, str]:
        """Which run holds which GPU."""
        ...


class LocalMeter:
    """What processes use."""

    def __init__(self, engine: Machine) -> None:
        self._engine = engine

    def measure(self) -> MachineUsage:
        """Look at everything; takes a moment."""
        return measure_usage(self._engine)


def measure_usage(engine: Machine) -> MachineUsage:
    """Look at everything; takes a moment, since a share of the CPU needs two looks."""
    living = [run for run in engine.runs() if run.state not in FINAL]
    trees = {run.name: _processes(engine, run.name) for run in living}
    before, start = _cpu_seconds(trees), time.monotonic()
    held = engine.gpus_held()
    readings = devices.read_gpus()
    time.sleep(max(0.0, _SAMPLE - (time.monotonic() - start)))
    after, passed = _cpu_seconds(trees), time.monotonic() - start
    by_run: dict[str, list[str]] = {}
    for gpu, name in held.items():
        by_run.setdefault(name, []).append(gpu)
    own = frozenset(pid for pids in trees.values() for pid in pids)
    total = devices.total_memory()
    return MachineUsage(
        cpus=devices.count_cpus(),
        load=os.getloadavg()[0],
        memory=total,
        memory_used=total - _available_memory(total),
        gpus=tuple(
            GpuUse(
                gpu=each.index,
                model=each.model,
                memory=each.memory,
                used=each.used,
                utilization=each.utilization,
                user=devices.holder_of(each, held, own),
            )
            for each in readings
        ),
        runs=tuple(
            MachineRun(
                name=run.name,
                state=run.state,
                processes=len(trees[run.name]),
                cpus=round(max(0.0, after[run.name] - before[run.name]) / passed, 2),
                memory=sum(_resident(pid) for pid in trees[run.name]),
                gpus=tuple(sorted(by_run.get(run.name, ()))),
            )
            for run in living
        ),
    )


def _processes(engine: Machine, name: str) -> list[int]:
    pid = (rundir.read_json(engine.store.dir(name).supervisor) or {}).get("pid")
    return [pid, *descendants(pid)] if isinstance(pid, int) else []


def _cpu_seconds(trees: Mapping[str, Sequence[int]]) -> dict[str, float]:
    return {name: sum(_cpu_of(pid) for pid in pids) for name, pids in trees.items()}


def _cpu_of(pid: int) -> float:
    fields = stat_of(pid)
    try:
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    except (IndexError, ValueError):
        return 0.0


def _resident(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):
        return 0


def _available_memory(total: int) -> int:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return total
