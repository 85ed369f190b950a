"""Usage as it is printed: of a run, its workers and why it is as it is; of this machine, its GPUs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from echelon.cli.printing.render import data, table
from echelon.cli.printing.say import say, style
from echelon.cli.printing.words import one_line, state
from echelon.model.engine.sample import gpus_of
from echelon.model.resources import format_memory
from echelon.observation.reasons import beside, lateness_in_words, slow_ranks

if TYPE_CHECKING:
    from echelon.model.engine.sample import GpuSample, RankSample, WorkerSample
    from echelon.model.engine.usage import MachineUsage, RunUsage, WorkerUse
    from echelon.observation.reasons import Reason

_HEADS = ("WORKER", "RANK", "STATE", "NODE", "CPU", "MEMORY", "GPU", "GPU MEMORY", "LATE")
_COLOURS = {"stuck": "red", "failed": "red", "lost": "red", "slow": "yellow", "throttled": "yellow"}


def run_usage(found: RunUsage, format_: str) -> None:
    """A run's workers and ranks; columns that would be empty are left out."""
    if format_ != "text":
        data(found, format_)
        return
    say(f"{found.name}: {state(found.state)}")
    slow = slow_ranks(found)
    rows = [row for worker in found.workers for row in _rows(worker, slow)]
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
    for number, reason in enumerate(beside(found)):
        if number == 0:
            say()
        say(style(one_line(reason.text), fg=_COLOURS.get(reason.kind)))


def reasons(name: str, uri: str, found: Sequence[Reason], format_: str) -> None:
    """What a run is doing and why: a line for each reason and, below it, its details."""
    if format_ != "text":
        data({"name": name, "uri": uri, "reasons": found}, format_)
        return
    say(style(name, bold=True))
    for reason in found:
        part = f"step {reason.part}: " if reason.part else ""
        say(f"  {part}{style(one_line(reason.text), fg=_COLOURS.get(reason.kind))}")
        for line in reason.details:
            say(f"    {line}")
        if reason.hint:
            say(f"    hint: {one_line(reason.hint)}")


def use_in_words(sample: WorkerSample | None) -> str:
    """What one worker uses, for the line that it has below the logs."""
    if sample is None:
        return ""
    busy, memory = _gpu_cells(sample.gpus)
    parts = [f"CPU {_percent(sample.cpus)}", format_memory(sample.memory)]
    return "  ".join([*parts, f"GPU {' '.join(filter(None, (busy, memory)))}"] if memory else parts)


def _rows(worker: WorkerUse, slow: Sequence[int]) -> Iterator[tuple[str, ...]]:
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
        "" if several else " ".join(_late(each, slow) for each in worker.ranks),
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
            _late(each, slow),
        )


def _late(rank: RankSample, slow: Sequence[int]) -> str:
    """How late a rank comes that keeps the others waiting."""
    return lateness_in_words(rank.late) if rank.late is not None and rank.rank in slow else ""


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


def machine_usage(found: MachineUsage, format_: str) -> None:
    """The machine, its GPUs and who uses them."""
    if format_ != "text":
        data(found, format_)
        return
    memory = f"{format_memory(found.memory_used)} of {format_memory(found.memory)}"
    say(f"{found.cpus} CPUs, load {found.load:.2f}; memory {memory}")
    say()
    if found.gpus:
        rows = [
            (
                each.gpu,
                each.model,
                f"{format_memory(each.used)} of {format_memory(each.memory)}",
                "-" if each.utilization is None else f"{each.utilization} %",
                each.user or style("free", fg="green"),
            )
            for each in found.gpus
        ]
        table(("GPU", "MODEL", "MEMORY", "BUSY", "USED BY"), rows)
    else:
        say("no GPUs")
    say()
    if found.runs:
        run_rows = [
            (
                each.name,
                state(each.state),
                str(each.processes),
                f"{each.cpus:.2f}",
                format_memory(each.memory),
                ",".join(each.gpus) or "-",
            )
            for each in found.runs
        ]
        table(("RUN", "STATE", "PROCESSES", "CPUS", "MEMORY", "GPUS"), run_rows)
    else:
        say("no runs")
