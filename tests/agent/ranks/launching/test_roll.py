"""What a worker is told of the others is enough: it fills in the same values as one that knows them all."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from echelon.agent.ranks.launching import launch
from echelon.agent.ranks.launching.roll import Asked, Roll, seats
from echelon.agent.task import SCHEMA, Task

TEXTS = [
    "{rank}",
    "{index}",
    "{address:0}",
    "{address:LAST}:{port:LAST}",
    "{members:worker}",
    "{hosts}",
    "{machine:ALL}",
    "{rank_here:ALL}",
    "{ranks_here:ALL}",
    "{cross_rank:ALL}",
    "{cross_size:ALL}",
    "{cross_rank:workers:ALL}",
]


def task(sizes: list[tuple[int, int]], texts: list[str], *, in_files: bool = False) -> Task:
    """A run with a group of each size (workers, ranks of one); every launch has the same texts."""
    texts_by_name = {f"T{number}": text for number, text in enumerate(texts)}
    template: dict[str, Any] = {"argv": ["program"], "files" if in_files else "wiring": texts_by_name}
    groups = [
        {"role": "worker", "workers": workers, "procs": procs, "launch": template} for workers, procs in sizes
    ]
    paths = dict.fromkeys(("cwd", "logs", "secret", "output", "reports"), "/nowhere")
    leader = {"host": "", "port": 0}
    return Task({"schema": SCHEMA, "run": "r", "groups": groups, "leader": leader, **paths})


def told(made: Task, addresses: list[str], ports: list[list[int]]) -> list[Roll]:
    """The roll of every worker, from what the leader sends it."""
    asked = Asked(made)
    shared = json.loads(json.dumps(asked.shared(addresses, ports)))
    own: list[Any] = json.loads(json.dumps(asked.own(addresses))) or [None] * len(addresses)
    return [Roll(made, shared["addresses"], shared["ports"], each) for each in own]


def variables(made: Task, rolls: list[Roll]) -> list[dict[str, str]]:
    return [
        launch.environment({}, made, place, local, 0, roll, "/error", set())
        for place, roll in zip(made.places, rolls, strict=True)
        for local in range(place.procs)
    ]


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 3), st.integers(1, 3)), min_size=1, max_size=3),
    st.lists(st.sampled_from(TEXTS)),
    st.randoms(),
)
def test_what_is_told_is_enough(sizes: list[tuple[int, int]], texts: list[str], random: Any) -> None:
    ranks = sum(workers * procs for workers, procs in sizes)
    filled = [text.replace("LAST", str(ranks - 1)).replace("ALL", str(ranks)) for text in texts]
    made = task(sizes, filled)
    addresses = [f"10.0.0.{random.randint(1, 3)}" for _ in made.places]
    ports = [[1000 * place.worker + local for local in range(place.procs)] for place in made.places]
    everything = [Roll(made, addresses, ports)] * len(addresses)
    assert variables(made, told(made, addresses, ports)) == variables(made, everything)


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 3), st.integers(0, 3)), min_size=1, max_size=3),
    st.integers(0, 20),
    st.randoms(),
)
def test_seats_are_counted_over_the_first_ranks(
    sizes: list[tuple[int, int]], count: int, random: Any
) -> None:
    made = task(sizes, [])
    addresses = [f"10.0.0.{random.randint(1, 3)}" for _ in made.places]
    of_rank = [
        address for place, address in zip(made.places, addresses, strict=True) for _ in range(place.procs)
    ][:count]
    machines = list(dict.fromkeys(of_rank))
    found = seats(made, addresses, count)
    for place, address in zip(made.places, addresses, strict=True):
        for rank in range(place.first_rank, min(place.first_rank + place.procs, count)):
            machine, before, there = found[place.worker]
            assert machine == machines.index(address)
            assert before + rank - place.first_rank == of_rank[:rank].count(address)
            assert there == of_rank.count(address)


def test_files_ask_too() -> None:
    made = task([(3, 1)], ["{address:2}"], in_files=True)
    assert Asked(made).shared(["a", "b", "c"], [[1], [2], [3]]) == {
        "addresses": {"2": "c"}, "ports": {"2": [3]},
    }  # fmt: skip
