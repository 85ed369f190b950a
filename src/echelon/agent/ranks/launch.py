"""A launch template filled in: what one rank is started with in one generation.

Pure, but for the CPUs it may ask for.
"""

from __future__ import annotations

import json
import os
import re

from echelon.agent.ranks.environment import threads as fair_threads
from echelon.agent.task import Place, Task

_WORD = re.compile(r"\{(rank|local_rank|worker|index|error_file|address:\d+|port:\d+|members:\w+)\}")


class Roll:
    """Who is there in one generation: the address of every worker, and the ports of its ranks."""

    def __init__(self, task: Task, addresses: list[str], ports: list[list[int]]) -> None:
        self.addresses: dict[int, str] = {}
        self.ports: dict[int, int] = {}
        self._by_role: dict[str, list[str]] = {}
        for place, address, own_ports in zip(task.places, addresses, ports):
            for local in range(place.procs):
                rank = place.first_rank + local
                self.addresses[rank] = address
                if local < len(own_ports):
                    self.ports[rank] = own_ports[local]
                    self._by_role.setdefault(place.role, []).append(join(address, own_ports[local]))

    def members(self, role: str) -> str:
        """All ranks of a role, as a JSON list of address:port."""
        return json.dumps(self._by_role.get(role, []))


def join(address: str, port: int) -> str:
    """address:port, with the brackets that an IPv6 address needs."""
    return "[%s]:%d" % (address, port) if ":" in address else "%s:%d" % (address, port)


def ports_needed(task: Task, place: Place) -> int:
    """How many free ports this worker must find."""
    ports = task.groups[place.group]["launch"].get("ports", "none")
    if ports == "all":
        return place.procs
    return 1 if ports == "first" and place.first_rank == 0 else 0


def starts(task: Task, place: Place) -> int:
    """How many processes this worker starts: one per rank, unless its command starts the ranks by itself."""
    return 1 if task.groups[place.group]["launch"].get("per") == "worker" else place.procs


def fill_argv(argv: list[str], task: Task) -> list[str]:
    """Fill in `{output}` and `{run}`; other braces are the user's."""
    return [word.replace("{output}", task.output).replace("{run}", task.run) for word in argv]


def environment(
    inherited: dict[str, str],
    task: Task,
    place: Place,
    local: int,
    generation: int,
    roll: Roll,
    error_file: str,
    importable: set[str],
    ahead: dict[str, str] | None = None,
) -> dict[str, str]:
    """Everything a rank finds in its environment. The user's own variables have the last word; `ahead` is put
    before their values.
    """
    launch = task.groups[place.group]["launch"]
    rank = place.first_rank + local
    before = (each for each in task.places if each.role == place.role and each.worker < place.worker)
    values = {
        "rank": str(rank),
        "local_rank": str(local),
        "worker": str(place.worker),
        "index": str(sum(each.procs for each in before) + local),
        "error_file": error_file,
    }

    def look_up(match: re.Match[str]) -> str:
        kind, _, which = match[1].partition(":")
        if kind == "address":
            return roll.addresses[int(which)]
        if kind == "port":
            return str(roll.ports[int(which)])
        if kind == "members":
            return roll.members(which)
        return values[kind]

    env = dict(inherited)
    env.setdefault("PYTHONUNBUFFERED", "1")
    if "threads" in launch:
        env.setdefault("OMP_NUM_THREADS", str(launch["threads"] or fair_threads(place.procs)))
    env.update({key: _WORD.sub(look_up, text) for key, text in launch.get("wiring", {}).items()})
    for module, extra in launch.get("if_importable", {}).items():
        if module in importable:
            for key, text in extra.items():
                env.setdefault(key, text)
    env.update(
        ECHELON_RUN=task.run,
        ECHELON_WORKER=str(place.worker),
        ECHELON_WORKERS=str(len(task.places)),
        ECHELON_RANK=str(rank),
        ECHELON_RANKS=str(task.ranks()),
        ECHELON_RESTART=str(generation),
        ECHELON_OUTPUT=task.output,
    )
    env.update({key: fill_argv([text], task)[0] for key, text in task.env.items()})
    return with_ahead(env, ahead or {})


def with_ahead(env: dict[str, str], ahead: dict[str, str]) -> dict[str, str]:
    """Put folders before those that a path variable has already."""
    for key, folders in ahead.items():
        env[key] = folders + os.pathsep + env[key] if env.get(key) else folders
    return env
