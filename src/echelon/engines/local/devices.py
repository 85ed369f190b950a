"""What this machine has: CPUs, memory, and GPUs as `nvidia-smi` reports them, with their holders.

GPUs are named by nvidia-smi's index, which is also CUDA's with CUDA_DEVICE_ORDER=PCI_BUS_ID. A
CUDA_VISIBLE_DEVICES in our environment is respected: other GPUs are not used."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence

from echelon.model.engine.cluster import Gpu
from echelon.values import frozen

_GPU_QUERY = "index,uuid,name,memory.total,memory.used,utilization.gpu"
_PROCESS_QUERY = "gpu_uuid,pid,process_name"
_PATIENCE = 20.0  # seconds; without persistence mode the driver takes a while to wake
_BUSY_SHARE = 0.25  # of the memory in use without a visible process: one in another container has it


@frozen
class GpuReading:
    """One GPU as nvidia-smi sees it now. Memory counts in bytes; `processes` are (process id, name)."""

    index: str
    uuid: str
    model: str
    memory: int
    used: int
    utilization: int | None
    processes: tuple[tuple[int, str], ...] = ()


def read_gpus(environment: Mapping[str, str] = os.environ) -> list[GpuReading]:
    """The GPUs that we may use; none where there is no nvidia-smi, or it finds no driver."""
    program = shutil.which("nvidia-smi", path=environment.get("PATH"))
    if program is None:
        return []
    rows = _ask(program, f"--query-gpu={_GPU_QUERY}")
    owners: dict[str, list[tuple[int, str]]] = {}
    if rows:
        for uuid, pid, name in (
            row for row in _ask(program, f"--query-compute-apps={_PROCESS_QUERY}") if len(row) == 3
        ):
            if pid.isdigit():
                owners.setdefault(uuid, []).append((int(pid), os.path.basename(name)))  # noqa: PTH119 - not a path of ours
    gpus = [
        GpuReading(
            index=row[0],
            uuid=row[1],
            model=row[2],
            memory=_mebibytes(row[3]),
            used=_mebibytes(row[4]),
            utilization=int(row[5]) if row[5].isdigit() else None,
            processes=tuple(owners.get(row[1], ())),
        )
        for row in rows
        if len(row) == 6
    ]
    visible = environment.get("CUDA_VISIBLE_DEVICES")
    return gpus if visible is None else choose_visible(gpus, visible)


def choose_visible(gpus: Sequence[GpuReading], visible: str) -> list[GpuReading]:
    """The GPUs that a CUDA_VISIBLE_DEVICES names, by CUDA's rules: the first unknown name ends the list."""
    chosen: list[GpuReading] = []
    for name in (part.strip() for part in visible.split(",")):
        match = [
            gpu
            for gpu in gpus
            if gpu.index == name or (name.startswith("GPU-") and gpu.uuid.startswith(name))
        ]
        if len(match) != 1 or match[0] in chosen:
            break
        chosen += match
    return chosen


def holder_of(reading: GpuReading, held: Mapping[str, str], own_pids: frozenset[int]) -> str | None:
    """The holder of a GPU: a run of ours, or another process; None if it is free."""
    if reading.index in held:
        return held[reading.index]
    for pid, name in reading.processes:
        if pid not in own_pids:
            return f"{name} (pid {pid})"
    if not reading.processes and reading.memory and reading.used > _BUSY_SHARE * reading.memory:
        return "an unknown process"
    return None


def to_gpus(readings: Sequence[GpuReading], held: Mapping[str, str]) -> tuple[Gpu, ...]:
    """The GPUs as placement needs them."""
    return tuple(
        Gpu(
            id=reading.index,
            model=reading.model,
            memory=reading.memory,
            holder=holder_of(reading, held, frozenset()),
        )
        for reading in readings
    )


def count_cpus() -> int:
    """The CPUs that we may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def total_memory() -> int:
    """The machine's memory in bytes."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _ask(program: str, query: str) -> list[list[str]]:
    try:
        answer = subprocess.run(
            [program, query, "--format=csv,noheader,nounits"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_PATIENCE,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return []
    if answer.returncode != 0:
        return []
    return [[cell.strip() for cell in line.split(",")] for line in answer.stdout.splitlines() if line.strip()]


def _mebibytes(text: str) -> int:
    return int(text) * 2**20 if text.isdigit() else 0
