"""What will run where: the value that the dry run prints and the engine carries out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Literal

from echelon.model.engine.cluster import GPU_RESOURCE
from echelon.model.world import World
from echelon.values import frozen


@frozen
class Launch:
    """How the ranks of one group are started: a template that the agent fills in for every generation.

    In `argv` and `env` only `{output}` and `{run}` are filled in, in `argv` also `{file:NAME}`. In `wiring`,
    the placeholders are: `{rank}`, `{local_rank}`, `{worker}`, `{index}` (among the ranks of the role),
    `{ranks}` and `{workers}` (how many there are in this generation),
    `{address:N}` and `{port:N}` (of rank N), `{endpoint:N}` (both, as "address:port"), `{members:ROLE}` (a
    JSON list of "address:port" of all ranks of a role), `{file:NAME}` (the path of a file), and, of the first
    N ranks: `{machine:N}` (the number of the rank's machine), `{ranks_here:N}` (how many are on it),
    `{rank_here:N}` (which of them this one is), `{cross_size:N}` (how many machines have a rank of that
    number) and `{cross_rank:N}` (which of them this one is on); `{cross_size:workers:N}` and
    `{cross_rank:workers:N}` count over workers and `{local_rank}`.
    `{rendezvous}` is the secret word of a key-value store that worker 0 then serves on the port of rank 0
    (`agent/ranks/launching/rendezvous.py`), and `{interface}` the worker's network interface; without one the
    variable is not set. For a launcher there is `{ssh}`, the path of its remote shell, and in `argv` the word
    `{start_rank}`: what stands before the command of a rank, so that the agents take it in as one of theirs.

    `per` is how often the command starts: for every rank; once per worker, because it starts the ranks by
    itself; or once per run, on worker 0, because it starts the ranks everywhere. `until` says when the run
    has succeeded: when all ranks of essential groups have, or when the first has; the others are then stopped
    unless they end by themselves. `ports` names the ranks that need a free port. `if_importable` adds
    variables where the workers' Python has a module. `env` are the user's variables for this group, beside
    those of the job. `files` are texts by name, which each worker writes before its ranks start; their
    placeholders are those of `wiring` that all ranks of a worker share, and `{hosts}`: a line `ADDRESS
    slots=RANKS` for every worker with ranks, or, as `{hosts:ROLE}`, for those of a role; `{nodes}` are the
    same by the names that the remote shell knows, workers of one machine together (`{nodes:hydra}`: a line
    is `NAME:RANKS`, and `{nodes:discover}`: a script prints such lines). One that is called `*.sh` may be
    executed.
    """

    argv: tuple[str, ...]
    per: Literal["rank", "worker", "leader"] = "rank"
    until: Literal["all", "first"] = "all"
    wiring: Mapping[str, str] = field(default_factory=dict)
    ports: Literal["none", "first", "all"] = "none"
    if_importable: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)


@frozen
class Seat:
    """Where one worker sits, and which GPUs are its own."""

    worker: int
    node: str
    gpus: tuple[str, ...] = ()


@frozen
class Placement:
    """One seat for every worker, in order."""

    seats: tuple[Seat, ...]


@frozen
class Plan:
    """What is decided of a run: its world, how each group starts, and who sits where. What its user wants is
    in the Job, and there alone.

    `gpu_models` are the models in the cluster that a wanted type of GPU means; a pod asks for `gpu_resource`
    to get one.
    """

    world: World
    launches: tuple[Launch, ...]
    placement: Placement
    threads: tuple[int, ...] = ()  # per rank, for each group
    gpu_models: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    gpu_resource: str = GPU_RESOURCE
