"""What the ranks of one worker use at one moment, as its agent has measured it: live values, stored nowhere.

CPU is in cores (1.0 is one core, all of it), memory in bytes; `at` is the time of the worker's machine."""

from __future__ import annotations

from typing import Protocol

from echelon.values import frozen


@frozen
class Lateness:
    """How a rank comes to the `collectives` that it calls with others, over the last of them: the share in
    which it comes `last`, its `mean` seconds after half of the ranks have come, and the share of the time for
    which others wait for it, as it usually is. Where the ranks are on machines with different clocks
    (`same_clock`), some milliseconds are inexact.
    """

    collectives: int
    last: float
    mean: float
    waits: float
    same_clock: bool = True


@frozen
class RankSample:
    """One rank, with all processes below it; `late` is known of ranks whose torch records collectives."""

    rank: int
    cpus: float
    memory: int
    processes: int = 1
    late: Lateness | None = None


@frozen
class GpuSample:
    """One GPU that the worker's ranks see; `busy` in per cent, the clock of its cores in MHz and the highest
    that it has, degrees Celsius, watts: None where the driver does not say. `slowed` is what slows its clock
    down, in nvidia-smi's words.
    """

    gpu: str
    busy: int | None = None
    memory_used: int = 0
    memory: int = 0
    clock: float | None = None
    clock_most: float | None = None
    temperature: float | None = None
    power: float | None = None
    power_limit: float | None = None
    slowed: tuple[str, ...] = ()


@frozen
class WorkerSample:
    """One worker. Memory is that of its pod, where it has one, with its limit; `idle` is for how many seconds
    no rank of it has printed or computed.
    """

    worker: int
    at: float
    ranks: tuple[RankSample, ...] = ()
    cpus: float = 0.0
    memory: int = 0
    memory_limit: int | None = None
    gpus: tuple[GpuSample, ...] = ()
    idle: float = 0.0


@frozen
class Samples:
    """The newest sample of every worker whose ranks run."""

    workers: tuple[WorkerSample, ...] = ()


class Sampled(Protocol):
    """What has ranks and GPUs: a sample, or a worker with what it uses."""

    @property
    def ranks(self) -> tuple[RankSample, ...]:
        """Each rank."""
        ...

    @property
    def gpus(self) -> tuple[GpuSample, ...]:
        """Each GPU."""
        ...


def gpus_of(sample: Sampled, rank: int) -> tuple[GpuSample, ...]:
    """The GPUs of one rank: its own where the worker has one for each rank, by the custom of LOCAL_RANK; else
    none can be told apart, and they are the worker's.
    """
    numbers = [each.rank for each in sample.ranks]
    if len(numbers) == 1 and rank in numbers:
        return sample.gpus
    if rank in numbers and len(numbers) == len(sample.gpus):
        return (sample.gpus[numbers.index(rank)],)
    return ()
