"""How the workers of a run are printed with what they use."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from echelon.cli.printing.render import data, table
from echelon.cli.printing.say import say
from echelon.cli.printing.words import state
from echelon.model.engine.sample import gpus_of
from echelon.model.resources import format_memory

if TYPE_CHECKING:
    from echelon.model.engine.sample import GpuSample, WorkerSample
    from echelon.model.engine.usage import RunUsage, WorkerUse

_HEADS = ("WORKER", "RANK", "STATE", "NODE", "CPU", "MEMORY", "GPU", "GPU MEMORY")


def run_usage(found: RunUsage, format_: str) -> None:
    """A run's workers and ranks; columns that would be empty are left out."""
    if format_ != "text":
        data(found, format_)
        return
    say(f"{found.name}: {state(found.state)}")
    rows = [row for worker in found.workers for row in _rows(worker)]
    if not rows:
        say("its workers are not known yet")
        return
    shown = [
        number for number, head in enumerate(_HEADS) if head in _HEADS[:4] or any(row[number] for row in rows)
    ]
    say()
    table(
        [_HEADS[number] for number in shown],
        [tuple(row[number] or "-" for number in shown) for row in rows],
    )


def use_in_words(sample: WorkerSample | None) -> str:
    """What one worker uses, for the line that it has below the logs."""
    if sample is None:
        return ""
    busy, memory = _gpu_cells(sample.gpus)
    parts = [f"CPU {_percent(sample.cpus)}", format_memory(sample.memory)]
    return "  ".join([*parts, f"GPU {' '.join(filter(None, (busy, memory)))}"] if memory else parts)


def _rows(worker: WorkerUse) -> Iterator[tuple[str, ...]]:
    """A row for the worker; where it has several ranks, each has one below it."""
    several = len(worker.ranks) > 1
    memory = "" if worker.memory is None else format_memory(worker.memory)
    if memory and worker.memory_limit is not None:
        memory += f" of {format_memory(worker.memory_limit)}"
    yield (
        str(worker.worker) if worker.role == "worker" else f"{worker.worker} ({worker.role})",
        "all" if several else ",".join(str(each.rank) for each in worker.ranks),
        state(worker.state),
        worker.node or "",
        "" if worker.cpus is None else _percent(worker.cpus),
        memory,
        *_gpu_cells(worker.gpus),
    )
    for each in worker.ranks if several else ():
        gpus = gpus_of(worker, each.rank)
        yield (
            "",
            str(each.rank),
            "",
            "",
            _percent(each.cpus),
            format_memory(each.memory),
            *_gpu_cells(gpus),
        )


def _percent(cpus: float) -> str:
    return f"{100 * cpus:.0f}%"


def _gpu_cells(gpus: Sequence[GpuSample]) -> tuple[str, str]:
    """How busy they are on average, and their memory in sum."""
    if not gpus:
        return "", ""
    known = [each.busy for each in gpus if each.busy is not None]
    busy = f"{sum(known) / len(known):.0f}%" if known else ""
    used = format_memory(sum(each.memory_used for each in gpus))
    return busy, f"{used} of {format_memory(sum(each.memory for each in gpus))}"
