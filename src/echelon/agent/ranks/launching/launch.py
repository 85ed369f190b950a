"""A launch template filled in: what one rank is started with in one generation, and the files it finds.

Pure, but for the CPUs and the network interface that it may ask for, and the run's secret.
"""

from __future__ import annotations

import math
import os

from echelon.agent.address import LOOPBACK, interface_of, own_address
from echelon.agent.ranks import sockets
from echelon.agent.ranks.interpreter import is_python
from echelon.agent.ranks.launching.environment import threads as fair_threads
from echelon.agent.ranks.launching.roll import PLACEHOLDER, Roll
from echelon.agent.task import START_RANK, Place, Task, write_atomically

TYPE_CHECKING = False  # as mypy reads it; importing `typing` would cost a rank its first milliseconds
if TYPE_CHECKING:
    import re

LOOKS = "ECHELON_LOOKS"  # as in startup/sitecustomize.py, which takes it out of the environment
TORCHRUNS_GRACE = 30  # seconds from SIGTERM to SIGKILL that torchrun gives its ranks, unless it is told
STARTUP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "startup")  # for a rank's PYTHONPATH


def ports_needed(task: Task, place: Place) -> int:
    """How many free ports this worker must find."""
    ports = task.groups[place.group]["launch"].get("ports", "none")
    if ports == "all":
        return place.procs
    return 1 if ports == "first" and place.first_rank == 0 and place.procs else 0


def serves_rendezvous(task: Task, place: Place) -> bool:
    """Whether this worker serves a rendezvous on the port of rank 0: a variable of its ranks names one."""
    wiring = task.groups[place.group]["launch"].get("wiring", {})
    return ports_needed(task, place) > 0 and any("{rendezvous}" in text for text in wiring.values())


def starts(task: Task, place: Place) -> int:
    """How many processes this worker starts: one per rank, unless the command starts the ranks by itself, of
    this worker or of all.
    """
    per = task.groups[place.group]["launch"].get("per")
    if per == "leader":
        return 1 if place.worker == 0 else 0
    return min(1, place.procs) if per == "worker" else place.procs


def serves(task: Task, place: Place) -> bool:
    """Whether this worker only serves the launcher on worker 0, and has no command of its own to wait for."""
    return task.groups[place.group]["launch"].get("per") == "leader" and place.worker != 0


def essential_workers(task: Task) -> set[int]:
    """The workers whose ends are the run's end. One that only serves a launcher has none of its own."""
    essential = [place for place in task.places if place.essential]
    own = {place.worker for place in essential if not serves(task, place)}
    return own or {place.worker for place in essential}


def takes_ranks_in(task: Task) -> bool:
    """Whether the launcher starts its ranks through the agents' program, so that their ends are known."""
    return START_RANK in task.groups[0]["launch"]["argv"]


def launcher_path(path: str, argv: list[str], task: Task) -> str:
    """The PATH of a launcher: its remote shell before all else, as `ssh`; and, after all else, the folder of
    the ranks' Python, in which an environment that is not active has its mpirun.
    """
    beside = [os.path.dirname(word) for word in argv if os.path.isabs(word) and is_python(word)]
    return os.pathsep.join([os.path.dirname(sockets.shell_program(task)), path, *beside[-1:]])


def fill_argv(argv: list[str], task: Task, files: dict[str, str] | None = None) -> list[str]:
    """Fill in `{output}`, `{run}`, the paths of `files`, what starts a rank; other braces are the user's."""
    values = {"{output}": task.output, "{run}": task.run}
    values.update(("{file:%s}" % name, path) for name, path in (files or {}).items())
    filled = []
    for text in argv:
        if text == START_RANK:
            filled += sockets.start_rank_words(task)
            continue
        for placeholder, value in values.items():
            text = text.replace(placeholder, value)  # noqa: PLW2901 - one after the other
        filled.append(text)
    return filled


def looks_of(task: Task, rank: int, generation: int) -> str:
    """Where the names of the files begin by which a rank is looked at (`stuck/looking.py`)."""
    return os.path.join(task.reports, "look-%d-%d" % (rank, generation))


