"""What will run where: the value that the dry run prints and the engine carries out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from echelon.model.world import World


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """How the ranks of one group are started: a template that the agent fills in for every generation.

    In `argv` and `env` only `{output}` and `{run}` are filled in, in `argv` also `{file:NAME}`. In `wiring`,
    the placeholders are: `{rank}`, `{local_rank}`, `{worker}`, `{index}` (among the ranks of the role),
    `{address:N}` and `{port:N}` (of rank N), `{members:ROLE}` (a JSON list of "address:port" of all ranks of
    a role) and `{file:NAME}` (the path of a file).

    `per` is how often the command starts: for every rank; once per worker, because it starts the ranks by
    itself; or once per run, on worker 0, because it starts the ranks everywhere. `ports` names the ranks that
    need a free port. `if_importable` adds variables where the workers' Python has a module. `env` are the
    user's variables for this group, beside those of the plan. `files` are texts by name, which each worker
    writes before its ranks start; their placeholders are those of `wiring` that all ranks of a worker share,
    and `{hosts}`: a line `ADDRESS slots=RANKS` for every worker with ranks, or, as `{hosts:ROLE}`, for those
    of a role.
    """

    argv: tuple[str, ...]
    per: Literal["rank", "worker", "leader"] = "rank"
    wiring: Mapping[str, str] = field(default_factory=dict)
    ports: Literal["none", "first", "all"] = "none"
    if_importable: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """Where one worker sits, and which GPUs are its own."""

    worker: int
    node: str
    gpus: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """One seat for every worker, in order."""

    seats: tuple[Seat, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A run, decided: its world, how each group starts, who sits where, and the rules it runs under.

    `gpu_models` are the models in the cluster that a wanted type of GPU means.
    """

    run: str
    framework: str
    world: World
    launches: tuple[Launch, ...]
    placement: Placement
    env: Mapping[str, str] = field(default_factory=dict)
    secrets: tuple[str, ...] = ()
    threads: tuple[int, ...] = ()  # per rank, for each group
    restarts: int = 0
    timeout: float | None = None
    gpu_models: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
