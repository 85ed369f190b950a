"""How this machine is printed: its GPUs, and who uses them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from echelon.cli.printing.render import data, table
from echelon.cli.printing.say import say, style
from echelon.cli.printing.words import state
from echelon.model.resources import format_memory

if TYPE_CHECKING:
    from echelon.model.engine.usage import MachineUsage


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
