"""How the results of a run in pods come home: one answer, by what its user asked for and may do. Pure.

What is written to a volume stays there. Of a run whose workers have devices that others wait for, with
which no command stays, or whose checkpoints outlive their pods, a keeper takes the results, and the workers
go. The workers of any other run hold theirs, each by a timer of its own; so do those from whom no keeper
takes them: it has no room for them, or the cluster none for it, or it has not started yet."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from echelon.errors import InvalidJob
from echelon.model.pods.pod import LINGER, Keeper, Output, PodOptions
from echelon.values import frozen

HANDOVER = 60.0  # seconds that workers hold at least what a keeper is to take


@frozen
class WayHome:
    """The way of a run's results, and for how many seconds each worker holds what is on no volume."""

    way: Literal["volume", "keeper", "hold"]
    hold: float


def way_home(options: PodOptions) -> WayHome:
    """The way that a run's results take."""
    if options.keeper is not None:
        return WayHome(way="keeper", hold=max(options.linger, HANDOVER))
    if options.output is not None:
        return WayHome(way="volume", hold=options.linger if options.collect else 0.0)
    return WayHome(way="hold", hold=options.linger)


def choose_keeper(
    keep: float,
    size: int,
    *,
    devices: bool,
    detached: bool,
    output: Output | None,
    checkpoints: str | None = None,
) -> Keeper | None:
    """The keeper of a run, if it is to have one. Raise InvalidJob if checkpoints would be kept nowhere."""
    if checkpoints is not None and output is None and not (keep and size):
        raise InvalidJob(
            "checkpoints",
            checkpoints,
            "would be kept by the small pod that --keep 0 or TIME:0 leaves out",
            hint="leave the 0 out; or --output pvc:NAME or new:10Gi keeps them on a volume",
        )
    wanted = keep > 0 and size > 0 and output is None and (devices or detached or checkpoints is not None)
    return Keeper(keep=keep, size=size) if wanted else None


def keeps_checkpoints(options: PodOptions) -> bool:
    """Whether the run's keeper has its checkpoints while it trains, so that it can go on from them."""
    return options.keeper is not None and options.checkpoints is not None and options.output is None


def without_exec(options: PodOptions) -> PodOptions:
    """What is asked for by a user without the right to `pods/exec`, who fetches nothing from workers: they do
    not wait for that, unless the user said for how long.
    """
    return options if options.linger != LINGER else replace(options, linger=0.0)
