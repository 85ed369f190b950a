"""A launch template filled in: what one rank is started with in one generation, and the files it finds.

Pure, but for the CPUs it may ask for.
"""

from __future__ import annotations

import json
import os
import re

from echelon.agent.ranks.environment import threads as fair_threads
from echelon.agent.task import Place, Task

_PLACEHOLDER = re.compile(
    r"\{(rank|local_rank|worker|index|error_file|address:\d+|port:\d+|members:\w+|file:[\w.-]+|hosts(?::\w+)?)\}"
)


class Roll:
    """The gang of one generation: the address of every worker, and the ports of its ranks."""

    def __init__(self, task: Task, addresses: list[str], ports: list[list[int]]) -> None:
        self.addresses: dict[int, str] = {}
        self.ports: dict[int, int] = {}
        self._by_role: dict[str, list[str]] = {}
        self._hosts: list[tuple[str, str]] = []  # each worker's role and line
        for place, address, own_ports in zip(task.places, addresses, ports):
            if place.procs:
                self._hosts.append((place.role, "%s slots=%d\n" % (address, place.procs)))
            for local in range(place.procs):
                rank = place.first_rank + local
                self.addresses[rank] = address
                if local < len(own_ports):
                    self.ports[rank] = own_ports[local]
                    self._by_role.setdefault(place.role, []).append(join(address, own_ports[local]))

    def members(self, role: str) -> str:
        """All ranks of a role, as a JSON list of address:port."""
        return json.dumps(self._by_role.get(role, []))

    def hosts(self, role: str) -> str:
        """A line for each worker with ranks, of one role or of all (""): what mpirun calls a hostfile."""
        return "".join(line for of, line in self._hosts if role in ("", of))


def join(address: str, port: int) -> str:
    """address:port, with the brackets that an IPv6 address needs."""
    return "[%s]:%d" % (address, port) if ":" in address else "%s:%d" % (address, port)


def ports_needed(task: Task, place: Place) -> int:
    """How many free ports this worker must find."""
    ports = task.groups[place.group]["launch"].get("ports", "none")
    if ports == "all":
        return place.procs
    return 1 if ports == "first" and place.first_rank == 0 and place.procs else 0


def starts(task: Task, place: Place) -> int:
    """How many processes this worker starts: one per rank, unless the command starts the ranks by itself, of
    this worker or of all.
    """
    per = task.groups[place.group]["launch"].get("per")
    if per == "leader":
        return 1 if place.worker == 0 else 0
    return min(1, place.procs) if per == "worker" else place.procs


def fill_argv(argv: list[str], task: Task, files: dict[str, str] | None = None) -> list[str]:
    """Fill in `{output}`, `{run}` and the paths of `files`; other braces are the user's."""
    values = {"{output}": task.output, "{run}": task.run}
    values.update(("{file:%s}" % name, path) for name, path in (files or {}).items())
    filled = []
    for text in argv:
        for placeholder, value in values.items():
            text = text.replace(placeholder, value)  # noqa: PLW2901 - one after the other
        filled.append(text)
    return filled


def file_paths(task: Task, place: Place) -> dict[str, str]:
    """Where a worker writes the files of its launch. On one machine all workers of a run share a folder."""
    folder = os.path.join(task.reports, "files", "worker-%d" % place.worker)
    return {name: os.path.join(folder, name) for name in task.groups[place.group]["launch"].get("files", {})}


def file_texts(task: Task, place: Place, roll: Roll) -> dict[str, str]:
    """The texts of those files in one generation, by path."""
    texts = task.groups[place.group]["launch"].get("files", {})
    paths = file_paths(task, place)
    values = {"worker": str(place.worker)}
    return {
        path: fill_argv([_fill(texts[name], values, paths, roll)], task)[0] for name, path in paths.items()
    }


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
    """Everything a rank finds in its environment. The user's own variables are stronger than echelon's, those
    of the group than those of the run; `ahead` is put before their values.
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

    paths = file_paths(task, place)
    env = dict(inherited)
    env.setdefault("PYTHONUNBUFFERED", "1")
    if "threads" in launch:
        env.setdefault("OMP_NUM_THREADS", str(launch["threads"] or fair_threads(place.procs)))
    env.update({key: _fill(text, values, paths, roll) for key, text in launch.get("wiring", {}).items()})
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
    for variables in (task.env, launch.get("env", {})):
        env.update({key: fill_argv([text], task)[0] for key, text in variables.items()})
    return with_ahead(env, ahead or {})


def _fill(text: str, values: dict[str, str], paths: dict[str, str], roll: Roll) -> str:
    """Replace the agent's placeholders; one without a value here stays as it is."""

    def look_up(match: re.Match[str]) -> str:
        kind, _, which = match[1].partition(":")
        if kind == "address":
            return roll.addresses[int(which)]
        if kind == "port":
            return str(roll.ports[int(which)])
        if kind == "members":
            return roll.members(which)
        if kind == "hosts":
            return roll.hosts(which)
        if kind == "file":
            return paths.get(which, match[0])
        return values.get(kind, match[0])

    return _PLACEHOLDER.sub(look_up, text)


def with_ahead(env: dict[str, str], ahead: dict[str, str]) -> dict[str, str]:
    """Put folders before those that a path variable has already."""
    for key, folders in ahead.items():
        env[key] = folders + os.pathsep + env[key] if env.get(key) else folders
    return env