def notice_of(task: Task, generation: int) -> str:
    """The file that tells ranks to end: one for each start, also after the run was resumed, and the same on
    all workers, since launchers pass on variables.
    """
    return os.path.join(task.reports, "notice-%d.json" % (task.earlier + generation))


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


def write_files(task: Task, place: Place, roll: Roll) -> None:
    """Write the files that the launch brings; raises OSError."""
    for path, text in file_texts(task, place, roll).items():
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        write_atomically(path, text.encode())
        if path.endswith(".sh"):
            os.chmod(path, 0o755)  # noqa: S103 - whatever user the launcher's own processes have


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
        "ranks": str(task.ranks()),
        "worker": str(place.member),
        "workers": str(len(task.places)),
        "index": str(sum(each.procs for each in before) + local),
        "error_file": error_file,
        "ssh": sockets.shell_program(task),
        "grace": str(math.ceil(task.grace)),
    }

    paths = file_paths(task, place)
    env = dict(inherited)
    env.setdefault("PYTHONUNBUFFERED", "1")
    if task.grace > TORCHRUNS_GRACE:  # any program may start it
        env.setdefault("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", values["grace"])
    if "threads" in launch:
        env.setdefault("OMP_NUM_THREADS", str(launch["threads"] or fair_threads(place.procs)))
    wiring = launch.get("wiring", {})
    if any("{rendezvous}" in text for text in wiring.values()):
        from echelon.agent.ranks.launching import rendezvous  # imported here: only Horovod has one

        values["rendezvous"] = rendezvous.word(task.secret(), generation)
    if "{interface}" in wiring.values():
        values["interface"] = interface_of(own_address() or LOOPBACK)
    filled = {key: _fill(text, values, paths, roll) for key, text in wiring.items()}
    env.update({key: text for key, text in filled.items() if text or wiring[key] != "{interface}"})
    for module, extra in launch.get("if_importable", {}).items():
        if module in importable:
            for key, text in extra.items():
                env.setdefault(key, text)
    env.update(
        ECHELON_RUN=task.run,
        ECHELON_WORKER=str(place.member),
        ECHELON_SEAT=str(place.worker),
        ECHELON_WORKERS=str(len(task.places)),
        ECHELON_RANK=str(rank),
        ECHELON_RANKS=str(task.ranks()),
        ECHELON_RESTART=str(task.earlier + generation),
        ECHELON_OUTPUT=task.output,
        ECHELON_NOTICE=notice_of(task, generation),
    )
    for variables in (task.env, launch.get("env", {})):
        env.update({key: fill_argv([text], task)[0] for key, text in variables.items()})
    return with_ahead(env, ahead or {})


def _fill(text: str, values: dict[str, str], paths: dict[str, str], roll: Roll) -> str:
    """Replace the agent's placeholders; one without a value here stays as it is."""

    def look_up(match: re.Match[str]) -> str:
        kind, _, which = match[1].partition(":")
        if kind in ("address", "port", "endpoint"):
            return roll.where(int(which), kind)
        if kind == "members":
            return roll.members(which)
        if kind in ("machine", "rank_here", "ranks_here"):
            machine, before, ranks = roll.seat(int(values["worker"]), int(which))
            if kind == "rank_here":
                return str(before + int(values["local_rank"]))
            return str(machine if kind == "machine" else ranks)
        if kind in ("cross_rank", "cross_size"):
            crossing = roll.crossing(int(values["worker"]), int(values["local_rank"]), which)
            return str(crossing[kind == "cross_size"])
        if kind == "hosts":
            return roll.hosts(which)
        if kind == "nodes":
            return roll.nodes(which)
        if kind == "file":
            return paths.get(which, match[0])
        return values.get(kind, match[0])

    return PLACEHOLDER.sub(look_up, text)


def with_ahead(env: dict[str, str], ahead: dict[str, str]) -> dict[str, str]:
    """Put folders before those that a path variable has already."""
    for key, folders in ahead.items():
        env[key] = folders + os.pathsep + env[key] if env.get(key) else folders
    return env
