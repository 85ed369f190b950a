"""A run whose program is runs: a pipeline's steps, a sweep's trials.

Such a run, the parent, is an ordinary run of this machine. What it runs is an executor, which starts the
others, its children, one after the other or beside each other, here or in a cluster. That one of them begins,
ends, is left out or is taken from earlier is an event of the parent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Literal

from echelon.model.state import StepState
from echelon.values import frozen

DONE: frozenset[str] = frozenset({"succeeded", "cached", "kept", "ended-early"})
OVER: frozenset[str] = DONE | {"failed", "stopped", "timed-out", "lost", "damaged", "not-reached"}


@frozen
class Step:
    """One of the runs that a run is made of, and how it stands."""

    name: str
    state: StepState = "waiting"
    run: str = ""  # the address of its run, once there is one
    started: float | None = None
    ended: float | None = None
    reason: str = ""
    hint: str = ""
    exit_code: int | None = None
    cell: int | None = None  # of a notebook: the cell that failed, and the line in it
    line: int | None = None
    after: tuple[str, ...] = ()  # the steps that must be done before
    gets: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # what it is handed, by the step before
    size: str = ""  # in words, where it is more than one process
    params: Mapping[str, str] = field(default_factory=dict)  # of a sweep's trial: the values that it has
    value: float | None = None  # and what it has reached, by the sweep's objective


@frozen
class Parent:
    """Which run a run is a part of, and as what."""

    run: str
    step: str
    key: str = ""  # a digest of what it was started for: its parent goes on with it if that is the same


@frozen
class Objective:
    """The metric by which the trials of a sweep are compared."""

    metric: str
    goal: Literal["minimize", "maximize"] = "minimize"
    of: Literal["last", "best", "mean"] = "last"  # of a trial's values
    count: int = 1  # the mean is of so many, the last ones


@frozen
class Program:
    """What is known of a run that is made of runs before it begins."""

    title: str  # what it is, in lists: "notebook", "sweep"
    step_word: str = "step"  # what one of its children is called
    objective: Objective | None = None  # of a sweep
    source: str = ""  # the file that it was made of
    place: str = ""  # where its children run, as `Traits.place` has it; "" is this machine
    context: str = ""  # and namespace, in a cluster
    namespace: str = ""
    volume: str = ""  # what its steps share in a cluster, NAME/path
    volume_uid: str = ""  # of one that was made for it, and goes with it
    private: tuple[str, ...] = ()  # entries of its results folder that are no results
    wind_up: float = 60.0  # seconds that its executor has, beyond the grace of its steps, to end
